"""What goes to standard output: tables of 80 columns, JSON, colours, output heads. Decides only how things look.

Every text from outside passes `words.harmless` on its way to a terminal; JSON escapes control characters itself.
"""

import os
import sys
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence

from crtrd.cli.fields import HEADS, SPANS, TIMES
from crtrd.cli.words import counted, folded, harmless, plural, rfc3339

GREEN, RED, YELLOW, DIM, BOLD = "32", "31", "33", "2", "1"
COLOURS = {
    "active": GREEN, "success": GREEN, "running": GREEN, "failed": RED, "exit-code": RED, "signal": RED,
    "timeout": RED, "oom-kill": RED, "start-failed": RED, "abandoned": RED, "unobserved": YELLOW, "held": YELLOW,
    "paused": YELLOW, "partial": YELLOW, "missed": YELLOW, "interrupted": YELLOW, "skipped": DIM, "finished": DIM,
    "canceled": DIM,
}
LEGIBLE, NARROWEST = 20, 8
MOST_DIGITS = 5  # of COLUMNS
Row = Sequence[str]


class Terminal:
    """Standard output and what it can do. `legend` off: no header lines and no totals. `quiet`: nothing but data."""

    def __init__(self, *, json_mode: str = "off", legend: bool = True, quiet: bool = False) -> None:
        self.tty = sys.stdout.isatty()
        self.colour = self.tty and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.width = _width(tty=self.tty)
        self.json_mode, self.legend, self.quiet = json_mode, legend, quiet

    @property
    def json(self) -> bool:
        return self.json_mode != "off"

    def line(self, text: str = "") -> None:
        print(text)

    def file(self, text: str) -> None:
        """A file of a cron, which is UTF-8 whatever the locale: where that has another encoding, TOML's escapes."""
        if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
            text = "".join(letter if letter.isascii() else _escape(ord(letter)) for letter in text)
        print(text)

    def note(self, text: str) -> None:
        """Something for people that is not the answer itself."""
        if not self.quiet and not self.json:
            print(self.fold(harmless(text, keep="\n")))

    def fold(self, text: str, indent: int = 4) -> str:
        """On a terminal each line at its spaces; elsewhere as it is."""
        return "\n".join(folded(line, self.width, indent) for line in text.split("\n")) if self.tty else text

    def paint(self, text: str, *colours: str) -> str:
        codes = ";".join(colour for colour in colours if colour)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and codes and text else text

    def word(self, text: str) -> str:
        """A state or result in its colour."""
        return self.paint(harmless(text), COLOURS.get(text, ""))

    def dump(self, value: object) -> None:
        """JSON, as `--json` asked for it."""
        import json  # noqa: PLC0415  # 3 ms that most invocations do not need

        if self.json_mode == "pretty":
            print(json.dumps(value, indent=2))
        else:
            print(json.dumps(value, separators=(",", ":")))

    def table(
        self, header: Row, rows: Iterable[Row], *, flexible: int | Sequence[int], total: str = "", right: str = ""
    ) -> None:
        """Columns as wide as they need; on a terminal the `flexible` ones give way in turn so that the line fits.

        `right` names the columns that are aligned to the right; `total` is what one row is called in the last line.
        """
        rows = [[harmless(cell) for cell in row] for row in rows]
        shown = [list(header), *rows] if self.legend else rows
        widths = [max((len(row[index]) for row in shown), default=0) for index in range(len(header))]
        if self.tty:
            self._narrow(widths, [flexible] if isinstance(flexible, int) else flexible)
        if self.legend and rows:
            print(self.paint(self._row(header, widths, header, right).rstrip(), BOLD))
        for row in rows:
            print(self._row(row, widths, header, right).rstrip())
        if self.legend and total and not self.quiet:
            print(f"\n{counted(len(rows), total)} listed." if rows else f"No {plural(total)} found.")

    def _narrow(self, widths: list[int], flexible: Sequence[int]) -> None:
        """In turn to what can still be read, then in turn to the least."""
        for least in (LEGIBLE, NARROWEST):
            for column in flexible:
                spare = self.width - sum(widths) - 2 * (len(widths) - 1)
                widths[column] = max(widths[column] + min(spare, 0), min(least, widths[column]))

    def _row(self, row: Row, widths: Sequence[int], header: Row, right: str) -> str:
        cells = []
        for text, width, name in zip(row, widths, header, strict=True):
            cut = text if len(text) <= width else _cut(text, max(width - 1, 0), name)
            padded = cut.rjust(width) if name in right.split() else cut.ljust(width)
            colour = COLOURS.get(cut.split(" ")[0].rstrip(","), "")
            cells.append(self.paint(padded, colour) if colour else padded)
        return "  ".join(cells)

    def head(self, data: bytes, *, to_error: bool = False, raw: bool = True) -> None:
        """The first bytes of a command's output: into a file or pipe as they are (if `raw`), harmless on a terminal."""
        stream = sys.stderr if to_error else sys.stdout
        stream.flush()
        if stream.isatty() or not raw:
            stream.write(harmless(data.decode("utf-8", "replace"), keep="\n\t"))
        else:
            stream.buffer.write(data)
        stream.flush()


def _escape(number: int) -> str:
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - four digits


def _cut(text: str, width: int, column: str) -> str:
    """What is told in detail says the most at its end."""
    return "…" + text[len(text) - width :] if column in {"DETAIL", "ERROR"} else text[:width] + "…"


def as_json(view: Mapping[str, object], fields: Sequence[str] = ()) -> dict[str, object]:
    """A view with the words of the contract: `fields` first and null where absent, times in RFC 3339, heads as text."""
    found: dict[str, object] = dict.fromkeys(fields)
    for name, value in view.items():
        if name in HEADS and isinstance(value, bytes):
            found[name] = value.decode("utf-8", "replace")
            found[name + "_base64"] = b2a_base64(value, newline=False).decode("ascii")
        else:
            microseconds = name in SPANS and isinstance(value, int)
            found[f"{name}_us" if microseconds else name] = _json_value(name, value)
    return found


def _json_value(name: str, value: object) -> object:
    match value:
        case bool():
            return value
        case int() if name in TIMES:
            return rfc3339(value) if value else None
        case Mapping():
            return as_json(value)
        case list():
            return [_json_value(name, inner) for inner in value]
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return value


def _width(*, tty: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and len(columns) <= MOST_DIGITS and int(columns) > 0:
        return int(columns)
    if not tty:
        return 80
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
