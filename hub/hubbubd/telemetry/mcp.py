"""Span names and attributes of MCP messages, by OpenTelemetry's semantic conventions for MCP (status: development).

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from collections.abc import Mapping
from typing import Any, Final

from hubbubd.redaction import REDACTION
from hubbubd.telemetry.trace import Attributes

MAX_NAME_CHARS: Final = 256
"""Longest name in a span, in characters; servers and callers choose names."""

MAX_CONTENT_CHARS: Final = 8192
"""Longest content in a span, in characters, where content is traced at all (`trace_content`)."""

TOOL_ERROR: Final = "tool_error"
"""`error.type` of a tool call whose result has `isError`."""


def describe_request(method: str, params: Mapping[str, Any] | None) -> tuple[str, Attributes]:
    """Return the name and the attributes of a request's span.

    The name is the method, and for a tool or a prompt its name as well; all texts are redacted and shortened.
    """
    request_params, method_name, target = params or {}, bounded_text(method), ""
    attributes: Attributes = {"mcp.method.name": method_name}
    match method:
        case "tools/call":
            target = bounded_text(request_params.get("name"))
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        case "prompts/get":
            target = bounded_text(request_params.get("name"))
            attributes["gen_ai.prompt.name"] = target
        case _ if isinstance(request_params.get("uri"), str):
            attributes["mcp.resource.uri"] = bounded_text(request_params["uri"])
        case _:
            pass
    return f"{method_name} {target}".rstrip(), attributes


def metric_attributes(method: str, params: Mapping[str, Any] | None) -> Attributes:
    """Return a request's metric attributes."""
    _, attributes = describe_request(method, params)
    attributes.pop("mcp.resource.uri", None)  # unbounded cardinality
    return attributes


def connection_attributes(transport: str, version: str | None) -> Attributes:
    """Return a connection's metric attributes: its transport (pipe or TCP), and the negotiated revision if known."""
    attributes: Attributes = {"network.transport": "pipe" if transport == "stdio" else "tcp"}
    return attributes if version is None else {**attributes, "mcp.protocol.version": version}


def bounded_text(value: object, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a value as an attribute that any backend accepts: redacted, bounded, and valid Unicode."""
    if value is None:
        return ""
    # Redact before cutting: half a secret would not be recognised.
    return REDACTION.redact_text(str(value))[:max_chars].encode("utf-8", "replace").decode()


def bounded_content(raw: bytes | None) -> str:
    """Return JSON bytes as the value of an attribute: redacted, and cut at MAX_CONTENT_CHARS."""
    return bounded_text((raw or b"").decode("utf-8", "replace"), MAX_CONTENT_CHARS)
