"""The policies with real processes under a whole daemon: overlap, pools, holding, rerun, self-cancel, failed starts."""

import os
import resource
import sys
import time
from pathlib import Path

import pytest

from tests.instance import PROJECT, Instance
from tests.policies.calling import cancel_as
from tests.proc import of_process

SETTINGS = 'clock = "internal"\nmax_runs_at_once = 8\n[pools]\none = 1\n'
COUNT = ("echo start $$ >> {log}; trap 'echo end $$ >> {log}; exit 0' TERM; "
         "sleep {seconds} & wait $!; echo end $$ >> {log}")


@pytest.fixture(scope="module")
def crtrd(tmp_path_factory):
    with Instance(tmp_path_factory.mktemp("processes") / "home", SETTINGS) as instance:
        instance.start()
        yield instance


def counting(log, seconds):
    return ["--shell", COUNT.format(log=log, seconds=seconds)]


def at_once(log):
    """The most that were alive at one time, by the lines that the commands themselves wrote."""
    alive = most = 0
    for line in log.read_text().splitlines():
        alive += 1 if line.startswith("start") else -1
        most = max(most, alive)
    return most


def statuses(crtrd, name):
    rows = reversed(crtrd.json("occurrences", name))
    return [(row["status"], row["reason"]) for row in rows]


def settled(crtrd, name, count):
    crtrd.wait_for(lambda: sum(row["settled_at"] is not None for row in crtrd.json("occurrences", name)) >= count)
    return statuses(crtrd, name)


def test_c21_skip_runs_nothing_extra(crtrd, tmp_path):
    log = tmp_path / "log"
    crtrd.ctl("arm", "skip", *counting(log, 1))
    crtrd.ctl("run", "skip")
    for _ in range(2):
        crtrd.ctl("run", "skip", check=False)
    assert settled(crtrd, "skip", 3) == [("success", ""), ("skipped", "overlap"), ("skipped", "overlap")]
    assert log.read_text().count("start") == 1


def test_c21_queue_one_starts_exactly_one_more_directly_after(crtrd, tmp_path):
    log = tmp_path / "log"
    crtrd.ctl("arm", "queue", "--overlap", "queue", *counting(log, 3))
    for _ in range(4):
        crtrd.ctl("run", "queue", check=False)
    assert sorted(settled(crtrd, "queue", 4)) == [
        ("skipped", "queue-full"), ("skipped", "queue-full"), ("success", ""), ("success", "")]
    assert (log.read_text().count("start"), at_once(log)) == (2, 1)
    first, second = reversed(crtrd.json("runs", "queue"))
    assert first["finished_at"] <= second["started_at"]


def test_c21_queue_one_over_a_kill_of_the_daemon(crtrd, tmp_path):
    log = tmp_path / "log"
    crtrd.ctl("arm", "killed", "--overlap", "queue", "--on-failure", "continue", *counting(log, 1.5))
    for _ in range(3):
        crtrd.ctl("run", "killed", check=False)
    crtrd.wait_for(lambda: log.exists() and log.read_text().count("start") == 1)
    crtrd.kill()
    crtrd.start()
    rows = settled(crtrd, "killed", 3)
    assert sorted(rows)[0] == ("skipped", "queue-full")
    assert {status for status, _ in rows} <= {"skipped", "success", "unobserved"}  # before 6.15 no kernel tells
    assert (log.read_text().count("start"), at_once(log)) == (2, 1)


def test_c21_replace_ends_the_old_one_before_the_new_one_starts(crtrd, tmp_path):
    log = tmp_path / "log"
    crtrd.ctl("arm", "replace", "--overlap", "replace", "--grace", "5s", *counting(log, 1))
    crtrd.ctl("run", "replace")
    crtrd.wait_for(lambda: log.exists() and log.read_text().count("start") == 1)
    crtrd.ctl("run", "replace", check=False)
    assert settled(crtrd, "replace", 2) == [("canceled", "replaced"), ("success", "")]
    assert (log.read_text().count("start"), at_once(log)) == (2, 1)
    old, new = reversed(crtrd.json("runs", "replace"))
    assert (old["result"], old["exit_code"]) == ("replaced", 0)
    assert old["finished_at"] <= new["started_at"]


