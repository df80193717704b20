"""Members of a fleet whose connections, or whose database, are lost; and stores of before."""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from hubbubd.members import MemberStatus
from hubbubd.store import Precondition, StoreLocked, StoreUnavailable, Write
from hubbubd.store.membership import Expelled, HistoryLost
from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import Database

from ..postgres import Postgres, Proxy
from .entering import LIMIT_S, Heard, Open, cut_off


async def test_a_hub_alone_takes_the_store_from_members_that_have_lost_it(enter: Open, ask: Open, schema: str):
    a = await enter("a", listens=False)  # so it will not be back before it wants something
    await cut_off(ask, schema)
    alone = await enter(None)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"1")])
    assert await alone.store.commit([Write("x", b"2")], [Precondition("x", 0)]) == 1


async def test_a_hub_alone_ends_a_session_of_its_own_that_the_server_does_not_know_to_be_lost(
    enter: Open, ask: Open, schema: str, postgres: Postgres
):
    alone = await enter(None)
    await alone.store.commit([Write("x", b"1")])
    await cut_off(ask, schema)
    lost: Any = await asyncpg.connect(postgres.url)  # in the place of that session
    assert await lost.fetchval(sql.LOCK, schema)
    assert await alone.store.commit([Write("x", b"2")], [Precondition("x", 1)]) == 2
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await lost.fetchval("SELECT 1")


async def test_members_that_have_lost_their_connections_go_on(enter: Open, ask: Open, schema: str):
    a, b = await enter("a"), await enter("b")
    for number in range(5):
        await a.store.commit([Write("x", b"%d" % number)])
        await a.members.renew_lease(a.store.revision)
        await b.reaches(number + 1)
        await cut_off(ask, schema)
    await b.store.commit([Write("x", b"end")], [Precondition("x", 5)])
    await a.reaches(6)
    assert a.state == b.state == {"x": b"end"}
    with pytest.raises(StoreLocked):
        await enter(None)


async def test_what_a_member_has_yet_to_hear_is_not_compacted(enter: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"")])
    await a.store.commit([Write("x", None)])
    await a.store.compact(2)
    assert (await a.store.stats()).compacted_revision == 0
    await b.reaches(2)
    await b.members.renew_lease(1)
    await a.store.compact(2)
    assert (await a.store.stats()).compacted_revision == 1
    await b.members.set_own_status(MemberStatus.GONE)
    await a.store.compact(2)
    assert (await a.store.stats()).compacted_revision == 2


async def test_a_database_that_goes_silent_is_asked_again_over_other_connections(
    enter: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    async with Proxy(postgres) as way, asyncio.timeout(LIMIT_S):
        a = await enter("a", url=way.url)
        await a.store.snapshot()
        for name in ("postgres_store.REPLY_TIMEOUT_S", "database.CONNECT_S", "identity.CONNECT_S"):
            monkeypatch.setattr(f"hubbubd.store.postgres.{name}", 0.2)
        way.silent, before = True, way.made
        commits = asyncio.gather(*(a.store.commit([Write("x", b"%d" % number)]) for number in range(3)))
        while way.made < before + 3:
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        way.silent = False
        assert sorted(await commits) == [1, 2, 3]
        assert [commit.revision for commit in a.commits] == [1, 2, 3]


async def test_what_is_asked_of_a_silent_database_fails_in_time_and_works_again_later(enter: Open, postgres: Postgres):
    async with Proxy(postgres) as way, asyncio.timeout(LIMIT_S):
        a = await enter("a", url=way.url, ttl_s=1, timeout_s=0.5)
        await a.store.snapshot()
        await a.members.renew_lease(0)
        way.silent = True
        for asked in (a.members.renew_lease(0), a.store.snapshot()):
            with pytest.raises(StoreUnavailable, match=r"has not answered for 0\.5 s"):
                await asked
        way.silent = False
        await a.members.renew_lease(0)
        await a.store.snapshot()


async def test_a_member_that_cannot_hear_of_others_ends_its_life(enter: Open, monkeypatch: pytest.MonkeyPatch):
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"1")])
    await b.reaches(1)

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("hubbubd.store.postgres.notices.group_into_commits", broken)
    async with asyncio.timeout(LIMIT_S):
        while b.store.identity.end_reason is None:
            await asyncio.sleep(0.01)
    with pytest.raises(Expelled, match="cannot hear of other members' changes any more: KeyError"):
        await b.store.commit([Write("x", b"2")])
    assert [fault["message"] for fault in faults][:1] == ["Hearing of other members failed"]


