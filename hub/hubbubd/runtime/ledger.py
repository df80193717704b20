"""The hub's records: decoded in memory, durable in the store, one table per noun.

Memory follows the store, never the other way round: a commit is applied when the store says that it is durable,
and only then are watchers told. A change that must be durable before anybody acts on it goes through `commit`;
one that may follow (ordinary call history, a server's state) is `later`: collected, newest state per record, and
written a moment afterwards.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import anyio
import structlog
from pydantic import TypeAdapter

from hubbubd.errors import Aborted, NotFound, Unavailable
from hubbubd.runtime.broadcast import Doorkeeper, Feed
from hubbubd.store import Commit, Conflict, Guard, Snapshot, Store, StoreUnavailable, Write

T = TypeVar("T")
R = TypeVar("R")

LATER_S = 0.05
"""How long a change that may follow waits for company."""

DELETIONS = 10_000
"""How many deletions a table remembers for watchers that come back."""

ATTEMPTS = 100
"""How often a transaction is planned anew; each time somebody else's went through."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class History:
    """How many records that have ended are kept, and for how long."""

    count: int
    age_s: float

    def overflows(self, total: int) -> bool:
        """Whether a table has so many records more that deleting the oldest is worth a pass over it."""
        return total > self.count * 1.1

    def surplus(self, ended: Iterable[T], created_at: Callable[[T], float], now: float) -> list[T]:
        """Which of the ended records must go: the oldest ones."""
        ordered = sorted(ended, key=created_at, reverse=True)
        return [
            record for at, record in enumerate(ordered) if at >= self.count or now - created_at(record) > self.age_s
        ]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A record's next state; None deletes it. `expected` is the revision it was planned from, None for any."""

    table: "Table[T]"
    id: str
    record: T | None
    expected: int | None = None

    @property
    def key(self) -> str:
        """Where the store keeps it."""
        return self.table.prefix + self.id


class Table(Generic[T]):
    """The records of one noun, in the order of their last change."""

    def __init__(self, noun: str, record_type: type[T]) -> None:
        self.noun = noun
        self.prefix = f"{noun}/"
        self.feed: Feed[T] = cast("Feed[T]", None)  # set by `load`, before anybody can watch
        self._adapter = TypeAdapter(record_type)
        self._followers: list[Callable[[T | None, T | None], None]] = []
        self._rows: OrderedDict[str, tuple[int, T]] = OrderedDict()
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self._later: OrderedDict[str, Change[T]] = OrderedDict()

    def get(self, record_id: str) -> T:
        """A record as it is now. Raises NotFound."""
        record = self.record(record_id)
        if record is None:
            raise NotFound(self.noun, record_id)
        return record

    def record(self, record_id: str) -> T | None:
        """A record as it is now, or None."""
        if (waiting := self._later.get(record_id)) is not None:
            return waiting.record
        row = self._rows.get(record_id)
        return None if row is None else row[1]

    def __iter__(self) -> Iterator[T]:
        """All records, in no order that means anything."""
        for record_id, (_, record) in self._rows.items():
            waiting = self._later.get(record_id)
            current = record if waiting is None else waiting.record
            if current is not None:
                yield current
        for record_id, change in self._later.items():
            if record_id not in self._rows and change.record is not None:
                yield change.record

    def __len__(self) -> int:
        return len(self._rows)

    def change(self, record_id: str, record: T | None) -> Change[T]:
        """A change that holds only if nobody else changes the record before."""
        row = self._rows.get(record_id)
        return Change(self, record_id, record, 0 if row is None else row[0])

    def since(self, revision: int) -> Iterable[tuple[int, str, T | None]]:
        """Rows and deletions after a revision, oldest first."""
        changed: list[tuple[int, str, T | None]] = []
        for record_id, (at, record) in reversed(self._rows.items()):
            if at <= revision:
                break
            changed.append((at, record_id, record))
        if revision:
            for record_id, at in reversed(self._deleted.items()):
                if at <= revision:
                    break
                changed.append((at, record_id, None))
        changed.sort(key=lambda row: row[0])
        return changed

    def encode(self, record: T) -> bytes:
        """As the store keeps it."""
        return self._adapter.dump_json(record)

    def load(self, store_id: str, snapshot: Snapshot, oldest: int, door: Doorkeeper) -> None:
        """Takes over what the store holds. Raises ValueError for a record that cannot be read."""
        rows = [
            (e.revision, e.key[len(self.prefix) :], e.value) for e in snapshot.entries if e.key.startswith(self.prefix)
        ]
        for revision, record_id, value in sorted(rows, key=lambda row: row[0]):
            self._rows[record_id] = (revision, self._adapter.validate_json(value))
        for key, revision in snapshot.deleted:
            if key.startswith(self.prefix):
                self._deleted[key[len(self.prefix) :]] = revision
        self.feed = Feed(store_id, self, door, snapshot.revision, oldest)

    def apply(self, revision: int, record_id: str, record: T | None) -> None:
        """Follows a durable commit and tells the watchers."""
        row = self._rows.pop(record_id, None)
        self._deleted.pop(record_id, None)
        if record is not None:
            self._rows[record_id] = (revision, record)
        else:
            self._deleted[record_id] = revision
            if len(self._deleted) > DELETIONS:
                _, self.feed.oldest = self._deleted.popitem(last=False)
        before = None if row is None else row[1]
        self.feed.publish(revision, record_id, before, record)
        for follower in self._followers:
            try:
                follower(before, record)
            except Exception:
                log.exception("a change was not followed up", key=self.prefix + record_id)

    def follow(self, follower: Callable[[T | None, T | None], None]) -> None:
        """Calls `follower(before, after)` for each durable change, after the watchers were told.

        What must happen because of a change is done here, so that it does not depend on whoever made the change
        still waiting for it. A follower must not block.
        """
        self._followers.append(follower)

    def wait(self, change: Change[T]) -> None:
        """Notes a change that may follow."""
        self._later[change.id] = change

    def waits(self, record_id: str) -> bool:
        """Whether a change of the record waits."""
        return record_id in self._later

    def take_waiting(self) -> list[Change[T]]:
        """The changes that wait, to be written now."""
        return list(self._later.values())

    def written(self, changes: Iterable[Change[T]]) -> None:
        """Forgets the waiting changes that are durable; a newer one of the same record stays."""
        for change in changes:
            if self._later.get(change.id) is change:
                del self._later[change.id]

    def overtake(self, record_id: str) -> Change[T] | None:
        """Takes out a waiting change: a commit now carries the record."""
        return self._later.pop(record_id, None)


