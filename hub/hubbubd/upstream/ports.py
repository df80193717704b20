"""The contract between `runtime` and `upstream`. No `mcp` here.

The runtime opens a `McpLink` through a `Connector` and implements `Inbound`, which receives everything a server asks or
notifies of. JSON-RPC ids stay below: they are reused, the hub's own ids are not.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import Fault, UpstreamError
from hubbubd.telemetry.trace import Span, Trace


class Era(StrEnum):
    """The two families of protocol revisions: with a handshake (up to 2025-11-25), and stateless (from 2026-07-28)."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A server's introduction when the connection was made. The dicts are MCP JSON."""

    protocol_version: str
    era: Era
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundRequest:
    """A request of a server.

    `call_id` is the call on whose stream it came, where the wire says so. `withdrawn()` tells, once the handler is
    cancelled, whether the server cancelled the request (otherwise the connection ended). `trace` is the server's span
    if the request names one, else that of the request on whose stream it came.
    """

    method: str
    params: dict[str, Any]
    call_id: str | None = None
    trace: Trace | None = None
    withdrawn: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundReply:
    """A result for the server.

    `on_sent` is called once, with None when it was handed to the transport, else with the reason why not.
    """

    result: dict[str, Any]
    on_sent: Callable[[str | None], None] | None = None


