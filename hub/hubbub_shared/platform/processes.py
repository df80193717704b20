"""Processes of this machine: held and ended, found by what they carry, hold or listen at; and what starts servers.

Linux shows all that in proc(5), and holds a process by a descriptor (pidfd_open(2)), so that a signal reaches nobody
else who gets its number. Elsewhere psutil looks it up, which tells two processes of one number by their start.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REAPER = Path(__file__).with_name("reaper.py" if sys.platform == "linux" else "portable_reaper.py")
"""What starts servers and ends them: see there."""

PROCESSES: Final = Path("/proc")

ENDING_SIGNALS: Final[tuple[signal.Signals, ...]] = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""What asks a program to end: Ctrl-C, the system, and a terminal that goes."""

MARK: Final = "HUBBUB_CONNECTION"
"""The variable of the environment by which all that a server starts is known: `PID.ID`, the hub's process first."""

KILL_ATTEMPTS, KILL_PAUSE_S = 500, 0.01
"""How often `kill_marked` looks for processes to kill, and the pause between two looks: about five seconds in all."""


def make_reaper_command(descriptor: int) -> list[str]:
    """Return the command of the launcher of servers, which receives the servers to start at the socket `descriptor`."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(REAPER), str(descriptor)]
    if sys.platform == "linux":
        return command
    import psutil

    return [*command, str(Path(psutil.__file__).parents[1])]


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """A process to end. On Linux it stands for this process and for no later one with its number."""

    pid: int
    handle: int | None = None

    def terminate(self) -> None:
        """Send SIGTERM to the process; do nothing if it has ended. Raises PermissionError."""
        with suppress(ProcessLookupError):
            if sys.platform == "linux" and self.handle is not None:
                signal.pidfd_send_signal(self.handle, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)

    def wait_for_end(self, wait_s: float) -> bool:
        """Wait until the process has ended, at most `wait_s`; return whether it has.

        Without a handle the wait always takes `wait_s`.
        """
        if self.handle is not None:
            import select

            return bool(select.select([self.handle], [], [], wait_s)[0])
        time.sleep(wait_s)
        return not is_running(self.pid)


@contextmanager
def hold_process(pid: int) -> Generator[HeldProcess | None]:
    """Yield a process to end, and on Linux hold it during the block; None if it does not run.

    While a process is held, no signal can reach a later process with the same number.
    """
    if sys.platform != "linux":
        yield HeldProcess(pid) if is_running(pid) else None
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield HeldProcess(pid, handle)
    finally:
        os.close(handle)


def user_id() -> int:
    """Return the number of this process's user; 0 on Windows, which has none."""
    return 0 if sys.platform == "win32" else os.getuid()


