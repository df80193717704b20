"""The vault of a fleet: the secrets of its servers, sealed, in a table of the database.

Memory has them all, opened, so that reading needs no database. It is read anew for a server where another member may
have written: when the server is taken, and before its tokens are renewed. A write names the version that it goes over,
and is refused to a member that is gone. The version is part of what is sealed, and none is ever given twice.
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
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, DatabaseConnection, failed, is_certain
from hubbubd.store.vault.encryption import (
    ID_DIGITS,
    SealedSecret,
    SealLocation,
    UnreadableSecret,
    opened,
    rewrapped,
    seal,
)
from hubbubd.store.vault.keys import SETTING, VaultKeys

AGAIN_S: Final = 0.25
"""Seconds between attempts to reach the database again."""

ACCESS: Final = "oauth"
"""The kind of what is kept under the plain name of a server; that under `NAME/KIND` has its own."""

SLICE: Final = 100
"""Rows that are sealed anew in one statement."""

_KEY_ID: Final = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")

_NAMED: Final = 5
"""How many rows a message names."""

log = structlog.get_logger(__name__)

Secrets = dict[str, Any]
Row = Sequence[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownRow:
    """What this member knows of a row: its version, and what it has; None once it is deleted."""

    version: int
    secrets: Secrets | None = field(repr=False)

    @property
    def there(self) -> int:
        """The version of the row; 0 if there is none."""
        return 0 if self.secrets is None else self.version


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows are sealed with the first key, of how many."""

    done: int
    all: int


