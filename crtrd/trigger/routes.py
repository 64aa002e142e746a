"""Which request is which verb, and which answer is which response. Two tables; decides nothing, opens nothing."""

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from http import HTTPStatus

from crtrd.control.access import Caller
from crtrd.control.verbs import Control
from crtrd.errors import Code, RequestError
from crtrd.schedule.spans import format_instant
from crtrd.trigger.request import Rejected, Request, Response
from crtrd.values import dataclass

PAGE = 200
RETRY_SECONDS = "5"

STATUSES: dict[Code, HTTPStatus] = {
    Code.NO_SUCH_CRON: HTTPStatus.NOT_FOUND,
    Code.NO_SUCH_RUN: HTTPStatus.NOT_FOUND,
    Code.NO_SUCH_OCCURRENCE: HTTPStatus.NOT_FOUND,
    Code.CRON_EXISTS: HTTPStatus.CONFLICT,
    Code.INVALID_DEFINITION: HTTPStatus.BAD_REQUEST,
    Code.INVALID_STATE: HTTPStatus.CONFLICT,
    Code.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Code.CONFLICT: HTTPStatus.CONFLICT,
    Code.LEDGER_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.SHUTTING_DOWN: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.ACCESS_DENIED: HTTPStatus.FORBIDDEN,
    Code.INTERACTION_REQUIRED: HTTPStatus.FORBIDDEN,
    Code.LIMIT_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
}
AGAIN = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
"""Where the same request may succeed a little later."""

TIMES = frozenset({
    "next", "instant", "created_at", "settled_at", "changed_at", "scheduled_at", "started_at", "finished_at",
    "due_at", "last_at", "next_wake", "starts_at", "expires_at", "at",
    "next_attempt_at", "skips",
})
HEADS = frozenset({"stdout_head", "stderr_head"})

Arguments = tuple[object, ...]
Send = Callable[[Response], None]


@dataclass(frozen=True, slots=True)
class Route:
    """`pattern` is the path in parts, `*` standing for one part that becomes an argument."""

    method: str
    pattern: tuple[str, ...]
    verb: str
    arguments: Callable[[list[str], Request], Arguments]
    answer: Callable[[object], Response]


MOST_DIGITS = 9  # of a page's limit; Python refuses to read thousands of them


def _nothing(_parts: list[str], _request: Request) -> Arguments:
    return ()


def _name(parts: list[str], _request: Request) -> Arguments:
    return (parts[0],)


def _page(_parts: list[str], request: Request) -> Arguments:
    query = _query(request.target, {"limit", "cursor"})
    limit = query.get("limit", str(PAGE))
    if not limit.isascii() or not limit.isdigit() or len(limit) > MOST_DIGITS:
        raise Rejected(HTTPStatus.BAD_REQUEST, Code.INVALID_ARGUMENT, "cannot read limit: it must be a whole number")
    return {}, int(limit), query.get("cursor", "")


