"""On a real systemd: escalations as a unit, units as sinks, mail to a real program, retries that sleep."""

import json

LEDGER = "/var/lib/crtrd/ledger.sqlite3"
SENDMAIL = "#!/bin/sh\n{ echo \"argv: $*\"; cat; } >> /root/mailbox\n"


def rows(machine, sql):
    out = machine.run(["sqlite3", "-cmd", ".timeout 5000", "-json", "-readonly", LEDGER, sql]).stdout
    return json.loads(out or "[]")


def gone(machine):
    return machine.unit("crtrd.service")["ActiveState"] == "inactive"


def prepare(machine):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "1s"\n')
    machine.run("systemctl stop crtrd.service; systemctl start crtrd.socket")


def override(machine, text):
    """A drop-in of the administrator's for the unit of escalations."""
    machine.write("/etc/systemd/system/crtrd-escalate@.service.d/here.conf", text)
    machine.run("systemctl daemon-reload")


def fail_for_good(machine, name="job"):
    machine.run(["crtrctl", "arm", name, "--every", "2s", "--", "sh", "-c", "echo disk full >&2; exit 3"])
    machine.wait_for(lambda: rows(machine, f"SELECT 1 FROM escalations WHERE cron_name = '{name}'"), 20)


def test_an_escalation_is_a_unit_whose_default_is_inbox_and_mail(machine):
    machine.write("/usr/sbin/sendmail", SENDMAIL)
    machine.run("chmod +x /usr/sbin/sendmail")
    prepare(machine)
    fail_for_good(machine)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM outbox WHERE kind = 'escalated' AND state = 'delivered'")
                     == [{"1": 1}] * 2, 20)
    (found,) = rows(machine, "SELECT id, state FROM escalations")
    assert found["state"] == "told"
    journal = machine.run("journalctl --no-pager -o short").stdout
    assert f"Escalation {found['id']}" in journal
    mail = machine.run("cat /root/mailbox").stdout
    for text in ("argv: -i -t", "To: root", "crtrctl resume job", "disk full", "Content-Type: text/plain"):
        assert text in mail
    inbox = machine.run("crtrctl inbox --json=short").stdout
    assert [each["subject"] for each in json.loads(inbox)] == ["job is paused by failure: exit-code: exit status 3"]
    assert machine.run("crtrctl is-active job", check=False).returncode == 3
    machine.wait_for(lambda: gone(machine), 15, "the idle exit")
    machine.wait_for(lambda: "crtrd-escalate@" not in machine.run("systemctl list-units --no-pager").stdout, 20)


def test_an_override_takes_the_place_of_the_default(machine):
    override(machine, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo %i >> /root/paged'\n")
    prepare(machine)
    fail_for_good(machine)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE state = 'started' AND look_at IS NULL"), 20)
    (found,) = rows(machine, "SELECT id FROM escalations")
    assert machine.run("cat /root/paged").stdout == found["id"] + "\n"
    assert rows(machine, "SELECT sink, kind FROM outbox") == [{"sink": "inbox", "kind": "escalated"}]
    machine.run(["crtrctl", "arm", "quiet", "--every", "2s", "--on-output", "silent", "--", "false"])
    machine.wait_for(lambda: len(machine.run("cat /root/paged").stdout.splitlines()) == 2, 20, "who is paged")
    assert len(rows(machine, "SELECT 1 FROM outbox")) == 1


def test_a_broken_override_is_recorded_and_the_default_is_done(machine):
    override(machine, "[Service]\nExecStart=\nExecStart=/bin/false\n")
    prepare(machine)
    fail_for_good(machine)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE state = 'spawn-failed'"), 20)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM outbox WHERE kind = 'escalated' AND state = 'delivered'"), 20)
    assert machine.run("journalctl --no-pager -o cat CRTRD_EVENT=cron.escalation.spawn_failed").stdout
    assert machine.run("crtrctl is-active job", check=False).returncode == 3


