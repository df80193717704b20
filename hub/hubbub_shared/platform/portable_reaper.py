"""The launcher and reapers of `reaper.py` for systems that have neither subreapers nor /proc, such as macOS.

Run by path with `python -I -S`: portable_reaper.py SOCKET PACKAGES, where PACKAGES is the directory that has psutil.

What it promises is a little less. When a server is to end, or has ended, or the hub was killed, all that it started
ends: its descendants, all processes of its session, and all that have the connection's mark in their environment. What
leaves the session, loses its parent *and* hides its environment stays; so do programs of the system whose environment
macOS shows to nobody. If the reaper itself is killed, the hub ends its server by the mark; if the hub is killed with
it, the server ends when it reads the end of its stdin.
"""

# As in `reaper.py`; and what is run by path, without site packages, says where its imports are.
# ruff: noqa: PTH100, PTH120, SIM105, E402

import _socket
import os
import select
import signal
import sys
import time
from types import FrameType

assert sys.platform != "win32"  # it has neither forks nor signals

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [PACKAGE, sys.argv[2]]

import psutil

from hubbub_shared.platform import processes, reaper

MARK = f"{processes.MARK}=".encode()

LONGEST_PAUSE_S = 0.2
"""Between two looks at all processes of the machine while some of them are to end."""


class PortableReaper(reaper.Reaper):
    """Starts a server, reports on it, and ends what belongs to it."""

    def __init__(self, control: int) -> None:
        """`control` is the socket to the hub: the reaper reports there, and ends the server when it is closed."""
        super().__init__(control)
        self._process_mark = ""
        """What all processes of the server have in their environment; empty until `run`."""
        self._server_has_ended = False

    @staticmethod
    def ignore_signals() -> None:
        """Ignore what may be sent to the whole service, and have the system collect what this process forks."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)

    def run(self, descriptors: list[int]) -> None:
        """Read the connection's mark from what is to be started, then run as every `Reaper`."""
        spec = os.pread(descriptors[-1], os.fstat(descriptors[-1]).st_size, 0)
        marks = [each for each in spec.split(b"\0") if each.startswith(MARK)]
        self._process_mark = os.fsdecode(marks[-1].removeprefix(MARK)) if marks else ""
        super().run(descriptors)

    def inherit_orphans(self) -> None:
        """Have the end of a child wake this process through a pipe; `_find_family` finds other descendants."""
        self._wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def die_with_reaper(self) -> None:
        """Do nothing: such systems cannot end a server with its reaper."""

    def reset_signals(self) -> None:
        """Give this process the ordinary reaction to each signal, and block none."""
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except OSError:
                    pass  # the C library keeps it for itself
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def wait_for_end(self) -> None:
        """Wait until no child is left or the control socket was closed; the end of a child wakes it by a pipe."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        self.reap()
        while not self._server_has_ended:
            ready = [descriptor for descriptor, _ in poll.poll(reaper.ORPHAN_CHECK_MS)]
            if self.control in ready:
                return
            if self._wake_reader in ready:
                os.read(self._wake_reader, 4096)
            self.reap()

    def reap(self) -> bool:
        """Collect the status of every child that ended; return whether any is left. The only child is the server."""
        is_child_left = super().reap()
        self._server_has_ended = not is_child_left
        return is_child_left

    def sweep(self) -> None:
        """End all that belongs to the server: SIGTERM, SIGKILL after TERM_GRACE_S, until none is left."""
        signalled: set[psutil.Process] = set()
        kill_at = time.monotonic() + reaper.TERM_GRACE_S
        pause_s = 0.005
        while self.reap() | bool(family := self._find_family()):  # `|`: the family is looked for in any case
            is_overdue = time.monotonic() >= kill_at
            for process in family:
                if is_overdue or process not in signalled:
                    signalled.add(process)
                    try:
                        process.send_signal(signal.SIGKILL if is_overdue else signal.SIGTERM)
                    except (psutil.Error, OSError):
                        pass  # gone already, or of another user
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _find_family(self) -> list[psutil.Process]:
        """Return all running processes of `_belongs_to_server`, the server included, and all of their descendants."""
        if not self.server:
            return []
        family: dict[int, psutil.Process] = {}
        others: list[tuple[psutil.Process, int]] = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    continue
                if self._belongs_to_server(process):
                    family[process.pid] = process
                else:
                    others.append((process, process.ppid()))
            except (psutil.Error, OSError):
                continue
        while children := [process for process, parent in others if parent in family and process.pid not in family]:
            family |= {process.pid: process for process in children}
        return list(family.values())

    def _belongs_to_server(self, process: psutil.Process) -> bool:
        """Return whether a process is of the server's session, or has the connection's mark in its environment.

        False also if the system does not show the environment.
        """
        # Once the server's end has been collected, its number may be another process's.
        if (process.pid == self.server and not self._server_has_ended) or os.getsid(process.pid) == self.server:
            return True
        try:
            return bool(self._process_mark) and process.environ().get(processes.MARK) == self._process_mark
        except psutil.AccessDenied:
            return False


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing: its arrival is in the wakeup pipe."""


def main() -> None:
    """Run from the command line: portable_reaper.py SOCKET PACKAGES."""
    reaper.launch(_socket.socket(fileno=int(sys.argv[1])), PortableReaper)


if __name__ == "__main__":
    main()
