"""A thousand servers whose connections are lost together: they come back soon, and few at once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import Fault, UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers.connections.shell import HANDSHAKE_S, HANDSHAKES

from .conftest import World, server
from .peer import LOST, REFUSED, SESSION_LOST, Peer

NAMES = [f"s{number}" for number in range(1000)]
SOME = NAMES[:250]
"""Enough where the number itself is not the point: a thousand take seconds to connect."""
SOON_S = 30.0
HANGING = NAMES[:100]


@asynccontextmanager
async def connected(world: World, names: list[str] = SOME) -> AsyncGenerator[tuple[Hub, list[Peer]]]:
    """A hub with many servers, all connected and stable."""
    async with world.hub(*(server(name) for name in names)) as hub:
        await anyio.sleep(SOON_S)
        assert away(hub) == []
        peers = [world.peers[name] for name in names]
        for peer in peers:
            peer.attempts.clear()
        yield hub, peers


def away(hub: Hub) -> list[str]:
    """The servers that are not connected."""
    return [record.name for record in hub.servers.all() if record.connection.state is not ConnectionState.CONNECTED]


@pytest.mark.parametrize(("why", "names"), [(LOST, NAMES), (SESSION_LOST, SOME)], ids=["connection", "session"])
async def test_many_lost_servers_are_back_soon_with_few_handshakes_at_once(
    world: World, why: Fault, names: list[str]
) -> None:
    async with connected(world, names) as (hub, peers):
        for peer in peers:
            peer.always = HANDSHAKE_S / 2
            peer.link.lose(why)
        await anyio.sleep(SOON_S)
        assert away(hub) == []
    begun = sorted(at for peer in peers for at in peer.attempts)
    assert len(begun) == len(names)
    under_way = [sum(at <= each < at + HANDSHAKE_S / 2 for each in begun[i : i + 100]) for i, at in enumerate(begun)]
    assert max(under_way) <= HANDSHAKES


async def test_servers_that_hang_hold_up_no_others(world: World) -> None:
    async with connected(world) as (hub, peers):
        for peer in peers[:100]:
            peer.always = 3600.0
        for peer in peers:
            peer.link.lose(SESSION_LOST)
        await anyio.sleep(SOON_S)
        assert sorted(away(hub)) == sorted(NAMES[:100])


async def test_the_pings_of_servers_connected_together_are_spread_over_the_interval(world: World) -> None:
    async with connected(world) as (_, peers):
        most = total = 0
        for _second in range(60):
            before = sum(peer.link.probes for peer in peers)
            await anyio.sleep(1)
            count = sum(peer.link.probes for peer in peers) - before
            most, total = max(most, count), total + count
    assert total >= len(SOME)
    assert most < len(SOME) / 10


async def test_an_attempt_that_fails_makes_room_for_the_next_at_once(world: World) -> None:
    async with connected(world) as (_, peers):
        for peer in peers:
            peer.plan.append(UpstreamError(REFUSED))
            peer.link.lose(SESSION_LOST)
        await anyio.sleep(HANDSHAKE_S)
        assert all(len(peer.attempts) == 1 for peer in peers)


async def test_a_hub_ends_at_once_while_servers_wait_for_their_attempts(world: World) -> None:
    for name in HANGING:
        world.peers[name].always = 3600.0
    async with world.hub(*(server(name) for name in HANGING)):
        await anyio.sleep(HANDSHAKE_S)
        ending = anyio.current_time()
    assert anyio.current_time() - ending < 1


async def test_servers_that_wait_for_their_attempts_are_disconnected_together(world: World) -> None:
    for name in HANGING:
        world.peers[name].always = 3600.0
    async with world.hub(*(server(name) for name in HANGING)) as hub:
        await anyio.sleep(HANDSHAKE_S)
        async with anyio.create_task_group() as together:
            for name in HANGING:
                together.start_soon(hub.servers.disconnect, name)
        assert all(hub.servers.get(name).connection.state is ConnectionState.DISCONNECTED for name in HANGING)
        for name in HANGING:
            world.peers[name].always = None
            await hub.servers.connect(name)
        await anyio.sleep(SOON_S)
        assert away(hub) == []
