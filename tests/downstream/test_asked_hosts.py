"""What the record of a question says of hosts: which were asked, why others were not, and which have hung up."""

import asyncio
from typing import Any

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.calls.host_call import RETURN_S
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.calls.queue import ANSWERED_S
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..raising import raising
from ..runtime.agents import Agent
from ..runtime.conftest import FORM, World, open_requests, question, server, settle, until
from ..runtime.peer import Outcome, Sent
from .scripted import answering, asks, connected, host_at

ASKED = ("elicitation/create", FORM)
GIVEN = {"action": "accept", "content": {"name": "x"}}
DONE = [{"type": "text", "text": "done"}]
NAME = "a-host 1.2"


async def answer(hub: Hub, by: str = "alice") -> None:
    """Somebody answers what is open, in the inbox."""
    for request in open_requests(hub):
        await hub.inbox.answer(request.id, Accept({"name": "x"}), by, answer_id=None, claim_id=None)


def decided(request: PendingRequest) -> list[tuple[str, str]]:
    """What was decided about which host."""
    return [(each.host, each.why_not) for each in request.hosts]


REASONS: list[tuple[QuestionPolicy, dict[str, Any] | None, str]] = [
    (QuestionPolicy(), None, ""),
    (QuestionPolicy(form="inbox"), None, 'the profile has questions.form = "inbox"'),
    (QuestionPolicy(), {"elicitation": {"url": {}}}, "it did not declare that it can answer this (form)"),
]


@pytest.mark.parametrize(("policy", "capabilities", "why_not"), REASONS)
@pytest.mark.parametrize("era", Era)
async def test_the_record_says_from_the_beginning_whether_the_host_is_asked_and_why_not(
    world: World, era: Era, policy: QuestionPolicy, capabilities: dict[str, Any] | None, why_not: str
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        call = asyncio.create_task(host_at(hub, era, policy=policy, capabilities=capabilities).call())
        first = await question(hub)
        assert decided(first) == [(NAME, why_not)]
        await settle(3)
        assert hub.inbox.get(first.id) is first
        call.cancel()


async def test_the_record_names_the_hosts_of_all_calls_that_may_be_the_cause(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await (sent.ask(*ASKED).answered() if sent.params["name"] == "asks" else asyncio.sleep(30))
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world, server(max_in_flight=3)) as hub:
        names = ("mine", "theirs")
        hosts = [host_at(hub, name=name) for name in names]
        for host, name in zip(hosts, names, strict=True):
            host.host.info = {"name": name}
        calls = [asyncio.create_task(hosts[0].call(name="works"))]
        await until(lambda: len(world.peer.sent) == 1)
        calls.append(asyncio.create_task(hosts[1].call(name="asks")))
        request = await question(hub)
        why_not = "it is not certain that its call is the cause: the server is at work for others, too"
        assert decided(request) == [("mine", why_not), ("theirs", why_not)]
        await answer(hub)
        await asyncio.gather(*calls)


@pytest.mark.parametrize(("after_s", "asked"), [(1, False), (ANSWERED_S + 1, True)])
async def test_a_call_that_was_answered_keeps_other_hosts_from_being_asked_for_a_moment_alone(
    world: World, after_s: float, asked: bool
) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "asks":
            await sent.ask(*ASKED).answered()
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        theirs, mine = host_at(hub, name="bob"), host_at(hub)
        await theirs.call(name="works")
        await asyncio.sleep(after_s)
        call = asyncio.create_task(mine.call(name="asks"))
        request = await question(hub)
        assert [not why_not for _, why_not in decided(request)] == [asked]
        await answer(hub)
        await call


async def test_a_host_that_joins_a_call_later_is_noted_too(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        policy = QuestionPolicy(form="inbox", join_s=600)
        hosts = [host_at(hub, policy=policy) for _ in range(12)]
        first = asyncio.create_task(hosts[0].call())
        request = await question(hub)
        for number, host in enumerate(hosts):
            host.session.endpoint = hosts[0].endpoint
            host.host.info = {"name": f"host {number}"}
        others = [asyncio.create_task(host.call()) for host in hosts[1:]]
        await settle(1)
        names = [each.host for each in hub.inbox.get(request.id).hosts]
        assert names == [NAME, *(f"host {number}" for number in range(1, 10))]
        await answer(hub)
        await asyncio.gather(first, *others)


# A question that is held for a host


async def test_others_hear_for_which_host_a_question_is_held_until_when_and_how_to_take_it(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="host-first"))
        host.host.info = {"name": "copilot-cli"}
        call = asyncio.create_task(host.call())
        request = await question(hub)
        assert request.claim.host == "copilot-cli"
        for by, how in (("me", f"hubbub inbox claim {request.id} --take-over"), ("alice", "of me until")):
            with raising(FailedPrecondition, "ALREADY_CLAIMED", match=r"^held for copilot-cli ") as refused:
                await hub.inbox.answer(request.id, Accept({"name": "x"}), by, answer_id=None, claim_id=None)
            assert how in refused.value.message
            assert refused.value.metadata["until"] == f"{request.claim.expires_at:.3f}"
        taken = await hub.inbox.claim(request.id, "me", 60, take_over=True)
        assert taken.claim.host == ""
        call.cancel()


# Hosts that hang up


@pytest.mark.parametrize("again", [False, True])
async def test_a_question_says_that_its_host_has_hung_up_until_that_is_back(world: World, again: bool) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, handler=answering(GIVEN, 5000), policy=QuestionPolicy(form="inbox"))
        call = asyncio.create_task(host.call())
        request = await question(hub)
        host.presence.set_connected(connected=False)
        await settle(RETURN_S - 1)
        assert hub.inbox.get(request.id).caller_left_at is None
        await settle(2)
        assert hub.inbox.get(request.id).caller_left_at is not None
        await answer(hub)
        await until(lambda: len(got) == 1)
        second = await question(hub)
        assert second.caller_left_at is not None
        if again:
            host.presence.set_connected(connected=True)
            await until(lambda: hub.inbox.get(second.id).caller_left_at is None)
        await answer(hub)
        await call


