"""What spans say of MCP messages, by OpenTelemetry's semantic conventions for MCP (status: development).

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from collections.abc import Mapping
from typing import Any, Final

from hubbubd.redaction import REDACTION
from hubbubd.telemetry.trace import Attributes

LONGEST: Final = 256
"""Characters of a name that a span holds; servers and callers choose them."""

LONGEST_CONTENT: Final = 8192
"""Characters of what people and servers say that a span holds, where that is wanted at all."""

TOOL_ERROR: Final = "tool_error"
"""`error.type` of a tool call whose result says that it has failed."""


def about(method: str, params: Mapping[str, Any] | None) -> tuple[str, Attributes]:
    """A request's name for spans, and its attributes."""
    given, target = params or {}, ""
    attributes: Attributes = {"mcp.method.name": text(method)}
    match method:
        case "tools/call":
            target = text(given.get("name"))
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        case "prompts/get":
            target = text(given.get("name"))
            attributes["gen_ai.prompt.name"] = target
        case _ if isinstance(given.get("uri"), str):
            attributes["mcp.resource.uri"] = text(given["uri"])
        case _:
            pass
    return f"{text(method)} {target}".rstrip(), attributes


def operation(method: str, params: Mapping[str, Any] | None) -> Attributes:
    """What metrics say of a request."""
    _, said = about(method, params)
    said.pop("mcp.resource.uri", None)  # there is no end to them
    return said


def connection(transport: str, version: str | None) -> Attributes:
    """What metrics say of a connection: what carries it (a pipe or TCP), and the revision once that is known."""
    about: Attributes = {"network.transport": "pipe" if transport == "stdio" else "tcp"}
    return about if version is None else {**about, "mcp.protocol.version": version}


def text(value: object, longest: int = LONGEST) -> str:
    """A string that any backend takes: without secrets, bounded, and without halves of surrogate pairs."""
    if value is None:
        return ""
    # Before the cut, for half a secret is not known as one.
    return REDACTION.text(str(value))[:longest].encode("utf-8", "replace").decode()


def content(raw: bytes | None) -> str:
    """JSON bytes as an attribute."""
    return text((raw or b"").decode("utf-8", "replace"), LONGEST_CONTENT)
