"""Tools that may not be called: also by a call that an earlier hub began, and in what the hub remembers."""

import anyio

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.tasks import EXTENSION
from hubbubd.errors import PermissionDenied
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import World, open_requests, server, spec, until, update
from .mortal import DONE, ELICIT, answer, asked, ended, needs, script
from .peer import Outcome, Sent, gives, never
from .test_catalog import Shelf, fresh, names, tools


async def test_a_denied_tool_is_neither_sent_nor_recorded_as_a_call(world: World) -> None:
    repeated, escaped = b'{"name":"other","name":"t"}', b'{"n\\u0061me":"\\u0074"}'
    named = spec(), spec(as_task=True), spec(method=" Tools/CALL"), spec(params=repeated), spec(params=escaped)
    async with world.hub(server(deny_tools=("t",))) as hub:
        for make in (hub.calls.call, hub.calls.start):
            for given in named:
                with raising(PermissionDenied, "TOOL_DENIED"):
                    await make(given, "alice")
        doubled = await hub.calls.call(spec(params=b'{"name":"t","name":"other"}'), "alice")
        assert doubled.state is CallState.COMPLETED
    assert [sent.params["name"] for sent in world.peer.sent] == ["other"]


async def test_a_call_of_a_tool_that_the_next_hub_denies_is_not_sent_again(world: World) -> None:
    script(world, needs(a=ELICIT), DONE)
    await asked(world)
    async with world.hub(server(deny_tools=("t",))) as hub:
        (request,) = open_requests(hub)
        await answer(hub, request)
        call = await ended(hub)
        assert (call.state, call.fault.code) == (CallState.FAILED, "TOOL_DENIED")
    assert len(world.peer.sent) == 1


async def test_a_tool_that_is_denied_while_its_call_is_queued_is_not_called(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub() as hub:
        await hub.servers.add(server(max_in_flight=1))
        await until(lambda: world.peer.links)
        first, second = [await hub.calls.start(spec(tool), "alice") for tool in ("u", "t")]
        await until(lambda: world.peer.sent)
        await update(hub, server(max_in_flight=1, deny_tools=("t",)))
        await hub.calls.cancel(first.id, abort=True)
        await until(lambda: hub.calls.get(second.id).state.ended)
        fault = hub.calls.get(second.id).fault
        assert fault.code == "TOOL_DENIED"
    assert [sent.params["name"] for sent in world.peer.sent] == ["u"]


async def test_a_call_that_waits_is_looked_at_anew_if_its_server_comes_back_as_another_one(world: World) -> None:
    world.peer.behaviour = never
    world.peer.era, world.peer.capabilities = Era.STATELESS, {"extensions": {EXTENSION: {}}}
    async with world.linked(server(max_in_flight=1)) as hub:
        await hub.calls.start(spec("u"), "alice")
        waiting = await hub.calls.start(spec("t", as_task=True), "alice")
        await until(lambda: world.peer.sent)
        world.peer.capabilities = {}
        world.peer.link.lose()
        await until(lambda: hub.calls.get(waiting.id).state.ended)
        fault = hub.calls.get(waiting.id).fault
        assert fault.code == "TASK_NOT_SUPPORTED"
    assert [sent.params["name"] for sent in world.peer.sent] == ["u"]


async def test_a_tool_that_is_denied_is_not_in_the_catalog_even_before_its_server_is_there(world: World) -> None:
    shelf = Shelf(world.peer, "a", "b")
    async with world.hub(server()) as hub:
        await fresh(hub)
        assert tools(hub).count == 2
    shelf.gate = type(shelf.gate)()  # nothing is fetched any more
    async with world.hub(server(deny_tools=("b",))) as hub:
        assert (tools(hub).count, names(hub)) == (1, [b'{"name":"a"}'])
        shelf.gate.set()
        await fresh(hub)
        assert (tools(hub).count, names(hub)) == (1, [b'{"name":"a"}'])


async def test_a_tool_that_is_denied_while_the_list_is_fetched_is_not_in_it(world: World) -> None:
    more = anyio.Event()

    async def listing(sent: Sent) -> Outcome:
        if "cursor" not in sent.params:
            return {"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": "2"}
        await more.wait()
        return {"tools": [{"name": "c"}]}

    Shelf(world.peer)
    world.peer.listing = listing
    async with world.hub(server()) as hub:
        await until(lambda: len(world.peer.fetches) == 2)
        hub.catalog.adopt(server(deny_tools=("b",)))
        more.set()
        await until(lambda: names(hub))
        assert names(hub) == [b'{"name":"a"}', b'{"name":"c"}']


async def test_a_listing_that_a_caller_asks_for_has_no_denied_tools(world: World) -> None:
    world.peer.behaviour = gives({"tools": [{"name": "t"}, {"name": "u"}, "odd"], "nextCursor": "x"})
    async with world.hub(server(allow_tools=("u",))) as hub:
        call = await hub.calls.call(spec(method="tools/list", params=b""), "alice")
        assert call.result == b'{"tools":[{"name":"u"}],"nextCursor":"x"}'
