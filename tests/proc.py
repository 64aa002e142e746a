"""What /proc tells of a process that may end at any moment: between a listing and an open, an open and a read."""

from pathlib import Path


def of_process(pid: int, file: str) -> bytes:
    """The content of a file of the process, b"" once that is gone (proc(5): ENOENT, or ESRCH for an open file)."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def switches(pid: int) -> int:
    """Context switches of all its threads."""
    texts = [of_process(pid, f"task/{task.name}/status") for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if b"ctxt_switches" in line)
