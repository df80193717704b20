"""What an interrupted checkpoint leaves behind: some pages of the journal in the file, the journal still whole.

SQLite writes the newest copy of each page of the journal into the file, in the order of their numbers, and cuts the
file at the end; the journal is emptied only after that (https://sqlite.org/wal.html). So whenever a kill, a power loss
or a full disk ends it, all that was committed is in the two files together, though the file alone may make no sense.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hubbubd.store import StoreDamaged, Write
from hubbubd.store.sqlite.file import check_file
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .faulty import FULL, MAIN, SHORT, WRITE, Disk, Fault

HEADER, FRAME_HEADER = 32, 24
"""Sizes in a journal (https://sqlite.org/fileformat2.html#the_write_ahead_log): its header, and that of each frame."""


def newest_pages(journal: bytes) -> tuple[int, dict[int, bytes], int]:
    """The size of a page, the pages that a checkpoint writes, in its order, and how many the file has then."""
    size = int.from_bytes(journal[8:12])
    salt = journal[16:24]
    pages: dict[int, bytes] = {}
    committed: dict[int, bytes] = {}
    count = 0
    for at in range(HEADER, len(journal) - FRAME_HEADER - size + 1, FRAME_HEADER + size):
        if journal[at + 8 : at + 16] != salt:
            break
        pages[int.from_bytes(journal[at : at + 4])] = journal[at + FRAME_HEADER : at + FRAME_HEADER + size]
        if ends := int.from_bytes(journal[at + 4 : at + 8]):
            committed, count = dict(pages), ends
    return size, dict(sorted(committed.items())), count


def written(file: bytearray, at: int, data: bytes) -> None:
    """As a write at an offset does, with zeros in a gap."""
    file.extend(bytes(max(at + len(data) - len(file), 0)))
    file[at : at + len(data)] = data


def states(file: bytes, journal: bytes) -> list[bytes]:
    """The file after each step of a checkpoint: each page whole, and a part of it."""
    size, pages, count = newest_pages(journal)
    now = bytearray(file)
    found = [bytes(now)]
    for page, content in pages.items():
        for part in (1, size // 2 + 3, size):
            written(now, (page - 1) * size, content[:part])
            found.append(bytes(now))
    if len(now) > count * size:
        found.append(bytes(now[: count * size]))
    return found


def grow(db: sqlite3.Connection) -> None:
    for number in range(12):
        db.execute("INSERT INTO entries VALUES (?, ?, ?)", (f"new/{number}", 3 + number, b"n" * 3000))
        db.execute("UPDATE meta SET revision = ?", (3 + number,))
    db.execute("UPDATE entries SET value = ? WHERE key LIKE 'old/%3'", (b"changed",))


def shrink(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM entries WHERE key >= 'old/05'")
    db.executescript("PRAGMA incremental_vacuum(100)")


def contents(path: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT key, value FROM entries WHERE value IS NOT NULL"))


async def opened(path: Path) -> dict[str, bytes]:
    store = await SqliteStore.open(path)
    found = {entry.key: entry.value for entry in (await store.snapshot()).entries}
    await store.close()
    return found


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "hub" / "store.db"
    store = await SqliteStore.open(path)
    await store.commit([Write(f"old/{number:02}", b"o" * 900) for number in range(20)])
    await store.close()
    return path


def changed(path: Path, change: Callable[[sqlite3.Connection], None]) -> tuple[bytes, bytes]:
    """The file and its journal after a change that no checkpoint followed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        change(db)
        return path.read_bytes(), Path(f"{path}-wal").read_bytes()


@pytest.mark.parametrize("change", [grow, shrink])
async def test_wherever_a_checkpoint_was_interrupted_the_store_opens_with_all_that_was_committed(
    path: Path, tmp_path: Path, change: Callable[[sqlite3.Connection], None]
):
    file, journal = changed(path, change)
    expected = contents(path)
    found = states(file, journal)
    assert len(found) > 15
    for number, state in enumerate(found):
        left = tmp_path / f"left{number}" / path.name
        left.parent.mkdir()
        left.write_bytes(state)
        Path(f"{left}-wal").write_bytes(journal)
        check_file(left)
        assert left.read_bytes() == state
        assert await opened(left) == expected, f"state {number} of {len(found)}"
        shutil.rmtree(left.parent)


async def test_a_commit_that_did_not_get_whole_into_the_journal_is_all_that_is_lost(path: Path, tmp_path: Path):
    file, journal = changed(path, grow)
    last = len(journal) - FRAME_HEADER - newest_pages(journal)[0]
    for end in (last, last + 7, last + 1000, len(journal) - 1):
        left = tmp_path / f"left{end}" / path.name
        left.parent.mkdir()
        left.write_bytes(file)
        Path(f"{left}-wal").write_bytes(journal[:end])
        found = await opened(left)
        assert set(found) >= {f"new/{number}" for number in range(12)}, end


@pytest.mark.parametrize("kind", [FULL, SHORT], ids=["refused", "half written"])
async def test_a_store_that_is_closed_on_a_full_disk_starts_again_once_there_is_room(tmp_path: Path, kind: Fault):
    disk = Disk()
    disk.install()
    try:
        for after in range(0, 30, 3):
            path = tmp_path / f"{after}" / "store.db"
            store = await SqliteStore.open(path)
            for number in range(30):
                await store.commit([Write(f"key/{number}", b"x" * 5000)])
            with disk.failing(Fault(WRITE, kind.code, half=kind.half, kind=MAIN, after=after)):
                await store.close()
            assert set(await opened(path)) == {f"key/{number}" for number in range(30)}
    finally:
        disk.uninstall()


async def test_a_file_that_makes_no_sense_with_its_journal_either_is_damaged_and_left_as_it_was(
    path: Path, tmp_path: Path
):
    file, journal = changed(path, grow)
    size, pages, _count = newest_pages(journal)
    only_in_file = next(page for page in range(2, len(file) // size) if page not in pages)
    state = bytearray(states(file, journal)[-1])
    written(state, (only_in_file - 1) * size, b"\xa5" * size)
    left = tmp_path / "left" / path.name
    left.parent.mkdir()
    left.write_bytes(state)
    Path(f"{left}-wal").write_bytes(journal)
    with pytest.raises(StoreDamaged, match="put back a copy"):
        await SqliteStore.open(left)
    assert left.read_bytes() == bytes(state)
    assert Path(f"{left}-wal").read_bytes() == journal
