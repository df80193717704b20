"""Stores in files, as sources and targets of copies. A target is written aside and renamed when it is whole."""

import os
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

from anyio import to_thread

from hubbub_shared.platform.files import sync
from hubbubd.process import files
from hubbubd.store import StoreError, StoreUnavailable, engines
from hubbubd.store.errors import explain_errors
from hubbubd.store.sqlite import backup as copying
from hubbubd.store.sqlite import file
from hubbubd.store.sqlite.backup import Row
from hubbubd.store.sqlite.schema import MIGRATIONS, read_version
from hubbubd.store.transfer.store_transfer import Extent

SLICE_ROWS: Final = 1000
SLICE_BYTES: Final = 4 * 1024 * 1024
"""A slice ends with the row that reaches one of these two limits."""

_EXTENT = """
SELECT count(value), count(*) - count(value),
  coalesce(sum(length(CAST(key AS BLOB)) + coalesce(length(value), 0)), 0) FROM entries
"""


@asynccontextmanager
async def lock_file(path: Path, *, may_create: bool) -> AsyncGenerator["LockedFile"]:
    """Lock the store in a file for a block, and yield it.

    With `may_create` the file may be missing, and its directory is created. Raises StoreLocked when a hub has the store
    open, StoreUnavailable, and StoreError for a missing file, a directory or, with `may_create`, a link.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a directory; name the file in it, {path / engines.FILE}")
    with explain_errors(str(path)):
        if may_create:
            if path.is_symlink():  # a rename would replace the link, and not the file
                raise StoreError(f"{path} is a link; name the file itself")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.require_no_journal(path)
        elif not path.exists():
            raise StoreError(f"there is no store {path}")
        lock = file.lock_store(path)
    try:
        yield LockedFile(path)
    finally:
        os.close(lock)


class LockedFile:
    """A store in a file that this process has locked; implements `store_transfer.LockedStore`."""

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
    async def open_reader(self) -> AsyncGenerator["_SqliteReader | None"]:
        """Open the store's file for reading, without changing it; yield None if there is no file.

        Raises StoreTooNew, StoreDamaged and StoreUnavailable.
        """
        if not self._path.exists():
            yield None
            return
        with explain_errors(self.name), file.open_readonly(self._path) as db:
            await to_thread.run_sync(file.check_sound, db, self._path, MIGRATIONS)
            if read_version(db, self.name, MIGRATIONS) < len(MIGRATIONS):
                raise StoreUnavailable(f"the store {self.name} was written by an older hub; let this one open it once")
            yield _SqliteReader(db, self.name)

    @asynccontextmanager
    async def open_writer(self, extent: Extent) -> AsyncGenerator["_SqliteWriter"]:
        """Open a new file for writing, which replaces the store's file after the block, durably.

        If the block fails, the store's file stays as it was. Raises NoRoom and StoreUnavailable.
        """
        draft = copying.copy_path(self._path)
        try:
            with explain_errors(self.name):
                copying.require_free_space(self._path, extent.size_bytes)
                with copying.open_draft(draft) as db:
                    yield _SqliteWriter(db, self.name)
                    db.execute("UPDATE meta SET revision = ?, compacted = ?", (extent.revision, extent.compacted))
                await to_thread.run_sync(self._put_in_place, draft)
        finally:
            copying.remove_copy(draft)

    def _put_in_place(self, draft: Path) -> None:
        """Sync a finished draft, and rename it to the store's file."""
        descriptor = os.open(draft, os.O_RDWR)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        if self._path.exists():
            # The journal of the empty store that was here would not fit the new one. Closing removes it.
            with file.open_connection(self.name) as empty:
                empty.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        draft.replace(self._path)
        files.sync_directory(self._path.parent)


class _SqliteReader:
    """A `SourceReader` of a store in a file."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._name = name

    async def measure(self) -> Extent:
        """Return the revisions, counts and size of the store. Raises StoreUnavailable."""
        with explain_errors(self._name):
            revision, compacted = self._db.execute("SELECT revision, compacted FROM meta").fetchone()
            counts = await to_thread.run_sync(lambda: self._db.execute(_EXTENT).fetchone())
        records, deletions, size = counts
        return Extent(revision=revision, compacted=compacted, records=records, deletions=deletions, size_bytes=size)

    async def read_slices(self) -> AsyncGenerator[Sequence[Row]]:
        """Yield all records and tombstones by key, at most SLICE_ROWS and about SLICE_BYTES at a time."""
        with explain_errors(self._name), closing(self._db.cursor()) as cursor:
            cursor.execute("SELECT key, revision, value FROM entries ORDER BY key")
            while rows := await to_thread.run_sync(_fetch_slice, cursor):
                yield rows


def _fetch_slice(cursor: sqlite3.Cursor) -> list[Row]:
    """Return the next rows of a query, bounded in number and size."""
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[2] or b"")
        if len(rows) == SLICE_ROWS or size >= SLICE_BYTES:
            break
    return rows


class _SqliteWriter:
    """A `TargetWriter` of a store in a file."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._name = name

    async def add(self, rows: Sequence[Row]) -> None:
        """Insert rows into the new file. Raises StoreUnavailable."""
        with explain_errors(self._name):
            await to_thread.run_sync(copying.add_rows, self._db, rows)
