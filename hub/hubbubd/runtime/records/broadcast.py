"""Watches: the snapshot of a table, then its changes, for any number of watchers.

A position is a revision of the store. Catching up from one position shows each record's newest state once, in
revision order; a snapshot is catching up from nothing. A token names a revision only once all changes of that
revision have been shown; before, it names the one before, and resuming shows some again.

The work of a change (matching, building the event, and through `WatchEvent.encoded` serialising it) is done once per
distinct filter, not per watcher. Each watcher has a buffer that keeps the newest event per record; one that still
falls behind is closed, and slows nobody.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
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
from hubbubd.runtime.records.pulse import BOOKMARK_S, Pulse

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BUFFER_EVENTS = 4096
"""How many records may have changed unseen before a watcher is closed."""

SLICE = 500
"""Records of a snapshot that are looked at in one go."""

LIVE_EVENTS = 256
"""How many live events (progress, log lines) may wait; the oldest ones go first."""

NOTHING = -1
"""The position before all revisions; whoever is there has been shown nothing."""


class EventKind(StrEnum):
    """What a step of a watch says."""

    UPSERT = "upsert"
    REMOVED = "removed"
    SYNCED = "synced"
    RESET = "reset"
    BOOKMARK = "bookmark"
    LIVE = "live"


@dataclass(slots=True, eq=False)
class WatchEvent(Generic[T]):
    """One step of a watch; the same object goes to every watcher with the same filter.

    `token` resumes after it. `encoded` is for the layer above, which serialises an event once and keeps it here.
    """

    kind: EventKind
    token: str
    id: str = ""
    record: T | None = None
    _: KW_ONLY
    reason: str = ""
    live: object = None
    encoded: object = None


class Rows(Protocol[T_co]):
    """What a feed reads of a table: rows and deletions, in revision order."""

    def since(self, revision: int) -> Iterable[tuple[int, str, T_co | None]]:
        """What has changed after a revision, oldest first; None is a deletion. Without deletions after `NOTHING`."""
        ...

    def record(self, record_id: str) -> T_co | None:
        """A record as it is now."""
        ...

    def deleted_since(self, revision: int) -> bool:
        """Whether anything was deleted after a revision."""
        ...


@dataclass(frozen=True, slots=True)
class _Position:
    """A decoded resume token. `syncing` is a snapshot that was interrupted."""

    store: str
    filter_digest: str
    revision: int
    syncing: bool

    def encode(self) -> str:
        text = f"{self.store} {self.filter_digest} {self.revision} {self.syncing:d}"
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> "_Position":
        text = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode("ascii")
        store, digest, revision, syncing = text.split(" ")
        at = bounds.whole_text(revision, NOTHING)
        if at is None or syncing not in ("0", "1"):
            raise ValueError("not a position")
        return cls(store, digest, at, syncing == "1")


class _Group(Generic[T]):
    """The watchers that share a filter."""

    def __init__(self, store_id: str, chosen: Filter[T]) -> None:
        self.filter = chosen
        self.watchers: set[_Watcher[T]] = set()
        self._store_id = store_id
        self._digest = hashlib.sha256(repr(_stable(chosen)).encode()).hexdigest()[:12]

    def token(self, revision: int, *, syncing: bool = False) -> str:
        return _Position(self._store_id, self._digest, revision, syncing).encode()

    def concerned(self, before: T | None, after: T | None) -> bool:
        """Whether a change is news here."""
        return any(record is not None and self.filter.matches(record) for record in (after, before))

    def event(self, revision: int, record_id: str, record: T | None, *, syncing: bool = False) -> WatchEvent[T]:
        """A record's change for a watcher that has then seen all up to `revision`."""
        token = self.token(revision, syncing=syncing)
        if record is not None and self.filter.matches(record):
            return WatchEvent(EventKind.UPSERT, token, record_id, record)
        return WatchEvent(EventKind.REMOVED, token, record_id)

    def why_not(self, position: _Position, oldest: int, newest: int) -> str | None:
        """The reason for which a token cannot be honoured; None when it can."""
        if position.store != self._store_id:
            return "OTHER_STORE"
        if position.filter_digest != self._digest:
            return "OTHER_FILTER"
        if position.revision > newest:
            return "FUTURE"
        # Whoever has seen nothing yet misses no deletion.
        return "COMPACTED" if NOTHING < position.revision < oldest else None


