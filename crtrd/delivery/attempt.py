"""One attempt: what it is given, what it says. Crosses to the helper process as JSON on a descriptor, never as argv."""

import json
from dataclasses import asdict
from pathlib import Path

from crtrd.core.delivery import Outcome
from crtrd.values import dataclass

ERROR_MOST = 1000

@dataclass(frozen=True, slots=True)
class Job:
    """All that a sink needs. `message` is the document; equal in every attempt."""

    id: str
    attempt: int
    kind: str
    cron_id: str
    cron_name: str
    run_id: str
    sink: str
    argument: str
    message: str
    timeout: float
    """Seconds for the whole attempt."""
    uid: int | None = None
    """Become this user for commands and files; None: stay."""
    secret: str = ""
    """What signs a webhook's body, '' for no signature."""
    mail_from: str = ""
    home: str = ""
    """CRTR_HOME where it is set."""

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii")


def load(data: bytes) -> Job:
    return Job(**json.loads(data))


@dataclass(frozen=True, slots=True)
class Said:
    """What came of an attempt. `error` shows nothing secret; `retry_after` in microseconds."""

    outcome: Outcome
    error: str = ""
    retry_after: int = 0

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii")


TAKEN = Said(Outcome.TAKEN)


def said(data: bytes) -> Said:
    """Raises ValueError where the helper said something else."""
    values = json.loads(data)
    if not isinstance(values, dict):
        raise ValueError("the helper said something else")
    error = str(values["error"])[:ERROR_MOST].encode("utf-8", "replace").decode("utf-8")
    return Said(Outcome(values["outcome"]), error, int(values["retry_after"]))


def failed(error: str, retry_after: int = 0) -> Said:
    return Said(Outcome.FAILED, error, retry_after)


def down(error: str, retry_after: int = 0) -> Said:
    return Said(Outcome.DOWN, error, retry_after)


def refused(error: str) -> Said:
    return Said(Outcome.REFUSED, error)


def children(pid: int) -> list[int]:
    """Of its main thread (proc(5), /proc/PID/task/TID/children); none where it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
