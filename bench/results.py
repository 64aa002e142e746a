"""RESULTS.md: the last whole table, or one that was brought up to date row by row (BENCH_KEEP=1)."""

from collections.abc import Iterable, Mapping, Sequence

from bench.core import HEAD

INTRODUCTION = """# What was measured

[docs/performance.md](../docs/performance.md) tells what each row does and how to read it. Ratios are of rounds taken
side by side, given as median (least to greatest); absolute numbers are those of this one machine in these minutes. A
goal that is missed says by how much. Rows need not be of one run; below stands when each was taken, and how busy the
machine was with other work.

"""
TAKEN = "Taken: "

Block = tuple[list[str], str]
"""The lines of a row's part of the table, and when it was taken."""


def read(text: str) -> dict[str, Block]:
    """The parts by their row."""
    found: dict[str, Block] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(f"| {HEAD[0]} |"):
            name = line.split(" | ")[0].removeprefix("|").strip() or name
            found.setdefault(name, ([], ""))[0].append(line)
        elif line.startswith("- ") and ": " in line and (row := line[2:].split(": ", 1)[0]) in found:
            found[row] = (found[row][0], line[2:].split(": ", 1)[1])
    return found


def write(blocks: Mapping[str, Block], order: Iterable[str], facts: Sequence[str]) -> str:
    names = [name for name in order if name in blocks]
    table = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for name in names:
        table += blocks[name][0]
    return (INTRODUCTION + "\n".join(f"- {line}" for line in facts) + "\n\n" + "\n".join(table) + f"\n\n{TAKEN}\n\n"
            + "\n".join(f"- {name}: {blocks[name][1]}" for name in names) + "\n")
