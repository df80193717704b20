"""Watches: a table's snapshot, then its changes, with resume tokens and bounded buffers, for any number of watchers.

A position is a revision of the store. Catching up from a position yields each record's newest state once, in revision
order; a snapshot is catching up from nothing. A resume token names a revision only once the watcher got all its
changes; until then it names the one before, so delivery is at least once. A token may come from a member that is ahead
of this one: then the watch begins once this one has caught up.

Matching, building and (through `WatchEvent.encoded`) serializing an event are done once per distinct filter, not per
watcher. Each buffer keeps the newest event per record. A watcher that still falls behind is closed.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields
from enum import StrEnum
from itertools import count, zip_longest
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
import anyio.lowlevel

from hubbubd import bounds
from hubbubd.core.access import EVERYTHING
from hubbubd.core.filters import Filter
from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.records.condition import BOOKMARK_S, StoreProgress, VersionedCondition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
OnEvent = Callable[[T, object], None]
"""Gets a record, and its live event, or None for a change of the record."""

BUFFER_EVENTS = 4096
"""The most changed records buffered for a watcher; beyond that it is closed."""

SLICE = 100
"""Records of a snapshot that are matched, and go together in a batch, before the event loop gets a turn: about 2 ms."""

LIVE_EVENTS = 256
"""The most live events (progress, log lines) buffered for a watcher; the oldest are dropped."""

AHEAD_S = 2.0
"""Seconds for which a watch waits until this member has the revision of its token; after that the token is refused."""

BEFORE_ALL = -1
"""The position before all revisions: the watcher has seen nothing yet."""


class EventKind(StrEnum):
    """Kind of a step of a watch."""

    UPSERT = "upsert"
    REMOVED = "removed"
    SYNCED = "synced"
    RESET = "reset"
    BOOKMARK = "bookmark"
    LIVE = "live"


@dataclass(slots=True, eq=False)
class WatchEvent(Generic[T]):
    """One step of a watch; watchers with the same filter share the object.

    `token` resumes after it. `encoded` is a cache for the layer above, which serializes an event once.
    """

    kind: EventKind
    token: str
    id: str = ""
    record: T | None = None
    _: KW_ONLY
    reason: str = ""
    live: object = None
    encoded: object = None


class FeedSource(Protocol[T_co]):
    """What a feed reads of its table."""

    def changed_since(self, revision: int) -> Iterable[tuple[int, str, T_co | None]]:
        """Return (revision, id, record or None if deleted) of later changes; without deletions after BEFORE_ALL."""
        ...

    def record(self, record_id: str) -> T_co | None:
        """Return a record as it is now; None if there is no such record."""
        ...

    def has_deletion_since(self, revision: int) -> bool:
        """Return whether anything was deleted after a revision."""
        ...


@dataclass(frozen=True, slots=True)
class _Position:
    """A decoded resume token. `syncing` says that the watcher had not read the whole snapshot yet."""

    store: str
    filter_digest: str
    revision: int
    syncing: bool

    def encode(self) -> str:
        text = f"{self.store} {self.filter_digest} {self.revision} {self.syncing:d}"
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> "_Position":
        """Return the position that a token names. Raises ValueError for another form."""
        text = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode("ascii")
        store, digest, revision, syncing = text.split(" ")
        at = bounds.parse_whole(revision, BEFORE_ALL)
        if at is None or syncing not in ("0", "1"):
            raise ValueError("not a position")
        return cls(store, digest, at, syncing == "1")


def _parse_token(token: str) -> _Position | None:
    """Return the position that a resume token names; None if the token is malformed."""
    try:
        return _Position.decode(token)
    except (ValueError, UnicodeError):
        return None


class _Group(Generic[T]):
    """The watchers with equal filters."""

    def __init__(self, store_id: str, chosen: Filter[T]) -> None:
        self.filter = chosen
        self.watchers: set[_FeedWatcher[T]] = set()
        self._store_id = store_id
        self._digest = hashlib.sha256(repr(_stable_form(chosen)).encode()).hexdigest()[:12]

    def make_token(self, revision: int, *, syncing: bool = False) -> str:
        return _Position(self._store_id, self._digest, revision, syncing).encode()

    def is_visible(self, before: T | None, after: T | None) -> bool:
        """Return whether the filter matches a record before or after a change."""
        return any(record is not None and self.filter.matches(record) for record in (after, before))

    def make_event(self, revision: int, record_id: str, record: T | None, *, syncing: bool = False) -> WatchEvent[T]:
        """Return the event for a change of a record; its token says that the watcher has seen all up to `revision`."""
        token = self.make_token(revision, syncing=syncing)
        if record is not None and self.filter.matches(record):
            return WatchEvent(EventKind.UPSERT, token, record_id, record)
        return WatchEvent(EventKind.REMOVED, token, record_id)

    def refusal_reason(self, position: _Position, oldest: int, newest: int) -> str | None:
        """Return why a resume token is refused (the reason of the reset); None if it is valid."""
        if position.store != self._store_id:
            return "OTHER_STORE"
        if position.filter_digest != self._digest:
            return "OTHER_FILTER"
        if position.revision > newest:
            return "FUTURE"
        # A watcher that has seen nothing yet misses no deletion.
        return "COMPACTED" if BEFORE_ALL < position.revision < oldest else None


def _stable_form(chosen: object) -> object:
    """Return a filter's fields in a form that is the same in every process: a frozenset has no stable order."""
    values = {field.name: getattr(chosen, field.name) for field in fields(cast("Any", chosen))}
    stable: dict[str, object] = {}
    for name, value in values.items():
        is_set = isinstance(value, frozenset)
        stable[name] = sorted(map(str, cast("frozenset[object]", value))) if is_set else str(value)
    return stable


