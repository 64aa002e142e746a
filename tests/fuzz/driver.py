"""What the targets share: inputs that begin as those of the corpus and are changed a little, or are anything at all.

Brief by default; `make fuzz` sets CRTRD_FUZZ to many more examples. An input that found a fault is kept: put it into
corpus/TARGET as a file, where it is tried first for ever after.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("CRTRD_FUZZ", "150"))
CORPUS = Path(__file__).parent / "corpus"
TOKENS = [b"\0", b"\n", b"\r\n", b"\xff", b"\xed\xa0\x80", b'"', b"{", b"}", b"[[", b"-1", b"0", b"9" * 20, b"*/",
          b"%", b"\\", b"\t", b" ", b"Z", b"+25:00", b"@reboot", b"1e999", b"9" * 5000, b"[" * 2000]

hostile = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 1000, print_blob=False,
    suppress_health_check=list(HealthCheck))


def seeds(target):
    found = [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
    assert found, f"the corpus of {target} is empty"
    return found


@st.composite
def mutated(draw, target):
    data = draw(st.sampled_from(seeds(target)))
    for _ in range(draw(st.integers(0, 5))):
        at, gone = draw(st.integers(0, len(data))), draw(st.integers(0, 9))
        new = draw(st.sampled_from(TOKENS) | st.binary(max_size=5) | st.text(max_size=4).map(str.encode))
        data = data[:at] + new + data[at + gone :]
    return data


def inputs(target):
    return mutated(target) | st.binary(max_size=300) | st.text(max_size=200).map(str.encode)
