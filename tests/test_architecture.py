"""The shape of the code: layers, lint and types, one door for each dependency, sizes, names, and silent imports."""

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
MODULES = sorted((PROJECT / "crtrd").rglob("*.py"))
BIN = Path(sys.executable).parent
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 500, 60
DOORS = {
    "jeepney": ("crtrd/dbus/", "crtrd/cli/client.py"),
    "peewee": ("crtrd/ledger/",),
    "playhouse": ("crtrd/ledger/",),
    "pystemd": ("crtrd/systemd/manager.py", "crtrd/systemd/transient.py"),
    "sdnotify": ("crtrd/systemd/notify.py",),
    "psutil": ("crtrd/supervision/",),
    "h11": ("crtrd/trigger/",),
    "urllib3": ("crtrd/delivery/webhook.py",),
    "icalendar": ("crtrd/config/calendars.py",),
    "recurring_ical_events": ("crtrd/config/calendars.py",),
}
PASSED_ON = {"utils", "util", "helpers", "common", "base", "misc", "tools", "lib"}


def name_of(path):
    return str(path.relative_to(PROJECT))


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path):
    """Names of the modules that a file imports, wherever in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (each.value for each in node.args[:1] if isinstance(each, ast.Constant))


def check(*command):
    done = subprocess.run([*map(str, command)], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_point_down_only():
    check(BIN / "lint-imports", "--no-cache")


def test_ruff_has_nothing_to_say():
    check(BIN / "ruff", "check", "--no-cache", ".")


def test_types_fit():
    check(BIN / "mypy")


@pytest.mark.parametrize("dependency", DOORS)
def test_each_dependency_has_one_door(dependency):
    through = {name_of(path) for path in MODULES
               if any(name.partition(".")[0] == dependency for name in imported(path))}
    strangers = [name for name in through if not name.startswith(DOORS[dependency])]
    assert strangers == []
    assert through or dependency == "playhouse", "a door that nobody uses"


def test_every_dependency_has_a_door():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["calendars"]
    named = {re.match(r"[a-z0-9-]+", each)[0].replace("-", "_") for each in wanted}
    assert named <= set(DOORS)
    outside = {name.partition(".")[0] for path in MODULES for name in imported(path)} - {"crtrd"}
    assert outside - sys.stdlib_module_names <= named


SILENT = """
    import importlib, sys
    seen = []
    WRITING = 0o3 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
    def listen(event, args):
        if event == "open" and isinstance(args[2], int) and args[2] & WRITING and "__pycache__" not in str(args[0]):
            seen.append((event, str(args[0])))
        if event.startswith(("socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.mkdir", "os.remove",
                             "os.rename", "os.kill", "sqlite3.connect", "os.system", "signal.")):
            seen.append((event, str(args)[:80]))
    import threading
    names = sys.argv[1:]
    importlib.import_module("crtrd")
    for name in ("lxml", "urllib3", "uuid", "sqlite3", "ssl"):  # theirs is not ours to judge
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    sys.addaudithook(listen)
    for name in names:
        importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()
    assert not seen, seen
"""


def test_importing_any_module_does_nothing_but_define():
    names = [name_of(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__") for path in MODULES]
    names = [name for name in names if not name.endswith("__main__")]
    check(sys.executable, "-W", "error", "-c", textwrap.dedent(SILENT), *names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_sizes_and_names(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES
    assert path.stem not in PASSED_ON
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            assert node.end_lineno - first < MOST_LINES_OF_A_FUNCTION, f"{node.name} is too long"
    assert not tree.body or ast.get_docstring(tree), "a module says what lives in it"


def test_architecture_names_only_what_exists():
    document = PROJECT / "ARCHITECTURE.md"
    if not document.exists():
        pytest.skip("ARCHITECTURE.md is not written yet")
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:crtrd|tests|units|packaging|docs|bench|tools|proofs)/[\w./@*-]*)`", text))
    assert named, "it names no file"
    missing = [name for name in sorted(named) if not list(PROJECT.glob(name.rstrip("/")))]
    assert missing == []
