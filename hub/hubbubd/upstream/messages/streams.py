"""The interface between transports and links: message streams, and what is known of the other side."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from hubbubd.errors import Fault, UpstreamError
from hubbubd.upstream.ports import Permit


class ReadStream(Protocol):
    """A stream of received messages."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why one could not be parsed. Raises EndOfStream."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class SettlingStream(Protocol):
    """A read stream that passes a response to `settle` at once if nothing is unread and the reader waits.

    If `settle` returns False, the response goes to the reader like any other message.
    """

    settle: Callable[[JSONRPCResponse | JSONRPCError], bool]


class WriteStream(Protocol):
    """A stream of messages to send."""

    async def send(self, item: SessionMessage, /) -> None:
        """Hand a message over. Raises BrokenResourceError, ClosedResourceError."""
        ...

    async def aclose(self) -> None: ...


class SideOutput(Protocol):
    """What a server writes beside its messages while its revision is probed (`negotiation.Negotiation`)."""

    def hold(self) -> None:
        """Hold back what may be about the probe, which is sent next, until `release` or `fold`."""
        ...

    def release(self) -> None:
        """Pass on the lines that are held back, and all later ones."""
        ...

    def fold(self) -> None:
        """Pass on the lines that are held back, and all later ones, with one line in place of those about the probe.

        Called when the server has connected without the probe, so its complaints about that are no failure.
        """
        ...


class NoSideOutput:
    """Implements `SideOutput` where all that a server writes is messages."""

    def hold(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def fold(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStreams:
    """The streams of an open transport.

    With `reports_delivery` the transport reports, through the `OutgoingMessage`, whether an answer was delivered.
    `explain_end` is called after the read stream has ended. `ignores_cookie` says whether the server set a cookie that
    is not sent back. A process has a `pid`, and two tails: the last lines of its stderr, and those of its stdout that
    are no messages (stray).
    """

    read: ReadStream
    write: WriteStream
    reports_delivery: bool
    explain_end: Callable[[], Awaitable[Fault]]
    pid: int | None = None
    stderr_tail: Callable[[], tuple[str, ...]] = tuple
    ignores_cookie: Callable[[], bool] = bool
    stray_tail: Callable[[], tuple[str, ...]] = tuple
    side_output: SideOutput = field(default_factory=NoSideOutput)


MarkLost = Callable[[Fault], None]
"""Marks a link as lost; the first reason counts."""


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """What a transport may do to its link.

    `check_session` pings the server, and returns once it answered or did not; the link is lost if the server's session
    is over. `note` takes a note about the server, as `ports.Inbound.note`.
    """

    mark_lost: MarkLost
    check_session: Callable[[], Awaitable[None]]
    note: Callable[[str, str | None], None]


Transport = Callable[[LinkCallbacks], AbstractAsyncContextManager[TransportStreams]]


class PermittedStream:
    """A `WriteStream` that asks for a permit before it sends a message."""

    def __init__(self, inner: WriteStream, permit: Permit) -> None:
        self._inner = inner
        self._permit = permit

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message once that is permitted. Raises ClosedResourceError if it never is again."""
        try:
            await self._permit()
        except UpstreamError:
            raise anyio.ClosedResourceError from None
        await self._inner.send(item)

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
