"""A condition for watchers: wait for news, with a time limit for bookmarks and an end at shutdown."""

import math

import anyio

from hubbubd.errors import Unavailable

BOOKMARK_S = 5.0
"""Seconds of silence after which a watch sends a bookmark as a keep-alive."""


class Pulse:
    """A counter of news. Waiters name the count they have seen, so that no news is missed."""

    def __init__(self) -> None:
        self.beats = 0
        self.closed = False
        self._next: anyio.Event | None = None  # created by a waiter: most beats happen while nobody waits

    def beat(self) -> None:
        """Wake all waiters."""
        self.beats += 1
        if self._next is not None:
            self._next.set()
            self._next = None

    def close(self) -> None:
        """Wake all waiters for the last time."""
        self.closed = True
        self.beat()

    def require_open(self, **metadata: str) -> None:
        """Raise Unavailable (SHUTTING_DOWN) once closed."""
        if self.closed:
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN", metadata=metadata)

    async def wait(self, seen: int, limit_s: float = math.inf) -> bool:
        """Wait for a beat after `seen`, at most `limit_s` seconds; return whether there was one."""
        with anyio.move_on_after(limit_s):
            while self.beats == seen:
                if self._next is None:
                    self._next = anyio.Event()
                await self._next.wait()
        return self.beats != seen