async def test_old_groups_are_forgotten_but_those_by_which_a_member_knows_its_history(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    for number in range(4):
        await a.store.commit([Write("x", b"%d" % number)])
    await b.reaches(4)
    await b.members.renew_lease(2)
    await ask("UPDATE {s}.commits SET at = at - interval '2 days'")
    await a.store.compact(4)
    assert [row[0] for row in await ask("SELECT last FROM {s}.commits ORDER BY last")] == [2, 3, 4]


async def test_another_history_ends_the_lives_of_all_and_the_store_gets_another_id(enter: Open, ask: Open, schema: str):
    """As after a standby was promoted that lacked the newest commits, and has got others since."""
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("kept", b"")])
    [[kept]] = await ask("SELECT op FROM {s}.meta")
    await a.store.commit([Write("lost", b"")])
    await b.reaches(2)
    await ask("DELETE FROM {s}.commits WHERE last = 2")
    await ask("DELETE FROM {s}.entries WHERE key = 'lost'")
    await ask("UPDATE {s}.meta SET revision = 1, op = $1", kept)
    await cut_off(ask, schema)
    before = a.store.id
    with pytest.raises(HistoryLost, match="another history than this hub has seen up to revision 2; it is at 1 now"):
        await a.store.commit([Write("x", b"")])
    with pytest.raises(HistoryLost, match="up to revision 2; it is at 1 now") as again:
        await a.members.renew_lease(2)
    assert (again.value.seen, again.value.reached) == (2, 1)
    async with asyncio.timeout(LIMIT_S):
        while b.store.identity.end_reason is None:
            await asyncio.sleep(0.01)
    with pytest.raises(HistoryLost):
        await b.store.snapshot()
    next_lives = [await enter("a"), await enter("b")]
    assert next_lives[0].store.id == next_lives[1].store.id != before
    assert [entry.key for entry in (await next_lives[0].store.snapshot()).entries] == ["kept"]


@pytest.mark.parametrize("reached", [2, 5])
async def test_a_history_that_has_grown_past_the_lost_one_is_known_by_its_groups(
    enter: Open, ask: Open, schema: str, reached: int
):
    a = await enter("a")
    for key in ("kept", "lost"):
        await a.store.commit([Write(key, b"")])
    await ask("BEGIN")
    await ask("LOCK TABLE {s}.meta")  # no connection of before sees what is another database by then
    await ask("DELETE FROM {s}.commits WHERE last = 2")
    await ask("INSERT INTO {s}.commits (op, last) SELECT gen_random_uuid(), n FROM generate_series(2, $1) n", reached)
    await ask("UPDATE {s}.meta SET revision = $1, op = (SELECT op FROM {s}.commits WHERE last = $1)", reached)
    await cut_off(ask, schema)
    await ask("COMMIT")
    with pytest.raises(HistoryLost):
        await a.members.renew_lease(2)


async def test_a_database_that_was_put_back_to_before_this_life_has_another_history(
    enter: Open, ask: Open, schema: str
):
    a = await enter("a")
    before = a.store.id
    await ask("UPDATE {s}.meta SET life = life - 1")
    await ask("DELETE FROM {s}.members")
    await cut_off(ask, schema)
    with pytest.raises(HistoryLost):
        await a.members.renew_lease(0)
    assert (await enter("a")).store.id != before


async def test_a_commit_finds_that_the_database_is_behind(enter: Open, ask: Open):
    a, quiet = await enter("a"), await enter("quiet", listens=False)
    [[first]] = await ask("SELECT op FROM {s}.meta")
    await a.store.commit([Write("x", b"")])
    assert (await quiet.store.snapshot()).revision == 1
    await ask("UPDATE {s}.meta SET revision = 0, op = $1", first)
    with pytest.raises(HistoryLost, match="up to revision 1; it is at 0 now"):
        await quiet.store.commit([Write("y", b"")])
    assert await ask("SELECT FROM {s}.entries WHERE key = 'y'") == []


