"""Approvals in a fleet: any member takes them, the one that has the server holds and sends the call, and one dies."""

from collections.abc import AsyncGenerator

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.request_states import RequestState

from .approving import approve, asks, deletion
from .conftest import question, settle, until
from .fleet import Members, members
from .test_fleet import another, of, owner


@pytest.fixture
async def fleet() -> AsyncGenerator[Members]:
    async with members() as fleet:
        fleet.settings["hub"] = asks(needed=2, remember=["1h"])
        yield fleet


async def test_each_member_takes_an_approval_and_the_owner_sends_the_call_once(fleet: Members) -> None:
    await of(fleet, "a", "b")
    has = owner(fleet)
    await has.hub.calls.start(deletion(), "bot")
    request = await question(has.hub)
    there = another(fleet, has).hub
    await until(lambda: there.inbox.find(request.id))
    await approve(there, request, "ada", remember_s=3600.0)
    await approve(has.hub, request, "ben", remember_s=3600.0)
    await until(lambda: has.hub.calls.get("c").state.ended)
    assert len(fleet.peers["one"].sent) == 1
    await until(lambda: there.approvals.remembered.list_valid())
    (remembered,) = there.approvals.remembered.list_valid()
    await has.hub.calls.start(deletion("again"), "bot")
    await until(lambda: has.hub.calls.get("again").state.ended)
    await there.approvals.remembered.revoke(remembered.id)
    await until(lambda: not has.hub.approvals.remembered.list_valid())
    await has.hub.calls.start(deletion("revoked"), "bot")
    assert (await question(has.hub)).call_id == "revoked"


@pytest.mark.parametrize("approved", [0, 1])
async def test_a_held_call_goes_on_where_its_server_goes_with_the_approvals_it_has(
    fleet: Members, approved: int
) -> None:
    await of(fleet, "a", "b", "c")
    dead = owner(fleet)
    await dead.hub.calls.start(deletion(), "bot")
    request = await question(dead.hub)
    for by in ("ada", "ben")[:approved]:
        await approve(dead.hub, request, by)
    dead.kill()
    await until(lambda: fleet.owners("one"))
    there = another(fleet, owner(fleet)).hub
    assert there.inbox.get(request.id).state is RequestState.OPEN
    assert not fleet.peers["one"].sent
    for by in ("ada", "ben")[approved:]:
        await approve(there, request, by)
    await until(lambda: there.calls.get("c").state.ended)
    assert there.calls.get("c").state is CallState.COMPLETED
    assert len(fleet.peers["one"].sent) == 1


async def test_a_call_that_was_approved_while_its_owner_died_is_sent_once_by_the_next(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    dead = owner(fleet)
    await dead.hub.calls.start(deletion(), "bot")
    request = await question(dead.hub)
    there = another(fleet, dead).hub
    await until(lambda: there.inbox.find(request.id))
    dead.kill()
    await approve(there, request, "ada")
    await approve(there, request, "ben")
    await until(lambda: there.calls.get("c").state.ended)
    await settle(30)
    assert there.calls.get("c").state is CallState.COMPLETED
    assert len(fleet.peers["one"].sent) == 1
