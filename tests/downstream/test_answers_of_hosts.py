"""What an answer of a host is worth: answers that nobody gave, and who is asked before whom."""

import asyncio
from typing import Any

import anyio
import pytest

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.downstream import QuestionPolicy
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era, ReplyError

from ..runtime.agents import Agent
from ..runtime.conftest import SAMPLING, World, open_requests, question, settle, until
from .scripted import Answer, ScriptedHost, answering, asks, connected, host_at, server

FORM: dict[str, Any] = {
    "message": "Deploy?",
    "requestedSchema": {
        "type": "object",
        "properties": {"where": {"type": "string", "default": "here"}, "sure": {"type": "boolean", "default": False}},
        "required": ["where"],
    },
}
ASKED = ("elicitation/create", FORM)
PERSON = Accept({"where": "there", "sure": True})
TASKS = "io.modelcontextprotocol/tasks"
DONE = [{"type": "text", "text": "done"}]

NOBODY: dict[str, dict[str, Any]] = {
    "Claude Code in VS Code, by stream-json, the desktop app; Hermes Agent": {"action": "decline"},
    "Cowork": {"action": "cancel"},
    "Claude Code 2.1.231": {"action": "accept", "content": {"where": "here", "sure": False}},
    "Codex": {"action": "accept", "content": {}},
    "Codex without content": {"action": "accept"},
    "some of the defaults": {"action": "accept", "content": {"where": "here"}},
}


async def answered_by_a_person(hub: Hub, call: asyncio.Task[dict[str, Any]]) -> PendingRequest:
    """Answers what is still open after a while, as a person at the inbox; returns the record."""
    asked = await question(hub)
    await settle(30)
    assert not call.done()
    before = hub.inbox.get(asked.id)
    await hub.inbox.answer(asked.id, PERSON, "alice", answer_id=None, claim_id=None)
    return before


@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("of_server", Era)
@pytest.mark.parametrize("said", NOBODY)
async def test_an_answer_that_nobody_gave_leaves_the_question_to_people(
    world: World, of_host: Era, of_server: Era, said: str
) -> None:
    got = asks(world, of_server, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering(NOBODY[said], after_s=0.004))
        call = asyncio.create_task(host.call())
        record = await answered_by_a_person(hub, call)
        assert (await call)["result"]["content"] == DONE
        assert got == [{"action": "accept", "content": {"where": "there", "sure": True}}]
        noted = [moment.via for moment in record.moments if moment.what == "not_counted"]
        assert noted == [f"a-host 1.2: {NOBODY[said]['action']} after 4 ms"]
        assert len(host.asked) == 1


@pytest.mark.parametrize("of_host", Era)
async def test_a_host_where_nobody_is_is_not_asked_again(world: World, of_host: Era) -> None:
    asks(world, Era.HANDSHAKE, ASKED, ("sampling/createMessage", SAMPLING))
    async with connected(world) as hub:
        said: dict[str, Any] = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}

        async def program(method: str, _params: dict[str, Any]) -> Answer:
            return said if method == "sampling/createMessage" else {"action": "decline"}

        host = host_at(hub, of_host, program)
        for _ in range(2):
            call = asyncio.create_task(host.call())
            await answered_by_a_person(hub, call)
            await call
        methods = [asked[0] for asked in host.asked]
        assert methods == ["elicitation/create", "sampling/createMessage", "sampling/createMessage"]


@pytest.mark.parametrize("of_host", Era)
async def test_a_person_who_closes_the_dialog_leaves_the_question_to_the_inbox(world: World, of_host: Era) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering({"action": "cancel"}, after_s=20))
        call = asyncio.create_task(host.call())
        record = await answered_by_a_person(hub, call)
        await call
        assert [moment.via for moment in record.moments if moment.what == "not_counted"] == ["a-host 1.2: cancel"]
        assert len(host.asked) == 1


async def test_a_host_that_fails_to_ask_leaves_the_question_to_the_inbox(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering(ValueError("no window"), after_s=20))
        call = asyncio.create_task(host.call())
        record = await answered_by_a_person(hub, call)
        await call
        assert [moment.via for moment in record.moments if moment.what == "not_counted"] == [
            "a-host 1.2: error -1: no window"
        ]


async def test_an_answer_that_does_not_fit_leaves_the_question_to_the_inbox(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering({"action": "accept", "content": {"where": 5}}, after_s=20))
        call = asyncio.create_task(host.call())
        await answered_by_a_person(hub, call)
        assert (await call)["result"]["content"] == DONE


