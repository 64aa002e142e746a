"""`python -m bench [ROW…]`: measures the rows, prints the table; without a row all of them, kept in RESULTS.md.

Ends with 1 where a row could not be measured. A goal that is missed is a result, not an error.
BENCH_PLACE=here measures without a machine (see here.py). BENCH_LOCK names a file that is locked while a row is
measured, where several share a machine. With BENCH_KEEP=1 single rows take their place in RESULTS.md.
"""

import contextlib
import fcntl
import importlib
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import bench.rows
from bench import results
from bench.core import Table
from bench.here import Here
from bench.world import World, facts, pick

RESULTS = Path(__file__).with_name("RESULTS.md")


def rows() -> dict[str, ModuleType]:
    """The modules of rows/ by their NAME, in the order of their files."""
    names = sorted(each.name for each in pkgutil.iter_modules(bench.rows.__path__))
    modules = [importlib.import_module(f"bench.rows.{name}") for name in names]
    return {module.NAME: module for module in modules}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    path = os.environ.get("BENCH_LOCK")
    with open(path or os.devnull, "ab") as file:
        if path:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(name: str, module: ModuleType, world: World, table: Table) -> bool:
    """Whether the row could be measured; a row that cannot does not stop the others."""
    before, begun = len(table.rows), time.monotonic()
    try:
        with alone():
            begun = time.monotonic()
            table.add(name, module.measure(world))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told in the table, and by the exit status
        traceback.print_exc()
        table.error(name, error)
        return False
    finally:
        took = f"bench: {name} took {time.monotonic() - begun:.0f} s"
        print("\n".join([*(" | ".join(row) for row in table.rows[before:]), took]), file=sys.stderr, flush=True)
    return True


def main() -> int:
    known = rows()
    wanted = pick(sys.argv[1:], known)
    table, here = Table(), os.environ.get("BENCH_PLACE") == "here"
    done, taken = [], {}
    with Here() if here else World() as world:
        for name in wanted:
            done.append(measured(name, known[name], world, table))
            taken[name] = when()
        about = facts(world)
    print("\n".join(f"- {line}" for line in about) + "\n\n" + table.markdown())
    if not here and (len(wanted) == len(known) or os.environ.get("BENCH_KEEP") == "1"):
        old = results.read(RESULTS.read_text()) if RESULTS.exists() else {}
        new = {name: (lines, taken[name]) for name, (lines, _) in results.read(table.markdown()).items()}
        RESULTS.write_text(results.write({**old, **new}, known, about))
    return 0 if all(done) else 1


def when() -> str:
    """The minute, and what the machine had to do besides."""
    minute = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"{minute}, load average of the last 5 minutes {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
