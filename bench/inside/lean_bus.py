"""A bus service that imports only jeepney.

    lean_bus.py once      answers the call it was activated for, and ends
    lean_bus.py           answers every call, as fast as this can be done
"""

import sys

from jeepney import DBusAddress, MessageType, new_method_call, new_method_return
from jeepney.io.blocking import open_dbus_connection

BUS = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
connection = open_dbus_connection("SYSTEM")
connection.send(new_method_call(BUS, "RequestName", "su", ("org.crtrd.Bench1", 4)))
while True:
    message = connection.receive()
    if message.header.message_type is MessageType.method_call:
        connection.send(new_method_return(message, "s", ("1",)))
        if sys.argv[1:] == ["once"]:
            break
connection.close()
