"""What `hubbub doctor` finds of the other members: who does not answer, who is gone, and who cannot be reached."""

from dataclasses import replace

import anyio
import pytest

from hubbubd.runtime.diagnostics.findings import Severity
from hubbubd.runtime.ownership import Owner

from .conftest import settle
from .fleet import TTL_S, Members
from .test_fleet import of
from .test_fleet_operations import answering, findings


async def test_each_member_that_does_not_answer_is_found(fleet: Members) -> None:
    await of(fleet, "a", "b", "c", "d")
    one, asked = fleet.running["a"], list[Owner]()
    fleet.database.rows["c"].member = replace(fleet.database.rows["c"].member, forward="127.0.0.1:7879")
    await settle(2)

    async def answers(owner: Owner) -> bool:
        asked.append(owner)
        await anyio.sleep(2)
        return owner.member == "d"

    one.fleet.answers = answers
    began = anyio.current_time()
    found = {each.about: each for each in await findings(one) if each.severity is not Severity.OK}
    assert anyio.current_time() - began < 3
    assert {each.member: each.forward for each in asked} == {"b": "b:2", "c": "127.0.0.1:7879", "d": "d:2"}
    assert set(found) == {"member b", "member c"}
    assert "does not answer at b:2" in found["member b"].message
    assert "reaches that address" in found["member b"].advice
    assert "it is loopback" in found["member c"].advice


async def test_a_member_that_is_gone_or_silent_is_not_asked_and_told_of_after_a_while(fleet: Members) -> None:
    await of(fleet, "a", "b")
    one = fleet.running["a"]
    one.fleet.answers = answering()
    fleet.running["b"].kill()
    fleet.database.rows["b"].expires_at = anyio.current_time() - 1
    await one.fleet.refresh_members()
    assert [each.overdue for each in one.fleet.members()] == [False, True]
    assert not [each for each in await findings(one) if each.about == "member b"]
    await settle(TTL_S + 1)
    assert not [each for each in await findings(one) if each.about == "member b"]
    await settle(700)
    (found,) = [each for each in await findings(one) if each.about == "member b"]
    assert (found.severity, found.message.partition(" 2")[0]) == (Severity.OK, "gone since")


@pytest.mark.parametrize(("other", "found"), [("b:2", ["fleet.listen"]), ("127.0.0.1:2", []), ("", [])])
async def test_a_member_that_others_are_to_reach_at_their_own_machine_is_found(
    fleet: Members, other: str, found: list[str]
) -> None:
    await of(fleet, "a", "b")
    rows = fleet.database.rows
    rows["a"].member = replace(rows["a"].member, forward="127.0.0.1:1")
    rows["b"].member = replace(rows["b"].member, forward=other)
    await settle(2)
    assert [each.about for each in await findings(fleet.running["a"]) if each.severity is not Severity.OK] == found


async def test_the_clock_of_another_member_that_is_off_is_found(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    await settle(2)
    one = fleet.running["a"]

    async def clock_of(owner: Owner) -> float:
        return {"b": -90.0, "c": 0.1}[owner.member]

    one.fleet.answers, one.fleet.clock_of = answering("b", "c"), clock_of
    found = {each.about: each.message for each in await findings(one) if each.severity is not Severity.OK}
    assert found == {"clock of b": "its clock is 90.0 s ahead of the database's"}


async def test_a_member_that_has_not_written_yet_notices_that_the_database_is_full(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(2)
    fleet.database.full = True
    await settle(15)
    assert [each.hub.health.is_serving for each in fleet.running.values()] == [False, False]
    assert all("full" in each.hub.health.problem for each in fleet.running.values())
    fleet.database.full = False
    await settle(3)
    assert all(each.hub.health.is_serving for each in fleet.running.values())
