"""What a host has read of apps' pages decides which server a page calls: never the wrong one."""

import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.hosts.app_tools import PagesRead
from hubbubd.core.hosts.host_sessions import MAX_READ_FROM, HostSession, with_page_of
from hubbubd.core.tasks import EXTENSION as TASKS
from hubbubd.downstream import EndpointSessions, HostProcesses, McpHost
from hubbubd.downstream.protocol.messages import RequestMessage
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.runtime.hub import Hub

from ..runtime.conftest import World, server, settle, until
from .conftest import ADA, NEW, OLD, HostOutbox, Refused, outcome
from .test_apps import APPS, ENTRY, OF_ONE, PAGE, TOOLS, UI, Host, has_app, hub, listed, tool

__all__ = ["hub"]

ENDPOINT = "p/p"


def servers_read(host: McpHost) -> set[str]:
    """The servers whose pages a host has read, as the hub knows it."""
    return set(host.pages_read.servers if host.pages_read is not None else ())


def process(processes: HostProcesses, connection: str) -> McpHost:
    """A request of a host without sessions, over a connection."""
    host = McpHost(principal=ADA, revision=NEW, capabilities=APPS)
    processes.recognise(host, ENDPOINT, connection)
    return host


def test_a_page_that_was_read_over_one_connection_counts_for_calls_over_another() -> None:
    processes = HostProcesses()
    process(processes, "a").note_read("two", PAGE)
    process(processes, "b").note_read("one", PAGE)
    for connection in ("a", "b", "c"):
        assert servers_read(process(processes, connection)) == {"one", "two"}


def test_a_process_that_is_known_by_its_stream_or_its_bridge_has_read_what_it_has_read_itself() -> None:
    processes = HostProcesses()
    process(processes, "a").note_read("two", PAGE)
    listener = McpHost(principal=ADA, revision=NEW, capabilities=APPS)
    with processes.note_stream(listener, ENDPOINT, "b"):
        process(processes, "c").note_read("one", PAGE)
        assert servers_read(process(processes, "d")) == {"one"}
    bridges = HostProcesses(has_bridges=True)
    process(bridges, "a").note_read("two", PAGE)
    process(bridges, "b").note_read("one", PAGE)
    assert servers_read(process(bridges, "a")) == {"two"}


def test_several_processes_with_streams_count_as_one_that_has_read_what_all_have() -> None:
    processes = HostProcesses()
    first, second = (McpHost(principal=ADA, revision=NEW, capabilities=APPS) for _ in range(2))
    with processes.note_stream(first, ENDPOINT, "a"), processes.note_stream(second, ENDPOINT, "b"):
        process(processes, "c").note_read("two", PAGE)
        assert servers_read(process(processes, "d")) == {"two"}


def test_a_session_remembers_the_servers_whose_pages_it_has_read_last() -> None:
    session = HostSession(
        id="s",
        principal="ada",
        credential="",
        endpoint="p/p",
        revision=OLD,
        info=b"{}",
        capabilities=b"{}",
        begun_at=0,
        used_at=0,
    )
    kept: HostSession | None = session
    for number in range(MAX_READ_FROM + 2):
        kept = with_page_of(f"s{number}", kept)
    assert kept.read_from == tuple(f"s{number}" for number in range(2, MAX_READ_FROM + 2))
    assert with_page_of("s5", kept) is kept


@pytest.fixture
def world_of_two(world: World) -> World:
    """Two servers with the same app."""
    for name in ("one", "two"):
        has_app(world.peers[name])
    return world


async def read(sessions: EndpointSessions, host: Host, id_: str, name: str) -> Any:
    """Reads a server's page in a session that is found by its id, as each request finds it."""
    session = await sessions.find(id_, ADA, host.endpoint)
    assert session is not None
    uri = f"ui://{name}+app/page.html"
    return outcome(await session.begin(RequestMessage(name, "resources/read", {"uri": uri}), HostOutbox()))


async def test_a_session_knows_after_a_restart_which_pages_it_has_read(world_of_two: World) -> None:
    async with world_of_two.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host, sessions = Host(hub), EndpointSessions(hub)
        session = await sessions.begin(McpHost(principal=ADA, revision=OLD, capabilities=APPS), host.endpoint)
        await read(sessions, host, session.id, "two")
        sessions.close()
    async with world_of_two.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host, sessions = Host(hub), EndpointSessions(hub)
        await read(sessions, host, session.id, "one")
        again = await sessions.find(session.id, ADA, host.endpoint)
        assert again is not None
        with pytest.raises(Refused, match="call one__poll or two__poll"):
            outcome(await again.begin(RequestMessage("poll", "tools/call", {"name": "poll"}), HostOutbox()))
        sessions.close()


async def test_what_a_session_has_read_at_one_member_is_known_at_another(world_of_two: World) -> None:
    async with world_of_two.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host, here, there = Host(hub), EndpointSessions(hub), EndpointSessions(hub)
        session = await here.begin(McpHost(principal=ADA, revision=OLD, capabilities=APPS), host.endpoint)
        other = await there.find(session.id, ADA, host.endpoint)
        assert servers_read(other.host) == set()
        await read(here, host, session.id, "two")
        assert servers_read(other.host) == {"two"}
        here.close()
        there.close()


