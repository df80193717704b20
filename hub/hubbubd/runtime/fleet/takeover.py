"""What a member has, it serves, and nothing else: its leases are compared with what is at work.

    a lease, and not at work   the server is taken
    at work, and no lease      the server is left

Looking at the other members goes on meanwhile: a server that takes long to be taken must not keep a member from that.
"""

from collections.abc import Awaitable, Callable, Set

import anyio
import structlog

from hubbubd.errors import HubError
from hubbubd.runtime.ownership import UPKEEP, Candidates, OwnershipHooks, Takeover

AGAIN_S = 1.0
"""Seconds between comparisons when nothing has changed."""

ENDED = "the member of the fleet that had its server has ended"
ANEW = "its server was put to work anew in the fleet"

log = structlog.get_logger(__name__)


class ServedLeases:
    """The servers that a member has taken. `due` returns those that it should have, `may_act` whether it may act."""

    def __init__(
        self,
        member: str,
        servers: Candidates,
        hands: OwnershipHooks,
        *,
        owns: Callable[[str], bool],
        due: Callable[[], Set[str]],
        may_act: Callable[[], bool],
    ) -> None:
        self._member = member
        self._servers = servers
        self._hands = hands
        self._owns = owns
        self._due = due
        self._may_act = may_act
        self._taken: set[str] = set()
        self._before: set[str] = set()
        """Those that were taken once in this life."""
        self._changed = anyio.Event()
        self._turn = anyio.Lock()

    def __contains__(self, server: str) -> bool:
        return server in self._taken

    def changed(self) -> None:
        """Compare at once: a lease has come or gone."""
        self._changed.set()

    async def settled(self) -> None:
        """Wait until what is just being taken is at work."""
        async with self._turn:
            pass

    async def run(self, certain: Callable[[Callable[[], Awaitable[None]]], Awaitable[bool]]) -> None:
        """Go on until cancelled. `certain` does something, whatever comes of it."""
        while True:
            self._changed = anyio.Event()
            await certain(self._leave)
            await certain(self._take)
            with anyio.move_on_after(AGAIN_S):
                await self._changed.wait()

    async def _leave(self) -> None:
        for server in self._servers.at_work():
            if not self._owns(server):
                log.warning("a server was at work without a lease; it is left", server=server)
                await self._hands.leave(server, 0)

    async def _take(self) -> None:
        missing = self._missing()
        anew = missing & self._before
        await self._take_all(missing - anew, ENDED)
        await self._take_all(anew, ANEW)

    def _missing(self) -> frozenset[str]:
        due = self._due()
        self._taken = {each for each in self._taken & due if each == UPKEEP or self._servers.is_at_work(each)}
        return frozenset(due - self._taken)

    async def _take_all(self, servers: frozenset[str], happened: str) -> None:
        """Take servers together, or else each half by itself, so that one keeps no others waiting."""
        if not servers or not self._may_act() or await self._took(servers, happened) or len(servers) == 1:
            return
        ordered = sorted(servers)
        for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
            await self._take_all(self._missing().intersection(half), happened)

    async def _took(self, servers: frozenset[str], happened: str) -> bool:
        def still(server: str) -> bool:  # it may go to another member meanwhile
            return server in servers and self._owns(server)

        async with self._turn:
            try:
                await self._hands.take(Takeover(still, code="OWNER_LOST", happened=happened, alone=False))
            except Exception as exc:  # noqa: BLE001  # whatever it is, the others are to be taken
                self._complain(servers, exc)
                return False
            self._taken |= servers
            self._before |= servers
        log.info("servers taken", member=self._member, servers=sorted(servers))
        return True

    def _complain(self, servers: frozenset[str], failure: Exception) -> None:
        if len(servers) > 1:
            log.info("servers were not taken together; tried by halves", count=len(servers), error=str(failure))
            return
        unexpected = None if isinstance(failure, HubError | OSError) else failure
        log.warning("a server was not taken; tried again", server=min(servers), error=str(failure), exc_info=unexpected)
