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
    def life(self) -> int:
        """The number of this member's term; greater than that of any term before."""
        return self._identity.life

    @property
    def lease_ttl_s(self) -> float:
        """Seconds without a heartbeat after which others may expel this member."""
        return self._entrant.lease_ttl_s

    async def renew_lease(self, position: int, for_s: float | None = None) -> ClockReading:
        """Send a heartbeat; return a reading of the database's clock. `for_s` is by default the time of a lease."""
        sent_at = 0.0

        def note_sent() -> None:
            """Note when the heartbeat is sent; again if it is sent twice."""
            nonlocal sent_at
            sent_at = self._now()

        arguments = for_s or self.lease_ttl_s, position, self.lease_ttl_s, *self._addresses
        at = await self._update_own_row(sql.BEAT, *arguments, on_send=note_sent)
        return ClockReading(at=at, sent=sent_at, came=self._now())

    async def members(self) -> list[Member]:
        """Return all members, gone ones included for a day at least. Raises Expelled and StoreUnavailable."""
        rows = await self._query(sql.MEMBERS, MAX_MEMBERS, self.lease_ttl_s)
        for *_, version, required in rows[:1]:  # this member is one of them
            self.schema = Schema(version, required)
        return [
            Member(
                name=name[:MAX_TEXT_CHARS],
                life=life,
                standing=MemberStatus(standing),
                address=address[:MAX_TEXT_CHARS],
                forward=forward[:MAX_TEXT_CHARS],
                version=version[:MAX_TEXT_CHARS],
                position=position,
                overdue=overdue,
                silent_s=silent_s,
                schema=knows,
            )
            for name, life, standing, address, forward, version, position, overdue, silent_s, knows, *_ in rows
        ]

    async def expel(self, member: Member) -> Expulsion:
        """Declare an overdue member gone, as `Membership`.

        GONE_BEFORE may also come if the connection broke and this was sent twice.
        """
        arguments = self.name, self.life, member.name, member.life, self.lease_ttl_s
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
        """Set the status of any member, as `Membership`; return False if that term of the member is over."""
        return bool(await self._query(sql.APPOINT, self.name, self.life, member.name, member.life, status.value))

    async def count_standbys(self) -> int | None:
        """Return the number of synchronous standbys; None if some are required and this member cannot see them."""
        [[required, visible, count]] = await self._query(sql.STANDBYS)
        return None if required and not visible else count

    async def finish_upgrade(self) -> Schema:
        """Require the newest version of the tables, if all members know it; return the versions after that."""
        return Schema(*await self._update_own_row(sql.FINISH_UPGRADE))

    async def publish(self, address: str, forward: str) -> None:
        """Publish where clients and other members reach this one, now and with every heartbeat."""
        self._addresses = address, forward
        await self._update_own_row(sql.PUBLISH, address, forward)

    async def _update_own_row(self, query: str, *arguments: Any, on_send: Callable[[], None] = lambda: None) -> Any:
        """Change this member's row; return the statement's first value. `on_send` is called as it is sent.

        Raises Expelled and StoreUnavailable.
        """
        rows = await self._query(query, self.name, self.life, *arguments, on_send=on_send)
        if not rows:
            raise self._identity.end_as_expelled()
        return rows[0][0]

    async def _query(
        self, query: str, *arguments: Any, on_send: Callable[[], None] = lambda: None
    ) -> list[Sequence[Any]]:
        """Return the rows of a statement, over a connection that is made again if need be.

        The statement may be sent twice, and must do the same then. Raises Expelled and StoreUnavailable.
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
