"""A hub's place at a database: as which member it has opened the store, and whether it still is that member.

One advisory lock is shared by members, and exclusive to a hub alone. It keeps the two kinds apart. Who is who among
members, the rows of `members` say: a second one of the same name is refused while the first one's lease runs. A hub
that starts again at once need not wait for that: its data directory, which one process has at a time, knows the proof
that its former life has left in its row. A lock per name in the database would do worse: it is lost with its session,
as in a restart of the database, and is kept for a while for a hub that is gone.
"""

import asyncio
import secrets
import uuid
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from anyio import to_thread

from hubbub_shared import __version__
from hubbubd import payload
from hubbubd.process import files
from hubbubd.store import StoreLocked, StoreUnavailable
from hubbubd.store.membership import Expelled, HistoryLost
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, DatabaseConnection, failed

AGAIN_S: Final = 0.25
"""Seconds between attempts to reach the database again."""

TERMINATED_S: Final = 5.0
"""Seconds that the server has for ending the session that this hub has lost."""

PROOFS: Final = "member.json"
"""The file in the data directory with the proofs of the last life there, and of one that may have begun."""

PROOFS_BYTES: Final = 4096
"""Of this file, as much as is read; two proofs take 73 bytes."""

ENDLESS: Final = 2**63 - 1
"""The position of a hub alone: nobody else writes, so it is never behind."""

