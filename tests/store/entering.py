"""Hubs that have opened one store in PostgreSQL, and what befalls them."""

import asyncio
from collections.abc import Callable
from typing import Any

from hubbubd.members import Member
from hubbubd.store import Commit
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.members import PostgresMembers
from hubbubd.store.postgres.postgres_store import PostgresStore

Open = Callable[..., Any]
LIMIT_S = 60
TTL_S = 300.0
"""Longer than any test: no lease ends by itself."""


class Heard:
    """A member's store, and what its listener received."""

    def __init__(self, store: PostgresStore, listens: bool = True) -> None:
        self.store = store
        self.members = PostgresMembers(store.identity, store.identity.entrant or Entrant("", TTL_S))
        self.commits: list[Commit] = []
        if listens:
            self.listen()

    def listen(self) -> None:
        self.store.listen(self.commits.append)

    @property
    def state(self) -> dict[str, bytes]:
        """What someone believes who followed all events."""
        state: dict[str, bytes] = {}
        for commit in self.commits:
            for write in commit.writes:
                if write.value is None:
                    state.pop(write.key, None)
                else:
                    state[write.key] = write.value
        return state

    async def reaches(self, revision: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.store.revision < revision:
                await asyncio.sleep(0.002)


async def overdue(ask: Open, *names: str) -> None:
    """Make it so that these were not heard of in time, and all others since long."""
    await ask("UPDATE {s}.members SET steady_since = steady_since - interval '1 day'")
    await ask("UPDATE {s}.members SET expires_at = now() - interval '1 s' WHERE name = ANY ($1)", names)


async def told(heard: Heard, name: str) -> Member:
    """A member, as another one sees it."""
    return next(each for each in await heard.members.members() if each.name == name)


async def cut_off(ask: Open, schema: str) -> None:
    """End all connections to this test's store."""
    await ask(
        """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND application_name = 'hubbubd' AND (query ~ $1 OR pid IN (
          SELECT l.pid FROM pg_locks l WHERE l.objid = (hashtext($1)::bigint & 4294967295)::oid
        ))""",
        schema,
    )
