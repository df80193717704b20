"""What a profile shows of several servers, and where what a host names there is."""

import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.filters import CatalogFilter
from hubbubd.core.servers.catalog import CatalogKind, Freshness
from hubbubd.downstream import HostRequest, McpEndpoint, McpHost, ProfileView
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.hub import Hub

from ..runtime.conftest import World, server, until
from ..runtime.peer import Outcome, Peer, Sent
from .conftest import handles

ADA = Principal(name="ada", grants=(Grant(Role.CALLER),), credential="ada")
OF_ONE = Principal(name="bob", grants=(Grant(Role.CALLER, ("one",)),), credential="bob")

LISTS = {
    "tools/list": ("tools", [{"name": "do.it", "inputSchema": {"type": "object"}}, {"name": "other"}]),
    "prompts/list": ("prompts", [{"name": "ask"}]),
    "resources/list": ("resources", [{"uri": "file:///a", "name": "a"}]),
    "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "file:///x/{name}", "name": "x"}]),
}


def offers(peer: Peer, **others: list[dict[str, Any]]) -> None:
    """Has a peer offer what LISTS has, or other things."""

    async def listing(sent: Sent) -> Outcome:
        member, entries = LISTS[sent.method]
        return {member: others.get(member, entries)}

    peer.capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
    peer.listing = listing


async def listed(hub: Hub) -> None:
    """Waits until all lists have been fetched."""
    await until(lambda: all(each.freshness is Freshness.FRESH for each in hub.catalog.select(CatalogFilter())))


def profile(hub: Hub, **settings: Any) -> ProfileView:
    """A profile with these settings."""
    kept = ProfileSettings(**settings)
    return ProfileView(hub, "p", lambda: kept)


def shown(view: ProfileView, kind: CatalogKind, principal: Principal = ADA) -> list[str]:
    """The names, or URIs, of what a list has of servers."""
    entries = map(json.loads, view.entries(kind, principal))
    names = [each.get("uri") or each.get("uriTemplate") or each["name"] for each in entries]
    return [name for name in names if not name.startswith("hubbub_")]


@pytest.fixture
async def hub(world: World) -> Any:
    """A hub with two servers that offer the same."""
    offers(world.peers["one"])
    offers(world.peers["two"])
    async with world.hub(server("one"), server("two")) as hub:
        await listed(hub)
        yield hub


async def test_names_say_which_server_they_are_of(hub: Hub) -> None:
    view = profile(hub)
    assert shown(view, CatalogKind.TOOL) == ["one__do_it", "one__other", "two__do_it", "two__other"]
    assert shown(view, CatalogKind.PROMPT) == ["one__ask", "two__ask"]
    assert shown(view, CatalogKind.RESOURCE) == ["hubbub://s/one/file:///a", "hubbub://s/two/file:///a"]
    assert shown(view, CatalogKind.TEMPLATE) == ["hubbub://s/one/file:///x/{name}", "hubbub://s/two/file:///x/{name}"]


async def test_what_is_shown_leads_to_its_server_and_its_own_name(hub: Hub) -> None:
    view = profile(hub)
    for kind in CatalogKind:
        for name in shown(view, kind):
            target = view.find_target(kind, name, ADA)
            assert target.server in name
            assert target.name in ("do.it", "other", "ask", "file:///a", "file:///x/{name}")


async def test_what_a_principal_may_not_call_does_not_exist_for_it(hub: Hub) -> None:
    view = profile(hub)
    assert shown(view, CatalogKind.TOOL, OF_ONE) == ["one__do_it", "one__other"]
    assert view.servers(OF_ONE) == ["one"]
    for kind, name in ((CatalogKind.TOOL, "two__other"), (CatalogKind.RESOURCE, "hubbub://s/two/file:///a")):
        with pytest.raises(NotFound):
            view.find_target(kind, name, OF_ONE)


async def test_an_original_uri_is_taken_where_only_one_server_has_it(hub: Hub) -> None:
    view = profile(hub)
    with pytest.raises(InvalidArgument, match="hubbub://s/one/file:///a and hubbub://s/two/file:///a"):
        view.find_target(CatalogKind.RESOURCE, "file:///a", ADA)
    assert view.find_target(CatalogKind.RESOURCE, "file:///a", OF_ONE).server == "one"
    assert view.find_target(CatalogKind.RESOURCE, "file:///x/any", OF_ONE).server == "one"
    with pytest.raises(NotFound):
        view.find_target(CatalogKind.RESOURCE, "file:///b", ADA)


