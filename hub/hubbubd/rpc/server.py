"""The gRPC server: all services, health and reflection on one address, and on a second for those who are local."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_reflection.v1alpha import reflection

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2
from hubbubd.config.network import UNIX
from hubbubd.config.tls import TlsFiles
from hubbubd.rpc import health
from hubbubd.rpc import listen as listening
from hubbubd.rpc.admin import AdminService
from hubbubd.rpc.auth import Authentication, Gate
from hubbubd.rpc.calls import CallService
from hubbubd.rpc.catalog import CatalogService
from hubbubd.rpc.events import EventService
from hubbubd.rpc.health import HealthService
from hubbubd.rpc.inbox import InboxService
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.methods import generic_handler
from hubbubd.rpc.servers import ServerService
from hubbubd.rpc.tasks import TaskService
from hubbubd.rpc.tls import grpc_credentials
from hubbubd.rpc.tracing import tracing
from hubbubd.runtime.hub import Hub

_FILES = (admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2)
SERVICES: dict[str, ServiceDescriptor] = {
    name: service for file in _FILES for name, service in file.DESCRIPTOR.services_by_name.items()
}

MAX_RPCS = 10_000
"""RPCs that may be open at once, watches included; more are refused with RESOURCE_EXHAUSTED."""

MAX_STREAMS = 2000
"""RPCs that may be open at once over one connection; its client keeps more of them waiting."""

IDLE_MS = 600_000
"""How long a connection without an RPC is kept; clients make it anew when they need it."""

HANDSHAKE_MS = 20_000
"""How long whoever connects may take until it speaks HTTP/2."""

LAST_WORDS_S = 2.0
"""How long after that callers may take to hear that their calls have ended, and other RPCs to end."""

MAX_METADATA = 32 * 1024
"""Bytes of an RPC's metadata that are looked at."""

PING_INTERVAL_MS = 5_000
"""How often a client may ask whether the hub is there while nothing else is sent; one that asks more is cut off."""


def is_fault(record: logging.LogRecord) -> bool:
    """A filter of gRPC's log: false for a caller that left before its response could be sent.

    gRPC logs each of them as a fault of the hub. It is none, and callers may do it as often as they like.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.InternalError))


@asynccontextmanager
async def serve(
    hub: Hub,
    *,
    listen: str,
    gate: Gate,
    tls: TlsFiles | None = None,
    local: Path | None = None,
    max_message_bytes: int = 16 * 1024 * 1024,
    grace_s: float | None = None,
    hurry: anyio.Event | None = None,
) -> AsyncGenerator[str, None]:
    """Serves a hub to whom the `gate` lets in, and yields the address to connect to.

    That is HOST:PORT, with TLS where it is given, or unix:PATH. A unix socket at `local` serves the same without TLS.

    On leaving, the hub is drained (`Hub.drain`, with `grace_s` and `hurry`) before the last connection closes. Raises
    ConfigError for an address off loopback without TLS and for files of TLS that cannot be used, OSError for an address
    that cannot be had.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(is_fault)
    oversight = Oversight(hub.audit, hub.quotas)
    around = (tracing(hub.tracer, "grpc"), oversight.over)
    server = grpc.aio.server(
        interceptors=[Authentication(gate, oversight)],
        options=_options(max_message_bytes),
        maximum_concurrent_rpcs=MAX_RPCS,
    )
    served = servicers(hub)
    server.add_generic_rpc_handlers(
        [generic_handler(*each, max_message_bytes, *around, dropped=hub.watcher_dropped) for each in served]
    )
    reflection.enable_server_reflection([*(s.full_name for s, _ in served), reflection.SERVICE_NAME], server)

    address = listening.bind(server, listen, grpc_credentials(tls) if tls else None)
    if local is not None:
        listening.bind(server, f"{UNIX}{local}")
    await server.start()
    try:
        yield address
    finally:
        with anyio.CancelScope(shield=True):
            await hub.drain(grace_s, hurry)
            await server.stop(LAST_WORDS_S)


def servicers(hub: Hub) -> list[tuple[ServiceDescriptor, object]]:
    """All services, health included, each with what serves it."""
    served = {
        "AdminService": AdminService(hub),
        "CallService": CallService(hub.calls),
        "CatalogService": CatalogService(hub.catalog),
        "EventService": EventService(hub.events, hub.subscriptions),
        "InboxService": InboxService(hub.inbox, hub.work),
        "ServerService": ServerService(hub.servers),
        "TaskService": TaskService(hub.tasks),
    }
    names = [service.full_name for service in SERVICES.values()]
    return [
        *((SERVICES[name], servicer) for name, servicer in served.items()),
        (health.SERVICE, HealthService(hub.health, names)),
    ]


def _options(max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # a second hub on the port must fail, not share it
        # Room above our own limit: a request that is a little too long is refused with details.
        ("grpc.max_receive_message_length", 2 * max_message_bytes),
        # A record holds what was sent and what came back, and each had its own limit.
        ("grpc.max_send_message_length", 4 * max_message_bytes),
        # The gate says what is wrong with a credential that is too long (auth.MAX_TOKEN); between gRPC's own two limits
        # it would be refused by chance.
        ("grpc.max_metadata_size", MAX_METADATA),
        ("grpc.absolute_max_metadata_size", 2 * MAX_METADATA),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS),
    ]
