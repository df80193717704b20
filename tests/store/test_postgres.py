"""The store in PostgreSQL where the database, or the way to it, fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.store import (
    Commit,
    Guard,
    OutcomeUnknown,
    StoreLocked,
    StoreTooNew,
    StoreUnavailable,
    Write,
)
from hubbubd.store.postgres import PostgresStore
from hubbubd.store.postgres_link import reachable
from hubbubd.store.sqlite import SqliteStore

from ..postgres import Postgres, Proxy

Open = Callable[..., Any]
LIMIT_S = 60


@pytest.fixture
async def open_store(postgres: Postgres, schema: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the store of this test, any number of times."""
    opened: list[PostgresStore] = []

    async def open_store(url: str = postgres.url, patience_s: float = LIMIT_S) -> PostgresStore:
        store = await PostgresStore.open(url, schema=schema, directory=tmp_path, patience_s=patience_s)
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


async def test_what_was_kept_is_there_when_it_is_opened_again(open_store: Open):
    first = await open_store()
    await first.commit([Write("a", b"1")])
    await first.commit([Write("b", b"2")])
    id_ = first.id
    await first.close()
    again = await open_store()
    assert (again.id, again.revision) == (id_, 2)
    assert await values(again) == {"a": b"1", "b": b"2"}
    assert await again.commit([Write("a", None)], [Guard("a", 1)]) == 3


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
            revision = await store.commit([Write("a", b"%d" % number)], [Guard("a", number)])
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
    store = await open_store(patience_s=0.5)
    heard: list[Commit] = []
    store.listen(heard.append)
    await store.commit([Write("before", b"")])
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
            revision = await store.commit([Write(f"key/{writer}", b"%d" % step)], [Guard(f"key/{writer}", revision)])
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
        assert await copied.commit([Write("a", b"2")], [Guard("a", 1)]) == 3
    finally:
        await copied.close()


async def test_a_newer_store_is_left_as_it_is(open_store: Open, postgres: Postgres, schema: str):
    await (await open_store()).close()
    await asked(postgres, f"UPDATE {schema}.meta SET version = 99 RETURNING 1")
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


async def test_a_key_with_a_nul_is_refused_and_nobody_else_suffers(open_store: Open):
    store = await open_store()
    refused, kept = await asyncio.gather(
        store.commit([Write("a\0", b"")]), store.commit([Write("b", b"")]), return_exceptions=True
    )
    assert isinstance(refused, ValueError)
    assert kept == 1


async def test_it_can_be_looked_at_without_being_opened(postgres: Postgres, schema: str):
    assert schema in await reachable(postgres.url, schema, None)
    assert await asked(postgres, f"SELECT to_regclass('{schema}.meta')") is None
