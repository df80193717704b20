"""Several members of a fleet over one PostgreSQL: all know the same, in order; who is gone changes nothing more."""

import asyncio
import random
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hubbubd.config.fleet import FleetSettings
from hubbubd.config.store import StoreSettings
from hubbubd.members import Member, Standing
from hubbubd.store import Commit, Conflict, Guard, StoreLocked, StoreUnavailable, Write, engines
from hubbubd.store import postgres_sql as sql
from hubbubd.store.membership import Expelled, HistoryLost
from hubbubd.store.postgres import PostgresStore
from hubbubd.store.postgres_link import Database
from hubbubd.store.postgres_members import PostgresMembers
from hubbubd.store.postgres_place import Entrant

from ..postgres import Postgres, Proxy

Open = Callable[..., Any]
LIMIT_S = 60
TTL_S = 300.0
"""Longer than any test: no lease ends by itself."""


class Heard:
    """A member's store, and what its listener was told."""

    def __init__(self, store: PostgresStore, listens: bool = True) -> None:
        self.store = store
        self.members = PostgresMembers(store.place, store.place.entrant or Entrant("", TTL_S))
        self.commits: list[Commit] = []
        if listens:
            self.listen()

    def listen(self) -> None:
        self.store.listen(self.commits.append)

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
            listens: bool = True,
        ) -> Heard:
            where = tmp_path / (directory or name or "alone")
            where.mkdir(exist_ok=True)
            member = None if name is None else Entrant(name, ttl_s)
            store = await PostgresStore.open(url, schema=schema, directory=where, patience_s=LIMIT_S, member=member)
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


async def test_what_one_lost_to_is_told_before_the_conflict(enter: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"a")])
    with pytest.raises(Conflict):
        await b.store.commit([Write("x", b"b")], [Guard("x", 0)])
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
                # Whoever sees the two halves apart has seen half a commit.
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


async def test_of_fifty_at_three_members_that_race_for_a_key_one_wins(enter: Open):
    members = [await enter(name) for name in "abc"]

    async def race(number: int, revision: int) -> int | None:
        try:
            return await members[number % 3].store.commit([Write("x", b"%d" % number)], [Guard("x", revision)])
        except Conflict:
            return None

    revision = 0
    for _ in range(20):
        ends = await asyncio.gather(*(race(number, revision) for number in range(50)))
        [(winner, revision)] = [(number, end) for number, end in enumerate(ends) if end is not None]
        for member in members:
            await member.reaches(revision)
            assert member.state == {"x": b"%d" % winner}


async def test_a_notice_that_is_lost_is_found_by_a_look(enter: Open, monkeypatch: pytest.MonkeyPatch):
    a, b = await enter("a"), await enter("b")
    monkeypatch.setattr("hubbubd.store.postgres_sql.NOTIFY", "SELECT $1::text, $2::text")
    await a.store.commit([Write("x", b"1")])
    await b.reaches(1)
    assert b.commits == [Commit(1, (Write("x", b"1"),))]


async def test_others_are_given_notice_at_once_also_by_one_that_listens_to_nobody(
    enter: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("hubbubd.store.postgres_hearing.LOOK_S", 2 * LIMIT_S)
    monkeypatch.setattr("hubbubd.store.postgres_hearing.IDLE_S", 2 * LIMIT_S)
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


async def test_a_watch_sees_what_others_commit(enter: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x/1", b"1")])
    async with aclosing(b.store.watch("x/", 0)) as watch, asyncio.timeout(LIMIT_S):
        assert await anext(watch) == Commit(1, (Write("x/1", b"1"),))
        await a.store.commit([Write("y", b"")])
        await a.store.commit([Write("x/1", b"2"), Write("y", b"")])
        assert await anext(watch) == Commit(3, (Write("x/1", b"2"),))


async def overdue(ask: Open, *names: str) -> None:
    """Make it so that these were not heard of in time, and all others since long."""
    await ask("UPDATE {s}.members SET steady_since = steady_since - interval '1 day'")
    await ask("UPDATE {s}.members SET expires_at = now() - interval '1 s' WHERE name = ANY ($1)", names)


async def told(heard: Heard, name: str) -> Member:
    """A member, as another one is told of it."""
    return next(each for each in await heard.members.members() if each.name == name)


async def test_a_member_that_was_expelled_changes_reads_and_says_nothing_more(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"1")])
    await overdue(ask, "a")
    gone = await told(b, "a")
    assert (gone.overdue, gone.serves) == (True, False)
    assert await b.members.expel(gone)
    assert (await told(b, "a")).standing is Standing.GONE
    with pytest.raises(Expelled, match=r"this hub is no member of the fleet any more.*keeps nothing more"):
        await a.store.commit([Write("x", b"2")])
    for end in (a.store.snapshot, a.store.probe, a.store.stats, a.members.members):
        with pytest.raises(Expelled):
            await end()
    with pytest.raises(Expelled):
        await a.members.beat(1)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"2")])
    await b.store.commit([Write("y", b"")], [Guard("x", 1)])
    assert b.state == {"x": b"1", "y": b""}


