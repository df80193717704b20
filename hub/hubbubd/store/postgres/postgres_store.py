"""The store in a schema of a PostgreSQL database. A group of commits is one call of one function, so one round trip.

One hub uses it alone, or the members of a fleet do (`identity`). A member gets others' commits with the replies to its
own groups, and by queries while none is under way (`notices`). What became of a group whose connection broke is found
out before the next one begins.
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
from hubbubd.store.group_commit import AppliedGroup, GroupedStore, Outcome, QueuedCommit
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import ERRORS, Database, DatabaseConnection, as_store_error, is_failure_certain
from hubbubd.store.postgres.identity import RETRY_S, Entrant, MemberIdentity
from hubbubd.store.postgres.notices import NoticeListener, RevisionDelta, fetch_delta, group_into_commits
from hubbubd.store.sqlite.backup import write_copy

REPLY_TIMEOUT_S: Final = 20.0
"""Seconds for the reply to a group; its connection is given up then, and what became of it is found out."""


class PostgresStore(GroupedStore):
    """A `Store` in PostgreSQL. Belongs to the event loop that opened it; `open` makes one.

    `timeout_s` is how long a commit or a read waits for a database that is away. A commit whose time is over may
    still happen (OutcomeUnknown); then listeners are called as for any other. Once the database says that this hub is
    gone, all methods raise Expelled.

    Before the first listener or commit, the commits of others are not fetched: listening starts from the newest
    snapshot.
    """

    def __init__(
        self, identity: MemberIdentity, connection: DatabaseConnection, directory: Path, timeout_s: float
    ) -> None:
        super().__init__(identity.known_history[0])
        self.identity = identity
        self._statement = identity.database.for_schema
        self._connection: DatabaseConnection | None = connection
        self._read_connection: DatabaseConnection | None = None
        self._read_lock = anyio.Lock()
        self._directory = directory
        self._timeout_s = timeout_s
        self._revision_advanced = asyncio.Event()
        self._newest_op = identity.known_history[1]
        self._group: asyncio.Task[AppliedGroup] | None = None
        self._listener = (
            NoticeListener(identity, lambda: self._revision, self._publish_delta) if identity.entrant else None
        )
        self._listen_task: asyncio.Task[None] | None = None
        identity.on_end(self._wake_waiters)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = "hubbub",
        password: str | None = None,
        directory: Path,
        timeout_s: float = 5.0,
        member: Entrant | None = None,
    ) -> Self:
        """Open the store in a schema of a database, made if missing, alone or as a member of a fleet.

        `directory` is the data directory, which this process has for itself. Raises StoreLocked when another hub that
        goes on keeps this one out, StoreTooNew, and StoreUnavailable when the database cannot be reached or does not
        fit.
        """
        database = Database(url, schema, password)
        connection = await database.connect()
        identity = MemberIdentity(database, member, directory)
        try:
            await identity.enter(connection)
        except ERRORS as error:
            connection.terminate()
            raise as_store_error(database.name, error) from error
        except BaseException:
            connection.terminate()
            raise
        return cls(identity, connection, directory, timeout_s)

    @property
    def name(self) -> str:
        """The address of the database and the schema, without a password."""
        return self.identity.database.name

    @property
    def id(self) -> str:
        """A random id from the store's creation; part of every resume token."""
        return self.identity.store_id

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        Raises WriteConflict, StoreUnavailable, OutcomeUnknown when the database has not answered in time, and
        ValueError for a key with a NUL or more than KEY_BYTES bytes.
        """
        for each in (*writes, *guards):  # such a key would fail all commits of its group
            if problem := sql.explain_unfit_key(each.key):
                raise ValueError(f"a key {problem}")
        self.identity.require_alive()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await super().commit(writes, guards)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the store {self.name} has not answered for {self._timeout_s:g} s; whether this was kept will show"
            ) from None

    def _apply_group(self, group: Sequence[QueuedCommit]) -> "asyncio.Future[AppliedGroup]":
        """Begin to apply a group of commits in one transaction; return a future of what became of them."""
        self._group = self._loop.create_task(self._commit_group(group))
        return self._group

    async def _commit_group(self, group: Sequence[QueuedCommit]) -> AppliedGroup:
        """Apply a group in one round trip; if the connection breaks, find out what became of it, and try again.

        Raises StoreUnavailable, Expelled included.
        """
        writes_by_key = [{write.key: write for write in queued.writes} for queued in group]
        arguments = _apply_arguments(group, writes_by_key)
        while True:
            connection = self._connection or await self._reconnect()
            op = uuid.uuid4()
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    [row] = await connection.fetch(
                        self._statement(sql.APPLY), op, *self._member_key, self._revision, *arguments
                    )
            except ERRORS as error:  # TimeoutError is an OSError
                if is_failure_certain(error):
                    if getattr(error, "sqlstate", None) == sql.BEHIND:
                        await self._reconnect()
                    raise self.identity.as_store_error(error) from error
                if (applied := await self._find_group_outcome(op, writes_by_key)) is not None:
                    return applied
                continue
            outcomes_json, self._newest_op, *foreign_columns = row
            before = group_into_commits(list(zip(*foreign_columns, strict=True))) if foreign_columns[0] else ()
            return AppliedGroup(_read_outcomes(writes_by_key, outcomes_json), before)

    @property
    def _member_key(self) -> tuple[str, int]:
        """Name and term of this hub, by which statements find its row in `members`."""
        return self.identity.name, self.identity.term

    async def _find_group_outcome(
        self, op: uuid.UUID, writes_by_key: Sequence[dict[str, Write]]
    ) -> AppliedGroup | None:
        """Return what became of a group whose connection broke; None if it has not happened and now never can.

        Raises StoreUnavailable, Expelled included.
        """
        while True:
            connection = await self._reconnect()
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await connection.execute(self._statement(sql.SETTLE), op, *self._member_key)
                    rows = await connection.fetch(self._statement(sql.SETTLED), op)
                    if not rows:
                        raise self.identity.end_as_expelled()
                    if rows[0][0] is None:
                        return None
                    delta = await fetch_delta(self.identity, connection, self._revision)
            except ERRORS as error:
                if is_failure_certain(error):
                    raise self.identity.as_store_error(error) from error
                continue
            self._newest_op = delta.op
            outcomes = _read_outcomes(writes_by_key, rows[0][0])
            own_revisions = [each.revision for each in outcomes if isinstance(each, Commit) and each.writes]
            first, last = (
                (own_revisions[0], own_revisions[-1]) if own_revisions else (delta.revision + 1, delta.revision)
            )
            return AppliedGroup(
                outcomes,
                [commit for commit in delta.commits if commit.revision < first],
                [commit for commit in delta.commits if commit.revision > max(first, last)],
            )

    async def _reconnect(self) -> DatabaseConnection:
        """Make a new connection for commits, however long that takes; within `timeout_s` once the store closes.

        Raises Expelled if this hub is gone, and StoreUnavailable if the store closes and the time is over.
        """
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        closing_since: float | None = None
        while True:
            connection: DatabaseConnection | None = None
            try:
                connection = await self.identity.connect()
                await self.identity.retake_lock(connection)
            except (StoreUnavailable, *ERRORS) as error:
                if connection is not None:
                    connection.terminate()
                if isinstance(error, Expelled):
                    raise
                now = self._loop.time()
                closing_since = closing_since or (now if self._close_task else None)
                if closing_since is not None and now > closing_since + self._timeout_s:
                    raise as_store_error(self.name, error) from error
                await asyncio.sleep(RETRY_S)
                continue
            self._connection = connection
            self.reconnects += 1
            return connection

    def _finish_group(self, group: Sequence[QueuedCommit], future: "asyncio.Future[AppliedGroup]") -> None:
        """Publish the group's commits to listeners and callers; note the known history; announce them to members."""
        revision_before = self._revision
        super()._finish_group(group, future)
        if future.exception() is None:
            self.identity.known_history = self._revision, self._newest_op
        if self._listener is not None and self._revision != revision_before:
            self._listener.announce_commit()
            self._start_listening()
        self._wake_waiters()

    async def _publish_delta(self, delta: RevisionDelta) -> None:
        """Publish what others have committed, once no group is under way.

        The reply to a group brings others' commits as well, and tells which of them are this member's own.
        """
        while not self._idle.is_set():
            if self._revision >= delta.revision:
                return
            await self._revision_advanced.wait()
        for commit in delta.commits:
            if commit.revision > self._revision:
                self._publish(commit)
        self._advance(delta.revision, delta.op)

    def _advance(self, revision: int, op: uuid.UUID) -> None:
        """Note that listeners are up to date with a revision, which the group `op` made."""
        if revision >= self._revision:
            self._revision = revision
            self.identity.known_history = revision, op
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake all who wait for a revision, or for the end of this hub's term."""
        self._revision_advanced.set()
        self._revision_advanced = asyncio.Event()

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `listener` on the event loop with each durable commit, in revision order, without gaps.

        Others' commits come as well, without `ref`, and may be merged. The listener must not block or raise. Returns a
        function that unsubscribes.
        """
        self._start_listening()
        return super().listen(listener)

    def _start_listening(self) -> None:
        """Follow the commits of other members from now on, if there may be any, in the context of no caller."""
        if self._listener is not None and self._listen_task is None and not self._close_task:
            self._listen_task = self._loop.create_task(self._listener.run(), context=self._context)
            self._listen_task.add_done_callback(self._check_listening_end)

    def _check_listening_end(self, listening: "asyncio.Task[None]") -> None:
        """End this hub's term if listening has failed: else the hub would go on with outdated records."""
        if not listening.cancelled() and (failure := listening.exception()):
            self._loop.call_exception_handler({"message": "Hearing of other members failed", "exception": failure})
            self.identity.end(Expelled(f"this hub cannot hear of other members' changes any more: {failure!r}"))

    async def _read(self, query: str, *arguments: Any) -> list[Sequence[Any]]:
        """Return the rows of a query, over a connection that is made again if need be. Raises StoreUnavailable."""
        if self._close_task:
            raise self._closed_error()
        failure = StoreUnavailable(f"the store {self.name} has not answered for {self._timeout_s:g} s")
        try:
            async with asyncio.timeout(self._timeout_s), self._read_lock:
                while True:
                    self.identity.require_alive()
                    # A connection that was kept may have ended long ago: another one is made without a pause.
                    wait_s = RETRY_S if self._read_connection is None or self._read_connection.is_closed() else 0.0
                    try:
                        if wait_s:
                            self._read_connection = await self.identity.connect()
                        assert self._read_connection
                        return await self._read_connection.fetch(self._statement(query), *arguments)
                    except (StoreUnavailable, *ERRORS) as error:
                        failure = self.identity.as_store_error(error)
                        if is_failure_certain(error.__cause__ or error) or isinstance(failure, Expelled):
                            raise failure from error
                        self._drop_read_connection()
                    except BaseException:  # nobody waits for the reply any more, which may never come
                        self._drop_read_connection()
                        raise
                    await asyncio.sleep(wait_s)
        except TimeoutError:
            raise failure from None

    def _drop_read_connection(self) -> None:
        """Close the connection for reading at once; the next read makes a new one."""
        if self._read_connection is not None:
            self._read_connection.terminate()
            self._read_connection = None

    async def _wait_published(self, revision: int, op: uuid.UUID) -> None:
        """Wait until listeners have seen a revision that was read, made by the group `op`. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while self._revision < revision:
                    self.identity.require_alive()
                    if not self._listeners and self._idle.is_set():
                        self._advance(revision, op)  # nobody listens yet
                        return
                    if self._listener is not None:
                        self._listener.expect_revision(revision)
                    await self._revision_advanced.wait()
        except TimeoutError:
            raise StoreUnavailable(f"the store {self.name} has not answered for {self._timeout_s:g} s") from None

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        rows = await self._read(sql.ENTRIES, prefix)
        op, revision = rows[0][:2]
        await self._wait_published(revision, op)
        records = [row[2:] for row in rows if row[2] is not None]
        entries = tuple(
            KeyValue(key, value, revision_of_key) for key, revision_of_key, value in records if value is not None
        )
        deleted = sorted((revision_of_key, key) for key, revision_of_key, value in records if value is None)
        return Snapshot(revision, entries, tuple((key, revision_of_key) for revision_of_key, key in deleted))

    async def _read_changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        """Return the current revision, and the newest states of keys changed after `after`, once listeners saw them.

        Raises Compacted and StoreUnavailable.
        """
        rows = await self._read(sql.CHANGES, prefix, after)
        op, revision, compacted = rows[0][:3]
        if not compacted <= after <= revision:
            raise Compacted(compacted)
        await self._wait_published(revision, op)
        return revision, group_into_commits([row[3:] for row in rows])

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`, before which watches can no longer resume, and groups older than a day.

        Tombstones and outcomes of groups stay that another member has yet to see. Raises StoreUnavailable.
        """
        await self._read(sql.COMPACT, revision, *self._member_key, self._revision)
        begin: int | None = 0
        while begin is not None:
            [[begin]] = await self._read(sql.DELETE_TOMBSTONES, begin, sql.SLICE)
        count = sql.SLICE
        while count == sql.SLICE:
            [[count]] = await self._read(sql.DELETE_GROUPS, *self._member_key, self._revision, sql.SLICE)

    async def reclaim(self) -> None:
        """Let the database use the space of deleted rows again. Nothing is erased. Raises StoreUnavailable."""
        await self._read("VACUUM {schema}.entries")

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open SQLite file without a name, as the store of a hub without a database.

        The copy has no id: it gets one where it is opened. Raises NoRoom and StoreUnavailable.
        """
        snapshot = await self.snapshot()
        compacted = min((await self.stats()).compacted_revision, snapshot.revision)  # others go on meanwhile
        return await to_thread.run_sync(write_copy, self._directory / "postgres.copy", snapshot, compacted)

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        [(revision, compacted, keys, rows, size)] = await self._read(sql.STATS)
        return StoreStats(
            id=self.identity.store_id,
            revision=revision,
            compacted_revision=compacted,
            size_bytes=size,
            keys=keys,
            deletions=rows - keys,
            free_bytes=0,
        )

    async def probe(self) -> None:
        """Do all that a commit does, but change nothing. Raises StoreUnavailable (Expelled if this member is gone)."""
        is_member = await self._read(sql.PROBE, *self._member_key)
        if not is_member:
            raise self.identity.end_as_expelled()

    async def _close_engine(self) -> None:
        """Stop listening to other members, and close the connections."""
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])
        for connection in (self._connection, self._read_connection):
            if connection is not None:
                with suppress(*ERRORS):
                    await connection.close(timeout=self._timeout_s)


def _apply_arguments(group: Sequence[QueuedCommit], writes_by_key: Sequence[dict[str, Write]]) -> list[list[Any]]:
    """Return arguments of the SQL function `apply` for a group: flat lists, and where each commit's part ends."""
    guard_ends: list[int] = []
    write_ends: list[int] = []
    guards: list[Precondition] = []
    writes: list[Write] = []
    for queued, own_writes in zip(group, writes_by_key, strict=True):
        guards += queued.guards
        writes += own_writes.values()
        guard_ends.append(len(guards))
        write_ends.append(len(writes))
    return [
        guard_ends,
        [guard.key for guard in guards],
        [guard.revision for guard in guards],
        write_ends,
        [write.key for write in writes],
        [write.value for write in writes],
    ]


def _read_outcomes(writes_by_key: Sequence[dict[str, Write]], outcomes_json: str) -> list[Outcome]:
    """Return the outcomes of a group's commits, in order, from the JSON that the SQL function `apply` returns."""
    return [_read_outcome(*each) for each in zip(writes_by_key, orjson.loads(outcomes_json), strict=True)]


def _read_outcome(writes_by_key: dict[str, Write], outcome: list[Any]) -> Outcome:
    """Return the outcome of one commit; `outcome` is `[failed key]`, or `[revision, keys that did not change]`."""
    if len(outcome) == 1:
        return WriteConflict(outcome[0])
    revision, unchanged = outcome
    return Commit(revision, tuple(write for key, write in writes_by_key.items() if key not in unchanged))