def test_a_manual_run_may_name_another_policy(crtrd, tmp_path):
    log = tmp_path / "log"
    crtrd.ctl("arm", "named", *counting(log, 1))
    crtrd.ctl("run", "named")
    crtrd.ctl("run", "named", "--overlap", "allow")
    assert crtrd.ctl("run", "named", "--overlap", "sometimes", check=False).returncode == 1
    assert settled(crtrd, "named", 2) == [("success", ""), ("success", "")]
    assert at_once(log) == 2


def test_a_pool_excludes_across_crons(crtrd, tmp_path):
    log = tmp_path / "log"
    for name in ("pool-a", "pool-b", "pool-c"):
        crtrd.ctl("arm", name, "--pool", "one", *counting(log, 0.3))
    for name in ("pool-a", "pool-b", "pool-c"):
        crtrd.ctl("run", name, check=False)
    for name in ("pool-a", "pool-b", "pool-c"):
        assert settled(crtrd, name, 1) == [("success", "")]
    assert (log.read_text().count("start"), at_once(log)) == (3, 1)
    assert crtrd.said().count("waits for capacity") == 1
    starts = [crtrd.json("runs", name)[0]["started_at"] for name in ("pool-a", "pool-b", "pool-c")]
    assert starts == sorted(starts)


PYTHON = f"exec {sys.executable} -c "
ODD = {
    "closes its output": ("echo a; exec >&- 2>&-; exit 4", 4, None, b"a\n"),
    "kills its group": ("echo a; kill -9 0", None, 9, b"a\n"),
    "stops its child": ("sleep 100 & kill -STOP $!; echo a", 0, None, b"a\n"),
    "dies of a real-time signal": ("kill -40 $$", None, 40, b""),
    "dies of SIGPIPE": ("kill -PIPE $$", None, 13, b""),
    "exits like a signal": ("exit 137", 137, None, b""),
    "opens its output again": ("echo a > /dev/stdout; echo b >> /proc/self/fd/1", 0, None, b"a\nb\n"),
    "ends in half a character": ("printf 'a\\303'", 0, None, b"a\xc3"),
    "writes without waiting": (
        PYTHON + "'import fcntl, os; fcntl.fcntl(1, 4, 2048); n = 0\nwhile n < 300000:\n"
        " try: n += os.write(1, b\"a\" * 999)\n except BlockingIOError: pass'", 0, None, b"a" * 4096),
    "makes its pipe small": (PYTHON + "'import fcntl, os; fcntl.fcntl(1, 1031, 4096); os.write(1, b\"a\" * 99999)'",
                             0, None, b"a" * 4096),
    "loses its folder": ("mkdir gone; cd gone; rmdir ../gone; echo a", 0, None, b"a\n"),
    "writes one line without end": ("head -c 3000000 /dev/zero | tr '\\0' a", 0, None, b"a" * 4096),
}


def test_odd_ends_are_told_as_they_are_and_hurt_nobody(crtrd, tmp_path):
    go = tmp_path / "go"
    crtrd.ctl("arm", "beside", "--shell", f"while ! test -e {go}; do sleep 0.05; done; exit 3")
    crtrd.ctl("run", "beside")
    for what, (script, *_) in ODD.items():
        name = what.replace(" ", "-")
        crtrd.ctl("arm", name, "--cwd", str(tmp_path), "--on-failure", "continue", "--shell", script)
        crtrd.ctl("run", name)
    for what, (_, *expected) in ODD.items():
        name = what.replace(" ", "-")
        settled(crtrd, name, 1)
        (run,) = crtrd.rows("SELECT exit_code, signal, stdout_head FROM runs WHERE cron_name = ?", name)
        assert run == tuple(expected), what
    go.touch()
    assert settled(crtrd, "beside", 1) == [("failed", "exit-code")]


