"""The command line's end of the bus: one blocking connection, calls with a deadline, signals that are not lost.

The only module of the room that knows jeepney. What the daemon refuses becomes `Refused`, what cannot be reached
becomes `Unreachable`; values come back without variants.
"""

import os
import select
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from jeepney import DBusAddress, HeaderFields, MessageFlag, MessageType, Parser, new_method_call
from jeepney.auth import BEGIN, AuthenticationError, Authenticator
from jeepney.bus import get_bus
from jeepney.fds import FileDescriptor
from jeepney.low_level import Message

from crtrd import names

CONNECT_SECONDS = 5.0
CALL_SECONDS = 60.0
"""Longer than the bus gives an activated service to appear (25 s), so that its own error comes first."""
PROMPT_SECONDS = 200.0
"""Where a password may be asked for: longer than the daemon waits for polkit."""
DESCRIPTORS = 8

DBUS = "org.freedesktop.DBus"
PROPERTIES = "org.freedesktop.DBus.Properties"
FREEDESKTOP_ERROR = "org.freedesktop.DBus.Error."
NO_SESSION = ("DBUS_SESSION_BUS_ADDRESS is not set; log in as that user (machinectl shell NAME@, or ssh) or set "
              "XDG_RUNTIME_DIR=/run/user/UID")
AWAY = frozenset({"ServiceUnknown", "NoReply", "NameHasNoOwner", "Disconnected", "TimedOut", "Timeout", "NoServer"})
"""Errors by which the bus says that the daemon did not answer, rather than that it refused."""

Signal = tuple[str, tuple[object, ...]]


class Unreachable(Exception):
    """The bus or the daemon is not there."""


class Refused(Exception):
    """The daemon answered with an error; `name` is its last part, as `NoSuchCron`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def choose_bus(environ: Mapping[str, str], *, user: bool) -> tuple[str, str]:
    """The address of the bus to use, as jeepney takes it, and its name for people."""
    private = names.places(environ, user=user).private_bus
    if environ.get("CRTR_HOME") and private.exists():
        return names.bus_address(private), f"bus {private}"
    if user and not environ.get("DBUS_SESSION_BUS_ADDRESS") and (runtime := environ.get("XDG_RUNTIME_DIR")):
        return names.bus_address(Path(runtime) / "bus"), "user bus"  # as sd_bus_open_user(3)
    return ("SESSION", "user bus") if user else ("SYSTEM", "system bus")


def _check(value: object, where: str) -> None:
    """What the bus cannot carry, a NUL in a text or a number of more than 64 bits, is refused with the key's name."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise Refused("InvalidDefinition", f"cannot send {where}: {value} is out of range")
        case str() if "\0" in value:
            raise Refused("InvalidDefinition", f"cannot send {where}: it contains a NUL character")
        case dict():
            for key, each in value.items():
                _check(key, f"a key of {where}")
                _check(each, key)
        case list() | tuple():
            for each in value:
                _check(each, where)
        case _:
            pass


def plain(signature: str, value: object) -> object:
    """What arrived with `signature`, without the variants."""
    match signature, value:
        case ("v", (str() as inner, content)):
            return plain(inner, content)
        case (_, dict()) if signature.startswith("a{"):
            return {key: plain(signature[3:-1], content) for key, content in value.items()}
        case (_, list()):
            return [plain(signature[1:], content) for content in value]
        case _:
            return value


