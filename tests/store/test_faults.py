"""The store on a disk that fails: what is refused never happened, what is acknowledged stays."""

import resource
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from hubbubd.store import Commit, Precondition, StoreDamaged, StoreUnavailable, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .faulty import BROKEN_READ, BROKEN_SYNC, BROKEN_WRITE, FULL, JOURNAL, MAIN, SHORT, SYNC, WRITE, Disk, Fault

ADVICE = {"FULL": "the disk is full; make room", "IOERR": "the disk failed; look into the system's log"}
FAULTS = {
    "full": (FULL, "FULL"),
    "short write": (SHORT, "FULL"),
    "write": (BROKEN_WRITE, "IOERR"),
    "sync": (BROKEN_SYNC, "IOERR"),
}
SYNC_ONCE = replace(BROKEN_SYNC, times=1)


@pytest.fixture(scope="module")
def installed() -> Iterator[Disk]:
    disk = Disk()
    disk.install()
    yield disk
    disk.uninstall()


@pytest.fixture
def disk(installed: Disk) -> Disk:
    installed.done.clear()
    return installed


@pytest.fixture
async def store(disk: Disk, path: Path) -> AsyncIterator[SqliteStore]:
    """A store on the disk, which holds `kept`."""
    store = await SqliteStore.open(path)
    await store.commit([Write("kept", b"1")])
    yield store
    await store.close()


