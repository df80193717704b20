"""MCP Apps behind the endpoints: pages are rendered, what they call is served, and models do not see what is theirs."""

import asyncio
import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import CallFilter, CatalogFilter
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.core.servers.catalog import Freshness
from hubbubd.downstream import (
    EndpointSession,
    EndpointSessions,
    HostOutbox,
    HostRequest,
    McpEndpoint,
    McpHost,
    ProfileView,
    ServerView,
)
from hubbubd.downstream.hosts.introductions import select_known_parts
from hubbubd.downstream.protocol.messages import RequestMessage
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.approving import approve, asks
from ..runtime.conftest import World, question, server, until
from ..runtime.peer import Outcome, Peer, Sent
from .conftest import ADA, NEW, OLD, Refused, handles, outcome

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
ENTRY = {"mimeTypes": [MIME]}
APPS: dict[str, Any] = {"extensions": {UI: ENTRY}}
"""What a host declares that shows pages."""

OF_ONE = Principal(name="bob", grants=(Grant(Role.CALLER, ("one",)),), credential="bob")

PAGE = "ui://app/page.html"
CSP: dict[str, Any] = {
    "csp": {"connectDomains": ["https://api.example.com"]},
    "permissions": {"camera": {}},
    "domain": "ui.example",
}


def tool(name: str, *visibility: str, page: str | None = None, **meta: Any) -> dict[str, Any]:
    """The entry of a tool with a page, or for some only."""
    ui = ({"resourceUri": page} if page else {}) | ({"visibility": list(visibility)} if visibility else {})
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": ui, **meta}}


TOOLS = [
    tool("show", page=PAGE, **{"ui/resourceUri": PAGE}),
    tool("poll", "app", page=PAGE),
    tool("only-model", "model", page=PAGE),
    {"name": "plain"},
]


def has_app(peer: Peer, era: Era = Era.HANDSHAKE, tools: list[dict[str, Any]] | None = None) -> None:
    """Has a peer offer an app: its page is not in its list of resources."""
    stamp = {"resultType": "complete"} if era is Era.STATELESS else {}
    members: dict[str, tuple[str, list[dict[str, Any]]]] = {
        "tools/list": ("tools", TOOLS if tools is None else tools),
        "resources/list": ("resources", []),
        "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "part://{id}", "name": "p"}]),
    }

    async def listing(sent: Sent) -> Outcome:
        member, entries = members[sent.method]
        return {member: entries, **stamp}

    async def behaviour(sent: Sent) -> Outcome:
        if sent.method != "resources/read":
            return {"content": [], "_meta": {"ui": {"resourceUri": PAGE}}, **stamp}
        if sent.params["uri"] not in (PAGE, "part://1"):
            raise PeerError(-32602, "no such page", {"uri": sent.params["uri"]})
        page: dict[str, Any] = {
            "uri": sent.params["uri"],
            "mimeType": MIME,
            "text": f"<a href='{PAGE}'>",
            "_meta": {"ui": CSP},
        }
        return {"contents": [page, {"uri": "ui://app/other"}], **stamp}

    peer.era = era
    peer.capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    peer.listing, peer.behaviour = listing, behaviour


async def listed(hub: Hub) -> None:
    """Waits until all lists have been fetched."""

    def are_known() -> bool:
        found = [each.freshness for each in hub.catalog.select(CatalogFilter())]
        return bool(found) and all(each in (Freshness.FRESH, Freshness.EMPTY) for each in found)

    await until(are_known)


@pytest.fixture(params=[Era.HANDSHAKE, Era.STATELESS], ids=["server-2025", "server-2026"])
async def hub(world: World, request: pytest.FixtureRequest) -> Any:
    """A hub with two servers with the same app, and one without."""
    for name in ("one", "two"):
        has_app(world.peers[name], request.param)
    has_app(world.peers["three"], request.param, [{"name": "poll"}, {"name": "show"}])
    async with world.hub(server("one"), server("two"), server("three")) as hub:
        await until(lambda: all(hub.catalog.entries(f"{name}/tool") for name in ("one", "two", "three")))
        await listed(hub)
        yield hub


