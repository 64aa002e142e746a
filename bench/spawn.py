"""What another user costs at a start: runs of /bin/true, plain and as another user, by a supervisor in a big process.

    python bench/spawn.py [RUNS] [MEGABYTES]        # as root; 300 runs, 500 MB whose page tables a fork would copy

The spawner forks, and it is as small as ever, so the ratio stays near 1. For comparison: subprocess with and without
`user=`, which forks the big process itself.
"""

import os
import pwd
import statistics
import subprocess
import sys
import time

from crtrd.core.events import LaunchFailed, RunEnded, RunHeld
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.supervision.plan import Plan
from crtrd.supervision.supervisor import Supervisor

USER = "nobody"
ENV = (("PATH", "/usr/bin:/bin"),)


class Starter:
    """One supervisor on a loop of its own."""

    def __init__(self):
        self.reactor = Reactor(Clock())
        self.supervisor = Supervisor(self.reactor, None, self._heard)
        self.supervisor.prepare()
        self.ended = 0

    def _heard(self, event):
        match event:
            case RunHeld():
                self.supervisor.release(event.run_id)
            case RunEnded():
                self.ended += 1
            case LaunchFailed():
                raise SystemExit(event.message)

    def run(self, **identity):
        """Milliseconds from the wish to the end of one run."""
        wanted, begun = self.ended + 1, time.perf_counter()
        self.supervisor.start(Plan(f"{wanted:032x}", ("/bin/true",), ENV, **identity))
        while self.ended < wanted:
            self.reactor.turn(100_000)
        return (time.perf_counter() - begun) * 1000

    def close(self):
        self.supervisor.close()
        self.reactor.close()


def forked(**identity):
    begun = time.perf_counter()
    subprocess.run(["/bin/true"], check=True, **identity)
    return (time.perf_counter() - begun) * 1000


def both(count, plain, other):
    """Medians of the two, measured by turns so that a busy machine is unfair to neither."""
    pairs = [(plain(), other()) for _ in range(count)]
    return statistics.median(first for first, _ in pairs), statistics.median(second for _, second in pairs)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    if os.geteuid() != 0:
        raise SystemExit("bench/spawn.py: only root can start as another user")
    account = pwd.getpwnam(USER)
    who = {"uid": account.pw_uid, "gid": account.pw_gid, "groups": (account.pw_gid,)}
    ballast = bytearray(megabytes << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])  # every page is there
    starter = Starter()
    plain, other = both(runs, starter.run, lambda: starter.run(**who))
    starter.close()
    simple, simple_other = both(max(runs // 10, 10), forked, lambda: forked(user=USER))
    print(f"{runs} runs of /bin/true in a process of {megabytes} MB, medians")
    print(f"supervisor   plain {plain:6.2f} ms   as {USER} {other:6.2f} ms   ratio {other / plain:.2f}")
    print(f"subprocess   plain {simple:6.2f} ms   as {USER} {simple_other:6.2f} ms   ratio {simple_other / simple:.2f}")


if __name__ == "__main__":
    main()
