"""The members of a fleet in PostgreSQL: implements `Membership`. Only the database's clock decides who is overdue.

It has a connection of its own, so that no slow commit delays a beat.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from hubbubd.members import ClockReading, Expulsion, Member, MemberStatus, Schema
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, DatabaseConnection, is_certain
from hubbubd.store.postgres.identity import Entrant, MemberIdentity
from hubbubd.timing.clock import elapsed

MOST: Final = 256
"""Members of which is told; a fleet has far fewer."""

TEXT: Final = 256
"""The longest name or address of a member that is told, in characters."""


class PostgresMembers:
    """This hub's place among the members. Belongs to the event loop that made it; `now` is never set."""

    def __init__(self, place: MemberIdentity, entrant: Entrant, now: Callable[[], float] = elapsed) -> None:
        self._place = place
        self._entrant = entrant
        self._now = now
        self.schema = Schema(0, 0)
        """Of the store, when the members were last asked for."""
        self._link: DatabaseConnection | None = None
        self._asking = anyio.Lock()
        self._reached: tuple[str, str] | tuple[None, None] = None, None
        # A beat that takes longer is better tried anew: others wait for it.
        self._patience_s = min(CONNECT_S, entrant.lease_ttl_s / 2)

    @property
    def name(self) -> str:
        """This member's name."""
        return self._place.name

    @property
    def life(self) -> int:
        """The number of this member's life; greater than that of any before."""
        return self._place.life

    @property
    def lease_ttl_s(self) -> float:
        """Seconds without a beat after which others may expel this member."""
        return self._entrant.lease_ttl_s

    async def beat(self, position: int, for_s: float | None = None) -> ClockReading:
        """Say that this member lives and has read up to a revision; return a reading of the database's clock.

        After `for_s` seconds without a beat, by default those of a lease, others may expel it.
        Raises Expelled, and StoreUnavailable when the database does not answer.
        """
        begun = 0.0

        def begin() -> None:
            nonlocal begun
            begun = self._now()

        words = for_s or self.lease_ttl_s, position, self.lease_ttl_s, *self._reached
        at = await self._own(sql.BEAT, *words, before=begin)
        return ClockReading(at=at, sent=begun, came=self._now())

    async def members(self) -> list[Member]:
        """Return all members, gone ones included for a day at least. Raises Expelled and StoreUnavailable."""
        rows = await self._ask(sql.MEMBERS, MOST, self.lease_ttl_s)
        for *_, version, required in rows[:1]:  # this member is one of them
            self.schema = Schema(version, required)
        return [
            Member(
                name=name[:TEXT],
                life=life,
                standing=MemberStatus(standing),
                address=address[:TEXT],
                forward=forward[:TEXT],
                version=version[:TEXT],
                position=position,
                overdue=overdue,
                silent_s=silent_s,
                schema=knows,
            )
            for name, life, standing, address, forward, version, position, overdue, silent_s, knows, *_ in rows
        ]

    async def expel(self, member: Member) -> Expulsion:
        """Declare an overdue member gone. Of several that do so at once, one is told that it has done it.

        Refused unless this member has missed no beat for a lease's time itself: the database may have been away for
        all. A beat is missed once half of a lease's time passes without one.
        If the connection broke and it had to be asked twice, the member may be said to be gone before.
        Raises Expelled and StoreUnavailable.
        """
        words = self.name, self.life, member.name, member.life, self.lease_ttl_s
        [[gone, lived]] = await self._ask(sql.EXPEL, *words)
        if not gone:
            return Expulsion.REFUSED
        return Expulsion.DONE if lived else Expulsion.GONE_BEFORE

    async def stand(self, standing: MemberStatus) -> None:
        """Set this member's own standing; GONE ends this life. Raises Expelled and StoreUnavailable."""
        await self._own(sql.STAND, standing.value)
        if standing is MemberStatus.GONE:
            self._place.end(Expelled("this hub has left the fleet; it keeps nothing more"))

    async def appoint(self, member: Member, standing: MemberStatus) -> bool:
        """Set the standing of a member, whoever it is; return whether it has that now. False: that life was over.

        GONE ends its life at once, overdue or not: whoever asks for it must know that it has ended. Raises Expelled and
        StoreUnavailable.
        """
        return bool(await self._ask(sql.APPOINT, self.name, self.life, member.name, member.life, standing.value))

    async def standbys(self) -> int | None:
        """Return how many synchronous standbys the database has; None if it wants some and this one may not see them.

        Raises Expelled and StoreUnavailable.
        """
        [[wanted, seen, there]] = await self._ask(sql.STANDBYS)
        return None if wanted and not seen else there

    async def finish_upgrade(self) -> Schema:
        """Require the version of the tables from now on, if no member knows less; return what is required then.

        Raises Expelled and StoreUnavailable.
        """
        return Schema(*await self._own(sql.FINISH_UPGRADE))

    async def publish(self, address: str, forward: str) -> None:
        """Say where clients and other members reach this one, HOST:PORT each, now and with every beat.

        Raises Expelled and StoreUnavailable.
        """
        self._reached = address, forward
        await self._own(sql.PUBLISH, address, forward)

    async def _own(self, query: str, *words: Any, before: Callable[[], None] = lambda: None) -> Any:
        """Change this member's row; return what the statement returns. `before` is called as it is sent."""
        rows = await self._ask(query, self.name, self.life, *words, before=before)
        if not rows:
            raise self._place.expelled()
        return rows[0][0]

    async def _ask(self, query: str, *words: Any, before: Callable[[], None] = lambda: None) -> list[Sequence[Any]]:
        """Run a statement over the connection, made again if need be; each does the same if it is run twice."""
        try:
            async with asyncio.timeout(self._patience_s), self._asking:
                for attempt in range(2):
                    self._place.require()
                    if self._link is None or self._link.is_closed():
                        self._link = await self._place.connected()
                    before()
                    try:
                        return await self._link.fetch(self._place.database.sql(query), *words)
                    except ERRORS as error:
                        if is_certain(error) or attempt:
                            raise self._place.refused(error) from error
                        self._drop()
        except TimeoutError:
            self._drop()
            raise StoreUnavailable(
                f"the store {self._place.database.name} has not answered for {self._patience_s:g} s"
            ) from None
        raise AssertionError

    def _drop(self) -> None:
        if self._link is not None:
            self._link.terminate()
            self._link = None

    async def close(self) -> None:
        """End the connection."""
        async with self._asking:
            self._drop()
