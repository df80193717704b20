"""Stores in PostgreSQL, as sources and targets of copies. A source is read in one transaction, a target written in one.

The connection that has the lock of the store does the work: if it breaks, both are gone.
"""

import secrets
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol, cast

import anyio

from hubbubd.store import StoreError, StoreLocked
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, DatabaseConnection, as_store_error
from hubbubd.store.sqlite.backup import Row
from hubbubd.store.transfer.sqlite import SLICE_BYTES, SLICE_ROWS
from hubbubd.store.transfer.store_transfer import Extent

MAX_NAMED_CHARS: Final = 256
"""The most characters of a key that an error shows."""

_NO_TIMEOUTS: Final = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0"
"""Waiting for the other store must not end the session of this one."""

_EXTENT: Final = """
SELECT m.revision, m.compacted, count(e.value), count(e.key) - count(e.value),
  coalesce(sum(octet_length(e.key) + coalesce(octet_length(e.value), 0)), 0)::bigint
FROM {schema}.meta m LEFT JOIN {schema}.entries e ON true GROUP BY m.revision, m.compacted
"""
# The size of a value is read without the value, so a slice is bounded before its values leave the database.
_SLICE: Final = """
SELECT key, revision, value FROM (
  SELECT key, revision, value,
    sum(coalesce(octet_length(value), 0)) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) AS size_with
  FROM (
    SELECT key, revision, value FROM {schema}.entries WHERE $1::text IS NULL OR key > $1 ORDER BY key LIMIT $2
  ) AS following
) AS sized
WHERE size_with - coalesce(octet_length(value), 0) < $3 ORDER BY key
"""
_FINISH: Final = """
WITH made AS (
  INSERT INTO {schema}.commits (op, last, outcomes) VALUES (gen_random_uuid(), $2::bigint, '[]') RETURNING op
)
UPDATE {schema}.meta SET id = $1, revision = $2::bigint, compacted = $3, op = made.op FROM made
"""


class _Connection(DatabaseConnection, Protocol):
    """A connection, with what only copies need of it."""

    def transaction(
        self, *, isolation: str = "read_committed", readonly: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Return a transaction for a block."""
        ...

    async def copy_records_to_table(
        self, table: str, *, schema_name: str, columns: Sequence[str], records: Sequence[Row]
    ) -> str:
        """Insert rows by COPY."""
        ...


@asynccontextmanager
async def lock_database(url: str, schema: str, password: str | None) -> AsyncGenerator["LockedDatabase"]:
    """Lock the store in a schema for a block and yield it, whether or not there is a store.

    The tables of a store are brought up to date, and its former hub is declared gone. Raises StoreLocked when a hub has
    the store open, StoreTooNew, and StoreUnavailable when the database cannot be reached or does not fit.
    """
    database = Database(url, schema, password)
    connection = cast("_Connection", await database.connect())
    try:
        store = LockedDatabase(database, connection)
        with _translate_errors(database.name):
            await database.check_durability(connection)
            await connection.execute(_NO_TIMEOUTS)
            if not await connection.fetchval(sql.LOCK, schema):
                raise StoreLocked(f"the store {store.name} is in use by a hub; stop it, or name another schema")
            if await store.exists():
                async with connection.transaction():
                    await database.migrate(connection, alone=True)
                # A hub that had the store and has lost its connection can commit nothing more when it is back.
                await connection.execute(database.for_schema(sql.ALL_GONE), "")
        yield store
    finally:
        with anyio.CancelScope(shield=True), suppress(*ERRORS):
            await connection.close(timeout=CONNECT_S)


@contextmanager
def _translate_errors(name: str) -> Generator[None]:
    """Raise errors of the database as StoreUnavailable."""
    try:
        yield
    except ERRORS as error:
        raise as_store_error(name, error) from error


class LockedDatabase:
    """A store in a schema whose lock this process has; implements `store_transfer.LockedStore`."""

    def __init__(self, database: Database, connection: _Connection) -> None:
        self._database = database
        self._connection = connection

    @property
    def name(self) -> str:
        """The address of the database and the schema, without a password."""
        return self._database.name

    async def exists(self) -> bool:
        """Return whether there is a store in the schema; the database itself always exists."""
        return await self._connection.fetchval("SELECT to_regclass($1)", f"{self._database.schema}.meta") is not None

    @asynccontextmanager
    async def open_reader(self) -> AsyncGenerator["_PostgresReader | None"]:
        """Open the store for reading, as it is at one moment; yield None without a store. Raises StoreUnavailable."""
        with _translate_errors(self.name):
            has_store = await self.exists()
        if not has_store:
            yield None
            return
        with _translate_errors(self.name):
            async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                yield _PostgresReader(self._database, self._connection)

    @asynccontextmanager
    async def open_writer(self, extent: Extent) -> AsyncGenerator["_PostgresWriter"]:
        """Open the store for writing, made if missing; all that the block adds is committed at its end, or nothing.

        The store gets the revisions of `extent` and a new id. Raises StoreTooNew and StoreUnavailable.
        """
        with _translate_errors(self.name):
            async with self._connection.transaction():
                await self._database.migrate(self._connection, alone=True)
                await self._database.require_known_version(self._connection, alone=True)
                yield _PostgresWriter(self._database, self._connection)
                finish = self._database.for_schema(_FINISH)
                await self._connection.execute(finish, secrets.token_hex(8), extent.revision, extent.compacted)
        with suppress(*ERRORS):  # the copy is complete without it, and the database analyzes tables itself later
            await self._connection.execute(self._database.for_schema("ANALYZE {schema}.entries"))


class _PostgresReader:
    """A `SourceReader` of a store in a database, within one transaction."""

    def __init__(self, database: Database, connection: _Connection) -> None:
        self._database = database
        self._connection = connection

    async def measure(self) -> Extent:
        """Return the revisions, counts and size of the store. Raises StoreUnavailable."""
        with _translate_errors(self._database.name):
            [(revision, compacted, records, deletions, size)] = await self._connection.fetch(
                self._database.for_schema(_EXTENT)
            )
        return Extent(revision=revision, compacted=compacted, records=records, deletions=deletions, size_bytes=size)

    async def read_slices(self) -> AsyncGenerator[Sequence[Row]]:
        """Yield all records and tombstones by key, at most SLICE_ROWS and about SLICE_BYTES at a time."""
        query = self._database.for_schema(_SLICE)
        last: str | None = None
        while True:
            with _translate_errors(self._database.name):
                records = await self._connection.fetch(query, last, SLICE_ROWS, SLICE_BYTES)
            rows = [cast("Row", tuple(row)) for row in records]
            if not rows:
                return
            yield rows
            last = rows[-1][0]


class _PostgresWriter:
    """A `TargetWriter` of a store in a database."""

    def __init__(self, database: Database, connection: _Connection) -> None:
        self._database = database
        self._connection = connection

    async def add(self, rows: Sequence[Row]) -> None:
        """Insert rows. Raises StoreError for a key that PostgreSQL cannot keep, and StoreUnavailable."""
        for key, _, _ in rows:
            if problem := sql.explain_unfit_key(key):
                raise StoreError(f"the key {key[:MAX_NAMED_CHARS]!r} {problem}; nothing was copied")
        with _translate_errors(self._database.name):
            await self._connection.copy_records_to_table(
                "entries", schema_name=self._database.schema, columns=("key", "revision", "value"), records=rows
            )
