"""The state machine of a server connection, as data.

    DISCONNECTED ── connect ──> CONNECTING ── handshake_complete ──> CONNECTED
                                  │  ^  ^                              │   │
                 timeout,         │  │  └──────── session_lost ────────┘   │
                 transport_error  v  │ reconnect                           │
                                 ERROR <──────── connection_lost ──────────┘
                                   └── give_up ──> DISCONNECTED

    disconnect leads from CONNECTING, CONNECTED and ERROR to DISCONNECTING, and cleanup_complete on to DISCONNECTED.

`plan` is the only transition function: it counts attempts, schedules the retry (exponential backoff) and returns the
effect on the server's calls. Whether to open, ping, close or wait follows from the state alone
(`runtime/servers/connections/shell.py`). An event without a row in the table is a bug of the caller and raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from hubbubd.bounds import Count, Moment
from hubbubd.core.servers import backoff
from hubbubd.errors import Category, Fault


class ConnectionState(StrEnum):
    """State of a connection; `TRANSITIONS` has what may follow."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    DISCONNECTING = "disconnecting"
    ERROR = "error"


class ConnectionEvent(StrEnum):
    """What happened to a connection."""

    CONNECT = "connect"
    HANDSHAKE_COMPLETE = "handshake_complete"
    TIMEOUT = "timeout"
    TRANSPORT_ERROR = "transport_error"
    CONNECTION_LOST = "connection_lost"
    SESSION_LOST = "session_lost"
    RECONNECT = "reconnect"
    GIVE_UP = "give_up"
    DISCONNECT = "disconnect"
    CLEANUP_COMPLETE = "cleanup_complete"


class Effect(StrEnum):
    """What a transition does to the server's calls."""

    RELEASE_CALLS = "release_calls"
    FAIL_ALL_CALLS = "fail_all_calls"


