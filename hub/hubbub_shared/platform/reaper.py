"""The launcher of all stdio servers on Linux, and the reapers that it forks: one per server, which ends all it started.

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

`portable_reaper.py` has what other systems need instead of subreapers, pidfds and /proc.
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

assert sys.platform != "win32"  # it has neither forks nor signals

# Of Linux: prctl.h and signal.h. The module `signal` would cost memory, for each server.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIG_DFL, SIG_IGN, SIG_SETMASK = 0, 1, 2
SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGCHLD, SIGSTOP = 1, 2, 9, 15, 17, 19
SIGNALS = (*range(1, 32), *range(34, 65))
"""All that a program can set; the C library keeps two for itself."""

DESCRIPTORS = 5
"""How many come with each start."""

CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
"""The flag that keeps servers from inheriting the descriptors; 0 where they are marked so after they have come."""

TERM_GRACE_S = 2.0
"""How long processes may take to end after SIGTERM; then comes SIGKILL."""

ORPHAN_CHECK_MS = 60_000
"""How often the orphans that have ended are reaped while the server runs on."""

LIBC = _ctypes.dlopen(None, 0)  # pyright: ignore[reportArgumentType] - None is the program itself


def call_libc(function: str, *arguments: int | bytes | None) -> None:
    """Call a function of the C library. (Importing `ctypes`, which wraps `_ctypes`, would cost memory.)"""
    _ctypes.call_function(_ctypes.dlsym(LIBC, function), arguments)


def launch(start_socket: _socket.socket, reaper_class: "type[Reaper]") -> None:
    """Fork a reaper for each start of a server, until the other end of `start_socket` closes; then wait for them.

    A reaper is the process that starts one server, and at last ends all that the server has started.
    """
    gc.disable()  # a collection would write to all objects, and so copy them into each reaper
    # A signal to the whole service must not end a reaper before it has cleaned up; the sockets end all. And the kernel
    # collects the reapers.
    reaper_class.ignore_signals()
    while descriptors := _receive_descriptors(start_socket):
        *_, control, _ = descriptors
        try:
            reaper = os.fork()
        except OSError as exc:
            _report(control, f"failed fork {exc.errno}")
        else:
            if reaper == 0:
                start_socket.close()
                reaper_class(control).run(descriptors)
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
        """`control` is the socket to the hub: the reaper reports there, and ends the server when it is closed."""
        self.control = control
        self.server = 0  # the process id of the server, once it is forked

    def run(self, descriptors: list[int]) -> None:
        """Run until the server and all its descendants are gone, or until it failed to start."""
        self.inherit_orphans()
        self.report(f"reaper {os.getpid()}")
        failure = self._start(descriptors)
        for descriptor in descriptors:
            if descriptor != self.control:
                os.close(descriptor)
        if failure:
            self.report(f"failed {failure}")
        else:
            self.report(f"started {self.server}")
            self.wait_for_end()
        self.sweep()
        self.report("swept")

    def _start(self, descriptors: list[int]) -> str:
        """Start the server; return what failed, "" when it runs."""
        pipe_reader, pipe_writer = os.pipe()
        parent = os.getpid()
        try:
            self.server = os.fork()
        except OSError as exc:
            return f"fork {exc.errno}"
        if self.server == 0:
            os.write(pipe_writer, self._become_server(parent, descriptors).encode())
            os._exit(127)
        os.close(pipe_writer)  # the child's copy closes when it becomes the server
        failure = os.read(pipe_reader, 100).decode()
        os.close(pipe_reader)
        return failure

    def _become_server(self, parent: int, descriptors: list[int]) -> str:
        """Turn this forked process into the server; return only if that fails, with what failed."""
        self.die_with_reaper()
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(127)
        *standard_descriptors, _, spec_descriptor = descriptors
        for number, descriptor in enumerate(standard_descriptors):
            os.dup2(descriptor, number)
        # What was ignored or blocked where the hub was started stays so over exec, such as SIGQUIT in the background
        # of a shell (POSIX, sh, asynchronous lists); a server expects none of it.
        self.reset_signals()
        os.setsid()  # a server that signals its own process group must not reach the reaper
        cwd, command, environ = read_spec(spec_descriptor)
        try:
            if cwd:
                os.chdir(cwd)
        except OSError as exc:
            return f"cwd {exc.errno}"
        try:
            os.execvpe(command[0], command, environ)
        except OSError as exc:
            return f"command {exc.errno}"

    # What each system has its own way of. The module `signal` would cost memory here, as `ctypes` would.

    @staticmethod
    def ignore_signals() -> None:
        """Ignore what may be sent to the whole service, and have the kernel collect what this process forks."""
        for number in (SIGHUP, SIGINT, SIGTERM, SIGCHLD):
            call_libc("signal", number, SIG_IGN)

    def inherit_orphans(self) -> None:
        """Collect what this process forks from now on, and every descendant that loses its parent."""
        call_libc("signal", SIGCHLD, SIG_DFL)
        call_libc("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def die_with_reaper(self) -> None:
        """Have the kernel kill this process when its reaper dies: the forked child, before it becomes the server."""
        call_libc("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)

    def reset_signals(self) -> None:
        """Give this process the ordinary reaction to each signal."""
        for number in SIGNALS:
            if number not in (SIGKILL, SIGSTOP):
                call_libc("signal", number, SIG_DFL)
        call_libc(
            "sigprocmask", SIG_SETMASK, bytes(128), None
        )  # an empty `sigset_t`, as large as those of glibc and musl

    def wait_for_end(self) -> None:
        """Wait until the server has ended or the control socket was closed; reap orphans that end meanwhile."""
        assert sys.platform == "linux"
        server = os.pidfd_open(self.server)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(server, select.POLLIN)
        while not poll.poll(ORPHAN_CHECK_MS):
            self.reap()
        os.close(server)

    def sweep(self) -> None:
        """End every descendant: SIGTERM, SIGKILL after TERM_GRACE_S, until none is left."""
        signalled: set[int] = set()
        kill_at = time.monotonic() + TERM_GRACE_S
        pause_s = 0.001
        while self.reap():
            is_overdue = time.monotonic() >= kill_at
            for pid in _list_descendants():
                if is_overdue or pid not in signalled:
                    signalled.add(pid)
                    send_signal(pid, SIGKILL if is_overdue else SIGTERM)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)

    def reap(self) -> bool:
        """Collect the status of every child that ended; return whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.server:
                self.report(f"exited {status}")

    def report(self, line: str) -> None:
        """Write a line to the control socket."""
        _report(self.control, line)


