"""Values on their way to and from the bus: views become a{sv} by the one table of field types, variants become plain.

Nothing that leaves can break the connection: text is valid UTF-8 without NUL, numbers fit their type, paths are
spelled from ids. Knows no method and no socket.
"""

import re
from collections.abc import Mapping, Sequence

from crtrd import names

# What a field of a view travels as. Times are microseconds since the epoch, spans microseconds; a field that is
# not here, or whose value does not fit, travels as its Python type says (`natural`).
FIELD_TYPES: dict[str, str] = {
    **dict.fromkeys((
        "next", "instant", "created_at", "settled_at", "changed_at", "scheduled_at", "started_at", "finished_at",
        "due_at", "last_at", "next_wake", "starts_at", "expires_at", "at", "next_attempt_at", "duration_us",
        "stdout_bytes", "stderr_bytes", "jitter", "timeout", "grace", "retry_delay", "retry_max_delay",
        "start_within", "alert_after", "fence",
    ), "t"),
    **dict.fromkeys((
        "held", "running", "attempt", "attempts", "pid", "owner", "failures", "max_runs", "target_parallel",
        "queue_limit", "parallel", "retries", "pause_after", "umask", "covers",
    ), "u"),
    **dict.fromkeys(("exit_code", "signal", "held_exit_code"), "i"),
    **dict.fromkeys(("stdout_head", "stderr_head"), "ay"),
    **dict.fromkeys((
        "schedule", "survivors", "targets", "cells", "exclude", "command", "sinks", "change_ignore",
    ), "as"),
    **dict.fromkeys(("env", "resources"), "a{ss}"),
    **dict.fromkeys(("out_of_band", "stdout_truncated", "stderr_truncated", "due"), "b"),
    "success_exit_codes": "ai",
    "skips": "at",
    "definition": "a{sv}",
}

_LIMITS = {"t": (0, 2**64 - 1), "u": (0, 2**32 - 1), "i": (-(2**31), 2**31 - 1), "x": (-(2**63), 2**63 - 1)}
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")
_NOT_IN_PATHS = re.compile("[^A-Za-z0-9_]")

Variant = tuple[str, object]


def clean(text: str) -> str:
    """`text` as the bus can carry it: NUL and surrogates (bytes that were no UTF-8) become U+FFFD."""
    return text if text.isascii() and "\0" not in text else _UNSENDABLE.sub("\ufffd", text)


def cron_path(cron_id: str) -> str:
    return f"{names.BUS_PATH}/cron/{_NOT_IN_PATHS.sub('_', cron_id) or '_'}"


def run_path(run_id: str) -> str:
    return f"{names.BUS_PATH}/run/{_NOT_IN_PATHS.sub('_', run_id) or '_'}"


def pack(view: Mapping[str, object]) -> dict[str, Variant]:
    """A view as a{sv}. Fields without a value are left out."""
    return {clean(name): pack_field(name, value) for name, value in view.items() if value is not None}


def pack_field(name: str, value: object) -> Variant:
    """One value with the type that its field has; what does not fit there travels as what it is."""
    if name.startswith("CRTRD_") and isinstance(value, str):
        return "s", clean(value)  # a field of an event: most of what ever leaves
    signature = FIELD_TYPES.get(name)
    if signature is not None:
        try:
            return signature, fit(signature, value)
        except TypeError:
            pass
    return natural(value)


def fit(signature: str, value: object) -> object:
    """`value` as `signature` wants it. TypeError where it is something else; a number too large is cut to the limit."""
    if signature in _LIMITS and isinstance(value, int) and not isinstance(value, bool):
        low, high = _LIMITS[signature]
        return min(max(value, low), high)
    fitted: object = None
    match signature, value:
        case ("s", str()):
            fitted = clean(value)
        case ("b", bool()) | ("ay", bytes()):
            fitted = value
        case ("a{sv}", Mapping()):
            fitted = pack(value)
        case ("a{ss}", Mapping()):
            fitted = {str(fit("s", key)): fit("s", inner) for key, inner in value.items()}
        case ("a{ss}", list() | tuple()):
            fitted = fit("a{ss}", _pairs(value))
        case (_, list() | tuple()) if signature.startswith("a") and signature not in {"ay", "a{sv}"}:
            fitted = [fit(signature[1:], inner) for inner in value]
    if fitted is None:
        message = f"{value!r} does not travel as {signature}"
        raise TypeError(message)
    return fitted


def natural(value: object) -> Variant:
    """The variant that a value of this Python type becomes."""
    signature = "s"
    match value:
        case bool():
            signature = "b"
        case int():
            signature = "x"
        case float():
            return "d", value
        case bytes():
            signature = "ay"
        case Mapping():
            texts = all(isinstance(inner, str) for inner in value.values())
            signature = "a{ss}" if texts and value else "a{sv}"
        case list() | tuple():
            return _natural_list(value)
        case _:
            value = str(value)
    return signature, fit(signature, value)


def _natural_list(value: Sequence[object]) -> Variant:
    for signature in ("as", "ax", "aa{sv}"):
        try:
            return signature, fit(signature, value)
        except TypeError:
            continue
    return "av", [natural(inner) for inner in value]


def _pairs(value: Sequence[object]) -> dict[str, object]:
    """A table that the core keeps as a tuple of pairs."""
    table: dict[str, object] = {}
    for pair in value:
        match pair:
            case (str() as key, inner):
                table[key] = inner
            case _:
                message = f"{pair!r} is no pair of a table"
                raise TypeError(message)
    return table


def plain(signature: str, value: object) -> object:
    """What arrived with `signature`, without the variants: dicts, lists, texts, numbers, bytes."""
    match signature, value:
        case ("v", (str() as inner, content)):
            return plain(inner, content)
        case (_, dict()) if signature.startswith("a{"):
            inner = signature[3:-1]  # a{ K V }: keys are always one basic type
            return {key: plain(inner, content) for key, content in value.items()}
        case (_, list()):
            return [plain(signature[1:], content) for content in value]
        case _:
            return value
