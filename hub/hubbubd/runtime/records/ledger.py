"""The hub's records: decoded in memory, durable in the store, one table per noun.

Memory follows the store, never the other way round: a commit is applied when the store says that it is durable,
and only then are watchers told. A change that must be durable before anybody acts on it goes through `commit`;
one that may follow (ordinary call history, a server's state) is `later`: collected, newest state per record, and
written a moment afterwards.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

import anyio
import structlog

from hubbubd.errors import Aborted, Unavailable
from hubbubd.runtime.records.broadcast import WatcherLimit
from hubbubd.runtime.records.health import RETRY_S, Health
from hubbubd.runtime.records.table import Change, Table
from hubbubd.store import Commit, Conflict, Guard, Store, StoreUnavailable, Write
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import OFF, Meter

R = TypeVar("R")

LATER_S = 0.05
"""How long a change that may follow waits for company."""

ATTEMPTS = 100
"""How often a transaction is planned anew; each time somebody else's went through."""

log = structlog.get_logger(__name__)


class CommitHook(Protocol):
    """A change that goes along with the first commit that is made in its context."""

    def change(self) -> Change[Any] | None:
        """The change; None when it has been made, or is not wanted any more."""
        ...

    def committed(self) -> None:
        """A commit that it went along with is durable."""
        ...


COMMIT_HOOK: ContextVar[CommitHook | None] = ContextVar("hubbub_commit_hook", default=None)


class Ledger:
    """All tables over one store, which it follows from now on."""

    def __init__(self, store: Store, tables: Sequence[Table[Any]], door: WatcherLimit, meter: Meter = OFF) -> None:
        self.store = store
        self.door = door
        self._meter = meter
        self._tables = tables
        self._due = anyio.Event()
        self._writing = 0
        self._written = anyio.Event()
        self.health = Health(store)
        self._stop_listening = store.listen(self._applied)

    async def commit(self, changes: Sequence[Change[Any]]) -> None:
        """Makes all changes durable, or none. Raises Conflict when a record has changed meanwhile, and Unavailable.

        A change that was waiting to follow is overtaken by the one given here. However this ends, cancelled
        included, the commit has then concluded: the records say whether it held.
        """
        if not changes:
            return
        # At once, before anything else can run: what waits for these records now has been seen by whoever planned the
        # commit, and would overwrite it with an older state. What comes from now on is newer, and stays.
        hook = COMMIT_HOOK.get()
        also = hook.change() if hook is not None else None
        # A copy, since several commits of the context may carry it at once: tables tell changes apart by identity.
        carried = [*changes, replace(also)] if also is not None else list(changes)
        for change in carried:
            change.table.begin(change)
        await _to_its_end(self._carry(carried, hook))

    async def _carry(self, changes: Sequence[Change[Any]], hook: CommitHook | None) -> None:
        try:
            await self._commit(changes)
            if hook is not None:
                hook.committed()
        finally:
            for change in changes:
                change.table.conclude(change)
            if any(change.table.behind for change in changes):
                self._due.set()

    async def _commit(self, changes: Sequence[Change[Any]]) -> None:
        writes = [self._write(change) for change in changes]
        guards = [Guard(change.key, change.expected) for change in changes if change.expected is not None]
        try:
            await self._durable(writes, guards)
        except StoreUnavailable as exc:
            self.health.failed(exc)
            raise Unavailable(f"nothing was changed: {exc}", reason="STORE_UNAVAILABLE") from exc
        _forget_waiting(changes)

    async def _durable(self, writes: Sequence[Write], guards: Sequence[Guard] = ()) -> None:
        begun = time.perf_counter()
        self._writing += 1
        try:
            await self.store.commit(writes, guards)
        finally:
            self._writing -= 1
            self._written.set()
        if self._meter.on:
            self._meter.record(metrics.STORE_COMMIT, time.perf_counter() - begun)

    async def transact(self, plan: Callable[[], tuple[R, Sequence[Change[Any]]]]) -> R:
        """Plans and commits until no other change comes in between; returns what the plan that held says.

        A plan reads records and computes, it must not change anything; it may raise to refuse.
        """
        for _ in range(ATTEMPTS):
            outcome, changes = plan()
            try:
                await self.commit(changes)
            except Conflict:
                continue
            return outcome
        raise Aborted("this record keeps changing; try again", reason="CONTENDED")

    def later(self, change: Change[Any]) -> None:
        """Takes a change that may follow: seen by readers at once, by watchers and the disk a moment later."""
        change.table.wait(change)
        self._due.set()

    async def run(self) -> None:
        """Writes what may follow, for as long as the hub runs."""
        while True:
            await self._due.wait()
            await anyio.sleep(LATER_S)
            self._due = anyio.Event()
            if not await self.flush():
                await anyio.sleep(RETRY_S)
                self._due.set()

    async def flush(self) -> bool:
        """Writes what waits now; False when it could not be written and still waits."""
        waiting = [change for table in self._tables for change in table.waiting()]
        if not waiting:
            return True
        try:
            await self._durable([self._write(change) for change in waiting])
        except Exception as exc:  # noqa: BLE001  # whatever it is, what follows must not be given up for it
            self.health.failed(exc)
            return False
        _forget_waiting(waiting)
        return True

    async def aclose(self) -> None:
        """Follows what is being written to its end, for the next hub will not; then follows the store no longer."""
        with anyio.CancelScope(shield=True):
            while self._writing:
                self._written = anyio.Event()
                await self._written.wait()
        self._stop_listening()

    async def compact(self, revision: int = 0) -> None:
        """Forgets the deletions up to a revision, and lets the store forget those that no table remembers any more.

        Raises StoreUnavailable.
        """
        revision = max(revision, *(table.feed.oldest for table in self._tables))
        await self.store.compact(revision)
        for table in self._tables:
            table.compacted(revision)

    def defects(self) -> dict[str, str]:
        """What of which record in the store did not fit when it was opened, by key."""
        return {table.prefix + record_id: why for table in self._tables for record_id, why in table.defects.items()}

    def backlog(self) -> int:
        """How many changed records the slowest watcher has yet to take."""
        return max(table.feed.backlog() for table in self._tables)

    def close_feeds(self) -> None:
        """Ends all watches."""
        for table in self._tables:
            table.feed.close()

    def _write(self, change: Change[Any]) -> Write:
        value = None if change.record is None else change.table.encode(change.record)
        return Write(change.key, value, change)

    def _applied(self, commit: Commit) -> None:
        by_table: dict[Table[Any], list[Change[Any]]] = {}
        for write in commit.writes:
            change = cast("Change[Any]", write.ref)
            by_table.setdefault(change.table, []).append(change)
        left = [table.apply(commit.revision, changes) for table, changes in by_table.items()]
        for table in self._tables:
            table.feed.advance(commit.revision)
        for follow_up in chain.from_iterable(left):
            follow_up()


def _forget_waiting(changes: Iterable[Change[Any]]) -> None:
    for change in changes:  # those that the listener was told of are forgotten already; deleting nothing is no change
        change.table.written(change)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Does the work; a caller that is cancelled meanwhile leaves when it is done."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as exc:
                cancelled = exc
    if cancelled is not None:
        task.exception()  # seen; the cancellation is what the caller gets
        raise cancelled
    task.result()
