"""What hosts are shown of twenty servers, one of which answers nothing."""

from typing import Any

import anyio
import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.filters import CatalogFilter
from hubbubd.core.servers.catalog import Freshness
from hubbubd.downstream import McpEndpoint, McpHost, ProfileView
from hubbubd.downstream.views.first_lists import MAX_WAIT_S, RECHECK_S
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import World, server, settle, until
from ..runtime.peer import Behaviour, Outcome, Sent, never
from .conftest import handles
from .scripted import REVISIONS, ScriptedHost, principal

SERVERS = [f"server{number:02}" for number in range(20)]
SILENT = SERVERS[7]
OTHERS = [name for name in SERVERS if name != SILENT]
TOOLS = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(50)]


async def fifty_tools(_sent: Sent) -> Outcome:
    return {"tools": TOOLS}


async def nothing_at_all(_sent: Sent) -> Outcome:
    return {"tools": []}


async def refused(_sent: Sent) -> Outcome:
    raise PeerError(-32603, "out of order")


def offers(world: World, listing: Behaviour = fifty_tools) -> None:
    """Has each server list fifty tools; the silent one does this."""
    for name in SERVERS:
        world.peers[name].capabilities = {"tools": {"listChanged": True}}
        world.peers[name].listing = listing if name == SILENT else fifty_tools


async def listed(hub: Hub, count: int) -> None:
    """Waits until the lists of so many servers have been fetched."""
    fetched = CatalogFilter()
    await until(lambda: sum(each.freshness is Freshness.FRESH for each in hub.catalog.select(fetched)) == count)


def host_of_all(hub: Hub, era: Era) -> ScriptedHost:
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", ProfileSettings), handles(hub))
    return ScriptedHost(endpoint, McpHost(principal=principal(), revision=REVISIONS[era]), clock=hub.clock.steady)


async def at_once(host: ScriptedHost) -> dict[str, Any]:
    """The list of tools, which takes no time, and is the same again."""
    before = anyio.current_time()
    listed, again = await host.call("tools/list"), await host.call("tools/list")
    assert anyio.current_time() == before
    assert listed["result"] == again["result"]
    return listed["result"]


async def waited_for(host: ScriptedHost) -> None:
    """The first lists of a server that gives none: hosts wait for it once, and not for long."""
    before = anyio.current_time()
    await host.call("tools/list")
    assert anyio.current_time() - before == pytest.approx(MAX_WAIT_S, abs=0.1)


def servers_of(result: dict[str, Any]) -> list[str]:
    return sorted({tool["_meta"]["hubbub/server"] for tool in result["tools"] if "_meta" in tool})


@pytest.mark.parametrize("era", Era)
async def test_a_server_that_never_connects_holds_up_none_of_the_others(world: World, era: Era) -> None:
    offers(world)
    world.peers[SILENT].always = 10_000.0
    async with world.hub(*map(server, SERVERS)) as hub:
        await listed(hub, len(SERVERS) - 1)
        host = host_of_all(hub, era)
        await waited_for(host)
        assert servers_of(await at_once(host)) == OTHERS


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(("connecting_s", "listing_s"), [(0.0, 1.5), (1.5, 0.0)])
async def test_a_host_that_asks_while_a_server_begins_gets_its_tools(
    world: World, era: Era, connecting_s: float, listing_s: float
) -> None:
    async def late(sent: Sent) -> Outcome:
        await anyio.sleep(listing_s)
        return await fifty_tools(sent)

    offers(world, listing=late)
    world.peers[SILENT].always = connecting_s or None
    async with world.hub(*map(server, SERVERS)) as hub:
        await settle(0.1)
        assert servers_of((await host_of_all(hub, era).call("tools/list"))["result"]) == SERVERS


@pytest.mark.parametrize("listing", [nothing_at_all, refused])
async def test_a_host_waits_no_longer_than_until_it_is_known_that_a_server_lists_nothing(
    world: World, listing: Behaviour
) -> None:
    async def late(sent: Sent) -> Outcome:
        await anyio.sleep(1.0)
        return await listing(sent)

    offers(world, listing=late)
    async with world.hub(*map(server, SERVERS)) as hub:
        await settle(0.1)
        await host_of_all(hub, Era.STATELESS).call("tools/list")
        assert world.peers[SILENT].fetches[0].at + 1.0 == pytest.approx(anyio.current_time(), abs=0.1)


@pytest.mark.parametrize("era", Era)
async def test_a_host_waits_no_longer_for_a_server_whose_first_attempt_has_failed(world: World, era: Era) -> None:
    offers(world)
    world.peers[SILENT].always = 10_000.0
    silent = server(SILENT, connect_timeout_s=0.5)
    async with world.hub(silent, *map(server, OTHERS)) as hub:
        await settle(0.1)
        before = anyio.current_time()
        assert servers_of((await host_of_all(hub, era).call("tools/list"))["result"]) == OTHERS
        assert anyio.current_time() - before < 0.4 + 2 * RECHECK_S


@pytest.mark.parametrize("era", Era)
async def test_hosts_are_answered_while_a_server_is_removed(world: World, era: Era) -> None:
    offers(world, listing=never)
    async with world.hub(*map(server, OTHERS)) as hub:
        await hub.servers.add(server(SILENT))
        await listed(hub, len(SERVERS) - 1)
        host, removed = host_of_all(hub, era), anyio.Event()
        await waited_for(host)  # so that lists take no time, and are asked for at each step of the removal

        async def ask() -> None:
            while not removed.is_set():
                assert servers_of((await host.call("tools/list"))["result"]) == OTHERS
                host.endpoint.view.introduction(principal())
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
                await anyio.lowlevel.checkpoint()
            await hub.servers.remove(SILENT)
            removed.set()
        assert servers_of(await at_once(host)) == OTHERS
