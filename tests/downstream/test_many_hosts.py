"""Hosts that come and go by the thousand leave nothing behind: all that is held for one ends with it."""

import gc
from collections import Counter

import anyio

from hubbubd import payload
from hubbubd.downstream import BridgedHosts, HostOutbox

from .conftest import ADA, OLD, Opened, Place, lists

COUNT = 10_000
URI = "file:///a"
ABLE = {"resources": {"subscribe": True, "listChanged": True}, "logging": {}}
ROOMS = (
    *("hubbubd.downstream", "hubbubd.runtime.oversight.hosts"),
    *("hubbubd.runtime.servers", "hubbubd.runtime.inbox"),
)
"""Those that hold something for hosts; the records of their calls stay."""
HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


def held() -> Counter[str]:
    """How many objects of each class there are."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__.startswith(ROOMS))


async def sessions_come_and_go(at: Place) -> None:
    """Opens sessions that nobody ends, some of which have wanted something."""
    for number in range(COUNT):
        host = await at.lasting()
        host.stream.send(b"x" * 1000)
        if number % 20 == 0:
            await host.ask("resources/subscribe", uri=URI)
            await host.ask("logging/setLevel", level="debug")


async def bridges_come_and_go(at: Place) -> None:
    """Begins streams of bridges and ends them at some moment, with a word or without."""
    hosts = BridgedHosts(at.hub.calls, at.hub.clock.steady)
    for number in range(COUNT // 10):
        host = hosts.add_stream(ADA, f"key-{number}", at.endpoint, HostOutbox())
        for id_, method in enumerate(("initialize", "ping")):
            host.receive(payload.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": HELLO}))
        if number % 2:
            assert await host.outlet.wait_for_news(60)
        hosts.end_stream(host, has_left=number % 3 == 0)


async def test_sessions_that_are_dropped_end_with_all_that_they_had(place: Opened) -> None:
    async with place(OLD, capabilities=ABLE, listing=lists(resources=[{"uri": URI, "name": "a"}])) as at:
        before = held()
        await sessions_come_and_go(at)
        assert len(at.sessions) == 100
        # Of each class, no more than a few for each session that is left, however many there were.
        assert [name for name, count in (held() - before).items() if count > 10 * len(at.sessions)] == []
        at.sessions.close()
        await anyio.sleep(60)
        assert held() - before == Counter()


async def test_bridges_that_are_dropped_end_with_all_that_they_had(place: Opened) -> None:
    async with place(OLD, capabilities=ABLE, listing=lists()) as at:
        before = held()
        await bridges_come_and_go(at)
        await anyio.sleep(60)
        assert held() - before == Counter()
