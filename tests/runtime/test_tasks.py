"""Receiver tasks, by MCP 2025-11-25 basic/utilities/tasks: what a server asks as a task and fetches later."""

import asyncio
from typing import Any

import anyio
import pytest

from hubbubd.core.inbox.forms import Accept, Decline, Reject
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.core.tasks import RELATED_TASK
from hubbubd.errors import FailedPrecondition, NotFound
from hubbubd.runtime.hub import Hub
from hubbubd.store import Write
from hubbubd.upstream.ports import ReplyError

from ..raising import raising
from .conftest import FORM, SAMPLING, World, open_requests, question, server, settle, spec, until
from .peer import Outcome, Question, Sent

YES = Accept({"name": "x"})


async def linked(world: World) -> None:
    await until(lambda: world.peer.links)


async def create(world: World, method: str = "elicitation/create", params: dict[str, Any] = FORM, **task: Any) -> str:
    """Has the server ask as a task; returns the task's id."""
    await linked(world)
    created = await world.peer.link.asked(method, {**params, "task": task})
    return created["task"]["taskId"]


async def get(world: World, task_id: str, server_name: str = "one") -> Outcome:
    return await world.peers[server_name].link.asked("tasks/get", {"taskId": task_id})


def fetch(world: World, task_id: str) -> Question:
    """The server begins to wait for the result."""
    return world.peer.link.ask("tasks/result", {"taskId": task_id})


async def refused(asked: Any) -> ReplyError:
    with pytest.raises(ReplyError) as error:
        await asked
    return error.value


async def reply(hub: Hub, given: Any = YES) -> str:
    """Answers the one open question; returns its id."""
    request = await question(hub)
    await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)
    return request.id


async def test_a_task_is_created_at_once_and_stored_before_the_server_hears_of_it(world: World) -> None:
    async with world.hub(server()) as hub:
        await linked(world)
        await settle()
        world.store.delay_s = 2
        asked_at = anyio.current_time()
        created = await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 600_000}})
        assert anyio.current_time() - asked_at == pytest.approx(2, abs=0.1)
        task = created["task"]
        assert task["status"] == "working"
        assert task["ttl"] == 600_000
        assert task["createdAt"].endswith("Z")
        assert task["pollInterval"] > 0
        assert len(task["taskId"]) >= 32
        assert any(write.key == f"task/{task['taskId']}" for commit in world.store.commits for write in commit)
        request = await question(hub)
        assert request.task_id == task["taskId"]


async def test_tasks_get_is_the_flat_task_without_related_meta(world: World) -> None:
    async with world.hub(server()):
        task_id = await create(world)
        task = await get(world, task_id)
        assert task["taskId"] == task_id
        assert "_meta" not in task
        assert "ttl" in task


async def test_a_task_stays_working_while_a_person_is_asked_and_the_result_blocks_until_the_answer(
    world: World,
) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        waiting = fetch(world, task_id)
        for _ in range(4):
            await anyio.sleep(30)
            assert (await get(world, task_id))["status"] == "working"
            assert not waiting.done.is_set()
        request_id = await reply(hub)
        result = await waiting.answered()
        assert result["action"] == "accept"
        assert result["content"] == {"name": "x"}
        assert result["_meta"][RELATED_TASK] == {"taskId": task_id}
        assert (await get(world, task_id))["status"] == "completed"
        await until(lambda: hub.inbox.get(request_id).delivery is Delivery.DELIVERED)
        assert (await fetch(world, task_id).answered())["action"] == "accept"


