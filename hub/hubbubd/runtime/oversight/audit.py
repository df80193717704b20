"""The audit log: every change requested over the API or by an operator, and every refusal.

    RPC begins ──> its entry rides with the first commit of the change: both are durable, or neither
    RPC ends   ──> if there was no commit, or the RPC failed after one: the entry follows, write-behind

Refusals are coalesced by principal, action and reason into one entry per minute, with a bound on different ones, so
that a flood of them pushes nothing else out.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from hubbubd.config import HubSettings
from hubbubd.core.audit import HUB, OK, AuditEntry, AuditFilter, AuditKind, FairRetention
from hubbubd.core.logins.refusals import LoginRefusal
from hubbubd.errors import HubError
from hubbubd.frozen import carry_over_changes
from hubbubd.runtime.records import COMMIT_HOOK, AgePosition, Change, Ledger, Table, delete
from hubbubd.timing.clock import Clock

MINUTE_S = 60.0
"""Seconds within which equal refusals share one entry."""

REFUSALS_PER_MINUTE = 100
"""The most different refusals per minute with entries of their own; further refusals share one entry per reason."""

OTHERS = "*"
"""Principal and action in an entry that different refusals share."""

CANCELLED = "CANCELLED"
"""The outcome of an RPC that its caller cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Who does what, from where, to what. Fields as in `AuditEntry`."""

    principal: str
    credential: str = ""
    peer: str = ""
    action: str
    target: str = ""
    trace_id: str = ""


class _EntryHook:
    """An entry that is written with the first commit of its change; implements `ledger.CommitHook`."""

    def __init__(self, change: Change[AuditEntry]) -> None:
        """`change` adds the entry to the audit log."""
        self._change = change
        self.is_closed = False
        """Whether the recorded change has ended, so that no later commit may write the entry."""
        self.on_late_commit: Callable[[], None] | None = None
        """Called if the commit proves durable after its change was counted as refused."""
        self._is_durable = False

    @property
    def is_durable(self) -> bool:
        """Whether the entry is in the store.

        A commit whose outcome was unknown may prove durable only later; then this also calls `on_late_commit`.
        """
        if not self._is_durable and self._change.table.record(self._change.id) is not None:
            self.mark_committed()
        return self._is_durable

    def change(self) -> Change[AuditEntry] | None:
        """Return the change that adds the entry; None once the entry is durable or the hook is closed."""
        return None if self.is_closed or self.is_durable else self._change

    def mark_committed(self) -> None:
        """Note that the entry is durable, and call `on_late_commit` the first time."""
        if not self._is_durable and self.on_late_commit is not None:
            self.on_late_commit()
        self._is_durable = True


class Audit:
    """The entries of the audit log. Only this class writes them."""

    def __init__(self, ledger: Ledger, table: Table[AuditEntry], clock: Clock, settings: HubSettings) -> None:
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._age_s = settings.audit_history_age_s
        self._count = settings.audit_history_count
        self._retained = {kind: FairRetention(self._count) for kind in AuditKind}  # which entries to keep
        self._correct_stamp: Callable[[float], float] = float  # no correction, until `load`
        self._minute_began_at = clock.steady()
        self._refusal_ids: dict[tuple[str, ...], str] = {}
        """Entries of this minute, by principal, credential, peer, action and reason, or by reason alone."""
        table.follow(self._retain_new)

    def adopt(self, settings: HubSettings) -> None:
        """Apply changed retention limits: entries beyond the new number are deleted now, too old ones by `prune`."""
        self._age_s, self._count = settings.audit_history_age_s, settings.audit_history_count
        for retained in self._retained.values():
            self._delete(retained.resize(settings.audit_history_count))

    def load(self, correct_stamp: Callable[[float], float]) -> None:
        """Put all entries in the order of their age, and delete those beyond the limit of number; may be repeated.

        `correct_stamp` returns a stamp corrected for leaps of the clock (`Ages.correct_stamp`).
        """
        self._correct_stamp = correct_stamp
        self._retained = {kind: FairRetention(self._count) for kind in AuditKind}
        for entry in sorted(self._table, key=lambda entry: correct_stamp(entry.created_at)):
            self._retain(entry)

    # Writing

    @contextmanager
    def record_change(self, attempt: Attempt, kind: AuditKind = AuditKind.CHANGE) -> Generator[None]:
        """Record the change that the block makes, or its refusal if the block raises.

        The entry is durable with the first commit in the block. Without a commit, entry or refusal is write-behind.
        """
        entry = self._make_entry(kind, attempt)
        hook = _EntryHook(self._table.new(entry.id, entry))
        hook_token = COMMIT_HOOK.set(hook)
        outcome = OK
        try:
            yield
        except BaseException as exc:
            outcome = _read_outcome(exc)
            raise
        finally:
            COMMIT_HOOK.reset(hook_token)
            hook.is_closed = outcome != CANCELLED  # a change may go on without its caller, with its entry
            if outcome == OK and not hook.is_durable:
                self._add(entry)
            elif outcome != OK and not hook.is_durable:
                refusal_id = self.record_refusal(attempt, outcome)
                hook.on_late_commit = lambda: self._uncount_refusal(refusal_id)
            elif outcome not in (OK, CANCELLED):  # a cancelled caller's change has been made all the same
                failed = replace(entry, outcome=outcome)
                self._ledger.change_later(self._table, entry.id, partial(carry_over_changes, entry, failed))

    def record_start(self, attempt: Attempt, kind: AuditKind = AuditKind.CHANGE) -> None:
        """Record that something begins now, such as a stream; write-behind."""
        self._add(self._make_entry(kind, attempt))

    def note(self, action: str, target: str) -> None:
        """Record that the hub does `action` by itself, to `target`; write-behind."""
        self.record_start(Attempt(principal=HUB, action=action, target=target))

    def record_refusal(self, attempt: Attempt, reason: str) -> str:
        """Count a refusal, write-behind, and return the id of its entry.

        Equal refusals within MINUTE_S share an entry, which has `target` and `trace_id` of the last of them. Beyond
        REFUSALS_PER_MINUTE different ones, all further ones with the same reason share an entry.
        """
        now = self._clock.steady()
        if now - self._minute_began_at >= MINUTE_S:
            self._minute_began_at = now
            self._refusal_ids.clear()
        key = (attempt.principal, attempt.credential, attempt.peer, attempt.action, reason)
        if key not in self._refusal_ids and len(self._refusal_ids) >= REFUSALS_PER_MINUTE:
            key, attempt = (reason,), Attempt(principal=OTHERS, action=OTHERS)
        known = self._table.record(self._refusal_ids.get(key, ""))
        if known is None:
            known = replace(self._make_entry(AuditKind.REFUSAL, attempt), outcome=reason, count=0)
            self._refusal_ids[key] = known.id

        def count_one_more(stored: AuditEntry | None) -> AuditEntry:
            """Return the entry with one refusal more, and with the target of this one."""
            entry = stored or known
            return replace(entry, target=attempt.target, trace_id=attempt.trace_id, count=entry.count + 1)

        self._ledger.change_later(self._table, known.id, count_one_more)
        return known.id

    def _uncount_refusal(self, entry_id: str) -> None:
        """Uncount a refusal, write-behind: the change that counted as refused was made after all."""

        def count_one_less(stored: AuditEntry | None) -> AuditEntry | None:
            """Return the entry with one refusal less; None, which deletes it, if this was its only one."""
            return replace(stored, count=stored.count - 1) if stored is not None and stored.count > 1 else None

        self._ledger.change_later(self._table, entry_id, count_one_less)

    def prune(self) -> int:
        """Delete entries past the retention age, write-behind, and return their number.

        The limit of their number is enforced when an entry is added.
        """
        oldest = self._clock.now() - self._age_s
        expired = [entry_id for retained in self._retained.values() for entry_id in retained.expire(oldest)]
        self._delete(expired)
        return len(expired)

    # Reading

    def select(self, chosen: AuditFilter) -> list[AuditEntry]:
        """Return the entries that match, in no particular order."""
        return [entry for entry in self._table if chosen.matches(entry)]

    def newest(
        self, chosen: AuditFilter, after: AgePosition | None = None, oldest_first: bool = False
    ) -> Iterator[AuditEntry]:
        """Yield the entries that match, newest first unless `oldest_first`; only those beyond the position `after`."""
        return self._table.newest(chosen.matches, after, oldest_first)

    def _make_entry(self, kind: AuditKind, attempt: Attempt) -> AuditEntry:
        """Return the entry of an attempt, made now, with a new id."""
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

    def _add(self, entry: AuditEntry) -> None:
        """Add an entry, write-behind."""
        self._ledger.change_later(self._table, entry.id, partial(carry_over_changes, None, entry))

    def _retain_new(self, before: AuditEntry | None, after: AuditEntry | None) -> None:
        """Count an entry that is new in the store, and delete the entries that exceed the limits now.

        The table calls this for each durable change of an entry.
        """
        # Only once durable: an entry that was counted earlier, and evicted meanwhile, would be counted again.
        if before is None and after is not None:
            self._retain(after)

    def _retain(self, entry: AuditEntry) -> None:
        """Count an entry among those to keep, and delete the entries that exceed the limit of number now."""
        self._delete(self._retained[entry.kind].add(replace(entry, created_at=self._correct_stamp(entry.created_at))))

    def _delete(self, entry_ids: Iterable[str]) -> None:
        """Delete entries, write-behind."""
        for entry_id in entry_ids:
            self._ledger.change_later(self._table, entry_id, delete)


def _read_outcome(exc: BaseException) -> str:
    """Return the outcome of an RPC that ends with an exception: the error's reason, INTERNAL or CANCELLED."""
    if isinstance(exc, HubError | LoginRefusal):
        return exc.reason
    return "INTERNAL" if isinstance(exc, Exception) else CANCELLED