class PostgresVault:
    """The vault in a database; implements `upstream.ports.Vault`. `open` makes one.

    `patience_s` is how long a reading or a writing waits for a database that is away.
    """

    def __init__(
        self, database: Database, keys: VaultKeys, member: tuple[str, int] | None, patience_s: float = 5.0
    ) -> None:
        self._database = database
        self._keys = keys
        self._member = member or (None, None)
        self._alive = sql.OF_A_MEMBER if member else sql.OF_NOBODY
        self._patience_s = patience_s
        self._turn = anyio.Lock()
        self._link: DatabaseConnection | None = None
        self._id = ""
        self._kept: dict[str, dict[str, KnownRow]] = {}
        self._unsure: dict[tuple[str, str], set[int]] = {}
        """Versions of a row (0: deleted) that were written without an answer of the database."""

    @classmethod
    async def open(
        cls, settings: StoreSettings, keys: VaultKeys, member: str | None = None, life: int | None = None
    ) -> Self:
        """Open the vault in the schema of an open store, made if missing, and read all of it.

        It writes as this life of a member; without one, as a program beside which no member lives. Raises ConfigError
        when a row is sealed with a key that is not known here, StoreError for a row that is damaged, StoreUnavailable.
        """
        assert settings.url is not None
        database = Database(settings.url.get_secret_value(), settings.schema_name, settings.password())
        who = None if member is None or life is None else (member, life)
        vault = cls(database, keys, who, settings.unavailable_after_s)
        try:
            await vault._load()
        except BaseException:
            await vault.close()
            raise
        return vault

    async def _load(self) -> None:
        schema = self._database.schema
        try:
            link = self._link = await self._database.connected()
            async with link.transaction():
                # Members may start at the same time.
                await link.execute(sql.LOCK, schema)
                if await link.fetchval("SELECT to_regclass($1)", f"{schema}.vault") is None:
                    await link.execute(self._text(sql.TABLES))
            self._id = await link.fetchval(self._text(sql.ID))
            rows = await link.fetch(self._text(sql.ROWS), None)
        except ERRORS as error:
            raise failed(self._database.name, error) from error
        self._require_keys(rows)
        damaged: list[Row] = []
        for row in rows:
            try:
                self._take(row, self._opened(row))
            except UnreadableSecret:
                damaged.append(row)
        if damaged:
            raise StoreError(_damaged(self._database.name, damaged))

    def _require_keys(self, rows: Sequence[Row]) -> None:
        """Raise ConfigError if a row is sealed with a key that is not here."""
        unknown = [row for row in rows if self._lacks_key(row)]
        if not unknown:
            return
        key_id = unknown[0][3]
        of_it = [row for row in unknown if row[3] == key_id]
        delete = f"DELETE FROM \"{self._database.schema}\".vault WHERE key_id = '{key_id}'"  # noqa: S608 - for people
        raise ConfigError(
            SETTING,
            f"{_named(of_it)} in the vault {self._database.name}: sealed with the key {key_id}, which is not in"
            f" {self._keys.origin}; that has {', '.join(key.id for key in self._keys.keys)}. Add the key as another"
            f" line. If it is lost, so is what it sealed: `{delete}`. Then these servers ask to let the hub in again,"
            " and those that were added over the API have to be updated with their secrets",
        )

    def _lacks_key(self, row: Row) -> bool:
        """Return whether a row is sealed with a key that is not here; what is no key's id is damage."""
        return self._keys.find(row[3]) is None and _KEY_ID.fullmatch(row[3]) is not None

    def get(self, server: str) -> Secrets | None:
        """Return the secrets kept for a server, as far as this member knows, or None."""
        name, kind = _row_of(server)
        kept = self._kept.get(name, {}).get(kind)
        return kept.secrets if kept is not None else None

    async def put(self, server: str, secrets: Secrets | None) -> None:
        """Replace the secrets kept for a server, None removes them; durable on return, and not undone by cancelling.

        Raises VaultError, and Overtaken when this member does not know what is there now, or is gone.
        """
        content = None if secrets is None else _content(server, secrets)
        # A token that was renewed is lost if it is not kept now: the old one is used up.
        with anyio.CancelScope(shield=True):
            await self._in_turn(partial(self._put, *_row_of(server), secrets, content))

    async def _put(self, name: str, kind: str, secrets: Secrets | None, content: bytes | None) -> None:
        kept = self._kept.get(name, {}).get(kind) or KnownRow(0, None)
        known, fresh = kept.there, 0
        sealed: list[Any] = []
        if content is not None:
            [(fresh,)] = await self._run(sql.FRESH, kept.version, 1)
            row = seal(self._keys.first, SealLocation(self._id, name, kind, fresh), content)
            sealed = [fresh, row.key_id, row.wrapped, row.content]
        unsure = self._unsure.setdefault((name, kind), set())
        unsure.add(fresh)
        while not await self._written(name, kind, known, sealed):
            [(alive, there)] = await self._run(sql.LOOK, *self._member, name, kind)
            if there == fresh:
                break  # written by an attempt whose answer was lost; or somebody else has deleted it
            if not alive or there not in unsure:
                unsure.discard(fresh)
                raise self._overtaken(name, gone=not alive)
            known = there
        del self._unsure[name, kind]
        self._kept.setdefault(name, {})[kind] = KnownRow(fresh or kept.version, secrets)

    async def _written(self, name: str, kind: str, known: int, sealed: Sequence[Any]) -> bool:
        """Write a row over the version that is known; return whether that was there, and this member is not gone."""
        if not sealed:
            return bool(await self._run(sql.DELETE, *self._member, name, kind, known))
        if not known:
            return bool(await self._run(sql.INSERT, *self._member, name, kind, *sealed))
        return bool(await self._run(sql.UPDATE, *self._member, name, kind, *sealed, known))

    def _overtaken(self, name: str, *, gone: bool) -> Overtaken:
        if gone:
            return Overtaken(f"the secrets of {name} were not kept: this member is gone, and its servers are others'")
        return Overtaken(f"the secrets of {name} were not kept: another member has written them since")

    async def refresh(self, *servers: str) -> None:
        """Read anew all that is kept for servers. Raises VaultError, also for a row that is older than one known."""
        await self._in_turn(partial(self._refresh, [_row_of(server)[0] for server in servers]))

    async def _refresh(self, names: Sequence[str]) -> None:
        found: list[tuple[Row, KnownRow]] = []
        for row in await self._run(sql.ROWS, names):
            found.append((row, kept := self._readable(row)))
            known = self._kept.get(row[0], {}).get(row[1])
            if known is not None and kept.version < known.version:
                raise VaultError(
                    f"{_named([row])} in the vault {self._database.name} was put back: it has version {kept.version},"
                    f" and this member knows {known.version}. Restart all members if the database was restored; else"
                    " look who changes it"
                )
        for name in names:
            kinds = self._kept.get(name, {})
            self._kept[name] = {kind: KnownRow(kept.version, None) for kind, kept in kinds.items()}
        for row, kept in found:
            self._take(row, kept)

    def _readable(self, row: Row) -> KnownRow:
        """Return what a row has. Raises VaultError."""
        if self._lacks_key(row):
            raise VaultError(
                f"{_named([row])} in the vault {self._database.name}: sealed with the key {row[3]}, which is not in"
                f" {self._keys.origin}; add it there, and restart this member"
            )
        try:
            return self._opened(row)
        except UnreadableSecret:
            raise VaultError(_damaged(self._database.name, [row])) from None

    def _opened(self, row: Row) -> KnownRow:
        """Return what a row has. Raises Unreadable."""
        name, kind, version, key_id, wrapped, content = row
        key = self._keys.find(key_id)
        if key is None or wrapped is None or content is None:  # None: longer than any that was written
            raise UnreadableSecret
        plain = opened(key, SealLocation(self._id, name, kind, version), SealedSecret(key_id, wrapped, content))
        return KnownRow(version, cast("Secrets", payload.loads(plain)))

    def _take(self, row: Row, kept: KnownRow) -> None:
        self._kept.setdefault(row[0], {})[row[1]] = kept

    def all(self) -> dict[str, Secrets]:
        """Return all secrets by the names under which they are kept, as this member knows them."""
        return {
            name if kind == ACCESS else f"{name}/{kind}": kept.secrets
            for name, kinds in self._kept.items()
            for kind, kept in kinds.items()
            if kept.secrets is not None
        }

    async def put_all(self, secrets: Mapping[str, Secrets]) -> None:
        """Keep all these secrets, or none, in a vault that is empty. Raises StoreError if it is not, and VaultError."""
        await self._in_turn(partial(self._put_all, secrets))

    async def _put_all(self, secrets: Mapping[str, Secrets]) -> None:
        if not secrets:
            return
        [(last,)] = await self._run(sql.FRESH, 0, len(secrets))
        rows: list[list[Any]] = []
        for version, (server, each) in enumerate(secrets.items(), last - len(secrets) + 1):
            name, kind = _row_of(server)
            sealed = seal(self._keys.first, SealLocation(self._id, name, kind, version), _content(server, each))
            rows.append([name, kind, version, sealed.key_id, sealed.wrapped, sealed.content])
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._run(sql.INSERT_ALL, *self._member, *columns)
        there = {(name, kind, version) for name, kind, version, *_ in await self._run(sql.ROWS, None)}
        if there != {(row[0], row[1], row[2]) for row in rows}:
            raise StoreError(f"the vault {self._database.name} has secrets already, or this member is gone")
        for row, each in zip(rows, secrets.values(), strict=True):
            self._take(row, KnownRow(row[2], each))

    async def rotate(self) -> Rotated:
        """Have all rows sealed with the first key; return how many are. Others read and write meanwhile.

        Only the keys of rows are wrapped anew: content and version stay, so whoever knows a row still does. What was
        done before an interruption stays done, and is not done again. Raises VaultError.
        """
        after = ("", "")
        while True:
            rows, counted = await self._in_turn(partial(self._rotate_slice, *after))
            log.info("vault rows sealed with the first key", done=counted.done, all=counted.all)
            if not rows:
                return counted
            after = (rows[-1][0], rows[-1][1])

    async def _rotate_slice(self, *after: str) -> tuple[list[Row], Rotated]:
        rows = await self._run(sql.OTHERS, self._keys.first.id, *after, SLICE)
        if rows:
            await self._rewrap(rows)
        [counts] = await self._run(sql.COUNTS, self._keys.first.id)
        return rows, Rotated(*counts)

    async def _rewrap(self, rows: Sequence[Row]) -> None:
        new: list[tuple[str, str, int, bytes]] = []
        for row in rows:
            self._readable(row)
            name, kind, version, key_id, wrapped, content = row
            old = self._keys.find(key_id)
            assert old is not None, "it is readable"
            place = SealLocation(self._id, name, kind, version)
            fresh = rewrapped(old, self._keys.first, place, SealedSecret(key_id, wrapped, content))
            new.append((name, kind, version, fresh.wrapped))
        columns = [list(column) for column in zip(*new, strict=True)]
        if not await self._run(sql.REWRAP, *self._member, self._keys.first.id, *columns):
            raise self._overtaken("servers", gone=True)

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what needs the database, alone. Raises VaultError when its time is over."""
        try:
            async with asyncio.timeout(self._patience_s), self._turn:
                return await work()
        except TimeoutError:
            raise VaultError(f"the vault {self._database.name} has not answered for {self._patience_s:g} s") from None

    async def _run(self, query: str, *words: Any) -> list[Row]:
        """Return the rows of a statement that may be run twice, over a connection that is made again if need be.

        Raises VaultError for what another attempt would not mend.
        """
        while True:
            fresh = self._link is None
            try:
                link = self._link = self._link or await _whole(self._database.connected(), _end)
                return await _whole(link.fetch(self._text(query), *words))
            except (StoreUnavailable, *ERRORS) as error:
                # Also one that is still at work for somebody who was cancelled: it takes nothing else meanwhile.
                self._cut()
                if is_certain(error.__cause__ or error):
                    raise VaultError(str(failed(self._database.name, error))) from error
                if fresh:
                    await asyncio.sleep(AGAIN_S)

    def _text(self, query: str) -> str:
        query = query.replace("{alive}", self._alive).replace("{longest}", str(sql.LONGEST))
        return self._database.sql(query)

    def _cut(self) -> None:
        if self._link is not None:
            self._link.terminate()
            self._link = None

    async def close(self) -> None:
        """End the connection."""
        link, self._link = self._link, None
        if link is not None:
            with suppress(*ERRORS):
                await link.close(timeout=CONNECT_S)


async def _whole(work: Coroutine[Any, Any, T], let_go: Callable[[T], None] = lambda _: None) -> T:
    """Wait for work of the library that goes on when this is cancelled; then `let_go` gets what came of it.

    Cancelled in the middle, the library leaves futures behind whose errors nobody takes, and they are logged.
    """

    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            let_go(task.result())

    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(ended)
        raise


def _end(link: DatabaseConnection) -> None:
    link.terminate()


def _row_of(server: str) -> tuple[str, str]:
    """Return the name and the kind of the row of what is kept under `server`."""
    name, _, kind = server.partition("/")
    return name, kind or ACCESS


def _content(server: str, secrets: Secrets) -> bytes:
    """Return secrets as they are sealed. Raises VaultError if they are too long."""
    content = payload.dumps(secrets)
    if len(content) > sql.CONTENT_BYTES:
        raise VaultError(f"the secrets of {server} have {len(content)} bytes; at most {sql.CONTENT_BYTES} are kept")
    return content


def _legible(text: str) -> str:
    return NOT_LEGIBLE.sub("?", text[:64])


def _named(rows: Iterable[Row]) -> str:
    names = [f"{_legible(row[0])} ({_legible(row[1])})" for row in rows]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"the rows of {', '.join(names[:_NAMED])}{more}"


def _damaged(vault: str, rows: Sequence[Row]) -> str:
    return (
        f"{_named(rows)} in the vault {vault} cannot be opened: they were changed, or are from another place or time."
        " Look who changes the database; put them back from a backup, or delete them, and the servers ask to let the"
        " hub in again"
    )