async def test_a_member_that_is_gone_learns_it_from_its_beat(enter: Open, ask: Open):
    a = await enter("a")
    await ask("UPDATE {s}.members SET standing = 'gone'")
    with pytest.raises(Expelled):
        await a.members.beat(0)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"")])
    assert await ask("SELECT FROM {s}.entries") == []


@pytest.mark.parametrize(
    ("rows", "gone"),
    [
        ({}, True),
        ({"b": "expires_at = now() + interval '1 s'"}, False),
        ({"a": "expires_at = now() - interval '1 s'"}, False),
        ({"a": "steady_since = now() - interval '299 s'"}, False),
        ({"a": "steady_since = now() - interval '301 s'"}, True),
        ({"a": "standing = 'draining'"}, True),
        ({"b": "standing = 'draining'"}, True),
        ({"b": "expires_at = now() + interval '1 s', standing = 'gone'"}, True),
        ({"b": "expires_at = now() + interval '1 s', life = life + 1"}, True),
    ],
    ids=[
        "it is overdue",
        "it is not overdue",
        "this one is overdue as well",
        "this one was overdue lately",
        "this one is steady for long enough",
        "this one drains",
        "it drains",
        "it is gone already",
        "it has another life",
    ],
)
async def test_who_may_be_expelled_the_database_s_clock_says(enter: Open, ask: Open, rows: dict[str, str], gone: bool):
    a, b = await enter("a"), await enter("b")
    await overdue(ask, "b")
    other = await told(a, "b")
    for name, change in rows.items():
        await ask(f"UPDATE {{s}}.members SET {change} WHERE name = $1", name)
    assert await a.members.expel(other) is gone
    [[life, standing]] = await ask("SELECT life, standing FROM {s}.members WHERE name = 'b'")
    assert (standing == "gone" or life > b.members.life) is gone


async def test_nobody_expels_itself(enter: Open, ask: Open):
    a = await enter("a")
    await overdue(ask)
    assert not await a.members.expel(await told(a, "a"))
    await a.members.beat(0)


async def test_two_that_expel_each_other_are_not_both_gone(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    for _ in range(20):
        await overdue(ask, "a", "b")
        others = await told(a, "b"), await told(b, "a")
        beats = [a.members.beat(0), b.members.beat(0)]
        await asyncio.gather(*beats, a.members.expel(others[0]), b.members.expel(others[1]))
        assert [each.standing for each in await a.members.members()] == [Standing.LIVE] * 2


async def test_a_beat_moves_the_lease_and_says_how_far_ahead_the_database_is(enter: Open, ask: Open):
    a = await enter("a")
    past = PostgresMembers(a.store.place, Entrant("a", TTL_S), now=lambda: 1000.0)
    ahead = await past.beat(7)
    await past.close()
    [[now]] = await ask("SELECT extract(epoch FROM now())::float8")
    assert 0 <= now - (ahead + 1000) < LIMIT_S
    assert (await told(a, "a")).position == 7
    await a.members.beat(3)
    assert (await told(a, "a")).position == 7
    # One in time leaves it steady; a late one begins anew.
    query = "SELECT steady_since < now() - interval '1 hour', expires_at > now() FROM {s}.members"
    await overdue(ask)
    await a.members.beat(7)
    assert [tuple(row) for row in await ask(query)] == [(True, True)]
    await overdue(ask, "a")
    await a.members.beat(7)
    assert [tuple(row) for row in await ask(query)] == [(False, True)]


async def test_a_member_says_where_it_is_and_whether_it_takes_part(enter: Open):
    a, b = await enter("a"), await enter("b")
    assert (a.members.name, a.members.lease_ttl_s) == ("a", TTL_S)
    assert b.members.life > a.members.life
    await a.members.publish("a.example:7878", "10.0.0.5:7879")
    await a.members.stand(Standing.DRAINING)
    there = await told(b, "a")
    assert (there.address, there.forward, there.standing) == ("a.example:7878", "10.0.0.5:7879", Standing.DRAINING)
    assert (there.life, there.overdue, there.serves) == (a.members.life, False, False)
    await a.store.commit([Write("x", b"")])
    await a.members.stand(Standing.GONE)
    assert (await told(b, "a")).standing is Standing.GONE
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"")])


