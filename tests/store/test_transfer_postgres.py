"""Copies of stores into a database, out of it, and within it."""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.config import HubSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.config.store_addresses import DatabaseAddress, StoreAddress, StoreCopy
from hubbubd.errors import ConfigError
from hubbubd.program.store_copy import copy_or_compare
from hubbubd.store import Store, StoreError, StoreUnavailable, Write
from hubbubd.store.postgres.postgres_store import PostgresStore

from ..postgres import Postgres, Proxy
from . import test_transfer
from .test_transfer import FEW, MANY, Places, copied, is_not_there, told, whole
from .test_transfer_files import path_of

LIMIT_S = 60

for name, test in list(vars(test_transfer).items()):
    parameters = getattr(getattr(test, "__code__", None), "co_varnames", ())
    if name.startswith("test_") and "places" in parameters:
        globals()[name] = test


class Schemas(Places):
    """Stores in schemas of one database."""

    def __init__(self, postgres: Postgres, directory: Path) -> None:
        super().__init__(directory)
        self.url = postgres.url

    def new(self) -> StoreAddress:
        return DatabaseAddress(self.url, f"t{secrets.token_hex(8)}")

    @asynccontextmanager
    async def _opened(self, place: StoreAddress) -> AsyncGenerator[Store]:
        assert isinstance(place, DatabaseAddress)
        store = await PostgresStore.open(place.url, schema=place.schema, directory=self.directory, timeout_s=60)
        try:
            yield store
        finally:
            await store.close()

    async def newer(self, place: StoreAddress) -> None:
        assert isinstance(place, DatabaseAddress)
        await self.asked(f"UPDATE {place.schema}.meta SET version = 99, required = 99")

    async def asked(self, query: str) -> Any:
        """Runs a statement and returns its one value."""
        link: Any = await asyncpg.connect(self.url)
        try:
            return await link.fetchval(query)
        finally:
            await link.close()


@pytest.fixture
def places(postgres: Postgres, tmp_path: Path) -> Places:
    return Schemas(postgres, tmp_path)


@pytest.fixture
def schemas(places: Places) -> Schemas:
    assert isinstance(places, Schemas)
    return places


@pytest.fixture
def files(tmp_path: Path) -> Places:
    return Places(tmp_path)


