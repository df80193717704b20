"""Forwards whose owner changes, is lost, or does not know that it is one."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details_pb2

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbub.v1 import admin_pb2, call_pb2, event_pb2, inbox_pb2
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import RequestFilter
from hubbubd.errors import FailedPrecondition, NotFound, Unauthenticated
from hubbubd.rpc.fleet import peers, service
from hubbubd.rpc.fleet.forwards import forwarding
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.ownership import Owner
from hubbubd.runtime.servers import EventStep, ServerEvent, ServerEventKind

from ..runtime.conftest import FORM
from ..runtime.peer import never
from .conftest import Refusal, until
from .fleet import Fleet, Two, Wire, made, one, owner, two
from .test_fleet import CALL, RPCS, call

__all__ = ["made", "owner", "two"]  # the fixtures

NOWHERE = Owner("b", 1, "127.0.0.1:9")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for another owner."""
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    monkeypatch.setattr(peers, "CONNECT_MS", 1_000)


def is_changing(refusal: Refusal) -> bool:
    retry = refusal.details.get(details_pb2.RetryInfo)
    assert isinstance(retry, details_pb2.RetryInfo)
    return (refusal.code, refusal.reason, retry.retry_delay.seconds) == (
        grpc.StatusCode.UNAVAILABLE,
        "OWNER_CHANGING",
        1,
    )


async def test_whoever_is_refused_hears_who_has_the_server_and_why_that_does_not_help(two: Two) -> None:
    ingress, owner = two
    owner.believed.hear("one", ingress.owner)
    said: list[str] = []
    for believed in (owner.owner, NOWHERE, None):
        ingress.believed.hear("one", believed)
        refusal = await ingress.api.refused(CALL, call())
        assert is_changing(refusal)
        assert refusal.metadata.get("member") == (None if believed is None else "b")
        said.append(refusal.message.partition(";")[0])
    assert said == [
        "one is with the member b of the fleet, which says that it does not have it",
        "one is with the member b of the fleet, which is not reached at the moment",
        "one has no owner in the fleet at the moment",
    ]


async def test_a_server_that_has_no_owner_for_a_moment_is_waited_for(
    made: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 30.0)
    monkeypatch.setattr(forwarding, "LOOK_S", 30.0)
    ingress, former, owner = await made.start("a"), await made.start("b"), await made.start("c", one())
    await until(lambda: bool(owner.peer.links))
    ingress.believed.hear("one", former.owner)
    waiting = asyncio.create_task(ingress.api(CALL, call()))
    await anyio.sleep(0.2)
    ingress.believed.hear("one", None)
    await anyio.sleep(0.2)
    assert not waiting.done()
    ingress.believed.hear("one", owner.owner)
    assert (await waiting).call.result


@pytest.mark.parametrize("believed", [NOWHERE, None], ids=["cannot be reached", "is not known"])
async def test_an_owner_that(two: Two, believed: Owner | None, monkeypatch: pytest.MonkeyPatch) -> None:
    ingress, there = two
    monkeypatch.setattr(ingress.hub.servers, "find", lambda _name: object())
    ingress.believed.hear("one", believed)
    assert is_changing(await ingress.api.refused(CALL, call()))
    assert not there.peer.sent


