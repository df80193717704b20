"""The result of a tool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub_client import payload


@dataclass(frozen=True)
class ToolResult:
    """The result of tools/call (MCP CallToolResult); `raw` is the result as the server sent it."""

    raw: Any

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """Return the content blocks, as JSON objects."""
        return payload.as_objects(payload.as_object(self.raw).get("content"))

    @property
    def text(self) -> str:
        """Return the text blocks joined by line feeds, empty if there is none."""
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def structured(self) -> Any:
        """Return `structuredContent`, the value that the tool's output schema describes; None if there is none."""
        return payload.as_object(self.raw).get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Return whether the tool reported a failure (`isError`)."""
        return bool(payload.as_object(self.raw).get("isError"))
