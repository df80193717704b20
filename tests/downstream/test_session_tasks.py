"""Tasks of hosts with a handshake (2025-11-25): requested, followed, asked for answers, listed, cancelled."""

import asyncio
from typing import Any

import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.tasks import RELATED_TASK
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.tasks.host_tasks import AWAY_S
from hubbubd.downstream.tasks.session_tasks import PAGE_TASKS
from hubbubd.errors import PeerError
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, SAMPLING, World, open_requests, server, settle, spec, until
from ..runtime.peer import Outcome, Sent, gives
from ..runtime.task_server import ERAS, TaskServer
from .followed_tasks import host_with_tasks
from .followed_tasks import result as called
from .scripted import ME, ScriptedHost, answering, asks, connected, host_at

ASKED = ("elicitation/create", FORM)
GIVEN = {"action": "accept", "content": {"name": "x"}}
DONE = [{"type": "text", "text": "done"}]
LOGGED = {"level": "info", "data": "so far"}
METHODS = ["tasks/get", "tasks/result", "tasks/cancel"]


async def result(host: ScriptedHost, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request."""
    response = await host.call(method, **params)
    assert "result" in response, response
    return response["result"]


async def made(host: ScriptedHost, tool: str = "t") -> str:
    """The id of a task that the host requests."""
    task = (await result(host, "tools/call", name=tool, task={"ttl": 60_000}))["task"]
    assert (task["status"], task["ttl"]) == ("working", None)
    return task["taskId"]


def statuses(host: ScriptedHost) -> list[str]:
    """What the host receives about its tasks on its own stream, since the last look."""
    told = [payload.loads(message) for message in host.session.outlet.take_all()]
    return [each["params"]["status"] for each in told if each["method"] == "notifications/tasks/status"]


@pytest.mark.parametrize("era", Era)
async def test_a_task_asks_its_host_while_it_waits_for_the_result(world: World, era: Era) -> None:
    got = asks(world, era, ASKED, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering(GIVEN))
        task_id = await made(host)
        await until(lambda: open_requests(hub))
        assert (await result(host, "tasks/get", taskId=task_id))["status"] == "input_required"
        ended = await result(host, "tasks/result", taskId=task_id)
        assert (ended["content"], ended["_meta"]) == (DONE, {RELATED_TASK: {"taskId": task_id}})
        assert got == [GIVEN, GIVEN]
        assert [params["_meta"] for _, params in host.asked] == [{RELATED_TASK: {"taskId": task_id}}] * 2
        assert (await result(host, "tasks/get", taskId=task_id))["status"] == "completed"


async def test_a_host_is_told_of_each_status(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering(GIVEN))
        task_id = await made(host)
        await result(host, "tasks/result", taskId=task_id)
        await settle()
        assert statuses(host) == ["input_required", "working", "completed"]


async def test_a_host_is_told_of_progress_and_log_messages_until_the_end(world: World) -> None:
    async def works(sent: Sent) -> Outcome:
        for done in (1, 2):
            await asyncio.sleep(10)
            sent.progress(done, 2, "at work")
            sent.link.inbound.on_notification("notifications/message", LOGGED, sent.call_id)
        return {"content": DONE}

    world.peer.behaviour = works
    async with connected(world) as hub:
        host = host_at(hub)
        params = {"name": "t", "task": {}, "_meta": {"progressToken": "p"}}
        task_id = (await result(host, "tools/call", **params))["task"]["taskId"]
        await result(host, "tasks/result", taskId=task_id)
        told = [payload.loads(message) for message in host.session.outlet.take_all()]
        of_it = {"_meta": {RELATED_TASK: {"taskId": task_id}}}
        progress = [each["params"] for each in told if each["method"] == "notifications/progress"]
        assert progress == [
            {"progressToken": "p", "progress": done, "total": 2, "message": "at work", **of_it} for done in (1, 2)
        ]
        logged = [each["params"] for each in told if each["method"] == "notifications/message"]
        assert logged == [{**LOGGED, **of_it}] * 2


@pytest.mark.parametrize("also", ["tasks/get", "tasks/result"])
async def test_questions_are_kept_for_a_host_as_long_as_one_of_its_requests_waits(world: World, also: str) -> None:
    async def asks_late(sent: Sent) -> Outcome:
        await asyncio.sleep(3 * AWAY_S)
        await sent.ask("sampling/createMessage", SAMPLING).answered()
        return {"content": DONE}

    world.peer.behaviour = asks_late
    async with connected(world, server(call_timeout_s=1000)) as hub:
        host = host_at(hub)
        task_id = await made(host)
        waiting = asyncio.create_task(host.call("tasks/result", taskId=task_id))
        await settle()
        other = asyncio.create_task(host.call(also, taskId=task_id))
        await settle()
        other.cancel()
        await settle(3 * AWAY_S)
        assert hub.inbox.reserved.reserved_claim_id(open_requests(hub)[0]) is not None
        waiting.cancel()


async def test_a_task_outlives_its_session(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE)
        task_id = await made(host)
        await until(lambda: open_requests(hub))
        host.session.end()
        await settle(100)
        later = host_at(hub, Era.HANDSHAKE, answering(GIVEN))
        assert (await result(later, "tasks/result", taskId=task_id))["content"] == DONE
        assert got == [GIVEN]


async def test_a_task_is_never_older_than_it_was(world: World) -> None:
    async def asks_and_works(sent: Sent) -> Outcome:
        await asyncio.sleep(100)
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(100)
        return {"content": DONE}

    world.peer.behaviour = asks_and_works
    async with connected(world, server(call_timeout_s=1000)) as hub:
        host = host_at(hub, policy=QuestionPolicy(form="inbox"))
        task_id = await made(host)
        seen = [await result(host, "tasks/get", taskId=task_id)]
        await settle(105)
        seen.append(await result(host, "tasks/get", taskId=task_id))
        await settle(10)
        await hub.inbox.answer(open_requests(hub)[0].id, Accept({"name": "y"}), "a", answer_id=None, claim_id=None)
        await settle()
        seen.append(await result(host, "tasks/get", taskId=task_id))
        await result(host, "tasks/result", taskId=task_id)
        seen.append(await result(host, "tasks/get", taskId=task_id))
        times = [task["lastUpdatedAt"] for task in seen]
        assert times == sorted(set(times))


@pytest.mark.parametrize(("tool", "asked"), [("may", True), ("must", True), ("not", False), ("silent", False)])
async def test_a_server_carries_out_as_tasks_what_it_says_it_can(world: World, tool: str, asked: bool) -> None:
    tasks = TaskServer(world)
    async with connected(world) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        task_id = await made(host_at(hub), tool)
        await until(lambda: world.peer.sent)
        assert ("task" in world.peer.sent[0].params) is asked
        tasks.end()
        await until(lambda: hub.calls.get(task_id).state is CallState.COMPLETED)


# How tasks end


async def test_a_tools_error_fails_its_task_and_is_the_result(world: World) -> None:
    world.peer.behaviour = gives({"content": DONE, "isError": True, "_meta": {"a": 1}})
    async with connected(world) as hub:
        host = host_at(hub)
        task_id = await made(host)
        ended = await result(host, "tasks/result", taskId=task_id)
        assert (ended["isError"], ended["_meta"]) == (True, {"a": 1, RELATED_TASK: {"taskId": task_id}})
        assert (await result(host, "tasks/get", taskId=task_id))["status"] == "failed"


async def test_a_servers_error_is_the_error_of_the_result(world: World) -> None:
    world.peer.behaviour = gives(PeerError(-32077, "it broke", {"part": 7}))
    async with connected(world) as hub:
        host = host_at(hub)
        task_id = await made(host)
        response = await host.call("tasks/result", taskId=task_id)
        assert response["error"] == {"code": -32077, "message": "it broke", "data": {"part": 7}}
        task = await result(host, "tasks/get", taskId=task_id)
        assert (task["status"], bool(task["statusMessage"])) == ("failed", True)


async def test_a_cancelled_task_is_cancelled_once_and_has_no_result(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub)
        task_id = await made(host)
        await until(lambda: open_requests(hub))
        waiting = asyncio.create_task(host.call("tasks/result", taskId=task_id))
        await settle()
        assert (await result(host, "tasks/cancel", taskId=task_id))["status"] == "cancelled"
        assert (await waiting)["error"]["code"] == -32800
        assert (await host.call("tasks/cancel", taskId=task_id))["error"]["code"] == -32602
        await until(lambda: world.peer.sent[0].cancelled)
        assert "cancelled" in [told["params"]["status"] for told in _own(host)]


def _own(host: ScriptedHost) -> list[dict[str, Any]]:
    return [payload.loads(message) for message in host.session.outlet.take_all()]


async def test_a_task_at_work_is_cancelled_at_its_server(world: World) -> None:
    world.peer.behaviour = gives({}, after_s=10000)
    async with connected(world) as hub:
        host = host_at(hub)
        task_id = await made(host)
        await until(lambda: world.peer.sent)
        assert (await result(host, "tasks/cancel", taskId=task_id))["status"] == "cancelled"
        await until(lambda: world.peer.sent[0].cancelled)


# Lists


async def test_the_tasks_of_a_host_are_listed_in_pages(world: World) -> None:
    async with connected(world) as hub:
        host = host_at(hub)
        ids = [await made(host) for _ in range(PAGE_TASKS + 1)]
        await hub.calls.start(spec(call_id="ordinary"), ME)
        first = await result(host, "tasks/list")
        second = await result(host, "tasks/list", cursor=first["nextCursor"])
        assert (len(first["tasks"]), len(second["tasks"]), "nextCursor" in second) == (PAGE_TASKS, 1, False)
        assert sorted(task["taskId"] for page in (first, second) for task in page["tasks"]) == sorted(ids)


async def test_a_page_begins_after_the_last_one_whatever_has_come_meanwhile(world: World) -> None:
    async with connected(world) as hub:
        host = host_at(hub)
        ids = [await made(host) for _ in range(PAGE_TASKS + 2)]
        first = await result(host, "tasks/list")
        await settle()
        ids.append(await made(host))
        second = await result(host, "tasks/list", cursor=first["nextCursor"])
        listed = [task["taskId"] for page in (first, second) for task in page["tasks"]]
        assert (sorted(listed), len(listed), "nextCursor" in second) == (sorted(ids), PAGE_TASKS + 3, False)


async def test_a_call_that_became_no_task_is_not_listed(world: World) -> None:
    async with connected(world) as hub:
        assert "taskId" not in await called(host_with_tasks(hub), "tools/call", name="t")
        assert (await result(host_at(hub), "tasks/list")) == {"tasks": []}


@pytest.mark.parametrize("cursor", ["x", 7, "", "MQ=="])
async def test_a_cursor_of_another_list_is_refused(world: World, cursor: object) -> None:
    async with connected(world) as hub:
        assert (await host_at(hub).call("tasks/list", cursor=cursor))["error"]["code"] == -32602


# Access


@pytest.mark.parametrize("method", METHODS)
async def test_tasks_of_others_do_not_exist(world: World, method: str) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub)
        task_id = await made(host)
        ordinary = await hub.calls.start(spec(call_id="ordinary"), ME)
        errors = [
            (await who.call(method, taskId=named))["error"]
            for who, named in (
                (host_at(hub, name="somebody else"), task_id),
                (host_at(hub, view="p/another"), task_id),
                (host, ordinary.id),
                (host, "unknown"),
            )
        ]
        assert {(error["code"], error["message"]) for error in errors} == {(-32602, errors[0]["message"])}
        assert (await result(host_at(hub, name="somebody else"), "tasks/list")) == {"tasks": []}
        assert not hub.calls.get(task_id).state.ended


@pytest.mark.parametrize("task", [None, 7, "x", []])
async def test_a_task_that_is_no_object_is_refused(world: World, task: object) -> None:
    async with connected(world) as hub:
        assert (await host_at(hub).call("tools/call", name="t", task=task))["error"]["code"] == -32602
        assert hub.calls.select(CallFilter()) == []


# Revisions


async def test_a_host_of_an_older_revision_gets_no_task(world: World) -> None:
    async with connected(world) as hub:
        host = host_at(hub)
        host.host.revision = "2025-06-18"
        response = await result(host, "tools/call", name="t", task={"ttl": 1})
        assert response["echo"] == {"name": "t"}
        assert "tasks" not in (await result(host, "initialize", protocolVersion="2025-06-18"))["capabilities"]


@ERAS
async def test_endpoints_declare_tasks_whatever_their_server_has(world: World, era: Era) -> None:
    TaskServer(world, era)
    async with connected(world) as hub:
        capabilities = (await result(host_at(hub), "initialize", protocolVersion="2025-11-25"))["capabilities"]
        assert capabilities["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


async def test_a_task_of_the_extension_is_unknown_to_earlier_methods(world: World) -> None:
    async with connected(world) as hub:
        assert (await host_at(hub).call("tasks/update", taskId="x"))["error"]["code"] == -32601