_SHARED: Final = "SELECT pg_try_advisory_lock_shared(hashtext('hubbub'), hashtext($1))"
_OWN_LOCK: Final = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.classid = (hashtext('hubbub')::bigint & 4294967295)::oid
  AND l.objid = (hashtext($1)::bigint & 4294967295)::oid AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who wants to open a store as a member. `lease_ttl_s` is as in `Membership`."""

    name: str
    lease_ttl_s: float


class MemberIdentity:
    """The place of a hub at a database. Without an entrant it is alone there.

    `seen` is a revision that listeners have heard of, with the group that made it: the history that this hub knows.
    `over` is why this life has ended; None while it goes on.
    """

    def __init__(self, database: Database, entrant: Entrant | None, data_dir: Path) -> None:
        self.database = database
        self.entrant = entrant
        self.name = entrant.name if entrant else sql.SOLE
        self.life = 0
        self.store_id = ""
        self.seen: tuple[int, uuid.UUID] = 0, uuid.UUID(int=0)
        self.over: Expelled | None = None
        self._proofs = data_dir / PROOFS
        self._endings: list[Callable[[], None]] = []

    async def take(self, link: DatabaseConnection) -> None:
        """Open the store as this hub. `link` keeps the lock.

        Raises StoreLocked, StoreTooNew, StoreUnavailable, OSError of the data directory, and ERRORS.
        """
        await self.database.check(link)
        if not await self._lock(link):
            raise StoreLocked(self._taken())
        async with link.transaction():  # one of its own: members at work wait for it
            await link.execute(sql.OPENING, self.database.schema)
            await self.database.migrate(link, alone=self.entrant is None)
        async with link.transaction():
            await link.execute(sql.OPENING, self.database.schema)
            await self.database.require(link, alone=self.entrant is None)
            proof = await self._prove(link)
            if self.entrant is None:
                await link.execute(self.database.sql(sql.ALL_GONE), self.name)
            else:
                await link.execute(self.database.sql(sql.SOLE_GONE))
            await link.execute(self.database.sql(sql.FORGET))
            [(self.store_id, revision, op, self.life)] = await link.fetch(self.database.sql(sql.LIFE))
            self.seen = revision, op
            ttl_s = self.entrant.lease_ttl_s if self.entrant else None
            position = revision if self.entrant else ENDLESS
            await link.execute(self.database.sql(sql.ENTER), self.name, self.life, proof, __version__, position, ttl_s)

    def _taken(self) -> str:
        if self.entrant is None:
            return (
                f"the store {self.database.name} is in use by another hub, or by the members of a fleet; stop it,"
                " choose another schema, or make this one a member, too ([fleet])"
            )
        return f"the store {self.database.name} is in use by another hub, which is no member of a fleet; stop that one"

    async def _prove(self, link: DatabaseConnection) -> str:
        """Return the proof of a new life; it is in the data directory. Raises StoreLocked and OSError."""
        if self.entrant is None:
            return ""
        known = await to_thread.run_sync(read_proofs, self._proofs)
        former = await link.fetch(self.database.sql(sql.FORMER), self.name)
        for proof, lives, left_s in former:
            if lives and proof not in known:
                raise StoreLocked(
                    f"the fleet of the store {self.database.name} has a member {self.name!r} already; stop that one, or"
                    f" give this one another name ([fleet] name). If it has ended, this one may start in {left_s} s"
                )
        proof = secrets.token_hex(16)
        # Before the commit, and with the former one: whichever of the two the row has in the end, it is known.
        kept = [each for each, *_ in former if each in known]
        await to_thread.run_sync(files.put, self._proofs, payload.dumps([*kept, proof]) + b"\n")
        return proof

    async def _lock(self, link: DatabaseConnection) -> bool:
        return await link.fetchval(_SHARED if self.entrant else sql.LOCK, self.database.schema)

    async def connected(self) -> DatabaseConnection:
        """Make one more connection, and check that this life and its history go on.

        Raises Expelled, HistoryLost and StoreUnavailable.
        """
        link = await self.database.connected()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self.check(link)
        except ERRORS as error:  # TimeoutError is an OSError
            link.terminate()
            raise failed(self.database.name, error) from error
        except BaseException:
            link.terminate()
            raise
        return link

    async def check(self, link: DatabaseConnection) -> None:
        """Raise Expelled if this member is gone, HistoryLost if the database has another history, and ERRORS."""
        self.require()
        revision, op = self.seen
        rows = await link.fetch(self.database.sql(sql.CHECK), self.name, self.life, op)
        [(store_id, reached, lives, here, last)] = rows
        if store_id != self.store_id or lives < self.life or reached < revision or (here and last != revision):
            if store_id == self.store_id:
                await link.execute(self.database.sql(sql.RENAME), secrets.token_hex(8), store_id)
            raise self.end(
                HistoryLost(
                    f"the store {self.database.name} has another history than this hub has seen up to revision"
                    f" {revision}; it is at {reached} now. A standby that was behind has become the primary, or a"
                    " backup was put in place: what it lacks is lost. Everything is to be read anew",
                    revision,
                    reached,
                )
            )
        if not here:
            raise self.expelled()

    async def hold(self, link: DatabaseConnection) -> None:
        """Take the lock again. As long as this life goes on, whoever keeps it from us is a session of ours, lost.

        Raises Expelled, HistoryLost, TimeoutError and ERRORS.
        """
        async with asyncio.timeout(TERMINATED_S):
            while not await self._lock(link):
                if self.entrant is None:
                    await link.execute(_OWN_LOCK, self.database.schema)
                await asyncio.sleep(AGAIN_S)
                await self.check(link)

    def expelled(self) -> Expelled:
        """End this life, since the database says that it is over; return the error."""
        what = (
            f"this hub is no member of the fleet any more, says the store {self.database.name}: it was not heard of in"
            " time, or another one of its name has started"
            if self.entrant
            else f"another hub has taken over the store {self.database.name}"
        )
        return self.end(Expelled(f"{what}; this one keeps nothing more"))

    def require(self) -> None:
        """Raise why this life has ended, if it has."""
        if self.over:
            raise copy(self.over)  # not itself: it would grow by a traceback each time

    def end(self, error: Expelled) -> Expelled:
        """End this life for a reason, unless it has ended; return why it has."""
        if self.over is None:
            self.over = error
            for ending in self._endings:
                ending()
        return self.over

    def on_end(self, ending: Callable[[], None]) -> None:
        """Call `ending` when this life ends."""
        self._endings.append(ending)

    def refused(self, error: BaseException) -> StoreUnavailable:
        """Return the error for people; this life ends if it says so."""
        if self.over:
            return self.over
        if getattr(error, "sqlstate", None) == sql.EXPELLED:
            return self.expelled()
        return failed(self.database.name, error)


def read_proofs(path: Path) -> list[str]:
    """Return the proofs in a file; none if there is no such file, or another content."""
    try:
        with path.open("rb") as file:
            found: object = payload.loads(file.read(PROOFS_BYTES).decode())
    except (FileNotFoundError, ValueError):
        return []
    return [each for each in cast("list[object]", found) if isinstance(each, str)] if isinstance(found, list) else []
