"""A private dbus-daemon on a socket of its own, and a small caller on it."""

import os
import signal
import subprocess
from collections import deque

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection
from jeepney.low_level import MessageFlag

from crtrd import names

CONFIG = """<busconfig>
  <type>session</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <servicedir>{services}</servicedir>
  <policy context="default">
    <allow user="*"/><allow own="*"/>
    <allow send_destination="*" eavesdrop="false"/><allow receive_sender="*"/>
  </policy>
  <limit name="max_connections_per_user">2000</limit>
  <limit name="max_completed_connections">2000</limit>
  <limit name="max_replies_per_connection">5000</limit>
</busconfig>
"""


class PrivateBus:
    """Started and ended by pid. `restart` comes back at the same address."""

    def __init__(self, folder):
        self.path = folder / "bus"
        self.address = f"unix:path={self.path}"
        self._config = folder / "bus.conf"
        self._services = folder / "services"
        self._services.mkdir()
        self._config.write_text(CONFIG.format(path=self.path, services=self._services))
        self.process = None

    def activates(self, name, command):
        """`command` is started when a call comes for `name`; to be said before `start`."""
        text = f"[D-BUS Service]\nName={name}\nExec={command}\n"
        (self._services / f"{name}.service").write_text(text)

    def start(self):
        self.path.unlink(missing_ok=True)
        ready, write = os.pipe()
        command = ["dbus-daemon", f"--config-file={self._config}", "--nofork", "--nopidfile",
                   f"--print-address={write}"]
        self.process = subprocess.Popen(command, pass_fds=(write,), stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(ready) as pipe:
            assert pipe.readline().startswith("unix:")

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(5)
            self.process = None


class Called(Exception):
    """An error reply."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name, self.text = name, text


class Peer:
    """One connection that calls and listens; runs in the test's thread and keeps every signal it sees."""

    def __init__(self, address):
        self.connection = open_dbus_connection(address)
        self.signals = deque()
        self.replies = {}

    def send(self, member, signature="", body=(), *, path=names.BUS_PATH, interface=names.MANAGER_INTERFACE,
             destination=names.BUS_NAME, flags=0):
        message = new_method_call(DBusAddress(path, destination, interface), member, signature or None, tuple(body))
        message.header.flags = MessageFlag(flags)
        serial = next(self.connection.outgoing_serial)
        self.connection.send(message, serial=serial)
        return serial

    def take(self, timeout=0.0):
        """Read one message if there is one."""
        try:
            message = self.connection.receive(timeout=timeout)
        except TimeoutError:
            return False
        fields = message.header.fields
        if message.header.message_type is MessageType.signal:
            self.signals.append((fields[HeaderFields.member], message.body, fields[HeaderFields.path]))
        else:
            self.replies[fields[HeaderFields.reply_serial]] = message
        return True

    def result(self, serial):
        message = self.replies.pop(serial)
        if message.header.message_type is MessageType.error:
            raise Called(message.header.fields[HeaderFields.error_name], message.body[0] if message.body else "")
        return message.body

    def subscribe(self):
        rule = f"type='signal',sender='{names.BUS_NAME}'"
        self.connection.bus_proxy.AddMatch(rule)

    def close(self):
        self.connection.close()
