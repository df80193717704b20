"""A thousand servers whose connections are lost together: they come back soon, and few at once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from hubbubd.core.connection import State
from hubbubd.errors import Fault, UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers.connection import HANDSHAKE_S, HANDSHAKES

from .conftest import World, server
from .peer import LOST, REFUSED, SESSION_LOST, Peer

NAMES = [f"s{number}" for number in range(1000)]
SOON_S = 30.0


@asynccontextmanager
async def connected(world: World) -> AsyncGenerator[tuple[Hub, list[Peer]]]:
    """A hub with a thousand servers, all connected and stable."""
    async with world.hub(*(server(name) for name in NAMES)) as hub:
        await anyio.sleep(SOON_S)
        assert away(hub) == []
        peers = [world.peers[name] for name in NAMES]
        for peer in peers:
            peer.attempts.clear()
        yield hub, peers


def away(hub: Hub) -> list[str]:
    """The servers that are not connected."""
    return [record.name for record in hub.servers.all() if record.connection.state is not State.CONNECTED]


@pytest.mark.parametrize("why", [LOST, SESSION_LOST], ids=["connection", "session"])
async def test_a_thousand_lost_servers_are_back_soon_with_few_handshakes_at_once(world: World, why: Fault) -> None:
    async with connected(world) as (hub, peers):
        for peer in peers:
            peer.always = HANDSHAKE_S / 2
            peer.link.lose(why)
        await anyio.sleep(SOON_S)
        assert away(hub) == []
    begun = sorted(at for peer in peers for at in peer.attempts)
    assert len(begun) == len(NAMES)
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
    assert total >= len(NAMES)
    assert most < len(NAMES) / 10


async def test_an_attempt_that_fails_makes_room_for_the_next_at_once(world: World) -> None:
    async with connected(world) as (_, peers):
        for peer in peers:
            peer.plan.append(UpstreamError(REFUSED))
            peer.link.lose(SESSION_LOST)
        await anyio.sleep(HANDSHAKE_S)
        assert all(len(peer.attempts) == 1 for peer in peers)
