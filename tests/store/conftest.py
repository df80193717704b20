"""What the tests of stores in PostgreSQL share."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.postgres_store import PostgresStore

from ..postgres import Postgres
from .entering import LIMIT_S, TTL_S, Heard, Open
from .vaults import Fleet, joined


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
            listens: bool = True,
            timeout_s: float = LIMIT_S,
        ) -> Heard:
            where = tmp_path / (directory or name or "alone")
            where.mkdir(exist_ok=True)
            member = None if name is None else Entrant(name, ttl_s)
            store = await PostgresStore.open(url, schema=schema, directory=where, timeout_s=timeout_s, member=member)
            stack.push_async_callback(store.close)
            heard = Heard(store, listens)
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


@pytest.fixture
async def fleet(postgres: Postgres) -> AsyncIterator[Fleet]:
    """Three members of a fleet that has no secret yet."""
    async with joined(postgres) as fleet:
        yield fleet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub" / "store.db"
