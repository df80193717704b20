"""Copies of stores that no hub has open. The same tests run over databases in `test_transfer_postgres.py`."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbubd.config import HubSettings
from hubbubd.config.store_addresses import FileAddress, StoreAddress, StoreCopy
from hubbubd.program.store_copy import copy_or_compare, lock_store, make_progress_printer
from hubbubd.store import Compacted, Snapshot, Store, StoreError, StoreLocked, StoreTooNew, Write
from hubbubd.store.sqlite.backup import Row
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.transfer.sqlite import SLICE_BYTES, SLICE_ROWS
from hubbubd.store.transfer.store_transfer import (
    MAX_NAMED,
    Extent,
    SourceReader,
    TargetNotEmpty,
    TargetWriter,
    transfer,
)

HUB = HubSettings(data_dir=Path("nowhere"))
LARGE = 1_000_000

Kept = list[list[tuple[str, bytes | None]]]
"""Commits, one after the other."""

KEYS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["", "a/%", "a/_", "a'\"\\", "é", "e\u0301", "\U0001f600", "\uffff", "￿x", "\x7f", "\n", "k" * 800]
)
VALUES = st.none() | st.binary(max_size=40) | st.binary(min_size=1, max_size=3).map(lambda some: some * 70_000)
COMMITS: st.SearchStrategy[Kept] = st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=6), max_size=6)


class Places:
    """Names stores and opens them as a hub does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made = 0

    def new(self) -> StoreAddress:
        """A store that is not there yet."""
        self.made += 1
        return FileAddress(self.directory / f"{self.made}" / "hubbub.db")

    def opened(self, place: StoreAddress) -> AbstractAsyncContextManager[Store]:
        """The store, open as a hub has it."""
        return self._opened(place)

    @asynccontextmanager
    async def _opened(self, place: StoreAddress) -> AsyncGenerator[Store]:
        assert isinstance(place, FileAddress)
        store = await SqliteStore.open(place.path)
        try:
            yield store
        finally:
            await store.close()

    async def kept(self, commits: Kept, compacted: int = 0) -> StoreAddress:
        """A store that was filled by commits and closed."""
        place = self.new()
        async with self.opened(place) as store:
            for writes in commits:
                await store.commit([Write(key, value) for key, value in writes])
            await store.compact(compacted)
        return place

    async def newer(self, place: StoreAddress) -> None:
        """Make a store one of a newer version."""
        assert isinstance(place, FileAddress)
        with closing(sqlite3.connect(place.path)) as db:
            db.execute("PRAGMA user_version = 99")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def told(_done: int, _whole: int) -> None:
    """Nobody looks how far it is."""


def copied(
    source: StoreAddress,
    target: StoreAddress,
    *,
    verify: bool = False,
    secrets: bool = False,
    on_copied: Callable[[int, int], None] = told,
) -> Any:
    return copy_or_compare(StoreCopy(source=source, target=target, secrets=secrets, verify=verify), HUB, on_copied)


async def is_not_there(place: StoreAddress) -> bool:
    """Whether a hub would find an empty store, or none."""
    async with lock_store(place, HUB, create=True) as store, store.open_reader() as there:
        return there is None or (await there.measure()).rows == 0


async def whole(places: Places, place: StoreAddress) -> tuple[Snapshot, int, str]:
    async with places.opened(place) as store:
        return await store.snapshot(), (await store.stats()).compacted_revision, store.id


FEW: Kept = [[("a", b"1"), ("b", b"2")], [("a", b"3"), ("c", b"")], [("b", None)], [("d", b"4")]]
MANY: Kept = [[(f"key/{commit}/{number:03}", b"x" * 50) for number in range(500)] for commit in range(6)]


async def test_a_hub_goes_on_with_a_copy_where_the_source_was(places: Places) -> None:
    target = places.new()
    await copied(await places.kept(FEW, compacted=2), target)
    async with places.opened(target) as store:
        assert await store.commit([Write("e", b"5")]) == 5
        assert (await anext(store.watch("", 2))).revision == 3
        with pytest.raises(Compacted):
            await anext(store.watch("", 1))


