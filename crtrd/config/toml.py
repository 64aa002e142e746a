"""TOML from a text that somebody wrote: what tomllib reads, but for keys over which it would sit for hours.

It looks at every beginning of a dotted key anew: 20 000 parts take fifteen seconds, a file of the size that is allowed
as good as for ever, and the daemon with it.
"""

import re
import tomllib

PARTS_MOST = 100
"""Nothing of ours has more than three."""
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_DEEP = re.compile(rf"(?:^|[\[{{,])[ \t]*+(?:{_PART}){{{PARTS_MOST}}}", re.MULTILINE)
_QUOTED = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' r"'''.*?'''|" r'"(?:[^"\\\n]|\\.)*+"|' r"'[^'\n]*+'|#[^\n]*+", re.DOTALL)


def parse(text: str) -> dict[str, object]:
    """The tables of the text. Raises tomllib.TOMLDecodeError, RecursionError, or another ValueError."""
    if _DEEP.search(text) and (deep := _DEEP.search(_QUOTED.sub(_emptied, text))):
        line = deep.string.count("\n", 0, deep.end()) + 1
        raise tomllib.TOMLDecodeError(f"A key has more than {PARTS_MOST} parts (at line {line}, column 1)")
    return tomllib.loads(text)


def _emptied(quoted: re.Match[str]) -> str:
    """A text that looks like many keys is none; its lines stay, to be counted."""
    return '""' + "\n" * quoted[0].count("\n")
