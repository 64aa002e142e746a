"""crtrctl: finds the verb, imports the module that has it, parses, runs, and turns what went wrong into words and an
exit status. The table of verbs is here; what they do is in the modules that it names."""

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import NamedTuple, NoReturn

from crtrd import __version__
from crtrd.cli.session import DONE, FAILED, NOT_AUTHORISED, NOT_FOUND, UNREACHABLE, USAGE, Failure, Session
from crtrd.cli.words import harmless


class Verb(NamedTuple):  # a dataclass would bring inspect, a fifth of what `status` imports
    name: str
    module: str
    usage: str
    does: str


GROUPS: tuple[tuple[str, tuple[Verb, ...]], ...] = (
    ("Crons", (
        Verb("list", "looking", "[NAME…]", "overview: next, last result, held, paused"),
        Verb("status", "standing", "[NAME…]", "the daemon; or crons and their last runs"),
        Verb("show", "looking", "NAME…", "all properties, as Key=value"),
        Verb("cat", "looking", "NAME…", "the definition, as a file"),
        Verb("is-active", "looking", "NAME…", "exit 0 if active, 3 if not"),
        Verb("is-failed", "looking", "NAME…", "exit 0 if the last occurrence failed"),
        Verb("arm", "arming", "NAME [OPTION…] -- COMMAND…", "store a cron; or: arm --file FILE"),
        Verb("edit", "editing", "NAME", "edit a cron in $EDITOR"),
        Verb("change", "arming", "NAME OPTION… [-- COMMAND…]", "edit a cron"),
        Verb("cancel", "acting", "NAME…", "remove crons"),
        Verb("import", "importing", "CRONTAB", "the lines of a crontab(5) as crons"),
        Verb("export", "importing", "[NAME…]", "definitions as files of crons.d"),
        Verb("verify", "importing", "FILE…", "check cron files, needs no daemon"),
    )),
    ("Acting on them", (
        Verb("pause", "acting", "NAME…", "start nothing more of these"),
        Verb("resume", "acting", "NAME…", "go on"),
        Verb("skip", "acting", "NAME [INSTANT]", "leave out one instant, the next"),
        Verb("poke", "acting", "NAME…", "start what is held"),
        Verb("run", "running", "NAME", "now, out of band"),
        Verb("trigger", "acting", "NAME", "ask for an occurrence, durably"),
        Verb("rerun", "acting", "OCCURRENCE", "what an occurrence has left undone"),
        Verb("backfill", "acting", "NAME FROM TO", "make up for instants that have passed"),
        Verb("kill", "acting", "RUN…", "send a signal to live runs"),
    )),
    ("What happened, what will", (
        Verb("occurrences", "history", "NAME", "what was owed and what became of it"),
        Verb("runs", "history", "[NAME]", "every attempt"),
        Verb("run-info", "history", "RUN", "one run with its output"),
        Verb("logs", "logs", "RUN|NAME", "what it said, out of the journal"),
        Verb("why", "history", "NAME INSTANT", "why it ran or not, will or will not"),
        Verb("next", "preview", "NAME", "the instants to come"),
        Verb("calendar", "preview", "SCHEDULE…", "instants of a schedule, needs no daemon"),
        Verb("inbox", "telling", "[OWNER]", "what crons have told you"),
        Verb("outbox", "telling", "[retry|discard ID]", "what is still to be told, or could not be"),
        Verb("escalations", "telling", "", "what needs a person"),
        Verb("monitor", "live", "[NAME…]", "events as they happen"),
    )),
    ("The daemon", (
        Verb("drain", "operating", "", "start nothing more until undrain"),
        Verb("undrain", "operating", "", "go on starting"),
        Verb("log-level", "operating", "[LEVEL]", "show or set what is told"),
        Verb("version", "operating", "", "of this command and of the daemon"),
        Verb("doctor", "checking", "", "check the installation"),
        Verb("migrate", "migrating", "", "rewrite files to what this version knows"),
        Verb("daemon-reload", "operating", "", "read the configuration again"),
        Verb("daemon-reexec", "operating", "", "execute the daemon anew, with its runs"),
    )),
)
VERBS = {verb.name: verb for _, verbs in GROUPS for verb in verbs}

OWN_USER = frozenset({"arm", "change", "import"})
"""Verbs whose --user takes a name too; without one it means the instance, as everywhere."""
PAGED = frozenset({"list", "status", "show", "cat", "occurrences", "runs", "run-info", "next", "calendar", "inbox",
                   "outbox", "escalations"})
