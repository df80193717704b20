"""The gRPC channel to one address of a hub, and the stubs of its services."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from grpc import ChannelConnectivity, aio, ssl_channel_credentials

from hubbub.v1 import (
    admin_pb2_grpc,
    call_pb2_grpc,
    catalog_pb2_grpc,
    event_pb2_grpc,
    inbox_pb2_grpc,
    mcp_pb2_grpc,
    server_pb2_grpc,
    task_pb2_grpc,
)
from hubbub_client.discovery import Endpoint

if TYPE_CHECKING:
    from hubbub.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from hubbub.v1.call_pb2_grpc import CallServiceAsyncStub
    from hubbub.v1.catalog_pb2_grpc import CatalogServiceAsyncStub
    from hubbub.v1.event_pb2_grpc import EventServiceAsyncStub
    from hubbub.v1.inbox_pb2_grpc import InboxServiceAsyncStub
    from hubbub.v1.mcp_pb2_grpc import McpServiceAsyncStub
    from hubbub.v1.server_pb2_grpc import ServerServiceAsyncStub
    from hubbub.v1.task_pb2_grpc import TaskServiceAsyncStub

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    # Web proxies cannot reach loopback addresses.
    ("grpc.enable_http_proxy", 0),
)


class Stubs:
    """Stubs of the hub's services over one channel."""

    def __init__(self, channel: aio.Channel) -> None:
        self.servers: ServerServiceAsyncStub = server_pb2_grpc.ServerServiceStub(channel)
        self.inbox: InboxServiceAsyncStub = inbox_pb2_grpc.InboxServiceStub(channel)
        self.calls: CallServiceAsyncStub = call_pb2_grpc.CallServiceStub(channel)
        self.tasks: TaskServiceAsyncStub = task_pb2_grpc.TaskServiceStub(channel)
        self.catalog: CatalogServiceAsyncStub = catalog_pb2_grpc.CatalogServiceStub(channel)
        self.events: EventServiceAsyncStub = event_pb2_grpc.EventServiceStub(channel)
        self.admin: AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)
        self.mcp: McpServiceAsyncStub = mcp_pb2_grpc.McpServiceStub(channel)
        # Its messages have the wire format of these two (one string, one number), so no further package is needed.
        self.healthy: aio.UnaryUnaryMultiCallable[StringValue, Int32Value] = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=Int32Value.FromString,
        )


def open_channel(endpoint: Endpoint) -> aio.Channel:
    """Return a channel to an address; it connects when its state is asked for with `connect`."""
    tls = endpoint.tls
    if tls is None:
        return aio.insecure_channel(endpoint.target, options=OPTIONS)
    credentials = ssl_channel_credentials(tls.ca, tls.key, tls.cert)
    return aio.secure_channel(endpoint.target, credentials, options=OPTIONS)


def is_ready(channel: aio.Channel | None, connect: bool = False) -> bool:
    """Return whether a channel is connected; gRPC may say so for a moment too long."""
    return channel is not None and channel.get_state(connect) is ChannelConnectivity.READY


def is_refused(channel: aio.Channel | None) -> bool:
    """Return whether the last attempt to connect failed."""
    return channel is not None and channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE
