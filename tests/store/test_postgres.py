"""The store in PostgreSQL where the database, or the way to it, fails."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.config.sections.store import StoreSettings
from hubbubd.store import (
    Commit,
    OutcomeUnknown,
    Precondition,
    Snapshot,
    StoreLocked,
    StoreTooNew,
    StoreUnavailable,
    Write,
)
from hubbubd.store.postgres.database import require_reachable
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.postgres_store import PostgresStore
from hubbubd.store.postgres.sql import KEY_BYTES
from hubbubd.store.postgres.vault import PostgresVault
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from ..postgres import Postgres, Proxy
from .vaults import OLD, TOKEN, keys

Open = Callable[..., Any]
LIMIT_S = 60


@pytest.fixture
async def open_store(postgres: Postgres, schema: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the store of this test, any number of times."""
    opened: list[PostgresStore] = []

    async def open_store(url: str = postgres.url, timeout_s: float = LIMIT_S) -> PostgresStore:
        store = await PostgresStore.open(url, schema=schema, directory=tmp_path, timeout_s=timeout_s)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        await store.close()


async def values(store: PostgresStore) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await store.snapshot()).entries}


async def asked(postgres: Postgres, query: str) -> Any:
    link: Any = await asyncpg.connect(postgres.url)
    try:
        return await link.fetchval(query)
    finally:
        await link.close()


async def test_a_second_hub_is_refused_while_the_first_one_has_it(open_store: Open):
    first = await open_store()
    with pytest.raises(StoreLocked, match="in use by another hub"):
        await open_store()
    await first.close()
    await open_store()


async def test_a_hub_that_was_replaced_keeps_nothing_more(open_store: Open, postgres: Postgres, schema: str):
    store = await open_store()
    await store.commit([Write("a", b"1")])
    await asked(postgres, f"UPDATE {schema}.members SET standing = 'gone' RETURNING 1")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="another hub has taken over"):
            await store.commit([Write("a", b"2")])
    with pytest.raises(StoreUnavailable, match="another hub has taken over"):
        await store.probe()
    assert await asked(postgres, f"SELECT value FROM {schema}.entries WHERE key = 'a'") == b"1"
    assert await asked(postgres, f"SELECT revision FROM {schema}.meta") == 1


async def test_a_commit_whose_reply_was_lost_happens_once(open_store: Open, postgres: Postgres):
    """Each commit counts on; one that was lost or made twice would leave another number."""
    async with Proxy(postgres) as way:
        store = await open_store(way.url)
        heard: list[Commit] = []
        store.listen(heard.append)
        for number in range(60):
            way.eaten = 1 if number % 3 == 0 else 2 if number % 20 == 1 else 0
            revision = await store.commit([Write("a", b"%d" % number)], [Precondition("a", number)])
            assert revision == number + 1
        assert way.cut >= 20
        assert [commit.revision for commit in heard] == list(range(1, 61))
        assert await values(store) == {"a": b"59"}
        await store.close()


async def test_many_at_once_over_a_way_that_breaks_get_one_outcome_each(open_store: Open, postgres: Postgres):
    async with Proxy(postgres) as way:
        store = await open_store(way.url)
        heard: list[Commit] = []
        store.listen(heard.append)

        async def write(number: int) -> None:
            for step in range(20):
                if (number + step) % 11 == 0:
                    way.eaten = 1
                await store.commit([Write(f"key/{number}", b"%d" % step)])

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as writers:
            for number in range(10):
                writers.create_task(write(number))
        assert way.cut > 0
        assert [commit.revision for commit in heard] == list(range(1, 201))
        assert set((await values(store)).values()) == {b"19"}
        await store.close()


async def test_a_database_that_is_away_makes_commits_fail_in_time_and_is_used_again(
    open_store: Open, postgres: Postgres
):
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    store = await open_store(timeout_s=0.5)
    heard: list[Commit] = []
    store.listen(heard.append)
    await store.commit([Write("before", b"")])
    assert store.reconnects == 0
    postgres.stop()
    try:
        with pytest.raises(OutcomeUnknown, match="whether this was kept will show"):
            await store.commit([Write("away", b"")])
        with pytest.raises(StoreUnavailable):
            await store.snapshot()
    finally:
        postgres.start()
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await store.commit([Write("after", b"")])
                break
            except OutcomeUnknown:
                continue
    assert store.reconnects > 0
    found = await values(store)
    assert {"before", "after"} <= set(found)
    # Whatever became of the one in between, memory has heard what the database has.
    told = {write.key for commit in heard for write in commit.writes}
    assert told == set(found)
    assert [commit.revision for commit in heard] == list(range(1, store.revision + 1))


