"""Schema and migrations of the database.

Each key has one row. A deletion leaves the row without a value, a tombstone, until it is compacted, so that resuming
watchers learn of it. The file header has the format (`application_id`) and the schema version (`user_version`).
"""

import secrets
import sqlite3
from collections.abc import Callable, Sequence

from hubbubd.store import StoreTooNew, StoreUnavailable

APPLICATION_ID = int.from_bytes(b"Hubb")

Migration = Callable[[sqlite3.Connection], None]


def _first_schema(db: sqlite3.Connection) -> None:
    """Make the tables of schema version 1."""
    # The value is the last column, so that reading the revision for a guard never walks over a large one.
    db.execute("CREATE TABLE entries (key TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, value BLOB)")
    db.execute("CREATE INDEX entries_by_revision ON entries (revision)")
    db.execute("CREATE TABLE meta (id TEXT NOT NULL, revision INTEGER NOT NULL, compacted INTEGER NOT NULL)")
    db.execute("INSERT INTO meta VALUES (?, 0, 0)", (secrets.token_hex(8),))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


MIGRATIONS: tuple[Migration, ...] = (_first_schema,)
"""The migration at index n takes a database from schema version n to n + 1."""


def query_int(db: sqlite3.Connection, query: str) -> int:
    """Run a query that returns one integer."""
    return db.execute(query).fetchone()[0]


def read_version(db: sqlite3.Connection, name: str, migrations: Sequence[Migration]) -> int:
    """Return the schema version of a database, 0 for an empty one.

    Raises StoreUnavailable if it is no store, and StoreTooNew.
    """
    if query_int(db, "PRAGMA application_id") != APPLICATION_ID and query_int(db, "SELECT count(*) FROM sqlite_master"):
        raise StoreUnavailable(f"{name} is a database, but not a hub's store; move it away")
    version = query_int(db, "PRAGMA user_version")
    if version > len(migrations):
        raise StoreTooNew(
            f"the store {name} was written by a newer hub (schema {version}, this hub knows up to {len(migrations)});"
            " run that one, or put back a copy that this one made"
        )
    return version


def migrate(db: sqlite3.Connection, name: str, migrations: Sequence[Migration]) -> None:
    """Bring a database to the newest schema in one transaction; nothing is written if it has that already.

    Raises StoreTooNew, and StoreUnavailable if it is no store or a step fails; the database is then unchanged.
    """
    version = read_version(db, name, migrations)
    if version == len(migrations):
        return
    if version == 0:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # lets free pages be cut off; must be set before the first table
    try:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for step in migrations[version:]:
                step(db)
            db.execute(f"PRAGMA user_version = {len(migrations)}")
    except Exception as exc:
        raise StoreUnavailable(
            f"the store {name} cannot be brought from schema {version} to {len(migrations)}; it is as it was: {exc}"
        ) from exc


def set_id(db: sqlite3.Connection, store_id: str | None = None) -> None:
    """Give the store another id, by default a new random one; "" marks a copy that no hub has opened yet."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE meta SET id = ?", (secrets.token_hex(8) if store_id is None else store_id,))
