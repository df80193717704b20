"""News for those who watch: one way to wait for some, with a sign of life while there are none."""

import math

import anyio

from hubbubd.errors import Unavailable

BOOKMARK_S = 5.0
"""A quiet watch says this often that the hub is alive."""


class Pulse:
    """Beats when there is news. Who waits says up to which beat it has looked, so that none is missed."""

    def __init__(self) -> None:
        self.beats = 0
        self.closed = False
        self._next: anyio.Event | None = None  # made when somebody waits: most beats come while nobody does

    def beat(self) -> None:
        """Wakes whoever waits."""
        self.beats += 1
        if self._next is not None:
            self._next.set()
            self._next = None

    def close(self) -> None:
        """Wakes whoever waits, for the last time: there will be no more news."""
        self.closed = True
        self.beat()

    def require_open(self, **metadata: str) -> None:
        """Raises Unavailable (SHUTTING_DOWN) once it is closed."""
        if self.closed:
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN", metadata=metadata)

    async def wait(self, seen: int, limit_s: float = math.inf) -> bool:
        """Whether it has beaten after `seen`; returns at once if it has, and within `limit_s` seconds."""
        with anyio.move_on_after(limit_s):
            while self.beats == seen:
                if self._next is None:
                    self._next = anyio.Event()
                await self._next.wait()
        return self.beats != seen
