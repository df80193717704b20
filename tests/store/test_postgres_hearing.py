"""Several members of a fleet over one PostgreSQL: all hear the same, in order, and each commit once."""

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from hubbubd.store import Commit, Precondition, Write, WriteConflict
from hubbubd.store.postgres import notices
from hubbubd.store.postgres.database import DatabaseConnection
from hubbubd.store.postgres.identity import MemberIdentity
from hubbubd.store.postgres.notices import RevisionDelta, fetch_delta

from ..postgres import Postgres, Proxy
from .entering import LIMIT_S, Open


async def test_each_hears_what_the_others_commit_once_and_in_order(enter: Open):
    a, b = await enter("a"), await enter("b")
    record = object()
    assert await a.store.commit([Write("x", b"1", record)]) == 1
    await b.reaches(1)
    assert await b.store.commit([Write("x", b"2")], [Precondition("x", 1)]) == 2
    await a.reaches(2)
    assert a.commits == [Commit(1, (Write("x", b"1", record),)), Commit(2, (Write("x", b"2"),))]
    assert b.commits == [Commit(1, (Write("x", b"1"),)), Commit(2, (Write("x", b"2"),))]
    assert b.commits[0].writes[0].ref is None


async def test_a_connection_that_falls_silent_as_it_begins_to_listen_is_made_again(
    enter: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notices, "REPLY_TIMEOUT_S", 0.5)
    a = await enter("a")
    silent: list[Any] = []

    async def listen(link: Any, *args: Any) -> None:
        if not silent:
            silent.append(link)
            link._transport.pause_reading()
        await direct(link, *args)

    async with Proxy(postgres) as way:
        b = await enter("b", url=way.url)
        await a.store.commit([Write("x", b"1")])
        await b.reaches(1)
        direct = asyncpg.Connection.add_listener
        monkeypatch.setattr(asyncpg.Connection, "add_listener", listen)
        way.end()
        await a.store.commit([Write("x", b"2")])
        await b.reaches(2)
        assert silent
        await b.store.close()


async def test_what_one_lost_to_is_told_before_the_conflict(enter: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"a")])
    with pytest.raises(WriteConflict):
        await b.store.commit([Write("x", b"b")], [Precondition("x", 0)])
    assert b.commits == [Commit(1, (Write("x", b"a"),))]


