"""The shell of `core/servers/connection_states.py`: opens, pings, reconnects and closes connections as planned."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio
import anyio.lowlevel
import structlog

from hubbubd.config import Confinement, ServerConfig
from hubbubd.core.calls.call_faults import cancelled_fault
from hubbubd.core.servers import connection_states as core
from hubbubd.core.servers.connection_states import (
    ConnectionEvent,
    ConnectionState,
    Effect,
    RetryPolicy,
    ServerConnection,
)
from hubbubd.errors import Category, Fault, FaultCode, UpstreamError
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import End, ServerQueue
from hubbubd.runtime.servers.connections.log import log_transition
from hubbubd.runtime.servers.connections.pings import Pings
from hubbubd.runtime.servers.measures import Measures
from hubbubd.runtime.servers.notes import ServerNotes
from hubbubd.timing.bucket import Bucket
from hubbubd.timing.clock import Clock
from hubbubd.timing.slots import Slots
from hubbubd.upstream.ports import Connector, Era, Hello, Inbound, LostDuringProbe, McpLink

RECONNECTS_PER_S, RECONNECTS_AT_ONCE = 40.0, 5
"""Rate limit of reconnects over all servers, and its burst."""

HANDSHAKES, HANDSHAKE_S = 16, 0.25
"""How many attempts to connect run at once, and for how many seconds one counts: then it waits for its server alone."""

log = structlog.get_logger(__name__)


class ConnectLimits:
    """Limits the attempts to connect of all servers together, so that they are spread after a common failure."""

    def __init__(self) -> None:
        self._bucket = Bucket(RECONNECTS_PER_S, RECONNECTS_AT_ONCE, anyio.current_time())
        self._slots = Slots(HANDSHAKES, HANDSHAKE_S)

    async def wait_for_reconnect(self) -> None:
        """Wait until one more server may try again (rate limit)."""
        await anyio.sleep(self._bucket.take_into_debt(anyio.current_time()))

    async def begin(self) -> Callable[[], None]:
        """Wait until an attempt may begin; return a function to be called at the end of the attempt."""
        return await self._slots.take()


@dataclass(kw_only=True, eq=False, repr=False)
class ConnectionShell:
    """Keeps one server connected while it is wanted. `on_change` is called after every transition."""

    config: ServerConfig
    connector: Connector
    inbound: Inbound
    queue: ServerQueue
    clock: Clock
    measures: Measures
    on_change: Callable[[], None]
    confinement: Confinement | None
    limits: ConnectLimits
    background: Background
    may_act: Callable[[], bool]
    notes: ServerNotes

    def __post_init__(self) -> None:
        self.connection = ServerConnection()
        self.hello: Hello | None = None
        self.link: McpLink | None = None
        self._retry_policy = _retry_policy(self.config)
        self._pings: Pings | None = None
        self._is_handing_over = False
        self._end_of_calls = End.SERVER_GONE
        """How the server's calls end when the connection ends for good."""
        self._era: Era | None = None
        """The era of the last connection, or the one that an attempt has shown; None if nothing is known."""
        self._wanted_event = anyio.Event()
        self._retry_now = anyio.Event()
        self._lost_at = -math.inf
        self._connection_scope = anyio.CancelScope()
        self._cleaned_up = anyio.Event()

    @property
    def state(self) -> ConnectionState:
        return self.connection.state

    def connect(self) -> None:
        """Keep the server connected from now on; start an attempt to connect at once if it is not connected."""
        self.queue.closed = False
        self._end_of_calls = End.SERVER_GONE
        self._wanted_event.set()
        self._retry_now.set()

    def hasten(self) -> None:
        """Start the next attempt to connect at once if one is due later, as after a suspension of the computer."""
        self._retry_now.set()

    def adopt(self, config: ServerConfig) -> None:
        """Apply options that need no new connection."""
        self.config = config
        self._retry_policy = _retry_policy(config)
        if self._pings is not None:
            self._pings.adopt(config)

    async def hand_over(self, fault: Fault) -> None:
        """End the connection for good, but leave its calls in the queue for the shell that follows this one."""
        self._is_handing_over = True
        await self.disconnect(fault)

    async def disconnect(self, fault: Fault, end: End = End.SERVER_GONE) -> None:
        """End the connection, its attempts and its calls; return when everything is cleaned up."""
        self._end_of_calls = end
        if self._wanted_event.is_set():  # an unset event must stay: `run` may be waiting for it
            self._wanted_event = anyio.Event()
        if not self._is_handing_over:
            self.queue.closed = True
        if self.state is ConnectionState.DISCONNECTED:
            if not self._is_handing_over:
                self.queue.stop_all(fault, end)
            return
        if self.state is not ConnectionState.DISCONNECTING:
            self._apply_event(ConnectionEvent.DISCONNECT, fault=fault)
            self._cleaned_up = anyio.Event()
            self._connection_scope.cancel()
        await self._cleaned_up.wait()

    async def run(self) -> None:
        """Keep the server connected while it is wanted: from `connect` until `disconnect` or giving up."""
        while True:
            while not self._wanted_event.is_set():  # `disconnect` may have replaced the event
                await self._wanted_event.wait()
            with anyio.CancelScope() as self._connection_scope:
                self._apply_event(ConnectionEvent.CONNECT)
                await self._keep_connected()
                if self.state is ConnectionState.DISCONNECTED:
                    # Given up: wait for the next `connect`.
                    self._wanted_event = anyio.Event()
            if self.state is ConnectionState.DISCONNECTING:
                self._apply_event(ConnectionEvent.CLEANUP_COMPLETE)
                self._cleaned_up.set()

    async def _keep_connected(self) -> None:
        """Attempt to connect, and again after each loss, until the retries are used up."""
        while self.state is not ConnectionState.DISCONNECTED:
            if self.state is ConnectionState.CONNECTING:
                event, fault = await self._attempt_connection()
                if self._connection_scope.cancel_called:  # `disconnect` was called as the attempt ended by itself
                    return
                self._apply_event(event, fault=fault)
            elif self.connection.next_retry_at is None:
                self._apply_event(ConnectionEvent.GIVE_UP)
            else:
                self._retry_now = anyio.Event()
                with anyio.move_on_after(max(self.connection.next_retry_at - self.clock.now(), 0.0)):
                    await self._retry_now.wait()
                await self.limits.wait_for_reconnect()
                self._apply_event(ConnectionEvent.RECONNECT)

    async def _attempt_connection(self) -> tuple[ConnectionEvent, Fault]:
        """Open a connection and use it until it ends; return how it ended."""
        end_attempt = await self.limits.begin()
        self.notes.begin_attempt()
        try:
            async with self.connector.open(self.config, self.inbound, self._era, self.confinement) as link:
                end_attempt()
                return await self._use_link(link)
        except UpstreamError as exc:
            fault = exc.fault
            if isinstance(exc, LostDuringProbe):
                # A server that has answered a probe before was lost by chance: skip the probe only the second time.
                self._era = None if self._era is Era.STATELESS else Era.HANDSHAKE
        except Exception as exc:
            log.exception("connection attempt failed: internal error", server=self.config.name)
            fault = Fault(
                code="INTERNAL",
                category=Category.TRANSPORT,
                message=f"the hub failed: {type(exc).__name__}",
                retryable=True,
            )
        finally:
            end_attempt()
        if self.state is ConnectionState.CONNECTED:
            return ConnectionEvent.CONNECTION_LOST, fault
        return (
            ConnectionEvent.TIMEOUT if fault.category is Category.TIMEOUT else ConnectionEvent.TRANSPORT_ERROR
        ), fault

    async def _use_link(self, link: McpLink) -> tuple[ConnectionEvent, Fault]:
        """Send pings, and let calls be sent, over a connection until it is lost or silent; return how it ended."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # `disconnect` may have been called as the link opened
        self.link, self.hello, self._era = link, link.hello, link.hello.era
        silence_faults: list[Fault] = []

        def on_silence(fault: Fault) -> None:
            """Note the fault, and end the wait for the loss of the link."""
            silence_faults.append(fault)
            waiting.cancel()

        waiting = anyio.CancelScope()
        self._pings = Pings(
            link, self.config, self.background, is_busy=self._is_busy, on_silence=on_silence, note=self.notes.note
        )
        try:
            self.notes.drop_outdated()
            self._apply_event(ConnectionEvent.HANDSHAKE_COMPLETE)
            with waiting:
                fault = await link.wait_lost()
                return self._loss_event(fault), fault
            return ConnectionEvent.CONNECTION_LOST, silence_faults[0]
        finally:
            self._pings.stop()
            self._pings = None
            self.link = None
            self.queue.set_link(None)  # before the calls on the wire fail and others leave the queue

    def _is_busy(self) -> bool:
        """Return whether a ping without an answer is no miss: a call is under way, or this hub may not act now."""
        return self.queue.is_busy or not self.may_act()

    def _loss_event(self, fault: Fault) -> ConnectionEvent:
        """Return the event of a loss: SESSION_LOST, which reconnects at once, unless the loss before was recent."""
        lost_before, self._lost_at = self._lost_at, anyio.current_time()
        was_stable = self._lost_at - lost_before >= max(self.config.stable_after_s, core.STABLE_S)
        return (
            ConnectionEvent.SESSION_LOST
            if fault.code == FaultCode.SESSION_LOST and was_stable
            else ConnectionEvent.CONNECTION_LOST
        )

    def _apply_event(self, event: ConnectionEvent, *, fault: Fault | None = None) -> None:
        """Make the transition that an event causes: measure it, act on it, log it and publish it."""
        now = self.clock.now()
        jitter = random.random()  # noqa: S311 - spreads retries, guards nothing
        before = self.connection
        self.connection, effect = core.plan(before, event, now, self._retry_policy, fault=fault, jitter=jitter)
        self.measures.record_transition(self.config, self.hello, before, event, fault)
        if effect is not None:
            self._apply_effect(effect, event, fault)
        log_transition(self.config.name, event, self.connection, now, fault)
        self.on_change()

    def _apply_effect(self, effect: Effect, event: ConnectionEvent, fault: Fault | None) -> None:
        """Apply the effect of a transition to the server's calls."""
        match effect:
            case Effect.RELEASE_CALLS:
                self.queue.set_link(self.link)
            case Effect.FAIL_ALL_CALLS:
                if self._is_handing_over:  # the next shell goes on with them
                    return
                self.queue.closed = True
                self.queue.give_up_fault = self.connection.fault if event is ConnectionEvent.GIVE_UP else None
                self.queue.stop_all(_end_fault(self.config.name, fault or self.connection.fault), self._end_of_calls)


def _retry_policy(config: ServerConfig) -> RetryPolicy:
    """Return when and how often to reconnect, by a server's options."""
    return RetryPolicy(
        retries=config.retries,
        backoff_s=config.backoff_s,
        backoff_max_s=config.backoff_max_s,
        stable_after_s=config.stable_after_s,
        retryable_errors=None if config.retryable_errors is None else frozenset(config.retryable_errors),
    )


def _end_fault(server: str, fault: Fault | None) -> Fault:
    """Return the fault with which a server's calls end when its connection will not come back."""
    if fault is None or fault.category is Category.CANCELLED:
        return fault or cancelled_fault(f"{server} was disconnected", "SERVER_DISCONNECTED")
    return replace(fault, message=f"the hub gave up on {server}: {fault.message}")
