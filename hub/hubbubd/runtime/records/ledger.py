"""The ledger: commits changes of records to the store, with optimistic concurrency, and applies them to the tables.

Memory follows the store, never the other way round: a commit is applied when the store reports it durable, and only
then published to watchers. So are commits of others that share the store. A change that must be durable before it has
effects goes through `commit`, `change` or `transact` (write-through). One that may follow, such as ordinary call
history or a server's state, goes through `change_later` (write-behind): coalesced to the newest state per record and
written LATER_S afterwards.

Nothing is written blindly. Each change names the revision of the record that it was made from, and what loses to
another commit is planned again from the record that is stored then.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, Protocol, TypeVar

import anyio
import structlog

from hubbubd.errors import Aborted, Unavailable, UnknownOutcome
from hubbubd.runtime.records.health import RETRY_S, Health
from hubbubd.runtime.records.table import ABSENT, Change, StoreContent, Table
from hubbubd.runtime.records.write_behind import Step
from hubbubd.store import Commit, OutcomeUnknown, Precondition, Store, StoreUnavailable, Write, WriteConflict
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import OFF, Meter

R = TypeVar("R")
T = TypeVar("T")

LATER_S = 0.05
"""Seconds for which write-behind collects changes."""

BATCH = 512
"""How many records write-behind writes in one commit: to encode and to apply them takes the loop some 10 ms."""

ATTEMPTS = 100
"""How often a change is planned and committed, as long as it conflicts with other commits."""

JOINT_ATTEMPTS = 2
"""How often write-behind tries to write several records in one commit, before it writes each half by itself."""

log = structlog.get_logger(__name__)


class CommitHook(Protocol):
    """A change that rides with the first commit made in its context, such as an RPC's audit entry."""

    def change(self) -> Change[Any] | None:
        """Return the change; None when it was committed already or is no longer wanted."""
        ...

    def mark_committed(self) -> None:
        """Note that a commit with the change is durable."""
        ...


COMMIT_HOOK: ContextVar[CommitHook | None] = ContextVar("hubbub_commit_hook", default=None)


