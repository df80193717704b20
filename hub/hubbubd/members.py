"""A member of a fleet, as the database has it."""

from dataclasses import dataclass
from enum import StrEnum


class MemberStatus(StrEnum):
    """Whether a member takes part."""

    LIVE = "live"
    DRAINING = "draining"
    GONE = "gone"


class Expulsion(StrEnum):
    """What became of an attempt to declare a member gone. Its truth value says whether the member is gone."""

    REFUSED = ""
    DONE = "done"
    GONE_BEFORE = "gone before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member as the database has it. `term` is the number of its term, which grows with each start.

    `address` is for clients, `forward` for members. `position` is the revision up to which it has read the store.
    `overdue` says that its last heartbeat is older than a lease lasts, by the database's clock; `silent_s` is the age
    of that heartbeat. `schema` is the newest version of the store's tables that it knows.
    """

    name: str
    term: int
    status: MemberStatus
    address: str
    forward: str
    version: str
    position: int
    overdue: bool
    silent_s: float = 0.0
    schema: int = 0

    @property
    def serves(self) -> bool:
        """Whether the member may get servers: it is live, and not overdue."""
        return self.status is MemberStatus.LIVE and not self.overdue

    @property
    def is_reachable(self) -> bool:
        """Whether other members can reach this one: it is not gone, and has an address for them."""
        return self.status is not MemberStatus.GONE and bool(self.forward)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The database's clock as read by a member: `at` is its time in seconds since the epoch.

    The query was sent at `sent_s`, and its response came at `received_s`, both by `clock.elapsed` of the member.
    """

    at: float
    sent_s: float
    received_s: float


@dataclass(frozen=True, slots=True)
class Schema:
    """The `version` of the store's tables, and the version that a hub must know to open them (`required`).

    As long as `required` is less, an upgrade is under way: members of both versions may take part.
    """

    version: int
    required: int

    @property
    def is_settled(self) -> bool:
        """Whether no upgrade is under way."""
        return self.required >= self.version
