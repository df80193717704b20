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
        """The owner for retention: the credential, whatever names come with it; with OIDC the person."""
        return self.principal if self.principal.startswith("oidc:") else self.credential or self.principal


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Entries that meet every condition given; `since` is seconds since the epoch."""

    principal: str = ""
    action: str = ""
    target: str = ""
    since: float = 0.0

    def matches(self, entry: AuditEntry) -> bool:
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

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._of: dict[str, OrderedDict[str, None]] = {}
        self._many: set[str] = set()

    def add(self, entry: AuditEntry) -> list[str]:
        """Keep an entry and return the ids evicted for it. Idempotent."""
        if entry.id in self._known:
            return []
        self._known[entry.id] = entry.created_at, entry.holder
        own = self._of.setdefault(entry.holder, OrderedDict())
        own[entry.id] = None
        if len(own) * LARGE > self._count:
            self._many.add(entry.holder)
        return self._excess()

    def resize(self, count: int) -> list[str]:
        """Set a new limit and return the ids evicted."""
        self._count = count
        self._many = {holder for holder, own in self._of.items() if len(own) * LARGE > count}
        return self._excess()

    def expire(self, before: float) -> list[str]:
        """Drop the entries older than `before` and return their ids."""
        gone: list[str] = []
        while self._known and next(iter(self._known.values()))[0] < before:
            gone.append(next(iter(self._known)))
            self._forget(gone[-1])
        return gone

    def _excess(self) -> list[str]:
        gone: list[str] = []
        while len(self._known) > self._count:
            gone.append(self._oldest())
            self._forget(gone[-1])
        return gone

    def _oldest(self) -> str:
        most = max(self._many, key=lambda holder: len(self._of[holder]), default=None)
        return next(iter(self._known if most is None else self._of[most]))

    def _forget(self, entry_id: str) -> None:
        _, holder = self._known.pop(entry_id)
        own = self._of[holder]
        del own[entry_id]
        if len(own) * LARGE <= self._count:
            self._many.discard(holder)
        if not own:
            del self._of[holder]