TRANSITIONS: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = MappingProxyType(
    {
        (ConnectionState.DISCONNECTED, ConnectionEvent.CONNECT): ConnectionState.CONNECTING,
        (ConnectionState.CONNECTING, ConnectionEvent.HANDSHAKE_COMPLETE): ConnectionState.CONNECTED,
        (ConnectionState.CONNECTING, ConnectionEvent.TIMEOUT): ConnectionState.ERROR,
        (ConnectionState.CONNECTING, ConnectionEvent.TRANSPORT_ERROR): ConnectionState.ERROR,
        (ConnectionState.CONNECTED, ConnectionEvent.CONNECTION_LOST): ConnectionState.ERROR,
        (ConnectionState.CONNECTED, ConnectionEvent.SESSION_LOST): ConnectionState.CONNECTING,
        (ConnectionState.ERROR, ConnectionEvent.RECONNECT): ConnectionState.CONNECTING,
        (ConnectionState.ERROR, ConnectionEvent.GIVE_UP): ConnectionState.DISCONNECTED,
        (ConnectionState.CONNECTING, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
        (ConnectionState.CONNECTED, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
        (ConnectionState.ERROR, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
        (ConnectionState.DISCONNECTING, ConnectionEvent.CLEANUP_COMPLETE): ConnectionState.DISCONNECTED,
    }
)

EFFECTS: Mapping[ConnectionEvent, Effect] = MappingProxyType(
    {
        ConnectionEvent.HANDSHAKE_COMPLETE: Effect.RELEASE_CALLS,
        ConnectionEvent.GIVE_UP: Effect.FAIL_ALL_CALLS,
        ConnectionEvent.DISCONNECT: Effect.FAIL_ALL_CALLS,
    }
)
"""The effect of each event on the calls. Calls on the wire when a connection is lost each fail by themselves."""


class IllegalTransition(Exception):
    """The state machine has no such transition; nothing was changed."""

    def __init__(self, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{event} is not possible in {state}")


TRANSIENT_CODES = frozenset({"INVALID_RESPONSE"})
"""Fault codes after which a connection may be tried again, though a call must not.

Something on the way can have answered in the server's place, such as a maintenance page or a captive portal.
"""


STABLE_S = 1.0
"""Seconds a connection must have been up to count as stable, however small `stable_after_s` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to reconnect. `retries` counts attempts after the first failure, -1 is without limit; `*_s` are seconds.

    `retryable_errors` are the fault codes to retry; None leaves it to each fault's `retryable`.
    """

    retries: int = -1
    backoff_s: tuple[float, ...] = (1, 2, 4)
    backoff_max_s: float = 60
    stable_after_s: float = 10
    retryable_errors: frozenset[str] | None = None

    def allows(self, fault: Fault, attempt: int) -> bool:
        """Return whether a retry follows failed attempt number `attempt`."""
        is_transient = fault.retryable or fault.code in TRANSIENT_CODES
        is_retryable = is_transient if self.retryable_errors is None else fault.code in self.retryable_errors
        return is_retryable and (self.retries < 0 or attempt <= self.retries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConnection:
    """A connection's record. `attempt` counts consecutive failures; times are seconds since the epoch.

    `gave_up` says that the hub has stopped retrying until a connect is requested.
    """

    state: ConnectionState = ConnectionState.DISCONNECTED
    attempt: Count = 0
    fault: Fault | None = None
    next_retry_at: Moment | None = None
    connected_at: Moment | None = None
    gave_up: bool = False


UNKNOWN_FAULT = Fault(
    code="CONNECTION_LOST", category=Category.CONNECTION, message="the connection was lost", retryable=True
)


def plan(
    connection: ServerConnection,
    event: ConnectionEvent,
    now: float,
    policy: RetryPolicy,
    *,
    fault: Fault | None = None,
    jitter: float = 0.0,
) -> tuple[ServerConnection, Effect | None]:
    """Return the record after an event, and the effect on the calls. Raises IllegalTransition.

    A connection that was up for `stable_after_s` resets `attempt`. A connection that flaps keeps the count, so that the
    hub waits longer and gives up as if it had never come up.
    """
    state = TRANSITIONS.get((connection.state, event))
    if state is None:
        raise IllegalTransition(connection.state, event)
    if state is ConnectionState.ERROR:
        return _plan_retry(connection, now, policy, fault or UNKNOWN_FAULT, jitter), None
    match event:
        case ConnectionEvent.CONNECT:
            after = ServerConnection(state=state)
        case ConnectionEvent.HANDSHAKE_COMPLETE:
            after = replace(connection, state=state, fault=None, next_retry_at=None, connected_at=now)
        case ConnectionEvent.GIVE_UP:
            after = replace(connection, state=state, next_retry_at=None, gave_up=True)
        case ConnectionEvent.CLEANUP_COMPLETE:
            after = ServerConnection(state=state)
        case _:  # the connection is over, or tried again
            attempt = 0 if _was_stable(connection, now, policy) else connection.attempt
            after = replace(connection, state=state, attempt=attempt, next_retry_at=None, connected_at=None)
    return after, EFFECTS.get(event)


def _was_stable(connection: ServerConnection, now: float, policy: RetryPolicy) -> bool:
    """Return whether a connection has been up for so long that earlier failures do not count."""
    required_s = max(policy.stable_after_s, STABLE_S)
    return connection.connected_at is not None and now - connection.connected_at >= required_s


def _plan_retry(
    connection: ServerConnection,
    now: float,
    policy: RetryPolicy,
    fault: Fault,
    jitter: float,
) -> ServerConnection:
    """Return the record after a failure, with the time of the next attempt; without that time the hub gives up."""
    attempt = (0 if _was_stable(connection, now, policy) else connection.attempt) + 1
    if not policy.allows(fault, attempt):
        return ServerConnection(state=ConnectionState.ERROR, attempt=attempt, fault=fault)
    wait_s = backoff.delay_s(attempt, policy.backoff_s, policy.backoff_max_s, jitter)
    wait_s = max(wait_s, backoff.clamp_retry_after_s(fault.retry_after_s))  # Retry-After, clamped to an hour
    return ServerConnection(state=ConnectionState.ERROR, attempt=attempt, fault=fault, next_retry_at=now + wait_s)
