"""Client tasks that fail: their calls do, too, with the words of the server."""

from typing import Any

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.tasks import TaskStatus
from hubbubd.errors import FailedPrecondition, PeerError
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import World, server, settle
from .peer import Outcome
from .task_server import RESULT, TaskServer, ended, started, the_task

FAILURES = pytest.mark.parametrize(
    ("more", "result", "code", "message"),
    [
        ({"statusMessage": "disk gone"}, {}, "TASK_FAILED", "disk gone"),
        ({"statusMessage": "disk gone"}, RESULT, "TASK_FAILED", "disk gone"),
        ({}, {"content": [{"type": "text", "text": "no room"}]}, "TASK_FAILED", "no room"),
        ({}, {}, "TASK_FAILED", "one says that the task failed, and not why"),
        ({"statusMessage": "it failed"}, PeerError(-32000, "no luck", {"why": 1}), "SERVER_ERROR", "no luck"),
    ],
    ids=["no result", "a result that looks well", "text only", "nothing said", "an error"],
)


@pytest.mark.parametrize("before", ["created", "working", "input_required"])
@FAILURES
async def test_a_task_that_failed_is_a_failed_call_with_the_words_of_its_server(
    world: World, before: str, more: dict[str, Any], result: Outcome | PeerError, code: str, message: str
) -> None:
    tasks = TaskServer(world)
    tasks.result = result
    tasks.status = "working" if before == "created" else before
    if before == "created":
        tasks.end("failed", **more)
    async with world.hub(server()) as hub:
        call = await started(hub)
        await settle(3)
        tasks.end("failed", **more)
        done = await ended(hub, call)
        assert done.state is CallState.FAILED
        assert (done.fault.code, done.fault.message) == (code, message)
        assert done.fault.details.get("jsonrpc_data") == getattr(result, "data", None)
        assert the_task(hub).status is TaskStatus.FAILED
        with raising(FailedPrecondition, "TASK_FAILED"):
            hub.tasks.result("T")


async def test_a_failed_task_whose_result_says_that_it_is_an_error_ends_its_call_with_it(world: World) -> None:
    tasks = TaskServer(world)
    tasks.result = {"content": [], "isError": True}
    async with world.hub(server()) as hub:
        call = await started(hub)
        tasks.end("failed", statusMessage="disk gone")
        done = await ended(hub, call)
        assert done.state is CallState.COMPLETED
        assert done.result == hub.tasks.result("T")


async def test_a_failed_task_of_the_extension_fails_its_call_with_its_error(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    async with world.hub(server()) as hub:
        call = await started(hub)
        tasks.end("failed", error={"code": -32000, "message": "disk gone"})
        done = await ended(hub, call)
        assert done.fault.message == "disk gone"