class Client:
    """One connection. Closes itself with `with`."""

    def __init__(self, address: str, called: str, *, interactive: bool = False) -> None:
        self._called = called
        self._flags = MessageFlag.allow_interactive_authorization if interactive else MessageFlag(0)
        self._patience = PROMPT_SECONDS if interactive else CALL_SECONDS
        self._serial = 0
        self._parser = Parser()
        self._signals: deque[Signal] = deque()
        try:
            self._socket = _connect(address)
        except (OSError, AuthenticationError, KeyError, ValueError, RuntimeError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            missing = isinstance(error, KeyError) and address == "SESSION"
            message = f"cannot reach the {called}: {NO_SESSION if missing else reason}"
            raise Unreachable(message) from error
        self._bus("Hello")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, member: str, signature: str = "", *body: object) -> tuple[object, ...]:
        """Call a method of the Manager."""
        for argument in body:
            _check(argument, member)
        address = DBusAddress(names.BUS_PATH, names.BUS_NAME, names.MANAGER_INTERFACE)
        return self._ask(new_method_call(address, member, signature or None, body))

    def open_output(self, run: str) -> int:
        """The output of a run; the descriptor is the caller's."""
        (output,) = self.call("OpenOutput", "s", run)
        if not isinstance(output, FileDescriptor):
            raise Refused("Failed", "cannot read the output: the bus passes no descriptors")
        return int(output.to_raw_fd())

    def properties(self, path: str, interface: str) -> dict[str, object]:
        """All properties of one of our interfaces."""
        address = DBusAddress(path, names.BUS_NAME, PROPERTIES)
        (values,) = self._ask(new_method_call(address, "GetAll", "s", (interface,)))
        return values if isinstance(values, dict) else {}

    def set_property(self, path: str, interface: str, name: str, text: str) -> None:
        address = DBusAddress(path, names.BUS_NAME, PROPERTIES)
        self._ask(new_method_call(address, "Set", "ssv", (interface, name, ("s", text))))

    def life(self) -> str:
        """Which process answers now: its unique name on the bus. Each life of the daemon has another."""
        return str(self._bus("GetNameOwner", "s", names.BUS_NAME)[0])

    def subscribe(self) -> None:
        """From here on the Manager's signals are kept for `signals`."""
        self._bus("AddMatch", "s", f"type='signal',sender='{names.BUS_NAME}',interface='{names.MANAGER_INTERFACE}'")

    def signals(self, seconds: float | None) -> Iterator[Signal]:
        """The signals that came, then those that come until nothing has come for `seconds` (None: for ever)."""
        while True:
            while self._signals:
                yield self._signals.popleft()
            message = self._receive(seconds)
            if message is None:
                return
            self._keep(message)

    def _bus(self, member: str, signature: str = "", *body: object) -> tuple[object, ...]:
        bus = DBusAddress("/org/freedesktop/DBus", DBUS, DBUS)
        return self._ask(new_method_call(bus, member, signature or None, body))

    def _ask(self, message: Message) -> tuple[object, ...]:
        self._serial += 1
        serial = self._serial
        message.header.flags = self._flags
        try:
            self._socket.settimeout(self._patience)
            self._socket.sendall(message.serialise(serial=serial), socket.MSG_NOSIGNAL)  # see main: SIGPIPE ends us
        except OSError as error:
            raise Unreachable(self._lost(os.strerror(error.errno or 0))) from error
        except UnicodeEncodeError as error:
            text = f"cannot send {error.object[:40]!a}: it is not valid UTF-8"
            raise Refused("InvalidArgs", text) from error
        while True:
            reply = self._receive(self._patience)
            if reply is None:
                raise Unreachable(self._lost(f"no answer in {self._patience:.0f} seconds"))
            if reply.header.fields.get(HeaderFields.reply_serial) == serial:
                return self._unwrap(reply)
            self._keep(reply)

    def _unwrap(self, reply: Message) -> tuple[object, ...]:
        if reply.header.message_type is MessageType.method_return:
            return _values(reply)
        name = str(reply.header.fields.get(HeaderFields.error_name, ""))
        text = str(reply.body[0]) if reply.body else name
        short = name.removeprefix(FREEDESKTOP_ERROR)
        if short in AWAY or short.startswith("Spawn."):
            raise Unreachable(self._lost(text) + self._look)
        raise Refused(name.rpartition(".")[2], text)

    @property
    def _look(self) -> str:
        """Where a daemon that did not come up has said why; one of a folder of its own says it on its terminal."""
        journal = {"user bus": "journalctl --user -u crtrd", "system bus": "journalctl -u crtrd"}.get(self._called)
        return f"\nSee {journal}" if journal else ""

    def _lost(self, reason: str) -> str:
        return f"cannot reach crtrd on the {self._called}: {reason}"

    def _keep(self, message: Message) -> None:
        fields = message.header.fields
        ours = fields.get(HeaderFields.interface) == names.MANAGER_INTERFACE
        if message.header.message_type is MessageType.signal and ours:
            self._signals.append((fields[HeaderFields.member], _values(message)))

    def _receive(self, seconds: float | None) -> Message | None:
        """The next message, or None when there is none for so long."""
        while (message := self._parser.get_next_message()) is None:
            if not select.select([self._socket], [], [], seconds)[0]:
                return None
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, DESCRIPTORS)
            except OSError as error:
                raise Unreachable(self._lost(os.strerror(error.errno or 0))) from error
            if not data:
                raise Unreachable(self._lost("the bus closed the connection"))
            self._parser.add_data(data, [FileDescriptor(fd) for fd in fds])
        return message


def _values(message: Message) -> tuple[object, ...]:
    """The body of a message without its variants."""
    types = _complete_types(message.header.fields.get(HeaderFields.signature, ""))
    return tuple(plain(each, value) for each, value in zip(types, message.body, strict=True))


def _complete_types(signature: str) -> Iterator[str]:
    """`aa{sv}s` is `aa{sv}` and `s`."""
    start = depth = 0
    for position, code in enumerate(signature):
        depth += (code in "({") - (code in ")}")
        if depth == 0 and code != "a":
            yield signature[start : position + 1]
            start = position + 1


def _connect(address: str) -> socket.socket:
    """A connected and authenticated socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(get_bus(address))
        authenticator = Authenticator(enable_fds=True)
        for data in authenticator:
            connection.sendall(data, socket.MSG_NOSIGNAL)
            received = connection.recv(1024)
            if not received:
                raise ConnectionResetError(104, "the bus closed the connection")
            authenticator.feed(received)
        connection.sendall(BEGIN, socket.MSG_NOSIGNAL)
    except BaseException:
        connection.close()
        raise
    return connection
