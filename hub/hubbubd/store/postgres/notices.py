"""How members of a fleet learn of each other's commits: a notice after each group, and queries for what is new.

A notice is a hint: it may be lost, and then the next query finds the commits. Notices go over a connection of their
own: sent within a commit, a notice would hold a lock of the whole database.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hubbubd import bounds
from hubbubd.store import Commit, StoreUnavailable, Write
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import ERRORS, DatabaseConnection
from hubbubd.store.postgres.identity import RETRY_S, MemberIdentity

BUSY_INTERVAL_S: Final = 0.25
"""Seconds until the next query, after one that found commits of others."""

IDLE_INTERVAL_S: Final = 1.0
"""Seconds until the next query, after one that found nothing."""

NOTICE_INTERVAL_S: Final = 0.002
"""The shortest time between notices, in seconds: each costs every member a query."""

REPLY_TIMEOUT_S: Final = 10.0
"""Seconds for the reply to a statement; its connection is given up then."""


@dataclass(frozen=True, slots=True)
class RevisionDelta:
    """What has changed since a revision: the newest state of each key, up to `revision`, which the group `op` made."""

    revision: int
    op: uuid.UUID
    commits: Sequence[Commit]


def group_into_commits(rows: Sequence[Sequence[Any]]) -> list[Commit]:
    """Return commits from rows of revision, key and value, in the order of the rows; rows without a key are left out.

    A query returns such a row if nothing has changed.
    """
    commits: dict[int, list[Write]] = {}
    for revision, key, value in rows:
        if key is not None:
            commits.setdefault(revision, []).append(Write(key, value))
    return [Commit(revision, tuple(writes)) for revision, writes in commits.items()]


async def fetch_delta(identity: MemberIdentity, connection: DatabaseConnection, after: int) -> RevisionDelta:
    """Return what has changed in the store after a revision. Raises Expelled, HistoryLost and ERRORS."""
    rows = await connection.fetch(identity.database.for_schema(sql.LOOK), after)
    store_id, op, revision = rows[0][:3]
    if store_id != identity.store_id or revision < after:  # a sign of another history
        await identity.require_history(connection)
    return RevisionDelta(revision, op, group_into_commits([row[3:] for row in rows]))


class NoticeListener:
    """While `run` runs: notifies other members of this one's commits, and passes what they commit to `on_delta`."""

    def __init__(
        self,
        identity: MemberIdentity,
        position: Callable[[], int],
        on_delta: Callable[[RevisionDelta], Awaitable[None]],
    ) -> None:
        """`position` returns the newest revision that this member has; `on_delta` gets what is newer."""
        self._identity = identity
        self._position = position
        self._on_delta = on_delta
        self._changed = asyncio.Event()
        self._notice_due = False
        self._announced_revision = 0

    def announce_commit(self) -> None:
        """Have `run` notify the other members soon that this one has committed."""
        self._notice_due = True
        self._changed.set()

    def expect_revision(self, revision: int) -> None:
        """Have `run` fetch soon what has changed up to a revision that was announced or seen in the database."""
        self._announced_revision = max(self._announced_revision, revision)
        self._changed.set()

    async def run(self) -> None:
        """Send and receive notices until this member's term ends, over as many connections as that takes."""
        while not self._identity.end_reason:
            connection: DatabaseConnection | None = None
            try:
                connection = await self._identity.connect()
                # Members share the lock. The connection for commits may be lost, and made again only with the next
                # commit: until then this one's share keeps out a hub that would use the store alone.
                await self._identity.retake_lock(connection)
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await connection.add_listener(self._identity.database.schema, self._on_notice)
                await self._exchange_notices(connection)
            except Expelled:
                return
            except (StoreUnavailable, *ERRORS):  # TimeoutError is an OSError
                await asyncio.sleep(RETRY_S)
            finally:
                if connection is not None:
                    connection.terminate()

    def _on_notice(self, _link: object, _process: int, _channel: str, text: str) -> None:
        """Handle a notice of a member: its text is a revision, and any other text is ignored."""
        self.expect_revision(bounds.parse_whole(text) or 0)

    async def _exchange_notices(self, connection: DatabaseConnection) -> None:
        """Send notices that are due, and fetch what is new at intervals or when announced, over one connection.

        Goes on until the connection or the term ends: then raises Expelled, StoreUnavailable or one of ERRORS.
        """
        loop = asyncio.get_running_loop()
        next_fetch_at = next_notice_at = loop.time()
        while True:
            self._identity.require_alive()
            self._changed.clear()
            if self._notice_due and loop.time() >= next_notice_at:
                self._notice_due = False
                next_notice_at = loop.time() + NOTICE_INTERVAL_S
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await connection.fetchval(sql.NOTIFY, self._identity.database.schema, str(self._position()))
            announced = self._announced_revision
            if loop.time() >= next_fetch_at or announced > self._position():
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    delta = await fetch_delta(self._identity, connection, self._position())
                if self._announced_revision == announced:
                    # Else a notice of a revision that never comes would keep this loop fetching.
                    self._announced_revision = min(announced, delta.revision)
                next_fetch_at = loop.time() + (BUSY_INTERVAL_S if delta.commits else IDLE_INTERVAL_S)
                await self._on_delta(delta)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(
                    min(next_fetch_at, next_notice_at) if self._notice_due else next_fetch_at
                ):
                    await self._changed.wait()
