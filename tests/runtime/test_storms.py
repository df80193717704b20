"""No server makes the hub ask more often: each does one thing as fast as it can, for a minute, and is counted."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import Category, UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.messages.retries import ReopenBackoff
from hubbubd.upstream.ports import Era

from .conftest import World, server, until
from .peer import LOST, SESSION_LOST, Outcome, PeerLink, Sent, Subscription, fault

MINUTE_S = 60.0
ALL_LISTS = {kind: {"listChanged": True} for kind in ("tools", "resources", "prompts")}
STEP_S = 0.01
"""How fast a server is that does something as fast as it can."""

Storm = Callable[[World], Awaitable[None]]


async def refuses(world: World) -> None:
    """Refuses each connection at once, with a `Retry-After` of 0."""
    world.peer.always = UpstreamError(fault("RATE_LIMITED", Category.SERVER, retry_after_s=0))
    world.peer.link.lose(LOST)
    await anyio.sleep_forever()


async def flaps(world: World, why: Any = LOST) -> None:
    """Ends each connection as soon as it is there."""
    while True:
        if world.peer.link.lost is None:
            world.peer.link.lose(why)
        await anyio.sleep(STEP_S)


async def forgets_its_session(world: World) -> None:
    """Ends each session as soon as it is there."""
    await flaps(world, SESSION_LOST)


async def tells_of_changes(world: World) -> None:
    """Says all the time that all of its lists have changed."""
    while True:
        for kind in ALL_LISTS:
            world.peer.link.tell(f"notifications/{kind}/list_changed")
        await anyio.sleep(STEP_S)


async def acknowledges(world: World) -> None:
    """Acknowledges its subscription again and again."""
    while True:
        for subscription in world.peer.subscriptions[-1:]:
            subscription.acknowledge(subscription.wanted)
        await anyio.sleep(STEP_S)


async def ends_subscriptions(world: World) -> None:
    """Ends each subscription as soon as it is acknowledged."""

    async def at_once(subscription: Subscription) -> None:
        subscription.acknowledge(subscription.wanted)

    world.peer.listening = at_once
    for subscription in world.peer.subscriptions:
        subscription.ended.set()
    await anyio.sleep_forever()


async def names_no_cache_time(world: World) -> None:
    """Lets none of its lists be relied on: `ttlMs` is 0 wherever it is given."""
    await anyio.sleep_forever()


STORMS: dict[str, tuple[Storm, Era, dict[str, Any]]] = {
    "refuses": (refuses, Era.HANDSHAKE, {}),
    "flaps": (flaps, Era.HANDSHAKE, {}),
    "flaps, and counts as stable at once": (flaps, Era.HANDSHAKE, {"stable_after_s": 0}),
    "forgets its session": (forgets_its_session, Era.HANDSHAKE, {}),
    "forgets its session, stable at once": (forgets_its_session, Era.HANDSHAKE, {"stable_after_s": 0}),
    "tells of changes": (tells_of_changes, Era.HANDSHAKE, {}),
    "acknowledges": (acknowledges, Era.STATELESS, {}),
    "ends subscriptions": (ends_subscriptions, Era.STATELESS, {}),
    "names no cache time": (names_no_cache_time, Era.STATELESS, {}),
}


async def lists(sent: Sent) -> Outcome:
    """Has nothing in any list, and lets nobody rely on it."""
    member = sent.method.removesuffix("/list").removeprefix("resources/templates") or "resourceTemplates"
    return {member: [], "ttlMs": 0}


def asked(world: World) -> int:
    """All that the hub has asked of the server so far."""
    peer = world.peer
    return len(peer.attempts) + len(peer.fetches) + len(peer.sent) + len(peer.subscriptions)


@pytest.mark.parametrize("storm", STORMS)
async def test_what_a_server_does_as_fast_as_it_can_makes_the_hub_ask_no_more_than_twice_a_second(
    world: World, storm: str
) -> None:
    act, world.peer.era, options = STORMS[storm]
    world.peer.capabilities, world.peer.listing = ALL_LISTS, lists
    async with world.hub(server(**options)) as hub, anyio.create_task_group() as tasks:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        await anyio.sleep(10)
        before = asked(world)
        tasks.start_soon(act, world)
        await anyio.sleep(MINUTE_S)
        tasks.cancel_scope.cancel()
    assert asked(world) - before < 2 * MINUTE_S


async def test_a_watched_resource_that_changes_all_the_time_is_read_a_few_times_a_second(world: World) -> None:
    world.peer.capabilities = {"resources": {"subscribe": True}}

    async def watch(hub: Hub) -> None:
        async for _ in hub.subscriptions.watch("one", "file:///a"):
            pass

    async def change(link: PeerLink) -> None:
        while True:
            link.tell("notifications/resources/updated", {"uri": "file:///a"})
            await anyio.sleep(STEP_S)

    async with world.hub(server()) as hub, anyio.create_task_group() as tasks:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        tasks.start_soon(watch, hub)
        await until(lambda: world.peer.sent)
        tasks.start_soon(change, world.peer.link)
        await anyio.sleep(MINUTE_S)
        tasks.cancel_scope.cancel()
    assert len(world.peer.sent) < 5 * MINUTE_S


@pytest.mark.parametrize(("lasts_s", "most"), [(0.0, 15), (0.1, 15), (1.0, 61), (10.0, 7)])
async def test_a_stream_that_ends_again_and_again_is_opened_more_and_more_seldom(lasts_s: float, most: int) -> None:
    pace, opened, end = ReopenBackoff(), 0, anyio.current_time() + MINUTE_S
    while anyio.current_time() < end:
        await pace.wait()
        opened += 1
        await anyio.sleep(lasts_s)
    assert MINUTE_S / 10 <= opened <= most


async def test_a_stream_that_held_is_opened_at_once_when_it_ends(world: World) -> None:
    pace = ReopenBackoff()
    for _ in range(20):
        await pace.wait()
    await anyio.sleep(10)
    before = anyio.current_time()
    await pace.wait()
    assert anyio.current_time() == before


async def test_many_servers_that_were_lost_together_come_back_one_after_the_other(world: World) -> None:
    names = [f"s{number}" for number in range(200)]
    async with world.hub(*(server(name) for name in names)) as hub:
        await until(lambda: all(hub.servers.get(name).connection.state is ConnectionState.CONNECTED for name in names))
        before = {name: len(world.peers[name].attempts) for name in names}
        for name in names:
            world.peers[name].link.lose(LOST)
        await anyio.sleep(30)
        again = sorted(at for name in names for at in world.peers[name].attempts[before[name] :])
        assert len(again) == len(names)
        assert max(sum(start <= at < start + 1 for at in again) for start in again) <= 45
