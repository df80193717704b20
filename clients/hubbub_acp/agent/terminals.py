"""Terminals of the agent: commands that it has this program run, with the end of what they write.

A command is a process of this user like the agent itself: `--fs` bounds the folder that it begins in, and no more.
"""

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from hubbub_acp.agent.agent_process import ProcessMark
from hubbub_acp.agent.workspace import Workspace
from hubbub_acp.faults import AgentFault
from hubbub_acp.plain_text import make_line
from hubbub_acp.values import as_list, as_object
from hubbub_shared.platform import processes

OUTPUT_BYTES: Final = 256 * 1024
"""The most bytes of output that are kept, if the agent asks for no other number; the end is kept."""

MAX_OUTPUT_BYTES: Final = 1024 * 1024
MAX_TERMINALS: Final = 16
"""The most terminals of a session."""

MAX_ENTRIES: Final = 1000
"""The most arguments of a command, and the most variables of its environment."""

MAX_COMMAND_CHARACTERS: Final = 128 * 1024
READ_BYTES: Final = 64 * 1024
END_LIMIT_S: Final = 2.0
"""Seconds to read the rest of the output, after the command has ended."""


@dataclass(eq=False)
class Terminal:
    """A command under way, or ended and not yet released.

    `limit_bytes` is the most bytes of output that are kept; `is_cut` says that the beginning is no longer there.
    """

    session_id: str
    process: asyncio.subprocess.Process
    limit_bytes: int
    output: bytearray = field(default_factory=bytearray)
    is_cut: bool = False
    reading: "asyncio.Task[None] | None" = None

    async def collect_output(self) -> None:
        """Keep the end of the output, until neither the command nor what it has started can write any more."""
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(READ_BYTES):
            self.output += chunk
            if len(self.output) > self.limit_bytes:
                self.is_cut = True
                del self.output[: len(self.output) - self.limit_bytes]

    def to_wire(self) -> dict[str, Any]:
        """Return the output as ACP has it, and the exit status once the command has ended.

        A character that was cut at the beginning of the output is left out.
        """
        # In UTF-8 a character begins with a byte that is not 10xxxxxx, and has four bytes at most.
        start = next((at for at, byte in enumerate(self.output[:4]) if byte & 0xC0 != 0x80), 0) if self.is_cut else 0
        result: dict[str, Any] = {"output": self.output[start:].decode(errors="replace"), "truncated": self.is_cut}
        if self.process.returncode is not None:
            result["exitStatus"] = self.exit_status()
        return result

    def exit_status(self) -> dict[str, Any]:
        """Return the exit code, or the number of the signal that ended the command; both are None while it runs."""
        code = self.process.returncode
        is_signal = code is not None and code < 0
        return {
            "exitCode": None if is_signal else code,
            "signal": str(-code) if code is not None and is_signal else None,
        }

    def kill(self) -> None:
        """Kill the command and what it started in its group."""
        with suppress(ProcessLookupError, PermissionError):
            processes.kill_group(self.process.pid)


class Terminals:
    """All terminals of an agent, by id."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._terminals: dict[str, Terminal] = {}
        self._starting: Counter[str] = Counter()  # by session id: how many commands are being started
        self._process_mark = ProcessMark()  # in the environment of all commands, to find what they leave running

    async def create(self, params: Mapping[str, Any], cwd: str) -> dict[str, Any]:
        """Start a command in the folder that the request names, else in `cwd`, and return its terminal's id.

        The folder must be below the root. Raises AgentFault.
        """
        session_id = str(params.get("sessionId"))
        open_count = sum(each.session_id == session_id for each in self._terminals.values())
        if open_count + self._starting[session_id] >= MAX_TERMINALS:
            raise AgentFault("TOO_MANY_TERMINALS", f"{MAX_TERMINALS} terminals are open: release one first")
        self._starting[session_id] += 1
        try:
            terminal = await self._start(session_id, params, cwd)
        finally:
            self._starting[session_id] -= 1
            self._starting = +self._starting  # without the sessions that have none
        terminal_id = secrets.token_urlsafe(12)
        self._terminals[terminal_id] = terminal
        return {"terminalId": terminal_id}

    async def _start(self, session_id: str, params: Mapping[str, Any], cwd: str) -> Terminal:
        """Start the command of a terminal, as the agent's request says. Raises AgentFault."""
        parts = [params.get("command"), *as_list(params.get("args"))[:MAX_ENTRIES]]
        command = [part for part in parts if isinstance(part, str)]
        if len(command) != len(parts) or not command[0] or sum(map(len, command)) > MAX_COMMAND_CHARACTERS:
            raise AgentFault("COMMAND_INVALID", "the command and its arguments are texts, and not too long ones")
        requested_cwd = params.get("cwd")
        folder = await asyncio.to_thread(
            self._workspace.resolve, requested_cwd if isinstance(requested_cwd, str) else cwd
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=folder,
                env=os.environ | _read_variables(params.get("env")) | self._process_mark.variables,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            problem = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise AgentFault("COMMAND_INVALID", f"{make_line(command[0], 200)!r} cannot be run: {problem}") from None
        requested_limit = params.get("outputByteLimit")
        limit_bytes = (
            min(requested_limit, MAX_OUTPUT_BYTES)
            if isinstance(requested_limit, int) and requested_limit >= 0
            else OUTPUT_BYTES
        )
        terminal = Terminal(session_id, process, limit_bytes)
        terminal.reading = asyncio.create_task(terminal.collect_output())
        return terminal

    def read_output(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output so far. Raises AgentFault: NOT_FOUND."""
        return self._find(params).to_wire()

    async def wait(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the end of the command and of its output; return its exit status. Raises AgentFault: NOT_FOUND."""
        terminal = self._find(params)
        await terminal.process.wait()
        if terminal.reading is not None:  # what it left running may hold its output open
            await asyncio.wait({terminal.reading}, timeout=END_LIMIT_S)
        return terminal.exit_status()

    def kill(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """End the command; its output can still be read. Raises AgentFault: NOT_FOUND."""
        self._find(params).kill()
        return {}

    def release(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """End the command, and forget the terminal. Raises AgentFault: NOT_FOUND."""
        self._end_and_remove(self._find(params))
        return {}

    def release_all(self, session_id: str | None = None) -> None:
        """End the commands of a session, or of all sessions (None), and forget their terminals."""
        for terminal in list(self._terminals.values()):
            if session_id in (None, terminal.session_id):
                self._end_and_remove(terminal)

    async def close(self) -> None:
        """End all commands, and what they left running in sessions of their own. Bounded."""
        self.release_all()
        await self._process_mark.kill()

    def _end_and_remove(self, terminal: Terminal) -> None:
        """Kill the command of a terminal, and remove the terminal."""
        terminal.kill()
        if terminal.reading is not None:
            terminal.reading.cancel()
        self._terminals = {key: each for key, each in self._terminals.items() if each is not terminal}

    def _find(self, params: Mapping[str, Any]) -> Terminal:
        """Return the terminal that a request names. Raises AgentFault: NOT_FOUND."""
        terminal = self._terminals.get(str(params.get("terminalId")))
        if terminal is None or terminal.session_id != params.get("sessionId"):
            raise AgentFault("NOT_FOUND", f"the session has no terminal {make_line(params.get('terminalId'), 100)!r}")
        return terminal


def _read_variables(raw_entries: object) -> dict[str, str]:
    """Return the environment variables that a request of the agent sets."""
    entries = [as_object(each) for each in as_list(raw_entries)[:MAX_ENTRIES]]
    found = {each.get("name"): each.get("value") for each in entries}
    return {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, str)}