async def test_a_second_member_of_a_name_is_refused_while_the_first_one_lives(enter: Open, ask: Open):
    a = await enter("a", directory="first")
    with pytest.raises(StoreLocked, match=r"has a member 'a' already; stop that one.*may start in 300 s"):
        await enter("a", directory="second")
    await a.store.commit([Write("x", b"1")])
    await overdue(ask, "a")
    second = await enter("a", directory="second")
    assert second.members.life > a.members.life
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"2")])
    assert (await told(second, "a")).life == second.members.life


async def test_a_member_that_starts_again_from_its_data_directory_does_not_wait(enter: Open):
    lives = [(await enter("a")).members.life for _ in range(3)]
    assert lives == sorted(set(lives))


async def test_a_data_directory_that_was_copied_proves_nothing_once_one_of_the_two_has_started(
    enter: Open, tmp_path: Path
):
    first = await enter("a", directory="first")
    await first.store.close()
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    await enter("a", directory="first")
    with pytest.raises(StoreLocked, match="has a member 'a' already"):
        await enter("a", directory="copy")


async def test_a_start_that_failed_after_its_proof_was_written_is_no_obstacle(
    enter: Open, monkeypatch: pytest.MonkeyPatch
):
    await enter("a")
    with monkeypatch.context() as broken:
        broken.setattr("hubbubd.store.postgres_sql.ENTER", "SELECT 1 / 0, $1, $2, $3, $4, $5, $6")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await enter("a")
    await enter("a")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, null]", b"\xff", b"[" * 100_000])
async def test_damaged_proofs_prove_nothing(enter: Open, tmp_path: Path, content: bytes):
    await enter("a")
    (tmp_path / "a" / "member.json").write_bytes(content)
    with pytest.raises(StoreLocked, match="has a member 'a' already"):
        await enter("a")


async def test_a_hub_alone_and_members_keep_each_other_out(enter: Open):
    a = await enter("a")
    with pytest.raises(StoreLocked, match="in use by another hub, or by the members of a fleet"):
        await enter(None)
    await a.store.commit([Write("x", b"1")])
    await a.store.close()
    alone = await enter(None)
    with pytest.raises(StoreLocked, match="in use by another hub, which is no member of a fleet"):
        await enter("a")
    await alone.store.commit([Write("x", b"2")], [Guard("x", 1)])
    await alone.store.close()
    again = await enter("a")
    assert {entry.value for entry in (await again.store.snapshot()).entries} == {b"2"}


async def cut_off(ask: Open, schema: str) -> None:
    """End all connections to this test's store."""
    await ask(
        """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND application_name = 'hubbubd' AND (query ~ $1 OR pid IN (
          SELECT l.pid FROM pg_locks l WHERE l.objid = (hashtext($1)::bigint & 4294967295)::oid
        ))""",
        schema,
    )


async def test_a_hub_alone_takes_the_store_from_members_that_have_lost_it(enter: Open, ask: Open, schema: str):
    a = await enter("a", listens=False)  # so it will not be back before it wants something
    await cut_off(ask, schema)
    alone = await enter(None)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"1")])
    assert await alone.store.commit([Write("x", b"2")], [Guard("x", 0)]) == 1


async def test_members_that_have_lost_their_connections_go_on(enter: Open, ask: Open, schema: str):
    a, b = await enter("a"), await enter("b")
    for number in range(5):
        await a.store.commit([Write("x", b"%d" % number)])
        await a.members.beat(a.store.revision)
        await b.reaches(number + 1)
        await cut_off(ask, schema)
    await b.store.commit([Write("x", b"end")], [Guard("x", 5)])
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
    await b.members.beat(1)
    await a.store.compact(2)
    assert (await a.store.stats()).compacted_revision == 1
    await b.members.stand(Standing.GONE)
    await a.store.compact(2)
    assert (await a.store.stats()).compacted_revision == 2


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
    with pytest.raises(HistoryLost):
        await a.members.beat(2)
    async with asyncio.timeout(LIMIT_S):
        while b.store.place.over is None:
            await asyncio.sleep(0.01)
    with pytest.raises(HistoryLost):
        await b.store.snapshot()
    again = [await enter("a"), await enter("b")]
    assert again[0].store.id == again[1].store.id != before
    assert [entry.key for entry in (await again[0].store.snapshot()).entries] == ["kept"]


