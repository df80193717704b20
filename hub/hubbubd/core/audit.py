"""Audit log entries: who changed what, when, and with what outcome; never the content. And which of them are kept."""

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from hubbubd.bounds import Count, Moment

OK = "OK"
HUB = "hub"
"""The principal of changes that the hub makes by itself."""

BY_FILE, BY_SIGNAL = "hub:file", "hub:signal"
"""The principals of changes an operator makes without the API: through a configuration file, or a signal."""


class AuditKind(StrEnum):
    """Kind of an entry. Each kind has its own retention limit, so that one cannot push out the others."""

    CHANGE = "change"
    ANSWER = "answer"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one refused. `created_at` is seconds since the epoch.

    `credential` identifies what was presented and is never a secret; `peer` is `loopback`, `unix` or `network`.
    `action` is the name of the RPC, `target` the server, request, token, ... that it names. `outcome` is OK or the
    reason of the refusal. Equal refusals within a minute are coalesced into one entry with their `count`. `trace_id` is
    the RPC's trace.
    """

    id: str
    kind: AuditKind
    created_at: Moment
    principal: str
    credential: str = ""
    peer: str = ""
    action: str
    target: str = ""
    outcome: str = OK
    count: Count = 1
    trace_id: str = ""

    @property
    def holder(self) -> str:
        """The owner of the entry for retention: the credential, under any name it was used; with OIDC the person."""
        return self.principal if self.principal.startswith("oidc:") else self.credential or self.principal


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Entries that meet every condition given; `since` is seconds since the epoch."""

    principal: str = ""
    action: str = ""
    target: str = ""
    since: float = 0.0

    def matches(self, entry: AuditEntry) -> bool:
        """Return whether the entry meets every condition given."""
        return (
            (not self.principal or entry.principal == self.principal)
            and (not self.action or entry.action == self.action)
            and (not self.target or entry.target == self.target)
            and entry.created_at >= self.since
        )


LARGE = 8
"""A holder with more than 1/LARGE of all entries of a kind is large; there are never more than LARGE of those."""


class FairRetention:
    """Fair retention of one kind: keep `count` entries and evict the oldest of the holder that has most.

    So no holder pushes out the entries of others. While no holder is large, evict the oldest entry of all.
    """

    def __init__(self, max_entries: int) -> None:
        """Begin without entries; `max_entries` are kept at most."""
        self._max_entries = max_entries
        self._entries: OrderedDict[str, tuple[float, str]] = OrderedDict()
        """Time of creation and holder of each entry by id, oldest first."""
        self._ids_by_holder: dict[str, OrderedDict[str, None]] = {}
        self._large_holders: set[str] = set()

    def add(self, entry: AuditEntry) -> list[str]:
        """Add an entry, and return the ids evicted for it. Idempotent."""
        if entry.id in self._entries:
            return []
        self._entries[entry.id] = entry.created_at, entry.holder
        holder_ids = self._ids_by_holder.setdefault(entry.holder, OrderedDict())
        holder_ids[entry.id] = None
        if len(holder_ids) * LARGE > self._max_entries:
            self._large_holders.add(entry.holder)
        return self._evict_excess()

    def resize(self, max_entries: int) -> list[str]:
        """Set a new limit of entries, and return the ids of the entries evicted for it."""
        self._max_entries = max_entries
        self._large_holders = {
            holder for holder, holder_ids in self._ids_by_holder.items() if len(holder_ids) * LARGE > max_entries
        }
        return self._evict_excess()

    def expire(self, before: float) -> list[str]:
        """Drop the entries older than `before` and return their ids."""
        expired: list[str] = []
        while self._entries and next(iter(self._entries.values()))[0] < before:
            expired.append(next(iter(self._entries)))
            self._forget(expired[-1])
        return expired

    def _evict_excess(self) -> list[str]:
        """Drop the entries beyond the limit, and return their ids."""
        evicted: list[str] = []
        while len(self._entries) > self._max_entries:
            evicted.append(self._choose_evicted())
            self._forget(evicted[-1])
        return evicted

    def _choose_evicted(self) -> str:
        """Return the id of the oldest entry of the largest holder, or of all entries if no holder is large."""
        largest_holder = max(self._large_holders, key=lambda holder: len(self._ids_by_holder[holder]), default=None)
        return next(iter(self._entries if largest_holder is None else self._ids_by_holder[largest_holder]))

    def _forget(self, entry_id: str) -> None:
        """Drop an entry from all tables. Its holder may no longer be large then."""
        _, holder = self._entries.pop(entry_id)
        holder_ids = self._ids_by_holder[holder]
        del holder_ids[entry_id]
        if len(holder_ids) * LARGE <= self._max_entries:
            self._large_holders.discard(holder)
        if not holder_ids:
            del self._ids_by_holder[holder]