def test_a_command_that_kills_its_parent_stops_nothing(crtrd):
    """Its parent is the spawner: the next run has another one."""
    crtrd.ctl("arm", "parricide", "--shell", "kill -9 $PPID; sleep 0.2; echo a; exit 5")
    crtrd.ctl("run", "parricide", "--wait", check=False)
    (run,) = runs_of(crtrd, "parricide")
    assert run["exit_code"] in {5, None}  # before 6.15 no kernel tells the end of a process that is not ours
    crtrd.ctl("arm", "after", "--", "true")
    assert crtrd.ctl("run", "after", "--wait").returncode == 0


def test_held_gives_its_reason_and_a_poke_makes_it_due(crtrd, tmp_path):
    flag = tmp_path / "flag"
    crtrd.ctl("arm", "held", "--shell", f"test -e {flag} && exit 0; seq 1 3000 >&2; echo disk is busy >&2; exit 75")
    crtrd.ctl("run", "held", "--wait", check=False)
    (row,) = crtrd.json("occurrences", "held")
    assert (row["status"], row["reason"], row["detail"]) == ("held", "held", "disk is busy")
    flag.touch()
    assert crtrd.json("poke", "held") == [{"poked": 1}]
    assert settled(crtrd, "held", 1) == [("success", "")]
    assert [run["result"] for run in crtrd.json("runs", "held")] == ["success", "held"]


def test_a_poke_that_lands_while_the_check_runs_is_not_lost(crtrd, tmp_path):
    flag, go = tmp_path / "looked", tmp_path / "go"
    script = f"test -e {flag} && exit 0; touch {flag}; while ! test -e {go}; do sleep 0.05; done; exit 75"
    crtrd.ctl("arm", "early", "--shell", script)
    crtrd.ctl("run", "early")
    crtrd.wait_for(flag.exists)
    crtrd.ctl("poke", "early")
    crtrd.kill()  # the poke is durable, and so is its meaning
    crtrd.start()
    go.touch()
    crtrd.wait_for(lambda: any(run["phase"] == "ended" for run in runs_of(crtrd, "early")))
    first = runs_of(crtrd, "early")[0]
    if first["exit_code"] is None:
        pytest.skip("this kernel does not tell the exit status of a process that is not ours")
    assert settled(crtrd, "early", 1) == [("success", "")]
    assert [run["result"] for run in crtrd.json("runs", "early")] == ["success", "held"]


def runs_of(crtrd, name):
    sql = "SELECT phase, result, exit_code FROM runs WHERE cron_name = ? ORDER BY serial"
    return [dict(zip(("phase", "result", "exit_code"), row, strict=True)) for row in crtrd.rows(sql, name)]


def test_rerun_takes_the_cells_that_were_left(crtrd, tmp_path):
    log = tmp_path / "log"
    script = f"echo $CRTR_TARGET $CRTR_SCHEDULED_AT >> {log}; test $CRTR_TARGET != b || test -e {tmp_path}/mended"
    crtrd.ctl("arm", "cells", "--target", "a", "--target", "b", "--target", "c", "--shell", script)
    crtrd.ctl("run", "cells", "--wait", check=False)
    (old,) = crtrd.json("occurrences", "cells")
    assert (old["status"], old["reason"]) == ("partial", "exit-code")
    (tmp_path / "mended").touch()
    (new,) = crtrd.json("rerun", old["id"][:8])
    assert sorted(settled(crtrd, "cells", 2)) == [("partial", "exit-code"), ("success", "")]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(target for target, _ in lines) == ["a", "b", "b", "c"]
    assert len({instant for _, instant in lines}) == 1
    again = crtrd.ctl("rerun", new["occurrence_id"], check=False)
    assert (again.returncode, "all of it is done" in again.stderr) == (1, True)
    assert crtrd.ctl("rerun", "f" * 32, check=False).returncode == 4


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_command_that_cancels_its_own_cron_finishes_and_may_deliver(crtrd, tmp_path, by_itself):
    name, done, go = f"own-{by_itself}".lower(), tmp_path / "done", tmp_path / "go"
    client = f"{sys.executable} -m crtrd.cli.main cancel {name}" if by_itself else "true"
    script = f"{client} && touch {done}; while ! test -e {go}; do sleep 0.05; done; echo finished; exit 3"
    crtrd.ctl("arm", name, "--env", f"PYTHONPATH={PROJECT}", "--success-exit-code", "3", "--shell", script)
    crtrd.ctl("run", name)
    crtrd.wait_for(done.exists)
    if not by_itself:
        crtrd.ctl("cancel", name)
    ((occurrence, run),) = crtrd.rows("SELECT occurrence_id, id FROM runs WHERE cron_name = ?", name)
    assert crtrd.rows("SELECT delivers FROM departed") == [(occurrence if by_itself else "",)]
    assert name not in [cron["name"] for cron in crtrd.json("list")]
    go.touch()
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE id = ? AND phase = 'ended'", run))
    assert crtrd.rows("SELECT result, exit_code, stdout_head FROM runs WHERE id = ?", run) == [
        ("success", 3, b"finished\n")]
    assert crtrd.rows("SELECT status FROM occurrences WHERE id = ?", occurrence) == [("success",)]
    assert crtrd.rows("SELECT delivers FROM departed") == []


def test_a_stranger_that_knows_the_run_is_no_command_of_it(crtrd, tmp_path):
    go = tmp_path / "go"
    crtrd.ctl("arm", "stranger", "--shell", f"while ! test -e {go}; do sleep 0.05; done")
    crtrd.ctl("run", "stranger")
    ((run,),) = crtrd.rows("SELECT id FROM runs WHERE cron_name = 'stranger'")
    cancel_as(crtrd, "stranger", run)
    assert crtrd.rows("SELECT delivers FROM departed") == [("",)]
    go.touch()
    crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM departed"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, text in (("plain", "echo no line\n"), ("lost", "#!/no/such/interp\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/nonexistent", "ENOENT"), ("/etc/passwd", "EACCES"), ("/tmp", "EACCES"), ("PROGRAMS/plain", "ENOEXEC"),
        ("PROGRAMS/lost", "interpreter '/no/such/interp'"), ("no-such-command-in-path", "ENOENT"),
    ],
)
def test_c39_failed_starts_have_rows_that_say_why(crtrd, programs, program, reason):
    command = program.replace("PROGRAMS", str(programs))
    name = "c39" + program.replace("/", ".").lower()
    crtrd.ctl("arm", name, "--", command)
    crtrd.ctl("run", name, "--wait", check=False)
    (run,) = crtrd.json("runs", name)
    assert (run["result"], run["exit_code"], run["signal"]) == ("start-failed", None, None)
    assert reason in run["reason"]
    assert statuses(crtrd, name) == [("failed", "start-failed")]


def test_a_folder_that_is_gone_is_named(crtrd, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    crtrd.ctl("arm", "cwd", "--cwd", str(folder), "--", "true")
    folder.rmdir()
    crtrd.ctl("run", "cwd", "--wait", check=False)
    (run,) = crtrd.json("runs", "cwd")
    assert (run["result"], run["reason"]) == (
        "start-failed", f"cannot start cwd: '{folder}': No such file or directory (ENOENT)")


def test_c38_descriptors_run_out_and_come_back(tmp_path):
    """No descriptor is left for a child's pipes: said, tried again, counted by nobody, and all run when it is over."""
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        for number in range(4):
            crtrd.ctl("arm", f"short-{number}", "--retries", "0", "--shell", "echo ran")
        pid = crtrd.daemon.pid
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 2, limit[1]))
        for number in range(4):
            crtrd.ctl("run", f"short-{number}")
        crtrd.wait_for(lambda: crtrd.rows("SELECT count(*) FROM runs WHERE result = 'start-failed'")[0][0] >= 4)
        reasons = {row[0] for row in crtrd.rows("SELECT reason FROM runs WHERE result = 'start-failed'")}
        assert all("EMFILE" in reason for reason in reasons), reasons
        assert crtrd.rows("SELECT count(*) FROM runs WHERE pid IS NOT NULL") == [(0,)]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        for number in range(4):
            assert settled(crtrd, f"short-{number}", 1) == [("success", "")]
            (cron,) = crtrd.json("list", f"short-{number}")
            assert (cron["state"], cron["failures"]) == ("active", 0)


