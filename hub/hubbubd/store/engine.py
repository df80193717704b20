"""One SQLite database, blocking: the transactions behind `SqliteStore`, which adds the queue and the thread."""

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
"""Free pages cut off the file per step (1 MiB); a commit waits for one step at most."""

ROOM = 1024 * 1024
"""Bytes that must be free on the disk before a failed store counts as healthy again."""

# 0xff never occurs in UTF-8, so a prefix followed by it ends the range of the keys that start with the prefix.
IN_RANGE = "key >= ? AND key < CAST(? AS TEXT)"


def _range(prefix: str) -> tuple[str, bytes]:
    return prefix, prefix.encode() + b"\xff"


class Engine:
    """An open database. Not thread-safe. Every method blocks and may raise StoreUnavailable."""

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
        """Open the database at a path, created if missing; None opens one in memory.

        Raises StoreLocked, StoreTooNew, StoreDamaged and StoreUnavailable; an existing file is then unchanged.
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
                    # A restored copy: its history diverges from here, so it gets a new id. The id must be in the
                    # database file before there is a journal: it tells whether a journal belongs to the file.
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
        """Run the block in a transaction that is durable at its end, or rolled back. A damaged store refuses it."""
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
        """Commit without a change, but with all its writing and syncing.

        After a commit whose sync failed this also overwrites its frames. They are complete in the journal, and the next
        process to open it would take them for a commit; syncing again cannot be trusted to repair that.
        """
        self._db.execute(f"PRAGMA user_version = {self._schema}")

    def probe(self) -> None:
        """Test by writing that the store can be written, and that the disk has ROOM left."""
        if self._directory:
            with self._access(), tempfile.TemporaryFile(dir=self._directory) as scratch:
                os.posix_fallocate(scratch.fileno(), 0, ROOM)
        with self._transaction():
            self._write_nothing_new()

    def apply(self, group: Sequence[tuple[Sequence[Write], Sequence[Guard]]]) -> list[Commit | Conflict]:
        """Group commit: apply several commits with one sync. Each sees the writes of those before it and fails alone.

        A commit that changes nothing is returned without writes, at the revision it found. If this raises, none of the
        group has happened.
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
        # All guards are checked before the first write, so a conflict needs no rollback.
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
        # REPLACE makes a new row: one set to NULL in place would keep the page that a large value had filled.
        self._db.executemany(
            "REPLACE INTO entries (key, revision, value) VALUES (?, ?, NULL)",
            [(write.key, revision) for write in changes if write.value is None],
        )
        return Commit(revision, changes)

    def _modified(self, key: str) -> int:
        """Return the revision that last wrote the key; 0 if it does not exist."""
        row = self._db.execute("SELECT revision FROM entries WHERE key = ? AND value IS NOT NULL", (key,)).fetchone()
        return row[0] if row else 0

    def snapshot(self, prefix: str) -> Snapshot:
        """Read everything under a prefix, with its tombstones."""
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
        """Return the current revision, and the newest state of each key under a prefix that changed after `after`.

        Raises Compacted, also for a revision that was never reached: the file was restored from a copy.
        """
        if not self.compacted <= after <= self.revision:
            raise Compacted(self.compacted)
        with self._access():
            rows = self._db.execute(
                # The unary plus makes SQLite use the index by revision: few rows are newer, many may share the prefix.
                f"SELECT revision, key, value FROM entries WHERE revision > ? AND +{IN_RANGE} ORDER BY revision, key",  # noqa: S608  # constants
                (after, *_range(prefix)),
            ).fetchall()
        return self.revision, [
            Commit(revision, tuple(Write(key, value) for _, key, value in same))
            for revision, same in groupby(rows, itemgetter(0))
        ]

    def compact(self, revision: int) -> None:
        """Remove the tombstones up to a revision, or up to the newest if that is lower."""
        compacted = min(revision, self.revision)
        if compacted <= self.compacted:
            return
        with self._transaction():
            self._db.execute("DELETE FROM entries WHERE value IS NULL AND revision <= ?", (compacted,))
            self._db.execute("UPDATE meta SET compacted = ?", (compacted,))
        self.compacted = compacted

    def reclaim(self) -> bool:
        """Checkpoint the journal, cut off some free pages and return whether there are more.

        Afterwards neither file contains deleted or overwritten data.
        """
        with self._access():
            free = number(self._db, "PRAGMA freelist_count")
            if free:
                self._db.executescript(f"PRAGMA incremental_vacuum({RECLAIMED_PAGES})")  # `execute` stops after a page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return 0 < number(self._db, "PRAGMA freelist_count") < free

    def copy(self, path: Path, given_up: Callable[[], bool]) -> BinaryIO:
        """Return a copy of the database, as `copying.copied`. May run in another thread beside the engine's own."""
        with self._access():
            copying.require_room(self._db, path)
            return copying.copied(self._db, path, lambda db: rename(db, ""), given_up)

    def stats(self) -> StoreStats:
        """Return sizes and counts; sizes exclude the journal."""
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
        """Checkpoint the journal and close the file."""
        with self._access():
            self._held.close()
