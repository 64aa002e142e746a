"""Profiles with real processes: identity, environment, limits, and every way in which a profile can fail a run."""

import grp
import json
import os
import pwd
import sqlite3

import pytest

from crtrd.supervision.output import Stream
from tests.instance import Instance

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

LOOK = ("id -u; id -g; id -G; echo $HOME; echo $USER; echo $LOGNAME; echo $SHELL; pwd; umask; nice; ulimit -n; "
        "echo $PATH; echo \"$A|$B|$C\"; echo $CRTR_PROFILE")
WORDS = ("uid", "gid", "groups", "home", "user", "logname", "shell", "cwd", "umask", "nice", "nofile", "path", "abc",
         "profile")


@pytest.fixture(scope="module")
def crtrd(tmp_path_factory):
    with Instance(tmp_path_factory.mktemp("profiles") / "home") as instance:
        instance.home.parent.chmod(0o755)
        instance.start()
        yield instance


def profile(crtrd, name, text):
    folder = crtrd.places.config / "profiles.d"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


def looked(crtrd, name):
    """What a run of the cron saw of itself."""
    done = crtrd.ctl("run", name, "--wait", check=False)
    return dict(zip(WORDS, done.stdout.splitlines(), strict=True)) if done.returncode == 0 else done


def last_run(crtrd, name):
    crtrd.ctl("run", name, "--wait", check=False)
    return crtrd.json("runs", name)[0]


def test_a_whole_profile(crtrd, tmp_path):
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    file = tmp_path / "environment"
    file.write_text("# comment\nB='from file'\nC=\"of \\\"file\\\"\"\n")
    profile(crtrd, "whole", f"""
        description = "everything"
        user = "games"
        group = "daemon"
        supplementary_groups = ["mail"]
        cwd = "/usr"
        path = "/usr/bin:/bin"
        umask = "0027"
        nice = 5
        shell = "/bin/sh"
        env_files = ["{file}", "-/nonexistent"]
        env = {{ A = "profile", B = "profile" }}
        limits = {{ LimitNOFILE = "512:1024" }}
        defaults = {{ timeout = "7s", retries = 2 }}
    """)
    crtrd.ctl("arm", "whole", "--profile", "whole", "--env", "C=cron", "--retries", "1", "--shell", LOOK)
    games, mail = pwd.getpwnam("games"), grp.getgrnam("mail").gr_gid
    gid = grp.getgrnam("daemon").gr_gid
    seen = looked(crtrd, "whole")
    groups = {int(each) for each in seen.pop("groups").split()}
    assert groups == {gid, mail} | set(os.getgrouplist("games", gid))
    assert seen == {
        "uid": str(games.pw_uid), "gid": str(gid), "home": games.pw_dir, "user": "games", "logname": "games",
        "shell": "/bin/sh", "cwd": "/usr", "umask": "0027", "nice": "5", "nofile": "512", "path": "/usr/bin:/bin",
        "abc": "profile|from file|cron", "profile": "whole"}
    (shown,) = crtrd.json("show", "whole")
    assert (shown["timeout_us"], shown["retries"]) == (7_000_000, 1)


def test_the_crons_own_keys_win(crtrd):
    profile(crtrd, "weak", 'user = "games"\ngroup = "daemon"\ncwd = "/usr"\numask = "0077"\nnice = 5\n')
    crtrd.ctl("arm", "strong", "--profile", "weak", "--user", "mail", "--cwd", "/tmp", "--umask", "0002",
              "--resource", "Nice=7", "--resource", "LimitNOFILE=300", "--shell", LOOK)
    mail = pwd.getpwnam("mail")
    seen = looked(crtrd, "strong")
    assert (seen["uid"], seen["gid"], seen["user"], seen["home"]) == (
        str(mail.pw_uid), str(mail.pw_gid), "mail", mail.pw_dir)
    assert (seen["cwd"], seen["umask"], seen["nice"], seen["nofile"]) == ("/tmp", "0002", "7", "300")


def test_it_is_read_anew_for_each_run(crtrd):
    profile(crtrd, "moving", 'user = "games"\nenv = { A = "1" }\n')
    crtrd.ctl("arm", "moving", "--profile", "moving", "--shell", LOOK)
    assert (looked(crtrd, "moving")["user"], looked(crtrd, "moving")["abc"]) == ("games", "1||")
    profile(crtrd, "moving", 'user = "mail"\nenv = { A = "2" }\n')
    assert (looked(crtrd, "moving")["user"], looked(crtrd, "moving")["abc"]) == ("mail", "2||")