async def test_a_database_that_cannot_be_reached_is_named_without_a_trace(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    nowhere = DatabaseAddress("postgresql://ada@127.0.0.1:1/hub", "hubbub")
    for one, other in ((source, nowhere), (nowhere, target)):
        with pytest.raises(
            StoreUnavailable, match=r"postgresql://ada@127\.0\.0\.1:1/hub, schema hubbub failed: it cannot"
        ):
            await copied(one, other)


async def test_a_database_that_is_not_there_is_named_with_what_to_do(schemas: Schemas, files: Places) -> None:
    nowhere = DatabaseAddress(schemas.url.replace("/postgres", "/nowhere"), "hubbub")
    with pytest.raises(StoreUnavailable, match="there is no such database; make it with `createdb`"):
        await copied(await files.kept(FEW), nowhere)


async def test_a_key_with_a_nul_is_named_and_nothing_is_copied(schemas: Schemas, files: Places) -> None:
    target = schemas.new()
    with pytest.raises(StoreError, match=r"'a\\x00b' has a NUL, which PostgreSQL does not keep; nothing was copied"):
        await copied(await files.kept([[("a\0b", b"1")]]), target)
    assert await is_not_there(target)


async def test_a_key_that_is_too_long_is_named_and_nothing_is_copied(schemas: Schemas, files: Places) -> None:
    target = schemas.new()
    with pytest.raises(StoreError, match=r"the key 'k{256}' has 2601 bytes, and .* most 2600; nothing was copied"):
        await copied(await files.kept([[("k" * 2601, b"1")]]), target)
    assert await is_not_there(target)


async def test_a_connection_that_breaks_on_the_way_leaves_no_copy(
    schemas: Schemas, postgres: Postgres, files: Places
) -> None:
    source, target = await files.kept(MANY), schemas.new()
    assert isinstance(target, DatabaseAddress)
    async with Proxy(postgres) as way:

        def cut(done: int, _whole: int) -> None:
            if done == 2000:
                way.end()

        with pytest.raises(StoreUnavailable):
            await copied(source, DatabaseAddress(way.url, target.schema), on_copied=cut)
    async with asyncio.timeout(LIMIT_S):
        while await schemas.asked("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"):
            await asyncio.sleep(0.01)  # until the database notices, the client that has gone holds the target
    assert await is_not_there(target)
    assert (await copied(source, target, verify=True)).comparison.differing == 0


async def test_a_copy_is_one_cut_though_a_late_commit_of_before_arrives(schemas: Schemas, files: Places) -> None:
    source, target = await schemas.kept(MANY), files.new()
    assert isinstance(source, DatabaseAddress)
    late = f"UPDATE {source.schema}.entries SET revision = 99, value = 'late'"

    def change(done: int, _whole: int) -> None:
        if done == 1000:
            changing = threading.Thread(target=lambda: asyncio.run(schemas.asked(late)))
            changing.start()
            changing.join()

    await copied(source, target, on_copied=change)
    assert await schemas.asked(f"SELECT count(*) FROM {source.schema}.entries WHERE revision = 99") == 3000
    assert max(entry.revision for entry in (await whole(files, target))[0].entries) == len(MANY)


async def test_a_hub_that_has_lost_its_connection_keeps_nothing_more_after_a_copy(
    schemas: Schemas, files: Places
) -> None:
    """It would think of the copy's session as its own, and end it."""
    source = await schemas.kept(FEW)
    assert isinstance(source, DatabaseAddress)
    async with schemas.opened(source) as lost:
        sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'"
        assert (
            await schemas.asked(f"{sessions} AND objid = (hashtext('{source.schema}')::bigint & 4294967295)::oid") == 1
        )
        found = await copied(source, files.new(), verify=True)
        with pytest.raises(StoreUnavailable, match="another hub has taken over"):
            await lost.commit([Write("late", b"1")])
    assert found.comparison.differing == 0
    assert {entry.key for entry in (await whole(schemas, source))[0].entries} == {"a", "c", "d"}


async def test_a_backup_of_a_database_is_copied_back(schemas: Schemas, files: Places, tmp_path: Path) -> None:
    source, again = await schemas.kept(FEW, compacted=1), schemas.new()
    backup = files.new()
    path = path_of(backup)
    path.parent.mkdir()
    async with schemas.opened(source) as store:
        with await store.copy() as file:
            path.write_bytes(file.read())
    assert (await copied(backup, again, verify=True)).comparison.differing == 0
    assert (await copied(source, backup, verify=True)).comparison.differing == 0
    assert (await whole(schemas, again))[:2] == (await whole(schemas, source))[:2]


async def test_a_database_keeps_no_secrets_by_itself(schemas: Schemas, files: Places) -> None:
    source, target = await files.kept(FEW), schemas.new()
    for one, other in ((source, target), (await schemas.kept(FEW), files.new())):
        with pytest.raises(ConfigError, match=r"only with \[fleet\] vault_key_file; .* so leave out --secrets"):
            await copied(one, other, secrets=True)
    assert await is_not_there(target)


async def test_a_password_that_cannot_be_read_is_a_wrong_setting(schemas: Schemas, files: Places) -> None:
    without = HubSettings(data_dir=Path("nowhere"), store=StoreSettings(password_file=Path("missing")))
    order = StoreCopy(source=await files.kept(FEW), target=schemas.new(), secrets=False, verify=False)
    with pytest.raises(ConfigError, match=r"store\.password_file: missing cannot be read"):
        await copy_or_compare(order, without, told)