JSON_MODES = ("off", "short", "pretty")
STATUSES = {
    "NoSuchCron": NOT_FOUND, "NoSuchRun": NOT_FOUND, "NoSuchOccurrence": NOT_FOUND, "AccessDenied": NOT_AUTHORISED,
    "InteractiveAuthorizationRequired": NOT_AUTHORISED,
}
"""The exit status of each refusal that does not simply mean: failed."""


_UNKNOWN = "unrecognized arguments: "
_BEFORE = re.compile(r"-([0-9]+(?:\.[0-9]+)?\s*[A-Za-zµ][\w\s.]*)")
"""`-1h`, which argparse takes for an option."""
FAULTS = {USAGE: "Usage", NOT_FOUND: "NotFound", UNREACHABLE: "Unreachable"}


class Parser(argparse.ArgumentParser):
    """argparse, with our way of saying what is wrong."""

    def error(self, message: str) -> NoReturn:
        first, *others = message.removeprefix(_UNKNOWN).split() if message.startswith(_UNKNOWN) else [""]
        if first.startswith("--"):
            message += _meant(first.partition("=")[0], self._option_string_actions)
        elif first and others and not any(word.startswith("-") for word in others):
            message += "; an expression of several words is quoted: '0 2 * * *'"
        raise Failure(f"cannot understand the command: {message}\nTry '{self.prog} --help'.", USAGE)


class _Formatter(argparse.HelpFormatter):
    """`--json=off|short|pretty`, as it is written everywhere."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        usual = super()._format_action_invocation(action)
        return "--json=" + "|".join(JSON_MODES) if "--json" in action.option_strings else usual


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `crtrctl list | head` ends quietly
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(given)
    except Failure as failure:
        code = FAULTS.get(failure.status, "Failed")
        return _say(str(failure), failure.status, code if _wants_json(given) else "")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:  # a full disk behind standard output; what concerns the bus is a Failure
        return _say(f"cannot write: {error.strerror or error}", FAILED)
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again at its end


def _fill_closed_streams() -> None:
    """Python has None for a stream that was closed by whoever started us."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the end
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as above


def _say(text: str, status: int, code: str = "") -> int:
    """What went wrong on standard error; with a `code` as JSON."""
    if code:
        import json  # noqa: PLC0415

        print(json.dumps({"error": {"code": code, "message": text}}), file=sys.stderr)
    else:
        print("crtrctl: " + harmless(text, keep="\n"), file=sys.stderr)
    return status


def _wants_json(arguments: list[str]) -> bool:
    return bool({"--json=short", "--json=pretty"} & set(_joined(_cut(arguments)[0])))


def _run(arguments: list[str]) -> int:
    before, command = _cut(arguments)
    before = _joined(before)
    verb, rest = _find_verb(before)
    if verb is None:
        return _without_verb(rest)
    if verb == "help":
        return _run([*[word for word in rest if not word.startswith("-")][:1], "--help"])
    if verb not in VERBS:
        raise Failure(f"cannot understand the command: there is no verb {verb!r}{_meant(verb, VERBS)}\n"
                      "Try 'crtrctl --help'.", USAGE)
    module = import_module(f"crtrd.cli.{VERBS[verb].module}")
    parser = _parser(VERBS[verb])
    module.build(parser, verb)
    options = parser.parse_intermixed_args(rest)
    options.command = command
    if hasattr(module, "settle"):
        module.settle(options)
    elif command is not None:
        raise Failure(f"cannot {verb}: nothing may follow --", USAGE)
    return _perform(verb, module.VERBS[verb], options)


def _perform(verb: str, action: Callable[[Session], int], options: argparse.Namespace) -> int:
    from crtrd.cli.client import Refused, Unreachable  # noqa: PLC0415  # jeepney, which no usage error should pay for

    session = Session(options)
    try:
        if verb not in PAGED or options.no_pager:
            return action(session)
        from crtrd.cli.pager import paged  # noqa: PLC0415

        with paged():
            return action(session)
    except Refused as refusal:
        text = str(refusal)
        if refusal.name == "NoSuchCron" and isinstance(getattr(options, "name", None), str | list):
            text += _meant_cron(session, options.name)
        if STATUSES.get(refusal.name) == NOT_AUTHORISED and not options.user:
            text += "\nAsk as root, or for crons of your own: crtrctl --user …"
        return _say(text, STATUSES.get(refusal.name, FAILED), refusal.name if session.out.json else "")
    except Unreachable as error:
        return _say(str(error), UNREACHABLE, "Unreachable" if session.out.json else "")
    finally:
        session.close()


