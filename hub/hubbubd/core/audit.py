"""What the audit log says: who changed what, when, and with what outcome. Never what was in it."""

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from hubbubd.bounds import Count, Moment

OK = "OK"
HUB = "hub"
"""The principal of what the hub does by itself."""

BY_FILE, BY_SIGNAL = "hub:file", "hub:signal"
"""The principals of what an operator does without the API: by writing a file of the configuration, by a signal."""


class AuditKind(StrEnum):
    """What an entry is about. Each kind has a limit of its own, so that one cannot push out the others."""

    CHANGE = "change"
    ANSWER = "answer"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one that was refused. `created_at` is seconds since the epoch.

    `credential` is what was shown, never a secret; `peer` is `loopback`, `unix` or `network`. `action` is the name of
    the RPC; `target` the server, request, token, ... that it names. `outcome` is OK or the reason of the refusal; of
    equal refusals within a minute there is one entry, with their number. `trace_id` is the trace of the RPC, if any.
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
        """Who counts as one, whatever names they give: a credential, but each person of an identity provider."""
        return self.principal if self.principal.startswith("oidc:") else self.credential or self.principal


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Entries for which every condition given holds; `since` is seconds since the epoch."""

    principal: str = ""
    action: str = ""
    target: str = ""
    since: float = 0.0

    def matches(self, entry: AuditEntry) -> bool:
        """Whether the entry is in."""
        return (
            (not self.principal or entry.principal == self.principal)
            and (not self.action or entry.action == self.action)
            and (not self.target or entry.target == self.target)
            and entry.created_at >= self.since
        )


LARGE = 8
"""Who has more than the eighth part of all entries of a kind has many of them; there are at most that many such."""


class Kept:
    """Which entries of one kind are kept: `count` of them. Beyond that, who has most of them loses their oldest.

    So nobody pushes out what others have done. As long as nobody has many, the oldest of all goes.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._of: dict[str, OrderedDict[str, None]] = {}
        self._many: set[str] = set()

    def add(self, entry: AuditEntry) -> list[str]:
        """Keeps an entry, once; the ids of those that go for it."""
        if entry.id in self._known:
            return []
        self._known[entry.id] = entry.created_at, entry.holder
        own = self._of.setdefault(entry.holder, OrderedDict())
        own[entry.id] = None
        if len(own) * LARGE > self._count:
            self._many.add(entry.holder)
        return self._excess()

    def resize(self, count: int) -> list[str]:
        """Keeps so many from now on; the ids of those that go for it."""
        self._count = count
        self._many = {holder for holder, own in self._of.items() if len(own) * LARGE > count}
        return self._excess()

    def expire(self, before: float) -> list[str]:
        """The ids of entries that are older than this, which are kept no longer."""
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
