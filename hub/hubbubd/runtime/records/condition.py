"""A condition for watchers: wait for a change, with a time limit for bookmarks, and an end at shutdown."""

import asyncio
import math

from hubbubd.errors import Unavailable

BOOKMARK_S = 5.0
"""Seconds of silence after which a watch sends a bookmark as a keep-alive."""


class VersionedCondition:
    """A counter of changes: a waiter names the version that it has seen, so that it misses no change."""

    def __init__(self) -> None:
        self.version = 0
        self.closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    def notify_all(self) -> None:
        """Count a change, and wake all waiters."""
        self.version += 1
        for waiter in self._waiting:
            _wake(waiter)

    def close(self) -> None:
        """Mark as closed, and wake all waiters for the last time."""
        self.closed = True
        self.notify_all()

    def require_open(self, **metadata: str) -> None:
        """Raise Unavailable (SHUTTING_DOWN), with this metadata, once closed."""
        if self.closed:
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN", metadata=metadata)

    async def wait(self, seen: int, limit_s: float = math.inf) -> bool:
        """Wait until the version differs from `seen`, at most `limit_s` seconds; return whether it does."""
        if self.version == seen:
            # Not with anyio's scopes and events, which cost more: each watcher waits here for each event.
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(limit_s, _wake, waiter) if limit_s < math.inf else None
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
                if timer is not None:
                    timer.cancel()
        return self.version != seen


class StoreProgress(VersionedCondition):
    """The newest revision of the store that all tables have."""

    def __init__(self, revision: int) -> None:
        super().__init__()
        self.revision = revision

    def advance(self, revision: int) -> None:
        """Note that all tables have a revision, and wake all waiters."""
        self.revision = revision
        self.notify_all()

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until all tables have a revision, or until the hub shuts down."""
        while self.revision < revision and not self.closed:
            await self.wait(self.version)


def _wake(waiter: "asyncio.Future[None]") -> None:
    """End the wait of one waiter, unless it has ended already."""
    if not waiter.done():
        waiter.set_result(None)
