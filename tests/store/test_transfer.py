"""Copies of stores that no hub has open. The same tests run over databases in `test_transfer_postgres.py`."""

import asyncio
import json
import shutil
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
from hubbubd.config.places import CopyOrder, FilePlace, Place
from hubbubd.errors import ConfigError
from hubbubd.store import (
    Compacted,
    NoRoom,
    Snapshot,
    Store,
    StoreError,
    StoreLocked,
    StoreTooNew,
    StoreUnavailable,
    Write,
    copy,
)
from hubbubd.store.copy import Row
from hubbubd.store.sqlite import SqliteStore
from hubbubd.store.transfer import (
    NAMED,
    Extent,
    Filling,
    Reading,
    SecretsLeft,
    TargetNotEmpty,
    Transferred,
    carry_out,
    held,
    transfer,
)
from hubbubd.store.transfer_sqlite import SLICE_BYTES, SLICE_ROWS

from .faulty import BROKEN_WRITE, FULL, Disk, Fault

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

    def new(self) -> Place:
        """A store that is not there yet."""
        self.made += 1
        return FilePlace(self.directory / f"{self.made}" / "hubbub.db")

    def opened(self, place: Place) -> AbstractAsyncContextManager[Store]:
        """The store, open as a hub has it."""
        return self._opened(place)

    @asynccontextmanager
    async def _opened(self, place: Place) -> AsyncGenerator[Store]:
        assert isinstance(place, FilePlace)
        store = await SqliteStore.open(place.path)
        try:
            yield store
        finally:
            await store.close()

    async def kept(self, commits: Kept, compacted: int = 0) -> Place:
        """A store that was filled by commits and closed."""
        place = self.new()
        async with self.opened(place) as store:
            for writes in commits:
                await store.commit([Write(key, value) for key, value in writes])
            await store.compact(compacted)
        return place

    async def newer(self, place: Place) -> None:
        """Make a store one of a newer version."""
        assert isinstance(place, FilePlace)
        with closing(sqlite3.connect(place.path)) as db:
            db.execute("PRAGMA user_version = 99")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def told(_done: int, _whole: int) -> None:
    """Nobody looks how far it is."""


def copied(
    source: Place,
    target: Place,
    *,
    verify: bool = False,
    secrets: bool = False,
    on_copied: Callable[[int, int], None] = told,
) -> Any:
    return carry_out(CopyOrder(source=source, target=target, secrets=secrets, verify=verify), HUB, on_copied)


async def is_not_there(place: Place) -> bool:
    """Whether a hub would find an empty store, or none."""
    async with held(place, HUB, make=True) as store, store.reading() as there:
        return there is None or (await there.extent()).rows == 0


async def whole(places: Places, place: Place) -> tuple[Snapshot, int, str]:
    async with places.opened(place) as store:
        return await store.snapshot(), (await store.stats()).compacted_revision, store.id


FEW: Kept = [[("a", b"1"), ("b", b"2")], [("a", b"3"), ("c", b"")], [("b", None)], [("d", b"4")]]
MANY: Kept = [[(f"key/{commit}/{number:03}", b"x" * 50) for number in range(500)] for commit in range(6)]


async def test_a_copy_has_the_same_records_revisions_and_deletions_and_another_id(places: Places) -> None:
    source, target = await places.kept(FEW, compacted=1), places.new()
    done: Transferred = await copied(source, target)
    assert (done.copied, done.extent.records, done.extent.deletions, done.extent.revision) == (True, 3, 1, 4)
    assert (done.secrets, done.compared) == (None, None)
    before, after = await whole(places, source), await whole(places, target)
    assert before[:2] == after[:2]
    assert before[2] != after[2]


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
    assert (await copied(source, target, verify=True)).compared.differing == 0
    # What was deleted and compacted leaves an empty store, too.
    gone = await places.kept([[("a", b"1")], [("a", None)]], compacted=2)
    assert (await copied(await places.kept(FEW), gone, verify=True)).compared.differing == 0


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
    assert {each.key: each.how for each in done.compared.named if each.key} == {
        "a": "it is missing in the target",
        "b": "its value",
        "c": "its revision, 2 and 1",
        "d": "it is only in the target",
        "e": "it is deleted in one of them",
        "f": "it is missing in the target",
    }
    assert [each.how for each in done.compared.named if not each.key] == [
        "the revision, 3 and 2",
        "the revision up to which they are compacted, 0 and 1",
    ]
    assert done.compared.differing == 8
    assert await whole(places, target) == before


async def test_many_differences_are_counted_and_the_first_are_named(places: Places) -> None:
    done = await copied(await places.kept(MANY), await places.kept([[("z", b"")]]), verify=True)
    assert done.compared.differing == 3000 + 2
    assert len(done.compared.named) == NAMED
    assert len(done.to_json()["differences"]) == NAMED