async def test_a_restart_of_the_database_under_load_loses_and_doubles_nothing(open_store: Open, postgres: Postgres):
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    store = await open_store()
    kept: list[int] = []
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        revision, step = 0, 0
        while not stop.is_set():
            revision = await store.commit(
                [Write(f"key/{writer}", b"%d" % step)], [Precondition(f"key/{writer}", revision)]
            )
            kept.append(revision)
            step += 1

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as writers:
        for writer in range(8):
            writers.create_task(write(writer))
        for _ in range(3):
            before = len(kept)
            while len(kept) < before + 50:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        before = len(kept)
        while len(kept) < before + 50:
            await asyncio.sleep(0.01)
        stop.set()
    assert sorted(kept) == list(range(1, len(kept) + 1))


async def test_a_copy_is_the_store_of_a_hub_without_a_database(open_store: Open, tmp_path: Path):
    store = await open_store()
    await store.commit([Write("a", b"1"), Write("gone", b"x")])
    await store.commit([Write("gone", None)])
    await store.compact(1)
    with await store.copy() as copy:
        (tmp_path / "hub").mkdir()
        (tmp_path / "hub" / "store.db").write_bytes(copy.read())
    copied = await SqliteStore.open(tmp_path / "hub" / "store.db")
    try:
        assert await copied.snapshot() == await store.snapshot()
        assert copied.id != store.id
        assert (await copied.stats()).compacted_revision == 1
        assert await copied.commit([Write("a", b"2")], [Precondition("a", 1)]) == 3
    finally:
        await copied.close()


async def test_a_copy_is_compacted_up_to_its_own_revision_at_most(
    open_store: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = await open_store()
    await store.commit([Write("x", b"")])
    found = await store.snapshot()
    await store.commit([Write("x", b"2")])
    await store.compact(2)

    async def earlier(_prefix: str = "") -> Snapshot:
        return found

    monkeypatch.setattr(store, "snapshot", earlier)
    with await store.copy() as copy:
        (tmp_path / "store.db").write_bytes(copy.read())
    copied = await SqliteStore.open(tmp_path / "store.db")
    try:
        assert (await copied.stats()).compacted_revision == 1
    finally:
        await copied.close()


@pytest.mark.parametrize("schema", ["user", "select", "_"])
async def test_a_schema_may_be_a_word_of_sql(postgres: Postgres, tmp_path: Path, schema: str):
    await asked(postgres, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    settings = StoreSettings.model_validate({"url": postgres.url, "schema_name": schema})
    member = Entrant("a", LIMIT_S)
    store = await PostgresStore.open(postgres.url, schema=schema, directory=tmp_path, member=member)
    try:
        heard: list[Commit] = []
        store.listen(heard.append)
        assert await store.commit([Write("x", b"")]) == 1
        await store.compact(1)
        await store.reclaim()
        assert (await store.stats()).keys == 1
        vault = await PostgresVault.open(settings, keys(OLD), "a", store.identity.term)
        await vault.put("one", TOKEN)
        await vault.close()
    finally:
        await store.close()
        await asked(postgres, f'DROP SCHEMA "{schema}" CASCADE')


async def test_a_newer_store_is_left_as_it_is(open_store: Open, postgres: Postgres, schema: str):
    await (await open_store()).close()
    await asked(postgres, f"UPDATE {schema}.meta SET version = 99, required = 99 RETURNING 1")
    with pytest.raises(StoreTooNew, match="schema 99"):
        await open_store()
    assert await asked(postgres, f"SELECT life FROM {schema}.meta") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("/postgres", "/nowhere"), "there is no such database; make it with `createdb`"),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:1"), "failed: connect\\(\\): port must be 0-65535"),
        (lambda _url: "postgresql://hubbub@127.0.0.1:1/hubbub", "it cannot be reached; look whether it runs"),
        (lambda _url: "mysql://127.0.0.1/hubbub", "invalid DSN"),
    ],
    ids=["no database", "no port", "nobody listens", "no PostgreSQL"],
)
async def test_what_is_wrong_with_the_address_is_said(
    open_store: Open, postgres: Postgres, change: Callable[[str], str], words: str
):
    with pytest.raises(StoreUnavailable, match=words):
        await open_store(change(postgres.url))


