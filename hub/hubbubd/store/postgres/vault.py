"""The vault of a fleet: the secrets of its servers, sealed, in a table of the database.

Memory has all of them decrypted, so that reading needs no database. Those of a server are read again where another
member may have written: when the server is taken, and before its tokens are renewed. A write names the version that it
goes over, and is refused to a member that is gone. The version is part of what is sealed, and none is ever given twice.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

import anyio
import structlog

from hubbub_shared.legible import NOT_LEGIBLE
from hubbubd import payload
from hubbubd.config.sections.store import StoreSettings
from hubbubd.errors import ConfigError, Overtaken, VaultError
from hubbubd.store import StoreError, StoreUnavailable
from hubbubd.store.postgres import vault_sql as sql
from hubbubd.store.postgres.database import (
    CONNECT_S,
    ERRORS,
    Database,
    DatabaseConnection,
    as_store_error,
    is_failure_certain,
)
from hubbubd.store.vault.encryption import (
    ID_DIGITS,
    SealedSecret,
    SealLocation,
    UnreadableSecret,
    rewrap,
    seal,
    unseal,
)
from hubbubd.store.vault.keys import SETTING, VaultKeys

RETRY_S: Final = 0.25
"""Seconds between attempts to reach the database again."""

DEFAULT_KIND: Final = "oauth"
"""The kind of the secrets that are kept under the plain name of a server; those under `NAME/KIND` have that kind."""

SLICE_ROWS: Final = 100
"""Rows whose keys are wrapped again in one statement."""

_KEY_ID: Final = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")

_MAX_NAMED: Final = 5
"""How many rows a message names."""

log = structlog.get_logger(__name__)

Secrets = dict[str, Any]
Row = Sequence[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownRow:
    """What this member knows of a row: its version, and its secrets, which are None once the row is deleted."""

    version: int
    secrets: Secrets | None = field(repr=False)

    @property
    def stored_version(self) -> int:
        """The version of the row in the database; 0 if there is none."""
        return 0 if self.secrets is None else self.version


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """How many rows are sealed with the first key (`done`), and how many rows there are (`all`)."""

    done: int
    all: int


class PostgresVault:
    """The vault in a database; implements `upstream.ports.SecretsVault`. `open` makes one.

    `timeout_s` is how long a reading or a writing waits for a database that is away.
    """

    def __init__(
        self, database: Database, keys: VaultKeys, member: tuple[str, int] | None, timeout_s: float = 5.0
    ) -> None:
        self._database = database
        self._keys = keys
        self._member = member or (None, None)
        self._member_condition = sql.OF_A_MEMBER if member else sql.OF_NOBODY
        self._timeout_s = timeout_s
        self._lock = anyio.Lock()
        self._connection: DatabaseConnection | None = None
        self._id = ""
        self._rows: dict[str, dict[str, KnownRow]] = {}
        self._unconfirmed: dict[tuple[str, str], set[int]] = {}
        """By name and kind: versions (0: deleted) whose write the database has not confirmed yet."""

    @classmethod
    async def open(
        cls, settings: StoreSettings, keys: VaultKeys, member: str | None = None, term: int | None = None
    ) -> Self:
        """Open the vault in the schema of an open store, made if missing, and read all of it.

        The vault writes as `member` in its term; without these, as a program that runs while no member does.
        Raises ConfigError if a row's key is not known here, StoreError for a damaged row, and StoreUnavailable.
        """
        assert settings.url is not None
        database = Database(settings.url.get_secret_value(), settings.schema_name, settings.read_password())
        writer = None if member is None or term is None else (member, term)
        vault = cls(database, keys, writer, settings.unavailable_after_s)
        try:
            await vault._read_all()
        except BaseException:
            await vault.close()
            raise
        return vault

    async def _read_all(self) -> None:
        """Connect, make missing tables, and read all secrets. Raises ConfigError, StoreError and StoreUnavailable."""
        schema = self._database.schema
        try:
            connection = self._connection = await self._database.connect()
            async with connection.transaction():
                # Members may start at the same time.
                await connection.execute(sql.LOCK, schema)
                if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.vault") is None:
                    await connection.execute(self._fill_query(sql.TABLES))
            self._id = await connection.fetchval(self._fill_query(sql.ID))
            rows = await connection.fetch(self._fill_query(sql.ROWS), None)
        except ERRORS as error:
            raise as_store_error(self._database.name, error) from error
        self._require_keys(rows)
        damaged: list[Row] = []
        for row in rows:
            try:
                self._store_known_row(row, self._decrypt_row(row))
            except UnreadableSecret:
                damaged.append(row)
        if damaged:
            raise StoreError(_damage_message(self._database.name, damaged))

    def _require_keys(self, rows: Sequence[Row]) -> None:
        """Raise ConfigError if one of these rows is sealed with a key that this member does not have."""
        unknown = [row for row in rows if self._lacks_key(row)]
        if not unknown:
            return
        key_id = unknown[0][3]
        sealed_with_it = [row for row in unknown if row[3] == key_id]
        delete = f"DELETE FROM \"{self._database.schema}\".vault WHERE key_id = '{key_id}'"  # noqa: S608 - for people
        raise ConfigError(
            SETTING,
            f"{_describe_rows(sealed_with_it)} in the vault {self._database.name}: sealed with the key {key_id}, which"
            f" is not in {self._keys.origin}; that has {', '.join(key.id for key in self._keys.keys)}. Add the key as"
            f" another line. If it is lost, so is what it sealed: `{delete}`. Then these servers ask to let the hub in"
            " again, and those that were added over the API have to be updated with their secrets",
        )

    def _lacks_key(self, row: Row) -> bool:
        """Return whether this member lacks a row's key; False for a key id that no key can have: the row is damaged."""
        return self._keys.find(row[3]) is None and _KEY_ID.fullmatch(row[3]) is not None

    def get(self, server: str) -> Secrets | None:
        """Return the secrets stored for a server, as far as this member knows; None if there are none."""
        name, kind = _row_key(server)
        row = self._rows.get(name, {}).get(kind)
        return row.secrets if row is not None else None

    async def put(self, server: str, secrets: Secrets | None) -> None:
        """Replace the secrets stored for a server (None deletes them); durable on return, also after a cancellation.

        Raises VaultError, and Overtaken if another member has written since this one read, or this member is gone.
        """
        content = None if secrets is None else _encode_secrets(server, secrets)
        # A renewed token that is not kept now is lost: the old token is used up.
        with anyio.CancelScope(shield=True):
            await self._run_exclusively(partial(self._write_over_known, *_row_key(server), secrets, content))

    async def _write_over_known(self, name: str, kind: str, secrets: Secrets | None, content: bytes | None) -> None:
        """Write secrets, encoded as `content`, over the row's version that this member knows; None deletes the row.

        Only one such write runs at a time (`_run_exclusively`). Raises Overtaken and VaultError.
        """
        row = self._rows.get(name, {}).get(kind) or KnownRow(0, None)
        known_version, new_version = row.stored_version, 0
        sealed: list[Any] = []
        if content is not None:
            [(new_version,)] = await self._query(sql.FRESH, row.version, 1)
            sealed_row = seal(self._keys.first, SealLocation(self._id, name, kind, new_version), content)
            sealed = [new_version, sealed_row.key_id, sealed_row.wrapped, sealed_row.content]
        unconfirmed = self._unconfirmed.setdefault((name, kind), set())
        unconfirmed.add(new_version)
        while not await self._write_row(name, kind, known_version, sealed):
            [(alive, found_version)] = await self._query(sql.LOOK, *self._member, name, kind)
            if found_version == new_version:
                break  # an attempt whose answer was lost has done it; or the row is to be deleted, and somebody has
            if not alive or found_version not in unconfirmed:
                unconfirmed.discard(new_version)
                raise self._overtaken_error(name, gone=not alive)
            known_version = found_version
        del self._unconfirmed[name, kind]
        self._rows.setdefault(name, {})[kind] = KnownRow(new_version or row.version, secrets)

    async def _write_row(self, name: str, kind: str, known_version: int, sealed: Sequence[Any]) -> bool:
        """Replace the known version of a row (0: there is none); return whether it was done.

        False if the row has another version, or this member is gone. `sealed` is version, key id, wrapped key and
        content of the new row; if it is empty, the row is deleted.
        """
        if not sealed:
            return bool(await self._query(sql.DELETE, *self._member, name, kind, known_version))
        if not known_version:
            return bool(await self._query(sql.INSERT, *self._member, name, kind, *sealed))
        return bool(await self._query(sql.UPDATE, *self._member, name, kind, *sealed, known_version))

    def _overtaken_error(self, name: str, *, gone: bool) -> Overtaken:
        """Return the error for a refused write of a server's secrets; `gone`: as this member is gone."""
        if gone:
            return Overtaken(f"the secrets of {name} were not kept: this member is gone, and its servers are others'")
        return Overtaken(f"the secrets of {name} were not kept: another member has written them since")

    async def refresh(self, *servers: str) -> None:
        """Read again all that is stored for servers. Raises VaultError, also for a row older than the known version."""
        await self._run_exclusively(partial(self._refresh_exclusively, [_row_key(server)[0] for server in servers]))

    async def _refresh_exclusively(self, names: Sequence[str]) -> None:
        """Read all rows of these servers, and note what they say; secrets that are deleted there are forgotten.

        Raises VaultError, also for a row that is older than the version that this member knows.
        """
        stored_rows: list[tuple[Row, KnownRow]] = []
        for row in await self._query(sql.ROWS, names):
            stored_rows.append((row, stored := self._require_readable(row)))
            known = self._rows.get(row[0], {}).get(row[1])
            if known is not None and stored.version < known.version:
                raise VaultError(
                    f"{_describe_rows([row])} in the vault {self._database.name} was put back: it has version"
                    f" {stored.version}, and this member knows {known.version}. Restart all members if the database"
                    " was restored; else look who changes it"
                )
        for name in names:
            kinds = self._rows.get(name, {})
            self._rows[name] = {kind: KnownRow(stored.version, None) for kind, stored in kinds.items()}
        for row, stored in stored_rows:
            self._store_known_row(row, stored)

    def _require_readable(self, row: Row) -> KnownRow:
        """Return a row's version and secrets. Raises VaultError if it cannot be opened, with what to do."""
        if self._lacks_key(row):
            raise VaultError(
                f"{_describe_rows([row])} in the vault {self._database.name}: sealed with the key {row[3]}, which is"
                f" not in {self._keys.origin}; add it there, and restart this member"
            )
        try:
            return self._decrypt_row(row)
        except UnreadableSecret:
            raise VaultError(_damage_message(self._database.name, [row])) from None

    def _decrypt_row(self, row: Row) -> KnownRow:
        """Return a row's version and secrets. Raises UnreadableSecret if the row is damaged or its key is missing."""
        name, kind, version, key_id, wrapped, content = row
        key = self._keys.find(key_id)
        if key is None or wrapped is None or content is None:  # None: longer than any that was written
            raise UnreadableSecret
        plain = unseal(key, SealLocation(self._id, name, kind, version), SealedSecret(key_id, wrapped, content))
        return KnownRow(version, cast("Secrets", payload.loads(plain)))

    def _store_known_row(self, row: Row, known: KnownRow) -> None:
        """Note what this member knows of a row."""
        self._rows.setdefault(row[0], {})[row[1]] = known

    def all(self) -> dict[str, Secrets]:
        """Return all secrets by the names under which they are stored, as this member knows them."""
        return {
            name if kind == DEFAULT_KIND else f"{name}/{kind}": row.secrets
            for name, kinds in self._rows.items()
            for kind, row in kinds.items()
            if row.secrets is not None
        }

    async def put_all(self, secrets: Mapping[str, Secrets]) -> None:
        """Store all these secrets, or none, in an empty vault. Raises StoreError if it is not empty, and VaultError."""
        await self._run_exclusively(partial(self._put_all_exclusively, secrets))

    async def _put_all_exclusively(self, secrets: Mapping[str, Secrets]) -> None:
        """Write all these secrets into the empty vault. Raises StoreError if it has others, and VaultError."""
        if not secrets:
            return
        [(last,)] = await self._query(sql.FRESH, 0, len(secrets))
        rows: list[list[Any]] = []
        for version, (server, server_secrets) in enumerate(secrets.items(), last - len(secrets) + 1):
            name, kind = _row_key(server)
            sealed = seal(
                self._keys.first, SealLocation(self._id, name, kind, version), _encode_secrets(server, server_secrets)
            )
            rows.append([name, kind, version, sealed.key_id, sealed.wrapped, sealed.content])
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._query(sql.INSERT_ALL, *self._member, *columns)
        found_rows = {(name, kind, version) for name, kind, version, *_ in await self._query(sql.ROWS, None)}
        if found_rows != {(row[0], row[1], row[2]) for row in rows}:
            raise StoreError(f"the vault {self._database.name} has secrets already, or this member is gone")
        for row, server_secrets in zip(rows, secrets.values(), strict=True):
            self._store_known_row(row, KnownRow(row[2], server_secrets))

    async def rotate(self) -> RotationProgress:
        """Have all rows sealed with the first key; return how many are. Other members read and write meanwhile.

        Only the keys of rows are encrypted again: content and version stay, so what members know stays true. What was
        done before an interruption stays done, and is not done again. Raises VaultError.
        """
        last_key = ("", "")
        while True:
            rows, progress = await self._run_exclusively(partial(self._rotate_slice, *last_key))
            log.info("vault rows sealed with the first key", done=progress.done, all=progress.all)
            if not rows:
                return progress
            last_key = (rows[-1][0], rows[-1][1])

    async def _rotate_slice(self, *after: str) -> tuple[list[Row], RotationProgress]:
        """Encrypt the keys of the next rows after a name and kind with the first key; return rows and progress."""
        rows = await self._query(sql.OTHERS, self._keys.first.id, *after, SLICE_ROWS)
        if rows:
            await self._rewrap(rows)
        [counts] = await self._query(sql.COUNTS, self._keys.first.id)
        return rows, RotationProgress(*counts)

    async def _rewrap(self, rows: Sequence[Row]) -> None:
        """Encrypt the keys of some rows with the first key of the vault. Raises VaultError, Overtaken if gone."""
        rewrapped_keys: list[tuple[str, str, int, bytes]] = []
        for row in rows:
            self._require_readable(row)
            name, kind, version, key_id, wrapped, content = row
            old = self._keys.find(key_id)
            assert old is not None, "it is readable"
            location = SealLocation(self._id, name, kind, version)
            rewrapped = rewrap(old, self._keys.first, location, SealedSecret(key_id, wrapped, content))
            rewrapped_keys.append((name, kind, version, rewrapped.wrapped))
        columns = [list(column) for column in zip(*rewrapped_keys, strict=True)]
        if not await self._query(sql.REWRAP, *self._member, self._keys.first.id, *columns):
            raise self._overtaken_error("servers", gone=True)

    async def _run_exclusively(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that needs the connection while no other work does. Raises VaultError after `timeout_s`."""
        try:
            async with asyncio.timeout(self._timeout_s), self._lock:
                return await work()
        except TimeoutError:
            raise VaultError(f"the vault {self._database.name} has not answered for {self._timeout_s:g} s") from None

    async def _query(self, query: str, *arguments: Any) -> list[Row]:
        """Return the rows of a statement that may be run twice, over a connection that is made again if need be.

        Raises VaultError for an error that another attempt would not mend. Else this tries on without end: the caller
        limits the time (`_run_exclusively`).
        """
        while True:
            is_new = self._connection is None
            try:
                connection = self._connection = self._connection or await _run_to_end(
                    self._database.connect(), DatabaseConnection.terminate
                )
                return await _run_to_end(connection.fetch(self._fill_query(query), *arguments))
            except (StoreUnavailable, *ERRORS) as error:
                # Also a connection that is still busy for a cancelled caller: it takes nothing else meanwhile.
                self._drop_connection()
                if is_failure_certain(error.__cause__ or error):
                    raise VaultError(str(as_store_error(self._database.name, error))) from error
                if is_new:
                    await asyncio.sleep(RETRY_S)

    def _fill_query(self, query: str) -> str:
        """Return a query with the schema, the longest value, and the condition that this member is of the fleet."""
        query = query.replace("{alive}", self._member_condition).replace("{longest}", str(sql.LONGEST))
        return self._database.for_schema(query)

    def _drop_connection(self) -> None:
        """Close the connection at once; the next query makes a new one."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*ERRORS):
                await connection.close(timeout=CONNECT_S)


async def _run_to_end(work: Coroutine[Any, Any, T], release_result: Callable[[T], None] = lambda _: None) -> T:
    """Wait for work of asyncpg, and return its result. If the caller is cancelled, the work goes on in the background.

    Then `release_result` gets the result. Work of asyncpg that is cancelled in the middle would leave futures with
    errors that no code retrieves, and asyncio logs these.
    """

    def release_when_done(task: asyncio.Task[T]) -> None:
        """Release the result of work that has ended without an error."""
        if not task.cancelled() and task.exception() is None:
            release_result(task.result())

    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(release_when_done)
        raise


def _row_key(server: str) -> tuple[str, str]:
    """Return name and kind of the row with the secrets of `server`, which is NAME or NAME/KIND."""
    name, _, kind = server.partition("/")
    return name, kind or DEFAULT_KIND


def _encode_secrets(server: str, secrets: Secrets) -> bytes:
    """Return secrets as the bytes that are sealed. Raises VaultError if they are too long."""
    content = payload.dumps(secrets)
    if len(content) > sql.CONTENT_BYTES:
        raise VaultError(f"the secrets of {server} have {len(content)} bytes; at most {sql.CONTENT_BYTES} are kept")
    return content


def _legible(text: str) -> str:
    """Return the first 64 characters of a text of the database, with `?` in place of what is not legible."""
    return NOT_LEGIBLE.sub("?", text[:64])


def _describe_rows(rows: Iterable[Row]) -> str:
    """Return a phrase for people that names the first _MAX_NAMED of these rows, and says how many more there are."""
    names = [f"{_legible(row[0])} ({_legible(row[1])})" for row in rows]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"the rows of {', '.join(names[:_MAX_NAMED])}{more}"


def _damage_message(vault: str, rows: Sequence[Row]) -> str:
    """Return the message of the error for rows that cannot be opened."""
    return (
        f"{_describe_rows(rows)} in the vault {vault} cannot be opened: they were changed, or are from another place"
        " or time. Look who changes the database; put them back from a backup, or delete them, and the servers ask to"
        " let the hub in again"
    )
