"""Which arguments of a server's tools are repeated as headers (2026-07-28, tools, x-mcp-header)."""

from collections.abc import Mapping
from typing import Final

Mapped = Mapping[tuple[str, ...], str]
"""By the path of an argument, the name of its header."""

MAX_MAPPED: Final = 20_000
"""Arguments of one server's tools that are remembered. A tool beyond them is called without such headers."""


class ToolHeaders:
    """What the last whole list of tools says. While the pages of another one come, that one counts as well."""

    def __init__(self) -> None:
        self._listed: dict[str, Mapped] = {}
        self._coming: dict[str, Mapped] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._listed) + len(self._coming)

    def of(self, tool: str) -> Mapped | None:
        """What is repeated of a tool's arguments; None for nothing."""
        return self._coming.get(tool) or self._listed.get(tool)

    def begin(self) -> None:
        """The first page of a list comes."""
        self._coming, self._count = {}, 0

    def note(self, tool: str, mapped: Mapped) -> None:
        """Takes down what a page says of a tool."""
        if mapped and self._count + len(mapped) <= MAX_MAPPED:
            self._count += len(mapped)
            self._coming[tool] = mapped

    def end(self) -> None:
        """That was the last page: what was listed before is forgotten."""
        self._listed, self._coming, self._count = self._coming, {}, 0
