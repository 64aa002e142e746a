"""The texts of `sinks`, pure: what kind, what argument, what may be shown of it, what is wrong with it.

A URL may be a secret as a whole (many services put a token into the path), so that only its host is ever shown; of a
command only the program.
"""

import re
from enum import StrEnum

from crtrd.values import dataclass


class SinkKind(StrEnum):
    INBOX = "inbox"
    JOURNAL = "journal"
    MAIL = "mail"
    EXEC = "exec"
    WEBHOOK = "webhook"
    FILE = "file"
    UNIT = "unit"
    CRON = "cron"
    HEARTBEAT = "heartbeat"


OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")
_WORD = r"[^\s,;:<>()\[\]\\\"@\x00-\x1f\x7f-\U0010ffff]+"
ADDRESS = re.compile(rf"(?!-){_WORD}(@{_WORD})?")
"""An account or one address, in ASCII: what is beyond it would have to be encoded and reach somebody else or nobody."""
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,240}\.(service|target|socket|path|timer|mount|scope|slice)")
CRON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
URL = re.compile(r"(https?)://(?:([^/?#@\s]*)@)?(\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)(:\d{1,5})?([/?#]\S*)?", re.ASCII)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
PORT_MOST, HOST_MOST, LABEL_MOST = 65535, 253, 63
SECRET = re.compile(r"secret=([A-Za-z0-9][A-Za-z0-9._-]{0,63})")


@dataclass(frozen=True, slots=True)
class Sink:
    kind: SinkKind
    argument: str

    @property
    def label(self) -> str:
        """What may stand in events, lists and errors."""
        match self.kind:
            case SinkKind.WEBHOOK | SinkKind.HEARTBEAT:
                return f"{self.kind}:{safe_url(self.argument)}"
            case SinkKind.EXEC:
                return f"exec:{self.argument.split()[0]}" if self.argument.split() else "exec:"
            case _:
                return f"{self.kind}:{self.argument}" if self.argument else str(self.kind)


def parse(text: str) -> Sink:
    """Raises ValueError with a reason that shows nothing of a URL."""
    word, colon, argument = text.partition(":")
    if word not in set(SinkKind):
        raise ValueError(f"{word[:40]!r} is no sink; there are {', '.join(sorted(SinkKind))}")
    kind = SinkKind(word)
    if reason := _fault(kind, argument, given=bool(colon)):
        raise ValueError(f"{kind}: {reason}")
    return Sink(kind, argument)


def _fault(kind: SinkKind, argument: str, *, given: bool) -> str:  # noqa: PLR0911 - a table
    match kind:
        case SinkKind.JOURNAL:
            return "it takes no argument" if given else ""
        case SinkKind.INBOX:
            return "" if not given or OWNER.fullmatch(argument) else "an owner is 1 to 64 of A-Z a-z 0-9 . _ @ -"
        case SinkKind.MAIL:
            return "" if ADDRESS.fullmatch(argument) else "one mail address is wanted, in ASCII (a domain as xn--…)"
        case SinkKind.EXEC:
            return "" if argument.strip() else "a command is wanted"
        case SinkKind.FILE:
            return "" if argument.startswith("/") and not argument.endswith("/") else "an absolute path is wanted"
        case SinkKind.UNIT:
            return "" if UNIT.fullmatch(argument) else "the full name of a unit is wanted"
        case SinkKind.CRON:
            return "" if CRON.fullmatch(argument) else "the name of a cron is wanted"
        case SinkKind.WEBHOOK | SinkKind.HEARTBEAT:
            return url_fault(argument)


def url_fault(text: str) -> str:
    """Why nothing is sent there, '' where it may be."""
    found = URL.fullmatch(text)
    if not found or not text.isascii() or not text.isprintable():
        return "an https URL is wanted"
    if reason := _host_fault(found[3], found[4] or ""):
        return reason
    if found[1] == "http" and found[3] not in LOOPBACK:
        return "http is for this host only, elsewhere https is wanted"
    fragment = text.partition("#")[2]
    if fragment and not SECRET.fullmatch(fragment):
        return "after # only secret=NAME may follow"
    return ""


def _host_fault(host: str, port: str) -> str:
    """What no connection could ever be made to is said when it is armed, not by each of its deliveries."""
    if port and not 1 <= int(port[1:]) <= PORT_MOST:
        return f"a port is a number from 1 to {PORT_MOST}"
    if host.startswith("["):
        from ipaddress import IPv6Address  # noqa: PLC0415 - hardly any URL has one, and it takes a while

        try:
            IPv6Address(host[1:-1])
        except ValueError:
            return "between [ and ] an IPv6 address is wanted"
        return ""
    labels = host.removesuffix(".").split(".")
    if len(host) > HOST_MOST or not all(1 <= len(label) <= LABEL_MOST for label in labels):
        return "the name of its host is none"
    return ""


def is_local(text: str) -> bool:
    """Waits for nobody but the disk."""
    return text.partition(":")[0] in {SinkKind.INBOX, SinkKind.JOURNAL}


def is_read_by_people(text: str) -> bool:
    """Who gets it wants to know what to do; the others are programs and want what the run has said."""
    return text.partition(":")[0] in {SinkKind.INBOX, SinkKind.MAIL}


def secret_of(url: str) -> str:
    """The name of the secret that signs, '' where none is named. It is never sent."""
    found = SECRET.fullmatch(url.partition("#")[2])
    return found[1] if found else ""


def safe_url(url: str) -> str:
    """Scheme and host; user, password, path and query may be secrets."""
    found = URL.fullmatch(url)
    return f"{found[1]}://{found[3]}{found[4] or ''}/…" if found else "…"


def triggers(sinks: tuple[str, ...]) -> list[str]:
    """The crons that these sinks trigger."""
    return [text.partition(":")[2] for text in sinks if text.startswith("cron:")]
