"""What hosts are shown of twenty servers, one of which answers nothing."""

from typing import Any

import anyio
import pytest

from hubbubd.config.mcp import ProfileSettings
from hubbubd.core.catalog import Freshness
from hubbubd.core.filters import CatalogFilter
from hubbubd.downstream import Endpoint, Host, Merged
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import World, server, until
from ..runtime.peer import Behaviour, Outcome, Sent, never
from .conftest import handles
from .scripted import REVISIONS, ScriptedHost, principal

SERVERS = [f"server{number:02}" for number in range(20)]
SILENT = SERVERS[7]
TOOLS = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(50)]


async def fifty_tools(_sent: Sent) -> Outcome:
    return {"tools": TOOLS}


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
    endpoint = Endpoint(hub, Merged(hub, "p", ProfileSettings), handles(hub))
    return ScriptedHost(endpoint, Host(principal=principal(), revision=REVISIONS[era]), clock=hub.clock.steady)


async def at_once(host: ScriptedHost) -> dict[str, Any]:
    """The list of tools, which takes no time, and is the same again."""
    before = anyio.current_time()
    listed, again = await host.call("tools/list"), await host.call("tools/list")
    assert anyio.current_time() == before
    assert listed["result"] == again["result"]
    return listed["result"]


def servers_of(result: dict[str, Any]) -> list[str]:
    return sorted({tool["_meta"]["hubbub/server"] for tool in result["tools"] if "_meta" in tool})


@pytest.mark.parametrize("era", Era)
async def test_the_tools_of_twenty_servers_are_listed_whole_and_in_one_order(world: World, era: Era) -> None:
    offers(world)
    async with world.hub(*map(server, SERVERS)) as hub:
        await listed(hub, len(SERVERS))
        host = host_of_all(hub, era)
        names = [tool["name"] for tool in (await at_once(host))["tools"] if "_meta" in tool]
        assert names == [f"{name}__{tool['name']}" for name in SERVERS for tool in TOOLS]


@pytest.mark.parametrize("era", Era)
async def test_a_server_that_never_lists_its_tools_holds_up_none_of_the_others(world: World, era: Era) -> None:
    offers(world, listing=never)
    async with world.hub(*map(server, SERVERS)) as hub:
        await listed(hub, len(SERVERS) - 1)
        assert servers_of(await at_once(host_of_all(hub, era))) == [name for name in SERVERS if name != SILENT]


@pytest.mark.parametrize("era", Era)
async def test_a_server_that_never_connects_holds_up_none_of_the_others(world: World, era: Era) -> None:
    offers(world)
    world.peers[SILENT].always = 10_000.0
    async with world.hub(*map(server, SERVERS)) as hub:
        await listed(hub, len(SERVERS) - 1)
        assert servers_of(await at_once(host_of_all(hub, era))) == [name for name in SERVERS if name != SILENT]


@pytest.mark.parametrize("era", Era)
async def test_a_server_that_answers_no_more_is_listed_as_before_and_others_are_called(world: World, era: Era) -> None:
    offers(world)
    async with world.hub(*map(server, SERVERS)) as hub:
        await listed(hub, len(SERVERS))
        silent = world.peers[SILENT]
        silent.listing = silent.behaviour = never
        silent.link.tell("notifications/tools/list_changed")
        host = host_of_all(hub, era)
        assert servers_of(await at_once(host)) == SERVERS
        with anyio.move_on_after(1.0) as limit:
            assert "result" in await host.call(name=f"{SERVERS[0]}__tool0")
        assert not limit.cancelled_caught
