"""Health of the store: a circuit breaker that opens at a failed write and closes after a successful probe."""

import math
from collections.abc import AsyncGenerator, Callable

import anyio
import structlog

from hubbubd.runtime.records.condition import VersionedCondition
from hubbubd.store import Store, StoreUnavailable

RETRY_S = 1.0
"""Seconds between probes of a failed store."""

log = structlog.get_logger(__name__)


class Health:
    """Healthy until a write fails, then unhealthy until a probe succeeds; changes are published and logged once.

    A single successful write is not enough: on a nearly full disk the small ones succeed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_writable = True
        self.problem = ""  # why the store cannot be written
        self.committed_at: float | None = None
        """When the last commit became durable, in seconds since the epoch; None if none has since the start."""
        self._condition = VersionedCondition()
        self._is_ready: Callable[[], bool] = lambda: True
        self._last_published = True
        self.probe_interval_s = math.inf
        """Seconds between probes of a healthy store: others may fill a database while this hub writes nothing."""

    @property
    def is_serving(self) -> bool:
        """Whether the hub accepts new work."""
        return self._is_writable and self._is_ready() and not self._condition.closed

    @property
    def is_writable(self) -> bool:
        """Whether the last write or probe of the store succeeded; this also holds during shutdown."""
        return self._is_writable

    def set_readiness(self, is_ready: Callable[[], bool]) -> None:
        """Let the hub serve only while `is_ready` returns True. When its result changes, call `publish_change`."""
        self._is_ready = is_ready

    def publish_change(self) -> None:
        """Notify watchers if `is_serving` has changed."""
        if self.is_serving != self._last_published:
            self._last_published = self.is_serving
            self._condition.notify_all()

    def note_failure(self, exc: Exception) -> None:
        """Make the store unhealthy after a failed write, and notify watchers.

        `problem` has the reason until a probe succeeds.
        """
        self.problem = str(exc)
        if self._is_writable:
            log.error("store write failed; the hub is read-only", error=str(exc))
            self._is_writable = False
            self._condition.notify_all()

    async def run(self) -> None:
        """Probe a failed store every RETRY_S, and a healthy one every `probe_interval_s`, until cancelled."""
        while True:
            while self._is_writable:
                with anyio.move_on_after(self.probe_interval_s) as wait_scope:
                    await self._condition.wait(self._condition.version)  # a failure ends the wait at once
                if wait_scope.cancelled_caught and (problem := await self._probe()) is not None:
                    self.note_failure(problem)
            await anyio.sleep(RETRY_S)
            if await self._probe() is not None:
                continue
            log.warning("store recovered")
            self._is_writable, self.problem = True, ""
            self._condition.notify_all()

    async def _probe(self) -> StoreUnavailable | None:
        """Probe the store; return why it cannot be written, None if it can."""
        try:
            await self._store.probe()
        except StoreUnavailable as exc:
            return exc
        return None

    async def watch(self) -> AsyncGenerator[bool]:
        """Yield `is_serving` now and after each change; the last one, at shutdown, is False."""
        while True:
            # Both are read before the yield: the hub may shut down while the watcher has the value.
            seen, closed = self._condition.version, self._condition.closed
            yield self.is_serving
            if closed:
                return
            await self._condition.wait(seen)

    def close(self) -> None:
        """Let the hub no longer serve, for good, and end all watches after a last False."""
        self._condition.close()
