"""The level of a server's log messages, set once, holds over every connection of this hub."""

from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from .conftest import World, server, settle, until

LEVEL = "logging/setLevel"


async def set_level(hub: Hub, level: str) -> None:
    spec = CallSpec(server="one", method=LEVEL, params=b'{"level":"%s"}' % level.encode())
    await hub.calls.call(spec, "ada")


def told(world: World) -> list[object]:
    """The levels that the hub itself has sent."""
    return [sent.params.get("level") for sent in world.peer.fetches if sent.method == LEVEL]


async def reconnected(world: World) -> None:
    """The connection is lost, and there is another one."""
    before = len(world.peer.links)
    world.peer.link.lose()
    await until(lambda: len(world.peer.links) > before)
    await settle()


async def test_a_level_is_asked_for_again_over_each_new_connection(world: World) -> None:
    async with world.hub(server()) as hub:
        await hub.servers.connect("one")
        await reconnected(world)
        assert told(world) == []
        await set_level(hub, "error")
        await set_level(hub, "debug")
        await reconnected(world)
        await reconnected(world)
        await hub.calls.call(CallSpec(server="one", method="tools/list"), "ada")
        await settle(2)  # the call's counts are shown with the same connection
        assert told(world) == ["debug", "debug"]


async def test_a_server_that_takes_a_call_without_a_level_gets_the_same_again(world: World) -> None:
    async with world.hub(server()) as hub:
        await hub.servers.connect("one")
        await hub.calls.call(CallSpec(server="one", method=LEVEL, params=b""), "ada")
        await reconnected(world)
        assert told(world) == [None]


async def test_a_server_that_takes_the_level_with_each_request_is_told_nothing(world: World) -> None:
    async with world.hub(server()) as hub:
        await hub.servers.connect("one")
        await set_level(hub, "debug")
        world.peer.era = Era.STATELESS
        await reconnected(world)
        assert told(world) == []


async def test_a_server_that_comes_under_the_name_of_another_is_told_nothing(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await hub.servers.connect("one")
        await set_level(hub, "debug")
        await hub.servers.remove("one")
        await hub.servers.add(server())
        await hub.servers.connect("one")
        await settle()
        assert told(world) == []
