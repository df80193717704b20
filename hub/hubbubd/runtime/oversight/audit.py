"""The audit log: every change that somebody asked for, and every one that was refused.

    RPC begins ──> an entry that rides with the first commit of the change: both are durable, or neither
    RPC ends   ──> was there no commit, or did it fail in the end: the entry follows a moment later

Refusals are counted by who, what and why, an entry a minute, and only so many different ones: however many there are,
they push nothing else out.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hubbubd.clock import Clock
from hubbubd.config import HubSettings
from hubbubd.core.audit import HUB, OK, AuditEntry, AuditFilter, AuditKind, Kept
from hubbubd.errors import HubError
from hubbubd.runtime.records import COMMIT_HOOK, Change, Ledger, Place, Table

MINUTE_S = 60.0
"""Seconds within which equal refusals share one entry."""

REFUSALS_PER_MINUTE = 100
"""Different refusals of a minute that have entries of their own; the others share one for each reason."""

OTHERS = "*"
"""Stands for who and what in the entry that the others share."""

CANCELLED = "CANCELLED"
"""The outcome of what its caller gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Who does what, from where, with what. As in `AuditEntry`."""

    principal: str
    credential: str = ""
    peer: str = ""
    action: str
    target: str = ""
    trace_id: str = ""


class _EntryHook:
    """Implements `ledger.CommitHook`: an entry that has yet to become durable."""

    def __init__(self, change: Change[AuditEntry]) -> None:
        self._change = change
        self.over = False
        self.durable = False
        self.mistaken: Callable[[], None] | None = None

    def change(self) -> Change[AuditEntry] | None:
        return None if self.over or self.durable else self._change

    def committed(self) -> None:
        self.durable = True
        if self.mistaken is not None:
            self.mistaken()


class Audit:
    """The entries of the audit log. Only this class writes them."""

    def __init__(self, ledger: Ledger, table: Table[AuditEntry], clock: Clock, settings: HubSettings) -> None:
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._age_s = settings.audit_history_age_s
        self._count = settings.audit_history_count
        self._kept = {kind: Kept(self._count) for kind in AuditKind}
        self._true: Callable[[float], float] = float
        self._minute = clock.steady()
        self._counted: dict[tuple[str, ...], str] = {}
        table.follow(self._follow)

    def adopt(self, settings: HubSettings) -> None:
        """Keeps so many entries from now on; what is too old for `settings` goes with the next `prune`."""
        self._age_s, self._count = settings.audit_history_age_s, settings.audit_history_count
        for kept in self._kept.values():
            self._delete(kept.resize(settings.audit_history_count))

    def load(self, true: Callable[[float], float]) -> None:
        """Takes up the entries that there are; `true` says when it was that something was stamped so."""
        self._true = true
        self._kept = {kind: Kept(self._count) for kind in AuditKind}
        for entry in sorted(self._table, key=lambda entry: true(entry.created_at)):
            self._see(entry)

    # Writing

    @contextmanager
    def change(self, attempt: Attempt, kind: AuditKind = AuditKind.CHANGE) -> Generator[None]:
        """What is changed in the block has an entry; so has what is refused there."""
        entry = self._entry(kind, attempt)
        hook = _EntryHook(Change(self._table, entry.id, entry))
        before = COMMIT_HOOK.set(hook)
        outcome = OK
        try:
            yield
        except BaseException as exc:
            outcome = _outcome(exc)
            raise
        finally:
            COMMIT_HOOK.reset(before)
            hook.over = outcome != CANCELLED  # what goes on without its caller still takes its entry along
            if outcome == OK and not hook.durable:
                self._later(entry)
            elif outcome != OK and not hook.durable:
                noted = self.refused(attempt, outcome)
                hook.mistaken = lambda: self._take_back(noted)
            elif outcome not in (OK, CANCELLED):  # whoever gave up has changed it all the same
                self._later(replace(entry, outcome=outcome))

    def began(self, attempt: Attempt, kind: AuditKind = AuditKind.CHANGE) -> None:
        """An entry for what goes on from now."""
        self._later(self._entry(kind, attempt))

    def note(self, action: str, target: str) -> None:
        """An entry for what the hub does by itself."""
        self.began(Attempt(principal=HUB, action=action, target=target))

    def refused(self, attempt: Attempt, reason: str) -> str:
        """Counts a refusal and returns the id of its entry; that of equal ones has target and trace of the last."""
        now = self._clock.steady()
        if now - self._minute >= MINUTE_S:
            self._minute = now
            self._counted.clear()
        key = (attempt.principal, attempt.credential, attempt.peer, attempt.action, reason)
        if key not in self._counted and len(self._counted) >= REFUSALS_PER_MINUTE:
            key, attempt = (reason,), Attempt(principal=OTHERS, action=OTHERS)
        known = self._table.record(self._counted.get(key, ""))
        if known is None:
            known = replace(self._entry(AuditKind.REFUSAL, attempt), outcome=reason, count=0)
            self._counted[key] = known.id
        last = replace(known, target=attempt.target, trace_id=attempt.trace_id, count=known.count + 1)
        self._later(last)
        return last.id

    def _take_back(self, entry_id: str) -> None:
        """Counts one refusal less: what seemed to have been given up was done after all."""
        if (known := self._table.record(entry_id)) is not None:
            left = replace(known, count=known.count - 1)
            self._ledger.later(Change(self._table, entry_id, left if left.count else None))

    def prune(self) -> int:
        """Deletes what is too old and returns how many entries that were; what is too much goes when more comes."""
        oldest = self._clock.now() - self._age_s
        gone = [entry_id for kept in self._kept.values() for entry_id in kept.expire(oldest)]
        self._delete(gone)
        return len(gone)

    # Reading

    def select(self, chosen: AuditFilter) -> list[AuditEntry]:
        """The entries that match, in no order that means anything."""
        return [entry for entry in self._table if chosen.matches(entry)]

    def newest(
        self, chosen: AuditFilter, after: Place | None = None, oldest_first: bool = False
    ) -> Iterator[AuditEntry]:
        """Those that match and come after a place, newest first or the other way round, one by one."""
        return self._table.newest(chosen.matches, after, oldest_first)

    def _entry(self, kind: AuditKind, attempt: Attempt) -> AuditEntry:
        return AuditEntry(
            id=f"audit_{secrets.token_hex(8)}",
            kind=kind,
            created_at=self._clock.now(),
            principal=attempt.principal,
            credential=attempt.credential,
            peer=attempt.peer,
            action=attempt.action,
            target=attempt.target,
            trace_id=attempt.trace_id,
        )

    def _later(self, entry: AuditEntry) -> None:
        self._ledger.later(Change(self._table, entry.id, entry))

    def _follow(self, before: AuditEntry | None, after: AuditEntry | None) -> None:
        # Only now: one that went before it was durable would count once more when it is.
        if before is None and after is not None:
            self._see(after)

    def _see(self, entry: AuditEntry) -> None:
        self._delete(self._kept[entry.kind].add(replace(entry, created_at=self._true(entry.created_at))))

    def _delete(self, entry_ids: Iterable[str]) -> None:
        for entry_id in entry_ids:
            self._ledger.later(Change(self._table, entry_id, None))


def _outcome(exc: BaseException) -> str:
    if isinstance(exc, HubError):
        return exc.reason
    return "INTERNAL" if isinstance(exc, Exception) else CANCELLED
