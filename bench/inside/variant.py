"""The installed daemon, changed in one respect for a comparison; it stands in place of `python3 -I -m crtrd`.

    BENCH_SYNCHRONOUS=off    commits that do not wait for the disk
    BENCH_BALLAST=MEGABYTES  a process that is bigger by so much
"""

import os
import sys

from crtrd.daemon import main
from crtrd.ledger import store

if value := os.environ.pop("BENCH_SYNCHRONOUS", ""):
    store.PRAGMAS["synchronous"] = value
BALLAST = bytearray(int(os.environ.pop("BENCH_BALLAST", "0")) << 20)
BALLAST[::4096] = b"x" * len(BALLAST[::4096])  # every page is there

sys.exit(main())
