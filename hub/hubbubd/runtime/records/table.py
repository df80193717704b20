"""The records of one noun in memory: as stored, with the steps that wait in write-behind, and their feed.

A table changes nothing by itself: the ledger applies durable commits, and gets the changes that wait.

Steps wait, not states: once the store has another record than a step was applied to, the step is applied again.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache, partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import structlog
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError
from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs] - it has no types

from hubbubd.errors import NotFound
from hubbubd.runtime.records import repair
from hubbubd.runtime.records.broadcast import BEFORE_ALL, TableFeed
from hubbubd.runtime.records.repair import RepairRule
from hubbubd.runtime.records.stored import StoreContent
from hubbubd.runtime.records.write_behind import MAX_UNMERGED_STEPS, PendingSteps, Step

T = TypeVar("T")

DELETIONS = 10_000
"""How many tombstones a table remembers for resuming watchers."""

ABSENT: Final = 0
"""The revision of a record that does not exist."""

AgePosition = tuple[float, str]
"""Sort key of a record: its creation time, in seconds since the epoch, and its id."""

log = structlog.get_logger(__name__)


@cache
def _adapter(record_type: type[T]) -> TypeAdapter[T]:
    """Return pydantic's codec of a record type. Cached, since building it takes milliseconds."""
    return TypeAdapter(record_type)


class _TableRow(NamedTuple, Generic[T]):
    """A record, the revision of its last change, and that of the last change visible to watchers."""

    revision: int
    visible_revision: int
    record: T


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A record's next state; None deletes it. Made by a table.

    `expected` is the revision of the record from which it was planned, ABSENT for a new one. `newest_step` is the
    number of the newest step that it may contain. A `foreign` change is another member's, or several in one.
    """

    table: "Table[T]"
    id: str
    record: T | None
    expected: int
    newest_step: int = 0
    _: KW_ONLY
    foreign: bool = False

    @property
    def key(self) -> str:
        """The record's key in the store."""
        return self.table.prefix + self.id


class AgeIndex:
    """Ids of records, oldest first."""

    def __init__(self) -> None:
        # Not a list: once a history is full each new record deletes an old one, for which a list moves all the others.
        self._positions: Any = SortedList()
        self._created_at: dict[str, float] = {}  # by id

    def put(self, record_id: str, record: object) -> None:
        """Add a record, or move one whose `created_at` has changed; a record without that is ignored."""
        created_at: float | None = getattr(record, "created_at", None)
        previous = self._created_at.get(record_id)
        if created_at is None or previous == created_at:
            return
        if previous is not None:
            self.drop(record_id)
        self._created_at[record_id] = created_at
        self._positions.add((created_at, record_id))

    def drop(self, record_id: str) -> None:
        """Remove a record, if present."""
        created_at = self._created_at.pop(record_id, None)
        if created_at is not None:
            self._positions.remove((created_at, record_id))

    def ids_before(self, position: AgePosition | None) -> Iterator[str]:
        """Yield ids of records older than a position (None: all), newest first. The index must not change meanwhile."""
        return (record_id for _, record_id in self._positions.irange(None, position, (True, False), reverse=True))

    def ids_after(self, position: AgePosition | None) -> Iterator[str]:
        """Yield ids of records newer than a position (None: all), oldest first. The index must not change meanwhile."""
        return (record_id for _, record_id in self._positions.irange(position, None, (False, True)))


