"""What is at the store's path when the hub starts: taken up, brought up to date, or refused and left as it was."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hubbubd.process import files as own_files
from hubbubd.store import StoreDamaged, StoreTooNew, StoreUnavailable, Write
from hubbubd.store.sqlite.schema import MIGRATIONS
from hubbubd.store.sqlite.sqlite_store import SqliteStore


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store of some size that was closed, whose process was killed: see `left_by_a_kill`."""
    path = tmp_path / "hub" / "store.db"
    store = await SqliteStore.open(path)
    await store.commit([Write(f"key/{number:04}", b"x" * 500) for number in range(500)])
    await store.close()
    return path


async def test_the_name_of_a_new_store_is_on_the_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    path = tmp_path / "store.db"
    monkeypatch.setattr(own_files, "sync_directory", lambda directory: synced.append((directory, path.exists())))
    store = await SqliteStore.open(path)
    assert synced == [(tmp_path, True)]
    await store.close()


async def left_by_a_kill(path: Path, directory: Path) -> Path:
    """The store as a killed process left it, with a journal that holds one more key."""
    store = await SqliteStore.open(path)
    await store.commit([Write("newest", b"")])
    shutil.copytree(path.parent, directory)
    await store.close()
    return directory / path.name


def files(path: Path) -> dict[str, bytes]:
    """All there is in a store's directory but the lock."""
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if each.suffix != ".lock"}


async def keys(path: Path) -> set[str]:
    store = await SqliteStore.open(path)
    found = {entry.key for entry in (await store.snapshot()).entries}
    await store.close()
    return found


def overwrite(at: int, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * length)

    return damage


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(overwrite(0, 100), "not a database", id="header"),
        pytest.param(overwrite(4096 * 20, 4096 * 20), "Page|malformed", id="page"),
        pytest.param(cut(4096 * 20), "Page|malformed|invalid page", id="cut off"),
        pytest.param(cut(2000), "not a database|malformed", id="cut off in its first page"),
        pytest.param(cut(0), "it is empty", id="emptied"),
    ],
)
async def test_a_damaged_file_is_refused_by_name_with_what_to_do_and_left_as_it_was(
    path: Path, tmp_path: Path, killed: bool, damage: Callable[[Path], None], says: str
):
    if killed:
        path = await left_by_a_kill(path, tmp_path / "killed")
    damage(path)
    before = files(path)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=says) as refused:
            await SqliteStore.open(path)
        assert str(path) in str(refused.value)
        assert "put back a copy" in str(refused.value)
    assert files(path) == before


async def test_a_newer_store_whose_hub_was_killed_is_left_as_it_was_with_its_journal(path: Path, tmp_path: Path):
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("PRAGMA locking_mode = EXCLUSIVE")
        newer.execute("PRAGMA user_version = 99")
        shutil.copytree(path.parent, tmp_path / "killed")
    killed = tmp_path / "killed" / path.name
    assert len(files(killed)) == 2
    before = files(killed)
    with pytest.raises(StoreTooNew, match="newer hub"):
        await SqliteStore.open(killed)
    assert files(killed) == before


async def test_what_a_killed_hub_left_is_taken_up_with_its_journal(path: Path, tmp_path: Path):
    killed = await left_by_a_kill(path, tmp_path / "killed")
    assert "store.db-wal" in files(killed)
    assert len(await keys(killed)) == 501


async def test_a_journal_without_its_store_is_not_begun_anew_on(path: Path, tmp_path: Path):
    killed = await left_by_a_kill(path, tmp_path / "killed")
    killed.unlink()
    before = files(killed)
    with pytest.raises(StoreUnavailable, match="is missing, but its journal is there"):
        await SqliteStore.open(killed)
    assert files(killed) == before


async def test_a_copy_that_is_put_beside_the_journal_of_another_store_is_not_mixed_with_it(path: Path, tmp_path: Path):
    killed = await left_by_a_kill(path, tmp_path / "killed")
    other = await SqliteStore.open(tmp_path / "other.db")
    await other.commit([Write("other", b"")])
    await other.close()
    shutil.copyfile(tmp_path / "other.db", killed)
    before = files(killed)
    with pytest.raises(StoreUnavailable, match=r"store\.db-wal is not that of store\.db; move it away"):
        await SqliteStore.open(killed)
    assert files(killed) == before
    killed.with_name("store.db-wal").unlink()
    assert await keys(killed) == {"other"}


