"""Who is a member of a fleet, says the database; who is gone changes nothing more."""

import asyncio
import shutil
from pathlib import Path

import pytest

from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.members import Expulsion, MemberStatus
from hubbubd.store import Precondition, StoreLocked, StoreUnavailable, Write, engines
from hubbubd.store.membership import Expelled
from hubbubd.store.postgres import database
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.members import PostgresMembers

from ..postgres import Postgres, Proxy
from .entering import LIMIT_S, TTL_S, Open, overdue, told


async def test_a_member_that_was_expelled_changes_reads_and_says_nothing_more(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    await a.store.commit([Write("x", b"1")])
    await overdue(ask, "a")
    gone = await told(b, "a")
    assert (gone.overdue, gone.serves) == (True, False)
    assert await b.members.expel(gone)
    assert (await told(b, "a")).status is MemberStatus.GONE
    with pytest.raises(Expelled, match=r"this hub is no member of the fleet any more.*keeps nothing more"):
        await a.store.commit([Write("x", b"2")])
    for end in (a.store.snapshot, a.store.probe, a.store.stats, a.members.members):
        with pytest.raises(Expelled):
            await end()
    with pytest.raises(Expelled):
        await a.members.renew_lease(1)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"2")])
    await b.store.commit([Write("y", b"")], [Precondition("x", 1)])
    assert b.state == {"x": b"1", "y": b""}


async def test_a_member_that_is_gone_learns_it_from_its_beat(enter: Open, ask: Open):
    a = await enter("a")
    await ask("UPDATE {s}.members SET standing = 'gone'")
    with pytest.raises(Expelled):
        await a.members.renew_lease(0)
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"")])
    assert await ask("SELECT FROM {s}.entries") == []


@pytest.mark.parametrize(
    ("rows", "expulsion"),
    [
        ({}, Expulsion.DONE),
        ({"b": "expires_at = now() + interval '1 s'"}, Expulsion.REFUSED),
        ({"a": "expires_at = now() - interval '1 s'"}, Expulsion.REFUSED),
        ({"a": "steady_since = now() - interval '299 s'"}, Expulsion.REFUSED),
        ({"a": "steady_since = now() - interval '301 s'"}, Expulsion.DONE),
        ({"a": "beat_at = now() - interval '151 s'"}, Expulsion.REFUSED),
        ({"a": "beat_at = now() - interval '149 s'"}, Expulsion.DONE),
        ({"a": "beat_at = now() - interval '301 s', expires_at = now() + interval '1 h'"}, Expulsion.REFUSED),
        (
            {"a": "beat_at = now() - interval '301 s'", "b": "expires_at = now() + interval '1 s', standing = 'gone'"},
            Expulsion.GONE_BEFORE,
        ),
        ({"a": "standing = 'draining'"}, Expulsion.DONE),
        ({"b": "standing = 'draining'"}, Expulsion.DONE),
        ({"b": "expires_at = now() + interval '1 s', standing = 'gone'"}, Expulsion.GONE_BEFORE),
        ({"b": "expires_at = now() + interval '1 s', life = life + 1"}, Expulsion.GONE_BEFORE),
    ],
    ids=[
        "it is overdue",
        "it is not overdue",
        "this one is overdue as well",
        "this one was overdue lately",
        "this one is steady for long enough",
        "this one has missed a beat",
        "this one has missed none",
        "this one has asked for more time, and was not heard of for a lease's",
        "this one was not heard of, and it is gone already",
        "this one drains",
        "it drains",
        "it is gone already",
        "it has another term",
    ],
)
async def test_who_may_be_expelled_the_database_s_clock_says(
    enter: Open, ask: Open, rows: dict[str, str], expulsion: Expulsion
):
    a, b = await enter("a"), await enter("b")
    await overdue(ask, "b")
    other = await told(a, "b")
    for name, change in rows.items():
        await ask(f"UPDATE {{s}}.members SET {change} WHERE name = $1", name)
    assert await a.members.expel(other) is expulsion
    [[term, status]] = await ask("SELECT life, standing FROM {s}.members WHERE name = 'b'")
    assert (status == "gone" or term > b.members.term) is bool(expulsion)


async def test_nobody_expels_itself(enter: Open, ask: Open):
    a = await enter("a")
    await overdue(ask)
    assert not await a.members.expel(await told(a, "a"))
    await a.members.renew_lease(0)


