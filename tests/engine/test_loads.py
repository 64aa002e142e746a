"""Loads of more cron files than one portion, from outside: answered in between, one at a time, cut off and gone on."""

import sqlite3
from contextlib import closing

import pytest
from jeepney import DBusAddress, HeaderFields, MessageType, Properties, new_method_call
from jeepney.io.blocking import open_dbus_connection

from crtrd.config.cronfiles import PORTION
from crtrd.names import bus_address
from tests.instance import DEADLINE, Instance

pytestmark = [pytest.mark.bus, pytest.mark.process]
FILES = 3 * PORTION + 100
MANAGER = DBusAddress("/org/crtrd/Crtrd1", "org.crtrd.Crtrd1", "org.crtrd.Crtrd1.Manager")


@pytest.fixture
def crtrd(tmp_path):
    with Instance(tmp_path / "home") as instance:
        yield instance


def write(crtrd, numbers, schedule="0 0 1 1 *"):
    folder = crtrd.places.config / "crons.d"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"c{number:05}.toml").write_text(f'[cron]\nschedule = ["{schedule}"]\ncommand = ["true"]\n')


def names(crtrd):
    with closing(sqlite3.connect(crtrd.places.ledger)) as ledger:
        return [name for (name,) in ledger.execute("SELECT name FROM crons ORDER BY name")]


def bus(crtrd):
    return closing(open_dbus_connection(bus_address(crtrd.places.private_bus)))


def answers(connection, serials):
    """The serials in the order of their answers, none of which may be an error."""
    order = []
    while len(order) < len(serials):
        reply = connection.receive(timeout=3 * DEADLINE)
        assert reply.header.message_type is not MessageType.error, reply.body
        if reply.header.message_type is MessageType.method_return:
            order.append(reply.header.fields[HeaderFields.reply_serial])
    return order


def test_the_loop_answers_while_files_are_read(crtrd):
    crtrd.start()
    write(crtrd, range(FILES))
    with bus(crtrd) as asking, bus(crtrd) as reloading:
        serial = next(reloading.outgoing_serial)
        reloading.send(new_method_call(MANAGER, "Reload"), serial=serial)
        counts = set()
        while FILES not in counts:  # answers from between the portions see what each of them has added
            counts.add(asking.send_and_get_reply(Properties(MANAGER).get("CronCount"), timeout=DEADLINE).body[0][1])
        answers(reloading, [serial])
    assert len(counts) >= FILES // PORTION
    assert len(names(crtrd)) == FILES


def test_who_asks_during_a_load_gets_the_next_one(crtrd):
    crtrd.start()
    write(crtrd, range(FILES))
    with bus(crtrd) as connection:
        first, second = next(connection.outgoing_serial), next(connection.outgoing_serial)
        connection.send(new_method_call(MANAGER, "Reload"), serial=first)
        while not names(crtrd):
            pass
        write(crtrd, [FILES])
        (crtrd.places.config / "crons.d/c00000.toml").unlink()
        connection.send(new_method_call(MANAGER, "Reload"), serial=second)
        assert answers(connection, [first, second]) == [first, second]
    found = names(crtrd)
    assert (len(found), found[0]) == (FILES, "c00001")


def test_a_load_that_a_crash_cut_off_is_finished_at_the_next_start(crtrd):
    write(crtrd, range(FILES))
    commits = 1
    while commits < 20 and not (commits > 1 and names(crtrd)):
        commits += 1
        crtrd.start(crash_at=f"commit.after:{commits}", wait=False)
        crtrd.wait_for(lambda: crtrd.ended)
    assert 0 < len(names(crtrd)) < FILES
    crtrd.start()
    crtrd.wait_for(lambda: len(names(crtrd)) == FILES)
    crtrd.end()
    log = (crtrd.home / "log").read_text()
    assert log.count("c00000: armed") <= 1
    crtrd.start()
    crtrd.ctl("list")
    crtrd.end()
    assert (crtrd.home / "log").read_text()[len(log):].count(": armed") == 0
