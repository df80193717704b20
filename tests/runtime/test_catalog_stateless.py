"""The catalog of servers without a session: a subscription tells of changes."""

import anyio
import pytest

from hubbubd.core.servers.catalog import CatalogKind, Freshness
from hubbubd.errors import PeerError
from hubbubd.upstream.ports import Era

from .conftest import World, server, settle, until
from .peer import Subscription
from .test_catalog import TOOLS_CHANGED, Shelf, fresh, freshness, tools


@pytest.fixture
def stateless(world: World) -> Shelf:
    """The server `one`, stateless, with a tool."""
    world.peer.era = Era.STATELESS
    return Shelf(world.peer, "a", ttlMs=0)


async def test_an_acknowledgement_that_comes_late_is_followed_by_a_fetch(world: World, stateless: Shelf) -> None:
    async def late(subscription: Subscription) -> None:
        await anyio.sleep(30)
        subscription.acknowledge(subscription.wanted)
        await subscription.ended.wait()

    world.peer.listening = late
    async with world.hub(server()) as hub:
        await fresh(hub)
        stateless.names.append("b")  # nobody is notified of this
        await settle(31)
        assert tools(hub).count == 2


async def test_a_subscription_that_ends_is_opened_again_and_then_all_is_fetched(world: World, stateless: Shelf) -> None:
    async with world.hub(server()) as hub:
        await fresh(hub)
        world.peer.subscriptions[0].ended.set()
        await until(lambda: freshness(hub) == {CatalogKind.TOOL: Freshness.STALE})
        stateless.names.append("b")
        await until(lambda: len(world.peer.subscriptions) == 2)
        await until(lambda: tools(hub).count == 2)
        await fresh(hub)


async def test_a_list_whose_subscription_ends_while_it_is_fetched_is_stale(world: World, stateless: Shelf) -> None:
    async with world.hub(server()) as hub:
        await fresh(hub)
        stateless.gate = anyio.Event()
        world.peer.link.tell(TOOLS_CHANGED)
        await until(lambda: stateless.running)
        world.peer.subscriptions[0].ended.set()
        await settle(0.05)
        stateless.gate.set()
        await settle(0.05)
        assert freshness(hub) == {CatalogKind.TOOL: Freshness.STALE}
        await fresh(hub)


async def test_subscriptions_that_do_not_last_are_tried_less_and_less_often(world: World, stateless: Shelf) -> None:
    async def short(subscription: Subscription) -> None:
        subscription.acknowledge(subscription.wanted)

    world.peer.listening = short
    stateless.more = {}
    async with world.hub(server()):
        await settle(3600)
    assert 60 <= len(world.peer.subscriptions) <= 70
    assert len(world.peer.fetches) <= len(world.peer.subscriptions) + 1


async def test_a_server_that_knows_no_subscriptions_is_asked_now_and_then(world: World, stateless: Shelf) -> None:
    async def refuse(subscription: Subscription) -> None:
        raise PeerError(-32601, "Method not found")

    world.peer.listening = refuse
    async with world.hub(server()) as hub:
        await fresh(hub)
        stateless.names.append("b")
        await settle(31)
        assert tools(hub).count == 2
    assert len(world.peer.subscriptions) == 1