async def test_two_that_expel_each_other_are_not_both_gone(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    for _ in range(20):
        await overdue(ask, "a", "b")
        others = await told(a, "b"), await told(b, "a")
        beats = [a.members.renew_lease(0), b.members.renew_lease(0)]
        await asyncio.gather(*beats, a.members.expel(others[0]), b.members.expel(others[1]))
        assert [each.status for each in await a.members.members()] == [MemberStatus.LIVE] * 2


async def test_of_many_that_expel_a_member_at_once_one_is_told_that_it_has_done_it(enter: Open, ask: Open):
    dead, *others = [await enter(name) for name in "dabc"]
    await overdue(ask, "d")
    row = await told(others[0], "d")
    for _ in range(20):
        await ask("UPDATE {s}.members SET standing = 'live' WHERE name = 'd'")
        found = await asyncio.gather(*(each.members.expel(row) for each in others))
        assert sorted(found) == [Expulsion.DONE, Expulsion.GONE_BEFORE, Expulsion.GONE_BEFORE]
    assert row.term == dead.members.term


async def test_a_beat_moves_the_lease_and_reads_the_database_s_clock(enter: Open, ask: Open):
    a = await enter("a")
    past = PostgresMembers(a.store.identity, Entrant("a", TTL_S), now=lambda: 1000.0)
    reading = await past.renew_lease(7)
    await past.close()
    [[now]] = await ask("SELECT extract(epoch FROM now())::float8")
    assert 0 <= now - reading.at < LIMIT_S
    assert (reading.sent_s, reading.received_s) == (1000, 1000)
    assert (await told(a, "a")).position == 7
    await a.members.renew_lease(3)
    assert (await told(a, "a")).position == 7
    # One in time leaves it steady; a late one begins again.
    query = "SELECT steady_since < now() - interval '1 hour', expires_at > now() FROM {s}.members"
    await overdue(ask)
    await a.members.renew_lease(7)
    assert [tuple(row) for row in await ask(query)] == [(True, True)]
    await overdue(ask, "a")
    await a.members.renew_lease(7)
    assert [tuple(row) for row in await ask(query)] == [(False, True)]


async def test_who_asks_for_more_time_than_a_lease_s_is_not_steady_for_that(enter: Open, ask: Open):
    a = await enter("a")
    for silent_s, steady in ((TTL_S / 2 - 1, True), (TTL_S / 2 + 1, False)):
        await overdue(ask)
        await a.members.renew_lease(7, 10 * TTL_S)
        await ask(f"UPDATE {{s}}.members SET beat_at = now() - interval '{silent_s} s'")
        await a.members.renew_lease(7)
        [[found]] = await ask("SELECT steady_since < now() - interval '1 hour' FROM {s}.members")
        assert found is steady


async def test_a_member_says_where_it_is_and_whether_it_takes_part(enter: Open):
    a, b = await enter("a"), await enter("b")
    assert (a.members.name, a.members.lease_ttl_s) == ("a", TTL_S)
    assert b.members.term > a.members.term
    await a.members.publish("a.example:7878", "10.0.0.5:7879")
    await a.members.set_own_status(MemberStatus.DRAINING)
    there = await told(b, "a")
    assert (there.address, there.forward, there.status) == ("a.example:7878", "10.0.0.5:7879", MemberStatus.DRAINING)
    assert (there.term, there.overdue, there.serves) == (a.members.term, False, False)
    await a.store.commit([Write("x", b"")])
    await a.members.set_own_status(MemberStatus.GONE)
    assert (await told(b, "a")).status is MemberStatus.GONE
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"")])


async def test_a_second_member_of_a_name_is_refused_while_the_first_one_lives(enter: Open, ask: Open):
    a = await enter("a", directory="first")
    with pytest.raises(StoreLocked, match=r"has a member 'a' already; stop that one.*may start in 300 s"):
        await enter("a", directory="second")
    await a.store.commit([Write("x", b"1")])
    await overdue(ask, "a")
    second = await enter("a", directory="second")
    assert second.members.term > a.members.term
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"2")])
    assert (await told(second, "a")).term == second.members.term


async def test_a_member_that_starts_again_from_its_data_directory_does_not_wait(enter: Open):
    lives = [(await enter("a")).members.term for _ in range(3)]
    assert lives == sorted(set(lives))


async def test_a_new_life_is_reached_nowhere_until_it_says_where(enter: Open):
    first = await enter("a")
    await first.members.publish("a.example:7878", "10.0.0.5:7879")
    await first.members.set_own_status(MemberStatus.DRAINING)
    again = await told(await enter("a"), "a")
    assert (again.address, again.forward, again.status) == ("", "", MemberStatus.LIVE)


async def test_a_member_whose_word_where_it_is_was_lost_says_it_with_its_next_beat(enter: Open, postgres: Postgres):
    async with Proxy(postgres) as way:
        a, b = await enter("a", url=way.url, ttl_s=1), await enter("b")
        way.silent = True
        with pytest.raises(StoreUnavailable):
            await a.members.publish("a.example:7878", "10.0.0.5:7879")
        way.silent = False
        assert (await told(b, "a")).forward == ""
        await a.members.renew_lease(0)
        there = await told(b, "a")
        assert (there.address, there.forward) == ("a.example:7878", "10.0.0.5:7879")
        await a.members.close()


async def test_who_is_gone_is_forgotten_after_a_day_and_nobody_else(enter: Open, ask: Open):
    for name in ("late", "gone", "lately"):
        await enter(name)
    await ask("UPDATE {s}.members SET standing = 'gone' WHERE name <> 'late'")
    await ask("UPDATE {s}.members SET beat_at = beat_at - interval '2 days' WHERE name <> 'lately'")
    await enter("new")
    assert {row[0] for row in await ask("SELECT name FROM {s}.members")} == {"late", "lately", "new"}


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
        broken.setattr("hubbubd.store.postgres.sql.ENTER", "SELECT 1 / 0, $1, $2, $3, $4, $5, $6")
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
    await alone.store.commit([Write("x", b"2")], [Precondition("x", 1)])
    await alone.store.close()
    again = await enter("a")
    assert {entry.value for entry in (await again.store.snapshot()).entries} == {b"2"}


