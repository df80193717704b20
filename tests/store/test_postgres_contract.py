"""What the hub needs of every store, over PostgreSQL: for a hub alone, and for the member of a fleet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hubbubd.store import Store
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.postgres_store import PostgresStore

from ..postgres import Postgres
from . import test_contract

globals().update({name: test for name, test in vars(test_contract).items() if name.startswith("test_")})


@pytest.fixture(params=["alone", "member"])
async def store(
    request: pytest.FixtureRequest, postgres: Postgres, schema: str, tmp_path: Path
) -> AsyncIterator[Store]:
    member = Entrant("a", 6.0) if request.param == "member" else None
    store = await PostgresStore.open(postgres.url, schema=schema, directory=tmp_path, timeout_s=60, member=member)
    yield store
    await store.close()