async def test_a_store_that_a_hub_has_open_is_neither_read_nor_written(places: Places) -> None:
    live, other = await places.kept(FEW), await places.kept([])
    async with places.opened(live), places.opened(other):
        with pytest.raises(StoreLocked, match=r"in use by .* stop it"):
            await copied(live, places.new())
        with pytest.raises(StoreLocked, match=r"in use by .* stop it"):
            await copied(await places.kept(FEW), other)


async def test_no_hub_opens_a_store_while_it_is_copied(places: Places) -> None:
    source, target = await places.kept(FEW), places.new()
    async with held(source, HUB, make=False), held(target, HUB, make=True):
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
    assert (await copied(source, target, verify=True)).compared.differing == 0


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
    async with held(place, HUB, make=False) as store, store.reading() as there:
        assert there
        async for rows in there.slices():
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
                assert (done.copied, done.compared.differing) == (True, 0), done.compared
            assert (await whole(files, source))[:2] == (await whole(files, back))[:2]

        asyncio.run(there_and_back())

    check()


# Of files alone.


@pytest.fixture
def files(tmp_path: Path) -> Places:
    return Places(tmp_path)


def in_directory(place: Place) -> set[str]:
    assert isinstance(place, FilePlace)
    return {each.name for each in place.path.parent.iterdir()}


def path_of(place: Place) -> Path:
    assert isinstance(place, FilePlace)
    return place.path


