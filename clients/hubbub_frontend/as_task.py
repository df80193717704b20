"""Whether a tool can be called as a client task, as far as its declarations say.

Up to 2025-11-25 the caller decides, within what server and tool declare (tasks, tool-level negotiation). From
2026-07-28 on the server decides; a caller can only insist on a task, if the server has the extension (SEP-2663).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub_client.data.records import Server
from hubbub_client.payload import as_object

STATELESS = "2026-07-28"
EXTENSION = "io.modelcontextprotocol/tasks"


@dataclass(frozen=True, slots=True)
class CallModes:
    """Ways to call a tool: plainly, as a task, or both; `reason` says in a sentence why one of them is impossible."""

    plain: bool = True
    task: bool = True
    reason: str = ""


def call_modes(server: Server | None, tool: Mapping[str, Any]) -> CallModes:
    """Return the ways to call a tool of a server. Both if nothing is known: the hub checks at the call."""
    if server is None or not server.protocol_version:
        return CallModes()
    is_stateless = server.protocol_version >= STATELESS
    path = ("extensions", EXTENSION) if is_stateless else ("tasks", "requests", "tools", "call")
    capability: object = server.capabilities
    for name in path:
        capability = as_object(capability).get(name)
    if capability is None:
        return CallModes(task=False, reason="This server does not carry out tools as tasks.")
    if is_stateless:
        return CallModes()
    match as_object(tool.get("execution")).get("taskSupport"):
        case "optional":
            return CallModes()
        case "required":
            return CallModes(plain=False, reason="The server carries out this tool only as a task.")
        case _:
            return CallModes(task=False, reason="The server does not carry out this tool as a task.")
