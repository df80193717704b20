"""Calls that their server carries out as tasks, in virtual time."""

from itertools import pairwise

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import TaskFilter
from hubbubd.core.inbox.request_states import CauseSource, Delivery
from hubbubd.core.tasks import TaskStatus
from hubbubd.errors import FailedPrecondition, PeerError, UpstreamError
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, World, open_requests, question, server, settle, spec, until
from .peer import REFUSED, Outcome, never
from .task_server import ERAS, META, RESULT, TaskServer, answer, ended, started, the_task

ELICIT = {"method": "elicitation/create", "params": FORM}


@ERAS
async def test_a_task_is_asked_for_its_status_as_often_as_its_server_says(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    tasks.interval_ms = 7000
    async with world.hub(server()) as hub:
        call = await started(hub)
        assert hub.calls.get(call.id).state is CallState.IN_PROGRESS
        await anyio.sleep(30)
        polls = tasks.asked("tasks/get")
        assert [round(b - a) for a, b in pairwise(polls)] == [7, 7, 7, 7]
        tasks.end(result=RESULT)
        done = await ended(hub, call)
        assert done.state is CallState.COMPLETED
        assert done.result == hub.tasks.result("T")
        assert the_task(hub).call_id == call.id


@ERAS
async def test_a_notification_only_hastens_the_next_poll(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    tasks.interval_ms = 20_000
    async with world.hub(server()) as hub:
        await started(hub)
        await anyio.sleep(5)
        before = len(tasks.asked("tasks/get"))
        method = "notifications/tasks" if era is Era.STATELESS else "notifications/tasks/status"
        for task_id in ("T", "T", "another"):
            world.peer.link.tell(method, {"taskId": task_id, "status": "completed"})
        await anyio.sleep(5)
        assert len(tasks.asked("tasks/get")) == before + 1
        assert the_task(hub).status is TaskStatus.WORKING


@pytest.mark.parametrize(("tool", "as_task", "reason"), [
    ("must", False, "TASK_REQUIRED"),
    ("not", True, "TASK_NOT_SUPPORTED"),
    ("silent", True, "TASK_NOT_SUPPORTED"),
    ("unlisted", True, "TASK_NOT_SUPPORTED"),
])  # fmt: skip
@pytest.mark.parametrize("fetched", [True, False])
async def test_what_a_tool_says_of_tasks_is_honoured(
    world: World, tool: str, as_task: bool, reason: str, fetched: bool
) -> None:
    TaskServer(world)
    if not fetched:
        world.peer.plan.append(5.0)
    async with world.hub(server()) as hub:
        if fetched:
            await until(lambda: hub.catalog.entries("one/tool"))
        if fetched and tool != "unlisted":
            with raising(FailedPrecondition, reason):
                await hub.calls.start(spec(tool, as_task=as_task), "me")
        else:
            done = await ended(hub, await hub.calls.start(spec(tool, as_task=as_task), "me"))
            assert done.fault.code == reason
        assert not [sent for sent in world.peer.sent if sent.method == "tools/call"]


@ERAS
async def test_a_server_without_tasks_is_not_asked_for_one(world: World, era: Era) -> None:
    world.peer.era = era
    async with world.linked() as hub:
        with raising(FailedPrecondition, "TASK_NOT_SUPPORTED"):
            await hub.calls.start(spec(as_task=True), "me")


async def test_only_tools_can_be_tasks(world: World) -> None:
    TaskServer(world)
    async with world.linked() as hub:
        with raising(FailedPrecondition, "TASK_NOT_SUPPORTED"):
            await hub.calls.start(spec(method="prompts/get", as_task=True), "me")


async def test_the_ttl_asked_for_covers_the_call_and_people(world: World) -> None:
    TaskServer(world)
    async with world.hub(server(answer_timeout_s=100)) as hub:
        await started(hub, max_s=20.0)
        (sent,) = [sent for sent in world.peer.sent if sent.method == "tools/call"]
        assert sent.params == {"name": "may", "task": {"ttl": 120_000}}


@ERAS
async def test_a_task_that_takes_too_long_in_all_is_cancelled_at_its_server(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    async with world.hub(server(call_timeout_s=5, call_max_s=30)) as hub:
        call = await started(hub)
        done = await ended(hub, call)
        assert done.fault.code == "CALL_MAX_EXCEEDED"
        assert tasks.asked("tasks/cancel")
        await settle()
        assert the_task(hub).status is TaskStatus.CANCELLED


async def test_a_question_of_a_task_belongs_to_it_and_the_answer_says_so(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server(call_max_s=30)) as hub:
        call = await started(hub)
        tasks.status = "input_required"
        await until(lambda: tasks.asked("tasks/result"))
        asked = world.peer.link.ask("elicitation/create", {**FORM, **META})
        request = await question(hub)
        assert (request.task_id, request.call_id, request.cause_source) == ("T", call.id, CauseSource.WIRE)
        assert the_task(hub).pending_ids == (request.id,)
        assert hub.calls.get(call.id).state is CallState.WAITING_INPUT
        await anyio.sleep(200)  # people's time is not the task's
        await answer(hub, request)
        assert await asked.answered() == {"action": "accept", "content": {"name": "Ada"}, **META}
        assert hub.calls.get(call.id).state is CallState.IN_PROGRESS
        tasks.end()
        assert (await ended(hub, call)).state is CallState.COMPLETED
        assert len(tasks.asked("tasks/result")) == 1
        assert hub.inbox.get(request.id).delivery is Delivery.DELIVERED


@ERAS
async def test_a_task_that_its_server_cancels_cancels_the_call(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    async with world.hub(server()) as hub:
        call = await started(hub)
        tasks.end("cancelled")
        done = await ended(hub, call)
        assert done.state is CallState.CANCELLED
        assert done.fault.code == "TASK_CANCELLED"


@ERAS
async def test_a_task_that_its_server_has_forgotten_is_lost(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    async with world.hub(server()) as hub:
        call = await started(hub)
        tasks.lost = True
        done = await ended(hub, call)
        assert done.fault.code == "TASK_LOST"
        assert the_task(hub).status is TaskStatus.FAILED


async def test_a_cancellation_that_comes_too_late_reads_what_became_of_the_task(world: World) -> None:
    tasks = TaskServer(world)
    tasks.interval_ms = 30_000
    async with world.hub(server()) as hub:
        call = await started(hub)
        await settle(1)
        tasks.end()
        tasks.cancelling = PeerError(-32602, "it has ended")
        with raising(FailedPrecondition, "TASK_FINISHED"):
            await hub.tasks.cancel("T")
        assert (await ended(hub, call)).state is CallState.COMPLETED


async def test_a_task_is_durable_before_anything_follows_from_it(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server()) as hub:
        call = await started(hub)
        together = {"task/T", f"call/{call.id}"}
        assert any(together <= {write.key for write in commit} for commit in world.store.commits)
        assert not tasks.asked("tasks/get")[:-1]
        tasks.end()
        await ended(hub, call)


async def test_a_call_whose_task_the_store_does_not_take_fails_and_the_server_is_told(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server()) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))

        async def creating() -> Outcome:
            world.store.failures = 1
            return {"task": tasks.wire()}

        tasks.creating = creating
        call = await hub.calls.start(spec("may", as_task=True), "me")
        done = await ended(hub, call)
        assert done.fault.code == "STORE_UNAVAILABLE"
        assert tasks.asked("tasks/cancel")


async def test_equal_ids_of_two_servers_are_two_tasks(world: World) -> None:
    TaskServer(world)
    two = TaskServer(World(world.store, world.peers))
    world.peers["two"].behaviour, world.peers["two"].listing = two.serve, two.listing
    world.peers["two"].capabilities = two.peer.capabilities
    async with world.hub(server(), server("two")) as hub:
        await until(lambda: hub.catalog.entries("one/tool") and hub.catalog.entries("two/tool"))
        calls = [await hub.calls.start(spec("may", as_task=True, server=name), "me") for name in ("one", "two")]
        await until(lambda: all(hub.calls.get(call.id).task_id for call in calls))
        first, second = (hub.calls.get(call.id).task_id for call in calls)
        assert first != second
        assert {hub.tasks.get(i or "").server for i in (first, second)} == {"one", "two"}
        world.peers["two"].link.ask("elicitation/create", {**FORM, **META})
        assert (await question(hub)).task_id == second


async def test_a_task_is_forgotten_with_its_call(world: World) -> None:
    tasks = TaskServer(world)
    world.settings["call_history_count"] = 1
    async with world.hub(server()) as hub:
        call = await started(hub)
        tasks.end()
        await ended(hub, call)
        for _ in range(3):
            await hub.calls.call(spec("silent"), "me")
        await until(lambda: not hub.tasks.select(TaskFilter()))


async def test_a_status_that_never_comes_is_asked_for_again(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server(call_timeout_s=5, call_max_s=100)) as hub:
        call = await started(hub)
        serve, world.peer.behaviour = world.peer.behaviour, never
        await anyio.sleep(20)
        world.peer.behaviour = serve
        tasks.end()
        assert (await ended(hub, call)).state is CallState.COMPLETED


async def test_the_task_of_a_creation_that_timed_out_is_found_and_cancelled(world: World) -> None:
    tasks = TaskServer(world)
    tasks.creating = anyio.sleep_forever
    async with world.hub(server(call_timeout_s=5)) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        done = await hub.calls.call(spec("may", as_task=True), "me")
        assert done.fault.code == "CALL_TIMEOUT"
        await until(lambda: tasks.status == "cancelled")


@ERAS
async def test_a_call_that_ends_before_the_next_hub_has_found_its_server_ends_its_task_and_its_questions(
    world: World, era: Era
) -> None:
    tasks = TaskServer(world, era)
    async with world.hub(server()) as hub:
        call = await started(hub)
        if tasks.stateless:
            tasks.status, tasks.more = "input_required", {"inputRequests": {"k": ELICIT}}
            await question(hub)
    world.peer.always = UpstreamError(REFUSED)
    async with world.hub(server()) as hub:
        await hub.calls.cancel(call.id, abort=True)
        await settle()
        assert the_task(hub).status is TaskStatus.CANCELLED
        assert not open_requests(hub)


async def test_a_task_of_somebody_else_at_a_shared_server_is_left_alone(world: World) -> None:
    tasks = TaskServer(world)
    tasks.creating = anyio.sleep_forever
    async with world.hub(server(call_timeout_s=5, command=None, url="http://127.0.0.1:9/mcp")) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        await hub.calls.call(spec("may", as_task=True), "me")
        await settle(60)
        assert tasks.status == "working"


async def test_the_search_for_a_task_leaves_those_of_other_calls_alone(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server(max_in_flight=2)) as hub:
        await started(hub)
        tasks.creating = anyio.sleep_forever
        await hub.calls.call(spec("may", as_task=True, timeout_s=5.0), "me")
        await settle(10)
        assert tasks.asked("tasks/list")
        assert tasks.status == "working"


async def test_while_another_call_creates_its_task_the_search_cancels_none(world: World) -> None:
    tasks = TaskServer(world)
    tasks.creating = anyio.sleep_forever
    async with world.hub(server(max_in_flight=2)) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        await hub.calls.start(spec("may", as_task=True, timeout_s=50.0), "me")
        await hub.calls.call(spec("may", as_task=True, timeout_s=5.0), "me")
        await settle(10)
        assert tasks.asked("tasks/list")
        assert tasks.status == "working"


async def test_an_id_that_a_server_uses_twice_confuses_nobody_else(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server()) as hub:
        calls = [await started(hub), await started(hub)]
        assert len({hub.calls.get(call.id).task_id for call in calls}) == 2
        tasks.end()
        assert [(await ended(hub, call)).state for call in calls] == [CallState.COMPLETED] * 2