async def test_giving_up_the_wait_for_a_result_leaves_the_task_alone(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        waiting = fetch(world, task_id)
        await settle()
        waiting.withdraw()
        await settle()
        assert (await get(world, task_id))["status"] == "working"
        await reply(hub)
        assert (await fetch(world, task_id).answered())["action"] == "accept"


async def test_a_declined_elicitation_completes_its_task(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        await reply(hub, Decline())
        assert (await get(world, task_id))["status"] == "completed"
        assert (await fetch(world, task_id).answered())["action"] == "decline"
        assert hub.tasks.result(task_id) == b'{"action":"decline"}'


async def test_a_refused_sampling_fails_its_task_and_the_result_is_the_same_error(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world, "sampling/createMessage", SAMPLING)
        await reply(hub, Reject("not today"))
        task = await get(world, task_id)
        assert (task["status"], task["statusMessage"]) == ("failed", "not today")
        error = await refused(fetch(world, task_id).answered())
        assert (error.code, str(error)) == (-1, "not today")
        with raising(FailedPrecondition, "TASK_FAILED"):
            hub.tasks.result(task_id)


async def test_cancelling_takes_the_question_back_and_a_blocked_result_is_answered(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        request = await question(hub)
        waiting = fetch(world, task_id)
        await settle()
        cancelled = await world.peer.link.asked("tasks/cancel", {"taskId": task_id})
        assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
        assert "_meta" not in cancelled
        assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN
        assert (await refused(waiting.answered())).code == -32800
        assert (await refused(fetch(world, task_id).answered())).code == -32800
        assert (await get(world, task_id))["status"] == "cancelled"


async def test_a_task_that_has_ended_cannot_be_cancelled(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        await reply(hub)
        error = await refused(world.peer.link.asked("tasks/cancel", {"taskId": task_id}))
        assert error.code == -32602
        assert (await get(world, task_id))["status"] == "completed"
        with raising(FailedPrecondition, "TASK_FINISHED"):
            await hub.tasks.cancel(task_id)


@pytest.mark.parametrize(("answer_after_s", "cancel_after_s"), [(0.0, 0.05), (0.05, 0.0)])
async def test_of_an_answer_and_a_cancellation_at_once_one_holds(
    world: World, answer_after_s: float, cancel_after_s: float
) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        request = await question(hub)
        world.store.delay_s = 0.1

        async def answer() -> None:
            await anyio.sleep(answer_after_s)
            await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)

        async def cancel() -> None:
            await anyio.sleep(cancel_after_s)
            await hub.tasks.cancel(task_id)

        outcomes = await asyncio.gather(answer(), cancel(), return_exceptions=True)
        (loser,) = [outcome for outcome in outcomes if outcome is not None]
        assert isinstance(loser, FailedPrecondition)
        if answer_after_s < cancel_after_s:
            assert (hub.tasks.get(task_id).status, loser.reason) == ("completed", "TASK_FINISHED")
        else:
            assert (hub.tasks.get(task_id).status, loser.reason) == ("cancelled", "REQUEST_WITHDRAWN")
            assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize("params", [{"taskId": "nope"}, {}, {"taskId": 7}])
async def test_an_unknown_task_is_an_invalid_parameter(world: World, method: str, params: dict[str, Any]) -> None:
    async with world.hub(server()):
        await linked(world)
        assert (await refused(world.peer.link.asked(method, params))).code == -32602


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_the_task_of_another_server_is_unknown(world: World, method: str) -> None:
    async with world.hub(server(), server("two")):
        task_id = await create(world)
        await until(lambda: world.peers["two"].links)
        assert (await refused(world.peers["two"].link.asked(method, {"taskId": task_id}))).code == -32602
        assert (await world.peers["two"].link.asked("tasks/list", {}))["tasks"] == []
        assert (await get(world, task_id))["status"] == "working"


async def test_all_that_can_be_got_is_listed_in_pages_once(world: World) -> None:
    async with world.hub(server()) as hub:
        made = [await create(world) for _ in range(120)]
        listed: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await world.peer.link.asked("tasks/list", cursor)
            listed += [task["taskId"] for task in page["tasks"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sorted(listed) == sorted(made)
        assert len(open_requests(hub)) == 120
        for bad in ("nonsense", "", 7):
            assert (await refused(world.peer.link.asked("tasks/list", {"cursor": bad}))).code == -32602


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 300_000), (600_000, 600_000), (10**12, 7 * 86400_000), (None, 3600_000), ("x", 3600_000), (-5, 300_000)],
)
async def test_a_small_ttl_is_raised_and_a_huge_one_lowered(world: World, asked: object, given: int) -> None:
    async with world.hub(server()):
        task = await get(world, await create(world, ttl=asked))
        assert task["ttl"] == given


async def test_at_its_ttl_a_task_ends_on_the_users_behalf_and_the_blocked_result_is_answered_first(
    world: World,
) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world, ttl=300_000)
        request = await question(hub)
        waiting = fetch(world, task_id)
        started = anyio.current_time()
        assert (await waiting.answered())["action"] == "cancel"
        assert anyio.current_time() - started == pytest.approx(300, abs=0.5)
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED
        await anyio.sleep(50)
        assert (await get(world, task_id))["status"] == "completed"
        await anyio.sleep(15)
        assert (await refused(get(world, task_id))).code == -32602
        with pytest.raises(NotFound):
            hub.tasks.get(task_id)


async def test_a_task_that_ends_late_in_its_ttl_can_still_be_fetched_for_a_minute(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world, ttl=300_000)
        await anyio.sleep(295)
        request_id = await reply(hub)
        await anyio.sleep(55)
        assert (await fetch(world, task_id).answered())["action"] == "accept"
        await anyio.sleep(10)
        assert (await refused(get(world, task_id))).code == -32602
        assert hub.inbox.get(request_id).delivery is Delivery.DELIVERED


async def test_a_task_and_the_fate_of_its_answer_are_forgotten_in_one_commit(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world, ttl=300_000)
        request_id = await reply(hub)
        await anyio.sleep(301)
        (last,) = [
            commit for commit in world.store.commits if f"task/{task_id}" in {w.key for w in commit if not w.value}
        ]
        assert f"request/{request_id}" in {write.key for write in last}


async def test_a_task_without_its_record_is_never_deleted_under_a_blocked_result(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world, ttl=300_000)
        waiting = fetch(world, task_id)
        await settle()
        await hub.tasks.clear("one")
        assert (await refused(waiting.answered())).code in (-32800, -32602)


async def test_the_server_is_told_of_every_change_with_the_full_task(world: World) -> None:
    async with world.hub(server()) as hub:
        answered = await create(world)
        await reply(hub)
        cancelled = await create(world)
        await hub.tasks.cancel(cancelled)
        await settle()
        told = [params for method, params in world.peer.link.notified if method == "notifications/tasks/status"]
        assert [(task["taskId"], task["status"]) for task in told if task] == [
            (answered, "completed"),
            (cancelled, "cancelled"),
        ]
        assert all(task is not None and "ttl" in task and "_meta" not in task for task in told)


async def test_a_task_outlives_its_connection_and_is_found_over_the_next_one(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        fetch(world, task_id)
        await settle()
        world.peer.link.lose()
        await until(lambda: len(world.peer.links) == 2)
        assert (await question(hub)).task_id == task_id
        assert (await get(world, task_id))["status"] == "working"
        waiting = fetch(world, task_id)
        await reply(hub)
        assert (await waiting.answered())["action"] == "accept"


async def test_an_explicit_disconnect_clears_tasks_and_their_questions(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        request = await question(hub)
        await hub.servers.disconnect("one")
        assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN
        await hub.servers.connect("one")
        await until(lambda: len(world.peer.links) == 2)
        assert (await refused(get(world, task_id))).code == -32602


async def test_a_server_may_have_only_so_many_tasks(world: World) -> None:
    world.settings = {"receiver_tasks_per_server": 3}
    async with world.hub(server(), server("two")) as hub:
        for _ in range(3):
            await create(world)
        error = await refused(world.peer.link.asked("elicitation/create", {**FORM, "task": {}}))
        assert error.code == -32603
        assert len(open_requests(hub)) == 3
        await until(lambda: world.peers["two"].links)
        await world.peers["two"].link.asked("elicitation/create", {**FORM, "task": {}})


async def test_a_task_that_has_ended_makes_room_for_another_though_not_for_ever(world: World) -> None:
    world.settings = {"receiver_tasks_per_server": 1}
    async with world.hub(server()) as hub:
        for _ in range(10):
            await create(world)
            await reply(hub)
        error = await refused(world.peer.link.asked("elicitation/create", {**FORM, "task": {}}))
        assert error.code == -32603


async def test_what_is_not_offered_as_a_task_is_processed_normally(world: World) -> None:
    async with world.hub(server(), server("two", receiver_tasks=False)) as hub:
        await linked(world)
        assert await world.peer.link.asked("roots/list", {"task": {}}) == {"roots": []}
        await until(lambda: world.peers["two"].links)
        asked = world.peers["two"].link.ask("elicitation/create", {**FORM, "task": {}})
        await reply(hub)
        assert (await asked.answered())["action"] == "accept"
        assert not list(hub.tasks)


async def test_a_call_that_waits_for_a_task_times_nothing_out_and_takes_no_slot(world: World) -> None:
    async def polling(sent: Sent) -> Outcome:
        if sent.params["name"] != "ask":
            return {}
        created = await sent.ask("elicitation/create", {**FORM, "task": {}}, on_wire=True).answered()
        task_id = created["task"]["taskId"]
        while (await sent.ask("tasks/get", {"taskId": task_id}).answered())["status"] == "working":
            await anyio.sleep(1)
        return await sent.ask("tasks/result", {"taskId": task_id}).answered()

    world.peer.behaviour = polling
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec("ask"), "me")
        request = await question(hub)
        assert request.call_id == call.id
        for _ in range(4):
            await anyio.sleep(30)
            assert (await hub.calls.call(spec("other"), "me")).state == "completed"
        assert hub.calls.get(call.id).state == "waiting_input"
        await reply(hub)
        await until(lambda: hub.calls.get(call.id).state.ended)
        assert hub.calls.get(call.id).state == "completed"


async def test_when_the_store_does_not_take_a_task_the_server_gets_an_error_and_nothing_is_left(world: World) -> None:
    async with world.hub(server()) as hub:
        await linked(world)
        await settle()
        world.store.failures = 1
        error = await refused(world.peer.link.asked("elicitation/create", {**FORM, "task": {}}))
        assert error.code == -32603
        assert not list(hub.tasks)
        assert not open_requests(hub)


async def test_a_task_whose_record_was_mended_has_failed_for_its_server_too(world: World) -> None:
    async with world.hub(server()) as hub:
        task_id = await create(world)
        await hub.tasks.cancel(task_id)
    (stored,) = (await world.store.inner.snapshot("task/")).entries
    await world.store.inner.commit([Write(stored.key, stored.value.replace(b'"cancelled"', b'"paused"'))])
    async with world.hub(server()):
        await linked(world)
        failed = await refused(fetch(world, task_id).answered())
        assert (failed.code, failed.message) == (-32603, "The task failed")
