"""What is written in one turn of the loop, sent together."""

import asyncio
from collections.abc import Callable
from typing import Any

TOGETHER_BYTES = 16 * 1024
"""As much that is written in one turn of the loop is sent together: the head of a response with its body."""


class GatheringTransport:
    """A connection's transport that gathers what is written in one turn of the loop, and sends it at the turn's end.

    `lingers` is called when the transport is to be closed. It returns True if the connection closes it later itself.
    """

    def __init__(self, transport: asyncio.Transport, lingers: Callable[[], bool] = lambda: False) -> None:
        """Write to `transport`. `lingers` is asked at the close whether somebody else closes the transport later."""
        self._transport = transport
        self._lingers = lingers
        self._closing = False
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Queue bytes to be sent at the end of this turn of the loop; more than TOGETHER_BYTES are sent at once."""
        if not data:
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > TOGETHER_BYTES:
            self.flush()  # so that the transport says at once when it is full
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self.flush()
        self._closing = True
        if not self._lingers():
            self._transport.close()

    def detach(self) -> None:
        """Drop `lingers` once the connection has ended: the callback may be a method of an object that refers to this.

        Objects that refer to each other are freed only by a garbage collection.
        """
        self._lingers = lambda: False

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        """Send what is queued now, instead of at the end of the turn."""
        together = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        if together and not self.is_closing():
            self._transport.write(together)