async def test_an_answer_that_does_not_fit_is_refused_where_the_host_can_send_another(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        asked = (await host.send("tools/call", {"name": "t"}))["result"]
        (key,) = asked["inputRequests"]
        again = {"name": "t", "requestState": asked["requestState"]}
        for wrong in ({"action": "accept", "content": {"where": 5}}, {}, 12345, None):
            response = await host.send("tools/call", {**again, "inputResponses": {key: wrong}})
            assert response["error"]["code"] == -32602
        await settle(2)
        right = {"action": "accept", "content": {"where": "x", "sure": True}}
        response = await host.send("tools/call", {**again, "inputResponses": {key: right}})
        assert (response["result"]["content"], got) == (DONE, [right])


UNFIT: list[dict[str, Any]] = [
    {"action": "accept", "content": {"where": 5, "more": "x"}},
    {"action": "accept"},
    {"action": "accept", "content": {}},
    {"action": "maybe"},
    {},
]


@pytest.mark.parametrize("said", [{"action": "decline"}, {"action": "cancel"}, *UNFIT])
@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("of_server", Era)
async def test_where_only_the_host_is_asked_its_answers_are_passed_on_unjudged(
    world: World, of_host: Era, of_server: Era, said: dict[str, Any]
) -> None:
    got = asks(world, of_server, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering(said, after_s=0), policy=QuestionPolicy(form="host"))
        assert (await host.call())["result"]["content"] == DONE
        assert got == [said]


async def test_an_answer_that_is_too_long_ends_the_question_where_only_the_host_is_asked(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        said = {"action": "accept", "content": {"where": "x" * (4 * 1024 * 1024)}}
        host = host_at(hub, handler=answering(said), policy=QuestionPolicy(form="host"))
        assert (await host.call())["result"]["content"] == DONE
        assert [(each.code, "at most 4194304" in each.message) for each in got] == [(-32603, True)]


async def test_where_only_the_host_is_asked_its_error_reaches_the_server(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(
            hub, Era.HANDSHAKE, answering(ValueError("no window"), after_s=0), policy=QuestionPolicy(form="host")
        )
        await host.call()
        assert [(type(each), each.code, each.message) for each in got] == [(ReplyError, -1, "no window")]


@pytest.mark.parametrize("of_host", Era)
async def test_what_only_the_host_could_answer_is_refused_if_it_cannot(world: World, of_host: Era) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, of_host, policy=QuestionPolicy(form="host"), capabilities={"sampling": {}})
        assert (await host.call())["result"]["content"] == DONE
        assert [each.code for each in got] == [-32601]
        assert open_requests(hub) == []


async def test_a_server_of_2026_that_asks_what_was_not_declared_ends_the_call(world: World) -> None:
    asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="host"), capabilities={})
        error = (await host.call())["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})


@pytest.mark.parametrize(
    ("policy", "declares", "sent"),
    [
        (QuestionPolicy(), {}, None),
        (
            QuestionPolicy(form="host"),
            {},
            {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}, "extensions": {TASKS: {}}},
        ),
        (
            QuestionPolicy(form="host", url="host", sampling="host", roots="host"),
            {"elicitation": {}, "sampling": {}},
            {"elicitation": {"form": {}}, "sampling": {}},
        ),
    ],
)
async def test_a_call_declares_what_can_be_answered_for_it(
    world: World, policy: QuestionPolicy, declares: dict[str, Any], sent: dict[str, Any] | None
) -> None:
    async with connected(world) as hub:
        await host_at(hub, Era.STATELESS, policy=policy, capabilities=declares).call()
        meta = world.peer.sent[-1].params.get("_meta", {})
        assert meta.get("io.modelcontextprotocol/clientCapabilities") == sent


@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("first", ["host", "host-first"])
async def test_a_host_that_is_asked_first_has_the_question_claimed(world: World, of_host: Era, first: Any) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering({"action": "decline"}, after_s=50), policy=QuestionPolicy(form=first))
        call = asyncio.create_task(host.call())
        asked = await question(hub)
        await settle(10)
        claim = hub.inbox.get(asked.id).claim
        assert claim.by == "me"
        await call
        assert hub.inbox.get(asked.id).state is RequestState.ANSWERED


