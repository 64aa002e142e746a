"""One HTTP request in, one response out, without a socket (h11). Knows limits, no routes and no verbs.

A request that breaks a rule raises `Rejected`, which is a response already; after either the exchange is over: one
request a connection.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus

import h11

from crtrd.values import dataclass, field

HEAD_MOST = 16 << 10
BODY_MOST = 64 << 10
SERVER = b"crtrd"
PLAIN = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case; of repeated ones the last."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    status: HTTPStatus
    content: object
    """A text goes as it is, everything else as JSON."""
    headers: tuple[tuple[str, str], ...] = ()


class Rejected(Exception):
    """What was sent is refused before any verb hears of it."""

    def __init__(self, status: HTTPStatus, code: str, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.response = Response(status, {"error": {"code": code, "message": message}}, headers)


@dataclass(slots=True)
class Reader:
    """Feed bytes until the request is complete."""

    _connection: h11.Connection = field(
        default_factory=lambda: h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MOST)
    )
    _head: h11.Request | None = None
    _body: bytearray = field(default_factory=bytearray)
    begun: bool = False
    """Something has been received."""

    def feed(self, data: bytes) -> Request | None:
        """The request once it is complete. `data` empty: the other side sends no more. Raises Rejected."""
        self.begun = self.begun or bool(data)
        try:
            self._connection.receive_data(data)
            return self._read()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                raise _head_too_large() from error
            raise Rejected(HTTPStatus.BAD_REQUEST, "BadRequest", f"cannot read the request: {error}") from error
        except ValueError as error:  # numbers of thousands of digits, which Python refuses to read
            raise Rejected(HTTPStatus.BAD_REQUEST, "BadRequest", "cannot read the request: a number in it") from error

    def interim(self) -> bytes:
        """What a client that asked whether to go on (Expect: 100-continue) waits for."""
        if self._head is None or not self._connection.they_are_waiting_for_100_continue:
            return b""
        return self._connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def write(self, response: Response) -> bytes:
        """The whole response; the connection is to be closed after it."""
        plain = isinstance(response.content, str)
        body = response.content.encode() if isinstance(response.content, str) else _json(response.content)
        headers = [
            (b"Content-Type", PLAIN if plain else b"application/json"),
            (b"Content-Length", str(len(body)).encode("ascii")),
            (b"Connection", b"close"), (b"Server", SERVER), (b"Cache-Control", b"no-store"),
        ]
        headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in response.headers]
        head = h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase)
        spoken = self._connection
        if spoken.our_state is h11.ERROR:
            return b""
        try:
            pieces = [spoken.send(event) for event in (head, *self._content(body), h11.EndOfMessage())]
        except h11.LocalProtocolError:
            return b""
        return b"".join(piece for piece in pieces if piece)

    def _content(self, body: bytes) -> list[h11.Data]:
        """An answer to HEAD has none (RFC 9110, 9.3.2)."""
        return [] if self._head is not None and self._head.method == b"HEAD" else [h11.Data(data=body)]

    def _read(self) -> Request | None:
        while True:
            event = self._connection.next_event()
            match event:
                case h11.Request():
                    self._head = event
                    self._check_head(event)
                case h11.Data():
                    self._body += event.data
                    if len(self._body) > BODY_MOST:
                        self._refuse_body()
                case h11.EndOfMessage():
                    return self._whole()
                case h11.ConnectionClosed():
                    raise Rejected(HTTPStatus.BAD_REQUEST, "BadRequest", "cannot read the request: it is not complete")
                case _:  # NEED_DATA, PAUSED
                    return None

    def _check_head(self, head: h11.Request) -> None:
        size = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > HEAD_MOST:  # h11 measures only what is not complete yet; this came all at once
            raise _head_too_large()
        for name, value in head.headers:
            if name == b"content-length" and int(value) > BODY_MOST:  # h11 has checked that it is a number
                self._refuse_body()

    def _refuse_body(self) -> None:
        message = f"cannot read the request: its body is larger than {BODY_MOST} bytes"
        raise Rejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BodyTooLarge", message)

    def _whole(self) -> Request | None:
        if self._head is None:
            return None
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in self._head.headers}
        method, target = self._head.method.decode("ascii"), self._head.target.decode("ascii")
        return Request(method, target, headers, bytes(self._body))


def _json(content: object) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"


def _head_too_large() -> Rejected:
    message = f"cannot read the request: its head is larger than {HEAD_MOST} bytes"
    return Rejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "HeadTooLarge", message)


def unauthorized() -> Rejected:
    message = "cannot serve the request: over TCP it needs the right Authorization: Bearer token"
    return Rejected(HTTPStatus.UNAUTHORIZED, "Unauthorized", message, ("WWW-Authenticate", "Bearer"))
