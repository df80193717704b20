"""What operators change of members, in the database: their status, and the end of one whose process has ended."""

import os
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.members import Member, MemberStatus
from hubbubd.store import StoreLocked, Write, engines
from hubbubd.store.membership import Expelled
from hubbubd.store.sqlite.file import lock_store

from ..postgres import Postgres
from .entering import Heard, Open, overdue, told


async def test_a_member_sets_the_standing_of_another_and_its_own(enter: Open) -> None:
    a, b = await enter("a"), await enter("b")
    for name in "ab":
        for status in (MemberStatus.DRAINING, MemberStatus.LIVE):
            assert await a.members.set_status(await told(a, name), status)
            assert (await told(b, name)).status is status
    await b.store.commit([Write("x", b"")])


async def test_a_member_that_is_declared_gone_changes_nothing_more_though_it_is_not_overdue(enter: Open) -> None:
    a, b = await enter("a"), await enter("b")
    assert await a.members.set_status(await told(a, "b"), MemberStatus.GONE)
    with pytest.raises(Expelled):
        await b.store.commit([Write("x", b"")])
    assert not await a.members.set_status(await told(a, "b"), MemberStatus.LIVE)
    assert (await told(a, "b")).status is MemberStatus.GONE


async def test_a_life_that_is_over_is_not_taken_for_the_next_one(enter: Open) -> None:
    a, b = await enter("a"), await enter("b")
    former = await told(a, "b")
    await b.store.close()
    again = await enter("b")
    assert not await a.members.set_status(former, MemberStatus.GONE)
    await again.store.commit([Write("x", b"")])


async def test_whoever_is_gone_sets_no_standing(enter: Open) -> None:
    a, b = await enter("a"), await enter("b")
    seen = await told(a, "b")
    assert await b.members.set_status(await told(b, "a"), MemberStatus.GONE)
    assert not await a.members.set_status(seen, MemberStatus.GONE)
    await b.store.commit([Write("x", b"")])


async def test_of_two_that_declare_each_other_gone_one_is(enter: Open) -> None:
    a, b = await enter("a"), await enter("b")
    both = await told(b, "a"), await told(a, "b")
    outcomes: list[bool] = []

    async def declare(heard: Heard, other: Member) -> None:
        with suppress(Expelled):
            outcomes.append(await heard.members.set_status(other, MemberStatus.GONE))

    async with anyio.create_task_group() as together:
        together.start_soon(declare, b, both[0])
        together.start_soon(declare, a, both[1])
    assert outcomes.count(True) == 1


async def test_members_say_when_they_were_heard_of(enter: Open, ask: Open) -> None:
    a = await enter("a")
    await ask("UPDATE {s}.members SET beat_at = now() - interval '1 hour'")
    assert 3600 <= (await told(a, "a")).silent_s < 3700
    await ask("UPDATE {s}.members SET beat_at = now() + interval '1 hour'")
    assert (await told(a, "a")).silent_s == 0


async def test_a_database_without_a_standby_says_so(enter: Open) -> None:
    assert await (await enter("a")).members.count_standbys() == 0


@pytest.fixture
def settings(postgres: Postgres, schema: str) -> StoreSettings:
    return StoreSettings(url=SecretStr(postgres.url), schema_name=schema)


def member(name: str) -> FleetSettings:
    return FleetSettings(name=name, ca=Path("ca"), cert=Path("cert"), key=Path("key"))


async def test_a_member_whose_process_has_ended_is_declared_gone_once(
    enter: Open, settings: StoreSettings, tmp_path: Path
) -> None:
    a, b = await enter("a"), await enter("b")
    said = await engines.release_member(settings, tmp_path / "a", member("a"))
    assert said == "the member a was declared gone; others take its servers"
    assert [(each.name, each.status) for each in await b.members.members()] == [
        ("b", MemberStatus.LIVE),
        ("a", MemberStatus.GONE),
    ]
    with pytest.raises(Expelled):
        await a.store.commit([Write("x", b"")])
    assert "has left the fleet already" in await engines.release_member(settings, tmp_path / "a", member("a"))


async def test_a_member_whose_process_runs_is_not_declared_gone(
    enter: Open, settings: StoreSettings, tmp_path: Path
) -> None:
    a = await enter("a")
    lock = lock_store(tmp_path / "a" / engines.FILE)
    with pytest.raises(StoreLocked, match=r"member a .*its process runs"):
        await engines.release_member(settings, tmp_path / "a", member("a"))
    os.close(lock)
    await a.store.commit([Write("x", b"")])


async def test_a_life_that_was_started_elsewhere_is_not_this_one_s_to_end(
    enter: Open, ask: Open, settings: StoreSettings, tmp_path: Path
) -> None:
    await enter("a", directory="first")
    await overdue(ask, "a")
    second = await enter("a", directory="second")
    for directory in ("first", "empty"):
        (tmp_path / directory).mkdir(exist_ok=True)
        assert "already" in await engines.release_member(settings, tmp_path / directory, member("a"))
    await second.store.commit([Write("x", b"")])


async def test_without_a_fleet_or_a_store_there_is_nothing_to_release(settings: StoreSettings, tmp_path: Path) -> None:
    assert "no member of a fleet" in await engines.release_member(StoreSettings(), tmp_path, None)
    assert "no member of a fleet" in await engines.release_member(settings, tmp_path, None)
    assert "no hub has run" in await engines.release_member(settings, tmp_path / "nowhere", member("a"))
    (tmp_path / "member.json").write_text('["x"]')
    assert "already" in await engines.release_member(settings, tmp_path, member("a"))  # the schema is not there