async def test_a_file_that_its_owner_may_not_write_is_refused_and_stays_so(path: Path):
    path.chmod(0o400)
    before = files(path)
    with pytest.raises(StoreUnavailable, match="make the file, its directory and their file system writable"):
        await SqliteStore.open(path)
    assert files(path) == before
    assert path.stat().st_mode & 0o777 == 0o400


async def test_what_others_could_read_is_closed_to_them(path: Path):
    path.chmod(0o644)
    await keys(path)
    assert path.stat().st_mode & 0o777 == 0o600


@contextmanager
def mounted(directory: Path, options: str) -> Iterator[None]:
    """A file system in memory; the test is left out where this process may not mount one."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here; the faults are injected elsewhere too")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.usefixtures("processes")
async def test_a_store_on_a_file_system_for_reading_only_is_refused(path: Path, tmp_path: Path):
    with mounted(tmp_path / "sealed", "size=4m"):
        sealed = Path(shutil.copy(path, tmp_path / "sealed"))
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "sealed")], check=True)
        with pytest.raises(StoreUnavailable, match="make the file, its directory and their file system writable"):
            await SqliteStore.open(sealed)


@pytest.mark.usefixtures("processes")
async def test_a_disk_that_fills_up_refuses_commits_until_there_is_room(tmp_path: Path):
    with mounted(tmp_path / "small", "size=3m"):
        ballast = tmp_path / "small" / "ballast"
        ballast.write_bytes(b"x" * 2_000_000)
        store = await SqliteStore.open(tmp_path / "small" / "store.db")
        taken = 0

        async def fill() -> None:
            nonlocal taken
            while True:
                await store.commit([Write(f"key/{taken}", b"x" * 50_000)])
                taken += 1

        with pytest.raises(StoreUnavailable, match="the disk is full; make room"):
            await fill()
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.probe()
        assert len((await store.snapshot()).entries) == taken
        ballast.unlink()
        await store.probe()
        await store.commit([Write(f"key/{taken}", b"x" * 50_000)])
        await store.close()
        assert len(await keys(tmp_path / "small" / "store.db")) == taken + 1


@pytest.mark.usefixtures("processes")
async def test_a_store_on_a_full_disk_opens_and_can_be_read(path: Path, tmp_path: Path):
    with mounted(tmp_path / "full", "size=2m"):
        full = Path(shutil.copy(path, tmp_path / "full"))
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "full" / "ballast").write_bytes(b"x" * 4_000_000)
        store = await SqliteStore.open(full)
        assert len((await store.snapshot()).entries) == 500
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.commit([Write("new", b"x" * 10_000)])
        await store.close()


def add_notes(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE notes (text TEXT NOT NULL)")
    db.execute("INSERT INTO notes SELECT key FROM entries")


def fail(db: sqlite3.Connection) -> None:
    db.execute("DROP TABLE notes")
    raise ValueError("this step has a bug")


def notes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT count(*) FROM notes").fetchone()[0]


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_an_older_store_is_brought_up_to_date_and_keeps_what_it_holds(path: Path, tmp_path: Path, killed: bool):
    if killed:
        path = await left_by_a_kill(path, tmp_path / "killed")
    store = await SqliteStore.open(path, [*MIGRATIONS, add_notes])
    revision, held = store.revision, len((await store.snapshot()).entries)
    assert (revision, held) == ((2, 501) if killed else (1, 500))
    assert await store.commit([Write("new", b"")]) == revision + 1
    await store.close()
    assert notes(path) == held
    with pytest.raises(StoreTooNew):
        await SqliteStore.open(path)


@pytest.mark.parametrize("steps", [(add_notes, fail), (fail,)])
async def test_a_step_to_a_newer_schema_that_fails_leaves_the_file_as_it_was(
    path: Path, steps: tuple[Callable[[sqlite3.Connection], None], ...]
):
    before = files(path)
    with pytest.raises(StoreUnavailable, match=r"cannot be brought from schema 1 to \d; it is as it was"):
        await SqliteStore.open(path, [*MIGRATIONS, *steps])
    assert files(path) == before
    assert len(await keys(path)) == 500
