"""The gRPC channels to the addresses of a hub, and the stubs of its services."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from grpc import ChannelConnectivity, aio, ssl_channel_credentials

from hubbub.v1 import (
    admin_pb2_grpc,
    approval_pb2_grpc,
    call_pb2_grpc,
    catalog_pb2_grpc,
    event_pb2_grpc,
    fleet_pb2_grpc,
    inbox_pb2_grpc,
    login_pb2_grpc,
    mcp_pb2_grpc,
    server_pb2_grpc,
    task_pb2_grpc,
)
from hubbub_client.transport.discovery import HubAddress

if TYPE_CHECKING:
    from hubbub.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from hubbub.v1.approval_pb2_grpc import ApprovalServiceAsyncStub
    from hubbub.v1.call_pb2_grpc import CallServiceAsyncStub
    from hubbub.v1.catalog_pb2_grpc import CatalogServiceAsyncStub
    from hubbub.v1.event_pb2_grpc import EventServiceAsyncStub
    from hubbub.v1.fleet_pb2_grpc import FleetServiceAsyncStub
    from hubbub.v1.inbox_pb2_grpc import InboxServiceAsyncStub
    from hubbub.v1.login_pb2_grpc import LoginServiceAsyncStub
    from hubbub.v1.mcp_pb2_grpc import McpServiceAsyncStub
    from hubbub.v1.server_pb2_grpc import ServerServiceAsyncStub
    from hubbub.v1.task_pb2_grpc import TaskServiceAsyncStub

Q = TypeVar("Q")
A = TypeVar("A")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Bound of replaced channels that stay open for RPCs under way.
MAX_RETIRED = 4

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

# With several addresses a member that is frozen is left after about 10 s. The hub takes pings at intervals of 5 s, and
# as many as come while nothing else is sent. gRPC waits for a keepalive's answer for as long as for that of any ping.
FREQUENT_KEEPALIVE: Sequence[tuple[str, int]] = (
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# gRPC tries the addresses of one DNS name in an order that each process draws for itself, to share the load.
SHUFFLED = '{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}'


class Stubs:
    """Stubs of the hub's services over one channel."""

    def __init__(self, channel: aio.Channel) -> None:
        self.servers: ServerServiceAsyncStub = server_pb2_grpc.ServerServiceStub(channel)
        self.inbox: InboxServiceAsyncStub = inbox_pb2_grpc.InboxServiceStub(channel)
        self.approvals: ApprovalServiceAsyncStub = approval_pb2_grpc.ApprovalServiceStub(channel)
        self.calls: CallServiceAsyncStub = call_pb2_grpc.CallServiceStub(channel)
        self.tasks: TaskServiceAsyncStub = task_pb2_grpc.TaskServiceStub(channel)
        self.catalog: CatalogServiceAsyncStub = catalog_pb2_grpc.CatalogServiceStub(channel)
        self.events: EventServiceAsyncStub = event_pb2_grpc.EventServiceStub(channel)
        self.fleet: FleetServiceAsyncStub = fleet_pb2_grpc.FleetServiceStub(channel)
        self.admin: AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)
        self.logins: LoginServiceAsyncStub = login_pb2_grpc.LoginServiceStub(channel)
        self.mcp: McpServiceAsyncStub = mcp_pb2_grpc.McpServiceStub(channel)
        # The messages of Check have the wire format of these two (a string, a number): no further package is needed.
        self.healthy: aio.UnaryUnaryMultiCallable[StringValue, Int32Value] = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=Int32Value.FromString,
        )


def open_channel(endpoint: HubAddress, *, several: bool = False) -> aio.Channel:
    """Return a channel to an address. The channel connects only when `is_ready` is called with `connect`.

    `several`: the hub has more addresses, so that a lost connection is to be noticed soon, to try another address.
    """
    tls = endpoint.tls
    options = _keepalive_options() if several else OPTIONS
    if tls is None:
        return aio.insecure_channel(endpoint.target, options=options)
    credentials = ssl_channel_credentials(tls.ca, tls.key, tls.cert)
    return aio.secure_channel(endpoint.target, credentials, options=options)


def _keepalive_options() -> Sequence[tuple[str, int | str]]:
    """Return the channel options for a hub with several addresses: by frequent pings, a frozen member is left soon."""
    return [*({**dict(OPTIONS), **dict(FREQUENT_KEEPALIVE)}).items(), ("grpc.service_config", SHUFFLED)]


class Channels:
    """The channels of a connection: the current one to each address, and retired ones with RPCs under way."""

    def __init__(self) -> None:
        self.several = False
        """Whether the addresses are several."""
        self._current: dict[object, aio.Channel] = {}
        self._retired: deque[aio.Channel] = deque()

    def channel_to(self, endpoint: HubAddress) -> aio.Channel:
        """Return the channel to an endpoint, the same one until it is retired."""
        if endpoint.key not in self._current:
            self._current[endpoint.key] = open_channel(endpoint, several=self.several)
        return self._current[endpoint.key]

    async def retire(self, endpoint: HubAddress) -> None:
        """Retire the channel to an endpoint: it gets no new RPCs, and those under way may finish."""
        await self._retire(endpoint.key)

    async def retain(self, endpoints: Sequence[HubAddress]) -> None:
        """Retire the channels to all endpoints but these."""
        for key in self._current.keys() - {each.key for each in endpoints}:
            await self._retire(key)

    async def close(self) -> None:
        """Close all channels, which ends every RPC."""
        for channel in (*self._current.values(), *self._retired):
            await channel.close()

    async def _retire(self, key: object) -> None:
        """Retire the channel of a key; close the oldest retired one if there are more than MAX_RETIRED."""
        if (channel := self._current.pop(key, None)) is not None:
            self._retired.append(channel)
        if len(self._retired) > MAX_RETIRED:
            await self._retired.popleft().close()


def is_ready(channel: aio.Channel | None, connect: bool = False) -> bool:
    """Return whether a channel is connected; gRPC may report that a moment too long. `connect` connects an idle one."""
    return channel is not None and channel.get_state(connect) is ChannelConnectivity.READY


def is_refused(channel: aio.Channel | None) -> bool:
    """Return whether the last attempt to connect failed."""
    return channel is not None and channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE


async def await_response(call: aio.UnaryUnaryCall[Q, A]) -> A:
    """Wait for the response, in a task: gRPC loses track of who cancelled a wait, which cancel scopes must know.

    A done callback of gRPC would not do: gRPC calls none for a request that its core refuses.
    """
    task = asyncio.ensure_future(_await_outcome(call))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # read, or asyncio would log it
    try:
        await asyncio.wait((task,))
    finally:
        call.cancel()  # does nothing if the call is done
    return task.result()


async def _await_outcome(call: aio.UnaryUnaryCall[Q, A]) -> A:
    """Wait for the response of a call and return it. Raises AioRpcError."""
    return await call