def test_a_deleted_one_falls_back_to_the_owner_and_says_so(crtrd):
    path = profile(crtrd, "gone", 'user = "games"\n')
    crtrd.ctl("arm", "gone", "--profile", "gone", "--shell", LOOK)
    path.unlink()
    seen = looked(crtrd, "gone")
    assert (seen["uid"], seen["user"], seen["home"], seen["profile"]) == ("0", "root", pwd.getpwuid(0).pw_dir, "")
    assert "profile gone is gone, it runs as its owner" in crtrd.said()


def test_layers_and_masks(crtrd):
    lower = crtrd.places.vendor[0] / "profiles.d"
    lower.mkdir(parents=True)
    (lower / "layered.toml").write_text('user = "games"\n')
    crtrd.ctl("arm", "layered", "--profile", "layered", "--shell", LOOK)
    assert looked(crtrd, "layered")["user"] == "games"
    upper = profile(crtrd, "layered", 'user = "mail"\n')
    assert looked(crtrd, "layered")["user"] == "mail"
    upper.unlink()
    upper.symlink_to("/dev/null")
    assert looked(crtrd, "layered")["user"] == "root"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user = 3\n", "user: it must be a text"),
        ("usr = 'games'\n", "usr: there is no such key"),
        ("env = { A = 1 }\n", "env: A must be a text"),
        ("env = { 'A=B' = 'x' }\n", "env: 'A=B' is no variable name"),
        ("env = { CRTR_RUN_ID = 'x' }\n", "CRTR_"),
        ("umask = 23\n", "umask: it must be an octal mode"),
        ("nice = 20\n", "nice: it must be"),
        ("limits = { LimitNOFILE = '9:3' }\n", "limits: LimitNOFILE: '9:3'"),
        ("env_files = ['/nonexistent']\n", "/nonexistent: No such file"),
        ("cwd = 'here'\n", "cwd: it must be an absolute path"),
        ("user = ", "bad.toml"),
        ("user = 'nosuchuser'\n", "there is no account nosuchuser"),
        ("group = 'nosuchgroup'\n", "there is no group nosuchgroup"),
    ],
)
def test_an_invalid_one_fails_the_run_loudly_and_once(crtrd, text, said):
    profile(crtrd, "bad", "user = 'games'\n")
    crtrd.ctl("arm", "bad", "--profile", "bad", "--retries", "0", "--shell", "touch /tmp/never")
    try:
        profile(crtrd, "bad", text)
        run = last_run(crtrd, "bad")
        assert (run["result"], run["pid"], run["exit_code"]) == ("start-failed", None, None)
        assert said in run["reason"]
        assert said in crtrd.said()
        assert len(crtrd.json("runs", "bad")) == 1
    finally:
        crtrd.ctl("cancel", "bad")


@pytest.mark.parametrize("what", ["folder", "dangling", "binary", "huge", "pipe"])
def test_an_unreadable_one_fails_the_run(crtrd, what):
    path = profile(crtrd, "unreadable", "user = 'games'\n")
    crtrd.ctl("arm", "unreadable", "--profile", "unreadable", "--shell", "touch /tmp/never")
    path.unlink()
    try:
        match what:
            case "folder":
                path.mkdir()
            case "dangling":
                path.symlink_to("/nonexistent")
            case "binary":
                path.write_bytes(b"user = '\xff'\n")
            case "huge":
                path.write_text("#" * (2 << 20))
            case "pipe":
                os.mkfifo(path)
        run = last_run(crtrd, "unreadable")
        assert (run["result"], run["pid"]) == ("start-failed", None)
        assert "unreadable.toml" in run["reason"]
    finally:
        crtrd.ctl("cancel", "unreadable")
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--profile", "nosuchprofile"), "profile: there is no profile 'nosuchprofile'"),
        (("--profile", "../etc/passwd"), "profile: a name is"),
        (("--user", "nosuchuser"), "user: there is no account nosuchuser"),
        (("--profile", "wrongdefault"), "defaults: timeout"),
        (("--profile", "badkey"), "badkey.toml: colour: there is no such key"),
    ],
)
def test_refused_when_armed_with_the_keys_name(crtrd, options, said):
    profile(crtrd, "wrongdefault", "defaults = { timeout = 'soon' }\n")
    profile(crtrd, "badkey", "colour = 'blue'\n")
    done = crtrd.ctl("arm", "refused", *options, "--", "true", check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "refused" not in [cron["name"] for cron in crtrd.json("list")]


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ("99 games", "account games had uid 99 when the cron was armed"),
        ("%d somebody", "was account somebody when the cron was armed and is games now"),
    ],
)
def test_a_renumbered_account_starts_nothing(crtrd, account, said):
    games = pwd.getpwnam("games").pw_uid
    crtrd.ctl("arm", "renumbered", "--user", "games", "--", "touch", "/tmp/never")
    try:
        assert crtrd.rows("SELECT account FROM crons WHERE name = 'renumbered'") == [(f"{games} games",)]
        damage(crtrd, "UPDATE crons SET account = ? WHERE name = 'renumbered'", account.replace("%d", str(games)))
        run = last_run(crtrd, "renumbered")
        assert (run["result"], run["pid"]) == ("start-failed", None)
        assert said in run["reason"]
        crtrd.ctl("change", "renumbered", "--user", "games", "--cwd=/")
        assert last_run(crtrd, "renumbered")["result"] in {"success", "exit-code"}
    finally:
        crtrd.ctl("cancel", "renumbered")


