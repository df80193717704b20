"""A stdio server's process and pipes: started by a reaper, and ended with all its descendants."""

import asyncio
import errno
import os
import signal
import socket
import uuid
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from typing import Any, Final

import anyio
import anyio.to_thread
import structlog

from hubbub_shared.platform import files, processes
from hubbubd.config import ServerConfig
from hubbubd.errors import UpstreamError
from hubbubd.upstream.faults import error
from hubbubd.upstream.stdio.launcher import Launcher

INHERITED = frozenset({"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
"""What a server inherits of the hub's environment, besides `LC_*`; everything else is in its configuration."""

EXIT_GRACE_S = 2.0  # for the server to end by itself once its stdin is closed
SWEEP_LIMIT_S = 7.0  # the reaper's own 2 s between SIGTERM and SIGKILL, and time for a busy machine

START_LIMIT_S: Final = 1.0
"""Seconds for which a slow start may keep others from starting."""

# Starting a process is CPU work; many at once would starve the servers that are running.
_start_limiter = anyio.CapacityLimiter(2)

_launcher = Launcher()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: with a code, by a signal, or unknown, as its reaper was killed before."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {self.signal}"
        return "its reaper was killed" if self.code is None else f"exit code {self.code}"


class ServerProcess:
    """A running server. Its pipes are non-blocking; the owner of the process reads and writes them."""

    def __init__(self, process_mark: str) -> None:
        """`process_mark` is in the environment of the server, and so of all that it starts: they are found by it."""
        self.pid = 0
        self.exit = ExitStatus()
        self._process_mark = process_mark
        self._reaper_pid = 0  # its pid, once it has reported that
        self._start_known = anyio.Event()  # started, or known not to
        self._exited = anyio.Event()
        self._reaper_ended = anyio.Event()  # the reaper has closed its end of the control socket, so it has ended
        self._failure: tuple[str, int] | None = None  # stage and errno of a start that failed
        self._swept = False  # the reaper has reported that all that the server started has ended
        self._killing: asyncio.Future[None] | None = None  # of what a killed reaper has left, in a thread
        self._reports = b""
        self._loop = asyncio.get_running_loop()
        self._resources = ExitStack()

    @classmethod
    async def start(cls, config: ServerConfig) -> "ServerProcess":
        """Start the server and return once its program runs. Raises UpstreamError if that cannot be started."""
        process = cls(f"{os.getpid()}.{uuid.uuid4().hex}")
        async with AsyncExitStack() as cleanup:
            try:
                cleanup.callback(process._resources.close)
                async with _start_limiter:
                    await process._spawn(config)
                    cleanup.push_async_callback(process.stop)
                    with anyio.move_on_after(START_LIMIT_S):
                        await process._start_known.wait()
            except OSError as exc:
                raise _start_error(config, "START_FAILED", str(exc)) from None
            except ValueError as exc:  # a command or a variable with a NUL
                raise _start_error(config, "START_FAILED", str(exc), retryable=False) from None
            await process._start_known.wait()  # a slow start goes on here, where others can start beside it
            if process._failure:
                raise _errno_error(config, *process._failure)
            if not process.pid:
                raise _start_error(config, "START_FAILED", f"its reaper ended early: {_launcher.read_stderr_tail()}")
            cleanup.pop_all()
        return process

    async def _spawn(self, config: ServerConfig) -> None:
        """Start the server under a reaper of its own, which ends it with the hub, and watch its reports."""
        with ExitStack() as reaper_ends:
            stdin, self.stdin = _open_pipe(reaper_ends, self._resources, server_writes=False)
            stdout, self.stdout = _open_pipe(reaper_ends, self._resources, server_writes=True)
            stderr, self.stderr = _open_pipe(reaper_ends, self._resources, server_writes=True)
            hub_control, reaper_control = socket.socketpair()
            self._control = self._resources.enter_context(hub_control)
            reaper_ends.enter_context(reaper_control)
            spec = _write_spec(config, self._process_mark)
            reaper_ends.callback(os.close, spec)
            await _launcher.start([stdin, stdout, stderr, reaper_control.fileno(), spec])
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._on_report)

    def _on_report(self) -> None:
        """Read the reaper's reports (see `reaper.py`); the end of its socket means that the reaper is gone."""
        try:
            chunk = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        *reports, self._reports = (self._reports + chunk).split(b"\n")
        for report in reports:
            word, *values = report.decode().split()
            if word == "reaper":
                self._reaper_pid = int(values[0])
            elif word == "started":
                self.pid = int(values[0])
                self._start_known.set()
            elif word == "failed":
                self._failure = values[0], int(values[1])
            elif word == "exited":
                code = os.waitstatus_to_exitcode(int(values[0]))
                self.exit = ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
                self._exited.set()
            else:  # "swept"
                self._swept = True
        if not chunk:
            self._loop.remove_reader(self._control.fileno())
            for event in (self._start_known, self._exited, self._reaper_ended):
                event.set()
            if not self._swept:  # the reaper was killed, and not every system ends the server with it
                self._killing = self._loop.run_in_executor(None, self._kill_marked)

    async def wait_exit(self) -> ExitStatus:
        """Wait until the server process has ended, and return how."""
        await self._exited.wait()
        return self.exit

    async def stop(self) -> None:
        """End the process and all its descendants; bounded, and not cancellable. Drain stdout and stderr meanwhile.

        The pipes stay open until `release`, as their readers may have more to read.
        """
        with anyio.CancelScope(shield=True):
            self.stdin.close()
            with anyio.move_on_after(EXIT_GRACE_S):
                await self._exited.wait()
            if not self._reaper_ended.is_set():
                self._control.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(SWEEP_LIMIT_S):
                await self._reaper_ended.wait()
            if not self._reaper_ended.is_set():
                await self._kill_reaper()
            if self._killing is not None:
                await self._killing  # a second look would not see what this one has killed and is still ending
            if not self._swept:
                await anyio.to_thread.run_sync(self._kill_marked)
            await _launcher.note_server_end()

    async def _kill_reaper(self) -> None:
        """Kill a reaper that does not react; one that never reported its pid goes with its launcher."""
        log.warning("reaper stuck, killed", pid=self._reaper_pid, server=self.pid)
        if self._reaper_pid:
            with suppress(ProcessLookupError):
                os.kill(self._reaper_pid, signal.SIGKILL)  # the control socket is open, so the pid is still its own
        else:
            await _launcher.replace()
        with anyio.move_on_after(SWEEP_LIMIT_S):
            await self._reaper_ended.wait()
        self._loop.remove_reader(self._control.fileno())

    def _kill_marked(self) -> None:
        """Kill all processes that have the mark of this server, and wait until they have ended."""
        processes.kill_marked(self._process_mark)

    def release(self) -> None:
        """Close the pipes; nothing may read them any more."""
        self._resources.close()


def _inherited_variables() -> dict[str, str]:
    """Return the variables of the hub's environment that every server gets."""
    return {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}


def _open_pipe(reaper_ends: ExitStack, hub_ends: ExitStack, *, server_writes: bool) -> tuple[int, FileIO]:
    """Make a pipe; return the server's end as a descriptor, and the hub's end, which is non-blocking.

    With `server_writes` the server has the writing end. Each stack closes the end that it is named for.
    """
    read, write = os.pipe()
    hub_end, reaper_end = (read, write) if server_writes else (write, read)
    reaper_ends.callback(os.close, reaper_end)
    os.set_blocking(hub_end, False)
    return reaper_end, hub_ends.enter_context(FileIO(hub_end, "rb" if server_writes else "wb"))


def _write_spec(config: ServerConfig, process_mark: str) -> int:
    """Write what the reaper is to start to a file without a name; return its descriptor. Raises ValueError.

    The file has the working directory, the number of arguments, the arguments, and the variables, with NULs in between.
    It is a file since other users can read the arguments of a process.
    """
    configured = {name: value.get_secret_value() for name, value in config.env.items()}
    environ = {**_inherited_variables(), **configured, processes.MARK: process_mark}
    for name in environ:
        if not name or "=" in name:
            raise ValueError(f"environment variable {name!r} cannot be set")
    argv = [config.command or "", *config.args]
    parts = [config.cwd or "", str(len(argv)), *argv, *(f"{name}={value}" for name, value in environ.items())]
    if any("\0" in part for part in parts):
        raise ValueError("a NUL in the command, its directory or a variable")
    descriptor = files.make_anonymous_file("spec")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(b"\0".join(map(os.fsencode, parts)))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _errno_error(config: ServerConfig, stage: str, errno_code: int) -> UpstreamError:
    """Return the error of a failed start; `stage` and `errno_code` are from the reaper's report."""
    if stage == "cwd":
        return _start_error(config, "WORKING_DIRECTORY_INVALID", os.strerror(errno_code), cwd=config.cwd)
    if errno_code in (errno.ENOENT, errno.ENOTDIR):
        return _start_error(config, "COMMAND_NOT_FOUND", os.strerror(errno_code))
    if errno_code in (errno.EACCES, errno.ENOEXEC, errno.EISDIR):
        return _start_error(config, "COMMAND_NOT_EXECUTABLE", os.strerror(errno_code))
    return _start_error(config, "START_FAILED", os.strerror(errno_code))


def _start_error(config: ServerConfig, code: str, problem: str, **details: Any) -> UpstreamError:
    """Return the error of a server that could not be started."""
    where = config.cwd if "cwd" in details else config.command
    return error(code, f"{where!r}: {problem}", server=config.name, command=config.command, error=problem, **details)
