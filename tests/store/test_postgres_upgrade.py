"""A fleet is upgraded while it works: members of two versions of the schema, until that is finished."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from hubbubd.members import MemberStatus, Schema
from hubbubd.store import StoreLocked, StoreTooNew, StoreUnavailable, Write
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import Database
from hubbubd.store.transfer.postgres import lock_database

from ..postgres import Postgres
from .entering import LIMIT_S, Heard, Open, cut_off, told

NEXT = """
ALTER TABLE {schema}.meta ADD COLUMN more int NOT NULL DEFAULT 0;
ALTER TABLE {schema}.entries ADD COLUMN more int NOT NULL DEFAULT 0;
ALTER TABLE {schema}.commits ADD COLUMN more int NOT NULL DEFAULT 0;
ALTER TABLE {schema}.members ADD COLUMN more int NOT NULL DEFAULT 0;
"""
KNOWN = sql.SCHEMA_VERSION
WAITING = """
SELECT FROM pg_locks
WHERE NOT granted AND mode = 'ShareUpdateExclusiveLock' AND relation = '{schema}.entries'::regclass
"""
Newer = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def newer() -> Newer:
    """The member that enters in its block is of the next version, which adds to each table, or of one still later."""

    @contextmanager
    def newer(by: int = 1) -> Iterator[None]:
        later = [NEXT.replace("more", f"more{number}") for number in range(by)]
        with pytest.MonkeyPatch.context() as version:
            version.setattr("hubbubd.store.postgres.sql.MIGRATIONS", (*sql.MIGRATIONS, *later))
            version.setattr("hubbubd.store.postgres.sql.SCHEMA_VERSION", KNOWN + by)
            yield

    return newer


async def at_work(member: Heard, ends: asyncio.Event) -> int:
    """Do all that a member does, again and again, until told to end; return how many commits were made."""
    done = 0
    while not ends.is_set():
        await member.store.commit([Write(f"k{done % 7}", str(done).encode())])
        done += 1
        await member.members.renew_lease(member.store.revision)
        await member.members.members()
        await member.store.compact(member.store.revision)
        await member.store.reclaim()
    return done


async def test_members_at_work_go_on_beside_one_of_the_next_version(enter: Open, ask: Open, schema: str, newer: Newer):
    members = [await enter(name) for name in "abc"]
    ends = asyncio.Event()
    async with asyncio.TaskGroup() as together:
        working = [together.create_task(at_work(member, ends)) for member in members]
        await members[0].reaches(20)
        with newer():
            upgraded = await enter("d")
        assert await ask("SELECT more0 FROM {s}.meta") != []
        await upgraded.reaches(upgraded.store.revision + 20)
        ends.set()
    assert all(each.result() for each in working)
    await upgraded.store.commit([Write("x", b"")])
    await cut_off(ask, schema)
    for member in members:
        await member.store.commit([Write(f"of {member.members.name}", b"")])
    assert len(await members[0].members.members()) == 4
    assert members[0].members.schema == Schema(KNOWN + 1, KNOWN)
    assert [(await told(upgraded, name)).schema for name in "ad"] == [KNOWN, KNOWN + 1]


async def test_until_an_upgrade_is_finished_older_members_may_start_again(enter: Open, newer: Newer):
    a = await enter("a")
    with newer():
        b = await enter("b")
    assert await b.members.finish_upgrade() == Schema(KNOWN + 1, KNOWN)
    await a.members.set_own_status(MemberStatus.GONE)
    again = await enter("a")
    await again.store.commit([Write("x", b"")])
    assert await b.members.finish_upgrade() == Schema(KNOWN + 1, KNOWN)


@pytest.mark.parametrize("becomes", ["gone", "newer"])
async def test_a_finished_upgrade_lets_no_older_one_in(enter: Open, newer: Newer, becomes: str):
    a = await enter("a")
    with newer():
        b = await enter("b")
    await a.members.set_own_status(MemberStatus.GONE)
    if becomes == "newer":
        with newer():
            await enter("a")
    assert await b.members.finish_upgrade() == Schema(KNOWN + 1, KNOWN + 1)
    await b.members.members()
    assert b.members.schema == Schema(KNOWN + 1, KNOWN + 1)
    with pytest.raises(StoreTooNew, match=rf"schema {KNOWN + 1}, this hub knows up to {KNOWN}\); install"):
        await enter("c")
    with newer():
        await enter("c")


async def test_a_member_that_is_gone_finishes_nothing(enter: Open, newer: Newer, ask: Open):
    await enter("a")
    with newer():
        b = await enter("b")
    await b.members.renew_lease(0)
    await ask("UPDATE {s}.members SET standing = 'gone'")
    with pytest.raises(StoreUnavailable, match="no member of the fleet any more"):
        await b.members.finish_upgrade()
    assert [row[0] for row in await ask("SELECT required FROM {s}.meta")] == [KNOWN]


@pytest.mark.parametrize("name", [None, "a"])
async def test_nobody_needs_to_finish_what_began_with_a_new_store_or_alone(enter: Open, newer: Newer, name: str | None):
    if name is None:
        await (await enter(None)).store.close()
    with newer():
        member = await enter(name)
        await member.store.close()
    with pytest.raises(StoreTooNew):
        await enter("a")


async def test_an_older_hub_alone_leaves_the_tables_as_they_are(enter: Open, newer: Newer, ask: Open):
    await (await enter("a")).store.close()
    with newer():
        await (await enter("b")).store.close()
    await ask("UPDATE {s}.members SET standing = 'gone'")
    alone = await enter(None)
    await alone.store.commit([Write("x", b"")])
    assert [tuple(row) for row in await ask("SELECT version, required FROM {s}.meta")] == [(KNOWN + 1, KNOWN)]


async def test_whoever_reads_for_long_does_not_keep_commits_waiting_behind_a_migration(
    enter: Open, newer: Newer, postgres: Postgres, schema: str
):
    a = await enter("a")
    database = Database(postgres.url, schema, None)
    reads = await database.connect()
    begun = reads.transaction()
    await begun.__aenter__()
    await reads.fetch(database.for_schema("SELECT * FROM {schema}.members"))
    with newer():
        entering = asyncio.create_task(enter("b"))
        for number in range(5):
            await a.store.commit([Write("x", str(number).encode())])
            await asyncio.sleep(0.1)
        assert not entering.done()
        await begun.__aexit__(None, None, None)
        async with asyncio.timeout(LIMIT_S):
            b = await entering
    await reads.close(timeout=LIMIT_S)
    assert (await b.store.snapshot()).entries[0].value == b"4"


async def test_what_the_last_version_made_that_knew_no_upgrades_requires_the_first_that_does(
    enter: Open, postgres: Postgres, ask: Open, schema: str
):
    database = Database(postgres.url, schema, None)
    link = await database.connect()
    for step in sql.MIGRATIONS[:2]:
        await link.execute(database.for_schema(step))
    await ask("UPDATE {s}.meta SET version = 2")
    await link.close(timeout=LIMIT_S)
    a = await enter("a")
    await a.members.members()
    assert a.members.schema == Schema(KNOWN, 3)


async def test_a_member_two_versions_ahead_of_one_at_work_does_not_start(enter: Open, newer: Newer, ask: Open):
    a = await enter("a")
    with newer(2), pytest.raises(StoreLocked, match="more than one version of its schema behind this hub: a;"):
        await enter("b")
    await a.store.commit([Write("x", b"")])
    assert await a.members.finish_upgrade() == Schema(KNOWN, KNOWN)
    await a.members.set_own_status(MemberStatus.GONE)
    with newer(2):
        b = await enter("b")
    assert await b.members.finish_upgrade() == Schema(KNOWN + 2, KNOWN + 2)


async def test_a_hub_alone_and_a_copy_mind_no_rows_of_those_that_do_not_run(
    enter: Open, newer: Newer, ask: Open, postgres: Postgres, schema: str
):
    await (await enter(None)).store.close()
    await ask("INSERT INTO {s}.members SELECT 'crashed', 1, '', 'live', '', '', '', 0, now(), 'infinity', now(), 1")
    with newer(2):
        async with lock_database(postgres.url, schema, None):
            pass
        await ask("UPDATE {s}.members SET standing = 'live'")
    with newer(4):
        await (await enter(None)).store.close()


async def test_a_former_hub_alone_keeps_no_member_from_starting(enter: Open, newer: Newer):
    await (await enter(None)).store.close()
    with newer(2):
        await enter("a")


async def test_what_is_two_versions_behind_is_refused_although_the_upgrade_is_not_finished(enter: Open, newer: Newer):
    await (await enter("a")).members.set_own_status(MemberStatus.GONE)
    with newer(2):
        await enter("b")
    with pytest.raises(StoreTooNew, match=f"schema {KNOWN + 1},"):
        await enter("a")
    with newer(1):
        await enter("a")


async def test_a_copy_finishes_no_upgrade_of_what_it_reads(enter: Open, newer: Newer, postgres: Postgres, schema: str):
    a = await enter("a")
    await a.members.set_own_status(MemberStatus.GONE)
    await a.store.close()
    with newer():
        async with lock_database(postgres.url, schema, None) as held, held.open_reader() as reading:
            assert reading is not None
    await enter("a")


async def test_a_vacuum_yields_to_a_new_member(enter: Open, newer: Newer, postgres: Postgres, schema: str):
    await enter("a")
    database = Database(postgres.url, schema, None)
    vacuums = await database.connect()
    begun = vacuums.transaction()
    await begun.__aenter__()
    await vacuums.execute(database.for_schema("LOCK TABLE {schema}.entries IN SHARE UPDATE EXCLUSIVE MODE"))
    with newer():
        entering = asyncio.create_task(enter("b"))
        # In this mode, in which nobody waits behind it, it waits for as long as a vacuum needs to yield.
        async with asyncio.timeout(LIMIT_S):
            while not await vacuums.fetch(database.for_schema(WAITING)):
                await asyncio.sleep(0.01)
        assert not entering.done()
        await begun.__aexit__(None, None, None)
        async with asyncio.timeout(LIMIT_S):
            await entering
    await vacuums.close(timeout=LIMIT_S)
