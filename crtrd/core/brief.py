"""The escalation's brief: everything that a person needs who knows nothing of this cron yet. Pure text.

Of the environment only the names are shown.
"""

from crtrd.core.cron import Cron
from crtrd.core.facts import Facts
from crtrd.core.message import block
from crtrd.core.occurrence import Occurrence, Run, Status, run_id
from crtrd.core.sinks import parse
from crtrd.schedule.spans import format_instant, format_span

RUNS = 10
HEADS_OF = 3
"""So many failed cells are shown with their output."""
WORST_FIRST = (Status.FAILED, Status.UNOBSERVED, Status.ABANDONED)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


def write_brief(cron: Cron, occurrence: Occurrence, facts: Facts) -> str:
    runs, failed = facts.last_runs(cron.id, RUNS), failed_runs(occurrence, facts)
    head = f"{cron.name} is paused by {cron.paused_by}: {cron.note}"
    lines = [head, "", *_identity(cron), "", *_failure(occurrence)]
    for run in failed[:HEADS_OF]:
        lines += ["", *_ended(run), *block("standard output", run.stdout), *block("standard error", run.stderr)]
    if (more := len(failed) - HEADS_OF) > 0:
        lines += ["", f"and {more} more that failed: crtrctl runs {cron.name}"]
    return "\n".join([*lines, "", *_history(runs), "", *_remedies(cron, failed)]) + "\n"


def failed_runs(occurrence: Occurrence, facts: Facts) -> list[Run]:
    """The last run of each cell that has failed, the worst first."""
    cells = facts.cells(occurrence.id)
    names = [run_id(occurrence.id, cell.target, cell.attempts) for kind in WORST_FIRST for cell in cells
             if cell.status is kind and cell.attempts]
    return [run for name in names if (run := facts.run(name)) is not None]


def _identity(cron: Cron) -> list[str]:
    definition = cron.definition
    names = ", ".join(name for name, _ in definition.env)
    facts = [
        ("cron", f"{cron.name} ({cron.id})"),
        ("armed by", f"{_owner(cron)}, {format_instant(cron.created_at)}"),
        ("changed", format_instant(cron.changed_at) if cron.changed_at != cron.created_at else ""),
        ("schedule", "; ".join(definition.schedule) or "only when triggered"), ("timezone", definition.timezone),
        ("runs as", definition.user or _owner(cron)), ("profile", definition.profile),
        ("folder", definition.cwd), ("environment", names), ("timeout", format_span(definition.timeout)),
        ("retries", str(definition.retries) if definition.retries else ""),
        ("sinks", ", ".join(_label(sink) for sink in definition.sinks)),
        ("command", _command(cron)),
    ]
    return [f"{label + ':':<13}{text}" for label, text in facts if text]


def _owner(cron: Cron) -> str:
    """With the name that the account had when it was armed, where it is the owner's."""
    uid, _, name = cron.account.partition(" ")
    return f"{name} (uid {uid})" if name and uid == str(cron.owner) else f"uid {cron.owner}"


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


def _failure(occurrence: Occurrence) -> list[str]:
    why = f"{occurrence.status} ({occurrence.reason}) {occurrence.detail}".rstrip()
    return [f"{'due:':<13}{format_instant(occurrence.instant)}", f"{'occurrence:':<13}{occurrence.id} {why}"]


def _ended(run: Run) -> list[str]:
    took = f" after {format_span(run.duration)}" if run.duration is not None else ""
    code = f", exit status {run.exit_code}" if run.exit_code is not None else ""
    code = code or (f", signal {run.signal}" if run.signal is not None else "")
    target = f" [{run.target}]" if run.target else ""
    lines = [f"{'run:':<13}{run.id}{target} attempt {run.attempt}: {run.result}{took}{code}"]
    return lines + ([f"{'outlived by:':<13}{', '.join(run.survivors)}"] if run.survivors else [])


def _history(runs: list[Run]) -> list[str]:
    lines = [f"the last {len(runs)} runs, newest first:"]
    for run in runs:
        took = format_span(run.duration) if run.duration is not None else "-"
        target = f" [{run.target}]" if run.target else ""
        lines.append(f"  {format_instant(run.scheduled_at)}  {run.id[:12]}{target}  {run.result or run.phase}  {took}")
    return lines


def _remedies(cron: Cron, failed: list[Run]) -> list[str]:
    look = [f"  look:    crtrctl run-info {run.id}" for run in failed[:1]]
    return [
        "what to do:", *look, f"  verify:  crtrctl run {cron.name} --wait", f"  resume:  crtrctl resume {cron.name}",
        f"  cancel:  crtrctl cancel {cron.name}",
    ]
