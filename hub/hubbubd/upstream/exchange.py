"""What travels beside a message, in its sender's context: whose call it is, and what became of it.

The SDK's HTTP transport sends each message in a copy of its sender's context, and runs what arrives on that
message's response stream in the same one. So a variable set before sending is seen by the HTTP client below,
and by whatever the server asks on that stream.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field

from hubbubd.errors import Fault
from hubbubd.telemetry.trace import Trace
from hubbubd.upstream.again import Pace


class ConnectionClosed(Exception):
    """The response can no longer come."""


class UnusableResponse(Exception):
    """What came in the place of the response cannot be used; the message says why."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One outgoing message that somebody waits for: a request, or the answer to a server's request.

    A request has a `method`, a `request_id`, over HTTP perhaps a `session_id`; `unknown_session` says that it was
    refused as one of a session that the server does not know, `pace` how often its stream may be opened. One that is
    `patient` may wait for a person to give the hub access. `fault` is why its response did not come; `on_settled` is
    told once about an answer: None when it was handed over, else the reason.
    """

    awaits_result: bool
    _: KW_ONLY
    patient: bool = True
    method: str = ""
    request_id: int | None = None
    session_id: str | None = None
    fault: Fault | None = None
    unknown_session: bool = False
    pace: Pace = field(default_factory=Pace)
    on_settled: Callable[[str | None], None] | None = None

    def settle(self, reason: str | None) -> None:
        """Tells how the answer went, the first time."""
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled(reason)


CALL: ContextVar[str | None] = ContextVar("hubbub_call", default=None)
"""The call whose stream this is."""


@dataclass(slots=True, eq=False)
class Place:
    """The span of a request that is on its way, or of a connection attempt; `exchange` is what was sent last."""

    trace: Trace
    exchange: Exchange | None = None


PLACE: ContextVar[Place | None] = ContextVar("hubbub_place", default=None)
"""The span of the request whose stream this is, or of the connection attempt."""

SIZE: ContextVar[int] = ContextVar("hubbub_size", default=0)
"""How many bytes the message had that was received last."""

EXCHANGE: ContextVar[Exchange | None] = ContextVar("hubbub_exchange", default=None)
"""The message being sent; None for a notification."""
