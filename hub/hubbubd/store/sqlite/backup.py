"""Online backup: copy a database while it is in use (SQLite backup API). Called by `Engine.copy`."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from hubbubd.store import NoRoom, Snapshot, StoreUnavailable
from hubbubd.store.sqlite.schema import MIGRATIONS, migrate

PAGES_PER_STEP = 256
"""Pages copied per step (1 MiB); a commit waits for one step at most."""

PAUSE_S = 0.002
"""Seconds between steps, in which waiting commits get the connection."""

LOCK_RETRY_S = 0.005
"""Seconds to wait when the connection is in the middle of a commit."""


MIN_FREE_BYTES = 64 * 1024 * 1024
"""What must stay free on the disk beside the copy, as the store may grow meanwhile."""


Row = tuple[str, int, bytes | None]
"""Key, revision and value of a record; without a value it is a tombstone."""


class CopyAbandoned(Exception):
    """The caller no longer needs the copy."""


def require_capacity(source: sqlite3.Connection, path: Path) -> None:
    """Raise NoRoom if a copy of the database at `path` would leave less than MIN_FREE_BYTES of the disk."""
    needed: int = source.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    require_free_space(path, needed)


def require_free_space(path: Path, needed: int) -> None:
    """Raise NoRoom if a file of `needed` bytes at `path` would leave less than MIN_FREE_BYTES of the disk."""
    free = shutil.disk_usage(path.parent).free
    if free < needed + MIN_FREE_BYTES:
        raise NoRoom(f"a copy takes {needed} bytes of {path.parent} for a while, and {free} are free")


def copy_database(
    source: sqlite3.Connection,
    path: Path,
    finish: Callable[[sqlite3.Connection], None],
    is_abandoned: Callable[[], bool],
) -> BinaryIO:
    """Return a copy of the database as of the end of the copying, as an open file with mode 0600 and no name.

    `finish` may change the copy at the end. `is_abandoned` returns whether the caller no longer needs it. Another
    thread may commit over the same connection meanwhile; SQLite applies those changes to the copy as well
    (https://sqlite.org/c3ref/backup_finish.html), so copying never restarts. `path` is the working file; what a killed
    process left there is removed. Raises CopyAbandoned, sqlite3.Error and OSError.
    """

    def pause(_status: int, _remaining: int, _total: int) -> None:
        """Let commits have the connection for PAUSE_S after a step. Raises CopyAbandoned."""
        if is_abandoned():
            raise CopyAbandoned
        time.sleep(PAUSE_S)

    remove_copy(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            copy.execute("PRAGMA locking_mode = EXCLUSIVE")
            copy.execute("PRAGMA synchronous = OFF")  # only this process reads the copy: it need not survive a crash
            source.backup(copy, pages=PAGES_PER_STEP, progress=pause, sleep=LOCK_RETRY_S)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without the journal that the source has
            finish(copy)
        return path.open("rb")
    finally:
        remove_copy(path)


def write_copy(path: Path, snapshot: Snapshot, compacted: int) -> BinaryIO:
    """Write another engine's snapshot as an SQLite database; return its open file, with mode 0600 and no name.

    The database has no id: it gets one where it is opened. `compacted` is the revision up to which the snapshot has no
    tombstones; `path` is the working file. Raises NoRoom, sqlite3.Error and OSError.
    """
    needed = sum(len(entry.key) + len(entry.value) for entry in snapshot.entries)
    require_free_space(path, needed)
    try:
        with open_draft(path) as copy:
            add_rows(copy, [(entry.key, entry.revision, entry.value) for entry in snapshot.entries])
            add_rows(copy, [(key, revision, None) for key, revision in snapshot.deleted])
            copy.execute("UPDATE meta SET id = '', revision = ?, compacted = ?", (snapshot.revision, compacted))
        return path.open("rb")
    finally:
        remove_copy(path)


@contextmanager
def open_draft(path: Path) -> Generator[sqlite3.Connection]:
    """Make an empty store in place of what is at a path, and yield its connection in a transaction for the block.

    The file has mode 0600, an id of its own, and does not survive a crash until it is synced. Raises sqlite3.Error and
    OSError; then the caller has to remove what is at the path (`remove_copy`).
    """
    remove_copy(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("PRAGMA synchronous = OFF")  # only this process reads the draft, until the caller syncs it
        try:
            migrate(db, str(path), MIGRATIONS)
        except StoreUnavailable as exc:  # of a new file only the disk's own error is of interest
            raise exc.__cause__ or exc from None
        with db:
            db.execute("BEGIN")
            yield db


def add_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Add records and tombstones (rows without a value) to a draft."""
    db.executemany("INSERT INTO entries (key, revision, value) VALUES (?, ?, ?)", rows)


def copy_path(database: Path) -> Path:
    """Return the path of a database's copy while it is being made."""
    return database.with_name(f"{database.name}.copy")


def remove_copy(path: Path) -> None:
    """Remove a copy, complete or not, with the journals that SQLite keeps beside it; do nothing if it is missing."""
    for suffix in ("", "-journal", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
