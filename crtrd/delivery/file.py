"""Sink `file:PATH`: the document as one line at the end of a regular file, as the cron's owner, synced.

An attempt that may not be the first looks into the file's end, so that a line is hardly ever there twice.
"""

import os
import stat

from crtrd.delivery.attempt import TAKEN, Job, Said, failed, refused

LOOK_BACK = 1 << 20


def deliver(job: Job) -> Said:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(job.argument, flags, 0o600)
    except OSError as error:
        return failed(f"cannot open {job.argument}: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return refused(f"cannot append to {job.argument}: it is no regular file")
        return _append(fd, job)
    except OSError as error:
        return failed(f"cannot write {job.argument}: {error.strerror}")
    finally:
        os.close(fd)


def _append(fd: int, job: Job) -> Said:
    size = os.fstat(fd).st_size
    if job.attempt > 1 and f'"id":"{job.id}"'.encode("ascii") in os.pread(fd, LOOK_BACK, max(size - LOOK_BACK, 0)):
        return TAKEN
    line = job.message.encode("utf-8") + b"\n"
    if os.write(fd, line) != len(line):
        os.ftruncate(fd, size)
        return failed(f"cannot write {job.argument}: no space")
    os.fsync(fd)
    return TAKEN
