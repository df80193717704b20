"""A member of a fleet, as the database has it."""

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """Whether a member takes part."""

    LIVE = "live"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member as the database has it. `life` counts its starts.

    `address` is for clients, `forward` for members. `position` is the revision up to which it has read. `overdue` says
    that it has not been heard of for a lease's time, by the database's clock; `silent_s` is for how long.
    """

    name: str
    life: int
    standing: Standing
    address: str
    forward: str
    version: str
    position: int
    overdue: bool
    silent_s: float = 0.0

    @property
    def serves(self) -> bool:
        """Whether it may be given servers."""
        return self.standing is Standing.LIVE and not self.overdue
