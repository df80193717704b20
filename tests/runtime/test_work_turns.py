"""Which of several workers has its turn, and what is kept of workers and requests that are gone."""

import gc

import pytest
from anyio.abc import TaskGroup

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import Worker

from .agents import ANY, Agent, ask, join
from .conftest import FORM, World, open_requests, server, settle, spec, until
from .peer import never


@pytest.fixture
async def hub(world: World):
    async with world.linked(server(max_in_flight=2)) as hub:
        yield hub


async def asked_by(world: World, hub: Hub, call_id: str) -> PendingRequest:
    """What the server asks for one of its calls."""
    (sent,) = (sent for sent in world.peer.sent if sent.call_id == call_id)
    before = {request.id for request in open_requests(hub)}
    sent.ask("elicitation/create", FORM, on_wire=True)
    await until(lambda: len(open_requests(hub)) > len(before))
    (new,) = (request for request in open_requests(hub) if request.id not in before)
    assert new.call_id == call_id
    return new


async def test_a_caller_gets_what_its_own_call_is_asked(world: World, hub: Hub, tasks: TaskGroup) -> None:
    world.peer.behaviour = never
    for call_id in ("mine", "other"):
        tasks.start_soon(hub.calls.call, spec(call_id=call_id), "me")
    await until(lambda: len(world.peer.sent) == 2)
    early = await asked_by(world, hub, "mine")
    agent = await join(tasks, hub, "a", 9, RequestFilter(call_id="mine"))
    await asked_by(world, hub, "other")
    late = await asked_by(world, hub, "mine")
    await until(lambda: len(agent.mine) == 2)
    await settle(5)
    assert agent.given == [early.id, late.id]
    agent.scope.cancel()
    await settle(1)
    assert [request.claim for request in open_requests(hub)] == [None] * 3


async def test_of_those_that_hold_as_few_the_one_that_has_waited_longest_is_next(
    world: World, hub: Hub, tasks: TaskGroup
) -> None:
    agents = [await join(tasks, hub, name, 9) for name in "ab"]

    async def next_one() -> str:
        await ask(world, hub, 1)
        await until(lambda: any(agent.mine for agent in agents))
        (agent,) = (agent for agent in agents if agent.mine)
        await agent.answer(hub, *agent.mine)
        await until(lambda: not agent.mine)
        return agent.name

    first = await next_one()
    agents.append(await join(tasks, hub, "c", 9))
    assert [first, *[await next_one() for _ in range(5)]] == [*"abacba"]


def in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, Worker) for each in gc.get_objects())


async def test_nothing_is_kept_of_a_worker_that_has_left(world: World, hub: Hub) -> None:
    await ask(world, hub, 4)
    before = in_memory()
    with hub.work.join("a", ANY, 1) as worker:
        await settle(1)
        hub.work.skip(worker, *worker.held)
        await settle(1)
        claimed, *others = worker.candidates
        await hub.inbox.claim(claimed, "person", 30)
        await settle(1)
        assert (len(worker.skipped), [*worker.candidates]) == (1, others)
    del worker
    await settle(5)
    assert in_memory() == before


async def test_a_worker_whose_steps_refer_to_it_is_freed_without_a_collection(hub: Hub) -> None:
    def join_and_leave() -> None:
        with hub.work.join("a", ANY, 1, on_step=lambda _: hub.work.skip(worker, "none")) as worker:
            pass

    before = in_memory()
    gc.disable()
    try:
        join_and_leave()
        assert sum(isinstance(each, Worker) for each in gc.get_objects()) == before
    finally:
        gc.enable()


async def skipped(world: World, hub: Hub, tasks: TaskGroup) -> Agent:
    """A worker that has given back the one request that is open, by its claim."""
    agent = await join(tasks, hub, "a")
    await ask(world, hub)
    await until(lambda: agent.mine)
    ((request_id, request),) = agent.mine.items()
    await hub.inbox.release(request_id, request.claim.id)
    await until(lambda: agent.over)
    return agent


async def test_a_worker_forgets_what_it_gave_back_once_that_is_over(world: World, hub: Hub, tasks: TaskGroup) -> None:
    agent = await skipped(world, hub, tasks)
    assert len(agent.worker.skipped) == 1
    await hub.servers.disconnect("one")
    await until(lambda: not open_requests(hub))
    assert agent.worker.skipped == set()
