"""The subreaper: the parent process of one stdio server, which ends all that the server started with its connection.

Run by path with `python -I -S`; it is no part of the daemon's import graph. It gets the server's pipes as its own 0, 1
and 2, passes them on and closes them, and a control socket. Over that it reports, a line each:

    started PID          the server runs
    failed STAGE ERRNO   it does not: STAGE is `cwd` or `command`
    exited STATUS        the server ended, with this wait status
    swept                no descendant is left; the last line

When the other end of the socket closes, on purpose or because the hub died, it ends everything. As a subreaper (prctl
PR_SET_CHILD_SUBREAPER) it inherits every orphaned descendant, so that none escapes by daemonising. If it is killed
itself, the kernel kills the server (PR_SET_PDEATHSIG).

One of these stays in memory per server, hence the few imports (`signal` alone would cost 0.7 MB).
"""

# pathlib and contextlib cost memory as well; starting the given command is the purpose.
# ruff: noqa: PTH123, PTH208, SIM105, S606

import _ctypes
import os
import select
import sys
import time

# Of Linux: prctl.h and signal.h. What would import them costs memory, for each server.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIG_DFL, SIG_IGN = 0, 1
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ = 1, 2, 9, 13, 15, 25

TERM_GRACE_S = 2.0
"""How long processes may take to end after SIGTERM; then comes SIGKILL."""

ORPHAN_CHECK_MS = 60_000
"""How often what has ended is reaped while the server runs on."""

LIBC = _ctypes.dlopen(None, 0)  # pyright: ignore[reportArgumentType] - None is the program itself


def libc(function: str, *arguments: int) -> None:
    """Call a function of the C library. Importing `ctypes`, which wraps `_ctypes`, would cost 0.3 MB."""
    _ctypes.call_function(_ctypes.dlsym(LIBC, function), arguments)


class Reaper:
    """Starts the server, reports on it, and ends its descendants."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._server = 0

    def run(self, environ: int, cwd: str, command: list[str]) -> None:
        """Run until the server and all its descendants are gone, or until it failed to start."""
        os.set_inheritable(self._control, False)
        libc("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # A signal to the whole service must not end the reaper before it has cleaned up; the control socket ends it.
        for number in (SIGHUP, SIGINT, SIGTERM):
            libc("signal", number, SIG_IGN)
        failure = self._start(_read_environ(environ), cwd, command)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        if failure:
            os.waitpid(self._server, 0)
            self._report(f"failed {failure}")
        else:
            self._report(f"started {self._server}")
            self._watch()
            self._sweep()
        self._report("swept")

    def _start(self, environ: dict[bytes, bytes], cwd: str, command: list[str]) -> str:
        """Start the server; return what failed, "" when it runs."""
        receive, send = os.pipe()
        parent = os.getpid()
        self._server = os.fork()
        if self._server == 0:
            os.write(send, _become(parent, environ, cwd, command).encode())
            os._exit(127)
        os.close(send)  # the child's copy closes when it becomes the server
        failure = os.read(receive, 100).decode()
        os.close(receive)
        return failure

    def _watch(self) -> None:
        """Wait until the server has ended or the control socket was closed."""
        server = os.pidfd_open(self._server)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(server, select.POLLIN)
        while not poll.poll(ORPHAN_CHECK_MS):
            self._reap()
        os.close(server)

    def _sweep(self) -> None:
        """End every descendant: SIGTERM, SIGKILL after TERM_GRACE_S, until none is left."""
        signalled: set[int] = set()
        kill_at = time.monotonic() + TERM_GRACE_S
        pause = 0.001
        while self._reap():
            kill = time.monotonic() >= kill_at
            for pid in _descendants():
                if kill or pid not in signalled:
                    signalled.add(pid)
                    _signal(pid, SIGKILL if kill else SIGTERM)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _reap(self) -> bool:
        """Collect the status of every child that ended; return whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._server:
                self._report(f"exited {status}")

    def _report(self, line: str) -> None:
        try:
            os.write(self._control, f"{line}\n".encode())
        except OSError:
            pass  # the hub is gone; there is still the sweep to finish


def _become(parent: int, environ: dict[bytes, bytes], cwd: str, command: list[str]) -> str:
    """Turn this forked process into the server; return only what failed."""
    libc("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the line above
        os._exit(127)
    for number in (SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGXFSZ):
        libc("signal", number, SIG_DFL)
    os.setsid()  # a server that signals its own process group must not reach the reaper
    try:
        if cwd:
            os.chdir(cwd)
    except OSError as exc:
        return f"cwd {exc.errno}"
    try:
        os.execvpe(command[0], command, environ)
    except OSError as exc:
        return f"command {exc.errno}"


def _read_environ(descriptor: int) -> dict[bytes, bytes]:
    with open(descriptor, "rb") as file:
        return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if entry)


def _descendants() -> list[int]:
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        children = _children(parents.pop())
        found += children
        parents += children
    return found


def _children(pid: int) -> list[int]:
    """Return the children of a process; the kernel lists them per thread that started them."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # ended meanwhile; its children are ours now, and found by the next pass
    return children


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone already, or of another user: then wait for it


if __name__ == "__main__":
    libc("malloc_trim", 0)  # what compiling this file took is not needed again
    Reaper(int(sys.argv[1])).run(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    os._exit(0)
