"""The store in a schema of a PostgreSQL database. A group of commits is one call of one function, so one round trip.

One hub at a time: it holds an advisory lock, and each commit checks that no other hub has opened the store since.
Whatever became of a group whose connection broke is found out before the next one begins.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import anyio
import orjson
from anyio import to_thread

from hubbubd.store import (
    Commit,
    Compacted,
    Conflict,
    Entry,
    Guard,
    OutcomeUnknown,
    Snapshot,
    StoreLocked,
    StoreStats,
    StoreUnavailable,
    Write,
)
from hubbubd.store import postgres_sql as sql
from hubbubd.store.copy import written
from hubbubd.store.grouped import Begun, GroupedStore, Outcome
from hubbubd.store.postgres_link import ERRORS, Database, Link, failed, is_certain

AGAIN_S = 0.25
"""Seconds between attempts to reach the database again."""

TERMINATED_S = 5.0
"""Seconds that the server has for ending the session that this hub has lost."""

_OWN_LOCK = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.classid = (hashtext('hubbub')::bigint & 4294967295)::oid
  AND l.objid = (hashtext($1)::bigint & 4294967295)::oid AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresStore(GroupedStore):
    """A `Store` in PostgreSQL. Belongs to the event loop that opened it; `open` makes one.

    `patience_s` is how long a commit or a read waits for a database that is away. A commit whose time is over may
    still happen (OutcomeUnknown); then listeners are told as of any other.
    """

    def __init__(self, database: Database, link: Link, directory: Path, patience_s: float) -> None:
        super().__init__(0)
        self._database = database
        self._sql = database.sql
        self._link: Link | None = link
        self._reader: Link | None = None
        self._reading = anyio.Lock()
        self._directory = directory
        self._patience_s = patience_s
        self._told = asyncio.Event()
        self._replaced: StoreUnavailable | None = None
        self._group: asyncio.Task[list[Outcome]] | None = None
        self._id = ""
        self._life = 0

    @classmethod
    async def open(
        cls, url: str, *, schema: str = "hubbub", password: str | None = None, directory: Path, patience_s: float = 5.0
    ) -> Self:
        """Open the store in a schema of a database, made if missing. `directory` is where copies are made.

        Raises StoreLocked when another hub has it open, StoreTooNew, and StoreUnavailable when the database cannot be
        reached or does not fit.
        """
        database = Database(url, schema, password)
        link = await database.connected()
        store = cls(database, link, directory, patience_s)
        try:
            await store._take_over(link)
        except ERRORS as error:
            link.terminate()
            raise failed(store.name, error) from error
        except BaseException:
            link.terminate()
            raise
        return store

    async def _take_over(self, link: Link) -> None:
        await self._database.check(link)
        if not await link.fetchval(sql.LOCK, self._database.schema):
            raise StoreLocked(f"the store {self.name} is in use by another hub; stop it, or choose another schema")
        async with link.transaction():
            if await link.fetchval("SELECT to_regclass($1)", f"{self._database.schema}.meta") is None:
                await link.execute(self._sql(sql.TABLES))
            version = await link.fetchval(self._sql("SELECT version FROM {schema}.meta"))
            self._database.recognise(version)
            await link.execute(self._sql(sql.FUNCTION))
            [(self._id, self._revision, self._life)] = await link.fetch(self._sql(sql.TAKE_OVER))

    @property
    def name(self) -> str:
        """The address of the database and the schema, without a password."""
        return self._database.name

    @property
    def id(self) -> str:
        """A random id from the store's creation; part of every resume token."""
        return self._id

    async def commit(self, writes: Sequence[Write], guards: Sequence[Guard] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        As for any store; a key has no NUL, or else it raises ValueError. Raises OutcomeUnknown when the database has
        not answered in time.
        """
        if any("\0" in write.key for write in writes):
            raise ValueError("a key has a NUL, which PostgreSQL does not keep")
        try:
            async with asyncio.timeout(self._patience_s):
                return await super().commit(writes, guards)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the store {self.name} has not answered for {self._patience_s:g} s; whether this was kept will show"
            ) from None

    def _apply(self, group: Sequence[Begun]) -> "asyncio.Future[list[Outcome]]":
        self._group = self._loop.create_task(self._applied(group))
        return self._group

    async def _applied(self, group: Sequence[Begun]) -> list[Outcome]:
        newest = [{write.key: write for write in begun.writes} for begun in group]
        words = _words(group, newest)
        while True:
            link = self._link or await self._again()
            op = uuid.uuid4()
            try:
                found = await link.fetchval(self._sql(sql.APPLY), op, self._life, *words)
            except ERRORS as error:
                if is_certain(error):
                    raise self._refused(error) from error
                found = await self._settled(op)
            if found is not None:
                return [_outcome(*each) for each in zip(newest, orjson.loads(found), strict=True)]

    async def _settled(self, op: uuid.UUID) -> str | None:
        """Return what became of a group whose connection broke; None if it has not happened, and never will."""
        while True:
            link = await self._again()
            try:
                await link.execute(self._sql(sql.SETTLE), op, self._life)
                rows = await link.fetch(self._sql(sql.SETTLED), op)
            except ERRORS as error:
                if is_certain(error):
                    raise self._refused(error) from error
                continue
            if not rows:
                raise self._gone()
            return rows[0][0]

    async def _again(self) -> Link:
        """Connect anew for commits, however long that takes. Raises StoreUnavailable if the store is not ours any more.

        While the store closes, it is tried for `patience_s` seconds.
        """
        if self._link is not None:
            self._link.terminate()
            self._link = None
        closing_at: float | None = None
        while True:
            if self._replaced:
                raise self._replaced
            try:
                link = await self._database.connected()
                await self._hold(link)
            except (StoreUnavailable, *ERRORS) as error:
                if self._replaced:
                    raise self._replaced from error
                now = self._loop.time()
                closing_at = closing_at or (now if self._closing else None)
                if closing_at is not None and now > closing_at + self._patience_s:
                    raise failed(self.name, error) from error
                await asyncio.sleep(AGAIN_S)
                continue
            self._link = link
            return link

    async def _hold(self, link: Link) -> None:
        """Take the lock again. As long as nobody else has opened the store, whoever has it is our own lost session."""
        async with asyncio.timeout(TERMINATED_S):
            while True:
                if await link.fetchval(self._sql("SELECT life FROM {schema}.meta")) != self._life:
                    link.terminate()
                    raise self._gone()
                if await link.fetchval(sql.LOCK, self._database.schema):
                    return
                await link.execute(_OWN_LOCK, self._database.schema)
                await asyncio.sleep(AGAIN_S)

    def _refused(self, error: BaseException) -> StoreUnavailable:
        if getattr(error, "sqlstate", None) == sql.REPLACED:
            return self._gone()
        return failed(self.name, error)

    def _gone(self) -> StoreUnavailable:
        self._replaced = StoreUnavailable(
            f"another hub has taken over the store {self.name}; this one keeps nothing more"
        )
        return self._replaced

    def _tell(self, commit: Commit) -> None:
        super()._tell(commit)
        self._told.set()
        self._told = asyncio.Event()

    async def _read(self, query: str, *words: Any) -> list[Sequence[Any]]:
        """Run a query over the connection for reading, which is made again if need be. Raises StoreUnavailable."""
        if self._closing:
            raise self._closed()
        try:
            async with asyncio.timeout(self._patience_s), self._reading:
                for attempt in range(2):
                    if self._reader is None or self._reader.is_closed():
                        self._reader = await self._database.connected()
                    try:
                        return await self._reader.fetch(self._sql(query), *words)
                    except ERRORS as error:
                        self._reader.terminate()
                        self._reader = None
                        if is_certain(error) or attempt:
                            raise failed(self.name, error) from error
        except TimeoutError:
            raise StoreUnavailable(f"the store {self.name} has not answered for {self._patience_s:g} s") from None
        raise AssertionError

    async def _heard(self, revision: int) -> None:
        """Wait until listeners have heard of a revision that was read; its commit has not returned yet."""
        try:
            async with asyncio.timeout(self._patience_s):
                while self._revision < revision:
                    await self._told.wait()
        except TimeoutError:
            raise StoreUnavailable(f"the store {self.name} has not answered for {self._patience_s:g} s") from None

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        rows = await self._read(sql.ENTRIES, prefix)
        revision: int = rows[0][0]
        await self._heard(revision)
        found = [row for row in rows if row[1] is not None]
        entries = tuple(Entry(key, value, at) for _, key, at, value in found if value is not None)
        deleted = sorted((at, key) for _, key, at, value in found if value is None)
        return Snapshot(revision, entries, tuple((key, at) for at, key in deleted))

    async def _changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        rows = await self._read(sql.CHANGES, prefix, after)
        revision, compacted = rows[0][0], rows[0][1]
        if not compacted <= after <= revision:
            raise Compacted(compacted)
        await self._heard(revision)
        commits: dict[int, list[Write]] = {}
        for _, _, at, key, value in rows:
            if key is not None:
                commits.setdefault(at, []).append(Write(key, value))
        return revision, [Commit(at, tuple(writes)) for at, writes in commits.items()]

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`; watches can no longer resume from before it."""
        await self._read(sql.COMPACT, revision, self._life)

    async def reclaim(self) -> None:
        """Let the database use the space of what was deleted again. It erases nothing. Raises StoreUnavailable."""
        await self._read("VACUUM {schema}.entries")

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open SQLite file without a name, as the store of a hub without a database.

        It has no id: it gets one where it is opened. Raises NoRoom and StoreUnavailable.
        """
        snapshot = await self.snapshot()
        compacted = (await self.stats()).compacted_revision
        return await to_thread.run_sync(written, self._directory / "postgres.copy", snapshot, compacted)

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        [(revision, compacted, keys, rows, size)] = await self._read(sql.STATS)
        return StoreStats(
            id=self._id,
            revision=revision,
            compacted_revision=compacted,
            size_bytes=size,
            keys=keys,
            deletions=rows - keys,
            free_bytes=0,
        )

    async def probe(self) -> None:
        """Do all that a commit does without a change. Raises StoreUnavailable if a commit could not succeed."""
        if self._replaced:
            raise self._replaced
        await self._read(sql.PROBE, self._life)

    async def _release(self) -> None:
        for link in (self._link, self._reader):
            if link is not None:
                with suppress(*ERRORS):
                    await link.close(timeout=self._patience_s)


def _words(group: Sequence[Begun], newest: Sequence[dict[str, Write]]) -> list[list[Any]]:
    """Return the arguments of `apply` for a group: flat lists, and where each commit's part of them ends."""
    guards_to: list[int] = []
    writes_to: list[int] = []
    guards: list[Guard] = []
    writes: list[Write] = []
    for begun, new in zip(group, newest, strict=True):
        guards += begun.guards
        writes += new.values()
        guards_to.append(len(guards))
        writes_to.append(len(writes))
    return [
        guards_to,
        [guard.key for guard in guards],
        [guard.revision for guard in guards],
        writes_to,
        [write.key for write in writes],
        [write.value for write in writes],
    ]


def _outcome(newest: dict[str, Write], found: list[Any]) -> Outcome:
    if len(found) == 1:
        return Conflict(found[0])
    revision, unchanged = found
    return Commit(revision, tuple(write for key, write in newest.items() if key not in unchanged))