def test_an_override_that_fails_late_is_recorded_though_the_daemon_has_left(machine):
    """Each look at the unit wakes the daemon, which leaves in between."""
    override(machine, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 12; exit 7'\n")
    prepare(machine)
    machine.run(["crtrctl", "arm", "job", "--every", "2s", "--on-output", "silent", "--", "false"])
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE look_at IS NOT NULL"), 20)
    (found,) = rows(machine, "SELECT id, state FROM escalations")
    assert found["state"] == "started"
    assert rows(machine, "SELECT 1 FROM outbox") == []
    machine.wait_for(lambda: gone(machine), 10, "the idle exit")
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE state = 'spawn-failed'"), 40, "the look")
    machine.wait_for(lambda: rows(machine, "SELECT sink, kind FROM outbox WHERE state = 'delivered'")
                     == [{"sink": "inbox", "kind": "escalated"}], 20)
    (found,) = rows(machine, "SELECT error, look_at FROM escalations")
    assert found["look_at"] is None
    assert found["error"].endswith(".service failed: exit-code")
    machine.wait_for(lambda: gone(machine), 10, "the idle exit")
    assert machine.run("journalctl --no-pager -o cat CRTRD_EVENT=cron.escalation.spawn_failed").stdout


def test_an_override_that_is_never_started_is_recorded(machine):
    """systemd takes the job, and nothing comes of it: a unit that it requires fails."""
    machine.write("/etc/systemd/system/needed.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    override(machine, "[Unit]\nRequires=needed.service\nAfter=needed.service\n")
    prepare(machine)
    machine.run(["crtrctl", "arm", "job", "--every", "2s", "--on-output", "silent", "--", "false"])
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE state = 'spawn-failed'"), 30)
    assert "has not been started" in rows(machine, "SELECT error FROM escalations")[0]["error"]
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM outbox WHERE kind = 'escalated' AND state = 'delivered'"), 20)


def test_an_override_that_takes_its_time_and_ends_well_is_no_failure(machine):
    override(machine, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 6; echo %i >> /root/paged'\n")
    prepare(machine)
    fail_for_good(machine)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE look_at IS NOT NULL"), 20)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM escalations WHERE look_at IS NULL"), 40, "the last look")
    machine.wait_for(lambda: gone(machine), 15, "the idle exit")
    (found,) = rows(machine, "SELECT id, state, error FROM escalations")
    assert (found["state"], found["error"]) == ("started", "")
    assert machine.run("cat /root/paged").stdout == found["id"] + "\n"


def test_a_unit_as_a_sink_is_started(machine):
    machine.write("/etc/systemd/system/told.service",
                  "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo started >> /root/told'\n")
    machine.run("systemctl daemon-reload")
    prepare(machine)
    machine.run(["crtrctl", "arm", "job", "--sink", "unit:told.service", "--on-failure", "continue", "--", "false"])
    machine.run("crtrctl run job --wait", check=False)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM outbox WHERE state = 'delivered'"), 15)
    machine.wait_for(lambda: machine.run("cat /root/told", check=False).stdout == "started\n", 10)
    machine.run(["crtrctl", "change", "job", "--sink", "unit:none.service"])
    machine.run("crtrctl run job --wait", check=False)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM outbox WHERE state = 'pending' AND attempts > 0"), 15)


def test_a_retry_that_waits_lets_the_daemon_go_and_wakes_it(machine):
    prepare(machine)
    machine.run(["crtrctl", "arm", "job", "--sink", "webhook:http://127.0.0.1:9/x", "--on-failure", "continue", "--",
                 "false"])
    machine.run("crtrctl run job --wait", check=False)
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM queues WHERE failures = 1"), 15)
    machine.wait_for(lambda: gone(machine), 10, "the idle exit")
    assert "crtrd-wake.timer" in machine.run("systemctl list-timers --no-pager").stdout
    machine.wait_for(lambda: rows(machine, "SELECT 1 FROM queues WHERE failures >= 2"), 20, "the retry")


RECEIVER = """
import hashlib, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/root/hooks", "a") as file:
            print(self.headers["X-Crtrd-Delivery"], hashlib.sha256(body).hexdigest(), file=file)
        self.send_response(204)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""


def test_c67_killed_between_acceptance_and_our_mark_every_sink_is_asked_again_under_the_same_id(machine):
    machine.write("/usr/sbin/sendmail", "#!/bin/sh\ngrep -i ^message-id: >> /root/mails\n")
    machine.run("chmod +x /usr/sbin/sendmail")
    machine.write("/root/receiver.py", RECEIVER)
    machine.run("systemd-run --unit=receiver /usr/bin/python3 /root/receiver.py")
    machine.write("/etc/systemd/system/told.service",
                  "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo started >> /root/told'\n")
    crash = "/etc/systemd/system/crtrd.service.d/crash.conf"
    machine.write(crash, "[Service]\nEnvironment=CRTRD_CRASH_AT=deliver.taken:3\n")
    machine.run("systemctl daemon-reload")
    prepare(machine)
    machine.run(["crtrctl", "arm", "after", "--overlap", "allow", "--shell", "echo ran >> /root/after"])
    sinks = ["mail:root", "webhook:http://127.0.0.1:8099/x", "exec:cat >> /root/execs", "unit:told.service",
             "cron:after"]
    machine.run(["crtrctl", "arm", "job", "--on-failure", "continue", *(f"--sink={sink}" for sink in sinks), "--",
                 "false"])
    machine.run("crtrctl run job", check=False)
    machine.wait_for(lambda: int(machine.unit("crtrd.service")["NRestarts"]) > 0, 30, "the kill")
    machine.run(f"rm {crash}; systemctl daemon-reload")
    machine.wait_for(lambda: rows(machine, "SELECT count(*) AS n FROM outbox WHERE state = 'delivered'")
                     == [{"n": 5}], 40)
    found = {row["sink"].partition(":")[0]: row
             for row in rows(machine, "SELECT sink, id, attempts FROM outbox ORDER BY serial")}
    assert max(row["attempts"] for row in found.values()) >= 2
    hooks = machine.run("cat /root/hooks").stdout.splitlines()
    assert len(set(hooks)) == 1
    assert hooks[0].startswith(found["webhook"]["id"])
    execs = [json.loads(line)["id"] for line in machine.run("cat /root/execs").stdout.splitlines()]
    assert set(execs) == {found["exec"]["id"]}
    mails = machine.run("cat /root/mails").stdout.splitlines()
    assert len(set(mails)) == 1
    assert found["mail"]["id"] in mails[0]
    assert set(machine.run("cat /root/told").stdout.split()) == {"started"}
    machine.wait_for(lambda: machine.run("cat /root/after", check=False).stdout == "ran\n", 10)
    assert rows(machine, "SELECT count(*) AS n FROM occurrences WHERE cron_name = 'after'") == [{"n": 1}]


FICKLE = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/root/hooks", "a") as file:
            print(self.headers["X-Crtrd-Delivery"], hash(body), file=file)
        if os.path.exists("/root/well"):
            self.send_response(204)
            self.end_headers()
        else:
            time.sleep(1)
            self.close_connection = True
http.server.HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""


def test_sinks_that_are_down_slow_or_close_early_get_it_in_the_end(machine):
    ill = "test -e /root/well || { sleep 1; exit 75; }"
    machine.write("/usr/sbin/sendmail", f"#!/bin/sh\n{ill}\ngrep -i ^message-id: >> /root/mails\n", 0o755)
    machine.write("/root/fickle.py", FICKLE)
    prepare(machine)
    machine.run(["crtrctl", "arm", "after", "--shell", "echo ran >> /root/after"])
    machine.run("crtrctl pause after")
    sinks = ["mail:root", "webhook:http://127.0.0.1:8099/x", f"exec:{ill}; cat >> /root/execs", "unit:late.service",
             "cron:after"]
    machine.run(["crtrctl", "arm", "job", "--on-failure", "continue", *(f"--sink={sink}" for sink in sinks), "--",
                 "false"])
    machine.run("crtrctl run job", check=False)
    tried = "SELECT sink FROM outbox WHERE attempts >= 1 AND state <> 'delivered'"
    machine.wait_for(lambda: len(rows(machine, tried)) == len(sinks), 30, "a first attempt at each")
    machine.run("systemd-run --unit=fickle /usr/bin/python3 /root/fickle.py")
    machine.wait_for(lambda: machine.run("cat /root/hooks", check=False).stdout, 60, "one that closes early")
    machine.write("/etc/systemd/system/late.service",
                  "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo started >> /root/told'\n")
    machine.run("systemctl daemon-reload; touch /root/well; crtrctl resume after")
    machine.wait_for(lambda: rows(machine, "SELECT count(*) AS n FROM outbox WHERE state = 'delivered'")
                     == [{"n": len(sinks)}], 120, "the end of it")
    assert len(machine.run("cat /root/mails").stdout.splitlines()) == 1
    assert len(machine.run("cat /root/execs").stdout.splitlines()) == 1
    assert len({line.split()[0] for line in machine.run("cat /root/hooks").stdout.splitlines()}) == 1
    assert machine.run("cat /root/told").stdout == "started\n"
    machine.wait_for(lambda: machine.run("cat /root/after", check=False).stdout == "ran\n", 10)