class _FeedWatcher(Generic[T]):
    """What one watcher has yet to read: first the missed events, then the events in its bounded buffers, in order."""

    def __init__(self, token: str) -> None:
        self.last_token = token
        self.missed = deque[WatchEvent[T]]()
        self.has_caught_up = False
        self.changes: OrderedDict[object, tuple[int, WatchEvent[T]]] = OrderedDict()
        self.live: OrderedDict[object, tuple[int, WatchEvent[T]]] = OrderedDict()
        self.condition = VersionedCondition()
        self.is_overrun = False
        self._numbers = count()  # they order the events of both buffers

    def push(self, event: WatchEvent[T]) -> None:
        """Buffer a change; beyond BUFFER_EVENTS empty the buffer and mark the watcher as is_overrun: its watch ends."""
        self._put(self.changes, event.id, event)
        if len(self.changes) > BUFFER_EVENTS:
            self.is_overrun = True
            self.changes.clear()

    def push_live(self, key: object, event: WatchEvent[T]) -> None:
        """Buffer a live event, in place of one with the same key; beyond LIVE_EVENTS the oldest is dropped."""
        self._put(self.live, key, event)
        if len(self.live) > LIVE_EVENTS:
            self.live.popitem(last=False)

    def _put(self, buffer: OrderedDict[object, tuple[int, WatchEvent[T]]], key: object, event: WatchEvent[T]) -> None:
        """Put an event at the end of a buffer, in place of one with the same key, and wake the watcher."""
        buffer.pop(key, None)
        buffer[key] = (next(self._numbers), event)
        self.condition.notify_all()

    def forget_changes(self) -> None:
        """Forget the buffered changes, which the watcher has yet to read."""
        self.changes.clear()
        self.is_overrun = False

    def pop(self) -> WatchEvent[T] | None:
        """Remove and return the oldest event, missed ones first; None if no event is ready."""
        if self.missed:
            event = self.missed.popleft()
        elif not self.has_caught_up or self.is_overrun:
            return None
        elif self.live and (not self.changes or _oldest_number(self.live) < _oldest_number(self.changes)):
            return self.live.popitem(last=False)[1][1]
        elif self.changes:
            event = self.changes.popitem(last=False)[1][1]
        else:
            return None
        self.last_token = event.token
        return event


def _oldest_number(buffer: OrderedDict[object, tuple[int, Any]]) -> int:
    """Return the number of a buffer's oldest event."""
    return next(iter(buffer.values()))[0]


class Watch(Generic[T]):
    """An async iterator over one watcher's events: snapshot, SYNCED, and changes; with a valid token what was missed.

    A watch counts as a watcher from its first event until its end. Raises ResourceExhausted (WATCHER_TOO_SLOW,
    TOO_MANY_WATCHERS) and Unavailable (SHUTTING_DOWN), the first and the last with metadata `resume_token`.
    """

    def __init__(self, watcher: _FeedWatcher[T], events: AsyncGenerator[WatchEvent[T]]) -> None:
        self._watcher = watcher
        self._events = events

    def __aiter__(self) -> "Watch[T]":
        return self

    def __anext__(self) -> Awaitable[WatchEvent[T]]:
        return self._events.__anext__()

    def pop(self) -> WatchEvent[T] | None:
        """Return the next event if it is there already, so that several can be passed on at once; else None."""
        return self._watcher.pop()

    async def aclose(self) -> None:
        """End the watch."""
        await self._events.aclose()


