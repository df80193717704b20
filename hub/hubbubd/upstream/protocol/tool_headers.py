"""Which arguments of a server's tools are repeated as headers (MCP 2026-07-28, tools, x-mcp-header)."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

Mapped = Mapping[tuple[str, ...], str]
"""Header name by path of an argument."""

MAX_MAPPED: Final = 20_000
"""The most mapped arguments remembered per list. Tools beyond it are called without such headers."""

MAX_COMING: Final = 4
"""The most lists being paged through at once; the one idle for longest is forgotten."""


class _Tools:
    """The mapped tools of a list, or of the pages that have come."""

    def __init__(self) -> None:
        self.mapped: dict[str, Mapped] = {}
        self._count = 0

    def take(self, page: Mapping[str, Mapped]) -> None:
        for tool, mapped in page.items():
            self._count -= len(self.mapped.pop(tool, ()))
            if mapped and self._count + len(mapped) <= MAX_MAPPED:
                self.mapped[tool] = mapped
                self._count += len(mapped)


class ToolHeaders:
    """The mapped tools of the last complete list, and of lists still being paged through.

    Several callers may page through the list at once: each page continues the list that named its cursor. A page that
    continues none updates its own tools only, so that it cannot make the others forgotten.
    """

    def __init__(self) -> None:
        self._listed = _Tools()
        self._coming: OrderedDict[str, _Tools] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(tools.mapped) for tools in (self._listed, *self._coming.values()))

    def of(self, tool: str) -> Mapped | None:
        """Return which arguments of a tool are repeated; None for none."""
        known = (*reversed(self._coming.values()), self._listed)
        return next((tools.mapped[tool] for tools in known if tool in tools.mapped), None)

    def take(self, cursor: str | None, page: Mapping[str, Mapped], next_cursor: str | None) -> None:
        """Take a page. Without `cursor` it is the first, without `next_cursor` the last."""
        tools = _Tools() if cursor is None else self._coming.pop(cursor, None)
        if tools is None:
            self._listed.take(page)
            return
        tools.take(page)
        if next_cursor is None:
            self._listed = tools
            return
        self._coming[next_cursor] = tools
        self._coming.move_to_end(next_cursor)
        if len(self._coming) > MAX_COMING:
            self._coming.popitem(last=False)
