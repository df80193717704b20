"""MCP hosts in words: who is connected, what each sees, and its state."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from hubbub_client.data.hosts import ConnectedHost

if TYPE_CHECKING:  # at run time only where a hub is asked: who shows hosts in words needs no gRPC
    from hubbub_client.hub import Hub

HostState = Literal["waiting_input", "in_progress", "connected", "quiet", "probably gone"]

MAX_HOSTS = 1000
"""The newest hosts that a list shows."""

PASTE = "claude mcp add hubbub -- hubbub mcp"
"""Lets the best known host use the hub, with its own command."""

EMPTY = (
    "A host is a program that speaks MCP and brings a model, such as Claude Code, VS Code or Cursor. Through the hub "
    "it sees all servers over one connection. To let Claude Code use this hub, paste this into a shell:"
)
OTHERS = "For other hosts there is hubbub mcp install HOST; docs/hosts has them all."
REFUSED = "You may not see who is connected: that takes the role viewer, responder or admin for all servers."

TRANSPORTS = {"http": "HTTP", "stdio": "stdio, through hubbub mcp"}


def host_name(host: ConnectedHost) -> str:
    """Return the name that a host gives itself."""
    return host.name or "a host without a name"


def name_and_version(host: ConnectedHost) -> str:
    """Return the name that a host gives itself, and its version."""
    return f"{host_name(host)} {host.version or ''}".rstrip()


def endpoint_name(host: ConnectedHost) -> str:
    """Return in words which endpoint of the hub a host uses: `profile work` or `server git`."""
    kind, _, name = host.endpoint.partition("/")
    return f"{'server' if kind == 's' else 'profile'} {name}"


def transport_name(host: ConnectedHost) -> str:
    """Return in words over which transport a host's messages come."""
    return TRANSPORTS.get(host.transport, host.transport)


def stream_state(host: ConnectedHost) -> str:
    """Return whether the host has a stream of its own: `open`, `gone` if the host has probably gone, or `none`."""
    if host.stream_open:
        return "open"
    return "gone" if host.gone else "none"


def without_gone(hosts: Iterable[ConnectedHost]) -> list[ConnectedHost]:
    """Return the hosts except those that have probably gone."""
    return [host for host in hosts if not host.gone]


def host_state(host: ConnectedHost) -> HostState:
    """Return the state of a host.

    A host without a session is `quiet` between its requests, since no message says when such a host leaves.
    """
    if host.gone:
        return "probably gone"
    if any(request.pending_request_ids for request in host.requests):
        return "waiting_input"
    if any(request.call_id for request in host.requests):
        return "in_progress"
    return "connected" if host.has_session or host.requests else "quiet"


async def fetch_waiting_host(hub: "Hub", call_id: str) -> ConnectedHost | None:
    """Return the host that waits for a call; None if no host waits, or if the hub refuses to tell."""
    from hubbub_client.errors import HubbubError

    try:
        hosts = await hub.hosts.list(call_ids=[call_id], limit=1)
    except HubbubError:  # the caller may not see hosts, or the hub is an older one
        return None
    return hosts[0] if hosts else None
