"""Which arguments of a server's tools are repeated as headers (MCP 2026-07-28, tools, x-mcp-header)."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

HeaderNames = Mapping[tuple[str, ...], str]
"""Header name by path of an argument."""

MAX_MAPPED: Final = 20_000
"""The most mapped arguments remembered per list. Tools beyond it are called without such headers."""

MAX_INCOMPLETE: Final = 4
"""The most lists being paged through at once; the one idle for longest is forgotten."""


class _MappedTools:
    """The mapped tools of a list, or of its pages that have come: those with arguments that are repeated as headers."""

    def __init__(self) -> None:
        self.header_names: dict[str, HeaderNames] = {}
        self._count = 0

    def add_page(self, page: Mapping[str, HeaderNames]) -> None:
        """Replace what is known of the tools of a page, up to MAX_MAPPED arguments in all."""
        for tool, header_names in page.items():
            self._count -= len(self.header_names.pop(tool, ()))
            if header_names and self._count + len(header_names) <= MAX_MAPPED:
                self.header_names[tool] = header_names
                self._count += len(header_names)


class ToolHeaders:
    """The mapped tools of the last complete list, and of lists still being paged through.

    Several callers may page through the list at once: each page continues the list that named its cursor. A page that
    continues none updates its own tools only, so that it cannot make the others forgotten.
    """

    def __init__(self) -> None:
        self._listed = _MappedTools()
        self._incomplete: OrderedDict[str, _MappedTools] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(tools.header_names) for tools in (self._listed, *self._incomplete.values()))

    def find_header_names(self, tool: str) -> HeaderNames | None:
        """Return the header names of a tool's arguments that are repeated as headers; None if none of them is known."""
        lists = (*reversed(self._incomplete.values()), self._listed)
        return next((tools.header_names[tool] for tools in lists if tool in tools.header_names), None)

    def add_page(self, cursor: str | None, page: Mapping[str, HeaderNames], next_cursor: str | None) -> None:
        """Add a page to its list. Without `cursor` it is the first page, without `next_cursor` the last."""
        tools = _MappedTools() if cursor is None else self._incomplete.pop(cursor, None)
        if tools is None:
            self._listed.add_page(page)
            return
        tools.add_page(page)
        if next_cursor is None:
            self._listed = tools
            return
        self._incomplete[next_cursor] = tools
        self._incomplete.move_to_end(next_cursor)
        if len(self._incomplete) > MAX_INCOMPLETE:
            self._incomplete.popitem(last=False)
