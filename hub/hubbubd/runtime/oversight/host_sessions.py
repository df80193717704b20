"""The sessions of hosts over HTTP as the store has them: for the next process, and for the other members of a fleet.

    started, changed ──> durable ──> every member is notified
    used             ──> noted now and then: write-behind, or durable where another member relies on it
    ended            ──> deleted: no process continues it

A session ends with the token with which it was started. While the store cannot be written, hosts are served all the
same, and changes of sessions are lost.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import structlog

from hubbubd.core.hosts.host_sessions import HostSession, end_unless_used, with_last_use
from hubbubd.errors import HubError
from hubbubd.runtime.background import Background
from hubbubd.runtime.oversight.tokens import Tokens
from hubbubd.runtime.records import Ledger, Step, Table, delete

END_AFTER_S: Final = 1.0
"""Seconds from the end of a token to the end of its sessions: its requests end before that, with a reason."""

log = structlog.get_logger(__name__)


class HostSessions:
    """All stored sessions of hosts."""

    def __init__(self, ledger: Ledger, table: Table[HostSession], tokens: Tokens, background: Background) -> None:
        self._ledger = ledger
        self._table = table
        self._tokens = tokens
        self._background = background
        self._listeners: list[Callable[[HostSession | None, HostSession | None], None]] = []
        tokens.on_revoked(self._on_revoked)

    def recover(self) -> None:
        """Delete the sessions whose token was revoked: the last process may have ended before it could."""
        for session in list(self._table):
            if self._tokens.is_gone(session.credential):
                self.drop(session.id)

    def all(self) -> list[HostSession]:
        """Return all sessions, in the order of their last use, the most recent at the end."""
        return sorted(self._table, key=lambda session: session.used_at)

    def get(self, record_id: str) -> HostSession | None:
        """Return a session; None if there is no such session or it has ended."""
        return self._table.record(record_id)

    def follow(self, on_change: Callable[[HostSession | None, HostSession | None], None]) -> None:
        """Call `on_change(before, after)` for each durable change of a session, whichever member made it.

        A session that this member drops is reported at once (`after` is None), and again when the deletion is durable.
        `on_change` must not block.
        """
        self._listeners.append(on_change)
        self._table.follow(on_change)

    async def begin(self, session: HostSession) -> None:
        """Store a new session; durable on return. A failure of the store is only logged: the host is served anyway."""
        await self._store_if_possible(
            self._ledger.change(self._table, session.id, lambda stored: stored or session), "begun"
        )

    async def change(self, record_id: str, step: Step[HostSession]) -> None:
        """Change a session; durable on return. A failure of the store is only logged: the host is served anyway."""
        await self._store_if_possible(self._ledger.change(self._table, record_id, step), "changed")

    async def end(self, record_id: str) -> None:
        """Delete a session; durable on return.

        Raises Unavailable if it cannot be deleted: the next process would then continue the session.
        """
        await self._ledger.change(self._table, record_id, delete)

    def drop(self, record_id: str, *, unless_used: bool = False) -> None:
        """Delete a session write-behind, that is, without waiting for the store, and call the listeners at once.

        With `unless_used` the session stays if another member has noted a later use of it meanwhile; the listeners
        are called again then.
        """
        if (session := self._table.record(record_id)) is not None:
            step = partial(end_unless_used, session.used_at) if unless_used else delete
            self._ledger.change_later(self._table, record_id, step)
            for on_change in self._listeners:
                on_change(session, None)

    def note_use(self, record_id: str, now: float) -> None:
        """Note that a session is used now, write-behind."""
        self._ledger.change_later(self._table, record_id, partial(with_last_use, now))

    async def note_use_durably(self, record_id: str, now: float) -> None:
        """Note that a session is used now; durable on return. A failure of the store is only logged."""
        await self._store_if_possible(self._ledger.change(self._table, record_id, partial(with_last_use, now)), "used")

    def _on_revoked(self, credential: str) -> None:
        """Delete the sessions of a revoked credential, in the background."""
        self._background.start_soon(self._drop_sessions_of, credential)

    async def _drop_sessions_of(self, credential: str) -> None:
        """Delete the sessions of a credential, after END_AFTER_S: requests under way end before that, with a reason."""
        await anyio.sleep(END_AFTER_S)
        for session in list(self._table):
            if session.credential == credential:
                self.drop(session.id)

    async def _store_if_possible(self, change: Awaitable[object], event: str) -> None:
        """Await a change of a session; only log a failure. `event` says in the log what happened to the session."""
        try:
            await change
        except HubError as exc:
            log.warning("the session of a host is not kept for the next process", it_was=event, error=exc.message)
