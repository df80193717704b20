"""What the audit log says: who changed what, when, and with what outcome. Never what was in it."""

from dataclasses import dataclass
from enum import StrEnum

OK = "OK"
HUB = "hub"
"""The principal of what the hub does by itself."""

BY_FILE, BY_SIGNAL = "hub:file", "hub:signal"
"""The principals of what an operator does without the API: by writing a file of the configuration, by a signal."""


class Sort(StrEnum):
    """What an entry is about. Each sort has a limit of its own, so that one cannot push out the others."""

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
    sort: Sort
    created_at: float
    principal: str
    credential: str = ""
    peer: str = ""
    action: str
    target: str = ""
    outcome: str = OK
    count: int = 1
    trace_id: str = ""


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
