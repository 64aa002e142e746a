"""Sink `exec:COMMAND`: a shell command of the cron's owner gets the document on standard input; nothing in its argv.

Exit status 0: taken. 75 (EX_TEMPFAIL) and every other: not this time. It need not read its input.
"""

import os
import pwd
import subprocess

from crtrd.delivery.attempt import TAKEN, Job, Said, failed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARGIN = 2.0


def deliver(job: Job) -> Said:
    stdin = os.memfd_create("crtrd-message", os.MFD_CLOEXEC)  # a pipe would tie us to who does not read it
    try:
        os.write(stdin, job.message.encode("utf-8") + b"\n")
        os.lseek(stdin, 0, os.SEEK_SET)
        done = subprocess.run(
            ["/bin/sh", "-c", job.argument], stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(job), cwd=_folder(), timeout=job.timeout - MARGIN, check=False)
    except subprocess.TimeoutExpired:
        return failed(f"the command did not end within {job.timeout - MARGIN:g} s")
    except OSError as error:
        return failed(f"cannot start the command: {error.strerror}")
    finally:
        os.close(stdin)
    if done.returncode == 0:
        return TAKEN
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    return failed(f"the command ended with {how}")


def environment(job: Job) -> dict[str, str]:
    """Nothing of the daemon's own environment."""
    account = pwd.getpwuid(os.getuid())
    values = {
        "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": "/bin/sh", "PATH": PATH,
        "LANG": "C.UTF-8", "CRTR_DELIVERY_ID": job.id, "CRTR_DELIVERY_ATTEMPT": str(job.attempt),
        "CRTR_DELIVERY_KIND": job.kind, "CRTR_CRON_ID": job.cron_id, "CRTR_CRON_NAME": job.cron_name,
        "CRTR_RUN_ID": job.run_id,
    }
    return values | ({"CRTR_HOME": job.home} if job.home else {})


def _folder() -> str:
    home = pwd.getpwuid(os.getuid()).pw_dir
    return home if os.path.isdir(home) else "/"
