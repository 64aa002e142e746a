"""The hash of a stream after `change_ignore`: each match of its expressions counts as one fixed mark.

Works line by line on everything that is written, so an expression never matches across lines; a line longer than
LONGEST_LINE is taken in pieces. It runs in the loop: an expression that backtracks without end holds the daemon up.
"""

import hashlib
import re
from collections.abc import Sequence

from crtrd.core.occurrence import Output

MARK = b"\x00"
LONGEST_LINE = 4096


class Masking:
    def __init__(self, expressions: Sequence[str]) -> None:
        self._expressions = [re.compile(each.encode("utf-8", "surrogateescape")) for each in expressions]
        self._hash = hashlib.sha256()
        self._partial = b""

    def feed(self, data: bytes) -> None:
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        for line in lines:
            self._line(line + b"\n")
        while len(self._partial) > LONGEST_LINE:
            self._line(self._partial[:LONGEST_LINE])
            self._partial = self._partial[LONGEST_LINE:]

    def _line(self, line: bytes) -> None:
        for expression in self._expressions:
            line = expression.sub(MARK, line)
        self._hash.update(line)

    def hexdigest(self) -> str:
        """Of all that was fed; a last line may have no end."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""
        return self._hash.hexdigest()


def masked(output: Output, masking: Masking | None) -> Output:
    """The output with its masked hash, where there is anything to mask."""
    if masking is None or not output.total:
        return output
    return Output(output.head, output.total, output.sha256, masking.hexdigest())