async def test_what_changed_more_than_once_in_between_comes_once_with_its_newest_state(enter: Open):
    a, b = await enter("a"), await enter("b")
    async with asyncio.TaskGroup() as tasks:
        # All of them in one group, so that b cannot look in between.
        for value in (b"1", b"2", b"3"):
            tasks.create_task(a.store.commit([Write("x", value), Write(f"y/{value.decode()}", value)]))
        tasks.create_task(a.store.commit([Write("y/1", None)]))
    await b.reaches(4)
    assert b.commits == [
        Commit(2, (Write("y/2", b"2"),)),
        Commit(3, (Write("x", b"3"), Write("y/3", b"3"))),
        Commit(4, (Write("y/1", None),)),
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_all_end_with_what_the_database_has_whoever_wrote_it(
    enter: Open, postgres: Postgres, schema: str, seed: int
):
    """Random commits at three members; a way that eats replies is between one of them and the database."""
    dice = random.Random(seed)
    async with Proxy(postgres) as way:
        members = [await enter("a"), await enter("b"), await enter("c", url=way.url)]
        own: list[set[int]] = [set(), set(), set()]

        async def write(number: int) -> None:
            store, heard = members[number].store, members[number].commits
            for step in range(40):
                keys = dice.sample(range(8), dice.randint(1, 3))
                value = f"{number}/{step}".encode()
                writes = [Write(f"k/{key}", None if dice.random() < 0.2 else value, number) for key in keys]
                # A reader that sees the two halves apart has seen half a commit.
                writes += [Write("half/1", value, number), Write("half/2", value, number)]
                if number == 2 and dice.random() < 0.2:
                    way.eaten = 1
                revision = await store.commit(writes)
                assert heard[-1].revision >= revision
                own[number].add(revision)
                if dice.random() < 0.3:
                    snapshot = await store.snapshot("half/")
                    assert len({entry.value for entry in snapshot.entries}) == 1
                    assert snapshot.revision <= heard[-1].revision

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as writers:
            for number in (0, 0, 1, 1, 2, 2):
                writers.create_task(write(number))
        assert way.cut > 0
        last = max(member.store.revision for member in members)
        there = {entry.key: entry.value for entry in (await members[0].store.snapshot()).entries}
        for number, member in enumerate(members):
            await member.reaches(last)
            told = [commit.revision for commit in member.commits]
            assert told == sorted(set(told)), "in order, and each once"
            assert member.state == there
            # One's own come one by one, as they were written; others' without a reference.
            for commit in member.commits:
                refs = {write.ref for write in commit.writes}
                assert refs == ({number} if commit.revision in own[number] else {None})
            assert own[number] <= set(told)
            halves = [{w.value for w in c.writes if w.key.startswith("half/")} for c in member.commits]
            assert all(len(each) <= 1 for each in halves)
        assert sum(map(len, own)) == len(own[0] | own[1] | own[2]) == last


async def test_a_notice_that_is_lost_is_found_by_a_look(enter: Open, monkeypatch: pytest.MonkeyPatch):
    a, b = await enter("a"), await enter("b")
    monkeypatch.setattr("hubbubd.store.postgres.sql.NOTIFY", "SELECT $1::text, $2::text")
    await a.store.commit([Write("x", b"1")])
    await b.reaches(1)
    assert b.commits == [Commit(1, (Write("x", b"1"),))]


async def test_others_are_given_notice_at_once_also_by_one_that_listens_to_nobody(
    enter: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("hubbubd.store.postgres.notices.BUSY_INTERVAL_S", 2 * LIMIT_S)
    monkeypatch.setattr("hubbubd.store.postgres.notices.IDLE_INTERVAL_S", 2 * LIMIT_S)
    a, b = await enter("a", listens=False), await enter("b")
    await b.store.commit([Write("x", b"b")])
    await a.store.commit([Write("x", b"a")])
    await b.reaches(2)
    assert b.state == {"x": b"a"}


async def test_a_notice_from_another_program_harms_nobody(enter: Open, ask: Open, schema: str):
    a, b = await enter("a"), await enter("b")
    for text in ("", "x", "9" * 200, "-1"):
        await ask("SELECT pg_notify($1, $2)", schema, text)
    await a.store.commit([Write("x", b"1")])
    await b.reaches(1)
    await a.store.commit([Write("x", b"2")])
    await b.reaches(2)


async def test_a_notice_of_a_revision_that_never_comes_costs_one_look(
    enter: Open, ask: Open, schema: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("hubbubd.store.postgres.notices.IDLE_INTERVAL_S", 2 * LIMIT_S)
    monkeypatch.setattr("hubbubd.store.postgres.notices.BUSY_INTERVAL_S", 2 * LIMIT_S)
    looks: list[str] = []

    async def counted(place: MemberIdentity, link: DatabaseConnection, after: int) -> RevisionDelta:
        looks.append(place.name)
        return await fetch_delta(place, link, after)

    monkeypatch.setattr("hubbubd.store.postgres.notices.fetch_delta", counted)
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"")])
    await b.reaches(1)
    await b.store.commit([Write("x", b"")])
    await a.reaches(2)  # now both hear notices
    for text in ("9" * 30, "9" * 9):
        looks.clear()
        await ask("SELECT pg_notify($1, $2)", schema, text)
        async with asyncio.timeout(LIMIT_S):
            while len(set(looks)) < 2:
                await asyncio.sleep(0.002)
        for number in range(30):
            await b.store.commit([Write("x", b"%d" % number)])
        await a.reaches(b.store.revision)
        assert looks.count("b") == 1


async def test_a_snapshot_has_what_others_committed_and_is_not_ahead_of_listeners(enter: Open):
    a, b = await enter("a"), await enter("b")
    for number in range(20):
        await a.store.commit([Write("x", b"%d" % number)])
        snapshot = await b.store.snapshot()
        assert snapshot.revision == number + 1
        assert b.commits[-1].revision == snapshot.revision


async def test_listening_goes_on_where_the_snapshot_before_it_ended(enter: Open):
    a, late = await enter("a"), await enter("late", listens=False)
    await a.store.commit([Write("x", b"1")])
    assert (await late.store.snapshot()).revision == late.store.revision == 1
    await a.store.commit([Write("x", b"2")])
    await late.store.stats()
    late.listen()
    await late.reaches(2)
    assert late.commits == [Commit(2, (Write("x", b"2"),))]