@pytest.mark.parametrize("reached", [2, 5])
async def test_a_history_that_has_grown_past_the_lost_one_is_known_by_its_groups(
    enter: Open, ask: Open, schema: str, reached: int
):
    a = await enter("a")
    for key in ("kept", "lost"):
        await a.store.commit([Write(key, b"")])
    await ask("DELETE FROM {s}.commits WHERE last = 2")
    await ask("INSERT INTO {s}.commits (op, last) SELECT gen_random_uuid(), n FROM generate_series(2, $1) n", reached)
    await ask("UPDATE {s}.meta SET revision = $1, op = (SELECT op FROM {s}.commits WHERE last = $1)", reached)
    await cut_off(ask, schema)
    with pytest.raises(HistoryLost):
        await a.members.beat(2)


async def test_a_member_with_open_connections_hears_of_another_history_by_the_new_id(enter: Open, ask: Open):
    a = await enter("a")
    await ask("UPDATE {s}.meta SET id = 'another'")
    async with asyncio.timeout(LIMIT_S):
        while a.store.place.over is None:
            await asyncio.sleep(0.01)
    with pytest.raises(HistoryLost):
        await a.store.commit([Write("x", b"")])
    assert [row[0] for row in await ask("SELECT id FROM {s}.meta")] == ["another"]


async def test_a_store_of_the_first_version_is_migrated_with_all_that_it_has(
    enter: Open, postgres: Postgres, ask: Open, schema: str
):
    database = Database(postgres.url, schema, None)
    link = await database.connected()
    await link.execute(database.sql(sql.MIGRATIONS[0]))
    await ask("INSERT INTO {s}.entries VALUES ('x', 3, 'there'), ('gone', 2, NULL)")
    await ask("UPDATE {s}.meta SET id = 'first', revision = 3, life = 5")
    await link.close(timeout=LIMIT_S)
    a = await enter("a")
    assert (a.store.id, a.store.revision, a.members.life) == ("first", 3, 6)
    snapshot = await a.store.snapshot()
    assert [(entry.key, entry.value) for entry in snapshot.entries] == [("x", b"there")]
    assert snapshot.deleted == (("gone", 2),)
    await cut_off(ask, schema)
    assert await a.store.commit([Write("x", b"2")], [Guard("x", 3)]) == 4
    b = await enter("b")
    await b.store.commit([Write("x", b"3")], [Guard("x", 4)])


async def test_many_that_enter_a_new_store_at_once_all_do(enter: Open):
    members = await asyncio.gather(*(enter(name) for name in "abcdefg"))
    assert len({member.members.life for member in members}) == 7
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
            revision = await store.commit([Write(key, b"%d" % step)], [Guard(key, revision)])
            kept.append(revision)
            step += 1

    async def beat(heard: Heard) -> None:
        while not stop.is_set():
            with suppress(StoreUnavailable):
                await heard.members.beat(heard.store.revision)
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
        await member.members.beat(0)


async def test_a_beat_that_the_database_does_not_answer_fails_in_time(enter: Open, postgres: Postgres):
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    a = await enter("a", ttl_s=2)
    await a.members.beat(0)
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(StoreUnavailable) as away:
            await a.members.beat(0)
        assert not isinstance(away.value, Expelled)
    finally:
        await asyncio.to_thread(postgres.start)
    await a.members.beat(0)


async def test_the_engine_opens_a_member_with_its_place(postgres: Postgres, schema: str, tmp_path: Path):
    settings = StoreSettings.model_validate({"url": postgres.url, "schema_name": schema})
    nothing = tmp_path / "none.pem"
    fleet = FleetSettings(name="a", ca=nothing, cert=nothing, key=nothing, lease_ttl_s=3)
    async with engines.opened(settings, tmp_path, fleet) as (store, members):
        assert members is not None
        assert (members.name, members.lease_ttl_s) == ("a", 3)
        await members.beat(0)
        assert await store.commit([Write("x", b"")]) == 1
    async with engines.opened(settings, tmp_path, fleet) as (store, members):
        assert members is not None
        assert store.revision == 1
    async with engines.opened(settings, tmp_path) as (store, members):
        assert members is None
        assert store.revision == 1