class Table(Generic[T]):
    """The records of one noun, in the order of their last visible change."""

    def __init__(
        self,
        stored: StoreContent,
        noun: str,
        record_type: type[T],
        repair_rule: RepairRule = RepairRule(),  # noqa: B008 - frozen
        visible_parts: Mapping[str, Callable[[Any], object]] | None = None,
        *,
        is_own: Callable[[T], bool] | None = None,
    ) -> None:
        """`visible_parts` has, for each field that watchers see only in part, a function from its value to that part.

        A change that no watcher sees is not published. `repair_rule` says how invalid stored records are repaired.
        `is_own` returns whether this hub acts on the changes of a record; None: it acts on those of all records.
        """
        self.noun = noun
        self._visible_parts = dict(visible_parts or {})
        self._whole_fields = [
            each.name for each in fields(cast("Any", record_type)) if each.name not in self._visible_parts
        ]
        self.defects: dict[str, str] = {}  # by id, what did not match the schema in a stored record
        self._repair_rule = repair_rule
        self._unreadable: dict[str, int] = {}  # the revisions of unreadable records, by id
        self.prefix = f"{noun}/"
        self.feed: TableFeed[T] = TableFeed(stored.store_id, self, stored.watcher_limit, stored.progress, stored.oldest)
        self.adapter: TypeAdapter[T] = cast("TypeAdapter[T]", _adapter(record_type))
        self._is_own = is_own
        self._followers: list[Callable[[T | None, T | None], None]] = []
        # Each with the ids of the records that it follows; None: all.
        self._own_followers: list[tuple[Callable[[T | None, T | None], None], Container[str] | None]] = []
        self._own_deletion_followers: list[Callable[[T], None]] = []
        self._rows: OrderedDict[str, _TableRow[T]] = OrderedDict()
        self._by_age = AgeIndex()
        self._tombstones: OrderedDict[str, int] = OrderedDict()
        self._waiting: OrderedDict[str, PendingSteps[T]] = OrderedDict()  # by id, steps to be committed by write-behind
        self._newest_step = 0  # the number of the last step
        self._commits_under_way: dict[str, int] = {}  # how many, by id
        self._uncertain = set[str]()  # ids of records in commits that were given up, and may still happen
        self._load(stored)

    def get(self, record_id: str) -> T:
        """Return a record as it is now. Raises NotFound."""
        record = self.record(record_id)
        if record is None:
            raise NotFound(self.noun, record_id)
        return record

    def record(self, record_id: str) -> T | None:
        """Return a record as it is now, with the steps that wait for write-behind; None if there is no record."""
        if (waiting := self._waiting.get(record_id)) is not None:
            return waiting.record
        row = self._rows.get(record_id)
        return None if row is None else row.record

    def __iter__(self) -> Iterator[T]:
        """Iterate over all records, in no particular order."""
        for record_id, row in self._rows.items():
            waiting = self._waiting.get(record_id)
            current = row.record if waiting is None else waiting.record
            if current is not None:
                yield current
        for record_id, waiting in self._waiting.items():
            if record_id not in self._rows and waiting.record is not None:
                yield waiting.record

    def newest(
        self, chosen: Callable[[T], bool], after: AgePosition | None = None, oldest_first: bool = False
    ) -> Iterator[T]:
        """Yield the records that match, newest first unless `oldest_first`; only those beyond the position `after`."""
        order = self._by_age.ids_after if oldest_first else self._by_age.ids_before
        records = map(self.record, order(after))
        return (record for record in records if record is not None and chosen(record))

    def change(self, record_id: str, record: T | None) -> Change[T]:
        """Return the change of a record to `record`, None to delete it; its commit fails if another one comes first.

        Commit the change at once: it does not contain the write-behind steps that are made later.
        """
        row = self._rows.get(record_id)
        # An unreadable record counts as absent, and is replaced; but it has a revision.
        expected = self._unreadable.get(record_id, ABSENT) if row is None else row.revision
        return Change(self, record_id, record, expected, self._newest_step)

    def new(self, record_id: str, record: T) -> Change[T]:
        """Return the change that creates a record; its commit fails if there is a readable one with this id."""
        return Change(self, record_id, record, self._unreadable.get(record_id, ABSENT))

    def plan_step(self, record_id: str, step: Step[T]) -> list[Change[T]]:
        """Return the change that a step makes to the record as it is now; no change if the step has nothing to do."""
        before = self.record(record_id)
        after = step(before)
        return [] if after is before else [self.change(record_id, after)]

    def waiting_changes(self, record_id: str) -> list[Change[T]]:
        """Return the change with all steps that wait for a record, to be committed now; no change if no step waits."""
        waiting = self._waiting.get(record_id)
        return [] if waiting is None else [self.change(record_id, waiting.record)]

    def changed_since(self, revision: int) -> Iterable[tuple[int, str, T | None]]:
        """Return (revision, id, record; None: deleted) of each visible change after a revision, oldest first.

        After BEFORE_ALL deletions are left out.
        """
        changed: list[tuple[int, str, T | None]] = []
        for record_id, row in reversed(self._rows.items()):
            if row.visible_revision <= revision:
                break
            changed.append((row.visible_revision, record_id, row.record))
        if revision != BEFORE_ALL:
            for record_id, at in reversed(self._tombstones.items()):
                if at <= revision:
                    break
                changed.append((at, record_id, None))
        changed.sort(key=lambda row: row[0])
        return changed

    def has_deletion_since(self, revision: int) -> bool:
        """Return whether anything was deleted after a revision."""
        return next(reversed(self._tombstones.values()), BEFORE_ALL) > revision

    def encode(self, record: T) -> bytes:
        """Encode a record for the store. Lone surrogates become U+FFFD."""
        try:
            return self.adapter.dump_json(record)
        except PydanticSerializationError:
            return self.adapter.dump_json(repair.replace_surrogates(record))

    def _load(self, stored: StoreContent) -> None:
        """Fill the table with the records and tombstones that the store had at the start."""
        for entry in stored.entries.get(self.noun, ()):
            record_id = entry.key[len(self.prefix) :]
            if (record := self._decode(entry.revision, record_id, entry.value)) is not None:
                self._rows[record_id] = _TableRow(entry.revision, entry.revision, record)
                self._by_age.put(record_id, record)
        for key, revision in stored.snapshot.deleted:
            if key.startswith(self.prefix):
                self._tombstones[key[len(self.prefix) :]] = revision
        self._forget_deletions()

    def _decode(self, revision: int, record_id: str, value: bytes) -> T | None:
        """Decode a stored record, and note its defects; return None if too little of it is valid."""
        try:
            record, defect = repair.decode_record(self.adapter, value, self._repair_rule)
        except repair.UnreadableRecord as exc:
            self._unreadable[record_id], self.defects[record_id] = revision, str(exc)
            log.error("record skipped: unreadable", key=self.prefix + record_id, why=str(exc))
            return None
        if defect:
            self.defects[record_id] = defect
            log.warning("record repaired: parts did not fit", key=self.prefix + record_id, why=defect)
        return record

    def foreign_change(self, revision: int, record_id: str, value: bytes | None) -> Change[T]:
        """Return a change that another member has committed, to be applied. An unreadable record counts as deleted."""
        self.defects.pop(record_id, None)
        record = None if value is None else self._decode(revision, record_id, value)
        return Change(self, record_id, record, revision, foreign=True)

    def for_each(self, action: Callable[[T], None]) -> None:
        """Call `action` for each record; a failure is logged and does not affect the others."""
        for record in list(self):
            try:
                action(record)
            except Exception:
                log.exception("record not loaded: internal error", noun=self.noun, id=getattr(record, "id", ""))

    def apply(self, revision: int, changes: Sequence[Change[T]]) -> list[Callable[[], None]]:
        """Apply a durable commit and publish it; return calls of the followers, to be made once all tables have it."""
        updates: list[tuple[str, T | None, T | None]] = []
        visible_updates: list[tuple[str, T | None, T | None]] = []
        for change in changes:
            row = self._rows.get(change.id)
            update = change.id, None if row is None else row.record, change.record
            if self._unreadable.get(change.id) != revision:  # otherwise this very change is unreadable
                self._unreadable.pop(change.id, None)
            self._tombstones.pop(change.id, None)
            self._uncertain.discard(change.id)
            is_visible = row is None or not self._is_invisible(row.record, change.record)
            # A watcher at another member may have seen states in between.
            self._put_row(revision, change, moves_up=is_visible or change.foreign)
            self.drop_committed_steps(change)
            if row is None and change.record is None:
                continue  # another member has created and deleted it since the last commit that this hub applied
            updates.append(update)
            if is_visible:
                visible_updates.append(update)
        self._forget_deletions()
        self.feed.publish(revision, visible_updates)
        return [partial(self._call_followers, *update) for update in updates]

    def _put_row(self, revision: int, change: Change[T], *, moves_up: bool) -> None:
        """Apply one change; without `moves_up` the row keeps its place in the order of visible changes."""
        if change.record is None:
            self._rows.pop(change.id, None)
            self._by_age.drop(change.id)
            self._tombstones[change.id] = revision
            return
        self._by_age.put(change.id, change.record)
        visible_revision = revision
        if moves_up:
            self._rows.pop(change.id, None)
        else:
            visible_revision = self._rows[change.id].visible_revision
        self._rows[change.id] = _TableRow(revision, visible_revision, change.record)

    def _is_invisible(self, before: T, after: T | None) -> bool:
        """Return whether no watcher sees a difference between two states of a record. A deletion is visible."""
        return (
            after is not None
            and all(getattr(before, name) == getattr(after, name) for name in self._whole_fields)
            and all(
                part(getattr(before, name)) == part(getattr(after, name)) for name, part in self._visible_parts.items()
            )
        )

    def _forget_deletions(self) -> None:
        """Forget the oldest tombstones beyond DELETIONS; watchers that resume from before them get a new snapshot."""
        while len(self._tombstones) > DELETIONS:
            _, self.feed.oldest = self._tombstones.popitem(last=False)

    def _call_followers(self, record_id: str, before: T | None, after: T | None) -> None:
        """Call the followers for a change of a record; a failure is logged and does not affect the others."""
        for call_follower in self._follower_calls(record_id, before, after):
            try:
                call_follower()
            except Exception:
                log.exception("change follower failed: internal error", key=self.prefix + record_id)

    def _follower_calls(self, record_id: str, before: T | None, after: T | None) -> Iterator[Callable[[], None]]:
        """Yield a call for each follower of a change; followers of own records only if the record is this hub's own."""
        for follower in self._followers:
            yield partial(follower, before, after)
        record = before if after is None else after
        if record is None or not (self._is_own is None or self._is_own(record)):
            return
        for follower, ids in self._own_followers:
            if ids is None or record_id in ids:
                yield partial(follower, before, after)
        if before is not None and after is None:
            for deletion_follower in self._own_deletion_followers:
                yield partial(deletion_follower, before)

    def forget_compacted(self, revision: int) -> None:
        """Forget the tombstones up to a revision, as the store has; no watch resumes from an earlier revision."""
        self.feed.oldest = max(self.feed.oldest, revision)
        while self._tombstones and next(iter(self._tombstones.values())) <= revision:
            self._tombstones.popitem(last=False)

    def follow(self, follower: Callable[[T | None, T | None], None]) -> None:
        """Call `follower(before, after)` for each durable change, after it was published, of every member.

        Put what must follow from a change in a follower: the task that made the change may be cancelled. A follower
        must not block.
        """
        self._followers.append(follower)

    def follow_own(self, follower: Callable[[T | None, T | None], None], ids: Container[str] | None = None) -> None:
        """Call `follower(before, after)` for each durable change of this hub's own records, to act on it.

        With `ids` only for records whose id is in `ids` at that time. The follower must not block.
        """
        self._own_followers.append((follower, ids))

    def follow_own_deletions(self, follower: Callable[[T], None]) -> None:
        """Call `follower` with each record of this hub's own that is deleted."""
        self._own_deletion_followers.append(follower)

    def add_step(self, record_id: str, step: Step[T]) -> bool:
        """Add a step (a change of a record) that waits for write-behind; return False if it has nothing to do."""
        waiting, row = self._waiting.get(record_id), self._rows.get(record_id)
        stored = None if row is None else row.record
        before = stored if waiting is None else waiting.record
        after = step(before)
        if after is before:
            return False
        self._newest_step += 1
        if waiting is None:
            self._waiting[record_id] = PendingSteps([(self._newest_step, step)], after)
        else:
            waiting.record = after
            waiting.steps.append((self._newest_step, step))
            # A commit under way contains some of the steps, but not the last one: these must not be merged.
            if len(waiting.steps) > MAX_UNMERGED_STEPS and record_id not in self._commits_under_way:
                waiting.merge(stored, is_certain=record_id not in self._uncertain)
        self._by_age.put(record_id, after)
        return True

    def waiting_ids(self) -> list[str]:
        """Return the ids of the records with steps that wait, except those in a commit that is under way."""
        return [record_id for record_id in self._waiting if record_id not in self._commits_under_way]

    def has_waiting(self, record_id: str) -> bool:
        """Return whether steps wait for a record, and no commit of it is under way."""
        return record_id in self._waiting and record_id not in self._commits_under_way

    def begin_commit(self, change: Change[T]) -> None:
        """Note that a commit of this change is under way: write-behind skips its record until `end_commit`."""
        self._commits_under_way[change.id] = self._commits_under_way.get(change.id, 0) + 1

    def end_commit(self, change: Change[T], *, is_certain: bool = True) -> None:
        """Note that a commit of this change has ended, in any way; without `is_certain` it may still become durable."""
        if not is_certain:
            self._uncertain.add(change.id)
        others = self._commits_under_way.pop(change.id) - 1
        if others:
            self._commits_under_way[change.id] = others

    def drop_committed_steps(self, change: Change[T]) -> None:
        """Forget the waiting steps that a durable change contains, and apply the others to the stored record again."""
        waiting = self._waiting.get(change.id)
        if waiting is None:
            return
        waiting.steps = [(number, step) for number, step in waiting.steps if number > change.newest_step]
        row = self._rows.get(change.id)
        before = after = None if row is None else row.record
        for _, step in waiting.steps:
            after = self._apply_again(change.id, step, after)
        if after is before:
            del self._waiting[change.id]
            return
        waiting.record = after
        self._by_age.put(change.id, after)

    def _apply_again(self, record_id: str, step: Step[T], record: T | None) -> T | None:
        """Return the record after a step; the unchanged record if the step fails, which is logged."""
        try:
            return step(record)
        except Exception:
            log.exception("change dropped: it does not fit what is stored now", key=self.prefix + record_id)
            return record

    @property
    def has_waiting_steps(self) -> bool:
        """Whether steps wait for write-behind."""
        return bool(self._waiting)
