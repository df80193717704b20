"""Sends together the bytes that are written in one turn of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

TOGETHER_BYTES = 16 * 1024
"""Up to so many bytes are gathered in one turn of the loop, as the head of a response with its body."""


class GatheringTransport:
    """A connection's transport that gathers what is written in one turn of the loop, and sends it at the turn's end.

    `on_close` is called when the transport is to be closed. It returns True if it closes the transport itself, later.
    """

    def __init__(self, transport: asyncio.Transport, on_close: Callable[[], bool] = lambda: False) -> None:
        """Write to `transport`. `on_close` is described in the class."""
        self._transport = transport
        self._on_close = on_close
        self._closing = False
        self._queue: list[bytes] = []
        self._queued_bytes = 0

    def write(self, data: bytes) -> None:
        """Queue bytes to be sent at the end of this turn of the loop; more than TOGETHER_BYTES are sent at once."""
        if not data:
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queued_bytes > TOGETHER_BYTES:
            self.flush()  # so that the transport says at once when it is full
        elif len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def close(self) -> None:
        """Send what is queued, and close the transport unless `on_close` does so later."""
        self.flush()
        self._closing = True
        if not self._on_close():
            self._transport.close()

    def detach(self) -> None:
        """Drop `on_close` once the connection has ended: it may be a method of an object that refers to this one.

        Objects that refer to each other are freed only by a garbage collection.
        """
        self._on_close = lambda: False

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        """Send the queued bytes now, instead of at the end of the turn."""
        data = b"".join(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        if data and not self.is_closing():
            self._transport.write(data)