async def test_a_host_that_has_hung_up_is_asked_only_once_it_is_back(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await asyncio.sleep(20)
        return {"content": [await sent.ask(*ASKED).answered()]}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub, handler=answering(GIVEN))
        call = asyncio.create_task(host.call())
        host.presence.set_connected(connected=False)
        request = await question(hub)
        assert decided(request) == [(NAME, "it has hung up")]
        await settle(60)
        assert host.asked == []
        host.presence.set_connected(connected=True)
        assert (await call)["result"]["content"] == [GIVEN]
        assert len(host.asked) == 1
        assert decided(hub.inbox.get(request.id)) == [(NAME, "")]


async def test_a_request_without_a_session_that_is_cut_leaves_a_note_in_its_question(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="inbox"))
        call = asyncio.create_task(host.call())
        request = await question(hub)
        await settle(3)
        call.cancel()
        await until(lambda: hub.inbox.get(request.id).caller_left_at is not None)
        await answer(hub)
        (record,) = hub.calls.select(CallFilter())
        await until(lambda: hub.calls.get(record.id).state is CallState.COMPLETED)


# Calls that are made again


@pytest.mark.parametrize(("join_s", "made"), [(0, 2), (600, 1), (30, 2)])
@pytest.mark.parametrize("era", Era)
async def test_a_call_that_is_made_again_soon_joins_the_one_that_goes_on(
    world: World, era: Era, join_s: float, made: int
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    policy = QuestionPolicy(form="inbox", hold_s=5, on_hold_end="error", join_s=join_s)
    async with connected(world, server(max_in_flight=5)) as hub:
        host = host_at(hub, era, policy=policy)
        assert (await host.call(name="t", _meta={"progressToken": 1}))["error"]["data"]["reason"] == "ANSWER_AWAITED"
        await settle(60)
        again = asyncio.create_task(host.call(name="t", _meta={"progressToken": 2}))
        await settle(2)
        assert len(world.peer.sent) == made
        other = asyncio.create_task(host.call(name="other"))
        await until(lambda: len(world.peer.sent) == made + 1)
        await answer(hub)
        assert (await again)["result"]["content"] == DONE
        await other


async def test_nobody_joins_the_call_of_another_principal(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(max_in_flight=5)) as hub:
        policy = QuestionPolicy(form="inbox", join_s=600)
        mine, theirs = host_at(hub, policy=policy), host_at(hub, policy=policy, name="somebody else")
        theirs.session.endpoint = mine.endpoint
        calls = [asyncio.create_task(each.call()) for each in (mine, theirs)]
        await until(lambda: len(world.peer.sent) == 2)
        await until(lambda: len(open_requests(hub)) == 2)
        await answer(hub)
        await asyncio.gather(*calls)


# Answers that come too late


@pytest.mark.parametrize("era", Era)
async def test_an_answer_after_that_of_the_inbox_is_in_the_record_and_the_host_hears_of_it(
    world: World, era: Era
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:

        async def person(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:  # a host that answers what was taken back
                await asyncio.sleep(1)
            return GIVEN

        async def slow(sent: Sent) -> Outcome:
            await sent.ask(*ASKED).answered()
            await asyncio.sleep(60)
            return {"content": DONE}

        world.peer.behaviour = slow
        host = host_at(hub, era, person)
        call = asyncio.create_task(host.call(name="t", _meta={"progressToken": "p"}))
        request = await question(hub)
        await settle(5)
        await answer(hub)
        assert (await call)["result"]["content"] == DONE
        record = hub.inbox.get(request.id)
        assert record.state is RequestState.ANSWERED
        noted = [moment.via for moment in record.moments if moment.what == "not_counted"]
        assert noted == [f"{NAME}: accept, after alice had answered"]
        said = [str(params) for _, params in host.told]
        assert any(("alice had answered" if era is Era.STATELESS else "alice has answered") in each for each in said)


async def test_what_a_worker_may_have_is_free_once_the_host_leaves_it(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub, asyncio.TaskGroup() as tasks:
        agent = Agent("agent")
        working = tasks.create_task(agent.run(hub, RequestFilter(), 5))
        host = host_at(hub, handler=answering({"action": "cancel"}, 5), policy=QuestionPolicy(form="host-first"))
        call = asyncio.create_task(host.call())
        request = await question(hub)
        assert request.claim.host == NAME
        await until(lambda: agent.given == [request.id])
        call.cancel()
        working.cancel()


@pytest.mark.parametrize("era", Era)
async def test_a_question_is_asked_as_soon_as_the_server_waits_and_a_later_one_in_the_next_round(
    world: World, era: Era
) -> None:
    asks(world, era, ASKED, ASKED)
    time = asyncio.get_running_loop().time
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        began_at = time()
        first = (await host.send("tools/call", {"name": "t"}))["result"]
        assert (len(first["inputRequests"]), time() - began_at) == (1, 0)
        (key,) = first["inputRequests"]
        answers = {"name": "t", "requestState": first["requestState"], "inputResponses": {key: GIVEN}}
        second = (await host.send("tools/call", answers))["result"]
        assert (len(second["inputRequests"]), time() - began_at) == (1, 0)
        assert second["requestState"] != first["requestState"]