def _stable(chosen: object) -> object:
    """A filter's content, written the same way in every process (a frozenset's own order is not)."""
    values = {field.name: getattr(chosen, field.name) for field in fields(cast("Any", chosen))}
    return {
        n: sorted(map(str, cast("frozenset[object]", v))) if isinstance(v, frozenset) else str(v)
        for n, v in values.items()
    }


class _Watcher(Generic[T]):
    """What waits for one watcher, each with its place in the order in which it happened."""

    def __init__(self) -> None:
        self.changes: OrderedDict[object, tuple[int, WatchEvent[T]]] = OrderedDict()
        self.live: OrderedDict[object, tuple[int, WatchEvent[T]]] = OrderedDict()
        self.pulse = Pulse()
        self.overrun = False
        self._places = count()

    def push(self, event: WatchEvent[T]) -> None:
        self._put(self.changes, event.id, event)
        if len(self.changes) > BUFFER_EVENTS:
            self.overrun = True
            self.changes.clear()

    def push_live(self, key: object, event: WatchEvent[T]) -> None:
        self._put(self.live, key, event)
        if len(self.live) > LIVE_EVENTS:
            self.live.popitem(last=False)

    def _put(self, buffer: OrderedDict[object, tuple[int, WatchEvent[T]]], key: object, event: WatchEvent[T]) -> None:
        buffer.pop(key, None)
        buffer[key] = (next(self._places), event)
        self.pulse.beat()

    def pop(self) -> WatchEvent[T] | None:
        """The oldest one, so that a call's progress comes before its end."""
        buffers = [buffer for buffer in (self.changes, self.live) if buffer]
        if not buffers:
            return None
        oldest = min(buffers, key=lambda buffer: next(iter(buffer.values()))[0])
        return oldest.popitem(last=False)[1][1]


