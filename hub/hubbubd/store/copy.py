"""A copy of a database, made while it is in use."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from hubbubd.store import NoRoom

PAGES = 256
"""Copied at a time (1 MiB); a commit waits for one such step at most."""

PAUSE_S = 0.002
"""After each step, so that commits that wait for the connection get it."""

LOCKED_S = 0.005
"""When the connection is found in the middle of a commit."""


ROOM_BYTES = 64 * 1024 * 1024
"""What must be left of the disk beside the copy, for a store that goes on growing meanwhile."""


class GivenUp(Exception):
    """Nobody wants the copy any more."""


def require_room(source: sqlite3.Connection, path: Path) -> None:
    """Raises NoRoom when a copy at `path` would take the disk that the database needs itself."""
    needed: int = source.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    free = shutil.disk_usage(path.parent).free
    if free < needed + ROOM_BYTES:
        raise NoRoom(f"a copy takes {needed} bytes of {path.parent} for a while, and {free} are free")


def copied(
    source: sqlite3.Connection, path: Path, seal: Callable[[sqlite3.Connection], None], given_up: Callable[[], bool]
) -> BinaryIO:
    """The database as it is at the end of the copying, sealed, in an open file for its owner that has no name.

    Another thread may commit over the same connection meanwhile: what it changes is changed in the copy as well
    (https://sqlite.org/c3ref/backup_finish.html), so nothing begins anew. `path` is used while copying; what a killed
    process left there is removed. Raises GivenUp, sqlite3.Error and OSError.
    """

    def breathe(_status: int, _remaining: int, _total: int) -> None:
        if given_up():
            raise GivenUp
        time.sleep(PAUSE_S)

    remove(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            copy.execute("PRAGMA locking_mode = EXCLUSIVE")
            copy.execute("PRAGMA synchronous = OFF")  # it is read by this process, or by nobody
            source.backup(copy, pages=PAGES, progress=breathe, sleep=LOCKED_S)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without the journal that the source has
            seal(copy)
        return path.open("rb")
    finally:
        remove(path)


def place(database: Path) -> Path:
    """Where the copy of a database is while it is made."""
    return database.with_name(f"{database.name}.copy")


def remove(path: Path) -> None:
    """Removes a copy, whole or not, with what SQLite may have put beside it."""
    for suffix in ("", "-journal", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