@pytest.mark.parametrize(("capabilities", "told"), [(APPS, True), ({}, False)])
async def test_hosts_that_show_pages_alone_hear_of_changed_tools_for_pages(
    world: World, capabilities: dict[str, Any], told: bool
) -> None:
    has_app(world.peers["one"])
    async with world.hub(server("one")) as hub:
        await listed(hub)
        host = Host(hub, capabilities=capabilities)
        await settle(3)
        host.session.outlet.take_all()
        tools = TOOLS
        for name in ("second", "third"):
            tools = [*tools, tool(name, "app", page=PAGE)]
            has_app(world.peers["one"], tools=tools)
            world.peers["one"].link.tell("notifications/tools/list_changed")
            await settle(3)
            said = [json.loads(each)["method"] for each in host.session.outlet.take_all()]
            assert ("notifications/tools/list_changed" in said) is told


async def test_a_server_cannot_take_the_page_of_one_that_is_out_of_reach_or_gone(world: World) -> None:
    has_app(world.peers["one"], tools=[tool("show", page="ui://two+app/page.html"), tool("x", page="ui://gone+x")])
    has_app(world.peers["two"])
    async with world.hub(server("one"), server("two")) as hub:
        await listed(hub)
        host = Host(hub, principal=OF_ONE)
        for uri in ("ui://two+app/page.html", "ui://gone+x", "UI://gone+x"):
            with pytest.raises(Refused, match="no resource") as refused:
                await host.ask("resources/read", uri=uri)
            assert refused.value.code == -32002
        assert list((await host.tools())["one__show"]["_meta"]["ui"].values()) == ["ui://one+two+app/page.html"]


async def test_a_message_names_a_few_of_many_servers(world: World) -> None:
    names = [f"s{number}" for number in range(12)]
    for name in names:
        has_app(world.peers[name])
    async with world.hub(*map(server, names)) as hub:
        await listed(hub)
        with pytest.raises(Refused, match="call s0__poll or s1__poll or") as refused:
            await Host(hub).ask("tools/call", name="poll")
        assert str(refused.value).count("__poll") == 10
        host = Host(hub)
        for name in ("s8", "s9"):
            await host.ask("resources/read", uri=f"ui://{name}+app/page.html")
        with pytest.raises(Refused, match=r"for pages: call s8__poll or s9__poll$"):
            await host.ask("tools/call", name="poll")


def test_a_session_that_has_read_pages_of_more_servers_than_are_remembered_refuses_none() -> None:
    host = McpHost(principal=ADA, revision=OLD, capabilities=APPS)
    for number in range(MAX_READ_FROM):
        assert host.pages_read == PagesRead({f"s{each}" for each in range(number)}, is_complete=True)
        host.note_read(f"s{number}", PAGE)
    assert not host.pages_read.is_complete


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_bare_name_for_pages_alone_is_of_the_server_whose_page_was_read(hub: Hub, revision: str) -> None:
    host = Host(hub, revision, bare=["one", "two"])
    await host.ask("resources/read", uri="ui://two+app/page.html")
    assert (await host.call("poll")).server == "two"
    await host.ask("resources/read", uri="ui://one+app/page.html")
    with pytest.raises(Refused, match="several servers have 'poll' for pages: call poll or two__poll"):
        await host.ask("tools/call", name="poll")


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_at_a_servers_own_endpoint_a_call_of_a_tool_for_pages_is_that_of_a_page(hub: Hub, revision: str) -> None:
    host = Host(hub, revision, at_server=True)
    assert [(await host.call(name)).origin.app for name in ("poll", "show", "unknown")] == [True, False, False]


@pytest.mark.parametrize("settings", [{"prefix": "never"}, {"bare": ["*"]}])
async def test_pages_stay_known_when_the_list_of_another_server_changes(world: World, settings: dict[str, Any]) -> None:
    has_app(world.peers["one"])
    has_app(world.peers["three"], tools=[{"name": "x"}])
    async with world.hub(server("one"), server("three")) as hub:
        await listed(hub)
        host = Host(hub, **settings)
        assert UI in await host.extensions()
        has_app(world.peers["three"], tools=[{"name": "other"}])
        world.peers["three"].link.tell("notifications/tools/list_changed")
        await until(lambda: b'"other"' in b"".join(hub.catalog.entries("three/tool")))
        assert {"other", "poll"} <= set(await host.tools())
        assert UI in await host.extensions()
        assert (await host.ask("resources/read", uri=PAGE))["contents"][0]["uri"] == PAGE


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_page_calls_its_own_server_though_another_has_the_name_without_a_prefix(
    hub: Hub, revision: str
) -> None:
    host = Host(hub, revision, bare=["one"])
    await host.ask("resources/read", uri="ui://two+app/page.html")
    assert (await host.call("poll")).server == "two"
    assert (await host.call("show")).server == "one"  # a model may have called it


def test_a_call_of_a_host_that_shows_pages_may_become_a_task_of_the_hub_as_well() -> None:
    declared = QuestionPolicy.from_settings(ProfileSettings(), names_server=True).call_capabilities(APPS)
    assert declared["extensions"] == {TASKS: {}, UI: ENTRY}
