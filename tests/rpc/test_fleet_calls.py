"""Calls that a hub makes by itself, as for MCP hosts, of servers that other members have."""

import asyncio
from typing import Any

import pytest

from hubbubd.core.access import Permission, Principal
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.errors import FailedPrecondition, HubError, NotFound, PeerError, Unavailable, UpstreamError
from hubbubd.rpc.context import amend_context, principal
from hubbubd.rpc.fleet import calls
from hubbubd.rpc.fleet.forwards import forwarding
from hubbubd.runtime.calls import CallSpec

from ..raising import raising
from ..runtime.peer import gives, never
from .conftest import LIMIT_S, until
from .fleet import Member, Two, made, owner, two

__all__ = ["made", "owner", "two"]  # the fixtures


def spec(**given: Any) -> CallSpec:
    return CallSpec(**{"server": "one", "method": "tools/call", "params": b'{"name":"t"}', "call_id": "x", **given})


async def test_what_a_hub_calls_by_itself_it_may_call_at_that_server_only(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, owner = two
    noted: list[Principal] = []
    made = owner.hub.calls.call

    async def note(spec: CallSpec, name: str, *, detached: bool = False) -> Call:
        noted.append(principal())
        return await made(spec, name, detached=detached)

    monkeypatch.setattr(owner.hub.calls, "call", note)
    await caller.hub.calls.call(spec(), "ann")
    asked = [(permission, server) for permission in Permission for server in ("one", "other")]
    may = {(permission, server) for permission, server in asked if noted[0].may(permission, server)}
    assert (Permission.CALL, "one") in may
    assert not {(Permission.ADMINISTER, "one"), *((permission, "other") for permission in Permission)} & may


async def test_a_call_that_fails_is_returned_with_its_fault(two: Two) -> None:
    caller, owner = two
    owner.peer.behaviour = gives(PeerError(-32000, "it failed", {"why": "because"}))
    call = await caller.hub.calls.call(spec(), "ann")
    assert call.fault.details["jsonrpc_data"] == {"why": "because"}
    assert call.fault == owner.hub.calls.get("x").fault


async def test_what_is_refused_raises(two: Two) -> None:
    caller, owner = two
    await caller.hub.calls.call(spec(), "ann")
    with raising(HubError, "CALL_ID_REUSED"):
        await caller.hub.calls.call(spec(params=b'{"name":"another"}'), "ann")
    with pytest.raises(NotFound):
        await caller.hub.calls.call(spec(server="nowhere"), "ann")
    assert len(owner.peer.sent) == 1


async def test_a_started_call_is_known_and_can_be_cancelled(two: Two) -> None:
    caller, owner = two
    owner.peer.behaviour = never
    started = await caller.hub.calls.start(spec(), "ann")
    assert started.detached
    assert caller.hub.calls.get("x").principal == "ann"
    await until(lambda: bool(owner.peer.sent))
    cancelled = await caller.hub.calls.cancel("x", abort=True)
    assert cancelled.state is CallState.CANCELLED
    assert owner.peer.sent[0].cancelled


async def test_a_call_that_nobody_waits_for_any_more_is_given_up(two: Two) -> None:
    caller, owner = two
    owner.peer.behaviour = never
    await caller.hub.calls.start(spec(), "ann")
    waiting = asyncio.create_task(caller.hub.calls.call(spec(), "ann"))
    await until(lambda: bool(owner.peer.sent))
    caller.hub.calls.end_unless_awaited("x")
    await asyncio.sleep(0.2)
    assert not owner.peer.sent[0].cancelled
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not owner.peer.sent[0].cancelled  # it is detached
    caller.hub.calls.end_unless_awaited("x")
    await until(lambda: owner.peer.sent[0].cancelled)


async def test_a_server_that_nobody_has_just_now_is_not_said_to_be_gone(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    caller, owner = two
    caller.believed.hear("one", None)
    monkeypatch.setattr(caller.hub.servers, "find", lambda _name: object())
    with raising(Unavailable, "OWNER_CHANGING"):
        await caller.hub.calls.call(spec(), "ann")
    assert not owner.peer.sent


@pytest.mark.parametrize("act", ["call", "start"])
async def test_a_server_that_comes_here_while_another_member_is_asked_is_called_here(
    two: Two, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 30.0)
    other, here = two
    here.believed.hear("one", other.owner)
    waiting = asyncio.create_task(getattr(here.hub.calls, act)(spec(), "ann"))
    await asyncio.sleep(0.2)
    assert not here.peer.sent
    here.believed.hear("one", here.owner)
    assert (await asyncio.wait_for(waiting, LIMIT_S)).id == "x"
    assert here.hub.calls.get("x").principal == "ann"


async def test_what_was_forwarded_goes_no_further(two: Two) -> None:
    """Not even if the server has just been lost."""
    caller, owner = two
    amend_context(is_forwarded=True)
    for act in (caller.hub.calls.call(spec(), "ann"), caller.hub.calls.start(spec(), "ann")):
        with raising(Unavailable, "OWNER_CHANGING"):
            await act
    assert not owner.peer.sent


URI = "file:///x"


def changed(owner: Member) -> None:
    owner.peer.link.tell("notifications/resources/updated", {"uri": URI})


async def test_a_host_is_told_of_changes_of_a_resource_at_another_member(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "RETRY_S", 0.05)
    caller, owner = two
    told: list[str] = []
    owner.peer.capabilities = {"resources": {"subscribe": True}}
    async with caller.hub.subscriptions.follow_changes("one", URI, told.append) as failed:
        await until(lambda: any(sent.method == "resources/read" for sent in owner.peer.sent))
        await asyncio.sleep(0.1)
        assert told == []
        changed(owner)
        await until(lambda: told == [URI])
        owner.believed.hear("one", caller.owner)  # the stream ends
        await asyncio.sleep(0.1)
        owner.believed.hear("one", owner.owner)
        await until(lambda: len(told) == 2)
        assert not failed.is_set()
        assert told == [URI, URI]


async def test_a_resource_that_cannot_be_watched_is_refused_as_at_its_member(two: Two) -> None:
    caller, owner = two

    async def follow(member: Member) -> None:
        async with member.hub.subscriptions.follow_changes("one", URI, lambda _: None):
            pass

    found: list[tuple[type, str]] = []
    for member in (owner, caller):
        with pytest.raises(FailedPrecondition) as caught:
            await follow(member)
        found.append((caught.type, caught.value.reason))
    assert found == [(FailedPrecondition, "SUBSCRIPTIONS_NOT_OFFERED")] * 2

    owner.peer.capabilities = {"resources": {"subscribe": True}}
    owner.peer.behaviour = gives(PeerError(-32002, "no such resource"))
    for member in (owner, caller):
        with pytest.raises(UpstreamError) as refused:
            await follow(member)
        about = refused.value.fault
        assert (about.code, about.details["jsonrpc_code"]) == ("SERVER_ERROR", -32002)
