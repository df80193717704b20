"""An open transport, whichever it is, as a link uses it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp.shared.message import SessionMessage

from hubbubd.errors import Fault


class Reading(Protocol):
    """Where messages arrive."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or why one could not be read. Raises EndOfStream."""
        ...

    async def aclose(self) -> None: ...


class Writing(Protocol):
    """Where messages go."""

    async def send(self, item: SessionMessage, /) -> None:
        """Hands a message over. Raises BrokenResourceError, ClosedResourceError."""
        ...

    async def aclose(self) -> None: ...


def _no_lines() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """The streams of an open transport and what it knows of the other side.

    With `receipts` the transport itself tells, through the exchange, whether an answer arrived. `why_ended` is asked
    after the read stream has ended.
    """

    read: Reading
    write: Writing
    receipts: bool
    why_ended: Callable[[], Awaitable[Fault]]
    pid: int | None = None
    stderr_tail: Callable[[], tuple[str, ...]] = _no_lines


Lose = Callable[[Fault], None]
"""Tells a link that its connection has gone; the first reason counts."""

Transport = Callable[[Lose], AbstractAsyncContextManager[Pipe]]
