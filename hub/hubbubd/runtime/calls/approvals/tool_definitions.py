"""The tools of servers, as rules and people judge them."""

from typing import NamedTuple

from hubbubd import payload
from hubbubd.core.approvals.requests import UNKNOWN_TOOL, ToolDefinition, define_tool
from hubbubd.core.servers.catalog import CatalogKind, Freshness, list_id
from hubbubd.errors import HubError
from hubbubd.runtime.catalog import Catalog


class _NamedTools(NamedTuple):
    """The entries of a server's list, also by the names of their tools, and the definitions that were requested."""

    entries: tuple[bytes, ...]
    by_name: dict[str, bytes]
    defined: dict[str, ToolDefinition]


class ToolDefinitions:
    """The tools of all servers as rules and people judge them; a definition is parsed when first requested."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools_by_server: dict[str, _NamedTools] = {}

    def find(self, server: str, tool: str) -> ToolDefinition:
        """Return a tool as its server lists it; UNKNOWN_TOOL if the server does not list it."""
        entries = self._catalog.entries(list_id(server, CatalogKind.TOOL))
        tools = self._tools_by_server.get(server)
        if tools is None or tools.entries is not entries:  # a changed list is another tuple
            by_name = {str(payload.loads(entry).get("name")): entry for entry in entries}
            tools = self._tools_by_server[server] = _NamedTools(entries, by_name, {})
        definition = tools.defined.get(tool)
        if definition is None and tool in tools.by_name:
            definition = tools.defined[tool] = define_tool(tools.by_name[tool])
        return definition or UNKNOWN_TOOL

    async def refresh(self, server: str) -> None:
        """Fetch the tools of a connected server again, unless the list is fresh; if that fails, the known ones stay."""
        tool_list = self._catalog.record(server, CatalogKind.TOOL)
        if tool_list is None or tool_list.freshness not in (Freshness.FRESH, Freshness.EMPTY):
            try:
                await self._catalog.refresh(server)
            except HubError:
                return  # the stored list counts
