"""What servers offer, as it changes: when lists are fetched, how often, and what is shown meanwhile."""

from typing import Any

import anyio
import pytest

from hubbubd.core.filters import CatalogFilter
from hubbubd.core.servers.catalog import CatalogKind, CatalogList, Freshness
from hubbubd.errors import FailedPrecondition, NotFound, PeerError
from hubbubd.runtime.hub import Hub

from ..raising import raising
from .conftest import World, server, settle, spec, until
from .peer import Outcome, Peer, Sent, gives, never

TOOLS_CHANGED = "notifications/tools/list_changed"


class Shelf:
    """The tools of a peer, which a test may change; `gate` holds the fetches back."""

    def __init__(self, peer: Peer, *names: str, **more: Any) -> None:
        self.names = list(names)
        self.more = more
        self.running = 0
        self.most = 0
        self.gate = anyio.Event()
        self.gate.set()
        peer.capabilities = {"tools": {"listChanged": True}}
        peer.listing = self.list

    async def list(self, sent: Sent) -> Outcome:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            return {"tools": [{"name": name} for name in self.names], **self.more}
        finally:
            self.running -= 1


def tools(hub: Hub) -> CatalogList:
    """The list of tools of the server `one`."""
    (found,) = hub.catalog.select(CatalogFilter(kinds=frozenset({CatalogKind.TOOL})))
    return found


def names(hub: Hub) -> list[bytes]:
    return list(hub.catalog.entries("one/tool"))


def freshness(hub: Hub) -> dict[CatalogKind, Freshness]:
    return {record.kind: record.freshness for record in hub.catalog.select(CatalogFilter(server="one"))}


async def fresh(hub: Hub) -> None:
    await until(lambda: freshness(hub).get(CatalogKind.TOOL) is Freshness.FRESH)


async def test_every_kind_that_a_server_announces_is_fetched_whole_when_it_connects(world: World) -> None:
    async def listing(sent: Sent) -> Outcome:
        member = {"resources/templates/list": "resourceTemplates"}.get(sent.method, sent.method.split("/")[0])
        page = int(sent.params.get("cursor", "0"))
        more = {"nextCursor": str(page + 1)} if page < 2 else {}
        return {member: [{"name": f"{member} {page}"}], **more}

    skills = {"io.modelcontextprotocol/skills": {}}
    world.peer.capabilities = {"tools": {}, "resources": {}, "prompts": {}, "extensions": skills}
    world.peer.listing = listing
    async with world.hub(server()) as hub:
        await until(lambda: list(freshness(hub).values()) == [Freshness.FRESH] * 5)
        assert [r.kind for r in hub.catalog.select(CatalogFilter())] == list(CatalogKind)
        expected = tuple(b'{"name":"resourceTemplates %d"}' % page for page in range(3))
        assert hub.catalog.entries("one/template") == expected
    assert len(world.peer.fetches) == 15


async def test_a_server_without_templates_need_not_know_the_method(world: World) -> None:
    async def listing(sent: Sent) -> Outcome:
        if sent.method == "resources/list":
            return {"resources": [{"uri": "x:y", "name": "y"}]}
        raise PeerError(-32601, "Method not found")

    world.peer.capabilities = {"resources": {}, "prompts": {}}
    world.peer.listing = listing
    expected = {
        CatalogKind.RESOURCE: Freshness.FRESH,
        CatalogKind.TEMPLATE: Freshness.FRESH,
        CatalogKind.PROMPT: Freshness.ERROR,
    }
    async with world.hub(server()) as hub:
        await until(lambda: freshness(hub) == expected)
        prompts = hub.catalog.select(CatalogFilter())[-1]
        assert (prompts.fault.code, prompts.fault.details["jsonrpc_code"]) == ("SERVER_ERROR", -32601)


async def test_a_list_is_stale_until_a_change_that_was_told_during_its_fetch_is_fetched(world: World) -> None:
    shelf = Shelf(world.peer)
    shelf.gate = anyio.Event()
    async with world.hub(server()) as hub:
        await until(lambda: shelf.running)
        world.peer.link.tell(TOOLS_CHANGED)
        shelf.names.append("a")
        shelf.gate.set()
        await until(lambda: tools(hub).count == 1)
        assert freshness(hub) == {CatalogKind.TOOL: Freshness.STALE}
        await fresh(hub)
    assert len(world.peer.fetches) == 2


