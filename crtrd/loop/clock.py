"""The only place that reads clocks, and the alarm that wakes the reactor at a wall-clock instant.

Wall time is for instants, monotonic time for durations and timeouts, boot time (which counts suspend)
for leases. Tests hand in a `Clock` of their own.
"""

import ctypes
import errno
import os
import time
from pathlib import Path

CLOCK_REALTIME = 0
TFD_TIMER_ABSTIME = 1
TFD_TIMER_CANCEL_ON_SET = 2
FAR_FUTURE = 1 << 62  # an alarm that never rings but still tells of clock steps


class Clock:
    """Microseconds, integers."""

    def wall(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000

    def mono(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    def boot(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """A timerfd on the wall clock. Readable when the instant has come or the clock was set (timerfd_create(2)).

    Owns `fd`; close it with `close`. Python has os.timerfd_create from 3.13 on only, hence ctypes.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.timerfd_create(CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self.set(None)

    def set(self, instant: int | None) -> None:
        """Ring at `instant` (microseconds since the epoch), or never; a clock step rings in any case."""
        seconds, rest = divmod(FAR_FUTURE if instant is None else max(instant, 1), 1_000_000)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(min(seconds, (1 << 33)), rest * 1000))
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        if self._libc.timerfd_settime(self.fd, flags, ctypes.byref(spec), None) < 0:
            number = ctypes.get_errno()
            # ECANCELED: the clock was set since the last read; the new time is armed all the same (timerfd_create(2))
            if number != errno.ECANCELED:
                raise OSError(number, "timerfd_settime")

    def clock_was_set(self) -> bool:
        """Consume one ring; True when it says that the wall clock was set rather than that the instant came."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ECANCELED:
                return True
            raise
        return False

    def close(self) -> None:
        os.close(self.fd)