def test_a_stored_environment_that_is_no_object_of_strings_fails_the_run(crtrd):
    damages = ['["A"]', '{"A": 1}', '"A=1"', '{"A": "ok", "B": null}', "7"]
    names = [f"stored-{number}" for number in range(len(damages))]
    for name in names:
        crtrd.ctl("arm", name, "--every", "1s", "--env", "A=1", "--", "true")
    for name, env in zip(names, damages, strict=True):
        ((text,),) = crtrd.rows("SELECT definition FROM crons WHERE name = ?", name)
        damage(crtrd, "UPDATE crons SET definition = ? WHERE name = ?",
               json.dumps(json.loads(text) | {"env": json.loads(env)}), name)
    failed = "SELECT cron_name, reason, detail FROM occurrences WHERE status = 'failed' AND cron_name LIKE 'stored-%'"
    crtrd.wait_for(lambda: len(crtrd.rows(failed)) >= len(names))
    rows = crtrd.rows(failed)
    assert sorted(name for name, _, _ in rows) == names
    assert {reason for _, reason, _ in rows} == {"start-failed"}
    assert all("env has a value of a wrong type" in detail for _, _, detail in rows)
    assert {cron["state"] for cron in crtrd.json("list") if cron["name"] in names} == {"paused"}


def damage(crtrd, sql, *values):
    """What another program, or an older one, may have done to the file."""
    with sqlite3.connect(crtrd.places.ledger) as ledger:
        ledger.execute(sql, values)
    ledger.close()


def test_last_line_of_a_long_standard_error():
    read, write = os.pipe()
    os.set_blocking(read, False)
    stream = Stream(read, 16, None)
    for part in (b"x" * 30_000, b"\nnot n", b"ow, busy  \n", b"\n"):
        os.write(write, part)
        stream.read()
    os.close(write)
    stream.close()
    assert stream.last_line() == b"not now, busy"


def test_defaults_follow_the_profile_for_what_the_cron_does_not_say_itself(crtrd):
    profile(crtrd, "policy", "defaults = { timeout = '9s', retries = 3, grace = '4s' }\n")
    crtrd.ctl("arm", "policy", "--profile", "policy", "--retries", "0", "--grace", "1s", "--shell", "sleep 600")

    def policies():
        (shown,) = crtrd.json("show", "policy")
        return shown["timeout_us"] // 1_000_000, shown.get("retries", 0), shown["grace_us"] // 1_000_000

    assert policies() == (9, 0, 1)  # --retries 0 is said, though it is the built-in value
    profile(crtrd, "policy", "defaults = { timeout = '1s', retries = 5, on_failure = 'continue' }\n")
    crtrd.ctl("run", "policy", "--wait", check=False)
    (run,) = crtrd.json("runs", "policy")
    assert (run["result"], run["duration_us"] < 3_000_000) == ("timeout", True)  # already this run's timeout
    assert policies() == (1, 0, 1)
    assert crtrd.json("show", "policy")[0]["on_failure"] == "continue"
    assert "follows profile policy: on_failure, timeout" in crtrd.said()
    profile(crtrd, "policy", "")
    crtrd.ctl("change", "policy", "--shell", "true")
    crtrd.ctl("run", "policy", "--wait")
    assert policies() == (3600, 0, 1)
    crtrd.ctl("change", "policy", "--timeout", "5s")
    profile(crtrd, "policy", "defaults = { timeout = '7s' }\n")
    crtrd.ctl("run", "policy", "--wait")
    assert policies() == (5, 0, 1)


@pytest.mark.parametrize("key", ["command", "schedule", "jitter", "profile", "env", "inherited", "nosuchkey"])
def test_what_is_no_policy_is_no_default(crtrd, key):
    profile(crtrd, "odd", f"defaults = {{ {key} = 'x' }}\n")
    done = crtrd.ctl("arm", "odd", "--profile", "odd", "--", "true", check=False)
    assert (done.returncode, "odd.toml" in done.stderr, key in done.stderr) == (1, True, True)
