"""Stores in files, as sources and targets of copies. A target is written aside and renamed when it is whole."""

import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

from anyio import to_thread

from hubbubd.process import files
from hubbubd.store import NoRoom, StoreError, StoreUnavailable, engines
from hubbubd.store.errors import explained
from hubbubd.store.sqlite import backup as copying
from hubbubd.store.sqlite import file
from hubbubd.store.sqlite.backup import Row
from hubbubd.store.sqlite.schema import MIGRATIONS, recognise
from hubbubd.store.transfer.store_transfer import Extent

SLICE_ROWS: Final = 1000
SLICE_BYTES: Final = 4 * 1024 * 1024
"""A slice ends with the record that reaches one of the two."""

_EXTENT = """
SELECT count(value), count(*) - count(value),
  coalesce(sum(length(CAST(key AS BLOB)) + coalesce(length(value), 0)), 0) FROM entries
"""


@asynccontextmanager
async def held_file(path: Path, *, make: bool) -> AsyncGenerator["HeldFile"]:
    """Hold the store in a file for a block; with `make` it need not be there, and its directory is made.

    Raises StoreLocked when a hub has it open, and StoreError.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a directory; name the file in it, {path / engines.FILE}")
    with explained(str(path)):
        if make:
            if path.is_symlink():  # a rename would replace the link, and not the file
                raise StoreError(f"{path} is a link; name the file itself")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.require_no_journal(path)
        elif not path.exists():
            raise StoreError(f"there is no store {path}")
        lock = file.claim(path)
    try:
        yield HeldFile(path)
    finally:
        os.close(lock)


class HeldFile:
    """A store in a file that this process has claimed; implements `transfer.Held`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

    async def exists(self) -> bool:
        """Return whether there is a store."""
        return self._path.exists()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator["_SqliteReader | None"]:
        """Open the file for reading, which changes nothing; None if there is none.

        Raises StoreTooNew, StoreDamaged and StoreUnavailable.
        """
        if not self._path.exists():
            yield None
            return
        with explained(self.name), file.reading(self._path) as db:
            await to_thread.run_sync(file.check, db, self._path, MIGRATIONS)
            if recognise(db, self.name, MIGRATIONS) < len(MIGRATIONS):
                raise StoreUnavailable(f"the store {self.name} was written by an older hub; let this one open it once")
            yield _SqliteReader(db, self.name)

    @asynccontextmanager
    async def filling(self, extent: Extent) -> AsyncGenerator["_SqliteWriter"]:
        """Fill a new file beside, and put it in place. Raises NoRoom and StoreUnavailable."""
        draft = copying.place(self._path)
        try:
            with explained(self.name):
                self._require_room(extent)
                with copying.drafted(draft) as db:
                    yield _SqliteWriter(db, self.name)
                    db.execute("UPDATE meta SET revision = ?, compacted = ?", (extent.revision, extent.compacted))
                await to_thread.run_sync(self._put_in_place, draft)
        finally:
            copying.remove(draft)

    def _require_room(self, extent: Extent) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if free < extent.size_bytes + copying.ROOM_BYTES:
            raise NoRoom(f"the copy takes {extent.size_bytes} bytes of {self._path.parent}, and {free} are free")

    def _put_in_place(self, draft: Path) -> None:
        descriptor = os.open(draft, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if self._path.exists():
            # The journal of the empty store that was here would not fit the new one. Closing removes it.
            with file.connected(self.name) as empty:
                empty.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        draft.replace(self._path)
        files.sync_directory(self._path.parent)


class _SqliteReader:
    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._name = name

    async def extent(self) -> Extent:
        with explained(self._name):
            revision, compacted = self._db.execute("SELECT revision, compacted FROM meta").fetchone()
            counts = await to_thread.run_sync(lambda: self._db.execute(_EXTENT).fetchone())
        records, deletions, size = counts
        return Extent(revision=revision, compacted=compacted, records=records, deletions=deletions, size_bytes=size)

    async def slices(self) -> AsyncGenerator[Sequence[Row]]:
        with explained(self._name), closing(self._db.cursor()) as cursor:
            cursor.execute("SELECT key, revision, value FROM entries ORDER BY key")
            while rows := await to_thread.run_sync(_slice, cursor):
                yield rows


def _slice(cursor: sqlite3.Cursor) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[2] or b"")
        if len(rows) == SLICE_ROWS or size >= SLICE_BYTES:
            break
    return rows


class _SqliteWriter:
    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._name = name

    async def add(self, rows: Sequence[Row]) -> None:
        with explained(self._name):
            await to_thread.run_sync(copying.add, self._db, rows)
