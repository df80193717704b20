"""Servers that a member of a fleet hands over: each once at a time, and to the end."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from hubbubd.errors import HubError
from hubbubd.store import StoreUnavailable, WriteConflict

AT_ONCE = 50
"""Servers that are handed over at a time."""

AGAIN_S = 0.5
"""Seconds before a step of a handover is tried again that the store has refused."""

HAND_ON_S = 2.0
"""Seconds between servers that are handed over since this member has too many."""

STAY_S = 600.0
"""Seconds for which a server stays that was handed over and came back: no other member may have it."""

Step = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Handovers:
    """The handovers under way. `lost` is set once this member is gone: then all are over."""

    def __init__(self, lost: anyio.Event) -> None:
        self._lost = lost
        self._under_way: dict[str, anyio.Event] = {}
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    @property
    def servers(self) -> frozenset[str]:
        """The servers that are being handed over."""
        return frozenset(self._under_way)

    async def hand_over(self, server: str, is_owned: Callable[[], bool], *steps: Step) -> None:
        """Do the steps of a server's handover in order, each again until the store takes it or this member is gone.

        Does nothing if a handover of the server is under way, or `is_owned` returns False. Waits while AT_ONCE others
        are under way. Any other error is logged and ends the handover.
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

    async def wait_for(self, server: str) -> bool:
        """Wait until a server's handover is over; return whether there was one."""
        if (under_way := self._under_way.get(server)) is None:
            return False
        await under_way.wait()
        return True

    async def _repeat_until_done(self, step: Step) -> None:
        """Do a step again until the store takes it, or until this member is gone: then without an error."""
        while not self._lost.is_set():
            try:
                await step()
            except (HubError, StoreUnavailable, WriteConflict) as exc:
                log.warning("a server is not handed on yet; tried again", error=str(exc))
                await anyio.sleep(AGAIN_S)
            else:
                return


class RecentHandovers:
    """The servers that a member has handed over since it had too many: one at a time, and none that came back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last_at = now()
        self._stays_until: dict[str, float] = {}

    def is_due(self) -> bool:
        """Return whether the pause since the last handover is over, so that the next server may go."""
        return self._now() >= self._last_at + HAND_ON_S

    def may_go(self, server: str) -> bool:
        """Return whether a server may be handed over: False for STAY_S after its last handover, if it came back."""
        return self._stays_until.get(server, 0.0) <= self._now()

    def note_handover(self, server: str) -> None:
        """Note that a server is handed over now: the pause begins, and the server stays for STAY_S if it comes back."""
        self._last_at = self._now()
        self._stays_until[server] = self._last_at + STAY_S