async def test_a_beat_that_the_database_does_not_answer_fails_in_time(enter: Open, postgres: Postgres):
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    a = await enter("a", ttl_s=2)
    await a.members.renew_lease(0)
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(StoreUnavailable) as away:
            await a.members.renew_lease(0)
        assert not isinstance(away.value, Expelled)
    finally:
        await asyncio.to_thread(postgres.start)
    await a.members.renew_lease(0)


async def test_a_beat_whose_answer_was_lost_is_sent_again(enter: Open, postgres: Postgres):
    async with Proxy(postgres) as way:
        a = await enter("a", url=way.url, listens=False)
        await a.members.renew_lease(0)
        way.eaten = 1
        await a.members.renew_lease(3)
        assert way.cut == 1
        assert (await told(a, "a")).position == 3
        await a.members.close()


async def test_the_engine_opens_a_member_with_its_place(postgres: Postgres, schema: str, tmp_path: Path):
    settings = StoreSettings.model_validate({"url": postgres.url, "schema_name": schema})
    nothing = tmp_path / "none.pem"
    fleet = FleetSettings(name="a", ca=nothing, cert=nothing, key=nothing, lease_ttl_s=3)
    async with engines.open_store(settings, tmp_path, fleet) as (store, members):
        assert (members.name, members.lease_ttl_s) == ("a", 3)
        await members.renew_lease(0)
        assert await store.commit([Write("x", b"")]) == 1
    async with engines.open_store(settings, tmp_path, fleet) as (store, members):
        assert members is not None
        assert store.revision == 1
    async with engines.open_store(settings, tmp_path) as (store, members):
        assert members is None
        assert store.revision == 1


async def test_a_clock_that_is_set_back_keeps_nobody_who_is_gone(enter: Open, ask: Open):
    """Nor is anybody expelled who lives: all have a lease's time for a beat of the new time."""
    a, b = await enter("a"), await enter("b")
    c = await enter("c", ttl_s=2 * TTL_S)
    later = "expires_at = expires_at + interval '1 hour', beat_at = beat_at + interval '1 hour'"
    await ask(f"UPDATE {{s}}.members SET {later}, steady_since = steady_since - interval '1 hour'")
    dead = await told(a, "b")
    assert dead.overdue
    assert not await a.members.expel(dead)  # it has not had a beat itself
    await a.members.renew_lease(0)
    assert not await a.members.expel(dead)
    query = "SELECT steady_since BETWEEN now() - interval '1 minute' AND now() FROM {s}.members WHERE name = 'a'"
    assert (await ask(query))[0][0]
    await c.members.renew_lease(0)
    assert not (await told(a, "c")).overdue
    await ask("UPDATE {s}.members SET steady_since = now() - interval '301 s' WHERE name = 'a'")
    assert not await a.members.expel(await told(a, "c"))
    assert await a.members.expel(dead)
    with pytest.raises(Expelled):
        await b.store.commit([Write("x", b"")])


async def test_each_has_a_lease_s_time_of_its_own_to_be_heard_of_again(enter: Open, ask: Open):
    a, b = await enter("a"), await enter("b")
    await overdue(ask, "b")
    await ask("UPDATE {s}.members SET beat_at = expires_at - interval '900 s' WHERE name = 'b'")
    for steady_s, gone in ((899, False), (901, True)):
        await ask(f"UPDATE {{s}}.members SET steady_since = now() - interval '{steady_s} s' WHERE name = 'a'")
        assert bool(await a.members.expel(await told(a, "b"))) is gone
    with pytest.raises(Expelled):
        await b.members.renew_lease(0)


async def test_a_clock_that_is_set_back_by_less_than_a_lease_makes_nobody_overdue(enter: Open, ask: Open):
    a, _ = await enter("a"), await enter("b")
    await ask("UPDATE {s}.members SET beat_at = now() + interval '200 s', expires_at = now() + interval '500 s'")
    assert not (await told(a, "b")).overdue


async def test_a_hub_that_is_stopped_while_it_opens_the_store_holds_up_the_others_for_a_while(
    enter: Open, postgres: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(database.SESSION, "idle_in_transaction_session_timeout", "200ms")
    a = await enter("a")
    stopped = await database.Database(postgres.url, schema, None).connect()
    await stopped.execute(f"BEGIN; SELECT FROM {schema}.meta FOR UPDATE")  # and nothing more comes of it
    async with asyncio.timeout(LIMIT_S):
        assert await a.store.commit([Write("x", b"")]) == 1
    stopped.terminate()


def test_all_sessions_end_when_they_idle_in_a_transaction():
    assert database.SESSION["idle_in_transaction_session_timeout"] == "10s"
