"""One SQLite database that blocks: the transactions behind `SqliteStore`, without its waiting."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Self

from hubbubd.store import (
    Commit,
    Compacted,
    Conflict,
    Entry,
    Guard,
    Snapshot,
    StoreDamaged,
    StoreLocked,
    StoreStats,
    Write,
    opening,
)
from hubbubd.store import copy as copying
from hubbubd.store.errors import PRIMARY, explained
from hubbubd.store.schema import MIGRATIONS, Migration, migrate, number, rename

RECLAIMED_PAGES = 256
"""Free pages that are cut off the file at a time (1 MiB); a commit waits for that long."""

ROOM = 1024 * 1024
"""Bytes that must be free on the disk before a store that failed is called well again."""

# 0xff never occurs in UTF-8, so a prefix followed by it ends the range of the keys that start with the prefix.
IN_RANGE = "key >= ? AND key < CAST(? AS TEXT)"


def _range(prefix: str) -> tuple[str, bytes]:
    return prefix, prefix.encode() + b"\xff"


class Engine:
    """An open database, for one thread at a time. Every method blocks and may raise StoreUnavailable."""

    def __init__(self, name: str, directory: Path | None, db: sqlite3.Connection, held: ExitStack) -> None:
        self.name = name
        self._directory = directory
        self._db = db
        self._held = held
        self._schema = number(db, "PRAGMA user_version")
        self._damage: StoreDamaged | None = None
        self.id: str
        self.revision: int
        self.compacted: int
        self.id, self.revision, self.compacted = db.execute("SELECT id, revision, compacted FROM meta").fetchone()

    @classmethod
    def open(cls, path: Path | None, migrations: Sequence[Migration] = MIGRATIONS) -> Self:
        """The database at a path, made if missing; in memory without one.

        Raises StoreLocked, StoreTooNew and StoreDamaged; then a file that was there is as it was.
        """
        name = str(path or ":memory:")
        with explained(name), ExitStack() as held:
            if path:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.callback(os.close, opening.claim(path))
                copying.remove(copying.place(path))
                opening.find_or_make(path, migrations)
            try:
                db = held.enter_context(opening.connected(name))
                if opening.identity(db) == "":
                    # A copy, whose history goes another way from here, each time that it is put in place. It has
                    # no journal yet, and must not get its id there: by that a journal is known for its own.
                    rename(db)
                db.execute("PRAGMA journal_mode = WAL")
                migrate(db, name, migrations)
                return cls(name, path and path.parent, db, held.pop_all())
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & PRIMARY == sqlite3.SQLITE_BUSY:
                    raise StoreLocked(f"the store {name} is in use by another program") from exc
                raise

    @contextmanager
    def _access(self) -> Generator[None]:
        try:
            with explained(self.name):
                yield
        except StoreDamaged as exc:
            self._damage = exc
            raise

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Changes that are durable at the end of the block, or never happen. A damaged store takes none."""
        if self._damage:
            raise StoreDamaged(str(self._damage))
        with self._access():
            try:
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    yield
            except (sqlite3.Error, OSError):
                with suppress(sqlite3.Error):
                    self._write_nothing_new()
                raise

    def _write_nothing_new(self) -> None:
        """A commit that changes nothing, and yet goes the whole way to the disk.

        It also takes the place of what a commit wrote whose sync failed. Those frames are complete in the journal,
        so a process that opened it next would take them for a commit; nothing is retried by syncing alone.
        """
        self._db.execute(f"PRAGMA user_version = {self._schema}")

    def probe(self) -> None:
        """Finds out whether the store can be written, by writing; a disk that is all but full does not count."""
        if self._directory:
            with self._access(), tempfile.TemporaryFile(dir=self._directory) as scratch:
                os.posix_fallocate(scratch.fileno(), 0, ROOM)
        with self._transaction():
            self._write_nothing_new()

    def apply(self, group: Sequence[tuple[Sequence[Write], Sequence[Guard]]]) -> list[Commit | Conflict]:
        """Commits a group with one sync of the disk; each sees what those before it wrote, and fails alone.

        A commit that changes nothing comes back without writes, at the revision it found. When this raises,
        none of the group has happened.
        """
        outcomes: list[Commit | Conflict] = []
        revision = self.revision
        with self._transaction():
            for writes, guards in group:
                outcome = self._apply_one(revision, writes, guards)
                outcomes.append(outcome)
                if isinstance(outcome, Commit):
                    revision = outcome.revision
            if revision != self.revision:
                self._db.execute("UPDATE meta SET revision = ?", (revision,))
        self.revision = revision
        return outcomes

    def _apply_one(self, revision: int, writes: Sequence[Write], guards: Sequence[Guard]) -> Commit | Conflict:
        # Everything is decided before the first write, so a conflict leaves nothing to undo.
        for guard in guards:
            if self._modified(guard.key) != guard.revision:
                return Conflict(guard.key)
        newest = {write.key: write for write in writes}
        changes = tuple(w for w in newest.values() if w.value is not None or self._modified(w.key))
        if not changes:
            return Commit(revision, ())
        revision += 1
        self._db.executemany(
            "INSERT INTO entries (key, revision, value) VALUES (?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = excluded.value",
            [(write.key, revision, write.value) for write in changes if write.value is not None],
        )
        # A new row in place of the old one: emptied in place, it would keep a page that it had filled.
        self._db.executemany(
            "REPLACE INTO entries (key, revision, value) VALUES (?, ?, NULL)",
            [(write.key, revision) for write in changes if write.value is None],
        )
        return Commit(revision, changes)

    def _modified(self, key: str) -> int:
        """The revision that last wrote the key; 0 when it does not exist."""
        row = self._db.execute("SELECT revision FROM entries WHERE key = ? AND value IS NOT NULL", (key,)).fetchone()
        return row[0] if row else 0

    def snapshot(self, prefix: str) -> Snapshot:
        """Everything under a prefix."""
        entries: list[Entry] = []
        deleted: list[tuple[str, int]] = []
        with self._access():
            for key, value, revision in self._db.execute(
                f"SELECT key, value, revision FROM entries WHERE {IN_RANGE} ORDER BY key",  # noqa: S608  # constants
                _range(prefix),
            ):
                if value is None:
                    deleted.append((key, revision))
                else:
                    entries.append(Entry(key, value, revision))
        return Snapshot(self.revision, tuple(entries), tuple(sorted(deleted, key=itemgetter(1))))

    def changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        """The revision now, and the newest state of each key under a prefix that changed since `after`.

        Raises Compacted also for a revision that was never reached: the file was put back from a copy.
        """
        if not self.compacted <= after <= self.revision:
            raise Compacted(self.compacted)
        with self._access():
            rows = self._db.execute(
                # The plus keeps SQLite on the index by revision: few rows are newer, many may share the prefix.
                f"SELECT revision, key, value FROM entries WHERE revision > ? AND +{IN_RANGE} ORDER BY revision, key",  # noqa: S608  # constants
                (after, *_range(prefix)),
            ).fetchall()
        return self.revision, [
            Commit(revision, tuple(Write(key, value) for _, key, value in same))
            for revision, same in groupby(rows, itemgetter(0))
        ]

    def compact(self, revision: int) -> None:
        """Removes the tombstones up to a revision, or up to the newest when that is lower."""
        compacted = min(revision, self.revision)
        if compacted <= self.compacted:
            return
        with self._transaction():
            self._db.execute("DELETE FROM entries WHERE value IS NULL AND revision <= ?", (compacted,))
            self._db.execute("UPDATE meta SET compacted = ?", (compacted,))
        self.compacted = compacted

    def reclaim(self) -> bool:
        """Empties the journal into the file and cuts some free pages off; whether there are more to cut off.

        Afterwards nothing of what was deleted or overwritten is in either.
        """
        with self._access():
            free = number(self._db, "PRAGMA freelist_count")
            if free:
                self._db.executescript(f"PRAGMA incremental_vacuum({RECLAIMED_PAGES})")  # `execute` stops after a page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return 0 < number(self._db, "PRAGMA freelist_count") < free

    def copy(self, path: Path, given_up: Callable[[], bool]) -> BinaryIO:
        """A copy of the database, as `copying.copied`. For a thread of its own, while the other one goes on."""
        with self._access():
            copying.require_room(self._db, path)
            return copying.copied(self._db, path, lambda db: rename(db, ""), given_up)

    def stats(self) -> StoreStats:
        """The database in numbers; its sizes are without the journal."""
        with self._access():
            page = number(self._db, "PRAGMA page_size")
            size = number(self._db, "PRAGMA page_count") * page
            free = number(self._db, "PRAGMA freelist_count") * page
            keys, rows = self._db.execute("SELECT count(value), count(*) FROM entries").fetchone()
        return StoreStats(
            id=self.id,
            revision=self.revision,
            compacted_revision=self.compacted,
            size_bytes=size,
            keys=keys,
            deletions=rows - keys,
            free_bytes=free,
        )

    def close(self) -> None:
        """Folds the journal into the file and lets go of it."""
        with self._access():
            self._held.close()
