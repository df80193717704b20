"""One SQLite database that blocks: the transactions behind `SqliteStore`, without its waiting.

Each key has one row. A deletion keeps the row without a value (a tombstone) until it is compacted, so that
whoever was away can be told of it. The database's own header says what it is (`application_id`) and which
migrations it has seen (`user_version`).
"""

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Self

from hubbubd.store import (
    Commit,
    Compacted,
    Conflict,
    Entry,
    Guard,
    Snapshot,
    StoreLocked,
    StoreStats,
    StoreTooNew,
    StoreUnavailable,
    Write,
)

APPLICATION_ID = int.from_bytes(b"Hubb")

# 0xff never occurs in UTF-8, so a prefix followed by it ends the range of the keys that start with the prefix.
IN_RANGE = "key >= ? AND key < CAST(? AS TEXT)"


def _range(prefix: str) -> tuple[str, bytes]:
    return prefix, prefix.encode() + b"\xff"


def _first_schema(db: sqlite3.Connection) -> None:
    # The value comes last: what a guard reads then never lies behind a large one.
    db.execute("CREATE TABLE entries (key TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, value BLOB)")
    db.execute("CREATE INDEX entries_by_revision ON entries (revision)")
    db.execute("CREATE TABLE meta (id TEXT NOT NULL, revision INTEGER NOT NULL, compacted INTEGER NOT NULL)")
    db.execute("INSERT INTO meta VALUES (?, 0, 0)", (secrets.token_hex(8),))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


# The one at index n brings a database from schema version n to n + 1.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_schema,)


@contextmanager
def _engine_failures(name: str) -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise StoreUnavailable(f"the store {name} failed: {exc}") from exc


def _claim(path: Path) -> int:
    """A descriptor that holds the store for this process; the system lets go of it however the process ends."""
    # A file of its own, because closing any descriptor of the database would drop SQLite's locks on it.
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode().strip() or "unknown"
        os.close(lock)
        raise StoreLocked(f"the store {path} is in use by another hub (process {holder})") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _number(db: sqlite3.Connection, question: str) -> int:
    return db.execute(question).fetchone()[0]


def _prepare(db: sqlite3.Connection, name: str) -> None:
    """Recognises the database before changing anything in it, then brings it to the current schema."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    if _number(db, "PRAGMA application_id") != APPLICATION_ID and _number(db, "SELECT count(*) FROM sqlite_master"):
        raise StoreUnavailable(f"{name} is a database, but not a hub's store")
    version = _number(db, "PRAGMA user_version")
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            f"the store {name} was written by a newer hub (schema {version}, this hub knows up to {len(MIGRATIONS)})"
        )
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    with db:
        db.execute("BEGIN IMMEDIATE")
        for migrate in MIGRATIONS[version:]:
            migrate(db)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


class Engine:
    """An open database, for one thread at a time. Every method blocks and may raise StoreUnavailable."""

    def __init__(self, name: str, db: sqlite3.Connection, held: ExitStack) -> None:
        self._name = name
        self._db = db
        self._held = held
        self.id: str
        self.revision: int
        self.compacted: int
        self.id, self.revision, self.compacted = db.execute("SELECT id, revision, compacted FROM meta").fetchone()

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """The database at a path, made if missing; in memory without one. Raises StoreLocked, StoreTooNew."""
        name = str(path or ":memory:")
        with _engine_failures(name), ExitStack() as held:
            if path:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.callback(os.close, _claim(path))
                path.touch(mode=0o600)
                path.chmod(0o600)  # also one made by other means; the journal gets the mode of the database
            db = sqlite3.connect(path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False)
            held.enter_context(closing(db))
            try:
                _prepare(db, name)
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise StoreLocked(f"the store {name} is in use by another program") from exc
                raise
            return cls(name, db, held.pop_all())

    def apply(self, group: Sequence[tuple[Sequence[Write], Sequence[Guard]]]) -> list[Commit | Conflict]:
        """Commits a group with one sync of the disk; each sees what those before it wrote, and fails alone.

        A commit that changes nothing comes back without writes, at the revision it found. When this raises,
        none of the group has happened.
        """
        outcomes: list[Commit | Conflict] = []
        revision = self.revision
        with _engine_failures(self._name), self._db:
            self._db.execute("BEGIN IMMEDIATE")
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
            [(write.key, revision, write.value) for write in changes],
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
        with _engine_failures(self._name):
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
        with _engine_failures(self._name):
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
        with _engine_failures(self._name), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM entries WHERE value IS NULL AND revision <= ?", (compacted,))
            self._db.execute("UPDATE meta SET compacted = ?", (compacted,))
        self.compacted = compacted

    def stats(self) -> StoreStats:
        """The database in numbers; its size is without the journal."""
        with _engine_failures(self._name):
            size = _number(self._db, "PRAGMA page_count") * _number(self._db, "PRAGMA page_size")
            keys = _number(self._db, "SELECT count(value) FROM entries")
        return StoreStats(self.id, self.revision, self.compacted, size, keys)

    def close(self) -> None:
        """Folds the journal into the file and lets go of it."""
        with _engine_failures(self._name):
            self._held.close()
