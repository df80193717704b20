"""Whether the store takes what the hub writes; one that failed is tried until it does, also when nothing waits."""

from collections.abc import AsyncGenerator

import anyio
import structlog

from hubbubd.runtime.records.pulse import Pulse
from hubbubd.store import Store, StoreUnavailable

RETRY_S = 1.0
"""How long a store that has failed is left alone before it is tried again."""

log = structlog.get_logger(__name__)


class Health:
    """Well until a write fails, then not before a trial goes through; told to whoever watches, logged once a change.

    A single write that goes through is not enough: on a disk that is all but full, the small ones do.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._well = True
        self.problem = ""
        self._pulse = Pulse()

    @property
    def well(self) -> bool:
        """Whether the hub takes new work."""
        return self._well and not self._pulse.closed

    @property
    def writable(self) -> bool:
        """Whether the store takes what is written, also while the hub stops."""
        return self._well

    def failed(self, exc: Exception) -> None:
        """Notes that a write failed; `problem` says why, until one goes through."""
        self.problem = str(exc)
        if self._well:
            log.error("the store cannot be written; the hub goes on reading", error=str(exc))
            self._well = False
            self._pulse.beat()

    async def run(self) -> None:
        """Tries a store that has failed, for as long as the hub runs."""
        while True:
            while self._well:
                await self._pulse.wait(self._pulse.beats)
            await anyio.sleep(RETRY_S)
            try:
                await self._store.probe()
            except StoreUnavailable:
                continue
            log.warning("the store can be written again")
            self._well, self.problem = True, ""
            self._pulse.beat()

    async def watch(self) -> AsyncGenerator[bool]:
        """Whether the hub is well now, and at each change; the last one is False, when the hub stops."""
        while True:
            seen = self._pulse.beats
            yield self.well
            if self._pulse.closed:
                return
            await self._pulse.wait(seen)

    def close(self) -> None:
        """Ends all watches."""
        self._pulse.close()
