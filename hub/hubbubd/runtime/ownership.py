"""Which servers are this hub's own: it connects them, and acts on changes of their records.

Any hub may read and watch the records, and make changes that fail if a record has changed meanwhile.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from hubbubd.core.servers.server_record import UPKEEP as UPKEEP
from hubbubd.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Takeover:
    """The servers that this hub takes over from an earlier hub: those for which `owns` is true.

    `requests` are the ids of the servers' pending requests at that moment. Calls that cannot go on end with a fault of
    the `code`, whose message begins with `event_text`. `is_only_hub` says that no other hub may still show pending
    requests or have claims on them.
    """

    owns: Callable[[str], bool]
    requests: frozenset[str] = frozenset()
    code: str = "HUB_RESTARTED"
    event_text: str = "the hub was restarted"
    is_only_hub: bool = True


@dataclass(frozen=True, slots=True)
class Owner:
    """The member that has a server, and where other members reach it. `term` is the number of its term."""

    member: str
    term: int
    forward: str


NOT_STARTED_REASONS: Final = frozenset({"MOVED", "OWNER_CHANGING"})
"""Reasons of errors after which the caller may try again, as nothing was carried out."""


def owner_changing_error(server: str, member: str = "", limitation: str = "") -> Unavailable:
    """Return the error for a server without an owner, or, with `member`, for one whose owner cannot serve it.

    `limitation` is the end of the sentence "SERVER is with the member MEMBER of the fleet, ...".
    """
    problem = (
        f"is with the member {member} of the fleet, {limitation}"
        if member
        else "has no owner in the fleet at the moment"
    )
    return Unavailable(
        f"{server} {problem}; try again, and see `hubbub fleet status` if that goes on",
        reason="OWNER_CHANGING",
        metadata={"server": server, **({"member": member} if member else {})},
        retry_after_s=1.0,
    )


def moved_error(server: str) -> Unavailable:
    """Return the error for a new call to a server that is being handed to another member; nothing was carried out."""
    return Unavailable(
        f"{server} is being handed on to another member of the fleet; try again",
        reason="MOVED",
        metadata={"server": server},
        retry_after_s=1.0,
    )


class Ownership(Protocol):
    """Answers which member of a fleet has a server. Only that member connects the server, and acts on its records."""

    @property
    def me(self) -> str:
        """This member's name; empty without a fleet."""
        ...

    @property
    def owns_all(self) -> bool:
        """Whether all servers are this hub's own, whatever their names."""
        ...

    def owns(self, server: str) -> bool:
        """Return whether a server of this name is this hub's own."""
        ...

    def may_act(self) -> bool:
        """Return whether this hub may send anything to its servers now.

        It may not while its lease may have ended: the last sign of life to the database was too long ago.
        """
        ...

    def owner(self, server: str) -> Owner | None:
        """Return the other member that has a server; None if no other member is known to have it."""
        ...

    def is_free(self, server: str) -> bool:
        """Return whether it is certain that no member has a server; False also if this is not known."""
        ...

    def others(self) -> list[Owner]:
        """Return all other members that take part."""
        ...

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of each server whose owner has changed. The listener must not block."""
        ...


class SoleOwnership:
    """The ownership of a hub that shares its store with nobody: all servers are its own."""

    me = ""
    owns_all = True

    def owns(self, server: str) -> bool:
        """Return True: all servers are this hub's own."""
        return True

    def may_act(self) -> bool:
        """Return True: there is no lease that could end."""
        return True

    def owner(self, server: str) -> Owner | None:
        """Return None: no other member has a server."""
        return None

    def is_free(self, server: str) -> bool:
        """Return False: this hub has every server."""
        return False

    def others(self) -> list[Owner]:
        """Return no members."""
        return []

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Do nothing: no server ever changes its owner."""


class Candidates(Protocol):
    """The servers that this hub might own, and what it does with each now. A server that it serves is at work here."""

    def server_names(self) -> Collection[str]:
        """Return the names of all servers, those of this member's files included."""
        ...

    def takeover_delay_s(self, server: str) -> float | None:
        """Return for how many seconds this hub lets others take a free server first; None if it must never take it."""
        ...

    def home(self, server: str) -> str:
        """Return the only member that may have a server; empty if others may have it, too."""
        ...

    def is_at_work(self, server: str) -> bool:
        """Return whether a server is at work here; also while it is changed, though it may be missing for a moment."""
        ...

    def servers_at_work(self) -> Collection[str]:
        """Return the names of the servers that are at work here."""
        ...

    def is_idle(self, server: str) -> bool:
        """Return whether nothing is under way at a server, so that it can be handed to another member."""
        ...


class OwnershipHooks(Protocol):
    """What the fleet has the hub do when a server gets another owner."""

    async def take_over(self, takeover: Takeover) -> None:
        """Connect servers, and act on their records from now on. Raises Unavailable."""
        ...

    async def hand_over(self, server: str, timeout_s: float) -> None:
        """Let a server's calls end, for at most `timeout_s`, and act on it no longer. Raises Unavailable."""
        ...
