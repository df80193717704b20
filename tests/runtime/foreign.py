"""A store that others write to as well: before each commit of a hub somebody else changes what it is about to write."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hubbubd.store import Commit, OutcomeUnknown, Precondition, Write, WriteConflict
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .conftest import FailingStore

MARKED = {
    "call": "defect",
    "request": "defect",
    "task": "defect",
    "server": "defect",
    "token": "created_by",
    "audit": "peer",
}
"""A field of each noun that a hub leaves alone once it is set: in it others leave their marks."""


class SharedStore(FailingStore):
    """Once `shared`, lets a foreign commit overtake each commit of the hub; its next attempt is let through.

    `marks` counts by key what others have changed. `lost` are the attempts that failed for it. `instead` makes another
    change of the records of a noun than a mark, once for each key.
    """

    def __init__(self, inner: SqliteStore) -> None:
        super().__init__(inner)
        self.shared = False
        self.marks = Counter[str]()
        self.lost = 0
        self.instead: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {}
        self._let: set[str] = set()

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        about = {write.key for write in writes} - self._let if self.shared else set[str]()
        self._let |= about
        foreign = [marked for key in sorted(about) if (marked := await self._changed(key)) is not None]
        if foreign:
            await self.inner.commit(foreign)
        try:
            revision = await super().commit(writes, guards)
        except WriteConflict:
            self.lost += 1
            raise
        self._let -= {write.key for write in writes}
        return revision

    async def foreign(self, key: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Somebody else changes a record."""
        value = await self.value(key)
        assert value is not None
        after = change(value)
        await self.inner.commit([Write(key, None if after is None else json.dumps(after).encode())])

    async def _changed(self, key: str) -> Write | None:
        noun, value = key.partition("/")[0], await self.value(key)
        if value is None:
            return None
        if (change := self.instead.pop(noun, None)) is not None:
            after = change(value)
            return Write(key, None if after is None else json.dumps(after).encode())
        if noun in MARKED:
            value[MARKED[noun]] = value.get(MARKED[noun], "") + "*"
            self.marks[key] += 1
        return Write(key, json.dumps(value).encode())

    async def value(self, key: str) -> dict[str, Any] | None:
        """A record as it is in the store; None if it is not."""
        entries = (await self.inner.snapshot(key)).entries
        return next((json.loads(entry.value) for entry in entries if entry.key == key), None)

    async def overwritten(self) -> list[str]:
        """The keys on which a mark is missing."""
        missing: list[str] = []
        for key, count in self.marks.items():
            value = await self.value(key)
            if value is not None and value[MARKED[key.partition("/")[0]]].count("*") != count:
                missing.append(key)
        return missing


class Member(FailingStore):
    """One of two who share a store: the other's commits come without what the other had in mind.

    While `held`, they wait, and come as a whole cut: each key once, with its newest state. A member that commits, if
    only guards, gets those before first.
    """

    def __init__(self, inner: SqliteStore, name: str) -> None:
        super().__init__(inner)
        self.held = False
        self._name = name
        self._missed: list[Commit] = []
        self._listeners: list[Callable[[Commit], None]] = []
        inner.listen(self._hear)

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        own = [Write(write.key, write.value, (self._name, write.ref)) for write in writes]
        try:
            revision = await super().commit(own, guards)
        except WriteConflict:
            self.release()
            raise
        self.release()
        return revision

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _hear(self, commit: Commit) -> None:
        own = any(self._is_own(write) for write in commit.writes)
        self._missed.append(commit)
        if own or not self.held:
            self.release()

    def release(self, count: int | None = None) -> None:
        """Tell what was held back, or only so many commits of it."""
        missed, self._missed = self._missed[:count], [] if count is None else self._missed[count:]
        newest = {write.key: commit.revision for commit in missed for write in commit.writes}
        for commit in missed:
            writes = tuple(self._seen(write) for write in commit.writes if newest[write.key] == commit.revision)
            for listener in list(self._listeners) if writes else ():
                listener(Commit(commit.revision, writes))

    def _seen(self, write: Write) -> Write:
        return Write(write.key, write.value, write.ref[1] if self._is_own(write) else None)

    def _is_own(self, write: Write) -> bool:
        return write.ref is not None and write.ref[0] == self._name


class Follower(Member):
    """A member that knows which revision it was notified of."""

    def __init__(self, inner: SqliteStore, name: str) -> None:
        super().__init__(inner, name)
        self._told = inner.revision
        self.listen(self._note)

    def _note(self, commit: Commit) -> None:
        self._told = commit.revision

    @property
    def revision(self) -> int:
        return self._told

    @property
    def waiting(self) -> int:
        """How many learn of commits beside the hub itself."""
        return len(self._listeners)


class Late(FailingStore):
    """Says once, when `unsure`, that it does not know, and commits when `soon` is awaited, if that still can be.

    If it `happens`, it has committed by then.
    """

    def __init__(self, inner: SqliteStore) -> None:
        super().__init__(inner)
        self.unsure = False
        self.happens = False

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        if not self.unsure:
            return await super().commit(writes, guards)
        self.unsure = False

        async def soon() -> None:
            with suppress(WriteConflict):
                await self.inner.commit(writes, guards)

        self.soon = soon
        if self.happens:
            await soon()
        raise OutcomeUnknown("no answer yet")