class Host:
    """A host at a profile, or at the endpoint of the server `one`, in either kind of revision."""

    def __init__(
        self,
        hub: Hub,
        revision: str = OLD,
        capabilities: dict[str, Any] = APPS,
        principal: Principal = ADA,
        *,
        at_server: bool = False,
        **settings: Any,
    ) -> None:
        kept = ProfileSettings(**settings)
        self.hub = hub
        self.view = ServerView(hub, "one") if at_server else ProfileView(hub, "p", lambda: kept)
        self.endpoint = McpEndpoint(hub, self.view, handles(hub))
        _, read = select_known_parts({}, capabilities)
        self.host = McpHost(principal=principal, revision=revision, capabilities=read)
        self.session = EndpointSession(self.host, self.endpoint, hub.clock.steady)
        self._id = 0

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request. Raises Refused."""
        self._id += 1
        if not self.host.stateless:
            return outcome(await self.session.begin(RequestMessage(self._id, method, params), HostOutbox()))
        request = HostRequest(id=self._id, method=method, params=params, host=self.host, send=lambda _: None)
        return outcome(await self.endpoint.serve(request))

    async def tools(self) -> dict[str, dict[str, Any]]:
        """The tools of servers that it sees, by name."""
        found = (await self.ask("tools/list"))["tools"]
        return {each["name"]: each for each in found if not each["name"].startswith("hubbub_")}

    async def call(self, name: str) -> Call:
        """Calls a tool and returns the call that the hub has made of it. Raises Refused."""
        before = {call.id for call in self.hub.calls.select(CallFilter())}
        await self.ask("tools/call", name=name, arguments={})
        [made] = [call for call in self.hub.calls.select(CallFilter()) if call.id not in before]
        return made

    async def extensions(self) -> dict[str, Any]:
        """What the endpoint declares."""
        method = "server/discover" if self.host.stateless else "initialize"
        return (await self.ask(method))["capabilities"].get("extensions", {})


BOTH = pytest.mark.parametrize("revision", [OLD, NEW])


@BOTH
async def test_a_profile_declares_the_extension_for_the_pages_of_its_servers_tools(hub: Hub, revision: str) -> None:
    assert (await Host(hub, revision).extensions())[UI] == ENTRY
    assert UI not in await Host(hub, revision, servers=["three"]).extensions()
    assert UI not in await Host(hub, revision, resources=False).extensions()
    assert UI not in await Host(hub, revision, at_server=True).extensions()


@BOTH
async def test_a_server_that_declares_pages_has_them_declared_at_its_own_endpoint(world: World, revision: str) -> None:
    has_app(world.peers["one"])
    world.peers["one"].capabilities |= {"extensions": {UI: {"mimeTypes": [MIME, "text/x"]}, "io.example/other": {}}}
    async with world.hub(server("one"), server("two", apps=False)) as hub:
        await listed(hub)
        found = await Host(hub, revision, at_server=True).extensions()
        assert found[UI] == {"mimeTypes": [MIME, "text/x"]}
        assert "io.example/other" not in found
        assert (await Host(hub, revision).extensions())[UI] == {"mimeTypes": [MIME, "text/x"]}


@BOTH
async def test_a_tool_leads_to_its_page_and_the_page_is_as_its_server_has_it(hub: Hub, revision: str) -> None:
    host = Host(hub, revision)
    tools = await host.tools()
    for name in ("one", "two"):
        meta = tools[f"{name}__show"]["_meta"]
        shown = f"ui://{name}+app/page.html"
        assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"] == shown
        page, other = (await host.ask("resources/read", uri=shown))["contents"]
        assert page == {"uri": shown, "mimeType": MIME, "text": f"<a href='{PAGE}'>", "_meta": {"ui": CSP}}
        assert other["uri"] == f"ui://{name}+app/other"
        result = await host.ask("tools/call", name=f"{name}__show")
        assert result["_meta"]["ui"]["resourceUri"] == shown


@BOTH
async def test_a_page_is_returned_under_the_uri_that_was_asked_for(hub: Hub, revision: str) -> None:
    host = Host(hub, revision, principal=OF_ONE)
    for uri in ("ui://one+app/page.html", f"hubbub://s/one/{PAGE}", PAGE):
        page, other = (await host.ask("resources/read", uri=uri))["contents"]
        assert (page["uri"], page["_meta"]) == (uri, {"ui": CSP})
        assert other["uri"] == "ui://one+app/other"


@BOTH
async def test_an_own_uri_that_several_servers_have_is_of_the_one_whose_page_was_read(hub: Hub, revision: str) -> None:
    host = Host(hub, revision)
    for uri in (PAGE, "part://1"):
        with pytest.raises(Refused, match="several servers have it"):
            await host.ask("resources/read", uri=uri)
    await host.ask("resources/read", uri="ui://two+app/page.html")
    for uri in (PAGE, "part://1"):
        assert (await host.ask("resources/read", uri=uri))["contents"][0]["uri"] == uri
    assert [call.server for call in hub.calls.select(CallFilter())] == ["two", "two", "two"]


@BOTH
async def test_hosts_that_show_no_pages_do_not_see_tools_of_pages(hub: Hub, revision: str) -> None:
    plain, shows = Host(hub, revision, {}), Host(hub, revision)
    app_only = {"one__poll", "two__poll"}
    assert set(await shows.tools()) - set(await plain.tools()) == app_only
    assert "three__poll" in await plain.tools()
    at_server = Host(hub, revision, {}, at_server=True)
    assert set(await at_server.tools()) == {"show", "only-model", "plain"}
    assert set(await Host(hub, revision, at_server=True).tools()) == {"show", "poll", "only-model", "plain"}
    with pytest.raises(Refused, match="for the pages of one alone") as refused:
        await plain.ask("tools/call", name="one__poll")
    assert refused.value.code == -32602


@BOTH
async def test_with_search_tools_with_pages_are_listed_for_hosts_that_show_them(hub: Hub, revision: str) -> None:
    search: dict[str, Any] = {"tools": "search", "servers": ["one", "three"]}
    shows, plain = Host(hub, revision, **search), Host(hub, revision, {}, **search)
    assert set(await shows.tools()) == {"one__show", "one__poll", "one__only-model"}
    assert await plain.tools() == {}
    for host in (shows, plain):
        found = await host.ask("tools/call", name="hubbub_search_tools", arguments={"query": "poll show"})
        names = {each["name"] for each in json.loads(found["content"][0]["text"])}
        assert names == {"one__show", "three__poll", "three__show"}
        for name in ("one__poll", "poll"):
            with pytest.raises(Refused):
                await host.ask("tools/call", name="hubbub_call_tool", arguments={"name": name})
    assert list(hub.calls.select(CallFilter())) == []


@BOTH
async def test_a_page_calls_its_servers_tools_by_their_own_names(hub: Hub, revision: str) -> None:
    host = Host(hub, revision, servers=["one", "three"])
    for name in ("show", "poll", "plain"):
        made = await host.call(name)
        assert (made.server, json.loads(made.params)["name"], made.origin.app) == ("one", name, True)
        assert made.origin.roles == ("caller",)
    assert not (await host.call("one__show")).origin.app
    assert (await host.call("one__poll")).origin.app


@BOTH
async def test_a_name_of_several_servers_is_of_the_one_whose_page_was_read(hub: Hub, revision: str) -> None:
    host = Host(hub, revision)
    with pytest.raises(Refused, match="call one__poll or two__poll") as refused:
        await host.ask("tools/call", name="poll")
    assert refused.value.code == -32602
    await host.ask("resources/read", uri="ui://two+app/page.html")
    assert (await host.call("poll")).server == "two"
    assert (await Host(hub, revision, principal=OF_ONE).call("poll")).server == "one"
    await host.ask("resources/read", uri="ui://one+app/page.html")
    with pytest.raises(Refused, match="several servers"):
        await host.ask("tools/call", name="poll")


async def test_a_page_calls_nothing_that_its_server_does_not_have(world: World) -> None:
    has_app(world.peers["one"], tools=[tool("show", page=PAGE)])
    has_app(world.peers["two"])
    async with world.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host = Host(hub)
        await host.ask("resources/read", uri="ui://one+app/page.html")
        for name, says in (("poll", "of which this session has read no page"), ("two__poll", "for the pages of two")):
            with pytest.raises(Refused, match=says):
                await host.ask("tools/call", name=name)
        assert (await host.call("show")).server == "one"
        await host.ask("resources/read", uri="ui://two+app/page.html")
        assert [(await host.call(name)).server for name in ("poll", "two__poll")] == ["two", "two"]


@pytest.mark.parametrize("read", [[], ["ui://one+app/page.html"]])
async def test_what_is_known_of_one_connection_alone_refuses_no_page(hub: Hub, read: list[str]) -> None:
    host = Host(hub, NEW)
    for uri in read:
        await host.ask("resources/read", uri=uri)
    assert (await host.call("two__poll")).server == "two"


@BOTH
@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("only-model", {"servers": ["one"]}, "does not let pages call"),
        ("nothing", {}, "no tool 'nothing'"),
        ("two__poll", {"servers": ["one"]}, "no tool"),
        ("poll", {"servers": ["three"]}, "no tool 'poll'"),
        ("poll", {"deny_tools": ["*__poll"]}, "no tool 'poll'"),
        ("ui://one+app/page.html", {}, "no tool"),
        ("one__show\u0000" + "x" * 9000, {}, "characters"),
        ("", {}, "no tool ''"),
    ],
)
async def test_what_a_page_may_not_call_is_refused_and_reaches_nobody(
    hub: Hub, revision: str, name: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        await Host(hub, revision, **settings).ask("tools/call", name=name, arguments={})
    assert refused.value.code == -32602
    assert list(hub.calls.select(CallFilter())) == []


@BOTH
async def test_pages_call_nothing_of_servers_out_of_reach_nor_in_hosts_that_show_none(hub: Hub, revision: str) -> None:
    of_three = Principal(name="eve", grants=(Grant(Role.CALLER, ("three",)),), credential="eve")
    for host in (Host(hub, revision, principal=of_three), Host(hub, revision, {}, servers=["one"])):
        with pytest.raises(Refused, match="no tool 'poll'"):
            await host.ask("tools/call", name="poll", arguments={})
        with pytest.raises(Refused):
            await Host(hub, revision, principal=of_three).ask("resources/read", uri="ui://one+app/page.html")
    assert [call.server for call in hub.calls.select(CallFilter())] == []


async def test_a_server_cannot_take_anothers_page_by_listing_its_shown_uri(world: World) -> None:
    has_app(world.peers["one"])
    has_app(world.peers["two"], tools=[tool("show", page="ui://one+app/page.html")])
    async with world.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host = Host(hub)
        await host.ask("resources/read", uri="ui://one+app/page.html")
        assert [(call.server, json.loads(call.params)["uri"]) for call in hub.calls.select(CallFilter())] == [
            ("one", PAGE)
        ]
        tools = await host.tools()
        assert tools["two__show"]["_meta"]["ui"]["resourceUri"] == "ui://two+one+app/page.html"


async def test_a_server_whose_own_uri_looks_as_if_it_was_shown_is_asked_for_it(world: World) -> None:
    odd = "ui://one+v2/page.html"
    has_app(world.peers["one"], tools=[tool("show", page=odd)])
    async with world.hub(server("one")) as hub:
        await listed(hub)
        for uri in (odd, "ui://one+one+v2/page.html"):
            with pytest.raises(Refused, match="no such page"):
                await Host(hub).ask("resources/read", uri=uri)
        assert {json.loads(call.params)["uri"] for call in hub.calls.select(CallFilter())} == {odd}


async def test_a_host_is_told_of_a_changed_page_by_the_uri_that_it_knows(hub: Hub, world: World) -> None:
    host = Host(hub)
    for uri in ("ui://one+app/page.html", f"hubbub://s/two/{PAGE}"):
        await host.ask("resources/subscribe", uri=uri)
    for name in ("one", "two"):
        world.peers[name].link.tell("notifications/resources/updated", {"uri": PAGE})
    told = [json.loads(message) for message in host.session.outlet.take_all()]
    assert [each["params"]["uri"] for each in told] == ["ui://one+app/page.html", f"hubbub://s/two/{PAGE}"]


async def test_an_operator_turns_the_apps_of_a_server_off(world: World) -> None:
    has_app(world.peers["one"])
    async with world.hub(server("one", apps=False)) as hub:
        await listed(hub)
        host = Host(hub)
        assert UI not in await host.extensions()
        with pytest.raises(Refused, match="no tool 'poll'"):
            await host.ask("tools/call", name="poll")


@BOTH
async def test_a_call_carries_what_its_host_says_of_pages(hub: Hub, world: World, revision: str) -> None:
    able = "io.modelcontextprotocol/clientCapabilities"
    for capabilities, expected in ((APPS, ENTRY), ({}, None)):
        await Host(hub, revision, capabilities, servers=["one"]).ask("tools/call", name="one__show")
        declared = world.peers["one"].sent[-1].params.get("_meta", {}).get(able, {})
        assert declared.get("extensions", {}).get(UI) == expected


@BOTH
async def test_bare_servers_have_names_as_their_pages_know_them(hub: Hub, revision: str) -> None:
    host = Host(hub, revision, bare=["t*", "one"])
    assert set(await host.tools()) == {
        *("show", "poll", "only-model", "plain"),
        *("three__poll", "three__show"),
        *("two__show", "two__poll", "two__only-model", "two__plain"),
    }
    assert (await host.call("poll")).server == "one"
    assert (await host.call("two__poll")).server == "two"


@BOTH
async def test_what_a_page_calls_is_approved_and_denied_like_any_other_call(world: World, revision: str) -> None:
    has_app(world.peers["one"])
    world.settings |= asks(tools=["poll"])
    async with world.hub(server("one", deny_tools=("plain",))) as hub:
        await listed(hub)
        host = Host(hub, revision)
        calling = asyncio.create_task(host.call("poll"))
        request = await question(hub)
        assert request.kind is RequestKind.APPROVAL
        assert json.loads(request.request)["caller"]["app"] is True
        await approve(hub, request)
        assert (await calling).origin.app
        with pytest.raises(Refused, match="no tool 'plain'"):
            await host.ask("tools/call", name="plain")


async def test_a_session_knows_after_a_restart_of_the_hub_whose_page_it_has_read(world: World) -> None:
    profile, session_id = ProfileSettings(), ""
    for name in ("one", "two"):
        has_app(world.peers[name])
    for life in range(2):
        async with world.hub(server("one"), server("two")) as hub:
            await listed(hub)
            endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: profile), handles(hub))
            sessions = EndpointSessions(hub)
            if life == 0:
                host = McpHost(principal=ADA, revision=OLD, capabilities=APPS)
                session = await sessions.begin(host, endpoint)
                session_id = session.id
                read = RequestMessage(1, "resources/read", {"uri": "ui://two+app/page.html"})
                outcome(await session.begin(read, HostOutbox()))
            else:
                session = await sessions.find(session_id, ADA, endpoint)
                outcome(await session.begin(RequestMessage(1, "tools/call", {"name": "poll"}), HostOutbox()))
                assert [call.server for call in hub.calls.select(CallFilter()) if call.origin.app] == ["two"]
            sessions.close()
