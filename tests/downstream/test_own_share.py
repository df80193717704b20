"""Each host sees and hears what its principal may, and nothing any more once it has left."""

import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.downstream import HostOutbox, HostRequest, McpEndpoint, McpHost, ProfileView, ServerView
from hubbubd.runtime.hub import Hub

from ..runtime.conftest import World, server
from .conftest import ADA, NEW, OLD, NewHost, OldHost, Opened, handles, lists, settle, until

TOOLS = "notifications/tools/list_changed"
MESSAGE = "notifications/message"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
ALL = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}


def only(name: str) -> Principal:
    return Principal(name=f"of-{name}", grants=(Grant(Role.CALLER, (name,)),), credential=name)


@pytest.fixture
async def hub(world: World) -> Any:
    """A hub with the servers `one` and `two`, which offer as many tools."""
    for name in ("one", "two"):
        world.peers[name].capabilities = ALL
        world.peers[name].listing = lists(tools=[{"name": "a", "description": "alike"}])
    async with world.hub(server("one"), server("two")) as hub:
        await until(lambda: all(hub.catalog.entries(f"{name}/tool") for name in ("one", "two")))
        yield hub


async def ask(endpoint: McpEndpoint, principal: Principal, method: str, **params: Any) -> Any:
    host = McpHost(principal=principal, revision=OLD)
    exchange = HostRequest(id=1, method=method, params=params, host=host, send=lambda _: None)
    return json.loads(await endpoint.serve(exchange))["result"]


async def test_a_search_finds_nothing_of_servers_out_of_reach(hub: Hub) -> None:
    settings = ProfileSettings(tools="search")
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: settings), handles(hub))
    search = {"name": "hubbub_search_tools", "arguments": {"query": "alike"}}
    for name in ("one", "two"):
        found = await ask(endpoint, only(name), "tools/call", **search)
        assert [tool["name"] for tool in json.loads(found["content"][0]["text"])] == [f"{name}__a"]


async def test_a_host_of_one_server_is_not_told_of_lists_of_others(hub: Hub, world: World) -> None:
    told: list[bytes] = []
    endpoint = McpEndpoint(hub, ServerView(hub, "one"), handles(hub))
    standing = endpoint.make_notifications(
        McpHost(principal=ADA, revision=OLD), lambda message, unless_queued: told.append(message)
    )
    world.peers["two"].link.tell(TOOLS)
    await settle(2)
    assert told == []
    world.peers["one"].link.tell(TOOLS)
    await settle(2)
    assert len(told) == 1
    standing.close()


async def test_a_host_that_has_left_is_told_nothing_and_wants_nothing(hub: Hub, world: World) -> None:
    told: list[bytes] = []
    endpoint, peer = McpEndpoint(hub, ProfileView(hub, "p", ProfileSettings), handles(hub)), world.peers["three"]
    standing = endpoint.make_notifications(
        McpHost(principal=ADA, revision=OLD), lambda message, unless_queued: told.append(message)
    )
    await standing.set_level("debug")
    peer.capabilities, peer.listing = ALL, lists(tools=[{"name": "c"}])
    hub.catalog.notify_all()  # it would look soon
    standing.close()
    await hub.servers.add(server("three"))
    await until(lambda: hub.catalog.entries("three/tool"))
    peer.link.tell(MESSAGE, {"level": "error", "data": 1})
    await settle(2)
    assert told == []
    assert [each for each in peer.fetches if each.method == "logging/setLevel"] == []


async def test_the_level_of_a_request_is_wanted_no_longer_than_the_request_lasts(place: Opened) -> None:
    async with place(OLD, capabilities=ALL, listing=lists(tools=[])) as at:
        await at.new().ask("tools/call", name="t", _meta={LOG_LEVEL: "debug"})
        await at.old().ask("logging/setLevel", level="error")
        levels = [each.params["level"] for each in at.peer.fetches if each.method == "logging/setLevel"]
        assert levels == ["debug", "error"]


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_what_a_host_says_of_itself_stays_between_it_and_the_hub(place: Opened, revision: str) -> None:
    async with place(OLD) as at:
        host: OldHost | NewHost = at.host(revision)
        own = {"io.modelcontextprotocol/clientInfo": {"name": "h"}, "traceparent": "00-1", "x/own": 1}
        await host.ask("tools/call", name="t", _meta=own)
        assert at.peer.sent[0].params["_meta"] == {"x/own": 1}


def test_a_host_that_reads_nothing_loses_its_stream_and_takes_no_more_memory() -> None:
    outlet = HostOutbox(max_bytes=100)
    for _ in range(1000):
        outlet.send(b"x" * 30)
    assert (outlet.closed, outlet.overrun) == (True, True)
    assert sum(map(len, outlet.take_all())) <= 100
