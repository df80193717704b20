"""One SQLite database, blocking: the transactions behind `SqliteStore`, which adds the queue and the thread."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from hubbub_shared.platform import files
from hubbubd.store import (
    Commit,
    Compacted,
    KeyValue,
    Precondition,
    Snapshot,
    StoreDamaged,
    StoreLocked,
    StoreStats,
    Write,
    WriteConflict,
)
from hubbubd.store.errors import PRIMARY, explain_errors
from hubbubd.store.sqlite import backup as copying
from hubbubd.store.sqlite import file
from hubbubd.store.sqlite.schema import MIGRATIONS, Migration, migrate, query_int, set_id

T = TypeVar("T")

RECLAIMED_PAGES = 256
"""Free pages cut off the file per step (1 MiB); a commit waits for one step at most."""

MIN_FREE_BYTES = 1024 * 1024
"""Bytes that must be free on the disk before a failed store counts as healthy again."""

MAX_COLUMNS = 3
"""The most values of a row in a statement."""

MAX_ROWS = 1000
"""The most rows of one statement; fewer where SQLite takes fewer values.

SQLite runs without the interpreter's lock. A busy event loop gives it back up to 5 ms later, after each step of each
statement: with a statement for each row, a commit of a thousand would take seconds.
"""

MAX_BATCH_BYTES = 1024 * 1024
"""Bytes of values from which on a statement gets no further rows: SQLite copies them."""

# 0xff never occurs in UTF-8, so a prefix followed by it ends the range of the keys that start with the prefix.
IN_RANGE = "key >= ? AND key < CAST(? AS TEXT)"


def _placeholders(rows: int, columns: int) -> str:
    """Return SQL placeholders for rows of values: `(?, ?), (?, ?)` for 2 rows of 2 columns."""
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)


def _batches(items: Iterable[T], max_items: int, size_of: Callable[[T], int] = lambda _: 0) -> Generator[list[T]]:
    """Divide items into batches for one statement each: `max_items`, or fewer once they have MAX_BATCH_BYTES bytes."""
    batch, size = list[T](), 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) == max_items or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _resolve_commit(
    revisions: Mapping[str, int], revision: int, writes: Sequence[Write], guards: Sequence[Precondition]
) -> Commit | WriteConflict:
    """Return the outcome of a commit, without writing it: the Commit, or the conflict of the first guard that fails.

    `revisions` has the revision of each existing key; a missing key has 0. The newest revision is `revision`, and stays
    if nothing changes. Of several writes to a key the last counts, and deleting a missing key is no change.
    """
    for guard in guards:
        if revisions.get(guard.key, 0) != guard.revision:
            return WriteConflict(guard.key)
    newest = {write.key: write for write in writes}
    changes = tuple(each for each in newest.values() if each.value is not None or revisions.get(each.key))
    return Commit(revision + 1 if changes else revision, changes)


def _key_range(prefix: str) -> tuple[str, bytes]:
    """Return the two values of IN_RANGE for the keys that start with a prefix."""
    return prefix, prefix.encode() + b"\xff"


class Engine:
    """An open database. Not thread-safe. Every method blocks and may raise StoreUnavailable."""

    def __init__(self, name: str, directory: Path | None, db: sqlite3.Connection, resources: ExitStack) -> None:
        """`directory` has the database, None for one in memory; `resources` are closed with the engine."""
        self.name = name
        self._directory = directory
        self._db = db
        self._resources = resources
        self._max_rows = min(MAX_ROWS, db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // MAX_COLUMNS)
        self._schema = query_int(db, "PRAGMA user_version")
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
        with explain_errors(name), ExitStack() as resources:
            if path:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                resources.callback(os.close, file.lock_store(path))
                copying.remove_copy(copying.copy_path(path))
                file.ensure_store(path, migrations)
            try:
                db = resources.enter_context(file.open_connection(name))
                if file.read_id(db) == "":
                    # A restored copy: its history diverges from here, so it gets a new id. The id must be in the
                    # database file before there is a journal: it tells whether a journal belongs to the file.
                    set_id(db)
                db.execute("PRAGMA journal_mode = WAL")
                migrate(db, name, migrations)
                return cls(name, path and path.parent, db, resources.pop_all())
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & PRIMARY == sqlite3.SQLITE_BUSY:
                    raise StoreLocked(f"the store {name} is in use by another program") from exc
                raise

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Raise errors of SQLite and the system as StoreUnavailable; after damage nothing is written any more."""
        try:
            with explain_errors(self.name):
                yield
        except StoreDamaged as exc:
            self._damage = exc
            raise

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Run the block in a transaction that is durable at its end, or rolled back.

        Raises StoreUnavailable; StoreDamaged at once if damage was found before.
        """
        if self._damage:
            raise StoreDamaged(str(self._damage))
        with self._translate_errors():
            try:
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    yield
            except (sqlite3.Error, OSError):
                # Else a commit whose sync failed might count after a restart. The first error is the one to report.
                with suppress(sqlite3.Error):
                    self._write_without_change()
                raise

    def _write_without_change(self) -> None:
        """Commit without a change, but with all the writing and syncing of a commit.

        After a commit whose sync failed this also overwrites the frames of that commit. They are complete in the
        journal, so the next process that opens the store would take them for a commit. Syncing again cannot be trusted
        to repair that.
        """
        self._db.execute(f"PRAGMA user_version = {self._schema}")

    def probe(self) -> None:
        """Test by writing that the store can be written, and that the disk has MIN_FREE_BYTES left."""
        if self._directory:
            with self._translate_errors(), tempfile.TemporaryFile(dir=self._directory) as scratch:
                files.reserve(scratch.fileno(), MIN_FREE_BYTES)
        with self._transaction():
            self._write_without_change()

    def apply(self, group: Sequence[tuple[Sequence[Write], Sequence[Precondition]]]) -> list[Commit | WriteConflict]:
        """Apply several commits with one sync. Each sees the writes of those before it and fails alone.

        Return their outcomes in order; a commit that changes nothing is returned without writes, at the revision that
        it found. If this raises, none of the group has happened.
        """
        outcomes: list[Commit | WriteConflict] = []
        revision, changed_rows = self.revision, dict[str, tuple[str, int, bytes | None]]()
        with self._transaction():
            revisions = self._read_revisions(group)
            for writes, guards in group:
                outcome = _resolve_commit(revisions, revision, writes, guards)
                outcomes.append(outcome)
                if isinstance(outcome, Commit) and outcome.writes:
                    revision = outcome.revision
                    revisions.update((write.key, 0 if write.value is None else revision) for write in outcome.writes)
                    changed_rows.update((write.key, (write.key, revision, write.value)) for write in outcome.writes)
            if changed_rows:
                self._write_rows(changed_rows.values())
                self._db.execute("UPDATE meta SET revision = ?", (revision,))
        self.revision = revision
        return outcomes

    def _read_revisions(self, group: Sequence[tuple[Sequence[Write], Sequence[Precondition]]]) -> dict[str, int]:
        """Return, for the existing keys on which a group depends, the revision that last wrote each.

        A group depends on the keys of its guards, and on those that it deletes: deleting a missing key changes nothing.
        """
        needed = {guard.key for _, guards in group for guard in guards}
        needed.update(write.key for writes, _ in group for write in writes if write.value is None)
        revisions: dict[str, int] = {}
        for keys in _batches(needed, self._max_rows):
            # The result is one row, since each row of a result is a step (see MAX_ROWS).
            query = (
                f"WITH wanted (n, key) AS (VALUES {_placeholders(len(keys), 2)})"  # noqa: S608  # question marks
                " SELECT group_concat(n || ' ' || CAST(revision AS INTEGER)) FROM wanted CROSS JOIN entries USING (key)"
                " WHERE value IS NOT NULL"
            )
            (text,) = self._db.execute(query, [*chain.from_iterable(enumerate(keys))]).fetchone()
            pairs = (each.split() for each in (text or "").split(",") if each)
            revisions.update((keys[int(n)], int(revision)) for n, revision in pairs)
        return revisions

    def _write_rows(self, rows: Collection[tuple[str, int, bytes | None]]) -> None:
        """Write records and tombstones, in as few statements as possible."""
        records, tombstones = [row for row in rows if row[2] is not None], [row for row in rows if row[2] is None]
        for batch in _batches(records, self._max_rows, lambda row: len(row[2] or b"")):
            self._db.execute(
                f"INSERT INTO entries (key, revision, value) VALUES {_placeholders(len(batch), MAX_COLUMNS)}"  # noqa: S608  # as above
                " ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = excluded.value",
                [*chain.from_iterable(batch)],
            )
        # REPLACE makes a new row: one set to NULL in place would keep the page that a large value had filled.
        for batch in _batches(tombstones, self._max_rows):
            self._db.execute(
                f"REPLACE INTO entries (key, revision, value) VALUES {_placeholders(len(batch), MAX_COLUMNS)}",  # noqa: S608
                [*chain.from_iterable(batch)],
            )

    def snapshot(self, prefix: str) -> Snapshot:
        """Read everything under a prefix, with its tombstones."""
        entries: list[KeyValue] = []
        deleted: list[tuple[str, int]] = []
        with self._translate_errors():
            for key, value, revision in self._db.execute(
                f"SELECT key, value, revision FROM entries WHERE {IN_RANGE} ORDER BY key",  # noqa: S608  # constants
                _key_range(prefix),
            ):
                if value is None:
                    deleted.append((key, revision))
                else:
                    entries.append(KeyValue(key, value, revision))
        return Snapshot(self.revision, tuple(entries), tuple(sorted(deleted, key=itemgetter(1))))

    def changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        """Return the current revision, and the newest state of each key under a prefix that changed after `after`.

        The states come as commits, in the order of their revisions. Raises Compacted, also for a revision that was
        never reached: the file was restored from a copy.
        """
        if not self.compacted <= after <= self.revision:
            raise Compacted(self.compacted)
        with self._translate_errors():
            rows = self._db.execute(
                # The unary plus makes SQLite use the index by revision: few rows are newer, many may share the prefix.
                f"SELECT revision, key, value FROM entries WHERE revision > ? AND +{IN_RANGE} ORDER BY revision, key",  # noqa: S608  # constants
                (after, *_key_range(prefix)),
            ).fetchall()
        return self.revision, [
            Commit(revision, tuple(Write(key, value) for _, key, value in same))
            for revision, same in groupby(rows, itemgetter(0))
        ]

    def compact(self, revision: int) -> None:
        """Remove the tombstones up to a revision, or up to the newest revision if that is lower."""
        compacted = min(revision, self.revision)
        if compacted <= self.compacted:
            return
        with self._transaction():
            self._db.execute("DELETE FROM entries WHERE value IS NULL AND revision <= ?", (compacted,))
            self._db.execute("UPDATE meta SET compacted = ?", (compacted,))
        self.compacted = compacted

    def reclaim(self) -> bool:
        """Cut off some free pages of the file, checkpoint the journal, and return whether a further call can cut more.

        False also if this call has cut off none, as the next call would not, either. Afterwards neither file contains
        deleted or overwritten data.
        """
        with self._translate_errors():
            free = query_int(self._db, "PRAGMA freelist_count")
            if free:
                self._db.executescript(f"PRAGMA incremental_vacuum({RECLAIMED_PAGES})")  # `execute` stops after a page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return 0 < query_int(self._db, "PRAGMA freelist_count") < free

    def copy(self, path: Path, is_abandoned: Callable[[], bool]) -> BinaryIO:
        """Return a copy of the database as an open file; it has no id, and gets one where it is opened.

        `path` is the working file. May run in another thread beside the engine's own. Raises NoRoom, CopyAbandoned once
        `is_abandoned` returns True, and StoreUnavailable.
        """
        with self._translate_errors():
            copying.require_capacity(self._db, path)
            return copying.copy_database(self._db, path, lambda db: set_id(db, ""), is_abandoned)

    def stats(self) -> StoreStats:
        """Return sizes and counts; sizes exclude the journal."""
        with self._translate_errors():
            page = query_int(self._db, "PRAGMA page_size")
            size = query_int(self._db, "PRAGMA page_count") * page
            free = query_int(self._db, "PRAGMA freelist_count") * page
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
        """Close the database, which moves the journal into the file, and release the lock."""
        with self._translate_errors():
            self._resources.close()
