"""A member puts its servers to work: each once its lease is there, and again whenever it is not at work any more.

Looking at the other members goes on meanwhile: a server that takes long to be taken must not keep a member from that.
"""

from collections.abc import Awaitable, Callable, Set

import anyio
import structlog

from hubbubd.errors import HubError
from hubbubd.runtime.ownership import UPKEEP, Candidates, Hands, Taking

AGAIN_S = 1.0
"""Seconds between looks whether all servers are at work."""

log = structlog.get_logger(__name__)


class Work:
    """The servers that a member has put to work. `due` returns those that should be, of those that it has."""

    def __init__(self, member: str, servers: Candidates, hands: Hands, due: Callable[[], Set[str]]) -> None:
        self._member = member
        self._servers = servers
        self._hands = hands
        self._due = due
        self._taken: set[str] = set()
        self._woken = anyio.Event()
        self._turn = anyio.Lock()

    def has(self, server: str) -> bool:
        """Return whether a server was put to work."""
        return server in self._taken

    def left(self, server: str) -> None:
        """A server is at work no longer."""
        self._taken.discard(server)

    def wake(self) -> None:
        """Look at once: there is a new server."""
        self._woken.set()

    async def settled(self) -> None:
        """Wait until what is just being put to work is at work."""
        async with self._turn:
            pass

    async def run(self, certain: Callable[[Callable[[], Awaitable[None]]], Awaitable[bool]]) -> None:
        """Go on until cancelled. `certain` does something, whatever comes of it."""
        while True:
            self._woken = anyio.Event()
            await certain(self._take)
            with anyio.move_on_after(AGAIN_S):
                await self._woken.wait()

    async def _take(self) -> None:
        """Take all that is missing, at first together; if that fails, one by one: the others need not wait for one."""
        missing = self._missing()
        if not missing or await self._took(missing) or len(missing) == 1:
            return
        for server in sorted(missing):
            if server in self._missing():
                await self._took(frozenset({server}))

    def _missing(self) -> frozenset[str]:
        due = self._due()
        self._taken = {each for each in self._taken & due if each == UPKEEP or self._servers.at_work(each)}
        return frozenset(due - self._taken)

    async def _took(self, servers: frozenset[str]) -> bool:
        happened = "the member of the fleet that had its server has ended"
        async with self._turn:
            try:
                await self._hands.take(Taking(servers.__contains__, code="OWNER_LOST", happened=happened, alone=False))
            except HubError as exc:
                log.warning("servers were not taken; tried again", servers=sorted(servers), error=exc.message)
                return False
            self._taken |= servers
        log.info("servers taken", member=self._member, servers=sorted(servers))
        return True
