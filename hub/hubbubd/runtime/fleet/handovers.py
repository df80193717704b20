"""Servers that a member of a fleet hands over. A server has one handover at a time, which goes on to its end."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from hubbubd.errors import HubError
from hubbubd.store import StoreUnavailable, WriteConflict

CONCURRENT = 50
"""Servers that are handed over at a time."""

RETRY_S = 0.5
"""Seconds until a step of a handover that the store has refused is tried again."""

PAUSE_S = 2.0
"""Seconds between two handovers of a member that has too many servers."""

STAY_S = 600.0
"""Seconds for which a server that was handed over and came back stays: probably no other member may have it."""

Step = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Handovers:
    """The handovers under way, each of one server."""

    def __init__(self, lost: anyio.Event) -> None:
        """`lost` is set once this member is gone: then the steps of all handovers end."""
        self._lost = lost
        self._under_way: dict[str, anyio.Event] = {}
        """By server, an event that is set when its handover ends."""
        self._limiter = anyio.CapacityLimiter(CONCURRENT)

    @property
    def servers(self) -> frozenset[str]:
        """The servers that are being handed over."""
        return frozenset(self._under_way)

    async def hand_over(self, server: str, is_owned: Callable[[], bool], *steps: Step) -> None:
        """Do the steps of a server's handover in order, each until it succeeds or this member is gone.

        Does nothing if a handover of the server is under way, or `is_owned` returns False. Waits while CONCURRENT
        others are under way. Any other error is logged and ends the handover.
        """
        async with self._limiter:
            if server in self._under_way or not is_owned():
                return
            ended = self._under_way[server] = anyio.Event()
            try:
                for step in steps:
                    await self._repeat_until_done(step)
            except Exception:
                log.exception("a server was not handed on: internal error", server=server)
            finally:
                del self._under_way[server]
                ended.set()

    async def wait_for_end(self, server: str) -> bool:
        """Wait until a server's handover is over; return whether there was one."""
        if (under_way := self._under_way.get(server)) is None:
            return False
        await under_way.wait()
        return True

    async def _repeat_until_done(self, step: Step) -> None:
        """Do a step, again every RETRY_S while hub or store raise an error, until this member is gone."""
        while not self._lost.is_set():
            try:
                await step()
            except (HubError, StoreUnavailable, WriteConflict) as exc:
                log.warning("a server is not handed on yet; tried again", error=str(exc))
                await anyio.sleep(RETRY_S)
            else:
                return


class RecentHandovers:
    """The handovers of a member that has too many servers: one at a time, and none of a server that just came back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last_at = now()  # of the last handover; the start counts as one
        self._stays_until: dict[str, float] = {}
        """By server, until when (as `now`) it is not handed over again, in case it came back."""

    def is_due(self) -> bool:
        """Return whether the pause since the last handover is over, so that the next server may go."""
        return self._now() >= self._last_at + PAUSE_S

    def may_move(self, server: str) -> bool:
        """Return whether a server may be handed over now: False for STAY_S after its last handover, if it came back."""
        return self._stays_until.get(server, 0.0) <= self._now()

    def note_handover(self, server: str) -> None:
        """Note that a server is handed over now: the pause begins, and the server stays for STAY_S if it comes back."""
        self._last_at = self._now()
        self._stays_until[server] = self._last_at + STAY_S
