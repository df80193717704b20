"""A member that has a server is silent: calls wait for the next one, and those that it was sent end for certain."""

import asyncio
from types import SimpleNamespace

import anyio
import pytest
from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import event_pb2
from hubbubd.core.calls.call_states import Call
from hubbubd.rpc.fleet.forwards import forwarding, open_forwards
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.ownership import Owner

from ..runtime.peer import gives, never
from .conftest import LIMIT_S, until
from .fleet import Fleet, Member, made, one
from .test_fleet import CALL, RPCS, call

__all__ = ["made"]  # the fixtures

Three = tuple[Member, Member, Member]


@pytest.fixture
async def three(made: Fleet) -> Three:
    """The member that is called, the owner of the server `one`, and who has it next."""
    ingress, owner = await made.start("a"), await made.start("b", one())
    after = await made.start("c")
    await until(lambda: bool(owner.peer.links))
    return ingress, owner, after


def lose(ingress: Member, owner: Member, after: Owner) -> None:
    """The ingress hears that the owner is gone, and that another member has its server."""
    ingress.believed.members = [each for each in ingress.believed.members if each != owner.owner]
    ingress.believed.hear("one", after)


async def test_a_call_at_an_owner_that_is_gone_ends_though_its_connection_stays(three: Three) -> None:
    ingress, owner, after = three
    owner.peer.behaviour = never
    refusal = asyncio.create_task(ingress.api.refused(CALL, call()))
    await until(lambda: bool(owner.peer.sent))
    lose(ingress, owner, after.owner)
    with anyio.fail_after(LIMIT_S):
        assert (await refusal).reason == "OWNER_LOST"
    assert not after.peer.sent


async def test_a_stream_at_an_owner_that_is_gone_ends_too(three: Three) -> None:
    ingress, owner, after = three
    request = event_pb2.TailLogsRequest(server="one", follow=True)
    ended = await ingress.api.end(RPCS["TailLogs"], request, lambda: lose(ingress, owner, after.owner))
    assert ended.reason == "OWNER_LOST"


async def test_an_owner_that_lives_and_has_handed_its_server_on_still_responds(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_forwards, "HANDOVER_S", 10 * LIMIT_S)
    ingress, owner, after = three
    go_on = anyio.Event()
    owner.peer.behaviour = gives({"content": []}, once=go_on)
    response = asyncio.create_task(ingress.api(CALL, call()))
    await until(lambda: bool(owner.peer.sent))
    ingress.believed.hear("one", after.owner)
    go_on.set()
    with anyio.fail_after(LIMIT_S):
        assert (await response).call.result


async def test_a_call_has_no_longer_than_its_own_time_at_an_owner_that_is_silent(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_owner: Owner) -> bool:
        return False

    ingress, owner, _ = three
    monkeypatch.setattr(ingress.forwarding._open_forwards, "_is_answering", silent)
    stopped = asyncio.Event()
    call_there = owner.hub.calls.call

    async def stopped_first(spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        await stopped.wait()
        return await call_there(spec, principal, detached=detached)

    monkeypatch.setattr(owner.hub.calls, "call", stopped_first)
    with anyio.fail_after(LIMIT_S):
        refusal = await ingress.api.refused(CALL, call(timeout=Duration(nanos=200_000_000)))
    assert refusal.reason == "OWNER_LOST"
    stopped.set()


def in_a_fleet(member: Member) -> None:
    """Its leases last longer than any test."""
    member.hub.fleet = SimpleNamespace(membership=SimpleNamespace(lease_ttl_s=LIMIT_S))  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_call_waits_for_a_takeover(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.0)
    ingress, owner, _ = three
    in_a_fleet(ingress)
    ingress.believed.hear("one", None)
    response = asyncio.create_task(ingress.api(CALL, call()))
    await until(lambda: "one" in ingress.forwarding._changes._events)
    ingress.believed.hear("one", owner.owner)
    with anyio.fail_after(LIMIT_S):
        assert (await response).call.result
    ingress.hub.fleet = None


async def test_a_call_waits_for_a_takeover_only_within_its_own_time(three: Three) -> None:
    ingress, owner, _ = three
    in_a_fleet(ingress)
    ingress.believed.hear("one", None)
    with anyio.fail_after(LIMIT_S):
        refusal = await ingress.api.refused(CALL, call(timeout=Duration(nanos=1_000_000)))
    assert refusal.reason == "OWNER_CHANGING"
    assert not owner.peer.sent
    ingress.hub.fleet = None
