"""How runs ended, in a word, in half a sentence, and where the rest of their output is. Views in, texts out."""

from collections.abc import Mapping

from crtrd.cli.words import counted, span

ENDS = {
    "success": "succeeded", "oom-kill": "was killed: out of memory", "held": 'is held: its command said "not now"',
    "canceled": "was canceled", "replaced": "gave way to a later one", "interrupted": "was interrupted",
    "unobserved": "ended while nobody looked", "abandoned": "was given up", "None": "is running",
}


def result_of(run: Mapping[str, object]) -> str:
    """The result of a run with its number: `exit-code 1`."""
    result = str(run.get("result") or "running")
    number = run.get("exit_code") if result == "exit-code" else run.get("signal") if result == "signal" else None
    return f"{result} {number}" if number is not None else result


def took(run: Mapping[str, object]) -> str:
    duration = run.get("duration_us")
    return span(duration) if isinstance(duration, int) and run.get("finished_at") else "-"


def named(view: Mapping[str, object]) -> str:
    """The run for people: its cron, and the target where it has one."""
    return f"{view.get('cron_name')} ({view['target']})" if view.get("target") else str(view.get("cron_name"))


def ending(view: Mapping[str, object]) -> str:
    """How a run ended, as the rest of a sentence."""
    result, duration = str(view.get("result")), view.get("duration_us")
    reason = f": {view['reason']}" if view.get("reason") else ""
    match result:
        case "exit-code":
            return f"exited with status {view.get('exit_code')}"
        case "signal":
            return f"was killed by signal {view.get('signal')}"
        case "timeout":
            return f"timed out after {span(duration)}" if isinstance(duration, int) else "timed out"
        case "start-failed":
            said = str(view.get("reason") or "")
            words = said.removeprefix("cannot start ")
            return f"could not start {words}" if words != said else f"could not be started{reason}"
        case _:
            return ENDS.get(result, f"ended: {result}") + reason


def left_out(view: Mapping[str, object], name: str, *, user: bool) -> str:
    """Where the rest of an output is that has more than its head; '' where there is none."""
    head, total = view.get(f"{name}_head"), view.get(f"{name}_bytes")
    return rest(view, total - len(head) if isinstance(head, bytes) and isinstance(total, int) else 0, user=user)


def rest_of_stream(view: Mapping[str, object], heard: int, *, user: bool) -> str:
    """The same of a run whose streams were shown as one, `heard` bytes of them."""
    totals = (view.get("stdout_bytes"), view.get("stderr_bytes"))
    return rest(view, sum(total for total in totals if isinstance(total, int)) - heard, user=user)


def unheard(view: Mapping[str, object], heard: int) -> bytes:
    """What is left of a stream that broke, where one of its two was silent and the head is the whole of the other."""
    heads = [view.get(f"{name}_head") for name in ("stdout", "stderr")]
    totals = [view.get(f"{name}_bytes") for name in ("stdout", "stderr")]
    said = [(head, total) for head, total in zip(heads, totals, strict=True) if total]
    if len(said) != 1 or not isinstance(said[0][0], bytes) or len(said[0][0]) != said[0][1]:
        return b""
    return said[0][0][heard:]


def rest(view: Mapping[str, object], missing: int, *, user: bool) -> str:
    if missing <= 0:
        return ""
    journal = "journalctl --user" if user else "journalctl"
    where = f"{journal} -t {view.get('cron_name')} CRTRD_RUN_ID={view.get('id')}"
    return f"… {counted(missing, 'byte')} more (in the journal up to journal_limit): {where}"
