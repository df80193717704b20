"""The store in a schema of a PostgreSQL database. A group of commits is one call of one function, so one round trip.

One hub alone, or the members of a fleet (`identity`). Others' commits come with the replies to one's own, and by
looks while one has none under way (`notices`). Whatever became of a group whose connection broke is found out
before the next one begins.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import anyio
import orjson
from anyio import to_thread

from hubbubd.store import (
    Commit,
    Compacted,
    KeyValue,
    OutcomeUnknown,
    Precondition,
    Snapshot,
    StoreStats,
    StoreUnavailable,
    Write,
    WriteConflict,
)
from hubbubd.store.group_commit import Applied, GroupedStore, Outcome, QueuedCommit
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import ERRORS, Database, DatabaseConnection, failed, is_certain
from hubbubd.store.postgres.identity import AGAIN_S, Entrant, MemberIdentity
from hubbubd.store.postgres.notices import NoticeListener, RevisionDelta, commits_of, look
from hubbubd.store.sqlite.backup import written

REPLY_S: Final = 20.0
"""Seconds for the reply to a group; its connection is given up then, and what became of it is found out."""


class PostgresStore(GroupedStore):
    """A `Store` in PostgreSQL. Belongs to the event loop that opened it; `open` makes one.

    `patience_s` is how long a commit or a read waits for a database that is away. A commit whose time is over may
    still happen (OutcomeUnknown); then listeners are told as of any other. Once this hub is gone, says the database,
    all raise Expelled.

    Until somebody listens or commits, others' commits are left where they are: listening starts from the newest
    snapshot.
    """

    def __init__(self, place: MemberIdentity, link: DatabaseConnection, directory: Path, patience_s: float) -> None:
        super().__init__(place.seen[0])
        self.place = place
        self._sql = place.database.sql
        self._link: DatabaseConnection | None = link
        self._reader: DatabaseConnection | None = None
        self._reading = anyio.Lock()
        self._directory = directory
        self._patience_s = patience_s
        self._moved = asyncio.Event()
        self._newest = place.seen[1]
        self._group: asyncio.Task[Applied] | None = None
        self._listener = NoticeListener(place, lambda: self._revision, self._found) if place.entrant else None
        self._listening: asyncio.Task[None] | None = None
        place.on_end(self._pulse)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = "hubbub",
        password: str | None = None,
        directory: Path,
        patience_s: float = 5.0,
        member: Entrant | None = None,
    ) -> Self:
        """Open the store in a schema of a database, made if missing, alone or as a member of a fleet.

        `directory` is the data directory, which this process has for itself. Raises StoreLocked when another hub that
        goes on keeps this one out, StoreTooNew, and StoreUnavailable when the database cannot be reached or does not
        fit.
        """
        database = Database(url, schema, password)
        link = await database.connected()
        place = MemberIdentity(database, member, directory)
        try:
            await place.take(link)
        except ERRORS as error:
            link.terminate()
            raise failed(database.name, error) from error
        except BaseException:
            link.terminate()
            raise
        return cls(place, link, directory, patience_s)

    @property
    def name(self) -> str:
        """The address of the database and the schema, without a password."""
        return self.place.database.name

    @property
    def id(self) -> str:
        """A random id from the store's creation; part of every resume token."""
        return self.place.store_id

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        As for any store; a key has no NUL and at most KEY_BYTES bytes, or else it raises ValueError. Raises
        OutcomeUnknown when the database has not answered in time.
        """
        for each in (*writes, *guards):  # one of those would fail all commits of its group
            if wrong := sql.unfit(each.key):
                raise ValueError(f"a key {wrong}")
        self.place.require()
        try:
            async with asyncio.timeout(self._patience_s):
                return await super().commit(writes, guards)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the store {self.name} has not answered for {self._patience_s:g} s; whether this was kept will show"
            ) from None

    def _apply(self, group: Sequence[QueuedCommit]) -> "asyncio.Future[Applied]":
        self._group = self._loop.create_task(self._applied(group))
        return self._group

    async def _applied(self, group: Sequence[QueuedCommit]) -> Applied:
        newest = [{write.key: write for write in begun.writes} for begun in group]
        words = _words(group, newest)
        while True:
            link = self._link or await self._again()
            op = uuid.uuid4()
            try:
                async with asyncio.timeout(REPLY_S):
                    [row] = await link.fetch(self._sql(sql.APPLY), op, *self._own, self._revision, *words)
            except ERRORS as error:  # TimeoutError is an OSError
                if is_certain(error):
                    if getattr(error, "sqlstate", None) == sql.BEHIND:
                        await self._again()
                    raise self.place.refused(error) from error
                if (applied := await self._settled(op, newest)) is not None:
                    return applied
                continue
            found, self._newest, *foreign = row
            before = commits_of(list(zip(*foreign, strict=True))) if foreign[0] else ()
            return Applied(_outcomes(newest, found), before)

    @property
    def _own(self) -> tuple[str, int]:
        return self.place.name, self.place.life

    async def _settled(self, op: uuid.UUID, newest: Sequence[dict[str, Write]]) -> Applied | None:
        """Return what became of a group whose connection broke; None if it has not happened, and never will."""
        while True:
            link = await self._again()
            try:
                async with asyncio.timeout(REPLY_S):
                    await link.execute(self._sql(sql.SETTLE), op, *self._own)
                    rows = await link.fetch(self._sql(sql.SETTLED), op)
                    if not rows:
                        raise self.place.expelled()
                    if rows[0][0] is None:
                        return None
                    cut = await look(self.place, link, self._revision)
            except ERRORS as error:
                if is_certain(error):
                    raise self.place.refused(error) from error
                continue
            self._newest = cut.op
            outcomes = _outcomes(newest, rows[0][0])
            own = [each.revision for each in outcomes if isinstance(each, Commit) and each.writes]
            first, last = (own[0], own[-1]) if own else (cut.revision + 1, cut.revision)
            return Applied(
                outcomes,
                [commit for commit in cut.commits if commit.revision < first],
                [commit for commit in cut.commits if commit.revision > max(first, last)],
            )

    async def _again(self) -> DatabaseConnection:
        """Connect anew for commits, however long that takes. Raises Expelled if this life is over.

        While the store closes, it is tried for `patience_s` seconds.
        """
        if self._link is not None:
            self._link.terminate()
            self._link = None
        closing_at: float | None = None
        while True:
            link: DatabaseConnection | None = None
            try:
                link = await self.place.connected()
                await self.place.hold(link)
            except (StoreUnavailable, *ERRORS) as error:
                if link is not None:
                    link.terminate()
                if isinstance(error, Expelled):
                    raise
                now = self._loop.time()
                closing_at = closing_at or (now if self._closing else None)
                if closing_at is not None and now > closing_at + self._patience_s:
                    raise failed(self.name, error) from error
                await asyncio.sleep(AGAIN_S)
                continue
            self._link = link
            self.reconnects += 1
            return link

    def _conclude(self, group: Sequence[QueuedCommit], applied: "asyncio.Future[Applied]") -> None:
        before = self._revision
        super()._conclude(group, applied)
        if applied.exception() is None:
            self.place.seen = self._revision, self._newest
        if self._listener is not None and self._revision != before:
            self._listener.committed()
            self._start_listening()
        self._pulse()

    async def _found(self, cut: RevisionDelta) -> None:
        """Tell what others have committed. While a group is under way, its reply brings that, and says what is ours."""
        while not self._idle.is_set():
            if self._revision >= cut.revision:
                return
            await self._moved.wait()
        for commit in cut.commits:
            if commit.revision > self._revision:
                self._tell(commit)
        self._reach(cut.revision, cut.op)

    def _reach(self, revision: int, op: uuid.UUID) -> None:
        if revision >= self._revision:
            self._revision = revision
            self.place.seen = revision, op
        self._pulse()

    def _pulse(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `listener` on the event loop with each durable commit, in revision order, without gaps.

        Others' commits come as well, without `ref`, as `Store.listen` says. The listener must not block or raise.
        Returns a function that unsubscribes.
        """
        self._start_listening()
        return super().listen(listener)

    def _start_listening(self) -> None:
        """Follow the commits of other members from now on, in the context of no caller."""
        if self._listener is not None and self._listening is None and not self._closing:
            self._listening = self._loop.create_task(self._listener.run(), context=self._context)
            self._listening.add_done_callback(self._check_listening_end)

    def _check_listening_end(self, listening: "asyncio.Task[None]") -> None:
        """End this term if listening has failed: the member would go on with old records."""
        if not listening.cancelled() and (fault := listening.exception()):
            self._loop.call_exception_handler({"message": "Hearing of other members failed", "exception": fault})
            self.place.end(Expelled(f"this hub cannot hear of other members' changes any more: {fault!r}"))

    async def _read(self, query: str, *words: Any) -> list[Sequence[Any]]:
        """Run a query over the connection for reading, which is made again if need be. Raises StoreUnavailable."""
        if self._closing:
            raise self._closed()
        wrong = StoreUnavailable(f"the store {self.name} has not answered for {self._patience_s:g} s")
        try:
            async with asyncio.timeout(self._patience_s), self._reading:
                while True:
                    self.place.require()
                    # One that was there may have ended long ago.
                    wait_s = AGAIN_S if self._reader is None or self._reader.is_closed() else 0.0
                    try:
                        if wait_s:
                            self._reader = await self.place.connected()
                        assert self._reader
                        return await self._reader.fetch(self._sql(query), *words)
                    except (StoreUnavailable, *ERRORS) as error:
                        wrong = self.place.refused(error)
                        if is_certain(error.__cause__ or error) or isinstance(wrong, Expelled):
                            raise wrong from error
                        self._drop_reader()
                    except BaseException:  # nobody waits for its reply any more, which may never come
                        self._drop_reader()
                        raise
                    await asyncio.sleep(wait_s)
        except TimeoutError:
            raise wrong from None

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.terminate()
            self._reader = None

    async def _heard(self, revision: int, op: uuid.UUID) -> None:
        """Wait until listeners have heard of a revision that was read. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._patience_s):
                while self._revision < revision:
                    self.place.require()
                    if not self._listeners and self._idle.is_set():
                        self._reach(revision, op)  # nobody listens yet
                        return
                    if self._listener is not None:
                        self._listener.want(revision)
                    await self._moved.wait()
        except TimeoutError:
            raise StoreUnavailable(f"the store {self.name} has not answered for {self._patience_s:g} s") from None

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        rows = await self._read(sql.ENTRIES, prefix)
        op, revision = rows[0][:2]
        await self._heard(revision, op)
        found = [row[2:] for row in rows if row[2] is not None]
        entries = tuple(KeyValue(key, value, at) for key, at, value in found if value is not None)
        deleted = sorted((at, key) for key, at, value in found if value is None)
        return Snapshot(revision, entries, tuple((key, at) for at, key in deleted))

    async def _changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        rows = await self._read(sql.CHANGES, prefix, after)
        op, revision, compacted = rows[0][:3]
        if not compacted <= after <= revision:
            raise Compacted(compacted)
        await self._heard(revision, op)
        return revision, commits_of([row[3:] for row in rows])

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`; watches can no longer resume from before it.

        Not those that another member has yet to hear of.
        """
        await self._read(sql.COMPACT, revision, *self._own, self._revision)
        begin: int | None = 0
        while begin is not None:
            [[begin]] = await self._read(sql.DELETE_TOMBSTONES, begin, sql.SLICE)
        count = sql.SLICE
        while count == sql.SLICE:
            [[count]] = await self._read(sql.DELETE_GROUPS, *self._own, self._revision, sql.SLICE)

    async def reclaim(self) -> None:
        """Let the database use the space of what was deleted again. It erases nothing. Raises StoreUnavailable."""
        await self._read("VACUUM {schema}.entries")

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open SQLite file without a name, as the store of a hub without a database.

        It has no id: it gets one where it is opened. Raises NoRoom and StoreUnavailable.
        """
        snapshot = await self.snapshot()
        compacted = min((await self.stats()).compacted_revision, snapshot.revision)  # others go on meanwhile
        return await to_thread.run_sync(written, self._directory / "postgres.copy", snapshot, compacted)

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        [(revision, compacted, keys, rows, size)] = await self._read(sql.STATS)
        return StoreStats(
            id=self.place.store_id,
            revision=revision,
            compacted_revision=compacted,
            size_bytes=size,
            keys=keys,
            deletions=rows - keys,
            free_bytes=0,
        )

    async def probe(self) -> None:
        """Do all that a commit does without a change. Raises StoreUnavailable if a commit could not succeed."""
        if not await self._read(sql.PROBE, *self._own):
            raise self.place.expelled()

    async def _release(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        for link in (self._link, self._reader):
            if link is not None:
                with suppress(*ERRORS):
                    await link.close(timeout=self._patience_s)


def _words(group: Sequence[QueuedCommit], newest: Sequence[dict[str, Write]]) -> list[list[Any]]:
    """Return the arguments of `apply` for a group: flat lists, and where each commit's part of them ends."""
    guards_to: list[int] = []
    writes_to: list[int] = []
    guards: list[Precondition] = []
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


def _outcomes(newest: Sequence[dict[str, Write]], found: str) -> list[Outcome]:
    return [_outcome(*each) for each in zip(newest, orjson.loads(found), strict=True)]


def _outcome(newest: dict[str, Write], found: list[Any]) -> Outcome:
    if len(found) == 1:
        return WriteConflict(found[0])
    revision, unchanged = found
    return Commit(revision, tuple(write for key, write in newest.items() if key not in unchanged))
