"""Context variables that travel beside a message: whose call it belongs to, and what became of it.

The transports over HTTP send each message in a copy of its sender's context, and handle what arrives on that message's
response stream in the same copy. So a variable set before sending is visible to the HTTP client below, and to
what the server asks on that stream.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass

from hubbubd.errors import Fault
from hubbubd.telemetry.trace import Trace


class ConnectionClosed(Exception):
    """The response can no longer come."""


class UnusableResponse(Exception):
    """What came in the place of the response cannot be used; the message says why."""


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """An outgoing message with an outcome: a request, or the answer to a server's request.

    Requests have `method` and `request_id`, over HTTP also the `status` of the response and, in a session, a
    `session_id`. `error_lacks_id` says that an error response had no id. With `may_authorize` a request may wait for
    a person to authorize the hub. `fault` is why its response did not come; if not `was_sent`, the server cannot have
    received the message.
    `on_settled` is called once about an answer, with None when it was handed over, else with the reason.
    """

    awaits_result: bool
    _: KW_ONLY
    may_authorize: bool = True
    method: str = ""
    request_id: int | None = None
    session_id: str | None = None
    fault: Fault | None = None
    was_sent: bool = True
    status: int = 200
    error_lacks_id: bool = False
    on_settled: Callable[[str | None], None] | None = None

    def settle(self, reason: str | None) -> None:
        """Report the outcome of the answer, once: `reason` says why it was not handed over, None that it was."""
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled(reason)


CALL: ContextVar[str | None] = ContextVar("hubbub_call", default=None)
"""Id of the call that the current stream belongs to."""


@dataclass(slots=True, eq=False)
class SpanScope:
    """The span of a request under way or of a connection attempt; `outgoing` is what was sent last."""

    trace: Trace
    outgoing: OutgoingMessage | None = None


SPAN_SCOPE: ContextVar[SpanScope | None] = ContextVar("hubbub_place", default=None)
"""The span of the request whose stream this is, or of the connection attempt."""

SIZE: ContextVar[int] = ContextVar("hubbub_size", default=0)
"""Size in bytes of the message received last."""

OUTGOING: ContextVar[OutgoingMessage | None] = ContextVar("hubbub_exchange", default=None)
"""The message being sent; None for a notification."""
