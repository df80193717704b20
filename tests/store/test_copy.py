"""A copy of a store that is in use, and what is left of what was deleted."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from hubbubd.store import Compacted, NoRoom, StoreUnavailable, Write
from hubbubd.store.sqlite import backup
from hubbubd.store.sqlite.sqlite_store import SqliteStore

LIMIT_S = 60
MARKER = b"a secret that somebody typed "


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path)
    yield store
    await store.close()


@pytest.fixture
async def large(store: SqliteStore) -> SqliteStore:
    """Takes many steps to copy."""
    for number in range(3):
        await store.commit([Write(f"bulk/{number}/{n}", os.urandom(100_000)) for n in range(100)])
    return store


async def placed(store: SqliteStore, path: Path) -> SqliteStore:
    """A store opened from a copy."""
    with await store.copy() as file:
        path.write_bytes(file.read())
    return await SqliteStore.open(path)


async def appears(path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        while not path.exists():
            await anyio.sleep(0)


def traces(directory: Path) -> int:
    """How often the marker is in the files of a directory."""
    return sum(file.read_bytes().count(MARKER) for file in directory.iterdir())


async def test_a_copy_of_a_store_in_memory_opens_as_a_store(tmp_path: Path) -> None:
    store = await SqliteStore.open(":memory:")
    await store.commit([Write("a", b"1")])
    other = await placed(store, tmp_path / "copy.db")
    assert await other.snapshot() == await store.snapshot()
    await other.close()
    await store.close()


async def test_each_time_that_a_copy_is_put_in_place_it_is_another_store(store: SqliteStore, tmp_path: Path) -> None:
    await store.commit([Write("a", b"1")])
    with await store.copy() as file:
        content = file.read()
    ids = {store.id}
    for number in range(2):
        (tmp_path / f"{number}.db").write_bytes(content)
        for _ in range(2):
            other = await SqliteStore.open(tmp_path / f"{number}.db")
            ids.add(other.id)
            await other.close()
    assert len(ids) == 3


async def test_a_position_that_only_the_original_reached_is_refused_by_a_copy(
    store: SqliteStore, tmp_path: Path
) -> None:
    await store.commit([Write("a", b"1")])
    other = await placed(store, tmp_path / "copy.db")
    await store.commit([Write("a", b"2")])
    with pytest.raises(Compacted):
        await anext(other.watch("", store.revision))
    await other.close()


async def test_commits_go_on_while_a_copy_is_made_and_it_shows_one_moment(large: SqliteStore, tmp_path: Path) -> None:
    begun = large.revision
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                while True:
                    step = b"%d" % large.revision
                    await large.commit([Write("bulk/0/0", step), Write("zzz", step)])

            tasks.start_soon(write)
            with await large.copy() as file:
                (tmp_path / "copy.db").write_bytes(file.read())
            ended = large.revision
            tasks.cancel_scope.cancel()
    assert ended > begun + 5
    after = await large.commit([Write("zzz", b"after")])
    other = await SqliteStore.open(tmp_path / "copy.db")
    found = {entry.key: entry for entry in (await other.snapshot()).entries}
    assert found["bulk/0/0"].value == found["zzz"].value
    assert begun < other.revision < after  # it may have a commit of which the loop had not heard
    assert found["zzz"].revision == other.revision
    await other.close()


async def test_the_file_of_a_copy_is_its_owner_s_and_gone_before_anybody_reads_it(
    large: SqliteStore, path: Path
) -> None:
    making = path.with_name("store.db.copy")
    modes: set[int] = set()
    async with anyio.create_task_group() as tasks:

        async def make() -> None:
            (await large.copy()).close()

        tasks.start_soon(make)
        await appears(making)
        with suppress(FileNotFoundError):
            while True:
                modes.add(stat.S_IMODE(making.stat().st_mode))
                await anyio.sleep(0)
    assert modes == {0o600}


async def test_a_copy_that_nobody_wants_any_more_leaves_nothing_and_the_next_can_be_made(
    large: SqliteStore, path: Path, tmp_path: Path
) -> None:
    before = set(path.parent.iterdir())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(large.copy)
        await appears(path.with_name("store.db.copy"))
        tasks.cancel_scope.cancel()
    assert set(path.parent.iterdir()) == before
    other = await placed(large, tmp_path / "copy.db")
    assert await other.snapshot("bulk/2") == await large.snapshot("bulk/2")
    await other.close()


async def test_a_store_that_closes_does_not_wait_for_a_copy(large: SqliteStore, path: Path) -> None:
    refused: list[StoreUnavailable] = []

    async def make() -> None:
        try:
            (await large.copy()).close()
        except StoreUnavailable as exc:
            refused.append(exc)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make)
        await appears(path.with_name("store.db.copy"))
        await large.close()
    assert len(refused) == 1
    assert {file.name for file in path.parent.iterdir()} == {"store.db", "store.db.lock"}


async def test_what_a_killed_process_left_of_a_copy_is_gone_at_the_next_start(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    for name in ("store.db.copy", "store.db.copy-journal", "store.db.copy-wal"):
        path.with_name(name).write_bytes(MARKER)
    store = await SqliteStore.open(path)
    assert not traces(path.parent)
    await store.close()


async def test_a_copy_that_would_fill_the_disk_is_refused(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(NoRoom, match="are free"):
        await store.copy()
    assert await store.commit([Write("a", b"1")]) == 1


@pytest.mark.parametrize("size", [1, 50, 500])
async def test_of_what_was_deleted_or_overwritten_no_byte_is_left_on_the_disk(
    store: SqliteStore, path: Path, size: int
) -> None:
    for number in range(60):
        await store.commit([Write(f"deleted/{number}", MARKER * size), Write(f"kept/{number}", b"x" * 100 * size)])
        await store.commit([Write(f"overwritten/{number}", MARKER * size)])
    for number in range(60):
        await store.commit([Write(f"deleted/{number}", None), Write(f"overwritten/{number}", b"new")])
    assert traces(path.parent)
    await store.reclaim()
    assert not traces(path.parent)
    assert len((await store.snapshot("kept/")).entries) == 60


async def test_space_that_is_no_longer_used_goes_back_to_the_disk(large: SqliteStore, path: Path) -> None:
    full = path.stat().st_size
    for number in range(3):
        await large.commit([Write(f"bulk/{number}/{n}", None) for n in range(100)])
    assert (await large.stats()).free_bytes > full // 2
    await large.reclaim()
    stats = await large.stats()
    assert (stats.free_bytes, stats.keys, stats.deletions) == (0, 0, 300)
    assert path.stat().st_size == stats.size_bytes < full // 20
    assert path.with_name("store.db-wal").stat().st_size == 0
