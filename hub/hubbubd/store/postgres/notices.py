"""How members of a fleet hear of each other's commits: a notice after each group, and a look at what is new.

A notice is a hint: it may be lost, and looks find what it told of. It has a connection of its own. Within the commit
it would hold a lock of the whole database.
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
from hubbubd.store.postgres.identity import AGAIN_S, MemberIdentity

LOOK_S: Final = 0.25
"""Seconds between looks where others write."""

IDLE_S: Final = 1.0
"""Seconds between looks where nobody has written since the last one."""

NOTICE_S: Final = 0.002
"""Seconds between notices: each costs all members a look."""

ANSWERED_S: Final = 10.0
"""Seconds that a look may take; its connection is given up then."""


@dataclass(frozen=True, slots=True)
class RevisionDelta:
    """What has changed since a revision: the newest state of each key, up to `revision`, which the group `op` made."""

    revision: int
    op: uuid.UUID
    commits: Sequence[Commit]


def commits_of(rows: Sequence[Sequence[Any]]) -> list[Commit]:
    """Return commits from rows of revision, key and value, in order; those without a key are left out."""
    commits: dict[int, list[Write]] = {}
    for revision, key, value in rows:
        if key is not None:
            commits.setdefault(revision, []).append(Write(key, value))
    return [Commit(revision, tuple(writes)) for revision, writes in commits.items()]


async def look(place: MemberIdentity, link: DatabaseConnection, after: int) -> RevisionDelta:
    """Return what has changed since a revision. Raises Expelled, HistoryLost and ERRORS."""
    rows = await link.fetch(place.database.sql(sql.LOOK), after)
    store_id, op, revision = rows[0][:3]
    if store_id != place.store_id or revision < after:
        await place.check(link)
    return RevisionDelta(revision, op, commits_of([row[3:] for row in rows]))


class NoticeListener:
    """Tells others of one's commits, and brings what others have committed to `found`, while it runs."""

    def __init__(
        self, place: MemberIdentity, position: Callable[[], int], found: Callable[[RevisionDelta], Awaitable[None]]
    ) -> None:
        self._place = place
        self._position = position
        self._found = found
        self._news = asyncio.Event()
        self._owed = False
        self._wanted = 0

    def committed(self) -> None:
        """Let others know that there is something new."""
        self._owed = True
        self._news.set()

    def want(self, revision: int) -> None:
        """Look soon: there is such a revision."""
        self._wanted = max(self._wanted, revision)
        self._news.set()

    async def run(self) -> None:
        """Go on until this life ends, over as many connections as it takes."""
        while not self._place.over:
            link: DatabaseConnection | None = None
            try:
                link = await self._place.connected()
                # Commits take it again when there is one; until then this keeps others out.
                await self._place.hold(link)
                async with asyncio.timeout(ANSWERED_S):
                    await link.add_listener(self._place.database.schema, self._notified)
                await self._follow(link)
            except Expelled:
                return
            except (StoreUnavailable, *ERRORS):  # TimeoutError is an OSError
                await asyncio.sleep(AGAIN_S)
            finally:
                if link is not None:
                    link.terminate()

    def _notified(self, _link: object, _process: int, _channel: str, text: str) -> None:
        self.want(bounds.whole_text(text) or 0)

    async def _follow(self, link: DatabaseConnection) -> None:
        loop = asyncio.get_running_loop()
        due = tell_at = loop.time()
        while True:
            self._place.require()
            self._news.clear()
            if self._owed and loop.time() >= tell_at:
                self._owed = False
                tell_at = loop.time() + NOTICE_S
                async with asyncio.timeout(ANSWERED_S):
                    await link.fetchval(sql.NOTIFY, self._place.database.schema, str(self._position()))
            wanted = self._wanted
            if loop.time() >= due or wanted > self._position():
                async with asyncio.timeout(ANSWERED_S):
                    cut = await look(self._place, link, self._position())
                if self._wanted == wanted:
                    self._wanted = min(wanted, cut.revision)  # no notice is believed to which no revision comes
                due = loop.time() + (LOOK_S if cut.commits else IDLE_S)
                await self._found(cut)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(due, tell_at) if self._owed else due):
                    await self._news.wait()