def kill_group(pid: int) -> None:
    """Kill a process that has a session of its own, and all of its group; on Windows itself alone.

    Raises ProcessLookupError.
    """
    if sys.platform == "win32":
        os.kill(pid, signal.SIGTERM)  # which is TerminateProcess there
    else:
        os.killpg(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether there is a process with this id, also another user's, or an ended one nobody has waited for."""
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        import psutil

        return psutil.pid_exists(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def kill_marked(mark: str) -> None:
    """Kill every process that has this mark in its environment (the variable MARK).

    Return once all of them have ended, or after KILL_ATTEMPTS looks. Processes killed in an earlier look are checked as
    well: a process that is ending has no environment any more, and so no mark.
    """
    entry = f"{MARK}={mark}".encode()
    killed: set[int] = set()
    for _ in range(KILL_ATTEMPTS):
        with suppress(OSError):  # this process has no descriptor left, for now
            marked = {pid for pid in _list_pids() if _kill_if_marked(pid, entry)}
            killed |= marked
            if not marked and not any(map(_is_alive, killed)):
                return
        time.sleep(KILL_PAUSE_S)


def find_orphaned_servers() -> Iterator[tuple[int, int]]:
    """Yield processes of servers whose hub does not run any more, as pairs: the process's id, and the hub's id.

    MARK in the environment of a process names its hub.
    """
    prefix = f"{MARK}=".encode()
    for pid in _list_pids():
        with suppress(OSError, ValueError):
            for entry in _read_environment(pid):
                hub_pid = int(entry.removeprefix(prefix).partition(b".")[0]) if entry.startswith(prefix) else 0
                if hub_pid and not is_running(hub_pid):
                    yield pid, hub_pid


def find_listener(port: int) -> str | None:
    """Return which of this user's processes listens at a TCP port, as `NAME, process N,`; None if not known."""
    if sys.platform == "linux":
        sockets = {f"socket:[{inode}]" for inode in _list_listening_inodes(port)}
        for process in PROCESSES.glob("[0-9]*") if sockets else ():
            with suppress(OSError):  # it has ended, or is another user's
                if any(str(each.readlink()) in sockets for each in (process / "fd").iterdir()):
                    return f"{(process / 'comm').read_text(errors='replace').strip()}, process {process.name},"
        return None
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                    return f"{process.name()}, process {process.pid},"
    return None


def find_open_files(name: str) -> Iterator[tuple[int, Path]]:
    """Yield this user's processes that have a file of this name open, with its path."""
    if sys.platform == "linux":
        for process in PROCESSES.glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                for each in (process / "fd").iterdir():
                    if (path := each.readlink()).name == name:
                        yield int(process.name), path
        return
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            for file in process.open_files():
                if (path := Path(file.path)).name == name:
                    yield process.pid, path


if sys.platform == "linux":

    def _list_pids() -> list[int]:
        """Return the ids of all processes of this machine."""
        return [int(path.name) for path in PROCESSES.iterdir() if path.name.isdecimal()]

    def _read_environment(pid: int) -> list[bytes]:
        """Return the entries of a process's environment; none if it ended or is another user's. Raises OSError."""
        return _read_proc_file(pid, "environ").split(b"\0")

    def _is_alive(pid: int) -> bool:
        """Return whether a process exists and is neither dead nor a zombie."""
        state = _read_proc_file(pid, "stat").rpartition(b") ")[2][:1]
        return state not in (b"", b"Z", b"X")

    def _kill_if_marked(pid: int, entry: bytes) -> bool:
        """Kill a process that has this entry in its environment; return whether it has. Raises OSError."""
        try:
            handle = os.pidfd_open(pid)  # before the check: a later process with this pid must not be killed
        except ProcessLookupError:
            return False
        try:
            is_marked = entry in _read_environment(pid)
            if is_marked:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            return is_marked
        finally:
            os.close(handle)

    def _read_proc_file(pid: int, name: str) -> bytes:
        """Return what the system has about a process, nothing if it ended. Raises OSError: too many open files."""
        try:
            return (PROCESSES / str(pid) / name).read_bytes()
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return b""

    def _list_listening_inodes(port: int) -> Iterator[str]:
        """Yield the inodes of the sockets that listen at a port: proc(5), /proc/net/tcp; 0A is LISTEN."""
        for table in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in (PROCESSES / "net" / table).read_text().splitlines()[1:]:
                    cells = line.split()
                    if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                        yield cells[9]

else:

    def _list_pids() -> list[int]:
        """Return the ids of all processes of this machine."""
        import psutil

        return psutil.pids()

    def _read_environment(pid: int) -> list[bytes]:
        """Return the entries of a process's environment; none if it ended, or the system does not show them."""
        import psutil

        try:
            environment = psutil.Process(pid).environ()
        except psutil.Error:
            return []
        return [os.fsencode(f"{name}={value}") for name, value in environment.items()]

    def _is_alive(pid: int) -> bool:
        """Return whether a process exists and is neither dead nor a zombie."""
        import psutil

        try:
            return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.Error:
            return False

    def _kill_if_marked(pid: int, entry: bytes) -> bool:
        """Kill a process that has this entry in its environment; return whether it has."""
        import psutil

        with suppress(psutil.Error):
            handle = psutil.Process(pid)  # checks the start time before a kill: a later process with this pid stays
            if entry in _read_environment(pid):
                handle.kill()
                return True
        return False
