"""What a tool gave back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub_client import payload


@dataclass(frozen=True)
class ToolResult:
    """The result of tools/call (MCP CallToolResult); `raw` is the whole of it, as the server sent it."""

    raw: Any

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """The content blocks, as JSON objects."""
        return payload.as_objects(payload.as_object(self.raw).get("content"))

    @property
    def text(self) -> str:
        """The text blocks, one below the other; empty where there is none."""
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def structured(self) -> Any:
        """`structuredContent`, the value that the tool's output schema describes; None where there is none."""
        return payload.as_object(self.raw).get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed."""
        return bool(payload.as_object(self.raw).get("isError"))