async def test_a_profile_shows_what_its_settings_let_through(hub: Hub) -> None:
    view = profile(hub, servers=["t*"], deny_tools=["*__other"], prompts=False, resources=False)
    assert shown(view, CatalogKind.TOOL) == ["two__do_it"]
    assert [shown(view, kind) for kind in (CatalogKind.PROMPT, CatalogKind.RESOURCE, CatalogKind.TEMPLATE)] == [
        [],
        [],
        [],
    ]
    for name in ("two__other", "one__do_it"):
        with pytest.raises(NotFound):
            view.find_target(CatalogKind.TOOL, name, ADA)


async def test_what_is_not_shown_cannot_be_named_either(hub: Hub) -> None:
    view = profile(hub, prompts=False, resources=False)
    for kind, name in ((CatalogKind.PROMPT, "one__ask"), (CatalogKind.RESOURCE, "hubbub://s/one/file:///a")):
        with pytest.raises(NotFound):
            view.find_target(kind, name, ADA)


async def test_a_changed_list_and_changed_settings_are_seen_at_once(world: World) -> None:
    offers(world.peer)
    async with world.hub() as hub:
        await hub.servers.add(server("one"))
        await until(lambda: hub.catalog.select(CatalogFilter()))
        await listed(hub)
        settings = [ProfileSettings()]
        view = ProfileView(hub, "p", lambda: settings[0])
        assert shown(view, CatalogKind.TOOL) == ["one__do_it", "one__other"]
        settings[0] = ProfileSettings(allow_tools=("*__other",))
        assert shown(view, CatalogKind.TOOL) == ["one__other"]
        offers(world.peer, tools=[{"name": "another"}, {"name": "other"}])
        await hub.catalog.refresh("one")
        assert shown(view, CatalogKind.TOOL) == ["one__other"]
        settings[0] = ProfileSettings()
        assert shown(view, CatalogKind.TOOL) == ["one__another", "one__other"]
        await hub.servers.remove("one")
        assert shown(view, CatalogKind.TOOL) == []


async def test_results_name_resources_as_the_lists_do(hub: Hub) -> None:
    view, result = profile(hub), b'{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}]}'
    assert json.loads(view.render_result("one", result))["content"][0]["uri"] == "hubbub://s/one/file:///a"
    plain = b'{"content":[{"type":"text","text":"1.0"}],"big":12345678901234567890123}'
    assert view.render_result("one", plain) is plain


async def ask(hub: Hub, view: ProfileView, method: str, **params: Any) -> Any:
    """The response of the profile's endpoint."""
    host = McpHost(principal=ADA, revision="2025-11-25")
    exchange = HostRequest(id=1, method=method, params=params, host=host, send=lambda _: None)
    return json.loads(await McpEndpoint(hub, view, handles(hub)).serve(exchange))


async def test_tools_can_be_searched_for_instead_of_listed(hub: Hub) -> None:
    view = profile(hub, tools="search", always=["two__other"])
    listed = (await ask(hub, view, "tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in listed] == [
        "hubbub_search_tools",
        "hubbub_call_tool",
        "hubbub_result",
        "two__other",
    ]
    found = await ask(hub, view, "tools/call", name="hubbub_search_tools", arguments={"query": "do it"})
    tools = json.loads(found["result"]["content"][0]["text"])
    assert [tool["name"] for tool in tools] == ["one__do_it", "two__do_it"]
    assert tools[0]["inputSchema"] == {"type": "object"}
    wrapped = {"name": "one__do_it", "arguments": {"x": 1}}
    called = await ask(hub, view, "tools/call", name="hubbub_call_tool", arguments=wrapped)
    assert called["result"]["echo"] == {"name": "do.it", "arguments": {"x": 1}}


@pytest.mark.parametrize(
    "params",
    [
        {"name": "hubbub_search_tools", "arguments": {"query": 1}},
        {"name": "hubbub_search_tools", "arguments": []},
        {"name": "hubbub_call_tool", "arguments": {"name": 1}},
        {"name": "hubbub_call_tool", "arguments": {"name": "one__do_it", "arguments": []}},
        {"name": "hubbub_call_tool", "arguments": {"name": "one__none"}},
    ],
)
async def test_a_wrong_search_or_call_is_an_error_that_says_so(hub: Hub, params: dict[str, Any]) -> None:
    assert (await ask(hub, profile(hub, tools="search"), "tools/call", **params))["error"]["code"] == -32602


async def test_the_tools_to_search_with_are_not_there_where_all_tools_are_listed(hub: Hub) -> None:
    view = profile(hub)
    refused = await ask(hub, view, "tools/call", name="hubbub_search_tools", arguments={"query": "do it"})
    assert refused["error"]["code"] == -32602
