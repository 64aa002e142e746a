"""The message of a delivery: one JSON document, made once from what is recorded, with the event's own time.

The same document is an inbox entry, a webhook's body and a command's input; mail shows its `subject` and `text`.
Nothing of the environment, of the sinks or of the attempts stands in it.
"""

import json

from crtrd.core.cron import Cron
from crtrd.core.delivery import Escalation
from crtrd.core.disposition import Kind
from crtrd.core.occurrence import Occurrence, Output, Run
from crtrd.core.reports import HOW
from crtrd.schedule.spans import format_instant, format_span

DIFF_INPUT = 64 * 1024
DIFF_LINES = 400


def document(name: str, kind: Kind, cron: Cron, at: int, subject: str, text: str, **more: object) -> str:
    """`name` is the delivery's id. Values that are None are left out."""
    values: dict[str, object] = {
        "id": name, "at": format_instant(at), "kind": str(kind), "cron_id": cron.id, "cron_name": cron.name,
        "subject": subject, "text": text, **more,
    }
    return encode(**{key: value for key, value in values.items() if value is not None})


def encode(**values: object) -> str:
    """The one spelling of a document: its `id` can be looked for as text."""
    return json.dumps(values, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def of_run(name: str, kind: Kind, cron: Cron, run: Run, before: bytes | None) -> str:
    """What a run has to say; `before` is the head of what was told last, for the difference."""
    how = HOW[run.result] if run.result else "ended"
    where = f"{cron.name} [{run.target}]" if run.target else cron.name
    why = f": {run.reason}" if run.reason else ""
    subject = f"{where}: output changed" if kind is Kind.CHANGED else f"{where} {how}{why}"
    diff = difference(before, run.stdout.head) if kind is Kind.CHANGED and before is not None else None
    at = run.finished_at if run.finished_at is not None else run.created_at
    return document(name, kind, cron, at, subject, _text(subject, run, diff), diff=diff, **_fields(run))


def of_ping(name: str, kind: Kind, cron: Cron, run: Run, at: int) -> str:
    """For a dead-man service: no output in it."""
    subject = f"{cron.name} {kind}"
    return document(name, kind, cron, at, subject, subject, run_id=run.id, occurrence_id=run.occurrence_id,
                    result=run.result and str(run.result), reason=run.reason or None)


def of_occurrence(name: str, kind: Kind, cron: Cron, occurrence: Occurrence, at: int, subject: str, text: str) -> str:
    return document(name, kind, cron, at, subject, text, occurrence_id=occurrence.id, status=str(occurrence.status),
                    scheduled_at=format_instant(occurrence.instant))


def of_escalation(name: str, escalation: Escalation, run: Run | None) -> str:
    """The brief, with the fields of the run that failed, as its own message would have them."""
    fields = _fields(run) if run is not None else {}
    values = {
        "id": name, "at": format_instant(escalation.at), "kind": str(Kind.ESCALATED), "cron_id": escalation.cron_id,
        "cron_name": escalation.cron_name, "subject": escalation.summary, "text": escalation.brief,
        "occurrence_id": escalation.occurrence_id, "escalation_id": escalation.id,
    }
    return encode(**{key: value for key, value in (fields | values).items() if value is not None})


def _fields(run: Run) -> dict[str, object]:
    return {
        "occurrence_id": run.occurrence_id, "run_id": run.id, "target": run.target or None, "attempt": run.attempt,
        "trigger": str(run.trigger), "scheduled_at": format_instant(run.scheduled_at),
        "started_at": _moment(run.started_at), "finished_at": _moment(run.finished_at), "duration_us": run.duration,
        "result": run.result and str(run.result), "reason": run.reason or None, "exit_code": run.exit_code,
        "signal": run.signal, "out_of_band": run.out_of_band,
        "stdout_head": _shown(run.stdout), "stdout_bytes": run.stdout.total, "stdout_sha256": run.stdout.sha256,
        "stdout_truncated": run.stdout.truncated, "stderr_head": _shown(run.stderr),
        "stderr_bytes": run.stderr.total, "stderr_truncated": run.stderr.truncated,
        "survivors": list(run.survivors) or None,
    }


def _moment(at: int | None) -> str | None:
    return None if at is None else format_instant(at)


def _shown(output: Output) -> str:
    return output.head.decode("utf-8", "replace")


def _text(subject: str, run: Run, diff: str | None) -> str:
    took = f", took {format_span(run.duration)}" if run.duration is not None else ""
    lines = [subject, "", f"due {format_instant(run.scheduled_at)}, attempt {run.attempt}{took}", f"run {run.id}"]
    if run.survivors:
        lines.append(f"outlived by {', '.join(run.survivors)}")
    if diff:
        lines += ["", "difference to what was told last:", diff]
    for stream, output in (("standard output", run.stdout), ("standard error", run.stderr)):
        lines += block(stream, output)
    return "\n".join(lines) + "\n"


def block(title: str, output: Output) -> list[str]:
    """A stream for people: its head, and how much of the whole that is."""
    if not output.total:
        return []
    cut = f", the first {len(output.head)} of {output.total} bytes" if output.truncated else ""
    return ["", f"{title}{cut}:", _shown(output).rstrip("\n")]


def difference(before: bytes, after: bytes) -> str:
    """A unified diff of two heads, '' where they are equal (what differs lies behind them, or was masked)."""
    from difflib import unified_diff  # noqa: PLC0415 - few lives need it

    old, new = (each[:DIFF_INPUT].decode("utf-8", "replace").splitlines() for each in (before, after))
    lines = list(unified_diff(old, new, "before", "after", lineterm=""))
    more = [f"({len(lines) - DIFF_LINES} more lines)"] if len(lines) > DIFF_LINES else []
    return "\n".join(lines[:DIFF_LINES] + more)
