"""Span names and attributes of MCP messages, by OpenTelemetry's semantic conventions for MCP (status: development).

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from collections.abc import Mapping
from typing import Any, Final

from hubbubd.redaction import REDACTION
from hubbubd.telemetry.trace import Attributes

LONGEST: Final = 256
"""Longest name in a span, in characters; servers and callers choose names."""

LONGEST_CONTENT: Final = 8192
"""Longest content in a span, in characters, where content is traced at all (`trace_content`)."""

TOOL_ERROR: Final = "tool_error"
"""`error.type` of a tool call whose result has `isError`."""


def about(method: str, params: Mapping[str, Any] | None) -> tuple[str, Attributes]:
    """Return a request's span name and attributes."""
    given, named, target = params or {}, text(method), ""
    attributes: Attributes = {"mcp.method.name": named}
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
    return f"{named} {target}".rstrip(), attributes


def operation(method: str, params: Mapping[str, Any] | None) -> Attributes:
    """Return a request's metric attributes."""
    _, attributes = about(method, params)
    attributes.pop("mcp.resource.uri", None)  # unbounded cardinality
    return attributes


def connection(transport: str, version: str | None) -> Attributes:
    """Return a connection's metric attributes: its transport (pipe or TCP), and the negotiated revision if known."""
    about: Attributes = {"network.transport": "pipe" if transport == "stdio" else "tcp"}
    return about if version is None else {**about, "mcp.protocol.version": version}


def text(value: object, longest: int = LONGEST) -> str:
    """Return a value as an attribute that any backend accepts: redacted, bounded, and valid Unicode."""
    if value is None:
        return ""
    # Redact before cutting: half a secret would not be recognised.
    return REDACTION.text(str(value))[:longest].encode("utf-8", "replace").decode()


def content(raw: bytes | None) -> str:
    """Return JSON bytes as an attribute, redacted and bounded."""
    return text((raw or b"").decode("utf-8", "replace"), LONGEST_CONTENT)
