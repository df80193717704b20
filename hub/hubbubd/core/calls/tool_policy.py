"""Which tools of a server may be called: its `allow_tools` and `deny_tools`. Applied to calls and to what is listed."""

from collections.abc import Mapping
from typing import Any, cast

from hubbubd.config import ServerConfig
from hubbubd.errors import PermissionDenied

CALL, LIST = "tools/call", "tools/list"


def find_denial(config: ServerConfig, method: str, params: Mapping[str, Any]) -> PermissionDenied | None:
    """Return the refusal of a call to a tool that is not allowed; None when it may be sent.

    Case and outer spaces of the method do not count: careless servers ignore them, too. `params` must be the parsed
    object that is sent: of duplicate keys only the last is left.
    """
    if method.strip().casefold() != CALL or config.has_tool(params.get("name")):
        return None
    tool = str(params.get("name"))
    return PermissionDenied(
        f"the tool {tool!r} of {config.name} may not be called: its allow_tools and deny_tools say which may",
        reason="TOOL_DENIED",
        metadata={"server": config.name, "tool": tool},
    )


def without_denied_tools(config: ServerConfig, method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a `tools/list` result without the tools that may not be called; results of other methods unchanged."""
    tools = result.get("tools")
    if method.strip().casefold() != LIST or not config.limits_tools or not isinstance(tools, list):
        return result
    return {**result, "tools": [tool for tool in cast("list[object]", tools) if config.has_tool(read_tool_name(tool))]}


def read_tool_name(tool: object) -> object:
    """Return an MCP tool's `name`, of whatever type it is."""
    return cast("Mapping[str, object]", tool).get("name") if isinstance(tool, Mapping) else None
