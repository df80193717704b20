"""What hosts of a profile see of its servers: lists that differ, watched resources by the URIs that are shown."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream import EndpointSession, McpEndpoint, McpHost, ProfileView
from hubbubd.runtime.hub import Hub

from ..runtime.conftest import World, server
from ..runtime.peer import Outcome, Sent
from .conftest import ADA, OLD, OldHost, handles, lists, said, settle, until

OF_ONE = Principal(name="bob", grants=(Grant(Role.CALLER, ("one",)),), credential="bob")
TOOLS = "notifications/tools/list_changed"
MESSAGE = "notifications/message"


@dataclass
class Profile:
    """A hub with the servers `one` and `two`, and the endpoint of a profile."""

    hub: Hub
    world: World
    settings: ProfileSettings = field(default_factory=ProfileSettings)

    def __post_init__(self) -> None:
        self.endpoint = McpEndpoint(self.hub, ProfileView(self.hub, "p", lambda: self.settings), handles(self.hub))

    def old(self, principal: Principal = ADA) -> OldHost:
        """A host with a session."""
        host = McpHost(principal=principal, revision=OLD)
        return OldHost(EndpointSession(host, self.endpoint, self.hub.clock.steady))

    def adopt(self, **settings: Any) -> None:
        """Changes the profile, as a reload of the configuration does."""
        self.settings = ProfileSettings(**settings)
        self.hub.catalog.notify_all()


def offer(world: World, name: str, *tools: str) -> None:
    """Has a server list these tools."""
    world.peers[name].listing = lists(tools=[{"name": tool} for tool in tools], resources=[])


def methods(host: OldHost) -> list[str]:
    """What a host received over its own stream."""
    return [each["method"] for each in said(host.stream)]


@pytest.fixture
async def profile(world: World) -> AsyncIterator[Profile]:
    """Two servers that can do all, and are connected."""
    for name in ("one", "two"):
        peer = world.peers[name]
        peer.instructions = f"Use {name}."
        peer.capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        offer(world, name, "a")
    async with world.hub(server("one"), server("two")) as hub:
        await until(lambda: all(each.connection.state is ConnectionState.CONNECTED for each in hub.servers.all()))
        await settle(3)
        yield Profile(hub, world)


async def test_a_changed_profile_is_a_change_of_what_differs(profile: Profile) -> None:
    host = profile.old()
    profile.adopt(instructions="Be kind.")
    await settle(2)
    assert methods(host) == []
    profile.adopt(servers=["one"])
    await settle(2)
    assert methods(host) == [TOOLS]


async def test_a_watched_resource_is_told_by_the_uri_that_the_host_knows(profile: Profile) -> None:
    host = profile.old()
    await host.ask("resources/subscribe", uri="hubbub://s/two/file:///a")
    for name in ("one", "two"):
        profile.world.peers[name].link.tell("notifications/resources/updated", {"uri": "file:///a/part"})
    (told,) = said(host.stream)
    assert told["params"] == {"uri": "hubbub://s/two/file:///a/part"}


async def test_a_resource_of_a_server_that_was_removed_meanwhile_can_be_watched_again(profile: Profile) -> None:
    host, peer = profile.old(), profile.world.peers["three"]
    peer.capabilities = {"resources": {"subscribe": True}}
    for _ in range(2):
        await profile.hub.servers.add(server("three"))
        await until(lambda: profile.hub.servers.get("three").connection.state is ConnectionState.CONNECTED)
        await host.ask("resources/subscribe", uri="hubbub://s/three/file:///a")
        said(host.stream)
        peer.link.tell("notifications/resources/updated", {"uri": "file:///a"})
        assert len(said(host.stream)) == 1
        await profile.hub.servers.remove("three")
        await settle()


async def test_a_level_goes_to_every_server_and_a_hanging_one_holds_nothing_up(profile: Profile) -> None:
    async def hanging(sent: Sent) -> Outcome:
        await anyio.sleep_forever()
        raise AssertionError

    profile.world.peers["two"].listing = hanging
    host = profile.old()
    began = anyio.current_time()
    assert await host.ask("logging/setLevel", level="error") == {}
    assert anyio.current_time() - began < 5
    assert profile.world.peers["one"].fetches[-1].params == {"level": "error"}
    for level in ("info", "error"):
        profile.world.peers["two"].link.tell(MESSAGE, {"level": level, "data": 1})
    assert [each["params"]["level"] for each in said(host.stream)] == ["error"]


async def test_a_level_goes_to_a_server_that_comes_later_too(profile: Profile) -> None:
    host = profile.old()
    await host.ask("logging/setLevel", level="debug")
    peer = profile.world.peers["three"]
    peer.capabilities = {"logging": {}, "tools": {}}
    offer(profile.world, "three", "c")
    for _ in range(2):
        peer.fetches.clear()
        await profile.hub.servers.add(server("three"))
        await until(lambda: [each.params for each in peer.fetches if each.method == "logging/setLevel"])
        assert {"level": "debug"} in [each.params for each in peer.fetches]
        await profile.hub.servers.remove("three")


async def test_a_level_goes_to_a_server_that_the_profile_shows_later_too(profile: Profile) -> None:
    profile.adopt(servers=["one"])
    host, two = profile.old(), profile.world.peers["two"]
    await host.ask("logging/setLevel", level="debug")
    assert [each for each in two.fetches if each.method == "logging/setLevel"] == []
    profile.adopt()
    await until(lambda: [each for each in two.fetches if each.method == "logging/setLevel"])


async def test_log_messages_of_servers_out_of_reach_are_not_shown(profile: Profile) -> None:
    both, one = profile.old(), profile.old(OF_ONE)
    profile.world.peers["two"].link.tell(MESSAGE, {"level": "info", "data": 1})
    assert (methods(both), methods(one)) == ([MESSAGE], [])