async def test_a_call_that_was_handed_on_with_its_queue_is_asked_for_once_more(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingress, owner = two

    times: list[int] = []

    async def serve(spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        times.append(len(times))
        if len(times) == 1:
            raise FailedPrecondition("it was handed on", reason="MOVED")
        return await made(spec, principal, detached=detached)

    made = owner.hub.calls.call
    monkeypatch.setattr(owner.hub.calls, "call", serve)
    assert (await ingress.api(CALL, call())).call.result
    assert times == [0, 1]


async def test_a_call_whose_owner_is_killed_is_lost_and_not_made_again(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    wire = Wire(owner.port.address)
    async with wire.laid() as address:
        ingress.believed.hear("one", Owner("b", 1, address))
        refused = asyncio.create_task(ingress.api.refused(CALL, call()))
        await until(lambda: bool(owner.peer.sent))
        await wire.cut()
        lost = await refused
    assert (lost.code, lost.reason) == (grpc.StatusCode.UNAVAILABLE, "OWNER_LOST")
    assert lost.metadata == {"server": "one", "member": "b"}
    assert len(owner.peer.sent) == 1
    assert is_changing(await ingress.api.refused(CALL, call()))


async def test_a_member_that_takes_this_one_for_a_stranger_was_sent_nothing(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise Unauthenticated("only members may connect here", reason="NAME_INVALID")

    ingress, owner = two
    monkeypatch.setattr(service, "_check_member", refuse)
    assert is_changing(await ingress.api.refused(CALL, call()))
    assert not owner.peer.sent


async def test_an_outcome_that_only_a_newer_member_knows_is_none(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ingress, owner = two
    await ingress.api(CALL, call())  # it is connected
    newer = pb.ForwardResponse.FromString(b"\x1a\x01x")  # a field 3
    monkeypatch.setattr(pb, "ForwardResponse", lambda **_: newer)
    refused = await ingress.api.refused(CALL, call())
    assert (refused.reason, len(owner.peer.sent)) == ("OWNER_LOST", 2)
    assert "does not know" in refused.message


async def test_a_response_that_only_a_newer_member_knows_is_passed_over(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingress, owner = two
    known, newer = pb.ForwardStreamResponse, pb.ForwardStreamResponse.FromString(b"\x1a\x01x")

    async def tail(*_: object, **__: object) -> AsyncIterator[EventStep]:
        yield EventStep(None, dropped=1)
        yield EventStep(None, dropped=2)

    await ingress.api(CALL, call())
    monkeypatch.setattr(owner.hub.events, "tail", tail)
    first = event_pb2.WatchEventsResponse(dropped=1).SerializeToString()
    given = lambda **step: newer if step.get("response") == first else known(**step)  # noqa: E731
    monkeypatch.setattr(pb, "ForwardStreamResponse", given)
    assert (await ingress.api(RPCS["TailLogs"], event_pb2.TailLogsRequest(server="one"))).dropped == 2


async def test_a_call_under_way_on_a_connection_that_is_replaced_is_lost(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    wire = Wire(owner.port.address)
    async with wire.laid() as address:
        ingress.believed.hear("one", Owner("b", 1, address))
        refused = asyncio.create_task(ingress.api.refused(CALL, call()))
        await until(lambda: bool(owner.peer.sent))
        ingress.believed.hear("one", owner.owner)
        await ingress.api(RPCS["GetQueue"], call_pb2.GetQueueRequest(server="one"))
        assert (await refused).reason == "OWNER_LOST"
    assert len(owner.peer.sent) == 1


async def test_a_forwarded_stream_ends_when_its_server_is_handed_on(two: Two) -> None:
    ingress, owner = two
    lost = partial(owner.believed.hear, "one", ingress.owner)
    ended = await ingress.api.end(RPCS["TailLogs"], event_pb2.TailLogsRequest(server="one", follow=True), lost)
    assert (ended.code, ended.reason) == (grpc.StatusCode.UNAVAILABLE, "OWNER_LOST")


@pytest.mark.parametrize("first", [True, False], ids=["the first", "a later one"])
async def test_a_stream_whose_server_is_handed_on_while_a_response_is_written_ends_too(
    two: Two, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    ingress, owner = two
    long = event_pb2.WatchEventsResponse(event=event_pb2.ServerEvent(method="x" * 4 * 1024 * 1024))
    event = ServerEvent(
        server="one",
        kind=ServerEventKind.LOG,
        method="",
        params=b"",
        call_id=None,
        at=0.0,
        encoded=long.SerializeToString(),
    )

    async def tail(*_: object, **__: object) -> AsyncIterator[EventStep]:
        if not first:
            yield EventStep(None)
        asyncio.get_running_loop().call_soon(owner.believed.hear, "one", ingress.owner)
        yield EventStep(event)
        await anyio.sleep_forever()

    monkeypatch.setattr(owner.hub.events, "tail", tail)
    ended = await ingress.api.end(RPCS["TailLogs"], event_pb2.TailLogsRequest(server="one"))
    assert (ended.code, ended.reason) == (grpc.StatusCode.UNAVAILABLE, "OWNER_LOST")
    assert ended.metadata == {"server": "one", "member": "b"}


async def test_a_member_that_was_lost_is_reached_again_at_its_new_address(made: Fleet, two: Two) -> None:
    ingress, owner = two
    await ingress.api(CALL, call())
    ingress.believed.hear("one", NOWHERE)
    assert is_changing(await ingress.api.refused(CALL, call()))
    ingress.believed.hear("one", owner.owner)
    assert (await ingress.api(CALL, call())).call.result


async def test_a_member_finds_what_it_has_not_heard_of_before_it_says_that_there_is_nothing(two: Two) -> None:
    ingress, owner = two
    ingress.store.held = True
    asked = owner.peer.link.ask("elicitation/create", FORM)
    await until(lambda: bool(list(owner.hub.inbox.newest(RequestFilter()))))
    [question] = owner.hub.inbox.newest(RequestFilter())
    assert not list(ingress.hub.inbox.newest(RequestFilter()))
    accept = inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":"Ada"}')
    answer = inbox_pb2.AnswerPendingRequestRequest(id=question.id, accept=accept)
    answered = await ingress.api(RPCS["AnswerPendingRequest"], answer)
    assert answered.pending_request.answered_by == "local"
    assert (await asked.answered())["content"] == {"name": "Ada"}


async def test_it_sends_to_the_owner_what_is_about_a_call_that_it_has_not_heard_of(two: Two) -> None:
    ingress, owner = two
    ingress.store.held = True
    owner.peer.behaviour = never
    started = await owner.hub.calls.start(
        CallSpec(server="one", method="tools/call", params=b'{"name":"echo"}'), "local"
    )
    await until(lambda: bool(owner.peer.sent))
    cancelled = await ingress.api(RPCS["CancelCall"], call_pb2.CancelCallRequest(id=started.id, abort=True))
    assert cancelled.call.id == started.id
    assert owner.hub.calls.get(started.id).state.ended


async def test_it_finds_a_token_that_it_has_not_heard_of_by_its_name(two: Two) -> None:
    ingress, other = two
    ingress.store.held = True
    grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)]
    await other.api(RPCS["CreateToken"], admin_pb2.CreateTokenRequest(name="ada", grants=grants))
    revoke = admin_pb2.RevokeTokenRequest(name="ada")
    assert (await ingress.api(RPCS["RevokeToken"], revoke)).token.name == "ada"
    assert (await ingress.api.refused(RPCS["RevokeToken"], revoke)).reason == "TOKEN_NOT_FOUND"


@pytest.mark.parametrize("noun", ["request", "member"])
async def test_what_is_certainly_not_there_is_looked_for_once(two: Two, noun: str) -> None:
    looked = 0

    async def look(_: Message) -> Message:
        nonlocal looked
        looked += 1
        raise NotFound(noun, "req_1")

    over: Any = two[0].forwarding.wrap(RPCS["GetPendingRequest"], look)
    with pytest.raises(NotFound):
        await over(inbox_pb2.GetPendingRequestRequest(id="req_1"))
    assert looked == 1


async def test_a_member_without_its_database_does_not_say_that_there_is_nothing(two: Two) -> None:
    ingress, _ = two
    get = inbox_pb2.GetPendingRequestRequest(id="req_1")
    assert (await ingress.api.refused(RPCS["GetPendingRequest"], get)).reason == "REQUEST_NOT_FOUND"
    ingress.store.failures = 1
    assert (await ingress.api.refused(RPCS["GetPendingRequest"], get)).reason == "STORE_UNAVAILABLE"
