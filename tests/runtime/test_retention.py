"""Retention: how long what has ended is kept, of each server and in all, and how long deletions are remembered."""

from collections.abc import Callable, Sequence

import anyio
import pytest

from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import retention
from hubbubd.runtime.records import EventKind

from .conftest import FORM, Watching, World, open_requests, question, server, settle, spec, until
from .peer import Outcome, Sent
from .task_server import TaskServer, ended, started

HOUR_S = 3600.0


async def calls(hub: Hub, count: int, name: str = "one") -> None:
    for _ in range(count):
        await hub.calls.call(spec(server=name), "me")


def kept(hub: Hub, name: str = "one") -> int:
    return len(hub.calls.select(CallFilter(server=name)))


async def answered(world: World, hub: Hub, name: str = "one") -> str:
    """A question of a server, asked and answered; its id."""
    await until(lambda: world.peers[name].links)
    asked = world.peers[name].link.ask("elicitation/create", FORM)
    request = await question(hub)
    await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
    await asked.answered()
    return request.id


def requests(hub: Hub) -> Sequence[str]:
    return [request.id for request in hub.inbox.select(RequestFilter())]


async def test_the_hub_s_own_limit_takes_the_oldest_of_all_servers(world: World) -> None:
    world.settings = {"call_history_count": 10}
    async with world.hub(server(), server("two")) as hub:
        await calls(hub, 4, "two")
        await calls(hub, 8)
        await settle(2)
        assert (kept(hub), kept(hub, "two")) == (8, 2)


async def test_a_server_with_personal_data_may_have_a_shorter_memory(world: World) -> None:
    async with world.hub(server(request_history_age_s=60, call_history_age_s=60), server("two")) as hub:
        mine, other = await answered(world, hub), await answered(world, hub, "two")
        await calls(hub, 2)
        await calls(hub, 2, "two")
        await settle(50)
        assert set(requests(hub)) == {mine, other}
        await settle(20)
        assert requests(hub) == [other]
        assert (kept(hub), kept(hub, "two")) == (0, 2)


async def test_the_age_of_a_request_counts_from_its_end(world: World) -> None:
    world.settings = {"request_history_age_s": 600}
    async with world.linked(server(answer_timeout_s=2 * HOUR_S)) as hub:
        taken_back = world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        await settle(3600)
        taken_back.withdraw()
        await until(lambda: not open_requests(hub))
        await settle(500)
        assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN
        await settle(200)
        assert requests(hub) == []


async def test_an_open_request_is_never_too_old(world: World) -> None:
    world.settings = {"request_history_age_s": 60, "request_history_count": 1}
    async with world.linked(server(answer_timeout_s=30 * HOUR_S)) as hub:
        for _ in range(3):
            world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 3)
        await settle(HOUR_S)
        assert len(open_requests(hub)) == 3


async def test_whoever_waits_for_an_end_still_finds_it(world: World) -> None:
    world.settings = {"request_history_count": 1}
    async with world.linked() as hub:
        asked = [world.peer.link.ask("elicitation/create", FORM) for _ in range(20)]
        await until(lambda: len(open_requests(hub)) == 20)
        async with anyio.create_task_group() as tasks:
            for request in open_requests(hub):
                tasks.start_soon(hub.inbox.wait, request.id)
            await settle()
            for each in asked:
                each.withdraw()
        await settle(3)
        assert len(requests(hub)) == 1


async def test_upkeep_that_is_asked_for_leaves_what_has_just_ended(world: World) -> None:
    async with world.hub(server(call_history_count=1)) as hub:
        await calls(hub, 3)
        await settle()
        await hub.retention.run_round()
        assert kept(hub) == 3
        await settle(3)
        assert kept(hub) == 1


async def receiver_task(world: World, hub: Hub) -> str:
    """A task of the hub whose question is answered."""
    await until(lambda: world.peer.links)
    created = await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": HOUR_S * 24_000}})
    request = await question(hub)
    await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
    return created["task"]["taskId"]


async def test_a_task_s_result_that_its_server_has_yet_to_fetch_is_kept_whatever_the_limits(world: World) -> None:
    world.settings = {"task_history_count": 1, "task_history_age_s": 60}
    async with world.hub(server()) as hub:
        fetched, waiting = await receiver_task(world, hub), await receiver_task(world, hub)
        await world.peer.link.asked("tasks/result", {"taskId": fetched})
        await settle(50)
        assert {task.id for task in hub.tasks} == {fetched, waiting}
        await settle(600)
        assert {task.id for task in hub.tasks} == {waiting}
        assert (await world.peer.link.asked("tasks/result", {"taskId": waiting}))["action"] == "accept"
        await settle(80)
        assert not list(hub.tasks)


async def test_tasks_that_have_ended_are_kept_up_to_a_count_of_each_server(world: World) -> None:
    async with world.hub(server(task_history_count=2)) as hub:
        ids = [await receiver_task(world, hub) for _ in range(5)]
        for task_id in ids:
            await world.peer.link.asked("tasks/result", {"taskId": task_id})
        await settle(3)
        assert {task.id for task in hub.tasks} == set(ids[-2:])


