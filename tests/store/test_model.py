"""The store against a dictionary: any sequence of commits, compactions, restarts and failures of the disk leaves both
the same."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hubbubd.store import Commit, Compacted, KeyValue, Precondition, StoreUnavailable, Write, WriteConflict
from hubbubd.store.sqlite import engine
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .faulty import Disk, Fault

KEYS = st.sampled_from(["a/1", "a/2", "a/%", "b/1", "b"])
PREFIXES = st.sampled_from(["", "a", "a/", "b/", "c"])
WRITES = st.lists(st.builds(Write, KEYS, st.none() | st.binary(max_size=3)), max_size=4)
# Most guards name a revision that was right at some time: an offset from what the model holds.
GUARDS = st.lists(st.tuples(KEYS, st.sampled_from([0, 0, 0, 1, -1])), max_size=2)
CODES = st.sampled_from([sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
DISK = Disk()
SIZES = engine.MAX_ROWS, engine.MAX_BATCH_BYTES
STATEMENTS = st.sampled_from([SIZES, (1, SIZES[1]), (2, SIZES[1]), (SIZES[0], 3)])
"""The most rows of one statement, and the bytes from which on it gets no further ones."""


class Model:
    """What a store should hold."""

    def __init__(self) -> None:
        self.revision = 0
        self.compacted = 0
        self.rows: dict[str, tuple[int, bytes | None]] = {}
        self.history: list[Commit] = []

    def modified(self, key: str) -> int:
        revision, value = self.rows.get(key, (0, None))
        return 0 if value is None else revision

    def commit(self, writes: Sequence[Write], guards: Sequence[Precondition]) -> int | str:
        for guard in guards:
            if self.modified(guard.key) != guard.revision:
                return guard.key
        newest = {write.key: write for write in writes}
        changes = tuple(w for w in newest.values() if w.value is not None or self.modified(w.key))
        if changes:
            self.revision += 1
            self.rows |= {write.key: (self.revision, write.value) for write in changes}
            self.history.append(Commit(self.revision, changes))
        return self.revision

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, min(revision, self.revision))
        self.rows = {
            key: (revision, value)
            for key, (revision, value) in self.rows.items()
            if value is not None or revision > self.compacted
        }

    def under(self, prefix: str) -> list[tuple[str, int, bytes | None]]:
        return sorted((key, *row) for key, row in self.rows.items() if key.startswith(prefix))


class InMemory(RuleBasedStateMachine):
    """Everything that can be done to a store without restarting it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.heard: list[Commit] = []

    @initialize(sizes=STATEMENTS)
    def create(self, sizes: tuple[int, int]) -> None:
        engine.MAX_ROWS, engine.MAX_BATCH_BYTES = sizes
        self.open(":memory:")

    def open(self, path: Path | str) -> None:
        self.store: SqliteStore = self.runner.run(SqliteStore.open(path))
        self.store.listen(self.heard.append)

    def guards(self, offsets: Sequence[tuple[str, int]]) -> list[Precondition]:
        return [Precondition(key, self.model.modified(key) + offset) for key, offset in offsets]

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition]) -> int | str | None:
        """The revision, or the key of the guard that failed, or None when the disk did."""
        try:
            return await self.store.commit(writes, guards)
        except WriteConflict as conflict:
            return conflict.key
        except StoreUnavailable:
            return None

    @rule(writes=WRITES, offsets=GUARDS)
    def one_commit(self, writes: list[Write], offsets: list[tuple[str, int]]) -> None:
        guards = self.guards(offsets)
        assert self.runner.run(self.commit(writes, guards)) == self.model.commit(writes, guards)

    @rule(group=st.lists(st.tuples(WRITES, GUARDS), min_size=2, max_size=6))
    def commits_at_once(self, group: list[tuple[list[Write], list[tuple[str, int]]]]) -> None:
        commits = [(writes, self.guards(offsets)) for writes, offsets in group]

        async def all_of_them() -> list[int | str | None]:
            return await asyncio.gather(*(self.commit(*commit) for commit in commits))

        assert self.runner.run(all_of_them()) == [self.model.commit(*commit) for commit in commits]

    @rule()
    def reclaim(self) -> None:
        self.runner.run(self.store.reclaim())

    @rule(revision=st.integers(0, 20))
    def compact(self, revision: int) -> None:
        self.runner.run(self.store.compact(revision))
        self.model.compact(revision)

    @rule(prefix=PREFIXES)
    def snapshot(self, prefix: str) -> None:
        snapshot = self.runner.run(self.store.snapshot(prefix))
        rows = self.model.under(prefix)
        assert snapshot.revision == self.model.revision
        assert list(snapshot.entries) == [KeyValue(key, value, at) for key, at, value in rows if value is not None]
        assert sorted(snapshot.deleted) == [(key, at) for key, at, value in rows if value is None]
        assert [at for _, at in snapshot.deleted] == sorted(at for _, at in snapshot.deleted)

    @rule(prefix=PREFIXES, after=st.integers(0, 20))
    def watch(self, prefix: str, after: int) -> None:
        changed = [(at, key, value) for key, at, value in self.model.under(prefix) if at > after]

        async def catch_up() -> list[tuple[int, str, bytes | None]]:
            found: list[tuple[int, str, bytes | None]] = []
            async with aclosing(self.store.watch(prefix, after)) as watch:
                while len(found) < len(changed):
                    commit = await asyncio.wait_for(anext(watch), 60)
                    found += [(commit.revision, write.key, write.value) for write in commit.writes]
            return found

        if self.model.compacted <= after <= self.model.revision:
            assert self.runner.run(catch_up()) == sorted(changed)
        elif changed:
            with pytest.raises(Compacted):
                self.runner.run(catch_up())

    @invariant()
    def listeners_heard_the_history(self) -> None:
        assert self.heard == self.model.history

    def teardown(self) -> None:
        engine.MAX_ROWS, engine.MAX_BATCH_BYTES = SIZES
        if hasattr(self, "store"):
            self.runner.run(self.store.close())
        self.runner.close()


