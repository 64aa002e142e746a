"""Sinks `webhook:URL` and `heartbeat:URL`: a POST over HTTPS. urllib3's only door.

    status                                  means
    2xx                                     taken
    301 302 307 308                         the same POST there, at most REDIRECTS_MOST times
    408 425 429 503; no connection at all   the sink is down: the queue waits, as long as Retry-After says
    400 410 413 414 415 422                 refused: this message will never be taken
    everything else, a lost connection      this message was not taken this time

Every attempt has the same body and `X-Crtrd-Delivery`; the number of the attempt is a header too. A redirect to another
host gets neither the credentials of the URL nor the signature, and never leads from https to http. A receiver that has
said 2xx has taken it, whatever becomes of the connection then.
"""

import hmac
import time
from base64 import b64encode
from email.utils import parsedate_to_datetime
from hashlib import sha256
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

import urllib3
from urllib3 import exceptions as faults

from crtrd.core.sinks import url_fault
from crtrd.delivery.attempt import TAKEN, Job, Said, down, failed, refused

CONNECT_SECONDS = 10.0
REDIRECTS_MOST = 5
REDIRECTS = frozenset({301, 302, 307, 308})
DOWN = frozenset({408, 425, 429, 503})
NEVER = frozenset({400, 410, 413, 414, 415, 422})
MARGIN = 2.0
SUFFIX = {"started": "/start", "failed": "/fail"}


def deliver(job: Job) -> Said:
    url = urlsplit(job.argument)
    if job.sink == "heartbeat":
        url = url._replace(path=url.path.rstrip("/") + SUFFIX.get(job.kind, ""))
    body = job.message.encode("utf-8")
    private = {**_authorization(url), **_signature(job.secret, body)}
    plain = {
        "Content-Type": "application/json", "User-Agent": "crtrd", "X-Crtrd-Delivery": job.id,
        "X-Crtrd-Attempt": str(job.attempt), "X-Crtrd-Event": job.kind, "Idempotency-Key": job.id,
    }
    left = job.timeout - MARGIN
    limits = urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=left, total=left)
    with urllib3.PoolManager(timeout=limits, retries=False, cert_reqs="CERT_REQUIRED") as pool:
        return _post(pool, _bare(url), body, plain, private)


def _post(
    pool: urllib3.PoolManager, url: SplitResult, body: bytes, plain: dict[str, str], private: dict[str, str]
) -> Said:
    for _ in range(REDIRECTS_MOST + 1):
        try:
            response = pool.request("POST", urlunsplit(url), body=body, headers={**plain, **private}, redirect=False,
                                    preload_content=False)
        except (faults.NewConnectionError, faults.ConnectTimeoutError, faults.SSLError) as error:
            return down(f"cannot connect to {url.hostname}: {_why(error)}")
        except faults.TimeoutError:
            return failed(f"{url.hostname} did not answer in time")
        except faults.HTTPError as error:
            return failed(f"{url.hostname} broke the connection: {_why(error)}")
        status, headers = response.status, response.headers
        response.close()
        if status not in REDIRECTS:
            return _judged(url.hostname or "", status, headers.get("Retry-After", ""))
        onward = _onward(url, headers.get("Location", ""))
        if onward is None:
            return failed(f"{url.hostname} redirects to where nothing is sent")
        if (onward.scheme, onward.netloc) != (url.scheme, url.netloc):
            private = {}
        url = _bare(onward)
    return failed(f"{url.hostname} redirects more than {REDIRECTS_MOST} times")


def _judged(host: str, status: int, retry_after: str) -> Said:
    text = f"{host} answered with status {status}"
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's range of success
        return TAKEN
    if status in DOWN:
        return down(text, seconds(retry_after) * 1_000_000)
    return refused(text) if status in NEVER else failed(text, seconds(retry_after) * 1_000_000)


def seconds(retry_after: str) -> int:
    """Whole seconds of a Retry-After header, a number or a date; 0 for anything else."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), 10**8)
    try:
        return max(int(parsedate_to_datetime(text).timestamp() - time.time()), 0)  # noqa: TID251 - the helper has no loop
    except (TypeError, ValueError, OverflowError):
        return 0


def _bare(url: SplitResult) -> SplitResult:
    """Without user, password and fragment: what may be sent and shown to the other side."""
    return url._replace(netloc=url.netloc.rpartition("@")[2], fragment="")


def _authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode('ascii')}"}


def _signature(secret: str, body: bytes) -> dict[str, str]:
    if not secret:
        return {}
    return {"X-Crtrd-Signature": f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}"}


def _onward(url: SplitResult, location: str) -> SplitResult | None:
    """Where a redirect leads; None where nothing is sent: nowhere, to what is no URL, or from https to http."""
    try:
        there = urlsplit(urljoin(urlunsplit(url), location))
    except ValueError:  # [ without an address of IPv6
        return None
    if not location.strip() or url_fault(urlunsplit(there._replace(fragment=""))):
        return None
    return there if there.scheme == "https" or url.scheme == "http" else None


def _why(error: Exception) -> str:
    """The system's own words; those of the library would name the whole URL."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror and seen.errno is not None:
            return str(seen.strerror)
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


