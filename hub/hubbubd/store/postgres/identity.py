"""A hub's identity at a database: as which member it has opened the store, and whether it still is that member.

One advisory lock is shared by members, and exclusive to a hub alone. It keeps the two kinds apart. The rows of
`members` tell members apart: a second one of the same name is refused while the first one's lease runs. A hub
that starts again at once need not wait for that: its data directory, which one process has at a time, knows the proof
that its former term has left in its row. A lock per name in the database would do worse: it is lost with its session,
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
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, DatabaseConnection, as_store_error

RETRY_S: Final = 0.25
"""Seconds between attempts to reach the database again."""

TERMINATE_TIMEOUT_S: Final = 5.0
"""Seconds that the server has for ending the session that this hub has lost."""

PROOFS_FILE: Final = "member.json"
"""The file in the data directory with the proofs of the last term there, and of one that may have begun."""

MAX_PROOFS_BYTES: Final = 4096
"""How much of this file is read; two proofs take 73 bytes."""

NEVER_BEHIND: Final = 2**63 - 1
"""The position of a hub alone: nobody else writes, so it is never behind."""

_LOCK_SHARED: Final = "SELECT pg_try_advisory_lock_shared(hashtext('hubbub'), hashtext($1))"
_TERMINATE_LOCK_HOLDERS: Final = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.classid = (hashtext('hubbub')::bigint & 4294967295)::oid
  AND l.objid = (hashtext($1)::bigint & 4294967295)::oid AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class Entrant:
    """The member as which a hub is to open a store. `lease_ttl_s` is as in `Membership`."""

    name: str
    lease_ttl_s: float


class MemberIdentity:
    """The member as which a hub uses a database. Without an entrant the hub is alone there.

    A term goes from the opening of the store until this hub leaves or is expelled: `term` is its number, `end_reason`
    why it has ended, None while it goes on. `known_history` is a revision that listeners have seen, with the group that
    made it: the history known to this hub.
    """

    def __init__(self, database: Database, entrant: Entrant | None, data_dir: Path) -> None:
        """`data_dir` has the proofs by which a member that starts again at once shows that it is the same."""
        self.database = database
        self.entrant = entrant
        self.name = entrant.name if entrant else sql.SOLE
        self.term = 0
        self.store_id = ""
        self.known_history: tuple[int, uuid.UUID] = 0, uuid.UUID(int=0)
        self.end_reason: Expelled | None = None
        self._proofs_path = data_dir / PROOFS_FILE
        self._end_callbacks: list[Callable[[], None]] = []

    async def enter(self, connection: DatabaseConnection) -> None:
        """Take the advisory lock, bring the tables up to date, and begin a new term of this hub.

        The lock lasts as long as `connection`. Raises StoreLocked if another hub keeps this one out, StoreTooNew,
        StoreUnavailable, OSError of the data directory, and ERRORS.
        """
        await self.database.check_durability(connection)
        if not await self._try_lock(connection):
            raise StoreLocked(self._in_use_message())
        async with connection.transaction():  # apart from the next one, to be short: members at work wait for it
            await connection.execute(sql.OPENING, self.database.schema)
            await self.database.migrate(connection, alone=self.entrant is None)
        async with connection.transaction():
            await connection.execute(sql.OPENING, self.database.schema)
            await self.database.require_known_version(connection, alone=self.entrant is None)
            proof = await self._create_proof(connection)
            if self.entrant is None:
                await connection.execute(self.database.for_schema(sql.ALL_GONE), self.name)
            else:
                await connection.execute(self.database.for_schema(sql.SOLE_GONE))
            await connection.execute(self.database.for_schema(sql.FORGET))
            [(self.store_id, revision, op, self.term)] = await connection.fetch(self.database.for_schema(sql.LIFE))
            self.known_history = revision, op
            ttl_s = self.entrant.lease_ttl_s if self.entrant else None
            position = revision if self.entrant else NEVER_BEHIND
            await connection.execute(
                self.database.for_schema(sql.ENTER), self.name, self.term, proof, __version__, position, ttl_s
            )

    def _in_use_message(self) -> str:
        """Return, for people, that another hub keeps this one out of the store, and what to do."""
        if self.entrant is None:
            return (
                f"the store {self.database.name} is in use by another hub, or by the members of a fleet; stop it,"
                " choose another schema, or make this one a member, too ([fleet])"
            )
        return f"the store {self.database.name} is in use by another hub, which is no member of a fleet; stop that one"

    async def _create_proof(self, connection: DatabaseConnection) -> str:
        """Return the proof of a new term, a random text that only this data directory knows; "" for a hub alone.

        The proof is stored in the directory on return. Raises StoreLocked if a member of this name has a lease, and was
        started from another directory; OSError and ERRORS.
        """
        if self.entrant is None:
            return ""
        own_proofs = await to_thread.run_sync(read_proofs, self._proofs_path)
        former_rows = await connection.fetch(self.database.for_schema(sql.FORMER), self.name)
        for proof, has_lease, lease_left_s in former_rows:
            if has_lease and proof not in own_proofs:
                raise StoreLocked(
                    f"the fleet of the store {self.database.name} has a member {self.name!r} already; stop that one, or"
                    f" give this one another name ([fleet] name). If it has ended, this one may start in"
                    f" {lease_left_s} s"
                )
        proof = secrets.token_hex(16)
        # Stored before the commit, and beside the former proof: this directory knows whichever the row has in the end.
        former_proofs = [each for each, *_ in former_rows if each in own_proofs]
        await to_thread.run_sync(
            files.write_atomically, self._proofs_path, payload.dumps([*former_proofs, proof]) + b"\n"
        )
        return proof

    async def _try_lock(self, connection: DatabaseConnection) -> bool:
        """Try to take the advisory lock: shared as a member, else exclusive; return whether it was taken."""
        return await connection.fetchval(_LOCK_SHARED if self.entrant else sql.LOCK, self.database.schema)

    async def connect(self) -> DatabaseConnection:
        """Make one more connection, and check that this hub's term and the history that it has seen go on.

        Raises Expelled (this hub is gone), HistoryLost and StoreUnavailable.
        """
        connection = await self.database.connect()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self.require_history(connection)
        except ERRORS as error:  # TimeoutError is an OSError
            connection.terminate()
            raise as_store_error(self.database.name, error) from error
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def require_history(self, connection: DatabaseConnection) -> None:
        """Raise Expelled if this member is gone, HistoryLost if the database has another history, or ERRORS.

        The history is another one if the store's id has changed, if numbers went back, or if the group of commits that
        made the last known revision has made another revision there. Then the store gets a new id, so that all other
        members notice, too. Either error ends this term.
        """
        self.require_alive()
        revision, op = self.known_history
        rows = await connection.fetch(self.database.for_schema(sql.CHECK), self.name, self.term, op)
        [(store_id, newest_revision, newest_term, is_alive, op_revision)] = rows
        # Once this member is gone, the group that it knows may be deleted: that shows nothing about the history.
        if (
            store_id != self.store_id
            or newest_term < self.term
            or newest_revision < revision
            or (is_alive and op_revision != revision)
        ):
            if store_id == self.store_id:
                await connection.execute(self.database.for_schema(sql.RENAME), secrets.token_hex(8), store_id)
            raise self.end(
                HistoryLost(
                    f"the store {self.database.name} has another history than this hub has seen up to revision"
                    f" {revision}; it is at {newest_revision} now. A standby that was behind has become the primary,"
                    " or a backup was put in place: what it lacks is lost. Everything is to be read again",
                    revision,
                    newest_revision,
                )
            )
        if not is_alive:
            raise self.end_as_expelled()

    async def retake_lock(self, connection: DatabaseConnection) -> None:
        """Take the advisory lock again, over a new connection after a lost one.

        While this term goes on, only a lost session of this hub can keep the lock from it; a hub alone has that session
        terminated. Raises Expelled, HistoryLost, TimeoutError after TERMINATE_TIMEOUT_S, and ERRORS.
        """
        async with asyncio.timeout(TERMINATE_TIMEOUT_S):
            while not await self._try_lock(connection):
                if self.entrant is None:
                    await connection.execute(_TERMINATE_LOCK_HOLDERS, self.database.schema)
                await asyncio.sleep(RETRY_S)
                await self.require_history(connection)

    def end_as_expelled(self) -> Expelled:
        """End this hub's term, as the database says that the hub is gone; return the error to raise."""
        reason = (
            f"this hub is no member of the fleet any more, says the store {self.database.name}: it was not heard of in"
            " time, or another one of its name has started"
            if self.entrant
            else f"another hub has taken over the store {self.database.name}"
        )
        return self.end(Expelled(f"{reason}; this one keeps nothing more"))

    def require_alive(self) -> None:
        """Raise Expelled or HistoryLost, for which this hub's term has ended, if it has."""
        if self.end_reason:
            raise copy(self.end_reason)  # an exception that is raised again and again would collect all tracebacks

    def end(self, error: Expelled) -> Expelled:
        """End this hub's term because of an error, and call the callbacks of `on_end`, unless it has ended before.

        Return the error that has ended it.
        """
        if self.end_reason is None:
            self.end_reason = error
            for callback in self._end_callbacks:
                callback()
        return self.end_reason

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this term ends."""
        self._end_callbacks.append(callback)

    def as_store_error(self, error: BaseException) -> StoreUnavailable:
        """Return an error of the database as StoreUnavailable; if it says that this hub is gone, end the hub's term.

        Once the term has ended, return the error that has ended it.
        """
        if self.end_reason:
            return self.end_reason
        if getattr(error, "sqlstate", None) == sql.EXPELLED:
            return self.end_as_expelled()
        return as_store_error(self.database.name, error)


def read_proofs(path: Path) -> list[str]:
    """Return the proofs (random texts of a member's terms) in a file; none if it is missing or has other content."""
    try:
        with path.open("rb") as file:
            content: object = payload.loads(file.read(MAX_PROOFS_BYTES).decode())
    except (FileNotFoundError, ValueError):
        return []
    return (
        [proof for proof in cast("list[object]", content) if isinstance(proof, str)]
        if isinstance(content, list)
        else []
    )
