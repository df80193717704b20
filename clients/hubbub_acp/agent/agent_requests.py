"""Serves the requests of the agent: permissions, and with `--fs` files and terminals."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hubbub_acp.agent.terminals import Terminals
from hubbub_acp.agent.workspace import Workspace
from hubbub_acp.faults import AgentFault


class PermissionDesk(Protocol):
    """The part of AgentSessions that the agent's requests need."""

    async def ask_permission(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask people for a permission, and return the outcome of the request in the form of ACP."""
        ...

    def get_active_folder(self, session_id: str) -> str:
        """Return the folder of a session that has a turn under way. Raises AgentFault for another session."""
        ...

    def add_written_file(self, session_id: str, path: str) -> None:
        """Add a file that the agent has written to the changed files of its session."""
        ...


class AgentRequests:
    """The requests that an agent may send. Files and terminals are for sessions with a turn under way."""

    def __init__(self, desk: PermissionDesk, root: Path | None) -> None:
        self._desk = desk
        self._workspace = None if root is None else Workspace(root)
        self._terminals = None if self._workspace is None else Terminals(self._workspace)

    async def handle(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Serve a request and return its result. Raises AgentFault, METHOD_UNKNOWN for a method that is not offered."""
        if method == "session/request_permission":
            return await self._desk.ask_permission(params)
        if self._workspace is None or self._terminals is None:
            raise AgentFault("METHOD_UNKNOWN", f"{method} is not offered")
        session_id = str(params.get("sessionId"))
        match method:
            case "fs/read_text_file":
                self._desk.get_active_folder(session_id)
                path, line, limit = _read_path(params), _read_number(params, "line"), _read_number(params, "limit")
                return {"content": await asyncio.to_thread(self._workspace.read, path, line, limit)}
            case "fs/write_text_file":
                self._desk.get_active_folder(session_id)
                content = params.get("content")
                if not isinstance(content, str):
                    raise AgentFault("ARGUMENT_INVALID", "`content` is a text")
                written = await asyncio.to_thread(self._workspace.write, _read_path(params), content)
                self._desk.add_written_file(session_id, str(written))
                return {}
            case "terminal/create":
                created = await self._terminals.create(params, self._desk.get_active_folder(session_id))
                try:
                    self._desk.get_active_folder(session_id)
                except AgentFault:  # its turn has ended meanwhile
                    self._terminals.release({"sessionId": session_id, **created})
                    raise
                return created
            case "terminal/output":
                return self._terminals.read_output(params)
            case "terminal/wait_for_exit":
                return await self._terminals.wait(params)
            case "terminal/kill":
                return self._terminals.kill(params)
            case "terminal/release":
                return self._terminals.release(params)
            case _:
                raise AgentFault("METHOD_UNKNOWN", f"{method} is not offered")

    def end_turn(self, session_id: str) -> None:
        """End the terminals of a session whose turn has ended."""
        if self._terminals is not None:
            self._terminals.release_all(session_id)

    async def close(self) -> None:
        """End the terminals of all sessions. Bounded."""
        if self._terminals is not None:
            await self._terminals.close()


def _read_path(params: Mapping[str, Any]) -> str:
    """Return the path in a request's params. Raises AgentFault if there is none."""
    path = params.get("path")
    if not isinstance(path, str):
        raise AgentFault("ARGUMENT_INVALID", "`path` is a text")
    return path


def _read_number(params: Mapping[str, Any], name: str) -> int | None:
    """Return a number of a request's params that is not negative; None if there is none."""
    value = params.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
