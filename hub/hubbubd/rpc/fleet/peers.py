"""Connections to the other members, one each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import grpc
import structlog

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbub.fleet.v1 import fleet_pb2_grpc
from hubbubd import bounds
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.rpc.listeners.tls import channel_credentials
from hubbubd.runtime.ownership import Owner

if TYPE_CHECKING:
    from hubbub.fleet.v1.fleet_pb2_grpc import FleetServiceAsyncStub

log = structlog.get_logger(__name__)

CONNECT_MS = 2_000
"""Milliseconds that a connection to a member may take."""

HELLO_S = 2.0
"""Seconds within which a member must answer Hello."""

KEEPALIVE_MS = 5_000
"""Milliseconds without traffic until a connection gets a ping, and then to answer the ping."""


_UNANSWERED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


class Unreached(Exception):
    """A member cannot be reached; nothing was sent to it. `why` is a clause about the member, for people."""

    why = "which is not reached at the moment"


@dataclass(frozen=True, slots=True)
class _Peer:
    owner: Owner
    credentials: grpc.ChannelCredentials
    channel: grpc.aio.Channel
    stub: "FleetServiceAsyncStub"


class Peers:
    """Connections to the other members. Each must show a certificate of the fleet that has its name."""

    def __init__(self, tls: TlsFiles, max_message_bytes: int) -> None:
        """`max_message_bytes` limits what a member sends. Raises ConfigError for unusable TLS files."""
        self._credentials = channel_credentials(tls)
        self._max_message_bytes = max_message_bytes
        self._peers: dict[str, _Peer] = {}

    async def reach(self, owner: Owner) -> "FleetServiceAsyncStub":
        """Return the gRPC stub of a member, connected within CONNECT_MS. Raises Unreached.

        A request sent over it may have been carried out, unless its status says that no handler has taken it.
        """
        peer = self._peers.get(owner.member)
        if peer is not None and peer.owner.forward == owner.forward and _is_ready(peer.channel):
            return peer.stub
        peer = await self._ensure_connection(peer, owner)
        with anyio.move_on_after(CONNECT_MS / 1000):
            async with translate_cancellation():
                if await _wait_until_connected(peer.channel):
                    return peer.stub
        log.debug("member not reached", member=owner.member, address=owner.forward)
        raise Unreached

    async def answers(self, owner: Owner) -> bool:
        """Return whether a member, in the term that `owner` names, answers within HELLO_S, if only by an error."""
        try:
            hello = await self._hello(owner)
        except (Unreached, TimeoutError):
            return False
        except grpc.aio.AioRpcError as exc:
            return exc.code() not in _UNANSWERED
        return (hello.member, hello.life) == (owner.member, owner.term)

    async def clock_of(self, owner: Owner) -> float | None:
        """Return by how many seconds the database's clock is ahead of a member's; None if the member does not say."""
        try:
            hello = await self._hello(owner)
        except (Unreached, TimeoutError, grpc.aio.AioRpcError):
            return None
        return bounds.clamp_real(hello.clock_offset.seconds + hello.clock_offset.nanos / 1e9)

    async def _hello(self, owner: Owner) -> pb.HelloResponse:
        """Return a member's name, term and clock. Raises Unreached, TimeoutError and AioRpcError."""
        with anyio.fail_after(HELLO_S):
            stub = await self.reach(owner)
            async with translate_cancellation():
                return await stub.Hello(pb.HelloRequest(), timeout=HELLO_S)

    async def _ensure_connection(self, peer: _Peer | None, owner: Owner) -> _Peer:
        """Return the connection to a member: `peer`, or a new one if its address or our certificate has changed."""
        credentials = self._credentials()
        if peer is not None and peer.owner.forward == owner.forward and peer.credentials is credentials:
            return peer
        options = self._channel_options(owner.member)
        channel = grpc.aio.secure_channel(owner.forward, credentials, options=options)
        stub: FleetServiceAsyncStub = fleet_pb2_grpc.FleetServiceStub(channel)
        new_peer = self._peers[owner.member] = _Peer(owner, credentials, channel, stub)
        if peer is not None:
            await peer.channel.close()
        return new_peer

    def _channel_options(self, member: str) -> list[tuple[str, str | int]]:
        """Return gRPC's options for the connection to a member: the name to show, limits, keepalive, reconnection."""
        return [
            # The certificate is checked for the member's name: it may be reached at an address of any name.
            ("grpc.ssl_target_name_override", member),
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.max_send_message_length", self._max_message_bytes),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
            ("grpc.enable_http_proxy", 0),
        ]

    async def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            await peer.channel.close()


@asynccontextmanager
async def translate_cancellation() -> AsyncGenerator[None]:
    """Make a CancelledError that gRPC raises in the block fit for cancel scopes.

    gRPC also raises one for an RPC whose channel is closed, although this task was not cancelled. That one is replaced
    by an AioRpcError (UNAVAILABLE: the RPC may have started).
    """
    try:
        yield
    except asyncio.CancelledError:
        await anyio.lowlevel.checkpoint_if_cancelled()
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "the channel was closed") from None


async def read_response(stream: Any) -> Any:
    """Return the next response of an RPC at a member, or EOF. Raises AioRpcError."""
    async with translate_cancellation():
        return await stream.read()


def _is_ready(channel: grpc.aio.Channel) -> bool:
    """Return whether a channel is connected. As an effect, an idle channel begins to connect."""
    return channel.get_state(True) is grpc.ChannelConnectivity.READY


async def _wait_until_connected(channel: grpc.aio.Channel) -> bool:
    """Have a channel connect, wait for that, and return True; False if it cannot be connected now."""
    while True:
        state = channel.get_state(True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return False
        await channel.wait_for_state_change(state)