class WatcherLimit:
    """Counts the watchers of all feeds against one limit."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.dropped = 0
        """How many watches were ended because their client read too slowly."""
        self.limit = limit

    def enter(self) -> None:
        """Raises ResourceExhausted (TOO_MANY_WATCHERS)."""
        if self.count >= self.limit:
            raise ResourceExhausted(f"{self.limit} watches are open already", reason="TOO_MANY_WATCHERS")
        self.count += 1

    def drop(self) -> None:
        """Counts a watcher that is let go; it leaves as well."""
        self.dropped += 1

    def leave(self) -> None:
        """One watcher less."""
        self.count -= 1


class Feed(Generic[T]):
    """The watches of one table."""

    def __init__(self, store_id: str, rows: Rows[T], door: WatcherLimit, revision: int, oldest: int) -> None:
        self._store_id = store_id
        self._rows = rows
        self._door = door
        self._revision = revision
        self.oldest = oldest
        self._groups: dict[Filter[T], _Group[T]] = {}
        self._closed = False

    def publish(self, revision: int, moves: Sequence[tuple[str, T | None, T | None]]) -> None:
        """Tells all watchers whom the changes of one revision concern: (id, before, after) of each."""
        self._revision = revision
        for group in self._groups.values():
            concerning = [(record_id, new) for record_id, old, new in moves if group.concerned(old, new)]
            for at, (record_id, new) in enumerate(concerning, 1):
                event = group.event(revision if at == len(concerning) else revision - 1, record_id, new)
                for watcher in group.watchers:
                    watcher.push(event)

    def advance(self, revision: int) -> None:
        """Notes that the store has moved on without a change here."""
        self._revision = revision

    def publish_live(self, record_id: str, record: T, key: object, live: object) -> None:
        """Shows something that is not stored; `key` names what it replaces when it was not yet seen."""
        for group in self._groups.values():
            if group.filter.matches(record):
                event = WatchEvent[T](EventKind.LIVE, group.token(self._revision), record_id, live=live)
                for watcher in group.watchers:
                    watcher.push_live(key, event)

    @property
    def revision(self) -> int:
        """The newest revision of the store that it was told of."""
        return self._revision

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._groups)

    def backlog(self) -> int:
        """How many changed records the slowest watcher has yet to take."""
        return max((len(w.changes) for group in self._groups.values() for w in group.watchers), default=0)

    def close(self) -> None:
        """Ends all watches, each with its last token."""
        self._closed = True
        for group in self._groups.values():
            for watcher in group.watchers:
                watcher.pulse.close()

    async def watch(self, chosen: Filter[T], token: str = "") -> AsyncGenerator[WatchEvent[T]]:
        """Snapshot, synced and changes; with a valid token only the changes since.

        Raises ResourceExhausted (WATCHER_TOO_SLOW, TOO_MANY_WATCHERS) and Unavailable (SHUTTING_DOWN), the
        first and the last with the metadata `resume_token`.
        """
        self._door.enter()
        group = self._groups.get(chosen)
        if group is None:
            group = self._groups[chosen] = _Group(self._store_id, chosen)
        watcher = _Watcher[T]()
        if self._closed:
            watcher.pulse.close()
        group.watchers.add(watcher)
        try:
            async with aclosing(self._steps(group, watcher, token)) as steps:
                async for event in steps:
                    yield event
        finally:
            group.watchers.discard(watcher)
            if not group.watchers:
                self._groups.pop(chosen, None)
            self._door.leave()

    async def _steps(self, group: _Group[T], watcher: _Watcher[T], token: str) -> AsyncGenerator[WatchEvent[T]]:
        position, refused = self._position(group, token)
        if refused:
            yield WatchEvent(EventKind.RESET, group.token(NOTHING, syncing=True), reason=refused)
        syncing = position is None or position.syncing
        after = position.revision if position else NOTHING
        newest = self._revision
        last = token
        missed = list(self._rows.since(after))
        for at, ((revision, record_id, record), following) in enumerate(zip_longest(missed, missed[1:]), 1):
            if at % SLICE == 0:
                await anyio.lowlevel.checkpoint()  # nobody may have to be told of any of them
            if record is not None and not group.filter.reaches(record):
                continue  # not even that it is not there is told
            complete = following is None or following[0] > revision
            event = group.event(revision if complete else revision - 1, record_id, record, syncing=syncing)
            if event.kind is EventKind.UPSERT or after != NOTHING:
                last = event.token
                yield event
        if syncing:
            last = group.token(newest)
            yield WatchEvent(EventKind.SYNCED, last)
        while True:
            event = watcher.pop()
            if watcher.overrun:
                self._door.drop()
                raise ResourceExhausted(
                    "this watcher fell too far behind; resume with its last token",
                    reason="WATCHER_TOO_SLOW",
                    metadata={"resume_token": last},
                )
            if event is None:
                watcher.pulse.require_open(resume_token=last)
                event = await self._next(group, watcher)
            if event is not None:
                last = event.token if event.kind is not EventKind.LIVE else last
                yield event

    async def _next(self, group: _Group[T], watcher: _Watcher[T]) -> WatchEvent[T] | None:
        """Waits for something to say; a bookmark when there is nothing for a while."""
        if await watcher.pulse.wait(watcher.pulse.beats, BOOKMARK_S):
            return watcher.pop()
        return WatchEvent(EventKind.BOOKMARK, group.token(self._revision))

    def _position(self, group: _Group[T], token: str) -> tuple[_Position | None, str]:
        if not token:
            return None, ""
        try:
            position = _Position.decode(token)
        except (ValueError, UnicodeError):
            return None, "MALFORMED"
        refused = group.why_not(position, self.oldest, self._revision)
        # Of what was deleted nobody knows any more whether this watcher was allowed to know of it.
        limited = group.filter.scope != EVERYTHING and position.revision != NOTHING
        if not refused and limited and self._rows.deleted_since(position.revision):
            refused = "COMPACTED"
        return (None, refused) if refused else (position, "")
