"""The port at which a member serves the others, and its connections to them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import grpc

from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.errors import ConfigError
from hubbubd.rpc.fleet.calls import CallsElsewhere
from hubbubd.rpc.fleet.changes import OwnershipChanges, cancel_and_wait
from hubbubd.rpc.fleet.forwards.forwarding import Forwarding
from hubbubd.rpc.fleet.live import LiveElsewhere
from hubbubd.rpc.fleet.peers import KEEPALIVE_MS, Peers
from hubbubd.rpc.fleet.service import FleetService
from hubbubd.rpc.listeners import sockets as listening
from hubbubd.rpc.listeners.grpc_server import MAX_RPCS, make_servicers
from hubbubd.rpc.listeners.tls import grpc_credentials
from hubbubd.rpc.methods import RpcSettings, list_rpcs
from hubbubd.runtime.hub import Hub

ENDING_S = 1.0
"""Seconds for forwarded RPCs to end, once the hub has been drained."""

# The settings of a fleet, by the keys of TLS that errors name.
_SETTINGS = {"tls_cert": "fleet.cert", "tls_key": "fleet.key", "tls_client_ca": "fleet.ca"}


class FleetPort:
    """This member's port for the others. It is bound before the hub is open, since its address is published first."""

    def __init__(self, settings: FleetSettings, max_message_bytes: int) -> None:
        """Bind the port; `max_message_bytes` limits requests. Raises ConfigError, and OSError if it is taken."""
        self._settings = settings
        self._max_message_bytes = max_message_bytes
        self._started = False
        # A record has both request and response, and each may be as large as the limit.
        self._max_rpc_bytes = 4 * max_message_bytes + 64 * 1024
        self._server = grpc.aio.server(options=self._server_options(), maximum_concurrent_rpcs=MAX_RPCS)
        try:
            settings.check_certificate()
            self._peers = Peers(settings.tls, self._max_rpc_bytes)
            bound = listening.bind(self._server, settings.listen, grpc_credentials(settings.tls))
        except ConfigError as exc:
            raise ConfigError(_SETTINGS.get(exc.key, "fleet.listen"), exc.problem) from None
        self.address = settings.reached_at or bound
        """HOST:PORT at which other members reach this one."""

    async def close(self) -> None:
        """Close the port and the connections to other members; also before `serve`, and more than once."""
        with anyio.CancelScope(shield=True):
            await self._peers.close()
            await self._start()  # gRPC closes at once only the socket of a started server
            await self._server.stop(ENDING_S)

    async def _start(self) -> None:
        """Start the gRPC server, unless it was started before."""
        if not self._started:
            self._started = True
            with anyio.CancelScope(shield=True):  # cancelled, it would start all the same, and would not be stopped
                await self._server.start()

    @asynccontextmanager
    async def serve(self, hub: Hub, *, term: int) -> AsyncGenerator[Forwarding]:
        """Serve the other members during the block, and yield what forwards to them. `term` is that of this member.

        Meanwhile calls of other members' servers are forwarded, and the fleet asks members for their clocks over this
        port.
        """
        changes = OwnershipChanges(hub.ownership)
        servicers = make_servicers(hub, RpcSettings(self._max_message_bytes, ()))
        rpcs = {rpc.path: rpc for each in servicers for rpc in list_rpcs(*each, self._max_message_bytes)}
        live_elsewhere = LiveElsewhere(hub.calls.live, hub.ownership, self._peers, changes)
        fleet = hub.fleet
        service = FleetService(
            rpcs,
            hub.calls.live,
            hub.ownership,
            changes,
            hub.store,
            name=self._settings.name,
            term=term,
            clock_ahead_s=lambda: 0.0 if fleet is None else fleet.time.ahead_s,
        )
        self._server.add_generic_rpc_handlers([service.make_handler()])
        await self._start()
        listener = asyncio.create_task(live_elsewhere.run())
        try:
            forwarding = Forwarding(hub, self._peers, changes, live_elsewhere)
            hub.calls.remote = CallsElsewhere(hub, forwarding)
            if fleet is not None:
                fleet.answers, fleet.clock_of = self._peers.answers, self._peers.clock_of
            yield forwarding
        finally:
            hub.calls.remote = None
            with anyio.CancelScope(shield=True):
                await cancel_and_wait(listener)
                await self.close()

    def _server_options(self) -> list[tuple[str, int]]:
        """Return the options of the gRPC server: one process per port, limits of messages, keepalive."""
        return [
            ("grpc.so_reuseport", 0),  # a second member on the port must fail, not share it
            ("grpc.max_receive_message_length", self._max_rpc_bytes),
            ("grpc.max_send_message_length", self._max_rpc_bytes),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ]
