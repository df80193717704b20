"""Workers: each request goes to exactly one that is ready."""

from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.abc import TaskGroup

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import RequestEventType, RequestKind, RequestState
from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import ReplyError

from .agents import ANY, ask, join
from .conftest import FORM, SAMPLING, World, open_requests, server, settle, until


@pytest.fixture
async def hub(world: World):
    async with world.linked() as hub:
        yield hub


def commits_of(world: World, request_id: str) -> int:
    """How many commits have changed a request."""
    return sum(any(write.key.endswith(request_id) for write in writes) for writes in world.store.commits)


async def test_a_question_that_a_worker_waits_for_is_open_and_claimed_in_one_commit(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    agent = await join(tasks, hub, "a")
    await ask(world, hub)
    await until(lambda: agent.mine)
    ((request_id, request),) = agent.mine.items()
    assert commits_of(world, request_id) == 1
    assert request.claim == hub.inbox.get(request_id).claim
    answered = await agent.answer(hub, request_id)
    assert [(moment.what, moment.by, moment.agent) for moment in answered.moments] == [
        (RequestEventType.CLAIMED, "a", True),
        (RequestEventType.ANSWERED, "a", True),
    ]


async def test_a_question_that_the_store_does_not_take_keeps_no_worker_busy(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    agent = await join(tasks, hub, "a")
    world.store.failures = 1
    refused = world.peer.link.ask("elicitation/create", FORM)
    with pytest.raises(ReplyError):
        await refused.answered()
    await ask(world, hub)
    await until(lambda: agent.mine)


async def test_a_question_whose_worker_leaves_while_it_is_opened_goes_to_another(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    one = await join(tasks, hub, "one")
    world.store.delay_s = 1
    world.peer.link.ask("elicitation/create", FORM)
    await settle()
    one.scope.cancel()
    other = await join(tasks, hub, "other")
    await until(lambda: other.mine)
    assert not one.mine


async def test_what_is_open_already_goes_to_a_worker_that_comes_oldest_first(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    for _ in range(3):
        await ask(world, hub)
        await anyio.sleep(1)
    oldest = [request.id for request in sorted(open_requests(hub), key=lambda r: r.created_at)]
    agent = await join(tasks, hub, "a", 2)
    await until(lambda: len(agent.mine) == 2)
    await settle()
    assert agent.given == oldest[:2]
    await agent.answer(hub, oldest[0])
    await until(lambda: len(agent.given) == 3)
    assert agent.over == [(oldest[0], RequestState.ANSWERED)]
    assert agent.given == oldest


async def test_a_worker_gets_only_what_its_filter_lets_through(world: World, hub: Hub, tasks: TaskGroup) -> None:
    agent = await join(tasks, hub, "a", 9, RequestFilter(kinds=frozenset({RequestKind.SAMPLING})))
    await ask(world, hub)
    await ask(world, hub, params=SAMPLING, method="sampling/createMessage")
    await until(lambda: agent.mine)
    await settle()
    assert [request.kind for request in agent.mine.values()] == [RequestKind.SAMPLING]


async def test_a_person_whose_claim_is_being_written_keeps_it_when_a_worker_comes(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    await ask(world, hub)
    (request,) = open_requests(hub)
    world.store.delay_s = 1
    tasks.start_soon(hub.inbox.claim, request.id, "person", 30)
    await settle(0.5)
    agent = await join(tasks, hub, "a")
    await settle(5)
    assert not agent.mine
    held = hub.inbox.get(request.id).claim
    assert held.by == "person"


async def test_a_worker_keeps_what_it_has_for_as_long_as_it_lives(world: World, tasks: TaskGroup) -> None:
    async with world.linked(server(auto_reject_on_timeout=False, call_max_s=10**7)) as hub:
        agent = await join(tasks, hub, "a")
        await ask(world, hub)
        await until(lambda: agent.mine)
        (request_id,) = agent.mine
        await anyio.sleep(3 * 3600)
        assert not agent.over
        await agent.answer(hub, request_id)
        agent.scope.cancel()
        await settle()


async def test_a_hub_that_starts_again_drops_the_claims_of_workers_and_of_nobody_else(world: World) -> None:
    async with world.hub(server()) as hub, anyio.create_task_group() as group:
        await until(lambda: world.peer.links)
        for _ in range(2):
            await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 600_000}})
        await until(lambda: len(open_requests(hub)) == 2)
        persons, agents = open_requests(hub)
        await hub.inbox.claim(persons.id, "person", 500)
        agent = await join(group, hub, "a", 2)
        await until(lambda: agent.mine)
        assert list(agent.mine) == [agents.id]
        world.store.failures = 10**9
        group.cancel_scope.cancel()
    world.store.failures = 0
    async with world.hub(server()) as hub:
        assert hub.inbox.get(agents.id).claim is None
        assert hub.inbox.get(persons.id).claim.by == "person"


async def test_a_store_that_fails_for_a_while_only_delays_the_assignment(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    await ask(world, hub, 3)
    world.store.failures = 4
    agent = await join(tasks, hub, "a", 3)
    await until(lambda: len(agent.mine) == 3)
    assert len(agent.given) == 3


async def test_a_worker_that_does_not_listen_gets_no_more_than_it_asked_for(world: World, hub: Hub) -> None:
    with hub.work.join("deaf", ANY, 4) as worker:
        for links in range(2, 12):
            await ask(world, hub, 4)
            await settle()
            await hub.servers.disconnect("one")
            await hub.servers.connect("one")
            await until(lambda links=links: len(world.peer.links) == links)
        assert len(worker.unread) <= 8
    await settle()
    assert all(request.claim is None for request in open_requests(hub))


async def test_workers_count_as_watchers_and_end_with_the_hub(world: World, tasks: TaskGroup) -> None:
    world.settings["max_watchers"] = 2
    async with world.hub(server()) as hub, AsyncExitStack():
        await until(lambda: world.peer.links)
        agents = [await join(tasks, hub, name) for name in "ab"]
        with pytest.raises(ResourceExhausted), hub.work.join("c", ANY, 1):
            pass
        assert hub.watcher_count() == 2
        hub.end_watches()
        await until(lambda: all(agent.ended for agent in agents))
        assert hub.watcher_count() == 0


async def test_a_request_that_is_about_to_expire_while_nothing_can_be_written_is_not_tried_without_end(
    world: World, tasks: TaskGroup
) -> None:
    async with world.linked(server(answer_timeout_s=10)) as hub:
        await ask(world, hub)
        (request,) = open_requests(hub)
        world.store.failures = 10**9
        await anyio.sleep(20)
        agent = await join(tasks, hub, "a")
        await anyio.sleep(20)
        world.store.failures = 0
        await until(lambda: hub.inbox.get(request.id).state is RequestState.EXPIRED)
        await ask(world, hub)
        await until(lambda: agent.mine)


async def test_a_worker_whose_claim_could_not_be_renewed_in_time_gets_the_request_again(
    world: World, tasks: TaskGroup
) -> None:
    async with world.linked(server(auto_reject_on_timeout=False, call_max_s=10**7, ping_interval_s=0)) as hub:
        agent = await join(tasks, hub, "a")
        await ask(world, hub)
        await until(lambda: agent.mine)
        (request_id,) = agent.mine
        await anyio.sleep(3500)
        world.store.failures = 10**9
        await anyio.sleep(200)
        world.store.failures = 0
        await until(lambda: agent.over)
        await until(lambda: agent.mine)
        assert agent.given == [request_id, request_id]
        await agent.answer(hub, request_id)
