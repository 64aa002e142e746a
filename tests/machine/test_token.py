"""The trigger socket over TCP on a real systemd: a port of the unit's, a token from a credential (CONTRACT §7)."""

from tests.machine.machine import Machine

ASK = "curl -s -o /dev/null -w %{http_code} -X POST"
URL = "http://127.0.0.1:8765/v1/crons/hi/trigger"


def test_over_tcp_the_token_decides(machine: Machine) -> None:
    machine.write("/etc/crtrd/trigger-token", "open sesame\n", 0o600)
    machine.write("/etc/systemd/system/crtrd.socket.d/tcp.conf", "[Socket]\nListenStream=127.0.0.1:8765\n")
    machine.write("/etc/systemd/system/crtrd.service.d/token.conf",
                  "[Service]\nLoadCredential=trigger-token:/etc/crtrd/trigger-token\n")
    machine.run("systemctl daemon-reload; systemctl stop crtrd.service crtrd.socket; systemctl start crtrd.socket")
    machine.run("crtrctl arm hi -- true")
    for header in ("", "-H 'Authorization: Bearer sesame'", "-H 'Authorization: Basic open sesame'"):
        assert machine.run(f"{ASK} {header} {URL}").stdout == "401", header
    assert machine.run("crtrctl occurrences hi --json=short").stdout.strip() == "[]"
    assert machine.run(f"{ASK} -H 'Authorization: Bearer open sesame' {URL}").stdout == "202"
    machine.wait_for(lambda: "success" in machine.run("crtrctl runs hi").stdout, 10)