async def test_a_member_with_open_connections_hears_of_another_history_by_the_new_id(enter: Open, ask: Open):
    a = await enter("a")
    await ask("UPDATE {s}.meta SET id = 'another'")
    async with asyncio.timeout(LIMIT_S):
        while a.store.identity.end_reason is None:
            await asyncio.sleep(0.01)
    with pytest.raises(HistoryLost):
        await a.store.commit([Write("x", b"")])
    assert [row[0] for row in await ask("SELECT id FROM {s}.meta")] == ["another"]


async def test_a_store_of_the_first_version_is_migrated_with_all_that_it_has(
    enter: Open, postgres: Postgres, ask: Open, schema: str
):
    database = Database(postgres.url, schema, None)
    link = await database.connect()
    await link.execute(database.for_schema(sql.MIGRATIONS[0]))
    await ask("INSERT INTO {s}.entries VALUES ('x', 3, 'there'), ('gone', 2, NULL)")
    await ask("UPDATE {s}.meta SET id = 'first', revision = 3, life = 5")
    await link.close(timeout=LIMIT_S)
    a = await enter("a")
    assert (a.store.id, a.store.revision, a.members.term) == ("first", 3, 6)
    snapshot = await a.store.snapshot()
    assert [(entry.key, entry.value) for entry in snapshot.entries] == [("x", b"there")]
    assert snapshot.deleted == (("gone", 2),)
    await cut_off(ask, schema)
    assert await a.store.commit([Write("x", b"2")], [Precondition("x", 3)]) == 4
    b = await enter("b")
    await b.store.commit([Write("x", b"3")], [Precondition("x", 4)])


async def test_many_that_enter_a_new_store_at_once_all_do(enter: Open):
    members = await asyncio.gather(*(enter(name) for name in "abcdefg"))
    assert len({member.members.term for member in members}) == 7
    assert len({member.store.id for member in members}) == 1
    assert len(await members[0].members.members()) == 7


async def test_a_restart_of_the_database_under_load_expels_nobody_and_loses_nothing(enter: Open, postgres: Postgres):
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    members = [await enter(name) for name in "abc"]
    kept: list[int] = []
    stop = asyncio.Event()

    async def write(number: int) -> None:
        revision, step = 0, 0
        while not stop.is_set():
            store, key = members[number % 3].store, f"key/{number}"
            revision = await store.commit([Write(key, b"%d" % step)], [Precondition(key, revision)])
            kept.append(revision)
            step += 1

    async def beat(heard: Heard) -> None:
        while not stop.is_set():
            with suppress(StoreUnavailable):
                await heard.members.renew_lease(heard.store.revision)
            await asyncio.sleep(0.05)

    async def more() -> None:
        before = len(kept)
        while len(kept) < before + 60:
            await asyncio.sleep(0.01)

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        for number in range(9):
            tasks.create_task(write(number))
        for member in members:
            tasks.create_task(beat(member))
        for _ in range(2):
            await more()
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        await more()
        stop.set()
    assert sorted(kept) == list(range(1, len(kept) + 1))
    there = {entry.key: entry.value for entry in (await members[0].store.snapshot()).entries}
    for member in members:
        await member.reaches(len(kept))
        assert member.state == there
        await member.members.renew_lease(0)


async def test_a_silent_host_does_not_keep_from_the_next_one(
    enter: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    connections = list[asyncio.StreamWriter]()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    monkeypatch.setattr("hubbubd.store.postgres.database.CONNECT_S", 0.5)
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        a = await enter("a", url=postgres.url.replace("@", f"@127.0.0.1:{port},"))
        await a.store.commit([Write("x", b"")])
        await a.members.renew_lease(1)
        await a.store.snapshot()
        assert len(connections) == 1  # the next that connects begins with the host that has answered
        for each in connections:
            each.close()