class Ledger:
    """Commits to one store, and applies its commits to all tables, from the construction of the ledger on."""

    def __init__(
        self,
        store: Store,
        tables: Sequence[Table[Any]],
        stored: StoreContent,
        meter: Meter = OFF,
        *,
        now: Callable[[], float],
        shared: bool = False,
    ) -> None:
        """`stored` is the content from which the tables were loaded; `shared` says that others commit to the store."""
        self.store = store
        self.shared = shared
        self._now = now
        self.watcher_limit = stored.watcher_limit
        self._progress = stored.progress
        self._meter = meter
        self._tables = tables
        self._by_noun = {table.noun: table for table in tables}
        self._flushing = anyio.Lock(fast_acquire=True)
        self._flush_due = anyio.Event()
        # Tables with steps that wait, in the order of the first step of each.
        self._tables_behind: dict[Table[Any], None] = {}
        self.unknown_outcomes = 0
        """Attempts to commit whose outcome was not known in time."""
        self._commits_under_way = 0  # how many
        self._commit_ended = anyio.Event()
        self.health = Health(store)
        self._stop_listening = store.listen(self._apply)
        stored.hand_over(self._apply)

    async def commit(self, changes: Sequence[Change[Any]]) -> None:
        """Make all changes durable, or none. Raises WriteConflict if a record's revision has changed, and Unavailable.

        A change includes the write-behind steps that waited for its record when the change was planned. COMMIT_HOOK may
        add a change of its own. When this ends, also by cancellation, the commit has ended, and the records show
        whether it was made. Only after UnknownOutcome, a kind of Unavailable, they may show that later.
        """
        if not changes:
            return
        hook = COMMIT_HOOK.get()
        hook_change = hook.change() if hook is not None else None
        try:
            if hook_change is None:
                await self._commit_shielded(changes)
            else:
                await self._commit_shielded([*changes, hook_change], hook)
        except OutcomeUnknown as exc:
            self.health.note_failure(exc)
            raise UnknownOutcome(str(exc)) from exc
        except StoreUnavailable as exc:
            self.health.note_failure(exc)
            raise Unavailable(f"nothing was changed: {exc}", reason="STORE_UNAVAILABLE") from exc

    async def is_current(self, table: Table[Any], record_id: str) -> bool:
        """Return whether this hub has a record as the store has it. If not, this hub has the newer state on return.

        Commits under way have ended on return. Raises Unavailable.
        """
        unused = table.change(record_id, None)  # for its key and revision; it is not committed
        return await self._check_guard(Precondition(unused.key, unused.expected))

    async def catch_up(self) -> None:
        """Apply all that others have committed so far; do nothing unless the store is shared. Raises Unavailable."""
        if self.shared:
            # A commit that writes nothing: the store reports the others' commits before it answers. The precondition
            # always holds, since no record has an empty key.
            await self._check_guard(Precondition("", ABSENT))

    async def _check_guard(self, guard: Precondition) -> bool:
        """Return whether a precondition holds, by a commit that writes nothing. Raises Unavailable."""
        try:
            await self.store.commit((), [guard])
        except WriteConflict:
            return False
        except ValueError:  # no store has such a key
            return True
        except StoreUnavailable as exc:
            raise Unavailable(f"nothing was changed: {exc}", reason="STORE_UNAVAILABLE") from exc
        return True

    async def is_record_current(self, noun: str, record_id: str) -> bool:
        """Return whether this hub has a record as the store has it, or both have none. Raises Unavailable.

        If not, this hub has the newer state on return. A noun without a table has no records.
        """
        table = self._by_noun.get(noun)
        return table is None or await self.is_current(table, record_id)

    async def _commit_shielded(self, changes: Sequence[Change[Any]], hook: CommitHook | None = None) -> None:
        """Commit, to the end even if the caller is cancelled. Raises WriteConflict, StoreUnavailable, ValueError."""
        for change in changes:  # now: steps that are made from here on are no part of the changes
            change.table.begin_commit(change)
        await _finish_despite_cancellation(self._commit_and_conclude(changes, hook))

    async def _commit_and_conclude(self, changes: Sequence[Change[Any]], hook: CommitHook | None) -> None:
        """Commit, and note in the tables and the hook how that ended; then have the waiting steps written."""
        is_certain = True
        try:
            await self._write_to_store(changes)
            if hook is not None:
                hook.mark_committed()
        except OutcomeUnknown:
            is_certain = False
            raise
        finally:
            for change in changes:
                change.table.end_commit(change, is_certain=is_certain)
            if any(change.table.has_waiting_steps for change in changes):
                self._flush_due.set()

    async def _write_to_store(self, changes: Sequence[Change[Any]]) -> None:
        """Write the changes to the store, each guarded by the revision that it was planned from; measure the time."""
        writes: list[Write] = []
        for change in changes:
            value = None if change.record is None else change.table.encode(change.record)
            writes.append(Write(change.key, value, change))
        guards = [Precondition(change.key, change.expected) for change in changes]
        started = time.perf_counter()
        self._commits_under_way += 1
        try:
            await self.store.commit(writes, guards)
        except OutcomeUnknown:
            self.unknown_outcomes += 1
            raise
        finally:
            self._commits_under_way -= 1
            self._commit_ended.set()
        if self._meter.on:
            self._meter.record(metrics.STORE_COMMIT, time.perf_counter() - started)
        for change in changes:  # `_apply` does so, too, but not for the deletion of a missing record
            change.table.drop_committed_steps(change)

    async def change(self, table: Table[T], record_id: str, step: Step[T]) -> T | None:
        """Make a step (a change of one record) durable, and return the record after it; None if there is none then.

        Raises Aborted (CONTENDED) and Unavailable, and what the step raises.
        """

        def plan_change() -> tuple[T | None, Sequence[Change[T]]]:
            """Return the record after the step, and the changes to commit: none if the step has nothing to do."""
            changes = table.plan_step(record_id, step)
            # Without a change the record stays as it is now.
            return changes[0].record if changes else table.record(record_id), changes

        return await self.transact(plan_change)

    async def transact(self, plan: Callable[[], tuple[R, Sequence[Change[Any]]]]) -> R:
        """Plan changes and commit them; plan again while other commits interfere. Durable on return.

        `plan` reads records, and returns an outcome and the changes to commit. It may raise to refuse, and must not
        have effects, as it may be called more than once. Return the outcome of the plan that was committed. Raises
        Aborted (CONTENDED) after ATTEMPTS, and Unavailable.
        """
        for _ in range(ATTEMPTS):
            outcome, changes = plan()
            try:
                await self.commit(changes)
            except WriteConflict:
                continue
            return outcome
        raise Aborted("this record keeps changing; try again", reason="CONTENDED")

    def change_later(self, table: Table[T], record_id: str, step: Step[T]) -> None:
        """Make a step (a change of one record) write-behind: readers see it at once, watchers and disk a moment later.

        The step is called again, with the newer record, if another commit changes the record before it is written.
        """
        if table.add_step(record_id, step):
            self._tables_behind[table] = None
            self._flush_due.set()

    async def run(self) -> None:
        """Write the steps that wait for write-behind, until cancelled; repeat a failed write after RETRY_S."""
        while True:
            await self._flush_due.wait()
            await anyio.sleep(LATER_S)
            self._flush_due = anyio.Event()
            if not await self.flush():
                await anyio.sleep(RETRY_S)
                self._flush_due.set()

    async def flush(self) -> bool:
        """Write the steps that wait for write-behind now; return False if some failed and still wait.

        A commit has about BATCH records; records with the same id, such as a list and its entries, are in the same
        commit. If it conflicts with others JOINT_ATTEMPTS times, or something in it cannot be written at all, each half
        is written by itself, so that one record keeps no others waiting.
        """
        async with self._flushing:
            try:
                return all([await self._flush_batch(batch) for batch in self._iterate_batches()])
            except Exception as exc:  # noqa: BLE001  # any failure is retried: `run` must not end
                self.health.note_failure(exc)
                return False

    def _iterate_batches(self) -> Iterator[list[tuple[Table[Any], str]]]:
        """Yield the records for which steps wait, as tables and ids, about BATCH at a time."""
        waiting: dict[str, list[Table[Any]]] = {}
        self._tables_behind = {table: None for table in self._tables_behind if table.has_waiting_steps}
        for table in self._tables_behind:
            for record_id in table.waiting_ids():
                waiting.setdefault(record_id, []).append(table)
        batch: list[tuple[Table[Any], str]] = []
        for record_id, tables in waiting.items():
            # Since the last batch another commit may have begun with some of these records.
            batch += [(table, record_id) for table in tables if table.has_waiting(record_id)]
            if len(batch) >= BATCH:
                yield batch
                batch = []
        yield batch

    async def _flush_batch(self, waiting: Sequence[tuple[Table[Any], str]]) -> bool:
        """Write these records in one commit, or else each half by itself; return False if some still wait.

        A single record that cannot be written at all is logged, and its change is dropped.
        """
        for _ in range(JOINT_ATTEMPTS if len(waiting) > 1 else ATTEMPTS):
            changes = [change for table, record_id in waiting for change in table.waiting_changes(record_id)]
            if not changes:
                return True
            try:
                await self._commit_shielded(changes)
            except WriteConflict:
                continue
            except ValueError:  # something in it cannot be written at all
                if len(waiting) > 1:
                    break
                log.exception("change dropped: it cannot be written", key=changes[0].key)
                changes[0].table.drop_committed_steps(changes[0])
            return True
        if len(waiting) <= 1:
            return False
        half = len(waiting) // 2
        halves = [await self._flush_batch(part) for part in (waiting[:half], waiting[half:])]
        return all(halves)

    async def aclose(self) -> None:
        """Wait for commits under way, even if cancelled, then stop following the store. Waiting steps are lost."""
        with anyio.CancelScope(shield=True):
            while self._commits_under_way:
                self._commit_ended = anyio.Event()
                await self._commit_ended.wait()
        self._stop_listening()

    async def compact(self, revision: int = 0) -> None:
        """Forget tombstones up to a revision in store and tables; in the store also those that tables have forgotten.

        Raises StoreUnavailable.
        """
        revision = max(revision, *(table.feed.oldest for table in self._tables))
        await self.store.compact(revision)
        for table in self._tables:
            table.forget_compacted(revision)

    def defects(self) -> dict[str, str]:
        """Return, by key, what was wrong with the stored records that did not match their schema when read."""
        return {table.prefix + record_id: why for table in self._tables for record_id, why in table.defects.items()}

    def backlog(self) -> int:
        """Return how many changed records the slowest watcher has yet to read."""
        return max(table.feed.backlog() for table in self._tables)

    def close_feeds(self) -> None:
        """End all watches, each with its last resume token."""
        self._progress.close()
        for table in self._tables:
            table.feed.close()

    def _apply(self, commit: Commit) -> None:
        """Apply a durable commit to the tables of its records; call their followers once all tables have it."""
        self.health.committed_at = self._now()
        by_table: dict[Table[Any], list[Change[Any]]] = {}
        for write in commit.writes:
            change: Change[Any] | None = write.ref or self._foreign_change(commit.revision, write)
            if change is not None:
                by_table.setdefault(change.table, []).append(change)
        follower_calls = [table.apply(commit.revision, changes) for table, changes in by_table.items()]
        self._progress.advance(commit.revision)
        for call_followers in chain.from_iterable(follower_calls):
            call_followers()

    def _foreign_change(self, revision: int, write: Write) -> Change[Any] | None:
        """Return a change that another member has made; None if this version has no table for its noun."""
        noun, _, record_id = write.key.partition("/")
        table = self._by_noun.get(noun)
        return None if table is None else table.foreign_change(revision, record_id, write.value)


async def _finish_despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Await the work to its end even if the caller is cancelled, and only then raise the cancellation."""
    task = asyncio.create_task(work)
    cancelled: tuple[object, ...] | None = None  # not the exception: its traceback refers to this frame
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as exc:  # of the caller: the work goes on
                cancelled = exc.args
    if cancelled is not None:
        task.exception()  # mark as retrieved: the caller gets the cancellation
        raise asyncio.CancelledError(*cancelled)
    task.result()
