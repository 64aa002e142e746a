"""The spawner: a small process that forks the children, holds each at its gate and keeps its zombie until told.

Started as a program of its own (`gate.py` is the other side), so it imports only what the interpreter has loaded
anyway or what is one small C module: it is up in a few milliseconds, and forking it costs the same however big the
daemon has grown and whoever the child becomes. It decides nothing, opens nothing of its own and ends when the daemon's
end of its control socket is closed. It runs single-threaded and with every signal at its default, which is therefore
what a child is born with.

One message of the SEQPACKET socket is one marshalled tuple; `@` stands for "in the last descriptor" (a memfd), because
a message can be no bigger than the socket's buffer (unix(7)).

    ("start", token, argv, env, cwd, umask, uid, gid, groups, cgroup.procs file, stdin?) + [gate, out, err, stdin?]
                            -> nothing, the child speaks for itself; (token, errno, stage) when there is no child
    ("reap", token)         -> (token, 0, wait status), also when asked again by a later life of the daemon;
                               (token, ECHILD, "reap") when there is no such child
    ("forget", token)       -> nothing; the child is reaped whenever it ends

The gate is one socket for each child. The child says `pid` through it when it stands in its own session and cgroup and
waits; it gets one byte to go on, or end of file (the daemon is gone or wants it no more) and ends without executing
anything. What fails after that is told as a marshalled (stage, errno, detail); end of file means that the exec has
happened, since the socket closes on exec.
"""

import _signal  # type: ignore[import-not-found]  # C modules: `signal` and `socket` cost as much as all the rest
import _socket
import gc
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL = 3
GATE = 3  # in the child: takes the place of the control socket, of which it must not keep a copy
LAST = 0x7FFFFFFF
SHUT = 62
"""The signal of which a child dies at a gate that closes: a later life of the daemon, which cannot know whether the
gate was opened before it, tells by this that nothing was executed. No command dies of it by itself (signal(7))."""
INLINE = 61_440
"""Bytes of the largest message that travels in the socket itself."""
REMEMBERED = 1024
"""How many statuses are kept for a daemon that dies between hearing one and writing it down."""
UMASK = 0o022
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
ENOENT, EACCES, EINVAL, ECHILD, EMFILE, ENOTDIR, EPERM = 2, 13, 22, 10, 24, 20, 1
RT_SIGACTION = {
    "x86_64": 13, "i386": 174, "i686": 174, "aarch64": 134, "riscv64": 134, "loongarch64": 134,
    "armv7l": 174, "armv6l": 174, "ppc64le": 173, "s390x": 174,
}  # fmt: skip
"""System call numbers of rt_sigaction (syscalls(2))."""
CLONE3 = 435
"""The same on every architecture, like all system calls since 5.0."""
CLONE_INTO_CGROUP, SIGCHLD = 0x2_0000_0000, 17
CGROUP_PROCS = b"/cgroup.procs"

Request = tuple[
    str, str, tuple[bytes, ...], dict[bytes, bytes], bytes, int, int | None, int | None, tuple[int, ...], bytes, bool
]


class Stopped(Exception):
    """What the child could not do: (stage, errno, detail)."""


