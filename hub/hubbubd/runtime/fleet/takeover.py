"""A member serves the servers of its leases, and no others: leases are compared with the servers at work.

    a lease, and not at work   the server is taken over
    at work, and no lease      the server is handed over

This runs beside the scan of the other members, which must not wait for a server that takes long.
"""

from collections.abc import Awaitable, Callable, Set

import anyio
import structlog

from hubbubd.errors import HubError
from hubbubd.runtime.ownership import UPKEEP, Candidates, OwnershipHooks, Takeover

COMPARE_S = 1.0
"""Seconds between comparisons when nothing has changed."""

OWNER_ENDED = "the member of the fleet that had its server has ended"
TAKEN_OVER_AGAIN = "its server was put to work again in the fleet"

log = structlog.get_logger(__name__)


class ServedLeases:
    """The servers that a member has taken over, so that they are at work here."""

    def __init__(
        self,
        member: str,
        servers: Candidates,
        hooks: OwnershipHooks,
        *,
        owns: Callable[[str], bool],
        due_servers: Callable[[], Set[str]],
        may_act: Callable[[], bool],
    ) -> None:
        """`member` is this member's name, for the log; `hooks` start and stop servers here.

        `owns` returns whether this member has the lease of a server; `due_servers` the servers that are to be at work
        here now, by the leases; `may_act` whether this member may send anything to servers now.
        """
        self._member = member
        self._servers = servers
        self._hooks = hooks
        self._owns = owns
        self._due_servers = due_servers
        self._may_act = may_act
        self._taken_over: set[str] = set()
        self._taken_over_before: set[str] = set()
        """Servers that were taken over in this term, also those that have stopped here since."""
        self._changed = anyio.Event()  # wakes `run`
        self._takeover_lock = anyio.Lock()

    def __contains__(self, server: str) -> bool:
        return server in self._taken_over

    def compare_soon(self) -> None:
        """Wake `run`, so that it compares leases with the servers at work here, as a lease has changed."""
        self._changed.set()

    async def wait_until_settled(self) -> None:
        """Wait until no takeover is under way; each server that was being taken over is at work then, or has failed."""
        async with self._takeover_lock:
            pass

    async def run(self, attempt: Callable[[Callable[[], Awaitable[None]]], Awaitable[bool]]) -> None:
        """Stop servers without a lease of this member and start those with one, at each change and every COMPARE_S.

        Runs until cancelled. `attempt` runs a step, and logs its errors instead of raising them.
        """
        while True:
            self._changed = anyio.Event()
            await attempt(self._stop_unleased_servers)
            await attempt(self._start_missing_servers)
            with anyio.move_on_after(COMPARE_S):
                await self._changed.wait()

    async def _stop_unleased_servers(self) -> None:
        """Stop the servers that are at work here without a lease of this member."""
        for server in self._servers.servers_at_work():
            if not self._owns(server):
                log.warning("a server was at work without a lease; it is left", server=server)
                await self._hooks.hand_over(server, 0)  # at once: another member may have the lease

    async def _start_missing_servers(self) -> None:
        """Start the servers of this member's leases that are not at work here.

        Calls that cannot go on get a reason: the former owner has ended, or this member takes the server over again.
        """
        missing = self._missing_servers()
        taken_again = missing & self._taken_over_before
        await self._take_over_all(missing - taken_again, OWNER_ENDED)
        await self._take_over_all(taken_again, TAKEN_OVER_AGAIN)

    def _missing_servers(self) -> frozenset[str]:
        """Return the servers that are to be at work here and are not; forget takeovers of those that have stopped.

        UPKEEP is no server that could be at work: it counts as at work once it was taken over.
        """
        due_servers = self._due_servers()
        self._taken_over = {
            each for each in self._taken_over & due_servers if each == UPKEEP or self._servers.is_at_work(each)
        }
        return frozenset(due_servers - self._taken_over)

    async def _take_over_all(self, servers: frozenset[str], event_text: str) -> None:
        """Take servers over together; if that fails, each half by itself, so that a server that fails delays no others.

        A single server that fails is tried again in the next round. Nothing happens while this member may not act.
        """
        if not servers or not self._may_act() or await self._try_takeover(servers, event_text) or len(servers) == 1:
            return
        ordered = sorted(servers)
        for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
            await self._take_over_all(self._missing_servers().intersection(half), event_text)

    async def _try_takeover(self, servers: frozenset[str], event_text: str) -> bool:
        """Take servers over; return False if that failed, which is logged.

        `event_text` says what has happened to the server, in the errors of calls that cannot go on.
        """

        def is_still_own(server: str) -> bool:
            """Return whether a server is one of these, and its lease has not gone to another member meanwhile."""
            return server in servers and self._owns(server)

        async with self._takeover_lock:
            try:
                await self._hooks.take_over(
                    Takeover(is_still_own, code="OWNER_LOST", event_text=event_text, is_only_hub=False)
                )
            except Exception as exc:  # noqa: BLE001  # whatever fails, the other servers are taken over
                self._log_failure(servers, exc)
                return False
            self._taken_over |= servers
            self._taken_over_before |= servers
        log.info("servers taken", member=self._member, servers=sorted(servers))
        return True

    def _log_failure(self, servers: frozenset[str], failure: Exception) -> None:
        """Log why servers were not taken: of several as information, of one as a warning."""
        if len(servers) > 1:
            log.info("servers were not taken together; tried by halves", count=len(servers), error=str(failure))
            return
        unexpected = None if isinstance(failure, HubError | OSError) else failure
        log.warning("a server was not taken; tried again", server=min(servers), error=str(failure), exc_info=unexpected)
