"""Checks what a caller of the API sets for a server, who may set less than a file (`servers/options`)."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from hubbubd.config.hub import HubSettings
from hubbubd.config.sections.mcp import find_alias_conflict, find_people_conflict
from hubbubd.config.servers.server import OPTIONS, OWN_NAME, ServerConfig

# RFC 9110 and RFC 9112 (HTTP semantics, HTTP/1.1), and the transports of MCP.
ROUTING: Final = (
    *("host", "content-length", "transfer-encoding", "content-encoding", "content-type", "connection", "keep-alive"),
    *("upgrade", "te", "trailer", "expect", "proxy-*", "http2-settings", "accept", "accept-encoding", "range"),
    *("last-event-id", "mcp-*", ":*"),
)
"""Headers, in lower case, that the hub must set itself: routing, framing, and the MCP session."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def is_routing_header(header: str) -> bool:
    """Return whether a header is in ROUTING, whatever its case."""
    return any(fnmatchcase(header.strip().lower(), each) for each in ROUTING)


def find_problems(config: ServerConfig, hub: HubSettings) -> Iterator[tuple[str, str]]:
    """Yield the key of each option that a server added over the API may not have, and the reason."""
    if problem := _find_name_problem(config.name, hub):
        yield "name", problem
    for key, value in config:
        default = ServerConfig.model_fields[key].get_default(call_default_factory=True)
        if value != default and (problem := OPTIONS[key].limit.find_problem(value, default, hub)):
            yield key, problem
    for header, value in config.headers.items():
        if problem := _find_header_problem(header, value.get_secret_value()):
            yield f"headers.{header}", problem


def _find_header_problem(name: str, value: str) -> str | None:
    """Return why a server added over the API may not have a header; None if it may."""
    if not name.startswith(":") and not _TOKEN.fullmatch(name):
        return "is not a valid header name"
    if is_routing_header(name):
        return "is a header of routing or framing, which only the hub may set"
    if any(character in value for character in "\r\n\0"):
        return "must be one line"
    return None


def _find_name_problem(name: str, hub: HubSettings) -> str | None:
    """Return why a server added over the API may not have a name; None if it may."""
    if name == OWN_NAME:
        return "is the hub's own, to its hosts"
    if key := find_people_conflict(hub.mcp_profiles, name):
        return f"is that of what hosts ask people: mcp.profiles.{key}"
    alias = find_alias_conflict(hub.mcp_profiles, name)
    return f"is the alias of another server: mcp.profiles.{alias}" if alias else None
