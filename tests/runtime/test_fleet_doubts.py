"""A fleet where somebody does not know yet: an answer is not refused for that, nor a member given up as it starts."""

import anyio
import pytest
from structlog.testing import capture_logs

from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import FailedPrecondition, Unavailable
from hubbubd.members import MemberStatus
from hubbubd.runtime.fleet.member import MARGIN, FleetOwnership
from hubbubd.store import StoreUnavailable

from ..raising import raising
from .conftest import FORM, question, settle
from .fleet import TTL_S, Members, Place, Store, now
from .test_fleet import another, of, owner, two_of


async def test_a_member_that_is_long_silent_as_it_starts_is_not_given_up(fleet: Members) -> None:
    await of(fleet, "a")
    place = Place(Store(fleet.database, "b", fleet.database.joined("b")))
    starting = FleetOwnership(place, drain_timeout_s=30, rebalance=False, now=now)
    with anyio.move_on_after(0.1):
        await starting.send_beats()
    await settle(3 * TTL_S)  # it reads, and its loop stands still
    assert fleet.database.rows["b"].member.status is MemberStatus.LIVE


async def test_a_member_that_ends_while_it_asks_the_database_was_not_declared_gone(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(Store(fleet.database, "a", fleet.database.joined("a")))
    ending = FleetOwnership(place, drain_timeout_s=30, rebalance=False, now=now)
    beats, has_ended, beat = anyio.Event(), anyio.Event(), place.renew_lease

    async def slow(position: int, for_s: float) -> float:
        beats.set()
        await has_ended.wait()
        return await beat(position, for_s)

    monkeypatch.setattr(place, "renew_lease", slow)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ending.send_beats)
            await beats.wait()
            await ending.quit()
            has_ended.set()
    assert fleet.database.rows["a"].member.status is MemberStatus.GONE
    assert logs == []
    assert not ending.lost.is_set()


async def test_an_answer_that_is_given_again_where_it_was_not_heard_of_is_not_refused(fleet: Members) -> None:
    here, there = await two_of(fleet)
    fleet.peers["one"].link.ask("elicitation/create", FORM)
    request = await question(there.hub)
    claim = (await there.hub.inbox.claim(request.id, "ann", 1)).claim
    assert claim
    await settle()
    there.store.held = True
    keys = {"answer_id": "a", "claim_id": claim.id}
    await here.hub.inbox.answer(request.id, Accept({"name": "x"}), "ann", **keys)
    await settle(1.5)  # so that the claim is over
    assert there.hub.inbox.get(request.id).state is RequestState.OPEN
    again = await there.hub.inbox.answer(request.id, Accept({"name": "x"}), "ann", **keys)
    assert again.state is RequestState.ANSWERED


async def test_an_answer_that_is_late_is_refused_once_the_store_agrees(fleet: Members) -> None:
    await of(fleet, "a", "b")
    fleet.peers["one"].link.ask("elicitation/create", FORM)
    hub = another(fleet, owner(fleet)).hub
    request = await question(hub)
    claim = (await hub.inbox.claim(request.id, "ann", 1)).claim
    assert claim
    await settle(1.5)
    late = {"answer_id": "a", "claim_id": claim.id}
    with raising(FailedPrecondition, "CLAIM_LOST"):
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "ann", **late)
    fleet.database.away = True
    with pytest.raises(Unavailable):  # it may be otherwise there
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "ann", **late)


@pytest.mark.parametrize("leases", [0.7, 0.8, 0.9])
@pytest.mark.parametrize("later_s", [0.2, 0.7, 1.2])
async def test_a_database_that_is_away_for_a_part_of_a_lease_costs_nobody_its_servers(
    fleet: Members, leases: float, later_s: float
) -> None:
    await of(fleet, "a")
    await settle(later_s)  # so one member's last beat is older than another's as the database goes away
    await of(fleet, "b", "c")
    await settle(2 * TTL_S)
    fleet.database.slow_s = 0.1
    for _ in range(4):
        fleet.database.away = True
        await settle(leases * TTL_S)
        fleet.database.away = False
        await settle(2 * TTL_S + later_s / 3)
    assert [row.member.status for row in fleet.database.rows.values()] == [MemberStatus.LIVE] * 3
    assert [row.member.term for row in fleet.database.rows.values()] == [1, 1, 1]


async def test_a_beat_that_hangs_once_costs_nobody_its_servers(fleet: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    await of(fleet, "a", "b")
    fleet.database.slow_s = 0.2
    await settle(2 * TTL_S)
    place = fleet.running["b"].fleet.membership
    beat, hangs = place.renew_lease, [False]

    async def hung(position: int, for_s: float) -> float:
        if not hangs[0]:
            return await beat(position, for_s)
        hangs[0] = False
        await anyio.sleep(TTL_S / 2)  # as long as the connection is waited for
        raise StoreUnavailable("it has not answered")

    monkeypatch.setattr(place, "renew_lease", hung)
    for later_s in (0.0, 0.3, 0.5, 0.7, 0.9):
        hangs[0] = True
        await settle(3 * TTL_S + later_s)
    assert [row.member.term for row in fleet.database.rows.values()] == [1, 1]


async def test_a_member_may_act_for_a_part_of_its_lease_from_when_its_beat_began(fleet: Members) -> None:
    await of(fleet, "a")
    fleet.database.slow_s = 1.0
    await settle(2 * TTL_S)
    left_s = list[float]()
    for _ in range(20):
        await settle(0.1)
        left_s.append(fleet.running["a"].fleet.remaining_s())
    assert max(left_s) <= TTL_S * (1 - MARGIN) - 1.0


async def test_the_dead_are_declared_gone_also_over_a_slow_database(fleet: Members) -> None:
    dead, left = await two_of(fleet)
    fleet.database.slow_s = TTL_S / 4 + 0.1
    await settle(2 * TTL_S)
    dead.kill()
    await settle(3 * TTL_S)
    assert fleet.database.rows[dead.name].member.status is MemberStatus.GONE
    assert fleet.owners("one") == [left.name]