class ReplyError(Exception):
    """An error for the server instead of an `InboundReply`; `on_sent` is called as that of a reply."""

    def __init__(self, code: int, message: str, data: Any = None, on_sent: Callable[[str | None], None] | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.on_sent = on_sent


class Inbound(Protocol):
    """Serves what comes from a server; implemented by the runtime, one per connection."""

    async def on_request(self, request: InboundRequest) -> InboundReply:
        """Serve elicitation/create, sampling/createMessage, roots/list and tasks/*; ping is answered below.

        The params were validated against the negotiated revision. Cancelled when the server cancels the request or the
        connection ends. Raises ReplyError; any other exception is an internal error.
        """
        ...

    def on_notification(self, method: str, params: dict[str, Any], call_id: str | None) -> None:
        """Handle a notification; progress has reached its call already. Must not block or raise."""
        ...

    def on_stderr(self, line: str) -> None:
        """Handle a line that a stdio server wrote to stderr. Must not block or raise."""
        ...

    def on_throttled(self, rate: float, unit: str) -> None:
        """Note that the server exceeds its rate limit and is read at `rate` per second of `unit` (messages, bytes).

        Called once per flood. Must not block or raise.
        """
        ...

    def note(self, kind: str, text: str | None, *, lasting: bool = False) -> None:
        """Note for the operator how the server deviates from MCP, and how the hub handles that.

        `text` is one sentence in which "it" is the server; `deviations.describe_deviation` has those of the table. A
        later text of the same `kind` replaces the earlier one, and None withdraws it. A note holds until the next
        connection is made, a `lasting` one until it is withdrawn. A note that changes nothing costs almost nothing.
        Must not block or raise.
        """
        ...

    async def authorize(self, url: str, redirect_uri: str, call_id: str | None) -> str:
        """Have a person visit `url` to authorize the hub; return the URL that the browser was redirected to.

        The returned URL starts with `redirect_uri`, on loopback, and has the `state` of `url`. The only time limit is
        that of a pending request. Raises HubError when the person refuses, or does not answer in time.
        """
        ...

    def pause_clock(self, call_id: str | None) -> AbstractContextManager[None]:
        """Pause the clock of a call for the block, in which a person authorizes; None is for the hub's own requests."""
        ...


Permit = Callable[[], Awaitable[None]]
"""Returns once the hub may send to its servers. Raises UpstreamError (OWNER_LOST) if it never may again."""


class SecretsVault(Protocol):
    """Storage of the secrets that the hub has for each server, as JSON."""

    def get(self, server: str) -> dict[str, Any] | None:
        """Return what was stored last, as far as this hub knows; None if nothing is stored."""
        ...

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Replace what is stored, None deletes it; durable on return.

        Raises OSError: Overtaken when another member of the fleet has stored something since this one knew it, or when
        this one is not a member any more.
        """
        ...

    async def refresh(self, *servers: str) -> None:
        """Read again what is stored for servers, since other members of the fleet may have changed it. Raises OSError.

        A name may be NAME or NAME/PART: all parts of the server are read.
        """
        ...


def oauth_owner(server: str) -> str:
    """Return the name under which a server's OAuth secrets are redacted; never a server's, as that has no slash."""
    return f"{server}/oauth"


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """A progress notification of a call."""

    progress: float
    total: float | None
    message: str | None


class McpLink(Protocol):
    """An open connection to a server."""

    log_level: str | None
    """The log level that requests ask for if they name none themselves (from 2026-07-28 on); None asks for none."""

    @property
    def hello(self) -> Hello:
        """The server's introduction."""
        ...

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        call_id: str | None = None,
        on_progress: Callable[[ProgressUpdate | None], None] | None = None,
        span: Span | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result, validated against the negotiated revision.

        The request carries `span`, which ends here; without one it gets a span of its own. There is no time limit: the
        caller owns the clock. Cancellation is sent to the server. `on_progress` gets the progress, or None when another
        notification names the request: a sign of work. A `resultType: "input_required"` result is returned as it is.
        Raises PeerError (the server's own error) or UpstreamError: CONNECTION_LOST, SESSION_LOST,
        AUTHENTICATION_FAILED, RATE_LIMITED, INVALID_RESPONSE, HTTP_ERROR, METHOD_NOT_IN_REVISION.
        """
        ...

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Send a notification; dropped once the connection is gone."""
        ...

    async def listen(self, notifications: dict[str, Any], on_acknowledged: Callable[[dict[str, Any]], None]) -> None:
        """Subscribe to a stateless server's notifications, and return when the server ends the subscription.

        (2026-07-28, subscriptions/listen.)

        `notifications` is the filter; `on_acknowledged` gets the part of it that the server honours, before any
        notification. These arrive at `Inbound.on_notification`. There is no replay: fetch again after each
        acknowledgement. Several subscriptions may be open; cancellation ends this one. Raises as `request`, and
        METHOD_NOT_IN_REVISION for a server with a handshake.
        """
        ...

    async def probe(self, *, by_list: bool = False) -> None:
        """Check that the server responds: ping, or server/discover where ping is gone. Raises UpstreamError.

        With `by_list` it is tools/list that is sent, to a server which may ignore pings.
        """
        ...

    async def wait_lost(self) -> Fault:
        """Wait until the connection has ended or is closed; return why (of a process with exit code and stderr)."""
        ...

    def missing_response_hint(self) -> str | None:
        """Return what may explain why a response is missing, as the end of a sentence; None if nothing does."""
        ...

    def stderr_tail(self) -> tuple[str, ...]:
        """Return the last lines a stdio server wrote to stderr; empty for others."""
        ...


class LostDuringProbe(UpstreamError):
    """The connection was lost (CONNECTION_LOST) while the server's era was probed."""


class Connector(Protocol):
    """Opens links."""

    def open(
        self, config: ServerConfig, inbound: Inbound, era: Era | None, confinement: Confinement | None
    ) -> AbstractAsyncContextManager[McpLink]:
        """Return a context manager around one connection; leaving it closes the connection and all it started.

        `era` is what was found last time, None to find out. `confinement` is for servers added over the API: what is
        started and reached is checked against it, each time. Entering takes at most `config.connect_timeout_s`, or five
        minutes after a start that had to download, and raises UpstreamError: CONNECTION_TIMEOUT, CONNECTION_REFUSED,
        CONNECTION_LOST (as LostDuringProbe during the probe), COMMAND_NOT_FOUND, AUTHENTICATION_FAILED, RATE_LIMITED,
        HTTP_ERROR, INVALID_RESPONSE, PROTOCOL_VERSION_MISMATCH, VARIABLE_NOT_SET; COMMAND_NOT_ALLOWED,
        HOST_NOT_ALLOWED, VARIABLE_NOT_ALLOWED.
        """
        ...

    def spec_secrets(self, server: str) -> dict[str, Any] | None:
        """Return the secrets of a server's spec that were stored last; None if there are none."""
        ...

    async def store_spec_secrets(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Store the secrets of a server's spec, as JSON; None deletes them. Raises OSError, Overtaken in a race."""
        ...

    async def refresh_secrets(self, *servers: str) -> None:
        """Read again all secrets of servers, since other members of the fleet may have changed them. Raises OSError."""
        ...

    async def delete_oauth_secrets(self, server: str) -> None:
        """Delete the OAuth tokens and the registered client of a server. Raises OSError."""
        ...
