"""The gRPC server: all services, health and reflection on one address, and on a Unix socket for local clients."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_reflection.v1alpha import reflection

from hubbub.v1 import (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    event_pb2,
    fleet_pb2,
    inbox_pb2,
    login_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)
from hubbubd.config.sections.network import UNIX
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.rpc.auth.gate import Authentication, Gate
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners import health
from hubbubd.rpc.listeners import sockets as listening
from hubbubd.rpc.listeners.health import HealthService
from hubbubd.rpc.listeners.tls import grpc_credentials
from hubbubd.rpc.methods import Middleware, RpcSettings, make_generic_handler
from hubbubd.rpc.revision import Revisions
from hubbubd.rpc.servicers.admin import AdminService
from hubbubd.rpc.servicers.approvals import ApprovalService
from hubbubd.rpc.servicers.calls import CallService
from hubbubd.rpc.servicers.catalog import CatalogService
from hubbubd.rpc.servicers.events import EventService
from hubbubd.rpc.servicers.hosts import McpService
from hubbubd.rpc.servicers.inbox import InboxService
from hubbubd.rpc.servicers.logins import LoginService
from hubbubd.rpc.servicers.members import FleetAdminService
from hubbubd.rpc.servicers.servers import ServerService
from hubbubd.rpc.servicers.tasks import TaskService
from hubbubd.rpc.tracing import trace_rpcs
from hubbubd.runtime.hub import Hub, cancel_on
from hubbubd.store.vault.state_keys import StateKeyRing

_FILES = (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    event_pb2,
    fleet_pb2,
    inbox_pb2,
    login_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)
SERVICES: dict[str, ServiceDescriptor] = {
    name: service for file in _FILES for name, service in file.DESCRIPTOR.services_by_name.items()
}

MAX_RPCS = 10_000
"""The most RPCs open at a time, watches included; more are refused with RESOURCE_EXHAUSTED."""

MAX_STREAMS = 2000
"""The most RPCs open over one connection; its client queues further ones."""

IDLE_MS = 600_000
"""Milliseconds after which a connection without an RPC is closed; clients reconnect when needed."""

HANDSHAKE_MS = 20_000
"""Milliseconds a new connection may take until it speaks HTTP/2."""

CLOSE_GRACE_S = 2.0
"""Seconds after the port has closed, for callers to receive their errors, and for RPCs other than calls to end."""

LOST_MEMBER_GRACE_S = 0.2
"""The same for a member that the fleet has declared lost: it is to start again soon."""

MAX_METADATA = 32 * 1024
"""The most bytes of an RPC's metadata."""

PING_INTERVAL_MS = 5_000
"""The shortest interval of a client's HTTP/2 pings on an idle connection; one that pings more is disconnected."""


def is_not_disconnect(record: logging.LogRecord) -> bool:
    """Return False for a log record of gRPC about a caller that disconnected before its response, else True.

    It filters the log: gRPC logs each such caller as an internal error, and callers could cause any number of these.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.InternalError))


@asynccontextmanager
async def serve(
    hub: Hub,
    *,
    listen: str,
    gate: Gate,
    tls: TlsFiles | None = None,
    local_socket: Path | None = None,
    max_message_bytes: int = 16 * 1024 * 1024,
    grace_s: float | None = None,
    state_keys: StateKeyRing | None = None,
    middleware: tuple[Middleware, ...] = (),
) -> AsyncGenerator[str, None]:
    """Serve a hub behind the `gate`, and yield the address to connect to.

    The address is HOST:PORT or unix:PATH. A Unix socket at `local_socket` serves the same without TLS. `middleware`
    wraps each RPC, within its span, its audit entry and its quotas. `state_keys` seal the state of MCP hosts.

    On leaving, the hub is drained (`Hub.drain`, with `grace_s`) before the port closes. Raises ConfigError for an
    address beyond loopback without TLS and for unusable TLS files, OSError for an address that cannot be bound.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(is_not_disconnect)
    oversight = Oversight(hub.audit, hub.quotas)
    chain = (trace_rpcs(hub.tracer, "grpc"), oversight.wrap, *middleware)
    stream_settings = RpcSettings(
        max_message_bytes,
        (oversight.wrap_streamed, *chain),
        charge=lambda caller: hub.quotas.rpcs.charge(caller.name),
        hold=oversight.hold_stream,
    )
    server = grpc.aio.server(
        interceptors=[Authentication(gate, oversight), Revisions(hub.store)],
        options=_server_options(max_message_bytes),
        maximum_concurrent_rpcs=MAX_RPCS,
    )
    pairs = make_servicers(hub, stream_settings, state_keys)
    server.add_generic_rpc_handlers(
        [make_generic_handler(*each, max_message_bytes, *chain, on_dropped=hub.count_dropped_watch) for each in pairs]
    )
    reflection.enable_server_reflection([*(s.full_name for s, _ in pairs), reflection.SERVICE_NAME], server)

    address = listening.bind(server, listen, grpc_credentials(tls) if tls else None)
    if local_socket is not None:
        listening.bind(server, f"{UNIX}{local_socket}")
    with anyio.CancelScope(shield=True):  # cancelled, it would start all the same, and would not be stopped
        await server.start()
    try:
        yield address
    finally:
        with anyio.CancelScope(shield=True):
            await hub.drain(grace_s)
            # Cancelled, gRPC would end its own tasks, too. A second stop is what ends the first one early. Neither may
            # have a grace that runs out: beside another stop, gRPC would then use a server that it has freed.
            closed = asyncio.create_task(server.stop(math.inf))
            try:
                await wait_for_open_rpcs(hub, closed)
            finally:
                await server.stop(None)
                await closed


