"""`python3 -m crtrd`: the daemon."""

import sys

from crtrd.daemon import main

if __name__ == "__main__":
    sys.exit(main())
