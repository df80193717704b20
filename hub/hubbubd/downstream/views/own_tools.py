"""Tools of the hub itself, which profiles list: to search for tools and call them, to fetch late results, to ask
people."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from hubbubd import payload
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Principal
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.calls import tickets
from hubbubd.downstream.people import tools as people_tools
from hubbubd.downstream.protocol.messages import Refusal

SEARCH_TOOL: Final = "hubbub_search_tools"
CALL_TOOL: Final = "hubbub_call_tool"

ALL_NAMES: Final = frozenset({SEARCH_TOOL, CALL_TOOL, tickets.RESULT, *people_tools.ALL})

MAX_FOUND: Final = 10
"""Tools that one search returns."""

MAX_QUERY: Final = 1000
"""Characters of a query that are looked at."""

SEARCH_ENTRIES: Final = tuple(
    payload.dumps(tool)
    for tool in (
        {
            "name": SEARCH_TOOL,
            "title": "Search tools",
            "description": (
                "Finds tools by what they do. Returns the best ones with their names, descriptions and input schemas. "
                f"Call a tool that was found with {CALL_TOOL}."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
                "required": ["query"],
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": CALL_TOOL,
            "title": "Call a tool",
            "description": f"Calls a tool that {SEARCH_TOOL} has found, and returns its result.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": f"The tool's name as {SEARCH_TOOL} gave it."},
                    "arguments": {"type": "object", "description": "What the tool's input schema asks for."},
                },
                "required": ["name"],
            },
        },
    )
)
"""Entries of `tools/list`."""


class ToolSearch(Protocol):
    """What a search needs of a view."""

    async def search(self, query: str, limit: int, principal: Principal) -> list[bytes]:
        """Return the entries of the tools that fit a query best, `limit` at most."""
        ...


def own_tool_entries(settings: ProfileSettings) -> tuple[bytes, ...]:
    """Return the entries of the hub's own tools that a profile with these settings lists."""
    result_tool = (tickets.ENTRY,) if settings.on_hold_end == "ticket" else ()
    people = people_tools.ENTRIES if settings.people else ()
    return (*(SEARCH_ENTRIES if settings.tools == "search" else ()), *result_tool, *people)


async def search_tools(view: ToolSearch, params: Mapping[str, Any], principal: Principal) -> bytes:
    """Return the result of a call of `hubbub_search_tools`. Raises Refusal."""
    query = _parse_arguments(params).get("query")
    if not isinstance(query, str):
        raise Refusal(INVALID_PARAMS, f"{SEARCH_TOOL}: query must be a string")
    entries = [payload.loads(entry) for entry in await view.search(query[:MAX_QUERY], MAX_FOUND, principal)]
    return payload.dumps({"content": [{"type": "text", "text": payload.dumps(entries).decode()}]})


def unwrap_call(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of the call that a call of `hubbub_call_tool` wraps. Raises Refusal."""
    call_arguments = _parse_arguments(params)
    name, arguments = call_arguments.get("name"), call_arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Refusal(INVALID_PARAMS, f"{CALL_TOOL}: name must be a string, and arguments an object")
    return {**params, "name": name, "arguments": cast("dict[str, Any]", arguments)}


def _parse_arguments(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call. Raises Refusal."""
    arguments = params.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise Refusal(INVALID_PARAMS, "params.arguments must be an object")
    return cast("Mapping[str, Any]", arguments)
