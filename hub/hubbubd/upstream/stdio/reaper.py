"""The launcher of all stdio servers, and the reapers that it forks: one per server, which ends all that it started.

Run by path with `python -I -S`; it is no part of the daemon's import graph. The launcher gets one packet for each
start, with these descriptors: the server's stdin, stdout and stderr, a control socket, and what to start. It forks a
reaper and goes on, so no slow start holds up another. It ends after its reapers, once its socket is closed.

A reaper starts its server, and reports over the control socket, a line each:

    reaper PID           this process
    started PID          the server runs
    failed STAGE ERRNO   it does not: STAGE is `fork`, `cwd` or `command`
    exited STATUS        the server ended, with this wait status
    swept                no descendant is left; the last line

When the other end of its socket closes, on purpose or because the hub died, it ends everything. As a subreaper (prctl
PR_SET_CHILD_SUBREAPER) it inherits every orphaned descendant, so that none escapes by daemonising. This is why each
server has a reaper of its own: of two servers under one, nobody could tell whose orphan it is. If it is killed itself,
the kernel kills the server (PR_SET_PDEATHSIG). It does not need the launcher, and lives on when that is killed.

A reaper shares all memory with the launcher that neither writes to, hence no `exec`, and the few and small imports.
"""

# pathlib and contextlib cost memory as well; starting the given command is the purpose.
# ruff: noqa: PTH123, PTH208, SIM105, S606

import _ctypes
import _socket
import gc
import os
import select
import sys
import time

# Of Linux: prctl.h and signal.h. The module `signal` would cost memory, for each server.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIG_DFL, SIG_IGN, SIG_SETMASK = 0, 1, 2
SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGCHLD, SIGSTOP = 1, 2, 9, 15, 17, 19
SIGNALS = (*range(1, 32), *range(34, 65))
"""All that a program can set; the C library keeps two for itself."""

DESCRIPTORS = 5
"""How many come with each start."""

TERM_GRACE_S = 2.0
"""How long processes may take to end after SIGTERM; then comes SIGKILL."""

ORPHAN_CHECK_MS = 60_000
"""How often what has ended is reaped while the server runs on."""

LIBC = _ctypes.dlopen(None, 0)  # pyright: ignore[reportArgumentType] - None is the program itself


def libc(function: str, *arguments: int | bytes | None) -> None:
    """Call a function of the C library. Importing `ctypes`, which wraps `_ctypes`, would cost memory."""
    _ctypes.call_function(_ctypes.dlsym(LIBC, function), arguments)


def launch(starts: _socket.socket) -> None:
    """Fork a reaper for each start, until the other end of `starts` closes; then wait for the reapers."""
    gc.disable()  # a collection would write to all objects, and so copy them into each reaper
    # A signal to the whole service must not end a reaper before it has cleaned up; the sockets end all. The module
    # `signal` would cost memory, as `ctypes` would.
    for number in (SIGHUP, SIGINT, SIGTERM):
        libc("signal", number, SIG_IGN)
    libc("signal", SIGCHLD, SIG_IGN)  # the kernel collects the reapers
    while descriptors := _receive_descriptors(starts):
        *_, control, _ = descriptors
        try:
            reaper = os.fork()
        except OSError as exc:
            _report(control, f"failed fork {exc.errno}")
        else:
            if reaper == 0:
                starts.close()
                Reaper(control).run(descriptors)
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        os.wait()  # as SIGCHLD is ignored: until the last reaper has ended
    except ChildProcessError:
        pass


class Reaper:
    """Starts a server, reports on it, and ends its descendants."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._server = 0

    def run(self, descriptors: list[int]) -> None:
        """Run until the server and all its descendants are gone, or until it failed to start."""
        libc("signal", SIGCHLD, SIG_DFL)
        self._report(f"reaper {os.getpid()}")
        libc("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        failure = self._start(descriptors)
        for descriptor in descriptors:
            if descriptor != self._control:
                os.close(descriptor)
        if failure:
            self._report(f"failed {failure}")
        else:
            self._report(f"started {self._server}")
            self._wait_for_end()
        self._sweep()
        self._report("swept")

    def _start(self, descriptors: list[int]) -> str:
        """Start the server; return what failed, "" when it runs."""
        receive, send = os.pipe()
        parent = os.getpid()
        try:
            self._server = os.fork()
        except OSError as exc:
            return f"fork {exc.errno}"
        if self._server == 0:
            os.write(send, _become_server(parent, descriptors).encode())
            os._exit(127)
        os.close(send)  # the child's copy closes when it becomes the server
        failure = os.read(receive, 100).decode()
        os.close(receive)
        return failure

    def _wait_for_end(self) -> None:
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
            is_overdue = time.monotonic() >= kill_at
            for pid in _descendants():
                if is_overdue or pid not in signalled:
                    signalled.add(pid)
                    _send_signal(pid, SIGKILL if is_overdue else SIGTERM)
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
        _report(self._control, line)


def _receive_descriptors(starts: _socket.socket) -> list[int]:
    """Return the descriptors of the next start; none when the hub has closed its end."""
    _, ancillary, _, _ = starts.recvmsg(1, _socket.CMSG_SPACE(DESCRIPTORS * 4), _socket.MSG_CMSG_CLOEXEC)
    return [descriptor for _, _, data in ancillary for descriptor in memoryview(data).cast("i")]


def _report(control: int, line: str) -> None:
    try:
        os.write(control, f"{line}\n".encode())
    except OSError:
        pass  # the hub is gone; there is still the sweep to finish


def _become_server(parent: int, descriptors: list[int]) -> str:
    """Turn this forked process into the server; return only what failed."""
    libc("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the line above
        os._exit(127)
    *standard, _, spec = descriptors
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    # What was ignored or blocked where the hub was started stays so over exec, such as SIGQUIT in the background of a
    # shell (POSIX, sh, asynchronous lists); a server expects none of it.
    for number in SIGNALS:
        if number not in (SIGKILL, SIGSTOP):
            libc("signal", number, SIG_DFL)
    libc("sigprocmask", SIG_SETMASK, bytes(128), None)  # an empty `sigset_t`, as large as those of glibc and musl
    os.setsid()  # a server that signals its own process group must not reach the reaper
    cwd, command, environ = _read_spec(spec)
    try:
        if cwd:
            os.chdir(cwd)
    except OSError as exc:
        return f"cwd {exc.errno}"
    try:
        os.execvpe(command[0], command, environ)
    except OSError as exc:
        return f"command {exc.errno}"


def _read_spec(spec: int) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    """Return the directory, the command with its arguments, and the environment: see `process.py`."""
    with open(spec, "rb") as file:
        cwd, count, *rest = file.read().split(b"\0")
    argc = int(count)
    return cwd, rest[:argc], dict(entry.split(b"=", 1) for entry in rest[argc:])


def _descendants() -> list[int]:
    """Return the pids of all processes below this one."""
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


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone already, or of another user: then wait for it


if __name__ == "__main__":
    launch(_socket.socket(fileno=int(sys.argv[1])))