def _meant_cron(session: Session, given: str | list[str]) -> str:
    from crtrd.cli.client import Refused, Unreachable  # noqa: PLC0415

    try:
        known = [str(view.get("name")) for view in session.everything("ListCrons", {})]
    except (Refused, Unreachable):
        return ""
    wrong = [name for name in ([given] if isinstance(given, str) else given) if name not in known]
    return _meant(wrong[0], known) if wrong else ""


def _cut(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """What stands before the first `--`, and the command after it."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _joined(arguments: list[str]) -> list[str]:
    """`--json pretty` is `--json=pretty`, and `--json` alone is short; so no word after it is taken for a mode.

    A time of the past, `-1h`, is `1h ago`: no option begins with a digit.
    """
    found: list[str] = []
    for given in arguments:
        word = f"{before[1]} ago" if (before := _BEFORE.fullmatch(given)) else given
        if found and found[-1] == "--json":
            found[-1] = f"--json={word}" if word in JSON_MODES else "--json=short"
            if word in JSON_MODES:
                continue
        found.append(word)
    return ["--json=short" if word == "--json" else word for word in found]


def _find_verb(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The verb is the first word that is no option; options may stand before it, as with systemctl."""
    for index, word in enumerate(arguments):
        if not word.startswith("-"):
            return word, _instance_first(arguments[:index]) + arguments[index + 1 :]
    return None, arguments


def _instance_first(before: list[str]) -> list[str]:
    """`crtrctl --user arm …` means the instance, whatever `--user` means after the verb."""
    return ["--user-instance" if word == "--user" else word for word in before]


def _parser(verb: Verb) -> Parser:
    parser = Parser(
        prog=f"crtrctl {verb.name}", usage=f"crtrctl {verb.name} [OPTION…] {verb.usage}".rstrip(),
        description=verb.does[0].upper() + verb.does[1:] + ".", allow_abbrev=False, add_help=False,
        formatter_class=lambda prog: _Formatter(prog, max_help_position=32, width=80),
    )
    common = parser.add_argument_group("options of every verb")
    common.add_argument("-h", "--help", action="help", help="show this and exit")
    common.add_argument("--user-instance", dest="user", action="store_true", default=False, help=argparse.SUPPRESS)
    if verb.name not in OWN_USER:
        common.add_argument("--user", dest="user", action="store_true", help="the calling user's own instance")
    common.add_argument("--system", dest="user", action="store_false", help="the system's instance (default)")
    common.add_argument("--json", choices=JSON_MODES, default="off", help="print JSON")
    common.add_argument("--no-legend", action="store_true", help="no header, no totals")
    common.add_argument("--no-pager", action="store_true", help="print straight to the terminal")
    common.add_argument("--no-ask-password", action="store_true", help="ask for no password")
    common.add_argument("-q", "--quiet", action="store_true", help="say nothing but the answer itself")
    return parser


def _without_verb(arguments: list[str]) -> int:
    if "--version" in arguments:
        print(f"crtrctl {__version__}")
        return DONE
    if not arguments or "-h" in arguments or "--help" in arguments:
        print(_overview())
        return DONE if arguments else USAGE
    raise Failure("cannot understand the command: there is no verb\nTry 'crtrctl --help'.", USAGE)


def _overview() -> str:
    lines = ["crtrctl [OPTION…] VERB …", "", "Look at and control crtrd, the cron supervisor.", ""]
    for title, verbs in GROUPS:
        lines.append(f"{title}:")
        for verb in verbs:
            call = f"  {verb.name} {verb.usage}".rstrip()
            lines.append(f"{call:<36} {verb.does}" if len(call) <= 36 else f"{call}\n{'':<36} {verb.does}")  # noqa: PLR2004
        lines.append("")
    lines += [
        "Options of every verb:",
        "  --user, --system                   whose instance (the system's)",
        "  --json=off|short|pretty            print JSON",
        "  --no-legend, --no-pager, -q        less around the answer",
        "  -h, --help, --version              also: crtrctl help [VERB]",
        "",
        "Runs and occurrences are named by their id or its first digits, at least 4.",
        "Times: 2026-12-01T02:00, 07:00, 'tomorrow 07:00', now, +5m, '1h ago'.",
        "",
        "Exit status: 0 done, 1 failed, 2 usage, 3 not active, 4 no such cron or run,",
        "5 not authorised, 6 daemon or bus unreachable.",
    ]
    return "\n".join(lines)


def _meant(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(word, list(known), n=1)
    return f". Did you mean {near[0]}?" if near else ""


if __name__ == "__main__":
    sys.exit(main())
