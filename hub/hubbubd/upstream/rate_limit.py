"""How fast a server is read, so that one that floods waits for itself and not the others for it."""

from collections.abc import Callable
from typing import Final

import anyio

from hubbubd.bucket import Bucket

BURST_S: Final = 10.0
"""For how many seconds' worth of its rate a server may be ahead of it."""

REST_S: Final = 0.05
"""Shortest rest: what is owed is paid in one of these, not after each message."""


class Pace:
    """One server's rates, of messages and of their bytes. `on_throttled` is told the rate that was passed, and what
    it counts, when a flood begins: once, until it is over.

    A flood is over when the server has been so quiet that it could send a whole burst again.
    """

    def __init__(self, messages_per_s: float, bytes_per_s: float, on_throttled: Callable[[float, str], None]) -> None:
        now = anyio.current_time()
        self._messages = Bucket(messages_per_s, max(messages_per_s * BURST_S, 1.0), now)
        self._bytes = Bucket(bytes_per_s, bytes_per_s * BURST_S, now)
        self._on_throttled = on_throttled
        self._flooding = False

    async def charge(self, size: int = 0) -> None:
        """Counts a message of `size` bytes, and rests when there were too many."""
        now = anyio.current_time()
        if self._flooding and self._messages.is_full(now) and self._bytes.is_full(now):
            self._flooding = False
        owed_s, of_bytes_s = self._messages.owe(now), self._bytes.owe(now, size)
        passed, unit = (self._bytes, "bytes") if of_bytes_s > owed_s else (self._messages, "messages")
        owed_s = max(owed_s, of_bytes_s)
        if not owed_s:
            return
        if not self._flooding:
            self._flooding = True
            self._on_throttled(passed.rate, unit)
        if owed_s >= REST_S:
            await anyio.sleep(owed_s)