class WatcherLimit:
    """The limit of watchers over all feeds."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.dropped = 0
        """How many watches were ended because their client read too slowly."""
        self.limit = limit

    def enter(self) -> None:
        """Count a new watcher. Raises ResourceExhausted (TOO_MANY_WATCHERS)."""
        if self.count >= self.limit:
            raise ResourceExhausted(f"{self.limit} watches are open already", reason="TOO_MANY_WATCHERS")
        self.count += 1

    def note_drop(self) -> None:
        """Count a watcher that is closed as its client is slow; call `leave` for it as well."""
        self.dropped += 1

    def leave(self) -> None:
        """Uncount a watcher that has ended."""
        self.count -= 1


class TableFeed(Generic[T]):
    """The watches of one table."""

    def __init__(
        self, store_id: str, rows: FeedSource[T], watcher_limit: WatcherLimit, progress: StoreProgress, oldest: int
    ) -> None:
        self._store_id = store_id
        self._rows = rows
        self._watcher_limit = watcher_limit
        self._progress = progress
        self.oldest = oldest
        self._groups: dict[Filter[T], _Group[T]] = {}
        self._listeners: dict[str, list[OnEvent[T]]] = {}
        self._closed = False

    def publish(self, revision: int, updates: Sequence[tuple[str, T | None, T | None]]) -> None:
        """Publish the changes of one revision, as (id, before, after), to the watchers whose filter sees them."""
        for group in self._groups.values():
            visible = [(record_id, new) for record_id, old, new in updates if group.is_visible(old, new)]
            # Only the last event's token names the revision: a watcher that has seen fewer has not seen all of it.
            for number, (record_id, new) in enumerate(visible, 1):
                event = group.make_event(revision if number == len(visible) else revision - 1, record_id, new)
                for watcher in group.watchers:
                    watcher.push(event)
        if self._listeners:
            for record_id, _, new in updates:
                self._call_listeners(record_id, new, None)

    def publish_live(self, record_id: str, record: T, key: object, live: object) -> None:
        """Publish an event that is not stored; it replaces an event with the same `key` that was not read yet."""
        for group in self._groups.values():
            if group.filter.matches(record):
                event = WatchEvent[T](EventKind.LIVE, group.make_token(self.revision), record_id, live=live)
                for watcher in group.watchers:
                    watcher.push_live(key, event)
        self._call_listeners(record_id, record, live)

    @contextmanager
    def listen(self, record_id: str, on_event: OnEvent[T]) -> Generator[None]:
        """Call `on_event` with each change and live event of one record, at once and unbuffered, during the block."""
        listeners = self._listeners.setdefault(record_id, [])
        listeners.append(on_event)
        try:
            yield
        finally:
            listeners.remove(on_event)
            if not listeners:
                del self._listeners[record_id]

    def _call_listeners(self, record_id: str, record: T | None, live: object) -> None:
        if record is not None:  # listeners are not notified of a deletion
            for on_event in self._listeners.get(record_id, ()):
                on_event(record, live)

    @property
    def revision(self) -> int:
        """The newest revision of the store that all tables have."""
        return self._progress.revision

    @property
    def is_watched(self) -> bool:
        """Whether there are watchers or listeners."""
        return bool(self._groups or self._listeners)

    def backlog(self) -> int:
        """Return how many changed records the slowest watcher has yet to read."""
        return max((len(w.changes) for group in self._groups.values() for w in group.watchers), default=0)

    def close(self) -> None:
        """End all watches, each with its last resume token."""
        self._closed = True
        for group in self._groups.values():
            for watcher in group.watchers:
                watcher.condition.close()

    def watch(self, chosen: Filter[T], token: str = "") -> Watch[T]:
        """Return a new watch; `token` is a resume token of an earlier watch, "" for a new snapshot."""
        watcher = _FeedWatcher[T](token)
        return Watch(watcher, self._events(watcher, chosen, token))

    async def _events(self, watcher: _FeedWatcher[T], chosen: Filter[T], token: str) -> AsyncGenerator[WatchEvent[T]]:
        """Yield the events of a watch: missed ones, then changes, live events and bookmarks. Raises as `Watch`."""
        with self._register(watcher, chosen) as group:
            if await self._wait_until_caught_up(token):
                watcher.condition.require_open(resume_token=token)
                watcher.forget_changes()  # they are among the missed events
            for missed in self._missed_events(group, token):
                watcher.missed.extend(missed)
                while (event := watcher.pop()) is not None:
                    yield event
                await anyio.lowlevel.checkpoint()  # if nothing matches, nothing else in this loop yields to others
            watcher.has_caught_up = True
            while True:
                while (event := watcher.pop()) is not None:
                    yield event
                if watcher.is_overrun:
                    self._watcher_limit.note_drop()
                    raise ResourceExhausted(
                        "this watcher fell too far behind; resume with its last token",
                        reason="WATCHER_TOO_SLOW",
                        metadata={"resume_token": watcher.last_token},
                    )
                watcher.condition.require_open(resume_token=watcher.last_token)
                if not await watcher.condition.wait(watcher.condition.version, BOOKMARK_S):
                    watcher.last_token = group.make_token(self.revision)
                    yield WatchEvent[T](EventKind.BOOKMARK, watcher.last_token)

    @contextmanager
    def _register(self, watcher: _FeedWatcher[T], chosen: Filter[T]) -> Generator[_Group[T]]:
        """Count a watcher and buffer its events during the block. Raises ResourceExhausted (TOO_MANY_WATCHERS)."""
        self._watcher_limit.enter()
        group = self._groups.get(chosen)
        if group is None:
            group = self._groups[chosen] = _Group(self._store_id, chosen)
        if self._closed:
            watcher.condition.close()
        group.watchers.add(watcher)
        try:
            yield group
        finally:
            group.watchers.discard(watcher)
            if not group.watchers:
                self._groups.pop(chosen, None)
            self._watcher_limit.leave()

    async def _wait_until_caught_up(self, token: str) -> bool:
        """Wait until this member has the token's revision, at most AHEAD_S; return False if it had it already."""
        position = _parse_token(token)
        if position is None or position.store != self._store_id or position.revision <= self.revision:
            return False
        with anyio.move_on_after(AHEAD_S):
            await self._progress.wait_for_revision(position.revision)
        return True

    def _missed_events(self, group: _Group[T], token: str) -> Iterator[list[WatchEvent[T]]]:
        """Yield, in slices, the events before those in the buffers: the snapshot, or the changes since the token."""
        position, refusal = self._find_position(group, token)
        if refusal:
            yield [WatchEvent(EventKind.RESET, group.make_token(BEFORE_ALL, syncing=True), reason=refusal)]
        syncing = position is None or position.syncing
        after = position.revision if position else BEFORE_ALL
        newest = self.revision
        missed = list(self._rows.changed_since(after))
        events = list[WatchEvent[T]]()
        for number, ((revision, record_id, record), next_row) in enumerate(zip_longest(missed, missed[1:]), 1):
            if record is None or group.filter.is_in_scope(record):  # out of scope: not even a deletion is visible
                is_last = next_row is None or next_row[0] > revision  # of its revision, as in `publish`
                event = group.make_event(revision if is_last else revision - 1, record_id, record, syncing=syncing)
                if event.kind is EventKind.UPSERT or after != BEFORE_ALL:
                    events.append(event)
            if number % SLICE == 0:
                yield events
                events = []
        if syncing:
            events.append(WatchEvent(EventKind.SYNCED, group.make_token(newest)))
        yield events

    def _find_position(self, group: _Group[T], token: str) -> tuple[_Position | None, str]:
        """Return the position where a token resumes (None: the start), and why the token is refused ("": it is not)."""
        if not token:
            return None, ""
        position = _parse_token(token)
        if position is None:
            return None, "MALFORMED"
        refusal = group.refusal_reason(position, self.oldest, self.revision)
        # Nobody knows if a deleted record was in this watcher's scope: reset the watch, and do not reveal the id.
        is_limited = group.filter.scope != EVERYTHING and position.revision != BEFORE_ALL
        if not refusal and is_limited and self._rows.has_deletion_since(position.revision):
            refusal = "COMPACTED"
        return (None, refusal) if refusal else (position, "")