@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("of_server", Era)
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_worker_gets_what_is_the_hosts_first_only_when_the_host_leaves_it(
    world: World, of_host: Era, of_server: Era, leaves: bool
) -> None:
    asks(world, of_server, ASKED)
    async with connected(world) as hub, anyio.create_task_group() as tasks:
        agent = Agent("agent")
        tasks.start_soon(agent.run, hub, RequestFilter(), 5)
        await until(lambda: agent.worker is not None)
        said = {"action": "cancel"} if leaves else {"action": "accept", "content": {"where": "x", "sure": True}}
        host = host_at(hub, of_host, answering(said, after_s=20), policy=QuestionPolicy(form="host-first"))
        call = asyncio.create_task(host.call())
        asked = await question(hub)
        await settle(15)
        assert agent.given == []
        if leaves:
            await until(lambda: agent.given == [asked.id])
            claim = agent.mine[asked.id].claim
            await hub.inbox.answer(asked.id, PERSON, "agent", answer_id=None, claim_id=claim.id)
        assert (await call)["result"]["content"] == DONE
        tasks.cancel_scope.cancel()


async def test_an_answer_waits_for_what_becomes_of_a_claim(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        said = {"action": "accept", "content": {"where": "host", "sure": True}}
        host = host_at(hub, Era.HANDSHAKE, answering(said, after_s=2))
        call = asyncio.create_task(host.call())
        asked = await question(hub)
        held = await hub.inbox.claim(asked.id, "alice", 60)
        await settle(20)
        assert not call.done()
        await hub.inbox.release(asked.id, held.claim.id)
        await call
        assert got == [said]


async def test_a_question_that_may_be_of_another_principals_call_goes_to_the_inbox_alone(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        await host_at(hub, name="somebody else", handler=answering({"action": "decline"})).call()
        host = host_at(hub, Era.HANDSHAKE, answering({"action": "decline"}))
        call = asyncio.create_task(host.call())
        await answered_by_a_person(hub, call)
        await call
        assert host.asked == []


@pytest.mark.parametrize(("of_host", "after_s"), [(Era.HANDSHAKE, 6), (Era.STATELESS, 6)])
async def test_a_host_is_asked_though_another_principal_has_called_before(
    world: World, of_host: Era, after_s: float
) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    said = {"action": "accept", "content": {"where": "x", "sure": True}}
    async with connected(world) as hub:
        await host_at(hub, name="somebody else", handler=answering(said)).call()
        await settle(after_s)
        host = host_at(hub, of_host, answering(said))
        assert (await host.call())["result"]["content"] == DONE
        assert (len(host.asked), got[1:]) == (1, [said])


async def test_a_question_a_minute_after_a_cancelled_call_of_another_principal_may_still_be_of_that_call(
    world: World,
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(roots="ask", max_in_flight=2)) as hub:
        theirs = host_at(hub, name="somebody else", handler=answering({"action": "accept"}, 5000))
        given_up = asyncio.create_task(theirs.call())
        await until(lambda: len(world.peer.sent) == 1)
        given_up.cancel()
        for after_s, asked in ((10, 0), (60, 1)):
            await settle(after_s)
            host = host_at(hub, handler=answering({"action": "accept", "content": {"where": "x", "sure": True}}))
            call = asyncio.create_task(host.call())
            await settle(30)
            assert len(host.asked) == asked
            for each in open_requests(hub):
                await hub.inbox.answer(each.id, PERSON, "alice", answer_id=None, claim_id=None)
            await call


async def test_what_the_wire_ties_to_a_call_is_asked_whoever_else_called(world: World) -> None:
    async def behaviour(sent: Any) -> dict[str, Any]:
        return {"content": [await sent.ask(*ASKED, on_wire=True).answered()]}

    async with connected(world, server(max_in_flight=5)) as hub:
        await host_at(hub, name="somebody else").call()
        world.peer.behaviour = behaviour

        def somebodys(name: str) -> ScriptedHost:
            said = {"action": "accept", "content": {"where": name, "sure": True}}
            return host_at(hub, Era.HANDSHAKE, answering(said), name=name)

        mine, theirs = somebodys("mine"), somebodys("theirs")
        calls = [asyncio.create_task(each.call()) for each in (mine, theirs)]
        await until(lambda: all(call.done() for call in calls))
        said = [call.result()["result"]["content"][0]["content"]["where"] for call in calls]
        assert said == ["mine", "theirs"]
