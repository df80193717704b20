"""What the runtime and the upstream room know of each other. No `mcp` here.

The runtime opens a `Link` through a `Connector` and implements `Inbound`; everything a server asks or tells
comes in there. JSON-RPC ids stay below: they are reused, the hub's own ids are not.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import Fault, UpstreamError
from hubbubd.telemetry.trace import Span, Trace


class Era(StrEnum):
    """The two families of protocol revisions: with a handshake (to 2025-11-25), and stateless (2026-07-28)."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a server said of itself when the connection was made. The dicts are MCP JSON."""

    protocol_version: str
    era: Era
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundRequest:
    """Something a server asks.

    `call_id` is the call on whose stream it came, when the wire says so. `withdrawn()` tells, once the handler
    is cancelled, whether the server took the request back (otherwise the connection went). `trace` is the span that it
    belongs to: the server's own, when it names one, else that of the request on whose stream it came.
    """

    method: str
    params: dict[str, Any]
    call_id: str | None = None
    trace: Trace | None = None
    withdrawn: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A result for the server; `sent` is called once, with None when it was handed to the transport and with the
    reason when it could not be."""

    result: dict[str, Any]
    sent: Callable[[str | None], None] | None = None


class ReplyError(Exception):
    """An error for the server instead of a `Reply`; `sent` as there."""

    def __init__(self, code: int, message: str, data: Any = None, sent: Callable[[str | None], None] | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.sent = sent


class Inbound(Protocol):
    """Who serves what comes from a server; the runtime implements it, one per connection."""

    async def on_request(self, request: InboundRequest) -> Reply:
        """Serves elicitation/create, sampling/createMessage, roots/list and tasks/*; ping is answered below.

        The shape of the params has been checked against the negotiated revision. Cancelled when the server
        withdraws the request or the connection goes. Raises ReplyError; anything else is an internal error.
        """
        ...

    def on_notification(self, method: str, params: dict[str, Any], call_id: str | None) -> None:
        """Takes a notification; progress of a call has gone to the call already. Must not block or raise."""
        ...

    def on_stderr(self, line: str) -> None:
        """Takes a line that a stdio server wrote to its standard error. Must not block or raise."""
        ...

    def on_throttled(self, rate: float, unit: str) -> None:
        """The server has sent more than it may for so long that it is read more slowly: at `rate` a second, of
        `unit` (messages, bytes). Must not block or raise.

        Called once, until it has sent less for a while.
        """
        ...

    async def authorize(self, url: str, redirect_uri: str, call_id: str | None) -> str:
        """Has a person visit `url` to let the hub in; returns the URL that the browser was sent back to.

        That one begins with `redirect_uri`, on loopback, and has the `state` of `url`. No time limit of its own but
        that of a pending request. Raises HubError when it is refused, or when nobody came in time.
        """
        ...

    def held_up(self, call_id: str | None) -> AbstractContextManager[None]:
        """While it is open, a call waits for access to the server: its clock stands. None for the hub's own."""
        ...


class Vault(Protocol):
    """Where the secrets that the hub itself was given for a server are kept, as JSON."""

    def get(self, server: str) -> dict[str, Any] | None:
        """What was put there last."""
        ...

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Keeps it in place of what was there, None nothing; durable on return. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """One progress notification of a call."""

    progress: float
    total: float | None
    message: str | None


class Link(Protocol):
    """An open connection to a server."""

    @property
    def hello(self) -> Hello:
        """What the server said of itself."""
        ...

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        call_id: str | None = None,
        on_progress: Callable[[ProgressUpdate], None] | None = None,
        span: Span | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns its result, checked against the negotiated revision.

        The server is told of `span`, which ends here; without one the exchange is a trace of its own.
        There is no time limit here: the caller owns the clock. Cancelling the wait tells the server.
        A `resultType: "input_required"` result is returned as it is.
        Raises PeerError (the server's own error) or UpstreamError: CONNECTION_LOST, SESSION_LOST,
        AUTHENTICATION_FAILED, RATE_LIMITED, INVALID_RESPONSE, HTTP_ERROR, METHOD_NOT_IN_REVISION.
        """
        ...

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Sends a notification; after the connection has gone it is dropped."""
        ...

    async def listen(self, notifications: dict[str, Any], on_acknowledged: Callable[[dict[str, Any]], None]) -> None:
        """Subscribes to what a stateless server tells (2026-07-28, subscriptions/listen); returns when it ends that.

        `notifications` is the filter; `on_acknowledged` gets the part of it that the server will tell of, before
        anything is told. That comes in at `Inbound.on_notification`. There is no replay: whoever subscribes again
        fetches again. Several subscriptions may be open; cancelling the wait ends this one.
        Raises as `request`, and METHOD_NOT_IN_REVISION for a server with a handshake.
        """
        ...

    async def probe(self) -> None:
        """Asks for a sign of life: ping, or server/discover where ping is gone. Raises as `request` does."""
        ...

    async def wait_lost(self) -> Fault:
        """Returns when the connection has gone by itself, with why (exit code and stderr of a process)."""
        ...

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines a stdio server wrote to stderr; empty for others."""
        ...


class LostDuringProbe(UpstreamError):
    """The connection died (CONNECTION_LOST) while it was being found out which era the server speaks."""


class Connector(Protocol):
    """Opens links."""

    def open(
        self, config: ServerConfig, inbound: Inbound, era: Era | None, confinement: Confinement | None
    ) -> AbstractAsyncContextManager[Link]:
        """A context manager around one connection; leaving it closes the connection and all it started.

        `era` is what was found last time, None to find out. `confinement` is for servers that were added over
        the API: what is started and reached is checked against it, each time. Entering takes at most
        `config.connect_timeout_s` and raises UpstreamError: CONNECTION_TIMEOUT, CONNECTION_REFUSED,
        CONNECTION_LOST (as LostDuringProbe when it died while the era was being found),
        COMMAND_NOT_FOUND, AUTHENTICATION_FAILED, RATE_LIMITED, HTTP_ERROR, INVALID_RESPONSE,
        PROTOCOL_VERSION_MISMATCH, VARIABLE_NOT_SET; COMMAND_NOT_ALLOWED, HOST_NOT_ALLOWED, VARIABLE_NOT_ALLOWED.
        """
        ...

    def spec_secrets(self, server: str) -> dict[str, Any] | None:
        """What was kept last with `keep_spec_secrets`."""
        ...

    async def keep_spec_secrets(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Keeps what a server was added with and the store must not have, as JSON; None nothing. Raises OSError."""
        ...

    async def forget(self, server: str) -> None:
        """Forgets what was kept to get access to a server. Raises OSError."""
        ...