async def test_no_password_is_in_a_name_or_an_error(postgres: Postgres, tmp_path: Path):
    secret = postgres.url.replace("hubbub@", "nobody:s3cr3t@")
    with pytest.raises(StoreUnavailable) as refused:
        await PostgresStore.open(secret, schema="t", directory=tmp_path)
    assert "s3cr3t" not in str(refused.value)
    assert "nobody@" in str(refused.value)


@pytest.mark.parametrize("between", ["/", "#", "?", "@", ":", "/@", "@/", "@?", "%zz", "["])
@pytest.mark.parametrize("there", ["127.0.0.1:1/hub", "127.0.0.1:1/hub?application_name=a@b"])
async def test_no_part_of_a_password_is_told_however_it_is_written(tmp_path: Path, between: str, there: str):
    with pytest.raises(StoreUnavailable) as refused:
        await PostgresStore.open(f"postgresql://ada:s3c{between}r3t@{there}", schema="t", directory=tmp_path)
    said = f"{refused.value} {refused.value.__cause__}"
    assert "s3c" not in said
    assert "r3t" not in said


async def test_an_address_that_cannot_be_read_says_how_to_write_it(tmp_path: Path):
    with pytest.raises(StoreUnavailable, match=r"its address cannot be read; look at its ports, .* as %2F"):
        await PostgresStore.open("postgresql://ada:pa/ss@127.0.0.1:1/hub", schema="t", directory=tmp_path)


LONGEST = secrets.token_hex(KEY_BYTES // 2)  # chance, as PostgreSQL would compress it


@pytest.mark.parametrize(
    ("writes", "guards"),
    [
        ([Write("a\0", b"")], []),
        ([Write("a", b"")], [Precondition("a\0", 0)]),
        ([Write("a", b"")], [Precondition("\ud800", 0)]),
        ([Write(f"{LONGEST}x", b"")], []),
        ([Write("a", b"")], [Precondition(f"{LONGEST[1:]}é", 0)]),
    ],
    ids=["a NUL", "a NUL in a guard", "a surrogate in a guard", "too long", "too long in a guard"],
)
async def test_a_key_that_a_database_does_not_keep_is_refused_and_nobody_else_suffers(
    open_store: Open, writes: list[Write], guards: list[Precondition]
):
    store = await open_store()
    refused, kept = await asyncio.gather(
        store.commit(writes, guards), store.commit([Write(LONGEST, b"")]), return_exceptions=True
    )
    assert isinstance(refused, ValueError)
    assert kept == 1
    assert [entry.key for entry in (await store.snapshot()).entries] == [LONGEST]


async def test_a_compaction_that_was_cut_short_is_completed_by_the_next_one(
    open_store: Open, postgres: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
):
    store = await open_store()
    await store.commit([Write("x", b"")])
    await store.commit([Write("x", None)])
    with monkeypatch.context() as broken:
        broken.setattr("hubbubd.store.postgres.sql.DELETE_TOMBSTONES", "SELECT 1 / 0, $1::bigint, $2::bigint")
        with pytest.raises(StoreUnavailable):
            await store.compact(2)
    assert (await store.snapshot()).deleted == (("x", 2),)
    await store.compact(2)
    assert (await store.snapshot()).deleted == ()


async def test_commits_do_not_wait_for_what_a_compaction_deletes(open_store: Open, postgres: Postgres, schema: str):
    store = await open_store()
    for value in (b"", None, b""):
        await store.commit([Write("x", value)])
    await asked(postgres, f"UPDATE {schema}.commits SET at = at - interval '2 days'")
    link: Any = await asyncpg.connect(postgres.url)
    async with asyncio.timeout(LIMIT_S):
        async with link.transaction():
            # As long as this goes on, no row of them can be deleted.
            await link.execute(f"SELECT FROM {schema}.commits FOR UPDATE")
            compacting = asyncio.create_task(store.compact(2))
            while (await store_compacted(link, schema)) < 2:
                await asyncio.sleep(0.01)
            assert await store.commit([Write("y", b"")]) == 4
            assert not compacting.done()
        await compacting
    await link.close()


async def store_compacted(link: Any, schema: str) -> int:
    return await link.fetchval(f"SELECT compacted FROM {schema}.meta")


async def test_it_can_be_looked_at_without_being_opened(postgres: Postgres, schema: str):
    assert schema in await require_reachable(postgres.url, schema, None)
    assert await asked(postgres, f"SELECT to_regclass('{schema}.meta')") is None
