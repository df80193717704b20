"""Starts the agent's process, with pipes and in a session of its own; ends it and all that it started."""

import asyncio
import os
import shlex
import signal
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from hubbub_acp.faults import AgentFault
from hubbub_acp.log import log
from hubbub_acp.plain_text import shorten, strip_escapes
from hubbub_local.stdio import LineTooLong, read_lines
from hubbub_shared.platform import processes

EXIT_GRACE_S: Final = 2.0
"""Seconds for the agent to end by itself, once its standard input is closed; and once more after SIGTERM."""

STDERR_TAIL_S: Final = 0.5
"""Seconds to read the rest of stderr, after the process has ended."""

STDERR_LINE_BYTES: Final = 64 * 1024
TAIL_LINES: Final = 20
TAIL_CHARACTERS: Final = 2000


ProcessStarter = Callable[[Sequence[str]], Awaitable["AgentProcess"]]


class ProcessMark:
    """A mark in the environment of processes, by which they and all that they start can be found; `variables` sets it.

    If a hub has started this program, the mark is the hub's, and the hub kills all that have it. Else it is a new one.
    """

    def __init__(self) -> None:
        inherited = os.environ.get(processes.MARK)
        mark = inherited or f"{os.getpid()}.{uuid.uuid4().hex}"
        self.variables = {processes.MARK: mark}
        self._own_mark = None if inherited else mark

    async def kill(self) -> None:
        """Kill all processes that have the mark, unless it is the hub's: the hub kills those itself."""
        if self._own_mark is not None:
            await asyncio.to_thread(processes.kill_marked, self._own_mark)


class AgentProcess:
    """A running agent. `stdin` and `stdout` are this program's ends of the agent's pipes: `stdin` is written to."""

    def __init__(
        self,
        command: Sequence[str],
        process: asyncio.subprocess.Process,
        ends: tuple[int, int, int],
        mark: "ProcessMark",
    ) -> None:
        """Begin to read stderr. `ends` are this program's ends of the agent's stdin, stdout and stderr."""
        self.command = command
        self.stdin, self.stdout, self._stderr = ends
        self._process = process
        self._stderr_tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process_mark = mark
        self._draining = asyncio.create_task(self._drain_stderr())

    @classmethod
    async def start(cls, command: Sequence[str]) -> "AgentProcess":
        """Start the agent. Raises AgentFault: AGENT_NOT_FOUND, AGENT_NOT_STARTED."""
        mark = ProcessMark()
        pipes = [os.pipe() for _ in range(3)]
        (stdin, own_stdin), (own_stdout, stdout), (own_stderr, stderr) = pipes
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=os.environ | mark.variables,
            )
        except BaseException as exc:
            for end in (own_stdin, own_stdout, own_stderr):
                os.close(end)
            if isinstance(exc, OSError | ValueError):
                raise _make_start_fault(command, exc) from None
            raise
        finally:
            for end in (stdin, stdout, stderr):
                os.close(end)
        return cls(command, process, (own_stdin, own_stdout, own_stderr), mark)

    async def describe_end(self) -> str:
        """Return, for people, how the agent ended and what it wrote to stderr last; wait a moment for both."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_GRACE_S):
                await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(STDERR_TAIL_S):
                await asyncio.shield(self._draining)
        code = self._process.returncode
        if code is None:
            end_text = "closed its output"
        elif code < 0:
            end_text = f"was ended by signal {-code}"
        else:
            end_text = f"ended with exit code {code}"
        stderr_tail = self.read_stderr_tail()
        return f"{end_text}; it wrote: {stderr_tail}" if stderr_tail else f"{end_text}, and wrote nothing to stderr"

    def read_stderr_tail(self) -> str:
        """Return the end of what the agent wrote to stderr, TAIL_CHARACTERS at most."""
        return "\n".join(self._stderr_tail)[-TAIL_CHARACTERS:]

    async def stop(self) -> None:
        """End the agent and all that it started, within seconds: close its pipe, send SIGTERM, then kill the rest."""
        os.close(self.stdin)
        if not await self._wait_for_exit():
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await self._wait_for_exit()
        with suppress(ProcessLookupError, PermissionError):
            processes.kill_group(self._process.pid)
        await self._wait_for_exit()
        await self._process_mark.kill()
        self._draining.cancel()
        await asyncio.wait({self._draining})
        for end in (self.stdout, self._stderr):
            os.close(end)

    async def _wait_for_exit(self) -> bool:
        """Wait at most EXIT_GRACE_S until the process has ended; return whether it has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_GRACE_S):
                await self._process.wait()
                return True
        return False

    async def _drain_stderr(self) -> None:
        """Log each line that the agent writes to stderr, and keep the last TAIL_LINES; drop lines that are too long."""
        async with aclosing(read_lines(self._stderr, STDERR_LINE_BYTES)) as lines:
            async for line in lines:
                if isinstance(line, LineTooLong):
                    continue
                text = strip_escapes(line.decode(errors="replace")).rstrip()
                if text:
                    self._stderr_tail.append(shorten(text, TAIL_CHARACTERS))
                    log(text)


def _make_start_fault(command: Sequence[str], exc: OSError | ValueError) -> AgentFault:
    """Return the fault for a command that cannot be started."""
    command_line = shlex.join(command)
    if isinstance(exc, FileNotFoundError):
        return AgentFault(
            "AGENT_NOT_FOUND",
            f"{command[0]} is not installed, or not on this server's PATH: install it, or name its file",
            command=command_line,
        )
    problem = exc.strerror if isinstance(exc, OSError) else str(exc)
    return AgentFault("AGENT_NOT_STARTED", f"{command_line} cannot be started: {problem}", command=command_line)