def _receive_descriptors(start_socket: _socket.socket) -> list[int]:
    """Return the descriptors of the next start; none when the hub has closed its end."""
    _, ancillary, _, _ = start_socket.recvmsg(1, _socket.CMSG_SPACE(DESCRIPTORS * 4), CLOSE_ON_EXEC)
    descriptors = [descriptor for _, _, data in ancillary for descriptor in memoryview(data).cast("i")]
    if not CLOSE_ON_EXEC:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    return descriptors


def _report(control: int, line: str) -> None:
    """Write a line to a control socket; nothing if the hub is gone."""
    try:
        os.write(control, f"{line}\n".encode())
    except OSError:
        pass  # the hub is gone; there is still the sweep to finish


def read_spec(descriptor: int) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    """Return the directory, the command with its arguments, and the environment of a server to start.

    `descriptor` is the descriptor of a file that the hub has written; `upstream/stdio/process.py` has its form.
    """
    with open(descriptor, "rb") as file:
        cwd, count, *entries = file.read().split(b"\0")
    argc = int(count)
    return cwd, entries[:argc], dict(entry.split(b"=", 1) for entry in entries[argc:])


def _list_descendants() -> list[int]:
    """Return the pids of all processes below this one."""
    descendants: list[int] = []
    parents = [os.getpid()]
    while parents:
        children = _list_children(parents.pop())
        descendants += children
        parents += children
    return descendants


def _list_children(pid: int) -> list[int]:
    """Return the pids of a process's children; the kernel lists them by the thread that has started each."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # ended meanwhile; its children are ours now, and found by the next pass
    return children


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended already, or be of another user."""
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone already, or of another user: then wait for it


def main() -> None:
    """Run from the command line: reaper.py SOCKET."""
    launch(_socket.socket(fileno=int(sys.argv[1])), Reaper)


if __name__ == "__main__":
    main()
