"""What the agent asks of its client: permissions, and with `--fs` files and terminals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hubbub_acp.faults import AgentFault


class PermissionDesk(Protocol):
    """Where permission requests go."""

    async def ask_permission(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outcome of a permission request."""
        ...


class AgentRequests:
    """The requests that an agent may send."""

    def __init__(self, desk: PermissionDesk, root: Path | None) -> None:
        self._desk = desk
        self._root = root

    async def handle(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request. Raises AgentFault."""
        if method == "session/request_permission":
            return await self._desk.ask_permission(params)
        raise AgentFault("METHOD_UNKNOWN", f"{method} is not offered")