async def test_a_storm_of_notifications_costs_one_fetch_that_runs_and_one_that_waits(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
        shelf.gate = anyio.Event()
        for _ in range(1000):
            world.peer.link.tell(TOOLS_CHANGED)
        assert freshness(hub) == {CatalogKind.TOOL: Freshness.STALE}
        await until(lambda: shelf.running)
        for _ in range(1000):
            world.peer.link.tell(TOOLS_CHANGED)
        shelf.names.append("b")
        shelf.gate.set()
        await until(lambda: tools(hub).count == 2)
        await settle(60)
        assert freshness(hub) == {CatalogKind.TOOL: Freshness.FRESH}
    assert len(world.peer.fetches) == 3
    assert shelf.most == 1


async def test_a_server_that_tells_of_a_change_at_every_fetch_is_asked_at_a_bounded_rate(world: World) -> None:
    async def listing(sent: Sent) -> Outcome:
        sent.link.tell(TOOLS_CHANGED)
        return {"tools": [{"name": "a"}]}

    Shelf(world.peer)
    world.peer.listing = listing
    async with world.hub(server()):
        await settle(100)
    # The pause doubles to 5 s.
    assert 15 <= len(world.peer.fetches) <= 30


async def test_what_was_fetched_stays_while_the_server_is_away_and_is_fetched_again_when_it_is_back(
    world: World,
) -> None:
    shelf = Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
        shelf.names = ["b"]
        world.peer.plan.append(5.0)
        world.peer.link.lose()
        await until(lambda: freshness(hub) == {CatalogKind.TOOL: Freshness.STALE})
        assert names(hub) == [b'{"name":"a"}']
        await fresh(hub)
        assert names(hub) == [b'{"name":"b"}']


async def test_a_connection_that_goes_in_the_middle_of_a_fetch_is_no_fault_of_the_list(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
        shelf.gate = anyio.Event()
        world.peer.link.tell(TOOLS_CHANGED)
        await until(lambda: shelf.running)
        world.peer.plan.append(5.0)
        world.peer.link.lose()
        await settle(1)
        assert (tools(hub).freshness, tools(hub).fault, shelf.running) == (Freshness.STALE, None, 0)
        shelf.gate.set()
        await fresh(hub)


async def test_a_list_that_never_comes_is_given_up_and_disturbs_nothing(world: World) -> None:
    Shelf(world.peer)
    world.peer.listing = never
    Shelf(world.peers["two"], "a")
    async with world.hub(server(call_timeout_s=20), server("two")) as hub:
        await until(lambda: hub.catalog.select(CatalogFilter(server="two"))[0].freshness is Freshness.FRESH)
        assert (await hub.calls.call(spec(), "me")).result is not None
        assert tools_of_one(hub).freshness is Freshness.UNKNOWN
        await settle(21)
        hanging = tools_of_one(hub)
        assert hanging.freshness is Freshness.ERROR
        assert (hanging.fault.code, hanging.fault.details["limit_s"]) == ("CALL_TIMEOUT", 20)
        assert world.peer.fetches[0].cancelled
        Shelf(world.peer, "a")
        await until(lambda: tools_of_one(hub).freshness is Freshness.FRESH)


def tools_of_one(hub: Hub) -> CatalogList:
    return hub.catalog.select(CatalogFilter(server="one"))[0]


@pytest.mark.parametrize(
    ("cursor", "count", "noted"), [("same", 2, "leads back to a page"), (None, 1000, "a list is too long")]
)
async def test_of_pages_without_end_those_that_came_are_taken_and_it_is_noted(
    world: World, cursor: str | None, count: int, noted: str
) -> None:
    shelf = Shelf(world.peer, "a")

    async def endless(sent: Sent) -> Outcome:
        return {"tools": [{"name": "x"}], "nextCursor": cursor or str(len(world.peer.fetches))}

    async with world.hub(server()) as hub:
        await fresh(hub)
        world.peer.listing = endless
        world.peer.link.tell(TOOLS_CHANGED)
        await until(lambda: hub.servers.get("one").notes)
        assert (tools(hub).fault, tools(hub).freshness, tools(hub).count) == (None, Freshness.FRESH, count)
        (note,) = hub.servers.get("one").notes
        assert noted in note
        asked = len(world.peer.fetches)
        await settle(1000)
        assert len(world.peer.fetches) == asked <= 1002
        world.peer.listing = shelf.list
        world.peer.link.tell(TOOLS_CHANGED)
        await until(lambda: tools(hub).count == 1)
        await until(lambda: not hub.servers.get("one").notes)


async def test_a_list_that_takes_too_long_in_all_is_given_up(world: World) -> None:
    async def slow(sent: Sent) -> Outcome:
        await anyio.sleep(10)
        return {"tools": [], "nextCursor": str(len(world.peer.fetches))}

    Shelf(world.peer)
    world.peer.listing = slow
    async with world.hub(server(call_timeout_s=20, call_max_s=45)) as hub:
        await settle(46)
        fault = tools(hub).fault
        assert (fault.code, fault.details["limit_s"]) == ("CALL_TIMEOUT", 45)
        assert len(world.peer.fetches) == 5


async def test_a_list_is_fetched_again_when_its_cache_time_is_over(world: World) -> None:
    Shelf(world.peer, "a", ttlMs=600_000)
    async with world.hub(server()) as hub:
        await fresh(hub)
        await settle(599)
        assert len(world.peer.fetches) == 1
        await settle(2)
        assert len(world.peer.fetches) == 2
        await fresh(hub)


async def test_a_refresh_returns_lists_that_were_fetched_after_it_was_asked_for(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
        shelf.gate = anyio.Event()
        world.peer.link.tell(TOOLS_CHANGED)
        await until(lambda: shelf.running)
        results: list[list[CatalogList]] = []

        async def refresh() -> None:
            results.append(await hub.catalog.refresh("one"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(refresh)
            await settle()
            shelf.gate.set()
        assert [[record.freshness for record in lists] for lists in results] == [[Freshness.FRESH]] * 3
    assert len(world.peer.fetches) == 3  # on connecting, the one that ran, and one for all three


async def test_a_list_that_is_to_be_fetched_once_more_for_a_refresh_is_fresh(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
        shelf.gate = anyio.Event()
        results: list[Freshness] = []

        async def refresh() -> None:
            results.extend(record.freshness for record in await hub.catalog.refresh("one"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refresh)
            await until(lambda: shelf.running)
            tasks.start_soon(refresh)
            await settle()
            shelf.gate.set()
        assert results == [Freshness.FRESH] * 2


async def test_a_refresh_needs_a_connection_and_ends_with_it(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    world.peer.plan.append(5.0)
    async with world.hub(server()) as hub:
        with pytest.raises(NotFound):
            await hub.catalog.refresh("nobody")
        with raising(FailedPrecondition, "SERVER_NOT_CONNECTED"):
            await hub.catalog.refresh("one")
        await fresh(hub)
        shelf.gate = anyio.Event()
        ended = anyio.Event()

        async def refresh() -> None:
            with pytest.raises(FailedPrecondition):
                await hub.catalog.refresh("one")
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refresh)
            await until(lambda: shelf.running)
            world.peer.link.lose()
            await ended.wait()
        shelf.gate.set()


async def test_what_was_fetched_is_there_after_a_restart_of_the_hub(world: World) -> None:
    Shelf(world.peer, "a")
    world.peer.capabilities = {"tools": {}, "resources": {}}
    async with world.hub(server(), server("two")) as hub:
        await fresh(hub)
    world.peer.always = 3600.0
    async with world.hub(server()) as hub:
        assert freshness(hub)[CatalogKind.TOOL] is Freshness.STALE
        assert names(hub) == [b'{"name":"a"}']
    async with world.hub(server(command="another")) as hub:
        assert hub.catalog.select(CatalogFilter()) == []
        assert names(hub) == []


async def test_the_lists_of_a_removed_server_are_gone(world: World, watching: Any) -> None:
    Shelf(world.peers["new"], "a")
    async with world.hub() as hub:
        await hub.servers.add(server("new"))
        watch = watching(hub.catalog.watch(CatalogFilter()))
        await until(lambda: any(e.record and e.record.freshness is Freshness.FRESH for e in watch.events))
        await hub.servers.remove("new")
        await until(lambda: watch.kinds()[-1] == "removed")
        assert watch.events[-1].id == "new/tool"
        with pytest.raises(NotFound):
            hub.catalog.select(CatalogFilter(server="new"))
        await watch.stop()
    async with world.hub() as hub:
        assert hub.catalog.select(CatalogFilter()) == []


# Servers of 2026-07-28, which tell only those who listen


async def test_a_handshake_server_is_not_listened_to(world: World) -> None:
    Shelf(world.peer, "a")
    async with world.hub(server()) as hub:
        await fresh(hub)
    assert world.peer.subscriptions == []


async def test_a_fault_that_may_pass_is_tried_again(world: World) -> None:
    shelf = Shelf(world.peer, "a")
    world.peer.listing = gives(PeerError(-32603, "not yet"))
    async with world.hub(server()) as hub:
        await until(lambda: tools(hub).fault)
        world.peer.listing = shelf.list
        await settle(61)
        assert (tools(hub).freshness, tools(hub).fault) == (Freshness.FRESH, None)