async def after_a_kill(path: Path, directory: Path) -> dict[str, bytes]:
    """What the next process would find if this one died now."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(path.parent, directory)
    return await contents(directory / path.name)


async def contents(path: Path) -> dict[str, bytes]:
    store = await SqliteStore.open(path)
    found = {entry.key: entry.value for entry in (await store.snapshot()).entries}
    await store.close()
    return found


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_commit_that_the_disk_refuses_never_happened_and_says_what_to_do(
    disk: Disk, store: SqliteStore, path: Path, tmp_path: Path, fault: str
):
    commits: list[Commit] = []
    store.listen(commits.append)
    failing, kind = FAULTS[fault]
    with disk.failing(failing):
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=ADVICE[kind]) as refused:
                await store.commit([Write("kept", b"2"), Write("refused", b"x" * 20_000)], [Precondition("kept", 1)])
            assert str(path) in str(refused.value)
            assert (await store.snapshot()).entries[0].value == b"1"
            with pytest.raises(StoreUnavailable):
                await store.probe()
    assert (store.revision, commits) == (1, [])
    await store.probe()
    assert await store.commit([Write("kept", b"3")], [Precondition("kept", 1)]) == 2
    assert await after_a_kill(path, tmp_path / "killed") == {"kept": b"3"}


@pytest.mark.parametrize("fault", [SYNC_ONCE, BROKEN_SYNC], ids=["once", "always"])
async def test_a_commit_that_was_refused_for_its_sync_is_not_there_after_a_kill(
    disk: Disk, store: SqliteStore, path: Path, tmp_path: Path, fault: Fault
):
    with disk.failing(fault):
        with pytest.raises(StoreUnavailable):
            await store.commit([Write("refused", b"x" * 20_000)])
        assert await after_a_kill(path, tmp_path / "killed") == {"kept": b"1"}


async def test_wherever_the_disk_fails_in_a_commit_it_is_there_as_a_whole_or_refused_as_a_whole(
    disk: Disk, store: SqliteStore, path: Path, tmp_path: Path
):
    """Each step of a commit fails once: those of the journal, and those of the file that it is folded into."""
    expected = {"kept": b"1"}
    refusals = 0
    # The first of them folds a journal of more than 1000 pages into the file.
    with disk.failing(Fault(SYNC, kind=MAIN)):
        await store.commit([Write("large", b"x" * 5_000_000)])
    expected["large"] = b"x" * 5_000_000
    for step in range(40):
        key, value = f"key/{step}", b"%d" % step * 10_000
        with disk.failing(Fault("", sqlite3.SQLITE_IOERR, after=step, half=True, times=1)):
            try:
                await store.commit([Write(key, value), Write("last", key.encode())])
            except StoreUnavailable:
                refusals += 1
            else:
                expected |= {key: value, "last": key.encode()}
        if step % 4 == 0:
            assert await after_a_kill(path, tmp_path / "killed") == expected
    assert 0 < refusals < 40
    assert {e.key: e.value for e in (await store.snapshot()).entries} == expected


async def test_a_file_into_which_the_journal_cannot_be_folded_loses_no_commit(
    disk: Disk, store: SqliteStore, path: Path, tmp_path: Path
):
    expected = {"kept": b"1"}
    with disk.failing(replace(BROKEN_WRITE, kind=MAIN), replace(BROKEN_SYNC, kind=MAIN)):
        for number in range(3):
            expected[f"key/{number}"] = b"x" * 4_200_000
            await store.commit([Write(f"key/{number}", b"x" * 4_200_000)])
        assert await after_a_kill(path, tmp_path / "killed") == expected
        await store.close()
    assert await contents(path) == expected


async def test_after_a_failed_sync_nothing_is_acknowledged_that_was_not_written_again(disk: Disk, store: SqliteStore):
    disk.done.clear()
    with disk.failing(SYNC_ONCE):
        with pytest.raises(StoreUnavailable):
            await store.commit([Write("key", b"1")])
        await store.commit([Write("key", b"1")])
    syncs = [at for at, done in enumerate(disk.done) if done == (SYNC, JOURNAL)]
    assert len(syncs) >= 2
    assert all((WRITE, JOURNAL) in disk.done[before:after] for before, after in pairwise(syncs))


async def test_a_disk_that_syncs_slowly_keeps_the_order_and_leaves_the_loop_free(disk: Disk, store: SqliteStore):
    acknowledged: list[int] = []
    turns = 0

    async def write(number: int) -> None:
        acknowledged.append(await store.commit([Write("key", b"%d" % number)]))

    async def turn() -> None:
        nonlocal turns
        while len(acknowledged) < 5:
            await anyio.sleep(0.01)
            turns += 1

    with disk.failing(Fault(SYNC, delay_s=0.5, kind=JOURNAL)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            for number in range(5):
                tasks.start_soon(write, number)
    assert acknowledged == [2, 3, 4, 5, 6]
    # One sync for all five, or one for the first and one for the others; blocked, the loop would turn once for each.
    assert turns >= 10


async def test_closing_waits_for_a_slow_sync_and_keeps_what_it_was_for(disk: Disk, store: SqliteStore, path: Path):
    with disk.failing(Fault(SYNC, delay_s=0.2)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.commit, [Write("late", b"")])
            await anyio.sleep(0.05)
            await store.close()
    assert set(await contents(path)) == {"kept", "late"}


async def test_a_read_that_fails_is_an_error_and_the_next_one_works(disk: Disk, store: SqliteStore, path: Path):
    await store.commit([Write("large", b"x" * 5_000_000)])
    await store.close()
    again = await SqliteStore.open(path)
    with disk.failing(BROKEN_READ), pytest.raises(StoreUnavailable, match=ADVICE["IOERR"]):
        await again.snapshot()
    assert len((await again.snapshot()).entries) == 2
    await again.commit([Write("kept", b"2")])
    await again.close()


async def test_a_damaged_page_that_is_met_at_work_ends_all_writing_and_not_the_reading(
    disk: Disk, store: SqliteStore, path: Path
):
    await store.commit([Write(f"key/{number:04}", b"x" * 500) for number in range(2000)])
    await store.close()
    store = await SqliteStore.open(path)
    with path.open("r+b") as file:
        file.seek(4096 * 200)
        file.write(b"\xa5" * 4096 * 10)
    with pytest.raises(StoreDamaged, match=r"is damaged .*put back a copy"):
        await store.snapshot()
    assert (await store.snapshot("kept")).entries
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="put back a copy"):
            await store.commit([Write("kept", b"2")])
        with pytest.raises(StoreDamaged):
            await store.probe()
    assert (await store.snapshot("kept")).entries[0].value == b"1"
    await store.close()


async def test_wherever_the_disk_fails_as_a_store_is_made_none_is_left_and_the_next_start_makes_it(
    disk: Disk, path: Path
):
    for step in range(100):
        with disk.failing(Fault("", sqlite3.SQLITE_FULL, after=step, half=True, times=1)):
            try:
                store = await SqliteStore.open(path)
            except StoreUnavailable:
                assert [file.name for file in path.parent.iterdir()] == ["store.db.lock"]
                continue
            await store.close()
            spared = disk.faults[0].times == 1
        assert await contents(path) == {}
        path.unlink()
        if spared:
            break
    assert 5 < step < 99


async def test_a_start_that_has_nothing_to_bring_up_to_date_writes_nothing(disk: Disk, store: SqliteStore, path: Path):
    await store.close()
    before = path.read_bytes(), path.stat().st_mtime_ns
    disk.done.clear()
    again = await SqliteStore.open(path)
    await again.snapshot()
    await again.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert not [done for done in disk.done if done[0] in (WRITE, SYNC)]


async def test_a_disk_that_is_full_but_for_a_little_is_not_well_though_small_commits_succeed(
    store: SqliteStore, path: Path
):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        await store.commit([Write("small", b"")])
        with pytest.raises(StoreUnavailable):
            await store.commit([Write("large", b"x" * 600_000)])
        await store.commit([Write("small", b"1")])
        with pytest.raises(StoreUnavailable):
            await store.probe()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.probe()