def serve(control: _socket.socket) -> None:
    """Answer requests until the daemon's end is closed."""
    children: dict[str, int] = {}
    reaped: dict[str, int] = {}
    forgotten: list[int] = []
    space = _socket.CMSG_SPACE(8 * 4)
    while True:
        message, ancillary, flags, _ = control.recvmsg(INLINE + 1, space, _socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        fds = [fd for _, _, data in ancillary for fd in memoryview(data).cast("i")]
        if message == b"@" and fds:
            message = _read_all(fds.pop())
        request = marshal.loads(message)  # noqa: S302 - from our own parent
        token = request[1]
        if request[0] == "reap":
            answer = _reap(token, children, reaped)
        elif request[0] == "forget":
            forgotten.append(children.pop(token, 0))
            answer = None
        elif flags & _socket.MSG_CTRUNC or len(fds) < 3 + request[10]:  # recvmsg(2): no descriptor was free here
            answer = (token, EMFILE, "pipe")
        else:
            answer = _start(request, fds, children)
        for fd in fds:
            posix.close(fd)
        if forgotten:
            forgotten = [pid for pid in forgotten if pid and not posix.waitpid(pid, posix.WNOHANG)[0]]
        if answer is not None:
            control.send(marshal.dumps(answer, 4), _socket.MSG_NOSIGNAL)


def _read_all(fd: int) -> bytes:
    try:
        return posix.pread(fd, posix.fstat(fd).st_size, 0)
    finally:
        posix.close(fd)


def _reap(token: str, children: dict[str, int], reaped: dict[str, int]) -> tuple[str, int, int | str]:
    """Asked only about children that have ended, so the wait is none."""
    pid = children.pop(token, 0)
    if pid:
        reaped[token] = posix.waitpid(pid, 0)[1]
        if len(reaped) > REMEMBERED:
            del reaped[next(iter(reaped))]
    elif token not in reaped:
        return (token, ECHILD, "reap")
    return (token, 0, reaped[token])


def _start(request: Request, fds: list[int], children: dict[str, int]) -> tuple[str, int, str] | None:
    pid = _clone_into(request[9]) if request[9] else None
    procs = b"" if pid is not None else request[9]
    try:
        pid = posix.fork() if pid is None else pid
    except OSError as error:
        return (request[1], error.errno or EINVAL, "fork")
    if not pid:
        try:
            _child(request, fds, procs)
        finally:
            posix._exit(127)  # noqa: SLF001 - nothing of the spawner may run in the child
    children[request[1]] = pid
    return None


def _clone_into(procs: bytes) -> int | None:
    """As fork(2), with the child in its cgroup from the first; None where that cannot be had: fork, and let it move.

    Moving a process there makes the kernel wait for all its CPUs, ten milliseconds for a lone run (clone(2),
    CLONE_INTO_CGROUP). What the C library and Python do around a fork is for threads, of which we have none.
    """
    if not procs.endswith(CGROUP_PROCS) or _system_call is None:
        return None
    try:
        folder = posix.open(procs[: -len(CGROUP_PROCS)], posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    except OSError:
        return None
    words = (CLONE_INTO_CGROUP, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, folder)
    arguments = b"".join([word.to_bytes(8, sys.byteorder) for word in words])
    pid = _system_call(CLONE3, arguments, len(arguments))
    if pid:
        posix.close(folder)
    return pid if pid >= 0 else None


def _child(request: Request, fds: list[int], procs: bytes) -> None:
    """From the fork to the exec; returns only where nothing can be executed. `procs` is empty in the cgroup already."""
    try:
        _hold(request, fds, procs)
        _become(request)
        _execute(request[2], request[3])
    except Stopped as stopped:
        posix.write(GATE, marshal.dumps(stopped.args, 4))
    except OSError as error:
        posix.write(GATE, marshal.dumps(("command", error.errno or EINVAL, b""), 4))
    except (ValueError, MemoryError) as error:
        posix.write(GATE, marshal.dumps(("command", EINVAL, str(error).encode("utf-8", "replace")), 4))


def _hold(request: Request, fds: list[int], procs: bytes) -> None:
    """Own session, only the descriptors 0, 1, 2 and the gate, own cgroup; then wait for the gate."""
    posix.setsid()
    null = -1 if request[10] else posix.open("/dev/null", posix.O_RDONLY)
    posix.dup2(fds[3] if request[10] else null, 0)
    posix.dup2(fds[1], 1)
    posix.dup2(fds[2], 2)
    posix.dup2(fds[0], GATE, inheritable=False)
    posix.closerange(GATE + 1, LAST)
    if procs:
        try:
            file = posix.open(procs, posix.O_WRONLY | posix.O_CLOEXEC)
            posix.write(file, b"0")
            posix.close(file)
        except OSError as error:
            raise Stopped("cgroup", error.errno, procs) from None
    posix.write(GATE, b"%d" % posix.getpid())
    if not posix.read(GATE, 1):
        posix.kill(posix.getpid(), SHUT)  # not wanted: nothing was executed


def _become(request: Request) -> None:
    """The user, umask and folder of the plan. The folder is entered as the user, whose rights count."""
    cwd, umask, uid, gid, groups = request[4:9]
    if uid is not None or gid is not None:
        try:
            _change_user(uid, gid, groups)
        except OSError as error:
            raise Stopped("user", error.errno, b"") from None
    if umask != UMASK:
        posix.umask(umask)
    if cwd == b"/":
        return  # already there
    try:
        posix.chdir(cwd)
    except OSError as error:
        raise Stopped("cwd", error.errno, cwd) from None


def _change_user(uid: int | None, gid: int | None, groups: tuple[int, ...]) -> None:
    """All or nothing, and looked at afterwards: a child never runs as anyone else (setuid(2) tells why to check)."""
    uid = posix.getuid() if uid is None else uid
    gid = posix.getgid() if gid is None else gid

    def is_done() -> bool:
        there = set(posix.getgroups())
        # The kernel may list the primary group among the supplementary ones or not: both are the same rights.
        same = there | {gid} == set(groups) | {gid}
        return same and posix.getresuid() == (uid,) * 3 and posix.getresgid() == (gid,) * 3

    if is_done():
        return
    posix.setgroups(groups)
    posix.setresgid(gid, gid, gid)
    posix.setresuid(uid, uid, uid)
    if not is_done():
        raise OSError(EPERM, "")


def _execute(argv: tuple[bytes, ...], env: dict[bytes, bytes]) -> None:
    """Replace the child; raises Stopped with the errno that says most, as execvp(3) chooses it."""
    name = argv[0]
    if not name:
        raise Stopped("command", ENOENT, name)
    searched = b"/" not in name
    files = [name]
    if searched:
        files = [(folder or b".") + b"/" + name for folder in env.get(b"PATH", DEFAULT_PATH).split(b":")]
    denied = None
    for file in files:
        try:
            posix.execve(file, argv, env)
        except OSError as error:
            fault = _explain(file, error.errno or EINVAL)
            if searched and fault[0] == "command" and fault[1] in {ENOENT, ENOTDIR, EACCES}:
                denied = denied or (fault if fault[1] == EACCES else None)
                continue
            raise Stopped(*fault) from None
    raise Stopped(*(denied or ("command", ENOENT, name)))


def _explain(file: bytes, number: int) -> tuple[str, int, bytes]:
    """Tell a missing command from a missing interpreter: execve(2) answers ENOENT or EACCES for both."""
    try:
        if number not in {ENOENT, EACCES} or not posix.access(file, posix.X_OK) or posix.stat(file).st_mode & 0o040000:
            return ("command", number, file)
        fd = posix.open(file, posix.O_RDONLY | posix.O_CLOEXEC)
        start = posix.read(fd, 256)
        posix.close(fd)
    except OSError:
        return ("command", number, file)
    words = start[2:].split(b"\n", 1)[0].split() if start[:2] == b"#!" else []
    return ("interpreter", number, words[0] if words else b"")


def _default_signals() -> None:
    """Every signal at its default and none blocked: Python ignores SIGPIPE and SIGXFSZ, and who started us may have
    ignored anything. glibc's posix_spawn(3) leaves its own two signals ignored; only the bare system call undoes that.
    """
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    call_number = RT_SIGACTION.get(posix.uname().machine)
    if call_number is not None and _system_call is not None:
        for number in (32, 33):
            _system_call(call_number, number, bytes(64), None, 8)


def _find_system_call() -> "Callable[..., int] | None":
    """syscall(2), and None for a Python without ctypes: then two signals stay ignored, which only a debugger sees."""
    try:
        import _ctypes  # noqa: PLC0415 - half a millisecond; all of ctypes is five

        program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # dlopen(3): NULL is the program itself
        address = _ctypes.dlsym(program, "syscall")
    except (ImportError, OSError, AttributeError):
        return None
    return lambda *arguments: _ctypes.call_function(address, arguments)


_system_call: "Callable[..., int] | None" = None


def main() -> None:
    """The control socket is descriptor CONTROL; every other one is the daemon's and is dropped."""
    posix.closerange(CONTROL + 1, LAST)
    global _system_call  # noqa: PLW0603 - a program of one file
    _system_call = _find_system_call()
    gc.disable()  # no cycles arise here, and a collection in a child would copy every page
    _default_signals()
    posix.chdir("/")
    posix.umask(UMASK)
    serve(_socket.socket(fileno=CONTROL))


if __name__ == "__main__":
    main()
    sys.exit(0)