@pytest.mark.parametrize("status", [126, 127])
def test_c39_a_program_that_exits_like_a_shell_is_no_failed_start(crtrd, status):
    crtrd.ctl("arm", f"exit-{status}", "--shell", f"exit {status}")
    assert crtrd.ctl("run", f"exit-{status}", "--wait", check=False).returncode == status
    (run,) = crtrd.json("runs", f"exit-{status}")
    assert (run["result"], run["exit_code"], run["reason"]) == ("exit-code", status, f"exit status {status}")


@pytest.mark.parametrize("command", [["--", ""], ["--shell", " "]])
def test_c39_an_empty_command_is_refused_when_armed(crtrd, command):
    done = crtrd.ctl("arm", "empty", *command, check=False)
    assert done.returncode in {1, 2}
    assert "empty" not in [cron["name"] for cron in crtrd.json("list")]


def test_c43_a_percent_sign_means_nothing(crtrd):
    crtrd.ctl("arm", "percent", "--", "date", "+%H%M")
    said = crtrd.ctl("run", "percent", "--wait").stdout
    assert (len(said.strip()), said.strip().isdigit()) == (4, True)


def test_out_of_band_never_pauses_and_never_counts(crtrd):
    crtrd.ctl("arm", "band", "--retries", "3", "--", "false")
    for _ in range(2):
        assert crtrd.ctl("run", "band", "--wait", check=False).returncode == 1
    (cron,) = crtrd.json("list", "band")
    assert (cron["state"], [run["out_of_band"] for run in crtrd.json("runs", "band")]) == ("active", [True, True])


def test_resources_without_a_service_manager_are_refused_with_their_name(crtrd):
    for name, value in (("MemoryMax", "1G"), ("TasksMax", "50%"), ("CPUQuota", "20%"), ("IOWeight", "10")):
        done = crtrd.ctl("arm", "limited", "--resource", f"{name}={value}", "--", "true", check=False)
        assert done.returncode == 1
        assert f"resources: {name} needs the service manager" in done.stderr
    crtrd.ctl("arm", "spawned", "--resource", "LimitNOFILE=99:200", "--resource", "OOMScoreAdjust=100", "--shell",
              "ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj")
    assert crtrd.ctl("run", "spawned", "--wait").stdout.split() == ["99", "200", "100"]


def test_a_one_shot_lost_by_a_crash_is_paused_and_never_fired_again(tmp_path):
    """Killed while it runs, its command ended meanwhile: its end was not seen, so nothing is guessed or repeated."""
    log = tmp_path / "log"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        crtrd.ctl("arm", "once", "--at", soon, "--shell", f"echo $$ >> {log}; exec sleep 600")
        crtrd.wait_for(lambda: log.exists() and log.read_text())
        crtrd.kill()
        pid = int(log.read_text())
        os.kill(pid, 9)
        crtrd.wait_for(lambda: not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in status_of(pid))
        crtrd.start()
        assert settled(crtrd, "once", 1) == [("unobserved", "crash")] or statuses(crtrd, "once") == [
            ("failed", "signal")]
        (cron,) = crtrd.json("list", "once")
        assert (cron["state"], cron["paused_by"]) in {("paused", "crash"), ("paused", "failure")}
        crtrd.ctl("resume", "once")
        (cron,) = crtrd.json("list", "once")
        assert (cron["state"], cron["next"]) == ("finished", None)
    assert len(log.read_text().split()) == 1


def status_of(pid):
    return of_process(pid, "status").decode() or "\nState:\tZ"