class InAFile(InMemory):
    """The same with restarts, on a disk that fails at times."""

    @initialize(sizes=STATEMENTS)
    def create(self, sizes: tuple[int, int]) -> None:
        engine.MAX_ROWS, engine.MAX_BATCH_BYTES = sizes
        DISK.install()
        self.directory = Path(tempfile.mkdtemp())
        self.open(self.directory / "store.db")

    @precondition(lambda self: self.model.revision)
    @rule()
    def restart(self) -> None:
        id_ = self.store.id
        self.runner.run(self.store.close())
        self.open(self.directory / "store.db")
        assert (self.store.id, self.store.revision) == (id_, self.model.revision)

    @rule(
        group=st.lists(st.tuples(WRITES, GUARDS), min_size=1, max_size=4),
        spared=st.integers(0, 6),
        code=CODES,
        half=st.booleans(),
    )
    def commits_on_a_failing_disk(
        self, group: list[tuple[list[Write], list[tuple[str, int]]]], spared: int, code: int, half: bool
    ) -> None:
        """What is refused has not happened, whatever else was on its way to the disk with it."""
        commits = [(writes, self.guards(offsets)) for writes, offsets in group]

        async def all_of_them() -> list[int | str | None]:
            return await asyncio.gather(*(self.commit(*commit) for commit in commits))

        with DISK.failing(Fault("", code, after=spared, half=half, times=1)):
            outcomes = self.runner.run(all_of_them())
        for commit, outcome in zip(commits, outcomes, strict=True):
            assert outcome is None or outcome == self.model.commit(*commit)

    def teardown(self) -> None:
        super().teardown()
        DISK.uninstall()
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)


def share(of_the_profile: float) -> settings:
    """As many examples as this share of what the profile asks for."""
    examples = max(int(settings().max_examples * of_the_profile), 1)
    return settings(max_examples=examples, stateful_step_count=25, deadline=None)


TestInMemory = InMemory.TestCase
TestInMemory.settings = share(0.6)
TestInAFile = InAFile.TestCase
TestInAFile.settings = share(0.3)
