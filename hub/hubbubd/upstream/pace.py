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
    """One server's rate. `on_throttled` is told its number when a flood begins: once, until it is over.

    A flood is over when the server has been so quiet that it could send a whole burst again.
    """

    def __init__(self, messages_per_s: float, on_throttled: Callable[[float], None]) -> None:
        self._bucket = Bucket(messages_per_s, max(messages_per_s * BURST_S, 1.0), anyio.current_time())
        self._on_throttled = on_throttled
        self._flooding = False

    async def charge(self) -> None:
        """Counts a message, and rests when there were too many."""
        now = anyio.current_time()
        if self._flooding and self._bucket.is_full(now):
            self._flooding = False
        owed_s = self._bucket.owe(now)
        if not owed_s:
            return
        if not self._flooding:
            self._flooding = True
            self._on_throttled(self._bucket.rate)
        if owed_s >= REST_S:
            await anyio.sleep(owed_s)