async def test_the_file_of_a_copy_is_its_owner_s_and_nothing_is_left_beside_it(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    before = path_of(source).read_bytes()
    await copied(source, target)
    assert in_directory(target) == {"hubbub.db", "hubbub.db.lock"}
    assert path_of(target).stat().st_mode & 0o777 == 0o600
    assert path_of(target).parent.stat().st_mode & 0o777 == 0o700
    assert path_of(source).read_bytes() == before


async def test_what_a_killed_hub_left_in_its_journal_is_copied_and_stays_as_it_was(files: Places) -> None:
    place = await files.kept(FEW)
    killed, target = files.new(), files.new()
    async with files.opened(place) as store:
        await store.commit([Write("newest", b"1")])
        shutil.copytree(path_of(place).parent, path_of(killed).parent)
    before = {each: each.read_bytes() for each in path_of(killed).parent.iterdir() if each.suffix != ".lock"}
    assert any(each.name.endswith("-wal") for each in before)
    await copied(killed, target)
    assert {each: each.read_bytes() for each in before} == before
    assert {entry.key for entry in (await whole(files, target))[0].entries} == {"a", "c", "d", "newest"}


async def test_an_empty_target_whose_hub_was_killed_is_replaced_with_its_journal(files: Places) -> None:
    place, killed = files.new(), files.new()
    async with files.opened(place) as store:
        await store.commit([Write("a", b"1")])
        await store.commit([Write("a", None)])
        await store.compact(2)
        shutil.copytree(path_of(place).parent, path_of(killed).parent)
    assert "hubbub.db-wal" in in_directory(killed)
    await copied(await files.kept(FEW), killed)
    assert {entry.key for entry in (await whole(files, killed))[0].entries} == {"a", "c", "d"}


async def test_a_backup_is_copied_without_being_changed(files: Places, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    async with files.opened(await files.kept(FEW)) as store:
        with await store.copy() as file:
            backup.write_bytes(file.read())
    before = backup.read_bytes()
    done = await copied(FilePlace(backup), files.new(), verify=True)
    assert done.compared.differing == 0
    assert backup.read_bytes() == before


async def test_what_is_no_store_is_named_with_what_to_do(files: Places, tmp_path: Path) -> None:
    target, source = files.new(), await files.kept(FEW)
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    (tmp_path / "torn.db").write_bytes(path_of(source).read_bytes())
    (tmp_path / "torn.db-journal").write_bytes(b"something")
    (tmp_path / "lost.db-wal").write_bytes(b"something")
    with closing(sqlite3.connect(tmp_path / "older.db")) as db:
        db.execute("VACUUM")
    wrong = {
        "": r"is a directory; name the file in it, .*hubbub\.db",
        "empty.db": "it is empty",
        "text.db": "damaged",
        "torn.db": "left in the middle of a change; let a hub open it once",
        "older.db": "written by an older hub; let this one open it once|it is empty",
    }
    for name, says in wrong.items():
        with pytest.raises(StoreError, match=says):
            await copied(FilePlace(tmp_path / name), target)
        with pytest.raises(StoreError, match=says):
            await copied(source, FilePlace(tmp_path / name))
    for name, says in {"link.db": "is a link; name the file itself", "lost.db": "its journal is there"}.items():
        with pytest.raises(StoreError, match=says):
            await copied(source, FilePlace(tmp_path / name))


async def test_a_copy_that_would_fill_the_disk_is_not_begun(files: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await files.kept(FEW), files.new()
    monkeypatch.setattr(copy, "ROOM_BYTES", 1 << 60)
    with pytest.raises(NoRoom, match=r"the copy takes \d+ bytes of .*, and \d+ are free"):
        await copied(source, target)
    assert in_directory(target) == {"hubbub.db.lock"}


@pytest.fixture(scope="module")
def disk() -> Any:
    disk = Disk()
    disk.install()
    yield disk
    disk.uninstall()


@pytest.mark.parametrize("after", [0, 3, 40])
@pytest.mark.parametrize(("fault", "says"), [(FULL, "the disk is full; make room"), (BROKEN_WRITE, "the disk failed")])
async def test_a_disk_that_fails_on_the_way_leaves_no_copy(
    files: Places, disk: Disk, fault: Fault, says: str, after: int
) -> None:
    source, target = await files.kept(MANY), files.new()
    with disk.failing(Fault(fault.operation, fault.code, after=after)), pytest.raises(StoreUnavailable, match=says):
        await copied(source, target)
    assert in_directory(target) == {"hubbub.db.lock"}
    assert (await copied(source, target, verify=True)).compared.differing == 0


# Secrets.

TOKENS = {"github": {"token": "xyzzy"}, "mail": {"env": {"PASSWORD": "plugh"}}}


def with_secrets(place: Place, secrets: dict[str, Any]) -> Path:
    file = path_of(place).with_name("tokens.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(secrets))
    return file


async def test_secrets_go_along_when_that_is_wanted(files: Places) -> None:
    source, without, target = await files.kept(FEW), files.new(), files.new()
    with_secrets(source, TOKENS)
    await copied(source, without)
    assert "tokens.json" not in in_directory(without)
    done = await copied(source, target, secrets=True, verify=True)
    assert (done.secrets, done.compared.differing) == (2, 0)
    file = path_of(target).with_name("tokens.json")
    assert json.loads(file.read_bytes()) == TOKENS
    assert file.stat().st_mode & 0o777 == 0o600


async def test_secrets_of_the_target_are_not_overwritten(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    with_secrets(source, TOKENS)
    file = with_secrets(target, {"other": {}})
    with pytest.raises(TargetNotEmpty, match=r"tokens\.json of the target has secrets already"):
        await copied(source, target, secrets=True)
    assert json.loads(file.read_bytes()) == {"other": {}}
    assert "hubbub.db" not in in_directory(target)


async def test_secrets_that_differ_are_found_and_not_shown(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    with_secrets(source, TOKENS)
    await copied(source, target)
    done = await copied(source, target, secrets=True, verify=True)
    assert [(each.key, each.how) for each in done.compared.named] == [
        ("github", "its secrets"),
        ("mail", "its secrets"),
    ]
    assert "xyzzy" not in json.dumps(done.to_json())


async def test_secrets_need_a_data_directory(files: Places, tmp_path: Path) -> None:
    source = await files.kept(FEW)
    with pytest.raises(ConfigError, match=r"--secrets needs the hubbub\.db of a data directory"):
        await copied(source, FilePlace(tmp_path / "copy.db"), secrets=True)


class Held:
    """A store that a test makes up."""

    name = "made up"

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.given = 0
        self.taken = 0
        self.most = 0

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Reading]:
        yield self

    @asynccontextmanager
    async def filling(self, extent: Extent) -> AsyncGenerator[Filling]:
        assert extent.rows == self.rows or not self.rows
        yield self

    async def extent(self) -> Extent:
        return Extent(revision=1, compacted=0, records=self.rows, deletions=0, size_bytes=0)

    async def slices(self) -> AsyncGenerator[Sequence[Row]]:
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


class Vault:
    """A vault that a test makes up."""

    def __init__(self, kept: dict[str, dict[str, Any]], error: Exception | None = None) -> None:
        self.kept = kept
        self.error = error

    async def all(self) -> dict[str, dict[str, Any]]:
        return dict(self.kept)

    async def put_all(self, kept: dict[str, dict[str, Any]]) -> None:
        if self.error:
            raise self.error
        self.kept = kept


async def test_secrets_that_cannot_be_written_are_said_to_be_missing(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    vaults = Vault(TOKENS), Vault({}, OSError("the disk is full"))
    async with held(source, HUB, make=False) as one, held(target, HUB, make=True) as other:
        with pytest.raises(SecretsLeft, match=r"the records are in .*, but the secrets of servers are not: the disk"):
            await transfer(one, other, verify=False, vaults=vaults, on_copied=told)
    assert len((await whole(files, target))[0].entries) == 3