async def test_a_server_s_task_may_be_forgotten_before_its_call(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server(task_history_age_s=60)) as hub:
        call = await started(hub)
        tasks.end()
        await ended(hub, call)
        await settle(50)
        assert len(hub.tasks.select(TaskFilter())) == 1
        await settle(30)
        assert not hub.tasks.select(TaskFilter())
        assert hub.calls.get(call.id).result


async def test_a_round_of_upkeep_says_what_it_was_good_for(world: World) -> None:
    async with world.hub(server(call_history_age_s=600)) as hub:
        await calls(hub, 5)
        await settle(640)  # between two rounds that come by themselves
        assert kept(hub) == 5
        before, after, deleted = await hub.retention.compact()
        assert (deleted, before.keys - after.keys, kept(hub)) == (5, 5, 0)


Start = Callable[..., Watching]


async def reset(hub: Hub, watching: Start, token: str) -> str:
    """Why a token is not honoured; empty when it is."""
    watch = watching(hub.calls.watch(CallFilter(), token))
    await until(lambda: watch.events)
    await watch.stop()
    return watch.events[0].reason if watch.events[0].kind is EventKind.RESET else ""


async def token(hub: Hub, watching: Start) -> str:
    watch = watching(hub.calls.watch(CallFilter()))
    await until(lambda: EventKind.SYNCED in watch.kinds())
    await watch.stop()
    return watch.token


async def test_deletions_are_remembered_for_a_time_and_then_older_tokens_bring_a_reset(
    world: World, watching: Start
) -> None:
    world.settings = {"deletion_history_age_s": 7 * HOUR_S}
    async with world.hub(server(call_history_age_s=600)) as hub:
        await calls(hub, 1)
        await settle()
        old = await token(hub, watching)
        await settle(HOUR_S)
        await calls(hub, 1)
        await settle()
        recent = await token(hub, watching)
        await settle(5 * HOUR_S)
        assert [await reset(hub, watching, each) for each in (old, recent)] == ["", ""]
        await settle(1.2 * HOUR_S)
        assert [await reset(hub, watching, each) for each in (old, recent)] == ["COMPACTED", ""]
    async with world.hub(server()) as hub:
        assert [await reset(hub, watching, each) for each in (old, recent)] == ["COMPACTED", ""]
        await settle(HOUR_S)
        assert await reset(hub, watching, recent) == "COMPACTED"
        assert (await world.store.stats()).deletions == 0


@pytest.mark.parametrize("failures", [1, 5])
async def test_upkeep_goes_on_when_the_store_has_recovered(world: World, failures: int) -> None:
    async with world.hub(server(call_history_age_s=60)) as hub:
        await calls(hub, 1)
        await settle(55)
        world.store.failures = failures
        await settle(30)
        assert kept(hub) == 0
        assert not (await world.store.snapshot("call/")).entries


async def test_many_large_questions_of_a_server_do_not_fill_its_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "HISTORY_BYTES", 100_000)
    async with world.hub(server(), server("two")) as hub:
        other = await answered(world, hub, "two")
        await until(lambda: world.peer.links)
        for _ in range(8):
            asked = world.peer.link.ask("elicitation/create", {**FORM, "message": "x" * 30_000})
            last = await question(hub)
            asked.withdraw()
            await until(lambda: not open_requests(hub))
        await settle(3)
        found = requests(hub)
        assert len(found) == 4
        assert {last.id, other} <= set(found)


async def test_one_large_record_is_kept_however_large_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "HISTORY_BYTES", 10)
    async with world.hub(server()) as hub:
        for _ in range(3):
            last = await answered(world, hub)
        await settle(3)
        assert requests(hub) == [last]


async def test_what_calls_and_errors_say_counts_in_bytes_over_all_servers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TOTAL_HISTORY_BYTES", 100_000)

    async def heavy(sent: Sent) -> Outcome:
        if sent.params["name"] == "bad":
            raise PeerError(-32000, "no", {"why": "x" * 30_000})
        return {"content": [{"type": "text", "text": "x" * 30_000}]}

    async with world.hub(server(), server("two")) as hub:
        for name in ("one", "two"):
            await until(lambda name=name: world.peers[name].links)
            world.peers[name].behaviour = heavy
        for at in range(8):
            await hub.calls.call(spec("bad" if at // 2 % 2 else "good", server=("one", "two")[at % 2]), "me")
        await settle(3)
        assert len(hub.calls.select(CallFilter())) == 3


async def test_bytes_are_counted_anew_by_the_next_hub(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.hub(server()) as hub:
        for _ in range(4):
            last = await answered(world, hub)
    await settle(10)
    monkeypatch.setattr(retention, "HISTORY_BYTES", 10)
    async with world.hub(server()) as hub:
        await settle(3)
        assert requests(hub) == [last]
