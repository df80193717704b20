"""Members of a fleet as the database has them: the port that `runtime` uses. `postgres/members.py` implements it."""

from typing import Protocol

from hubbubd.members import ClockReading, Expulsion, Member, MemberStatus, Schema
from hubbubd.store import StoreUnavailable


class Expelled(StoreUnavailable):
    """The database says that this member is gone: others have its servers, and it commits nothing more in this term."""


class HistoryLost(Expelled):
    """The database has another history than this member has seen: a standby that was behind has become the primary.

    This term is over as well: all records have to be read again. The store has a new id by then. `seen` is the
    newest revision that this member knew of the former history, `reached` the database's revision when this was found.
    """

    def __init__(self, message: str, seen: int = 0, reached: int = 0) -> None:
        super().__init__(message)
        self.seen = seen
        self.reached = reached


class Membership(Protocol):
    """This hub's place among the members, for one term: from the opening of the store until it leaves or is expelled.

    Meanwhile its lease runs: others may expel a member that sends no heartbeat in time. Once Expelled was raised, here
    or by the store, all methods of both raise it at once.
    """

    @property
    def name(self) -> str:
        """This member's name."""
        ...

    @property
    def term(self) -> int:
        """The number of this member's term; greater than that of any term before."""
        ...

    @property
    def lease_ttl_s(self) -> float:
        """Seconds without a heartbeat after which others may expel this member."""
        ...

    @property
    def schema(self) -> Schema:
        """The versions of the store's tables, as of the last call of `members`."""
        ...

    async def renew_lease(self, position: int, for_s: float) -> ClockReading:
        """Send a heartbeat with the revision `position` that was read last; return a reading of the database's clock.

        Unless the lease is renewed within `for_s` seconds, others may expel this member. Raises Expelled, and
        StoreUnavailable when the database does not answer.
        """
        ...

    async def members(self) -> list[Member]:
        """Return all members, gone ones included for a day at least. Raises Expelled and StoreUnavailable."""
        ...

    async def expel(self, member: Member) -> Expulsion:
        """Declare an overdue member gone. Of several that do so at once, one gets DONE.

        Refused unless this member itself has missed no heartbeat for a lease's time: the database may have been away
        for all. A heartbeat counts as missed once half of a lease's time has passed without one.
        Raises Expelled and StoreUnavailable.
        """
        ...

    async def set_own_status(self, status: MemberStatus) -> None:
        """Set this member's own status; GONE ends this term. Raises Expelled and StoreUnavailable."""
        ...

    async def set_status(self, member: Member, status: MemberStatus) -> bool:
        """Set the status of any member; return False, and set nothing, if that term of the member is over.

        GONE ends its term at once, overdue or not: the caller must know that the process has ended. Raises Expelled and
        StoreUnavailable.
        """
        ...

    async def count_standbys(self) -> int | None:
        """Return how many synchronous standbys the database has; None if it requires some that this hub may not see.

        Raises Expelled and StoreUnavailable.
        """
        ...

    async def finish_upgrade(self) -> Schema:
        """Require from now on that hubs know the version of the store's tables, if all members know it.

        Return the versions after that: if a member does not know it, the required version is as before.

        Raises Expelled and StoreUnavailable.
        """
        ...

    async def publish(self, address: str, forward: str) -> None:
        """Publish where clients (`address`) and members (`forward`) reach this one, as HOST:PORT, also in heartbeats.

        Raises Expelled, and StoreUnavailable; after that the next heartbeat publishes both.
        """
        ...
