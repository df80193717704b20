"""Whose the tasks of the tasks extension are, what endpoints declare of it, and who is notified of them."""

import asyncio
from typing import Any

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.runtime.calls import CallSpec
from hubbubd.upstream.ports import Era

from ..runtime.conftest import SAMPLING, World, open_requests, settle, spec, until
from ..runtime.task_server import TaskServer
from .followed_tasks import ASKED, DECLARED, DONE, EXTENSION, GIVEN, answered, host_with_tasks, made, result
from .scripted import ABLE, ME, asks, connected, host_at
from .test_tickets import host_of

# Access


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_host_that_does_not_declare_the_extension_has_no_tasks(world: World, method: str) -> None:
    TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        task_id = await made(host_with_tasks(hub))
        error = (await host_at(hub, Era.STATELESS).send(method, {"taskId": task_id, "inputResponses": {}}))["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_of_others_do_not_exist(world: World, method: str) -> None:
    TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        ordinary = await hub.calls.start(spec(call_id="ordinary"), ME)
        somebody_else = host_with_tasks(hub, name="somebody else")
        errors = [
            (await who.send(method, {"taskId": named, "inputResponses": {}}))["error"]
            for who, named in (
                (somebody_else, task_id),
                (host, ordinary.id),
                (host, "unknown"),
                (host, task_id[:-1]),
                (host, ""),
            )
        ]
        assert {(error["code"], error["message"]) for error in errors} == {(-32602, errors[0]["message"])}
        assert hub.calls.get(task_id).state is CallState.IN_PROGRESS


@pytest.mark.parametrize("named", [7, None, ["x"], "x" * 1000])
async def test_an_id_that_can_be_none_is_refused(world: World, named: object) -> None:
    async with connected(world) as hub:
        assert (await host_with_tasks(hub).send("tasks/get", {"taskId": named}))["error"]["code"] == -32602


async def test_a_task_is_of_the_endpoint_where_it_was_made(world: World) -> None:
    TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        task_id = await made(host_with_tasks(hub))
        elsewhere = host_with_tasks(hub, view="p/another")
        assert (await elsewhere.send("tasks/get", {"taskId": task_id}))["error"]["code"] == -32602


async def test_endpoints_declare_the_extension_and_nothing_of_earlier_revisions(world: World) -> None:
    TaskServer(world, Era.HANDSHAKE)
    async with connected(world) as hub:
        capabilities = (await result(host_with_tasks(hub), "server/discover"))["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        assert "tasks" not in capabilities


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_methods_that_the_extension_does_not_have_are_unknown(world: World, method: str) -> None:
    async with connected(world) as hub:
        assert (await host_with_tasks(hub).send(method, {"taskId": "x"}))["error"]["code"] == -32601


@pytest.mark.parametrize("tool", ["hubbub_result", "hubbub_search_tools"])
async def test_a_tool_of_the_hub_is_never_a_task(world: World, tool: str) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        call_id = (await hub.calls.start(CallSpec(server="one", method="tools/call", call_id="c"), ME)).id
        params: dict[str, Any] = {"name": tool, "arguments": {"call_id": call_id, "query": "x"}}
        old = host_of(hub, tools="search")
        assert (await old.call(**params, task={}))["error"]["code"] == -32601
        new = host_of(hub, Era.STATELESS, capabilities=DECLARED, tools="search", hold_s=1)
        assert (await new.send("tools/call", params))["result"]["resultType"] in ("complete", "input_required")


# Notifications


async def test_a_host_that_listens_is_told_of_its_tasks(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        wanted = {"notifications": {"taskIds": [task_id, "unknown", task_id]}}
        listening = asyncio.create_task(host.send("subscriptions/listen", wanted))
        await until(lambda: len(host.told) == 2)
        (first, acknowledged), (second, asking) = host.told
        assert (first, acknowledged["notifications"]) == (
            "notifications/subscriptions/acknowledged",
            {"taskIds": [task_id]},
        )
        assert (second, asking["status"], len(asking["inputRequests"])) == ("notifications/tasks", "input_required", 1)
        await answered(host, task_id)
        await until(lambda: host.told[-1][1]["status"] == "completed")
        assert host.told[-1][1]["result"]["content"] == DONE
        assert host.told[-1][1]["_meta"] == acknowledged["_meta"]
        assert got == [GIVEN]
        listening.cancel()


async def test_a_host_that_listens_keeps_its_questions(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    asked = {"method": "sampling/createMessage", "params": SAMPLING}
    async with connected(world) as hub:
        host = host_with_tasks(hub)
        task_id = await made(host)
        listening = asyncio.create_task(host.send("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}))
        await settle(100)
        tasks.status, tasks.more = "input_required", {"inputRequests": {"a": asked}}
        await until(lambda: open_requests(hub))
        assert hub.inbox.reserved.reserved_claim_id(open_requests(hub)[0]) is not None
        listening.cancel()


@pytest.mark.parametrize("capabilities", [ABLE, DECLARED])
async def test_tasks_of_others_and_without_the_extension_are_not_told_of(
    world: World, capabilities: dict[str, Any]
) -> None:
    TaskServer(world, Era.STATELESS)
    async with connected(world) as hub:
        task_id = await made(host_with_tasks(hub))
        somebody = host_with_tasks(hub, capabilities, name=ME if capabilities is ABLE else "somebody else")
        listening = asyncio.create_task(
            somebody.send("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        )
        await until(lambda: somebody.told)
        await settle()
        assert [params["notifications"] for _, params in somebody.told] == [{}]
        listening.cancel()


@pytest.mark.parametrize("ids", ["x", [7], {}, ["x"] * 1001])
async def test_a_list_of_tasks_that_is_none_is_refused(world: World, ids: object) -> None:
    async with connected(world) as hub:
        response = await host_with_tasks(hub).send("subscriptions/listen", {"notifications": {"taskIds": ids}})
        assert response["error"]["code"] == -32602