async def test_an_empty_store_is_copied_and_may_be_the_target(places: Places) -> None:
    source, target = await places.kept([]), await places.kept([])
    assert (await copied(source, target, verify=True)).comparison.differing == 0
    # What was deleted and compacted leaves an empty store, too.
    gone = await places.kept([[("a", b"1")], [("a", None)]], compacted=2)
    assert (await copied(await places.kept(FEW), gone, verify=True)).comparison.differing == 0


async def test_a_target_with_records_is_refused_by_name_and_stays(places: Places) -> None:
    source, target = await places.kept(FEW), await places.kept([[("theirs", b"1")]])
    before = await whole(places, target)
    with pytest.raises(TargetNotEmpty, match="has 1 records already, and was left as it was"):
        await copied(source, target)
    assert await whole(places, target) == before


async def test_a_target_with_records_is_compared_when_that_is_wanted(places: Places) -> None:
    source = await places.kept([[("a", b"1"), ("b", b"1")], [("c", b"1"), ("e", b"1")], [("e", None), ("f", b"1")]])
    target = await places.kept([[("b", b"2"), ("c", b"1")], [("d", b"1"), ("e", b"1")]], compacted=1)
    before = await whole(places, target)
    done = await copied(source, target, verify=True)
    assert not done.copied
    assert {each.key: each.description for each in done.comparison.first_differences if each.key} == {
        "a": "it is missing in the target",
        "b": "its value",
        "c": "its revision, 2 and 1",
        "d": "it is only in the target",
        "e": "it is deleted in one of them",
        "f": "it is missing in the target",
    }
    assert [each.description for each in done.comparison.first_differences if not each.key] == [
        "the revision, 3 and 2",
        "the revision up to which they are compacted, 0 and 1",
    ]
    assert done.comparison.differing == 8
    assert await whole(places, target) == before


async def test_many_differences_are_counted_and_the_first_are_named(places: Places) -> None:
    done = await copied(await places.kept(MANY), await places.kept([[("z", b"")]]), verify=True)
    assert done.comparison.differing == 3000 + 2
    assert len(done.comparison.first_differences) == MAX_NAMED
    assert len(done.to_json()["differences"]) == MAX_NAMED


async def test_a_store_that_a_hub_has_open_is_neither_read_nor_written(places: Places) -> None:
    live, other = await places.kept(FEW), await places.kept([])
    async with places.opened(live), places.opened(other):
        with pytest.raises(StoreLocked, match=r"in use by .* stop it"):
            await copied(live, places.new())
        with pytest.raises(StoreLocked, match=r"in use by .* stop it"):
            await copied(await places.kept(FEW), other)


async def test_no_hub_opens_a_store_while_it_is_copied(places: Places) -> None:
    source, target = await places.kept(FEW), places.new()
    async with lock_store(source, HUB, create=False), lock_store(target, HUB, create=True):
        for place in (source, target):
            with pytest.raises(StoreLocked):
                async with places.opened(place):
                    pass


async def test_a_source_that_is_not_there_is_named_and_not_made(places: Places) -> None:
    missing = places.new()
    for _ in range(2):
        with pytest.raises(StoreError, match="there is no store"):
            await copied(missing, places.new())


async def test_a_store_of_a_newer_hub_is_neither_read_nor_written(places: Places) -> None:
    newer = await places.kept([])
    await places.newer(newer)
    with pytest.raises(StoreTooNew, match="newer hub"):
        await copied(newer, places.new())
    with pytest.raises(StoreTooNew, match="newer hub"):
        await copied(await places.kept(FEW), newer)


