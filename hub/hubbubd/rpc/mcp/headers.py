"""Checks headers that repeat the body, for proxies (MCP 2026-07-28, transports and tools, x-mcp-header)."""

import base64
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.jsonrpc import HEADER_MISMATCH
from hubbubd.downstream.hosts import introductions
from hubbubd.downstream.protocol.messages import Refusal, RequestMessage
from hubbubd.rpc.mcp.transport import ARGUMENT_PREFIX, VERSION_HEADER

SCHEMA_KEY: Final = "x-mcp-header"
"""The member of an argument's schema that names its header, without the prefix ARGUMENT_PREFIX."""

HeaderByPath = Mapping[tuple[str, ...], str]
"""By the path of an argument: the name of its header, in lower case."""

_BASE64_WRAPPED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
"""A header value in base64, for text that HTTP headers cannot have."""

MAX_BITS: Final = 1024
"""Bits of the largest whole number that a header repeats: as many as the largest double has."""

_DECIMAL_PATTERN: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?")
"""A number in a header. The largest double has 309 digits before the point."""


_NAME_PARAMS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The param that Mcp-Name repeats. With tasks it may be missing: SEP-2663 wants it, but FastMCP's client has none."""


def check_repeated(headers: Mapping[str, str], duplicate_header: str | None, message: RequestMessage) -> None:
    """Raise Refusal unless the headers repeat what the body of a request without a handshake says.

    `duplicate_header` is the name of a header that is there twice, if any.
    """
    if duplicate_header is not None:
        raise Refusal(HEADER_MISMATCH, f"the header {duplicate_header} is there twice")
    _check_header(headers, VERSION_HEADER, introductions.parse_revision(message))
    _check_header(headers, "mcp-method", message.method)
    name_param: object = message.params.get(_NAME_PARAMS.get(message.method, ""))
    # Of tasks it may be missing: FastMCP's client sends none.
    may_be_missing = message.method.startswith("tasks/") and headers.get("mcp-name") is None
    if isinstance(name_param, str) and not may_be_missing:
        _check_header(headers, "mcp-name", name_param)


def check_arguments(tool: bytes | None, arguments: object, headers: Mapping[str, str]) -> None:
    """Compare the headers of a `tools/call` with its arguments. Raises Refusal where they differ.

    `tool` is the entry of the tool that is called, as JSON, if there is one; the headers have names in lower case.
    """
    if tool is None or SCHEMA_KEY.encode() not in tool:
        return
    for path, header in _find_header_paths(payload.loads(tool).get("inputSchema")).items():
        value = headers.get(header)
        if not _repeats(_get_argument(arguments, path), None if value is None else unwrap(value)):
            raise Refusal(HEADER_MISMATCH, f"the header {header} must repeat the argument {'.'.join(path)[:100]}")


def unwrap(header: str) -> str:
    """Return a header's text, decoded if it is wrapped in base64. Raises Refusal for invalid base64."""
    text = header.strip()
    wrapped = _BASE64_WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        return base64.b64decode(wrapped[1], validate=True).decode()
    except ValueError:
        raise Refusal(HEADER_MISMATCH, "a header begins with =?base64? and is no base64 of UTF-8") from None


def _check_header(headers: Mapping[str, str], name: str, in_body: str) -> None:
    """Raise Refusal unless a header repeats what the body says."""
    value = headers.get(name)
    if value is None or unwrap(value) != in_body:
        raise Refusal(HEADER_MISMATCH, f"the header {name} must repeat what the body says")


def _find_header_paths(schema: object) -> HeaderByPath:
    """Return the properties of a schema that name a header (SCHEMA_KEY), also those within other properties."""
    headers: dict[tuple[str, ...], str] = {}
    stack: list[tuple[tuple[str, ...], object]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        schema_node = cast("dict[str, Any]", node)
        header_name = schema_node.get(SCHEMA_KEY)
        if path and isinstance(header_name, str) and header_name.isascii():
            headers[path] = ARGUMENT_PREFIX + header_name.lower()
        properties = schema_node.get("properties")
        if isinstance(properties, dict):
            stack += [((*path, name), inner) for name, inner in cast("dict[str, Any]", properties).items()]
    return headers


def _get_argument(arguments: object, path: tuple[str, ...]) -> object:
    """Return the argument at a path of names; None if there is none."""
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = cast("dict[str, Any]", arguments).get(name)
    return arguments


def _repeats(argument: object, header: str | None) -> bool:
    """Return whether a header repeats an argument.

    For null, arrays, objects and too large numbers there must be no header.
    """
    match argument:
        case bool():
            return header == ("true" if argument else "false")
        case str():
            return header == argument
        case int() | float() if not isinstance(argument, int) or argument.bit_length() <= MAX_BITS:
            return header is not None and _is_same_number(argument, header)
        case _:
            return header is None


def _is_same_number(argument: float, header: str) -> bool:
    """Return whether a header has a number, written as JSON writes it or in another decimal form."""
    number_text = payload.dumps(argument).decode()
    if header == number_text:
        return True
    return _DECIMAL_PATTERN.fullmatch(header) is not None and Decimal(header) == Decimal(number_text)
