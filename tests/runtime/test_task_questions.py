"""Questions of tasks that servers hold, and tasks that outlive a connection or the hub, in virtual time."""

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.forms import Reject
from hubbubd.core.inbox.request_states import CauseSource, Delivery, RequestState
from hubbubd.core.tasks import TaskStatus
from hubbubd.upstream.ports import Era

from .conftest import FORM, SAMPLING, World, open_requests, question, server, settle, until
from .task_server import ERAS, META, RESULT, TaskServer, answer, ended, started, the_task


async def test_each_question_of_an_extension_task_is_asked_and_answered_once(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    tasks.status = "input_required"
    asks = {"method": "elicitation/create", "params": FORM}
    tasks.more = {"inputRequests": {"a": asks, "b": asks, "where": {"method": "roots/list"}}}
    async with world.hub(server(roots=[{"uri": "file:///here"}], call_max_s=30)) as hub:
        call = await started(hub)
        await until(lambda: len(open_requests(hub)) == 2)
        await settle(60)
        a, b = open_requests(hub)
        assert (a.task_id, a.call_id, a.cause_source) == ("T", call.id, CauseSource.WIRE)
        assert hub.calls.get(call.id).state is CallState.WAITING_INPUT
        await answer(hub, b)
        await answer(hub, a)
        await settle(10)
        assert sorted(key for update in tasks.updates for key in update) == ["a", "b", "where"]
        assert {"where": {"roots": [{"uri": "file:///here"}]}} in tasks.updates
        assert {hub.inbox.get(r.id).delivery for r in (a, b)} == {Delivery.DELIVERED}
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED


async def test_an_answer_waits_for_the_next_connection(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    tasks.status = "input_required"
    tasks.more = {"inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}}
    async with world.hub(server(backoff_s=(20.0,))) as hub:
        await started(hub)
        request = await question(hub)
        world.peer.link.lose()
        await answer(hub, request)
        assert hub.inbox.get(request.id).delivery is Delivery.PENDING
        await until(lambda: tasks.updates)
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.DELIVERED)


async def test_a_refused_sampling_cancels_the_task(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    tasks.status = "input_required"
    tasks.more = {"inputRequests": {"a": {"method": "sampling/createMessage", "params": SAMPLING}}}
    async with world.hub(server()) as hub:
        call = await started(hub)
        await answer(hub, await question(hub), Reject("no"))
        done = await ended(hub, call)
        assert done.fault.code == "INPUT_REFUSED"
        assert tasks.asked("tasks/cancel")
        assert not tasks.updates


async def test_a_question_that_is_none_ends_the_task(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    tasks.status = "input_required"
    tasks.more = {"inputRequests": {"a": {"method": "tools/list"}}}
    async with world.hub(server()) as hub:
        done = await ended(hub, await started(hub))
        assert done.fault.code == "INVALID_RESPONSE"
        assert tasks.asked("tasks/cancel")


async def test_an_eventual_cancellation_may_come_to_nothing(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    async with world.hub(server()) as hub:
        call = await started(hub)
        assert (await hub.tasks.cancel("T")).status is TaskStatus.WORKING
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED


@ERAS
async def test_a_question_does_not_outlive_its_task(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    tasks.status = "input_required"
    tasks.more = {"inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}}
    async with world.hub(server()) as hub:
        call = await started(hub)
        if not tasks.stateless:
            world.peer.link.ask("elicitation/create", {**FORM, **META})
        request = await question(hub)
        tasks.end("cancelled")
        assert (await ended(hub, call)).state is CallState.CANCELLED
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)


@ERAS
async def test_a_task_is_found_again_over_the_next_connection(world: World, era: Era) -> None:
    tasks = TaskServer(world, era)
    async with world.hub(server()) as hub:
        call = await started(hub)
        world.peer.link.lose()
        await until(lambda: len(world.peer.links) == 2)
        assert hub.calls.get(call.id).state is CallState.IN_PROGRESS
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED
        assert len(tasks.asked("tools/call")) == 1


@ERAS
@pytest.mark.parametrize("asked", [True, False])
async def test_a_task_is_found_again_by_the_next_hub(world: World, era: Era, asked: bool) -> None:
    tasks = TaskServer(world, era)
    if asked:
        tasks.status = "input_required"
        tasks.more = {"inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}}
    async with world.hub(server()) as hub:
        call = await started(hub)
        await settle(5)
        before = [request.id for request in open_requests(hub)]
        assert len(before) == (1 if asked and tasks.stateless else 0)
    async with world.hub(server()) as hub:
        await until(lambda: len(world.peer.links) == 2)
        await settle(5)
        assert [request.id for request in open_requests(hub)] == before
        if before:
            await answer(hub, hub.inbox.get(before[0]))
            await until(lambda: tasks.updates)
            await settle(5)
            assert tasks.updates == [{"a": {"action": "accept", "content": {"name": "Ada"}}}]
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED
        assert len(tasks.asked("tools/call")) == 1
        assert not tasks.asked("tasks/cancel")


async def test_a_question_goes_with_the_server_that_the_next_hub_does_not_have(world: World) -> None:
    tasks = TaskServer(world, Era.STATELESS)
    tasks.status = "input_required"
    tasks.more = {"inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}}
    async with world.hub(server()) as hub:
        call = await started(hub)
        request = await question(hub)
    async with world.hub() as hub:
        assert (await ended(hub, call)).state is CallState.FAILED
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)
        assert the_task(hub).status is TaskStatus.CANCELLED