class Ledger:
    """All tables over one store."""

    def __init__(self, store: Store, *, max_watchers: int) -> None:
        self.store = store
        self.door = Doorkeeper(max_watchers)
        self._tables: list[Table[Any]] = []
        self._due = anyio.Event()
        self._healthy = True

    @property
    def healthy(self) -> bool:
        """Whether the last attempt to write succeeded."""
        return self._healthy

    async def load(self, *tables: Table[Any]) -> None:
        """Fills the tables from the store and follows it from then on."""
        self._tables = list(tables)
        snapshot = await self.store.snapshot("")
        oldest = (await self.store.stats()).compacted_revision
        for table in tables:
            table.load(self.store.id, snapshot, oldest, self.door)
        self.store.listen(self._applied)

    async def commit(self, changes: Sequence[Change[Any]]) -> None:
        """Makes all changes durable, or none. Raises Conflict when a record has changed meanwhile, and Unavailable.

        A change that was waiting to follow is overtaken by the one given here.
        """
        if not changes:
            return
        # Taken out first: written after this commit, a waiting change would overwrite it with an older state.
        overtaken = [waiting for change in changes if (waiting := change.table.overtake(change.id)) is not None]
        writes = [self._write(change) for change in changes]
        guards = [Guard(change.key, change.expected) for change in changes if change.expected is not None]
        try:
            await self.store.commit(writes, guards)
        except StoreUnavailable as exc:
            self._healthy = False
            self._put_back(overtaken)
            raise Unavailable(f"the store cannot be written: {exc}", reason="STORE_UNAVAILABLE") from exc
        except Conflict:
            self._put_back(overtaken)
            raise
        self._healthy = True

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
        if not self._due.is_set():
            self._due.set()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
        """Writes what may follow, for as long as the hub runs."""
        while True:
            await self._due.wait()
            await sleep(LATER_S)
            self._due = anyio.Event()
            if not await self.flush():
                await sleep(1.0)
                self._due.set()

    async def flush(self) -> bool:
        """Writes what waits now; False when the store refused and it still waits."""
        waiting = [(table, table.take_waiting()) for table in self._tables]
        writes = [self._write(change) for _, changes in waiting for change in changes]
        if not writes:
            return True
        try:
            await self.store.commit(writes)
        except StoreUnavailable as exc:
            if self._healthy:
                log.error("the store cannot be written", error=str(exc))
            self._healthy = False
            return False
        for table, changes in waiting:
            table.written(changes)
        self._healthy = True
        return True

    def close_feeds(self) -> None:
        """Ends all watches."""
        for table in self._tables:
            table.feed.close()

    def _put_back(self, changes: Iterable[Change[Any]]) -> None:
        for change in changes:
            if not change.table.waits(change.id):
                self.later(change)

    def _write(self, change: Change[Any]) -> Write:
        value = None if change.record is None else change.table.encode(change.record)
        return Write(change.key, value, change)

    def _applied(self, commit: Commit) -> None:
        for write in commit.writes:
            change = cast("Change[Any]", write.ref)
            change.table.apply(commit.revision, change.id, change.record)
        for table in self._tables:
            table.feed.advance(commit.revision)
