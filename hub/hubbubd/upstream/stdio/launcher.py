"""The hub's side of the launcher, the one process that all stdio servers are started from.

It forks a reaper for each server: a process that starts the server, and ends all that the server started. The program
of both is `hubbub_shared/platform/reaper.py`.
"""

import os
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import anyio
import structlog
from anyio import to_thread

from hubbub_shared.platform import files, processes

END_LIMIT_S: Final = 7.0
"""Seconds for which the launcher may take to end; much, for a busy machine."""

STDERR_TAIL_BYTES: Final = 2000
"""How much is shown of what the launcher or a reaper wrote when it failed."""

log = structlog.get_logger(__name__)


class Launcher:
    """Starts the launcher's process with the first server, and ends it with the last one."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._servers = 0
        self._process: _LauncherProcess | None = None

    async def start(self, descriptors: Sequence[int]) -> None:
        """Have a reaper forked that takes these descriptors over; call `note_server_end` once the server has ended.

        A launcher that is gone is replaced. Raises OSError; then nothing was started, and no such call may follow.
        """
        async with self._lock:
            try:
                if self._process is not None and not self._process.request_fork(descriptors):
                    log.warning(
                        "launcher gone, replaced", servers=self._servers, words=self._process.read_stderr_tail()
                    )
                    await self._end_process()
                if self._process is None:
                    self._process = await to_thread.run_sync(_LauncherProcess, _read_umask())
                    if not self._process.request_fork(descriptors):
                        raise OSError(f"the launcher ended early: {self._process.read_stderr_tail()}")
                self._servers += 1
            finally:
                await self._end_unused()

    async def note_server_end(self) -> None:
        """Note that a server and its reaper have ended; end the process of the launcher if no server is left.

        Not cancellable.
        """
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._servers -= 1
                await self._end_unused()

    async def replace(self) -> None:
        """End a launcher that does not react, so that the next start has another one. Its servers run on."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if self._process is not None:
                    self._process.kill()
                    await self._end_process()

    def read_stderr_tail(self) -> str:
        """Return what the launcher or a reaper wrote when it failed."""
        return self._process.read_stderr_tail() if self._process is not None else ""

    async def _end_unused(self) -> None:
        """End the process if no server needs it."""
        if not self._servers:
            await self._end_process()

    async def _end_process(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            process, self._process = self._process, None
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(process.end)


class _LauncherProcess:
    """A launcher's process. Making one and `end` block, for some milliseconds."""

    def __init__(self, umask: int) -> None:
        with ExitStack() as resources:
            self._stderr = files.make_anonymous_file("stderr")
            resources.callback(os.close, self._stderr)
            hub_socket, launcher_socket = socket.socketpair()
            self._socket = resources.enter_context(hub_socket)
            self._socket.setblocking(False)
            with launcher_socket:
                # Isolated, and with an empty environment: no variable of the hub's affects it.
                self._process = subprocess.Popen(  # noqa: S603 - our own script
                    processes.make_reaper_command(launcher_socket.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    pass_fds=(launcher_socket.fileno(),),
                    env={},
                    start_new_session=True,
                    umask=umask,
                )
            self._resources = resources.pop_all()

    def request_fork(self, descriptors: Sequence[int]) -> bool:
        """Request a reaper; return False when the launcher is gone. Raises OSError when it reads too slowly."""
        try:
            socket.send_fds(self._socket, [b"\0"], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def read_stderr_tail(self) -> str:
        """Return the end of what the launcher or a reaper wrote to stderr."""
        start = max(os.fstat(self._stderr).st_size - STDERR_TAIL_BYTES, 0)
        return os.pread(self._stderr, STDERR_TAIL_BYTES, start).decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill the process; `end` is still to be called."""
        self._process.kill()

    def end(self) -> None:
        """End the process, which waits for those of its reapers that are still ending, and close its files."""
        self._socket.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            log.warning("launcher stuck, killed", pid=self._process.pid)
            self._process.kill()
            self._process.wait()
        self._resources.close()


def _read_umask() -> int:
    """Return the hub's umask. To be called in the event loop's thread: it changes the umask for a moment.

    Only that thread does so, here and to bind a Unix socket.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
