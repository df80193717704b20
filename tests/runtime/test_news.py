"""Each upsert of a watch is news: it differs from the last one of its record in something that a program can see."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import PeerError, UpstreamError
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from .agents import Agent
from .conftest import FORM, SAMPLING, World, open_requests, server, settle, spec, until, update
from .mortal import ELICIT, REQUIRED, needs
from .news import WATCHES, News
from .noted import Noted
from .peer import LOST, REFUSED, Outcome, Sent, never
from .task_server import ERAS, RESULT, TaskServer, started

SpanRecorder = Callable[[World, Hub], Awaitable[None]]
YES = Accept({"name": "x"})


async def servers_come_and_go(world: World, hub: Hub) -> None:
    """Connections that fail, last, get lost, are given up; what is configured and what is set, more than once."""
    for _ in range(3):
        world.peer.link.lose(LOST)
        world.peer.plan.extend([UpstreamError(REFUSED), 3.0, UpstreamError(REFUSED), None])
        await anyio.sleep(200)
    world.peer.link.silent = True
    await anyio.sleep(200)
    for act in (hub.servers.disconnect, hub.servers.disconnect, hub.servers.connect, hub.servers.connect):
        await act("one")
        await settle(5)
    for roots in ((), ({"uri": "file:///a"},), ({"uri": "file:///a"},), None, None):
        await hub.servers.set_roots("one", roots)
        await settle()
    for options in ({}, {}, {"call_timeout_s": 7}, {"answer_timeout_s": 9}, {"max_in_flight": 2}, {"retries": 1}):
        config = server("two", **options)
        await (update(hub, config) if options else _added(hub, config))
        await settle(2)
    world.peers["two"].always = UpstreamError(REFUSED)
    world.peers["two"].link.lose(LOST)
    await until(lambda: hub.servers.get("two").connection.gave_up)
    await hub.servers.connect("two")
    await anyio.sleep(100)
    await hub.servers.remove("two")


async def _added(hub: Hub, config: Any) -> None:
    if config.name not in {each.name for each in hub.servers.all()}:
        await hub.servers.add(config)


async def calls_go_every_way(world: World, hub: Hub) -> None:
    """Calls that wait, tell, ask, fail, are cancelled, aborted, too long; some together."""

    async def behaviour(sent: Sent) -> Outcome:
        for part in (1, 1, 2):
            sent.progress(part, 3, "same")
        match sent.params["name"]:
            case "asks":
                asked = [sent.ask("elicitation/create", FORM, on_wire=on_wire) for on_wire in (True, False)]
                return {"said": [await each.answered() for each in asked]}
            case "fails":
                raise PeerError(-32000, "no")
            case "lasts":
                await anyio.sleep(50)
            case "hangs":
                return await never(sent)
            case _:
                pass
        return {"content": []}

    world.peer.behaviour = behaviour
    for number, name in enumerate(("quick", "asks", "asks", "fails", "lasts", "hangs", "quick", "hangs")):
        await hub.calls.start(spec(name, call_id=f"c{number}"), "me")
        await settle(1)
    await hub.calls.cancel("c7", abort=True)
    for _ in range(4):
        for request in open_requests(hub):
            await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        await settle(5)
    await anyio.sleep(4000)
    assert hub.calls.get("c1").state.ended
    assert hub.calls.get("c5").state is CallState.FAILED


async def people_look_claim_and_answer(world: World, hub: Hub) -> None:
    """Questions that are shown, claimed, renewed, given back, left, taken over, answered, withdrawn, too late."""
    ask = world.peer.link.ask
    questions = [ask("elicitation/create", FORM), ask("sampling/createMessage", SAMPLING)]
    await settle()
    for request in open_requests(hub):
        for who in ("ann", "bob", "ann"):
            hub.inbox.note_view(request, who)
            await settle()
        for _ in range(2):
            held = await hub.inbox.claim(request.id, "ann", 30, claim_id="window", take_over=True)
            await settle()
        hub.inbox.note_view(held, "eve")
        await hub.inbox.renew(request.id, "window", 30)
        await hub.inbox.renew(request.id, "window", 30)
        await hub.inbox.claim(request.id, "ann", 30, claim_id="phone", take_over=True)
        await hub.inbox.release(request.id, "phone")
        await hub.inbox.claim(request.id, "bob", 30)
        await anyio.sleep(100)
    form = next(request for request in open_requests(hub) if request.kind == "elicitation_form")
    for _ in range(2):
        await hub.inbox.answer(form.id, YES, "ann", answer_id="a", claim_id=None)
    questions[1].withdraw()
    async with anyio.create_task_group() as agents:
        agent = Agent("robot")
        agents.start_soon(agent.run, hub, RequestFilter(), 1)
        ask("elicitation/create", FORM)
        ask("elicitation/create", FORM)
        await until(lambda: agent.mine)
        assert agent.worker is not None
        hub.work.skip(agent.worker, agent.given[0])
        await until(lambda: len(agent.given) == 2)
        await agent.answer(hub, agent.given[1])
        agent.scope.cancel()
    world.peer.link.lose(LOST)
    await settle(100)


async def tasks_of_servers_wait(world: World, hub: Hub) -> None:
    """Receiver tasks that are asked for, again and again, answered, cancelled, and left to expire."""
    link = world.peer.link
    made = [
        (await link.asked("elicitation/create", {**FORM, "task": {"ttl": 300_000}}))["task"]["taskId"] for _ in range(3)
    ]
    for _ in range(3):
        for task_id in made:
            await link.asked("tasks/get", {"taskId": task_id})
        await link.asked("tasks/list", {})
        await settle(3)
    answered, cancelled, _ = open_requests(hub)
    await hub.inbox.answer(answered.id, YES, "me", answer_id=None, claim_id=None)
    await link.asked("tasks/cancel", {"taskId": cancelled.task_id})
    for _ in range(2):
        await link.asked("tasks/result", {"taskId": answered.task_id})
        await settle()
    await anyio.sleep(1000)


async def lists_change_or_not(world: World, hub: Hub) -> None:
    """Notifications in heaps, lists that are the same, that fail, that come back."""
    names = ["a"]

    async def listing(sent: Sent) -> Outcome:
        if not names:
            raise PeerError(-32000, "not now")
        return {sent.method.split("/")[0]: [{"name": name} for name in names]}

    world.peer.capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
    world.peer.listing = listing
    world.peer.link.lose(LOST)
    await settle(30)
    for now in (["a"], ["a", "b"], [], [], ["a"]):
        names[:] = now
        for _ in range(3):
            for kind in ("tools", "prompts"):
                world.peer.link.tell(f"notifications/{kind}/list_changed")
            world.peer.link.tell("notifications/message", {"level": "info", "data": "x"})
            await settle(1)
        await hub.catalog.refresh("one")
        await settle(30)


STORIES: tuple[SpanRecorder, ...] = (
    servers_come_and_go,
    calls_go_every_way,
    people_look_claim_and_answer,
    tasks_of_servers_wait,
    lists_change_or_not,
)


async def everything(world: World, hub: Hub, watching: Any, story: Callable[[], Awaitable[None]]) -> int:
    """Watches all there is while a story goes on; how many events there were. Fails where one came twice."""
    watches = {name: watching(watch(hub)) for name, watch in WATCHES.items()}
    await settle()
    await story()
    await settle(10)
    told = 0
    for name, watch in watches.items():
        assert watch.error is None
        news = News()
        for event in watch.events:
            news.hear(event)
        assert news.repeated == [], name
        told += news.told
        await watch.stop()
    return told


def test_every_watch_of_records_is_watched() -> None:
    def has_upserts(service: ServiceDescriptor, name: str) -> bool:
        return "upsert" in service.methods_by_name[name].output_type.fields_by_name

    found = {name for service in SERVICES.values() for name in service.methods_by_name if has_upserts(service, name)}
    assert found == set(WATCHES)


@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_no_watch_tells_the_same_twice(world: World, watching: Any, story: SpanRecorder, traced: bool) -> None:
    world.tracer = Noted() if traced else None
    async with world.hub(server(max_in_flight=3)) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        assert await everything(world, hub, watching, lambda: story(world, hub)) > 8


@ERAS
async def test_a_task_that_is_asked_for_its_status_is_told_when_that_changes(
    world: World, watching: Any, era: Era
) -> None:
    tasks = TaskServer(world, era)
    world.tracer = Noted()

    async def story() -> None:
        await started(hub)
        for status, more in (("working", {}), ("working", {"statusMessage": "half"}), ("input_required", {})):
            tasks.status, tasks.more = status, more
            for _ in range(3):
                world.peer.link.tell("notifications/tasks/status", {"taskId": "T", "status": status})
                await settle(3)
        tasks.end(result=RESULT)
        await anyio.sleep(100)

    async with world.hub(server()) as hub:
        assert await everything(world, hub, watching, story) > 5


@pytest.mark.parametrize("first", [needs(a=ELICIT, b=ELICIT), REQUIRED], ids=["rounds", "consents"])
async def test_a_call_in_rounds_is_told_when_it_moves(world: World, watching: Any, first: Any) -> None:
    world.tracer = Noted()
    world.peer.era = Era.STATELESS if isinstance(first, dict) else Era.HANDSHAKE
    steps = [first, {"content": []}]

    async def behaviour(_: Sent) -> Outcome:
        step = steps.pop(0)
        if isinstance(step, PeerError):
            raise step
        return step

    async def story() -> None:
        world.peer.behaviour = behaviour
        await hub.calls.start(spec(call_id="c"), "me")
        while not hub.calls.get("c").state.ended:
            for request in open_requests(hub):
                hub.inbox.note_view(request, "me")
                given = YES if request.kind == "elicitation_form" else Accept()
                await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)
            await settle(1)

    async with world.hub(server()) as hub:
        assert await everything(world, hub, watching, story) > 5
