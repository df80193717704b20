"""What the hub needs of every store, over PostgreSQL."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hubbubd.store import Store
from hubbubd.store.postgres import PostgresStore

from ..postgres import Postgres
from . import test_contract

globals().update({name: test for name, test in vars(test_contract).items() if name.startswith("test_")})


@pytest.fixture
async def store(postgres: Postgres, tmp_path: Path) -> AsyncIterator[Store]:
    schema = f"t{secrets.token_hex(8)}"
    store = await PostgresStore.open(postgres.url, schema=schema, directory=tmp_path, patience_s=60)
    yield store
    await store.close()
