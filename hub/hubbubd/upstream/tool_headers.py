"""Which arguments of a server's tools are repeated as headers (2026-07-28, tools, x-mcp-header)."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

Mapped = Mapping[tuple[str, ...], str]
"""By the path of an argument, the name of its header."""

MAX_MAPPED: Final = 20_000
"""Arguments of one list's tools that are remembered. A tool beyond them is called without such headers."""

MAX_COMING: Final = 4
"""Lists that may be coming at once; the one that has waited longest for its next page is forgotten."""


class _Tools:
    """The tools of a list, or of as much of it as has come."""

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
    """What the last whole list of tools says. While the pages of another one come, that one counts as well.

    Several may ask for the list at once, and for any page of it: each page goes on with the list that named its cursor.
    A page of no such list says something of its own tools only, so nobody makes the others forgotten with one.
    """

    def __init__(self) -> None:
        self._listed = _Tools()
        self._coming: OrderedDict[str, _Tools] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(tools.mapped) for tools in (self._listed, *self._coming.values()))

    def of(self, tool: str) -> Mapped | None:
        """What is repeated of a tool's arguments; None for nothing."""
        known = (*reversed(self._coming.values()), self._listed)
        return next((tools.mapped[tool] for tools in known if tool in tools.mapped), None)

    def take(self, cursor: str | None, page: Mapping[str, Mapped], next_cursor: str | None) -> None:
        """Takes what a page says of each of its tools. No `cursor` is the first page, no `next_cursor` the last."""
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
