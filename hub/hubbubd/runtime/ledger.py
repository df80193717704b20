"""The hub's records: decoded in memory, durable in the store, one table per noun.

Memory follows the store, never the other way round: a commit is applied when the store says that it is durable,
and only then are watchers told. A change that must be durable before anybody acts on it goes through `commit`;
one that may follow (ordinary call history, a server's state) is `later`: collected, newest state per record, and
written a moment afterwards.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
import structlog
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from hubbubd import payload
from hubbubd.errors import Aborted, NotFound, Unavailable
from hubbubd.runtime.broadcast import NOTHING, Doorkeeper, Feed
from hubbubd.runtime.health import RETRY_S, Health
from hubbubd.store import Commit, Conflict, Guard, Snapshot, Store, StoreUnavailable, Write
from hubbubd.store.troubles import damaged
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import OFF, Meter

T = TypeVar("T")
R = TypeVar("R")

LATER_S = 0.05
"""How long a change that may follow waits for company."""

DELETIONS = 10_000
"""How many deletions a table remembers for watchers that come back."""

ATTEMPTS = 100
"""How often a transaction is planned anew; each time somebody else's went through."""

log = structlog.get_logger(__name__)


@cache
def _adapter(record_type: type[T]) -> TypeAdapter[T]:
    """Reads and writes records of a type. Made once, since making it takes milliseconds."""
    return TypeAdapter(record_type)


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
        self._adapter = _adapter(record_type)
        self._followers: list[Callable[[T | None, T | None], None]] = []
        self._rows: OrderedDict[str, tuple[int, T]] = OrderedDict()
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self._later: OrderedDict[str, Change[T]] = OrderedDict()
        self._leaving: set[str] = set()
        self._committing: dict[int, tuple[str, Change[T] | None]] = {}

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
        return len(self._rows) - len(self._leaving)

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
        if revision != NOTHING:
            for record_id, at in reversed(self._deleted.items()):
                if at <= revision:
                    break
                changed.append((at, record_id, None))
        changed.sort(key=lambda row: row[0])
        return changed

    def deleted_since(self, revision: int) -> bool:
        """Whether anything was deleted after a revision."""
        return next(reversed(self._deleted.values()), NOTHING) > revision

    def encode(self, record: T) -> bytes:
        """As the store keeps it. Half of a surrogate pair, which a server may send and UTF-8 cannot hold, becomes �."""
        try:
            return self._adapter.dump_json(record)
        except PydanticSerializationError:
            return payload.dumps(_whole_text(self._adapter.dump_python(record, mode="json")))

    def load(self, store: Store, snapshot: Snapshot, oldest: int, door: Doorkeeper) -> None:
        """Takes over what the store holds. Raises StoreDamaged for a record that cannot be read."""
        rows = [
            (e.revision, e.key[len(self.prefix) :], e.value) for e in snapshot.entries if e.key.startswith(self.prefix)
        ]
        for revision, record_id, value in sorted(rows, key=lambda row: row[0]):
            try:
                self._rows[record_id] = (revision, self._adapter.validate_json(value))
            except ValidationError as exc:
                first = exc.errors(include_url=False, include_input=False)[0]
                at = ".".join(map(str, first["loc"]))
                raise damaged(store.name, f"record {self.prefix}{record_id}: {at} {first['msg']}") from None
        for key, revision in snapshot.deleted:
            if key.startswith(self.prefix):
                self._deleted[key[len(self.prefix) :]] = revision
        self.feed = Feed(store.id, self, door, snapshot.revision, oldest)
        self._forget_deletions()

    def apply(self, revision: int, changes: Sequence[Change[T]]) -> list[Callable[[], None]]:
        """Follows a durable commit and tells the watchers; returns what is left to do when all tables have it."""
        moves: list[tuple[str, T | None, T | None]] = []
        for change in changes:
            row = self._rows.pop(change.id, None)
            self._deleted.pop(change.id, None)
            self.written(change)
            self._leaving.discard(change.id)
            if change.record is not None:
                self._rows[change.id] = (revision, change.record)
            else:
                self._deleted[change.id] = revision
            moves.append((change.id, None if row is None else row[1], change.record))
        self._forget_deletions()
        self.feed.publish(revision, moves)
        return [partial(self._follow_up, *move) for move in moves]

    def _forget_deletions(self) -> None:
        while len(self._deleted) > DELETIONS:
            _, self.feed.oldest = self._deleted.popitem(last=False)

    def _follow_up(self, record_id: str, before: T | None, after: T | None) -> None:
        for follower in self._followers:
            try:
                follower(before, after)
            except Exception:
                log.exception("a change was not followed up", key=self.prefix + record_id)

    def compacted(self, revision: int) -> None:
        """Forgets the deletions that the store has forgotten."""
        self.feed.oldest = max(self.feed.oldest, revision)
        while self._deleted and next(iter(self._deleted.values())) <= revision:
            self._deleted.popitem(last=False)

    def follow(self, follower: Callable[[T | None, T | None], None]) -> None:
        """Calls `follower(before, after)` for each durable change, after the watchers were told.

        What must happen because of a change is done here, so that it does not depend on whoever made the change
        still waiting for it. A follower must not block.
        """
        self._followers.append(follower)

    def wait(self, change: Change[T]) -> None:
        """Notes a change that may follow."""
        self._later[change.id] = change
        if change.record is None and change.id in self._rows:
            self._leaving.add(change.id)
        else:
            self._leaving.discard(change.id)

    def waiting(self) -> list[Change[T]]:
        """The changes that may be written now: not those of a record that a commit is carrying a newer state of."""
        carried = {record_id for record_id, _ in self._committing.values()}
        return [change for change in self._later.values() if change.id not in carried]

    def begin(self, change: Change[T]) -> None:
        """A commit carries the change; once applied, it overtakes what waits for the same record now."""
        self._committing[id(change)] = change.id, self._later.get(change.id)

    def conclude(self, change: Change[T]) -> None:
        """The commit has ended, well or not."""
        del self._committing[id(change)]

    def written(self, change: Change[T]) -> None:
        """Forgets waiting changes that are durable or overtaken; a newer one of the same record stays."""
        _, overtaken = self._committing.get(id(change), ("", None))
        waiting = self._later.get(change.id)
        if waiting is not None and (waiting is change or waiting is overtaken):
            del self._later[change.id]

    @property
    def behind(self) -> bool:
        """Whether changes wait."""
        return bool(self._later)


