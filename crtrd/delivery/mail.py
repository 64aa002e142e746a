"""Sink `mail:ADDRESS`: hands a message to the host's `sendmail -i -t`. Queueing beyond that is the MTA's.

The Message-ID comes from the delivery's id and the Date from what it tells, so that an MTA or a reader that gets the
same message twice can know it. Exit statuses are those of sysexits.h.
"""

import json
import os
import socket
import subprocess
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from crtrd.delivery.attempt import TAKEN, Job, Said, down, failed, refused
from crtrd.delivery.mta import sendmail

TEXT_MOST = 256 * 1024
MARGIN = 2.0
NEVER = frozenset({os.EX_USAGE, os.EX_DATAERR, os.EX_NOUSER, os.EX_NOHOST})
POLICY = SMTP.clone(linesep="\n", utf8=False)  # -i wants the lines of this system; headers go as RFC 2047


def deliver(job: Job) -> Said:
    program = sendmail()
    if program is None:
        return down("there is no sendmail program: install a mail transport agent")
    try:
        done = subprocess.run(
            [program, "-i", "-t"], input=compose(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=job.timeout - MARGIN, check=False)
    except subprocess.TimeoutExpired:
        return failed(f"sendmail did not end within {job.timeout - MARGIN:g} s")
    except OSError as error:
        return down(f"cannot start sendmail: {error.strerror}")
    if done.returncode == 0:
        return TAKEN
    how = f"sendmail ended with {f'signal {-done.returncode}' if done.returncode < 0 else f'status {done.returncode}'}"
    return refused(how) if done.returncode in NEVER else failed(how)


def compose(job: Job) -> bytes:
    """The whole message; equal in every attempt but for the number of the attempt in the header."""
    document = json.loads(job.message)
    mail = EmailMessage(policy=POLICY)
    mail["From"] = _sender(job.mail_from)
    mail["To"] = job.argument
    mail["Subject"] = " ".join(_clean(str(document["subject"])).split())[:200]
    mail["Date"] = format_datetime(datetime.fromisoformat(str(document["at"])))
    mail["Message-ID"] = f"<{job.id}@{_domain(job.mail_from)}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Crtrd-Cron"] = job.cron_name
    mail["X-Crtrd-Event"] = job.kind
    mail["X-Crtrd-Delivery"] = job.id
    mail["X-Crtrd-Attempt"] = str(job.attempt)
    mail.set_content(_cut(str(document["text"])), charset="utf-8", cte="quoted-printable")
    return mail.as_bytes()


def _sender(configured: str) -> str | Address:
    return configured or Address("crtrd", "root")


def _domain(configured: str) -> str:
    domain = configured.rpartition("@")[2].strip("> ")
    return domain if configured and domain else socket.gethostname() or "localhost"


def _cut(text: str) -> str:
    clean = _clean(text)
    if len(clean) <= TEXT_MOST:
        return clean
    return f"{clean[:TEXT_MOST]}\n\n(cut here: the whole text has {len(text)} characters)\n"


def _clean(text: str) -> str:
    """No surrogates, and no controls but tab and newline: mail readers show this on terminals."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c in "\n\t" or (c.isprintable() or ord(c) > 0x9F) else "\N{REPLACEMENT CHARACTER}"  # noqa: PLR2004 - the end of C1
                   for c in plain)