async def test_a_copy_that_ends_early_leaves_nothing_and_can_be_made_again(places: Places) -> None:
    source, target = await places.kept(MANY), places.new()
    for stop in (0, 1000, 3000):
        with anyio.CancelScope() as scope:

            def end(done: int, _whole: int, *, at: int = stop, scope: anyio.CancelScope = scope) -> None:
                if done >= at:
                    scope.cancel()

            await copied(source, target, on_copied=end)
        assert scope.cancelled_caught
        assert await is_not_there(target)
    assert (await copied(source, target, verify=True)).comparison.differing == 0


async def test_how_far_it_is_is_told_from_nothing_to_all(places: Places) -> None:
    heard: list[tuple[int, int]] = []
    await copied(await places.kept(MANY), places.new(), on_copied=lambda *both: heard.append(both))
    assert (heard[0], heard[-1]) == ((0, 3000), (3000, 3000))
    assert heard == sorted(heard)
    assert len(heard) >= 4


async def test_slices_are_bounded_in_rows_and_bytes(places: Places) -> None:
    sizes = [10] * 2500 + [LARGE] * 9 + [SLICE_BYTES + 1] * 2 + [0] * 1200
    place = await places.kept([[(f"{number:05}", b"x" * size) for number, size in enumerate(sizes)]])
    found: list[str] = []
    async with lock_store(place, HUB, create=False) as store, store.open_reader() as there:
        assert there
        async for rows in there.read_slices():
            assert len(rows) <= SLICE_ROWS
            assert sum(len(value or b"") for _, _, value in rows[:-1]) < SLICE_BYTES
            found += [key for key, _, _ in rows]
    assert found == [f"{number:05}" for number in range(len(sizes))]


def test_a_copy_and_the_copy_back_are_equal_to_their_source(places: Places) -> None:
    """The other engine, where there is one, is between two files."""
    files = Places(places.directory / "files")

    @settings(max_examples=30)
    @given(COMMITS, st.integers(0, 6))
    def check(commits: Kept, compacted: int) -> None:
        async def there_and_back() -> None:
            source, between, back = await files.kept(commits, compacted), places.new(), files.new()
            for one, other in ((source, between), (between, back)):
                done = await copied(one, other, verify=True)
                assert (done.copied, done.comparison.differing) == (True, 0), done.comparison
            assert (await whole(files, source))[:2] == (await whole(files, back))[:2]

        asyncio.run(there_and_back())

    check()


def test_a_long_copy_says_each_second_how_far_it_is_and_that_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([100.0, 100.0, 100.4, 101.0, 101.9, 102.0, 102.1])
    tell = make_progress_printer(lambda: next(now))
    for done in range(6):
        tell(done, 5)
    words = capsys.readouterr().err.splitlines()
    assert words == [f"{done} of 5 records copied" for done in (0, 2, 4, 5)]


class Held:
    """A store that a test makes up."""

    name = "made up"

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.given = 0
        self.taken = 0
        self.most = 0

    @asynccontextmanager
    async def open_reader(self) -> AsyncGenerator[SourceReader]:
        yield self

    @asynccontextmanager
    async def open_writer(self, extent: Extent) -> AsyncGenerator[TargetWriter]:
        assert extent.rows == self.rows or not self.rows
        yield self

    async def measure(self) -> Extent:
        return Extent(revision=1, compacted=0, records=self.rows, deletions=0, size_bytes=0)

    async def read_slices(self) -> AsyncGenerator[Sequence[Row]]:
        for start in range(0, self.rows, SLICE_ROWS):
            self.given += SLICE_ROWS
            self.most = max(self.most, self.given - self.taken)
            yield [(f"{number:09}", 1, b"") for number in range(start, start + SLICE_ROWS)]

    async def add(self, rows: Sequence[Row]) -> None:
        self.taken += len(rows)


async def test_of_a_million_records_a_slice_is_held_at_a_time() -> None:
    source, target = Held(LARGE), Held()
    target.add = source.add  # it is the source that counts
    await transfer(source, target, verify=False, on_copied=told)
    assert (source.taken, source.most) == (LARGE, SLICE_ROWS)
