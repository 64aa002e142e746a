"""The escalation's brief: everything that a person needs who knows nothing of this cron yet. Pure text.

Of the environment only the names are shown.
"""

from crtrd.core.cron import Cron
from crtrd.core.facts import Facts
from crtrd.core.message import block
from crtrd.core.occurrence import Occurrence, Run
from crtrd.core.sinks import parse
from crtrd.schedule.spans import format_instant, format_span

RUNS = 10
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


def write_brief(cron: Cron, occurrence: Occurrence, facts: Facts) -> str:
    runs = facts.last_runs(cron.id, RUNS)
    this = next((run for run in runs if run.occurrence_id == occurrence.id), None)
    head = f"{cron.name} is paused by {cron.paused_by}: {cron.note}"
    lines = [head, "", *_identity(cron), "", *_failure(occurrence, this)]
    if this is not None:
        lines += block("standard output", this.stdout) + block("standard error", this.stderr)
    return "\n".join([*lines, "", *_history(runs), "", *_remedies(cron, this)]) + "\n"


def _identity(cron: Cron) -> list[str]:
    definition = cron.definition
    names = ", ".join(name for name, _ in definition.env)
    facts = [
        ("cron", f"{cron.name} ({cron.id})"),
        ("armed by", f"uid {cron.owner}, {format_instant(cron.created_at)}"),
        ("changed", format_instant(cron.changed_at) if cron.changed_at != cron.created_at else ""),
        ("schedule", "; ".join(definition.schedule) or "only when triggered"), ("timezone", definition.timezone),
        ("runs as", definition.user or f"uid {cron.owner}"), ("profile", definition.profile),
        ("folder", definition.cwd), ("environment", names), ("timeout", format_span(definition.timeout)),
        ("retries", str(definition.retries) if definition.retries else ""),
        ("sinks", ", ".join(_label(sink) for sink in definition.sinks)),
        ("command", _command(cron)),
    ]
    return [f"{label + ':':<13}{text}" for label, text in facts if text]


def _label(sink: str) -> str:
    try:
        return parse(sink).label
    except ValueError:
        return sink.partition(":")[0]


def _command(cron: Cron) -> str:
    if cron.definition.shell is not None:
        return f"/bin/sh -c {_quoted(cron.definition.shell)}"
    return " ".join(_quoted(word) for word in cron.definition.command)


def _quoted(word: str) -> str:
    """As a shell would need it. (shlex would do; its import is not for every wake-up.)"""
    return word if word and set(word) <= _PLAIN else "'" + word.replace("'", "'\"'\"'") + "'"


def _failure(occurrence: Occurrence, run: Run | None) -> list[str]:
    why = f"{occurrence.status} ({occurrence.reason}) {occurrence.detail}".rstrip()
    lines = [f"{'due:':<13}{format_instant(occurrence.instant)}", f"{'occurrence:':<13}{occurrence.id} {why}"]
    if run is not None:
        took = f" after {format_span(run.duration)}" if run.duration is not None else ""
        code = f", exit status {run.exit_code}" if run.exit_code is not None else ""
        code = code or (f", signal {run.signal}" if run.signal is not None else "")
        lines.append(f"{'run:':<13}{run.id} attempt {run.attempt}: {run.result}{took}{code}")
        if run.survivors:
            lines.append(f"{'outlived by:':<13}{', '.join(run.survivors)}")
    return lines


def _history(runs: list[Run]) -> list[str]:
    lines = [f"the last {len(runs)} runs, newest first:"]
    for run in runs:
        took = format_span(run.duration) if run.duration is not None else "-"
        target = f" [{run.target}]" if run.target else ""
        lines.append(f"  {format_instant(run.scheduled_at)}  {run.id[:12]}{target}  {run.result or run.phase}  {took}")
    return lines


def _remedies(cron: Cron, run: Run | None) -> list[str]:
    look = [f"  look:    crtrctl run-info {run.id}"] if run is not None else []
    return [
        "what to do:", *look, f"  verify:  crtrctl run {cron.name} --wait", f"  resume:  crtrctl resume {cron.name}",
        f"  cancel:  crtrctl cancel {cron.name}",
    ]
