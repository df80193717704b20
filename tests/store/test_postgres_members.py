"""Several members of a fleet over one PostgreSQL: all know the same, in order; who is gone changes nothing more."""

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.config.fleet import FleetSettings
from hubbubd.config.store import StoreSettings
from hubbubd.members import Member, Standing
from hubbubd.store import Commit, Conflict, Guard, OutcomeUnknown, StoreLocked, StoreUnavailable, Write, engines
from hubbubd.store.membership import Expelled, HistoryLost
from hubbubd.store.postgres import PostgresStore
from hubbubd.store.postgres_members import PostgresMembers
from hubbubd.store.postgres_place import Entrant

from ..postgres import Postgres, Proxy

Open = Callable[..., Any]
LIMIT_S = 60
TTL_S = 300.0
"""Longer than any test: no lease ends by itself."""


class Heard:
    """A member's store, and what its listener was told."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.members = PostgresMembers(store.place, store.place.entrant or Entrant("", TTL_S))
        self.commits: list[Commit] = []
        store.listen(self.commits.append)

    @property
    def state(self) -> dict[str, bytes]:
        """What someone believes who followed what was told."""
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


@pytest.fixture
def schema() -> str:
    return f"t{secrets.token_hex(8)}"


@pytest.fixture
async def enter(postgres: Postgres, schema: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the store as a member, or alone without a name; each of them has a data directory."""
    async with AsyncExitStack() as stack:

        async def enter(
            name: str | None = "a",
            *,
            url: str = postgres.url,
            directory: str | None = None,
            ttl_s: float = TTL_S,
            patience_s: float = LIMIT_S,
        ) -> Heard:
            where = tmp_path / (directory or name or "alone")
            where.mkdir(exist_ok=True)
            member = None if name is None else Entrant(name, ttl_s)
            store = await PostgresStore.open(url, schema=schema, directory=where, patience_s=patience_s, member=member)
            stack.push_async_callback(store.close)
            heard = Heard(store)
            stack.push_async_callback(heard.members.close)
            return heard

        yield enter


@pytest.fixture
async def ask(postgres: Postgres, schema: str) -> AsyncIterator[Open]:
    """Asks the database itself; `{s}` is the schema."""
    link: Any = await asyncpg.connect(postgres.url)

    async def ask(query: str, *words: Any) -> Any:
        return await link.fetch(query.replace("{s}", schema), *words)

    yield ask
    await link.close()


async def test_each_hears_what_the_others_commit_once_and_in_order(enter: Open):
    a, b = await enter("a"), await enter("b")
    record = object()
    assert await a.store.commit([Write("x", b"1", record)]) == 1
    await b.reaches(1)
    assert await b.store.commit([Write("x", b"2")], [Guard("x", 1)]) == 2
    await a.reaches(2)
    assert a.commits == [Commit(1, (Write("x", b"1", record),)), Commit(2, (Write("x", b"2"),))]
    assert b.commits == [Commit(1, (Write("x", b"1"),)), Commit(2, (Write("x", b"2"),))]
    assert b.commits[0].writes[0].ref is None
