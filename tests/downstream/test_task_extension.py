"""Tasks of hosts that declare the tasks extension (2026-07-28): made, followed, answered, cancelled."""

import asyncio

import pytest

from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.tasks.host_tasks import AWAY_S
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, SAMPLING, World, open_requests, server, settle, until
from ..runtime.peer import Outcome, Sent
from ..runtime.task_server import ERAS, RESULT, TaskServer
from .followed_tasks import ASKED, DECLARED, DONE, EXTENSION, GIVEN, answered, host_with_tasks, made, reached, result
from .scripted import asks, connected, host_at

SAID = {"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"}

# Which calls become tasks


async def test_a_call_that_needs_nobody_has_its_result_at_once(world: World) -> None:
    asks(world, Era.STATELESS)
    async with connected(world) as hub:
        assert (await result(host_with_tasks(hub), "tools/call", name="t"))["content"] == DONE


@pytest.mark.parametrize("era", Era)
async def test_a_call_becomes_a_task_when_people_are_asked(world: World, era: Era) -> None:
    got = asks(world, era, ASKED, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        task = await result(host, "tasks/get", taskId=task_id)
        assert (task["status"], task["taskId"], task["ttlMs"]) == ("input_required", task_id, None)
        (asked,) = task["inputRequests"].values()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["requestedSchema"] == FORM["requestedSchema"]
        await answered(host, task_id)
        await answered(host, task_id)
        task = await reached(host, task_id, "completed")
        assert task["result"]["content"] == DONE
        assert got == [GIVEN, GIVEN]


@ERAS
async def test_a_call_becomes_a_task_when_its_server_makes_one(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    async with connected(world) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        host = host_with_tasks(hub)
        task_id = await made(host, "must")
        tasks.more = {"statusMessage": "half way"}
        await settle(2)
        task = await result(host, "tasks/get", taskId=task_id)
        assert (task["status"], task["statusMessage"]) == ("working", "half way")
        tasks.end(result=RESULT)
        assert (await reached(host, task_id, "completed"))["result"]["content"] == DONE


async def test_a_host_without_the_extension_gets_no_task(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        call = asyncio.create_task(host.send("tools/call", {"name": "t"}))
        await settle(2)
        tasks.end(result=RESULT)
        assert (await call)["result"]["content"] == DONE


async def test_what_earlier_revisions_say_of_tasks_makes_none(world: World) -> None:
    async with connected(world) as hub:
        response = await result(host_with_tasks(hub), "tools/call", name="t", task={"ttl": 60_000})
        assert "taskId" not in response
        assert world.peer.sent[-1].params == {"name": "t"}


async def test_with_hosts_alone_to_answer_a_server_hears_what_its_host_declares(world: World) -> None:
    policy = QuestionPolicy(form="host", url="host", sampling="host", roots="host")
    async with connected(world) as hub:
        for capabilities in ({}, DECLARED):
            await result(host_with_tasks(hub, policy=policy, capabilities=capabilities), "tools/call", name="t")
        heard = [sent.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] for sent in world.peer.sent]
        assert [each.get("extensions") for each in heard] == [None, {EXTENSION: {}}]


# Questions


async def test_of_two_questions_one_may_be_answered_before_the_other(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    asked = {"method": "elicitation/create", "params": FORM}
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        tasks.status, tasks.more = "input_required", {"inputRequests": {"a": asked, "b": asked}}
        first, second = (await reached(host, task_id, "input_required"))["inputRequests"]
        await settle(3)
        await result(host, "tasks/update", taskId=task_id, inputResponses={first: GIVEN})
        task = await result(host, "tasks/get", taskId=task_id)
        assert (task["status"], list(task["inputRequests"])) == ("input_required", [second])
        await result(host, "tasks/update", taskId=task_id, inputResponses={second: GIVEN})
        await until(lambda: len(tasks.updates) == 2)
        assert sorted(key for update in tasks.updates for key in update) == ["a", "b"]
        assert (await result(host, "tasks/get", taskId=task_id))["status"] == "working"


async def test_the_inbox_may_answer_what_a_task_asks(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        (asked,) = open_requests(hub)
        await hub.inbox.answer(asked.id, Accept({"name": "y"}), "alice", answer_id=None, claim_id=None)
        assert (await reached(host, task_id, "completed"))["result"]["content"] == DONE
        late = await result(host, "tasks/update", taskId=task_id, inputResponses={asked.id: GIVEN})
        assert late == {"resultType": "complete"}
        assert got == [{"action": "accept", "content": {"name": "y"}}]


async def test_a_task_whose_question_is_the_inboxs_says_where_to_answer(world: World) -> None:
    asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub, policy=QuestionPolicy(form="inbox"))
        task = await result(host, "tasks/get", taskId=await made(host))
        (asked,) = open_requests(hub)
        assert (task["status"], task["statusMessage"]) == (
            "working",
            f"waiting for an answer: hubbub inbox show {asked.id}",
        )


async def test_an_answer_that_does_not_fit_is_refused_and_may_be_given_again(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        (key,) = (await reached(host, task_id, "input_required"))["inputRequests"]
        wrong = {key: {"action": "accept", "content": {"name": 7}}}
        response = await host.send("tasks/update", {"taskId": task_id, "inputResponses": wrong})
        assert response["error"]["code"] == -32602
        assert key in response["error"]["message"]
        await answered(host, task_id)
        await reached(host, task_id, "completed")
        assert got == [GIVEN]


@pytest.mark.parametrize("answers", [None, [], {"q": 12345}])
async def test_answers_that_are_no_objects_are_refused(world: World, answers: object) -> None:
    asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        response = await host.send("tasks/update", {"taskId": task_id, "inputResponses": answers})
        assert response["error"]["code"] == -32602


async def test_a_question_for_the_host_first_is_kept_for_it_while_it_asks(world: World) -> None:
    asks(world, Era.STATELESS, ("sampling/createMessage", SAMPLING), ("sampling/createMessage", SAMPLING))
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        (first,) = open_requests(hub)
        assert hub.inbox.reserved.reserved_claim_id(first) is not None
        await answered(host, task_id, SAID)
        await until(lambda: [each for each in open_requests(hub) if each.id != first.id])
        (second,) = open_requests(hub)
        assert hub.inbox.reserved.reserved_claim_id(second) is not None
        await answered(host, task_id, SAID)
        await reached(host, task_id, "completed")


async def test_a_host_that_goes_away_leaves_its_questions_to_everybody(world: World) -> None:
    got = asks(world, Era.STATELESS, ("sampling/createMessage", SAMPLING))
    async with connected(world, server(answer_timeout_s=1000)) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        (asked,) = open_requests(hub)
        for _ in range(3):
            await settle(AWAY_S - 1)
            await result(host, "tasks/get", taskId=task_id)
            assert hub.inbox.get(asked.id).claim is not None
        await settle(AWAY_S + 1)
        assert hub.inbox.get(asked.id).claim is None
        await answered(host, task_id, SAID)
        await reached(host, task_id, "completed")
        assert got == [SAID]


# How tasks end


async def test_a_servers_error_fails_the_task_as_it_was(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    error = {"code": -32077, "message": "it broke", "data": {"part": 7}}
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        tasks.end("failed", error=error)
        task = await reached(host, task_id, "completed", "failed")
        assert (task["status"], task["error"]) == ("failed", error)
        assert "result" not in task


async def test_a_cancelled_task_is_cancelled_at_its_server(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        for _ in range(2):
            assert await result(host, "tasks/cancel", taskId=task_id) == {"resultType": "complete"}
        assert (await result(host, "tasks/get", taskId=task_id))["status"] == "cancelled"
        assert len(tasks.asked("tasks/cancel")) == 1


async def test_a_cancelled_task_takes_its_questions_back(world: World) -> None:
    async def ask_on_the_stream_of_the_call(sent: Sent) -> Outcome:
        await sent.ask(*ASKED, on_wire=True).answered()
        return RESULT

    world.peer.behaviour = ask_on_the_stream_of_the_call
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        (asked,) = open_requests(hub)
        await result(host, "tasks/cancel", taskId=task_id)
        await settle(1)
        assert hub.inbox.get(asked.id).state is RequestState.WITHDRAWN
        assert world.peer.sent[0].cancelled


# Restarts


async def test_a_task_goes_on_over_a_restart_and_is_answered_there(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        task_id = await made(host_with_tasks(hub))
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        await answered(host, task_id)
        assert (await reached(host, task_id, "completed"))["result"]["content"] == DONE
        assert got == [GIVEN]
