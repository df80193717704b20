"""The members of a fleet in PostgreSQL: implements `Membership`. Only the database's clock decides who is overdue.

It has a connection of its own, so that no slow commit delays a beat.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from hubbub_shared.platform.clocks import elapsed_s
from hubbubd.members import ClockReading, Expulsion, Member, MemberStatus, Schema
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, DatabaseConnection, is_failure_certain
from hubbubd.store.postgres.identity import Entrant, MemberIdentity

MAX_MEMBERS: Final = 256
"""The most members that are read; a fleet has far fewer."""

MAX_TEXT_CHARS: Final = 256
"""The longest name or address of a member that is read, in characters."""


class PostgresMembers:
    """This hub's membership in its fleet. Belongs to the event loop that made it; `now` returns monotonic seconds."""

    def __init__(self, identity: MemberIdentity, entrant: Entrant, now: Callable[[], float] = elapsed_s) -> None:
        self._identity = identity
        self._entrant = entrant
        self._now = now
        self.schema = Schema(0, 0)
        """The versions of the store's tables, as of the last call of `members`."""
        self._connection: DatabaseConnection | None = None
        self._query_lock = anyio.Lock()
        self._addresses: tuple[str, str] | tuple[None, None] = None, None
        # A heartbeat that takes longer is better tried again: others wait for it.
        self._timeout_s = min(CONNECT_S, entrant.lease_ttl_s / 2)

    @property
    def name(self) -> str:
        """This member's name."""
        return self._identity.name

    @property
    def term(self) -> int:
        """The number of this member's term; greater than that of any term before."""
        return self._identity.term

    @property
    def lease_ttl_s(self) -> float:
        """Seconds without a heartbeat after which others may expel this member."""
        return self._entrant.lease_ttl_s

    async def renew_lease(self, position: int, for_s: float | None = None) -> ClockReading:
        """Send a heartbeat, which says that this member has read up to the revision `position`.

        Return a reading of the database's clock. Without a heartbeat within `for_s` seconds (by default the time of a
        lease), others may expel this member. Raises Expelled and StoreUnavailable.
        """
        sent_at = 0.0

        def note_sent() -> None:
            """Note when the heartbeat is sent; of two attempts the second counts."""
            nonlocal sent_at
            sent_at = self._now()

        arguments = for_s or self.lease_ttl_s, position, self.lease_ttl_s, *self._addresses
        at = await self._update_own_row(sql.BEAT, *arguments, on_send=note_sent)
        return ClockReading(at=at, sent_s=sent_at, received_s=self._now())

    async def members(self) -> list[Member]:
        """Return all members, gone ones included for a day at least. Raises Expelled and StoreUnavailable."""
        rows = await self._query(sql.MEMBERS, MAX_MEMBERS, self.lease_ttl_s)
        for *_, version, required in rows[:1]:  # each row has them; there is one, as this member is among the rows
            self.schema = Schema(version, required)
        return [
            Member(
                name=name[:MAX_TEXT_CHARS],
                term=term,
                status=MemberStatus(status),
                address=address[:MAX_TEXT_CHARS],
                forward=forward[:MAX_TEXT_CHARS],
                version=version[:MAX_TEXT_CHARS],
                position=position,
                overdue=overdue,
                silent_s=silent_s,
                schema=knows,
            )
            for name, term, status, address, forward, version, position, overdue, silent_s, knows, *_ in rows
        ]

    async def expel(self, member: Member) -> Expulsion:
        """Declare an overdue member gone; refused unless this member itself has sent its heartbeats in time of late.

        Return DONE if this has declared it, GONE_BEFORE if it was gone before (also if the connection broke and the
        statement was sent twice), or REFUSED. Raises Expelled and StoreUnavailable.
        """
        arguments = self.name, self.term, member.name, member.term, self.lease_ttl_s
        [[gone, was_alive]] = await self._query(sql.EXPEL, *arguments)
        if not gone:
            return Expulsion.REFUSED
        return Expulsion.DONE if was_alive else Expulsion.GONE_BEFORE

    async def set_own_status(self, status: MemberStatus) -> None:
        """Set this member's own status; GONE ends this term. Raises Expelled and StoreUnavailable."""
        await self._update_own_row(sql.STAND, status.value)
        if status is MemberStatus.GONE:
            self._identity.end(Expelled("this hub has left the fleet; it keeps nothing more"))

    async def set_status(self, member: Member, status: MemberStatus) -> bool:
        """Set the status of any member; return False, and set nothing, if that term of the member is over.

        GONE ends its term at once, overdue or not. Raises Expelled and StoreUnavailable.
        """
        return bool(await self._query(sql.APPOINT, self.name, self.term, member.name, member.term, status.value))

    async def count_standbys(self) -> int | None:
        """Return the number of synchronous standbys; None if some are required and this member may not see them.

        Raises Expelled and StoreUnavailable.
        """
        [[required, visible, count]] = await self._query(sql.STANDBYS)
        return None if required and not visible else count

    async def finish_upgrade(self) -> Schema:
        """Require from now on that hubs know the tables' version, if all members know it; return the versions then.

        Raises Expelled and StoreUnavailable.
        """
        return Schema(*await self._update_own_row(sql.FINISH_UPGRADE))

    async def publish(self, address: str, forward: str) -> None:
        """Publish where clients (`address`) and members (`forward`) reach this one, now and with every heartbeat.

        Raises Expelled and StoreUnavailable; after that the next heartbeat publishes them.
        """
        self._addresses = address, forward
        await self._update_own_row(sql.PUBLISH, address, forward)

    async def _update_own_row(self, query: str, *arguments: Any, on_send: Callable[[], None] = lambda: None) -> Any:
        """Change this member's row by a statement, and return the first value of its result.

        `on_send` is called each time before the statement is sent. Raises Expelled, which ends the term, if the member
        has no row or is gone, and StoreUnavailable.
        """
        rows = await self._query(query, self.name, self.term, *arguments, on_send=on_send)
        if not rows:
            raise self._identity.end_as_expelled()
        return rows[0][0]

    async def _query(
        self, query: str, *arguments: Any, on_send: Callable[[], None] = lambda: None
    ) -> list[Sequence[Any]]:
        """Return the rows of a statement, over a connection that is made again if need be.

        The statement may be sent twice, and must have the same effect then; `on_send` is called before each time.
        Raises Expelled and StoreUnavailable.
        """
        try:
            async with asyncio.timeout(self._timeout_s), self._query_lock:
                for attempt in range(2):
                    self._identity.require_alive()
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await self._identity.connect()
                    on_send()
                    try:
                        return await self._connection.fetch(self._identity.database.for_schema(query), *arguments)
                    except ERRORS as error:
                        if is_failure_certain(error) or attempt:
                            raise self._identity.as_store_error(error) from error
                        self._drop_connection()
        except TimeoutError:
            self._drop_connection()
            raise StoreUnavailable(
                f"the store {self._identity.database.name} has not answered for {self._timeout_s:g} s"
            ) from None
        raise AssertionError

    def _drop_connection(self) -> None:
        """Close the connection at once; the next query makes a new one."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """End the connection."""
        async with self._query_lock:
            self._drop_connection()