def _options(parts: list[str], request: Request) -> Arguments:
    """The body of a POST: nothing, or one JSON object. A key in the query would be one that nobody looks at."""
    _query(request.target, set())
    if not request.body.strip():
        return parts[0], {}
    try:
        given = json.loads(request.body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Rejected(HTTPStatus.BAD_REQUEST, "BadRequest", f"cannot read the body: {error}") from error
    if not isinstance(given, dict):
        raise Rejected(HTTPStatus.BAD_REQUEST, "BadRequest", "cannot read the body: it must be a JSON object")
    return parts[0], {key: value for key, value in given.items() if value is not None}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of two members of one name each reader takes another one (RFC 8259, 4): neither is taken here."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"{twice[:40]!a} is in it more than once"
        raise ValueError(message)
    return found


def _no_constant(word: str) -> object:
    message = f"{word} is no JSON"
    raise ValueError(message)


def _object(answer: object) -> Response:
    return Response(HTTPStatus.OK, as_json(answer))


def _crons(answer: object) -> Response:
    views, onward = answer if isinstance(answer, tuple) else ([], "")
    return Response(HTTPStatus.OK, {"crons": as_json(views), "next": onward or None})


def _disposition(answer: object) -> Response:
    content = as_json(answer)
    word = content.get("disposition") if isinstance(content, dict) else None
    return Response(HTTPStatus.ACCEPTED if word == "accepted" else HTTPStatus.OK, content)


def _page_of_text(answer: object) -> Response:
    return Response(HTTPStatus.OK, str(answer))


ROUTES: tuple[Route, ...] = (
    Route("GET", ("v1", "status"), "status", _nothing, _object),
    Route("GET", ("metrics",), "metrics", _nothing, _page_of_text),
    Route("GET", ("v1", "crons"), "list_crons", _page, _crons),
    Route("GET", ("v1", "crons", "*"), "get_cron", _name, _object),
    Route("GET", ("v1", "occurrences", "*"), "get_occurrence", _name, _object),
    Route("POST", ("v1", "crons", "*", "trigger"), "trigger", _options, _disposition),
)


def serve(control: Control, request: Request, caller: Caller, send: Send) -> None:
    """Find the verb, call it, send its answer, now or later. Raises Rejected where there is no verb to call."""
    route, parts = _find(request)
    arguments = route.arguments(parts, request)

    def reply(answer: object) -> None:
        send(refusal(answer) if isinstance(answer, RequestError) else route.answer(answer))

    control.call(route.verb, arguments, caller, reply)


def refusal(error: RequestError) -> Response:
    status = STATUSES[error.code]
    again = (("Retry-After", RETRY_SECONDS),) if status in AGAIN else ()
    return Response(status, {"error": {"code": str(error.code), "message": str(error)}}, again)


def _find(request: Request) -> tuple[Route, list[str]]:
    path = _path(request.target)
    given = [_decoded(part) for part in path.split("/")[1:]]
    fitting = [(route, found) for route in ROUTES if (found := _match(route.pattern, given)) is not None]
    if not fitting:
        raise Rejected(HTTPStatus.NOT_FOUND, "NotFound", f"cannot find {path}: there is no such resource")
    for route, found in fitting:
        if route.method == request.method:
            return route, found
    allowed = ", ".join(sorted({route.method for route, _ in fitting}))
    message = f"cannot {request.method} {path}: the method must be {allowed}"
    raise Rejected(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, ("Allow", allowed))


def _match(pattern: tuple[str, ...], given: list[str]) -> list[str] | None:
    if len(pattern) != len(given) or any(want not in {"*", part} for want, part in zip(pattern, given, strict=True)):
        return None
    return [part for want, part in zip(pattern, given, strict=True) if want == "*"]


def _decoded(part: str) -> str:
    if "%" not in part:
        return part
    from urllib.parse import unquote  # noqa: PLC0415  # names need no escapes; few requests have any

    return unquote(part, errors="replace")


def _path(target: str) -> str:
    """Clients that speak as to a proxy send the whole URL, and a server must take it (RFC 9112, 3.2.2)."""
    path = target.partition("?")[0]
    if path.lower().startswith(("http://", "https://")):
        return "/" + path.partition("://")[2].partition("/")[2]
    return path


def _query(target: str, known: set[str]) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in target.partition("?")[2].split("&") if pair)
    found = {_decoded(name): _decoded(value) for name, _, value in pairs}
    if unknown := sorted(found.keys() - known):
        there = f"there are {', '.join(sorted(known))}" if known else "options go into the body"
        message = f"cannot read the query: {unknown[0][:40]!a} is no parameter here; {there}"
        raise Rejected(HTTPStatus.BAD_REQUEST, Code.INVALID_ARGUMENT, message)
    return found


def as_json(value: object, name: str = "") -> object:
    """A view with the words of the contract: times in RFC 3339, heads as text and in base64."""
    match value:
        case bool():
            return value
        case int() if name in TIMES:
            return format_instant(value) if value else None
        case bytes():
            return value.decode("utf-8", "replace")
        case Mapping():
            found: dict[str, object] = {}
            for key, inner in value.items():
                found[str(key)] = as_json(inner, str(key))
                if key in HEADS and isinstance(inner, bytes):
                    found[f"{key}_base64"] = b2a_base64(inner, newline=False).decode("ascii")
            return found
        case list() | tuple():
            return [as_json(inner, name) for inner in value]
        case _:
            return value