class Rider(Protocol):
    """A change that goes along with the first commit that is made in its context."""

    def board(self) -> Change[Any] | None:
        """The change; None when it has been made, or is not wanted any more."""
        ...

    def arrived(self) -> None:
        """A commit that it went along with is durable."""
        ...


RIDER: ContextVar[Rider | None] = ContextVar("rider", default=None)


class Ledger:
    """All tables over one store."""

    def __init__(self, store: Store, *, max_watchers: int, meter: Meter = OFF) -> None:
        self.store = store
        self._meter = meter
        self.door = Doorkeeper(max_watchers)
        self._tables: list[Table[Any]] = []
        self._due = anyio.Event()
        self._writing = 0
        self._written = anyio.Event()
        self.health = Health(store)
        self._stop_listening: Callable[[], None] | None = None

    async def load(self, *tables: Table[Any]) -> None:
        """Fills the tables from the store and follows it from then on."""
        self._tables = list(tables)
        snapshot = await self.store.snapshot("")
        oldest = (await self.store.stats()).compacted_revision
        for table in tables:
            table.load(self.store, snapshot, oldest, self.door)
        self._stop_listening = self.store.listen(self._applied)

    async def commit(self, changes: Sequence[Change[Any]]) -> None:
        """Makes all changes durable, or none. Raises Conflict when a record has changed meanwhile, and Unavailable.

        A change that was waiting to follow is overtaken by the one given here. However this ends, cancelled
        included, the commit has then concluded: the records say whether it held.
        """
        if changes:
            rider = RIDER.get()
            await _to_its_end(self._commit(changes) if rider is None else self._commit_with(rider, changes))

    async def _commit_with(self, rider: Rider, changes: Sequence[Change[Any]]) -> None:
        also = rider.board()
        await self._commit(changes if also is None else [*changes, also])
        rider.arrived()

    async def _commit(self, changes: Sequence[Change[Any]]) -> None:
        writes = [self._write(change) for change in changes]
        guards = [Guard(change.key, change.expected) for change in changes if change.expected is not None]
        # Written after this commit, a change that waits now would overwrite it with an older state.
        for change in changes:
            change.table.begin(change)
        try:
            await self._durable(writes, guards)
        except StoreUnavailable as exc:
            self.health.failed(exc)
            raise Unavailable(f"nothing was changed: {exc}", reason="STORE_UNAVAILABLE") from exc
        else:
            _forget_waiting(changes)
        finally:
            for change in changes:
                change.table.conclude(change)
            if any(change.table.behind for change in changes):
                self._due.set()

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
        if self._stop_listening is not None:
            self._stop_listening()

    async def compact(self, revision: int = 0) -> None:
        """Forgets the deletions up to a revision, and lets the store forget those that no table remembers any more.

        Raises StoreUnavailable.
        """
        revision = max(revision, *(table.feed.oldest for table in self._tables))
        await self.store.compact(revision)
        for table in self._tables:
            table.compacted(revision)

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


def _whole_text(value: Any) -> Any:
    """The JSON value with every string in a form that UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_whole_text(key): _whole_text(inner) for key, inner in items}
    if isinstance(value, list):
        return [_whole_text(inner) for inner in cast("list[Any]", value)]
    return value