async def wait_for_open_rpcs(hub: Hub, closed: asyncio.Future[None]) -> None:
    """Wait until all RPCs of a closing port have ended (`closed` is done), or their time is over.

    Calls have the rest of the grace period, since a member of a fleet accepts calls of other members until its port
    closes. Other RPCs have CLOSE_GRACE_S; LOST_MEMBER_GRACE_S once the fleet has declared this member lost.
    """
    closing_since, lost = hub.clock.steady(), hub.fleet.lost if hub.fleet is not None else anyio.Event()
    async with cancel_on(hub.grace_cut), cancel_on(lost):
        with anyio.move_on_after(hub.remaining_grace_s()):
            await hub.calls.drain_delays.wait_for_all()
            # A call that has just come may not be in `drain_delays` yet: look again after a pause, until none is there.
            while not closed.done():
                await asyncio.wait([closed], timeout=CLOSE_GRACE_S)
                was_call_under_way = await hub.calls.drain_delays.wait_for_all()
                if not was_call_under_way:
                    break
    ends_at = closing_since + (LOST_MEMBER_GRACE_S if lost.is_set() else CLOSE_GRACE_S)
    await asyncio.wait([closed], timeout=max(0.0, ends_at - hub.clock.steady()))


def make_servicers(
    hub: Hub, stream_settings: RpcSettings, state_keys: StateKeyRing | None = None
) -> list[tuple[ServiceDescriptor, object]]:
    """Return all services, health included, with their servicers. `stream_settings` are for RPCs within streams.

    Without `state_keys`, the state of hosts is sealed with keys that end with this process.
    """
    state_keys = state_keys or StateKeyRing.in_memory(hub.clock)
    inbox = InboxService(hub.inbox, hub.work)
    servicers = {
        "AdminService": AdminService(hub),
        "ApprovalService": ApprovalService(hub),
        "CallService": CallService(hub.calls, hub.work, inbox.answer_pending_request, stream_settings),
        "CatalogService": CatalogService(hub.catalog),
        "EventService": EventService(hub.events, hub.subscriptions),
        "FleetService": FleetAdminService(hub),
        "InboxService": inbox,
        "LoginService": LoginService(hub.visitors),
        "McpService": McpService(hub, state_keys, stream_settings.charge, stream_settings.max_message_bytes),
        "ServerService": ServerService(hub.servers, lambda: hub.configuration.state.files),
        "TaskService": TaskService(hub.tasks),
    }
    names = [service.full_name for service in SERVICES.values()]
    return [
        *((SERVICES[name], servicer) for name, servicer in servicers.items()),
        (health.SERVICE, HealthService(hub.health, names, hub.calls.stopped)),
    ]


def _server_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Return gRPC's options of the server: limits of messages, metadata, streams, idle time and pings."""
    return [
        ("grpc.so_reuseport", 0),  # a second hub on the port must fail, not share it
        # Above our own limit, so that a request slightly too long gets our refusal, with details.
        ("grpc.max_receive_message_length", 2 * max_message_bytes),
        # A record has both request and response, and each may be as large as the limit.
        ("grpc.max_send_message_length", 4 * max_message_bytes),
        # Above auth.MAX_TOKEN, so that the gate refuses a long credential, with details. Between its soft and hard
        # limit gRPC refuses at random.
        ("grpc.max_metadata_size", MAX_METADATA),
        ("grpc.absolute_max_metadata_size", 2 * MAX_METADATA),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS),
    ]
