"""Pings: one at a time, none after the end of the connection, and always a next one before it."""

from typing import Any

import anyio

from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import UpstreamError

from .conftest import World, server, settle, until, update
from .peer import LOST

OFTEN: dict[str, Any] = {"ping_interval_s": 30, "ping_timeout_s": 300}


class Probes:
    """Pings that are answered when the test says so."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.answer = anyio.Event()

    async def __call__(self) -> None:
        """Answers one."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.answer.wait()
        finally:
            self.under_way -= 1


async def test_a_ping_that_is_answered_as_the_connection_ends_is_the_last(world: World) -> None:
    probes = world.peer.probing = Probes()
    async with world.hub(server(**OFTEN)):
        await anyio.sleep(30)
        lost = world.peer.link
        assert (lost.probes, probes.under_way) == (1, 1)
        lost.lose()
        probes.answer.set()
        await anyio.sleep(120)
        assert lost.probes == 1
        assert world.peer.link.probes > 1


async def test_no_ping_follows_the_end_of_a_connection_between_two_pings(world: World) -> None:
    async with world.hub(server(**OFTEN)) as hub:
        await anyio.sleep(31)
        probes = world.peer.link.probes
        await hub.servers.disconnect("one")
        await anyio.sleep(120)
        assert world.peer.link.probes == probes > 0


async def test_no_ping_begins_before_the_last_one_ended_when_the_interval_becomes_shorter(world: World) -> None:
    probes = world.peer.probing = Probes()
    async with world.hub() as hub:
        await hub.servers.add(server(**OFTEN))
        await anyio.sleep(30)
        assert probes.under_way == 1
        await update(hub, server(ping_interval_s=1, ping_timeout_s=300))
        await anyio.sleep(4)
        assert probes.most == 1
        probes.answer.set()
        await anyio.sleep(4)
        assert world.peer.link.probes >= 4


async def test_the_ping_under_way_ends_with_the_connection(world: World) -> None:
    probes = world.peer.probing = Probes()
    async with world.hub(server(**OFTEN)) as hub:
        await anyio.sleep(30)
        assert probes.under_way == 1
        await hub.servers.disconnect("one")
        await settle()
        assert probes.under_way == 0
        await anyio.sleep(120)
        assert world.peer.link.probes == 1


async def test_after_a_ping_that_failed_in_the_hub_there_is_a_next_one(world: World) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    world.peer.probing = fail
    async with world.hub(server(**OFTEN)) as hub:
        await anyio.sleep(120)
        assert world.peer.link.probes >= 3
        assert hub.servers.get("one").connection.state is ConnectionState.CONNECTED


async def test_a_server_that_never_answers_ping_is_asked_for_its_tools_instead(world: World) -> None:
    world.peer.ignores_pings = True
    async with world.hub(server(ping_interval_s=30, ping_timeout_s=10)) as hub:
        await anyio.sleep(600)
        assert hub.servers.get("one").connection.state is ConnectionState.CONNECTED
        assert len(world.peer.links) == 1
        link = world.peer.link
        assert (link.probes - link.lists, link.lists >= 10) == (1, True)
        (note,) = hub.servers.get("one").notes
        assert "never answers ping" in note
        assert "ping_interval_s = 0" in note


async def test_a_server_that_answers_neither_ping_nor_another_request_is_lost(world: World) -> None:
    world.peer.ignores_pings = True
    async with world.hub(server(ping_interval_s=30, ping_timeout_s=10)) as hub:
        await anyio.sleep(100)
        world.peer.link.silent = True
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.ERROR)
        fault = hub.servers.get("one").connection.fault
        assert fault.code == "PING_TIMEOUT"
        assert "ping_interval_s = 0" in fault.message


async def test_a_server_that_has_answered_a_ping_is_lost_with_two_and_not_asked_otherwise(world: World) -> None:
    async with world.hub(server(ping_interval_s=30, ping_timeout_s=10)) as hub:
        await anyio.sleep(100)
        assert world.peer.link.probes >= 3
        world.peer.ignores_pings = True
        since = anyio.current_time()
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.ERROR)
        assert anyio.current_time() - since < 90
        assert hub.servers.get("one").connection.fault.code == "PING_TIMEOUT"
        assert world.peer.links[0].lists == 0
        await until(lambda: len(world.peer.links) == 2)


async def test_a_ping_whose_connection_breaks_does_not_speak_for_a_server_that_ignores_pings(world: World) -> None:
    async def broken() -> None:
        world.peer.probing = answered
        raise UpstreamError(LOST)

    answered, world.peer.probing = world.peer.probing, broken
    async with world.hub(server(ping_interval_s=30, ping_timeout_s=10)) as hub:
        await anyio.sleep(120)
        assert world.peer.link.probes >= 3
        assert world.peer.link.lists == 0
        assert hub.servers.get("one").notes == ()
