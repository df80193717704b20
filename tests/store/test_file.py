"""What only a store in a file can show: restarts, locks, permissions, and an engine that fails."""

import resource
import signal
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbubd.store import KeyValue, Precondition, StoreLocked, StoreTooNew, StoreUnavailable, Write, WriteConflict
from hubbubd.store.sqlite.sqlite_store import SqliteStore

WRITER = """
import asyncio, pathlib, sys
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore

async def main():
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]))
    async def write(writer):
        step = 0
        while True:
            step += 1
            await store.commit([Write(f"key/{writer}", b"%d" % step), Write(f"twin/{writer}", b"%d" % step)])
            print(writer, step, flush=True)
    await asyncio.gather(*(write(writer) for writer in range(5)))

asyncio.run(main())
"""

OPENER = """
import asyncio, pathlib, sys
from hubbubd.store import StoreLocked
from hubbubd.store.sqlite.sqlite_store import SqliteStore

async def main():
    try:
        await SqliteStore.open(pathlib.Path(sys.argv[1]))
    except StoreLocked as refused:
        print(refused)

asyncio.run(main())
"""


@contextmanager
def files_cannot_grow_past(size: int) -> Iterator[None]:
    """The kernel refuses this process any write past a size, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def journal_size(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


async def commit_together(store: SqliteStore, count: int) -> list[int | Exception]:
    outcomes: list[int | Exception] = []

    async def write(number: int) -> None:
        try:
            outcomes.append(await store.commit([Write(f"key/{number}", b"x" * 100)]))
        except (WriteConflict, StoreUnavailable) as exc:
            outcomes.append(exc)

    async with anyio.create_task_group() as writers:
        for number in range(count):
            writers.start_soon(write, number)
    return outcomes


async def test_a_restart_keeps_everything(path: Path):
    store = await SqliteStore.open(path)
    await store.commit([Write("a", b"1"), Write("b", b"2"), Write("c", b"3")])
    await store.commit([Write("b", None)])
    await store.commit([Write("c", None)])
    await store.compact(2)
    id_, stats, snapshot = store.id, await store.stats(), await store.snapshot()
    await store.close()

    store = await SqliteStore.open(path)
    assert (store.id, store.revision) == (id_, 3)
    assert await store.stats() == stats
    assert await store.snapshot() == snapshot
    assert snapshot.entries == (KeyValue("a", b"1", 1),)
    assert snapshot.deleted == (("c", 3),)
    assert await store.commit([Write("a", b"4")], [Precondition("a", 1)]) == 4
    await store.close()


async def test_only_the_owner_can_read_the_files(path: Path):
    store = await SqliteStore.open(path)
    await store.commit([Write("a", b"secret")])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {
        "store.db": 0o600,
        "store.db-wal": 0o600,
        "store.db.lock": 0o600,
    }
    await store.close()


async def test_a_second_open_is_refused_until_the_first_closes(path: Path):
    store = await SqliteStore.open(path)
    with pytest.raises(StoreLocked, match="in use by another hub"):
        await SqliteStore.open(path)
    assert await store.commit([Write("a", b"1")]) == 1
    await store.close()
    await (await SqliteStore.open(path)).close()


@pytest.mark.usefixtures("processes")
async def test_a_second_process_is_refused_and_told_who_has_it(path: Path):
    store = await SqliteStore.open(path)
    with anyio.fail_after(60):
        opener = await anyio.run_process([sys.executable, "-c", OPENER, str(path)])
    assert "in use by another hub" in opener.stdout.decode()
    await store.close()


async def test_another_program_inside_the_file_is_noticed(path: Path):
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            await SqliteStore.open(path)
    await (await SqliteStore.open(path)).close()


@pytest.mark.usefixtures("processes")
async def test_what_was_acknowledged_before_a_kill_is_there_after_it(path: Path):
    acknowledged: dict[int, int] = {}
    with anyio.fail_after(60):
        async with await anyio.open_process([sys.executable, "-c", WRITER, str(path)], stderr=None) as writer:
            assert writer.stdout
            lines = BufferedByteReceiveStream(writer.stdout)
            # What it still said before it died counts as well, up to the end of its output.
            with suppress(anyio.IncompleteRead):
                while True:
                    number, step = map(int, (await lines.receive_until(b"\n", 100)).split())
                    acknowledged[number] = step
                    if sum(acknowledged.values()) == 200:
                        writer.kill()
    assert writer.returncode == -signal.SIGKILL

    store = await SqliteStore.open(path)
    found = {entry.key: int(entry.value) for entry in (await store.snapshot()).entries}
    assert len(acknowledged) == 5
    for number, step in acknowledged.items():
        assert found[f"key/{number}"] >= step
        assert found[f"twin/{number}"] == found[f"key/{number}"]
    assert store.revision == max(entry.revision for entry in (await store.snapshot()).entries)
    await store.close()


async def test_a_store_of_a_newer_hub_is_refused_and_left_as_it_was(path: Path):
    store = await SqliteStore.open(path)
    await store.commit([Write("a", b"1")])
    await store.close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="newer hub"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_database_of_something_else_is_refused_and_left_as_it_was(tmp_path: Path):
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE photos (name)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a hub's store"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path):
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but long enough to have a header" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a database"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_commits_that_run_together_share_the_disk(path: Path):
    store = await SqliteStore.open(path)
    start = journal_size(path)
    for number in range(50):
        await store.commit([Write(f"key/{number}", b"x" * 100)])
    alone = journal_size(path) - start
    assert set(await commit_together(store, 50)) == set(range(51, 101))
    together = journal_size(path) - start - alone
    assert together * 5 < alone
    await store.close()


async def test_a_commit_of_many_records_takes_few_statements(path: Path, monkeypatch: pytest.MonkeyPatch):
    """After each one a thread waits for the interpreter's lock, which a busy event loop holds for milliseconds."""
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_trace_callback(said.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = await SqliteStore.open(path)
    keys = [f"key/{number}" for number in range(500)]
    first = await store.commit([Write(key, b"1") for key in keys], [Precondition(key, 0) for key in keys])
    said.clear()
    changes = [Write(key, b"2" if number % 2 else None) for number, key in enumerate(keys)]
    await store.commit(changes, [Precondition(key, first) for key in keys])
    assert len(said) <= 6  # begin, read, put, delete, number the revision, commit
    said.clear()
    async with anyio.create_task_group() as at_once:
        for number, key in enumerate(keys):
            at_once.start_soon(store.commit, [Write(key, b"3")], [Precondition(key, first + 1 if number % 2 else 0)])
    assert len(said) <= 2 * 6  # the first of them may be on its way before the others
    await store.close()


async def test_a_commit_of_many_records_fits_a_sqlite_that_takes_few_values(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    connect = sqlite3.connect

    def older(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)  # the default before 3.32
        return db

    monkeypatch.setattr(sqlite3, "connect", older)
    store = await SqliteStore.open(path)
    keys = [f"key/{number}" for number in range(1000)]
    first = await store.commit([Write(key, b"1") for key in keys], [Precondition(key, 0) for key in keys])
    await store.commit([Write(key, None) for key in keys], [Precondition(key, first) for key in keys])
    assert len((await store.snapshot()).deleted) == 1000
    await store.close()


async def test_a_compaction_the_disk_refuses_forgets_nothing(path: Path):
    store = await SqliteStore.open(path)
    await store.commit([Write("a", b"")])
    await store.commit([Write("a", None)])
    with files_cannot_grow_past(journal_size(path)), pytest.raises(StoreUnavailable):
        await store.compact(2)
    assert (await store.snapshot()).deleted == (("a", 2),)
    assert (await store.stats()).compacted_revision == 0
    await store.close()
