"""What servers tell, and the resources that somebody watches."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.errors import FailedPrecondition, NotFound, PeerError, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers import EventFilter, EventStep, ResourceUpdate, ServerEvent, ServerEventKind, events
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import PATIENCE_S, World, server, settle, until
from .peer import Outcome, Sent, at_once, gives

URI = "note://today"
LOG = "notifications/message"


def line(number: int) -> dict[str, Any]:
    return {"level": "info", "data": f"line {number}"}


class Watched:
    """A watch whose steps are taken one by one."""

    def __init__(self, steps: AsyncGenerator[Any]) -> None:
        self._steps = steps

    async def next(self) -> Any:
        """The next step."""
        with anyio.fail_after(PATIENCE_S):
            return await anext(self._steps)

    async def news(self) -> Any:
        """The next step that is no sign of life."""
        while (step := await self.next()) is None or (isinstance(step, EventStep) and step.event is None):
            pass
        return step.event if isinstance(step, EventStep) else step

    async def close(self) -> None:
        await self._steps.aclose()


async def begun(steps: AsyncGenerator[Any]) -> Watched:
    """A watch that misses nothing from now on."""
    watched = Watched(steps)
    first = await watched.next()
    assert first is None or first == EventStep(None)
    return watched


async def connected(hub: Hub, name: str = "one") -> None:
    await until(lambda: hub.servers.get(name).connection.state == "connected")


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (LOG, "log"),
        ("notifications/progress", "progress"),
        ("notifications/resources/updated", "resource_updated"),
        ("notifications/tools/list_changed", "list_changed"),
        ("notifications/cancelled", "cancelled"),
        ("notifications/elicitation/complete", "elicitation_complete"),
        ("notifications/tasks/status", "task_status"),
        ("notifications/tasks", "task_status"),
        ("notifications/of/tomorrow", "other"),
    ],
)
async def test_a_notification_is_an_event_of_its_kind_with_its_params(world: World, method: str, kind: str) -> None:
    async with world.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.events.watch(EventFilter()))
        world.peer.link.tell(method, {"_meta": {"x": 2**70}, "y": "ü"})
        event: ServerEvent = await watched.news()
        await watched.close()
    assert (event.server, event.kind, event.method) == ("one", kind, method)
    assert payload.loads(event.params) == {"_meta": {"x": 2**70}, "y": "ü"}


async def test_a_watcher_sees_the_servers_and_kinds_it_has_asked_for(world: World) -> None:
    async with world.hub(server(), server("two")) as hub:
        await connected(hub)
        await connected(hub, "two")
        chosen = EventFilter("two", frozenset({ServerEventKind.LOG}))
        watched = await begun(hub.events.watch(chosen))
        world.peer.link.tell(LOG, line(1))
        world.peers["two"].link.tell("notifications/progress", {"progress": 1})
        world.peers["two"].link.tell(LOG, line(2))
        event = await watched.news()
        await watched.close()
    assert (event.server, payload.loads(event.params)) == ("two", line(2))


async def test_a_watcher_that_reads_too_slowly_loses_the_oldest_events_and_is_told_how_many(world: World) -> None:
    async with world.hub(server()) as hub:
        await connected(hub)
        slow = await begun(hub.events.watch(EventFilter()))
        for number in range(events.WATCHER_EVENTS + 10):
            world.peer.link.tell(LOG, line(number))
        first: EventStep = await slow.next()
        await slow.close()
    assert payload.loads(first.event.params) == line(10)
    assert first.dropped == 10


async def test_what_waits_for_a_watcher_is_bounded_in_bytes_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WATCHER_BYTES", 1000)
    async with world.hub(server()) as hub:
        await connected(hub)
        slow = await begun(hub.events.watch(EventFilter()))
        for number in range(3):
            world.peer.link.tell(LOG, line(number) | {"logger": "x" * 400})
        first: EventStep = await slow.next()
        await slow.close()
    assert first.dropped == 1


async def test_what_nobody_watches_is_not_even_written_as_json(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def dumps(value: object) -> bytes:
        written.append(value)
        return b"{}"

    async with world.hub(server()) as hub:
        await connected(hub)
        monkeypatch.setattr(events.payload, "dumps", dumps)
        world.peer.link.tell("notifications/progress", {"progress": 1})
        monkeypatch.undo()
    assert {"progress": 1} not in written


async def test_the_last_lines_of_a_log_are_kept_with_stderr_among_them(world: World) -> None:
    async with world.hub(server()) as hub:
        await connected(hub)
        for number in range(events.LOG_LINES + 5):
            world.peer.link.tell(LOG, line(number))
        world.peer.link.inbound.on_stderr("oh")
        kept = [heard.event async for heard in hub.events.tail("one", events.LOG_LINES, follow=False)]
        last = [heard.event async for heard in hub.events.tail("one", 2, follow=False)]
    assert len(kept) == events.LOG_LINES
    assert [(event.kind, payload.loads(event.params)) for event in last if event] == [
        ("log", line(events.LOG_LINES + 4)),
        ("stderr", {"line": "oh"}),
    ]


async def test_a_log_that_is_followed_goes_on_and_ends_with_the_hub(world: World) -> None:
    async with world.hub(server()) as hub:
        await connected(hub)
        world.peer.link.tell(LOG, line(1))
        followed = Watched(hub.events.tail("one", 10, follow=True))
        assert payload.loads((await followed.news()).params) == line(1)
        world.peer.link.tell("notifications/progress", {"progress": 1})
        world.peer.link.tell(LOG, line(2))
        assert payload.loads((await followed.news()).params) == line(2)
        hub.end_watches()
        with pytest.raises(Unavailable, match="shutting down"):
            await followed.news()
        assert hub.watcher_count() == 0


async def test_a_log_goes_with_its_server(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await connected(hub)
        world.peer.link.tell(LOG, line(1))
        await hub.servers.remove("one")
        with pytest.raises(NotFound):
            hub.events.tail("one", 10, follow=False)


# Watched resources


def note(world: World) -> list[str]:
    """A server with one note that it tells changes of; the methods that reach it."""
    seen: list[str] = []

    async def behaviour(sent: Sent) -> Outcome:
        seen.append(sent.method)
        return {"contents": [{"uri": URI, "text": str(seen.count("resources/read"))}]}

    world.peer.behaviour = behaviour
    return seen


def text(update: ResourceUpdate) -> str:
    assert update.result is not None, update.fault
    return payload.loads(update.result)["contents"][0]["text"]


@pytest.fixture
def subscribing(world: World) -> World:
    """A world whose server offers subscriptions."""
    world.peer.capabilities = {"resources": {"subscribe": True}}
    return world


async def test_a_watched_resource_is_read_again_after_each_change_and_left_after_the_last_watcher(
    subscribing: World,
) -> None:
    seen = note(subscribing)
    async with subscribing.hub(server()) as hub:
        await connected(hub)
        one, two = await begun(hub.subscriptions.watch("one", URI)), await begun(hub.subscriptions.watch("one", URI))
        assert [text(await one.news()), text(await two.news())] == ["1", "1"]
        subscribing.peer.link.tell("notifications/resources/updated", {"uri": URI})
        assert [text(await one.news()), text(await two.news())] == ["2", "2"]
        subscribing.peer.link.tell("notifications/resources/updated", {"uri": f"{URI}/part"})
        assert text(await one.news()) == "3"
        subscribing.peer.link.tell("notifications/resources/updated", {"uri": f"{URI}s"})
        await settle()
        await one.close()
        await settle()
        assert "resources/unsubscribe" not in seen
        await two.close()
        await until(lambda: seen[-1] == "resources/unsubscribe")
        assert hub.watcher_count() == 0
    assert seen == ["resources/subscribe", *["resources/read"] * 3, "resources/unsubscribe"]


async def test_many_changes_while_a_resource_is_read_are_one(subscribing: World) -> None:
    seen: list[str] = []

    async def slow(sent: Sent) -> Outcome:
        seen.append(sent.method)
        await anyio.sleep(1)
        return await at_once(sent)

    subscribing.peer.behaviour = slow
    async with subscribing.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.subscriptions.watch("one", URI))
        await until(lambda: "resources/read" in seen)
        for _ in range(100):
            subscribing.peer.link.tell("notifications/resources/updated", {"uri": URI})
        await watched.news()
        await watched.news()
        await settle(5)
        await watched.close()
    assert seen.count("resources/read") == 2


async def test_a_resource_is_subscribed_and_read_again_after_a_reconnect(subscribing: World) -> None:
    seen = note(subscribing)
    async with subscribing.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.subscriptions.watch("one", URI))
        assert text(await watched.news()) == "1"
        subscribing.peer.link.lose()
        assert text(await watched.news()) == "2"
        await watched.close()
        await settle()
    assert seen.count("resources/subscribe") == 2
    assert seen.count("resources/unsubscribe") == 1


async def test_a_server_that_refuses_a_subscription_ends_the_watch_with_its_error(subscribing: World) -> None:
    subscribing.peer.behaviour = gives(PeerError(-32002, "no such resource"))
    async with subscribing.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.subscriptions.watch("one", URI))
        with pytest.raises(Exception, match="no such resource"):
            await watched.news()
        assert hub.watcher_count() == 0


async def test_a_server_that_offers_no_subscriptions_is_not_asked(world: World) -> None:
    async with world.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.subscriptions.watch("one", URI))
        with raising(FailedPrecondition, "SUBSCRIPTIONS_NOT_OFFERED"):
            await watched.news()
    assert world.peer.sent == []


async def test_a_stateless_server_is_listened_to_and_again_when_it_ends_that(world: World) -> None:
    seen = note(world)
    world.peer.era = Era.STATELESS
    async with world.hub(server()) as hub:
        await connected(hub)
        watched = await begun(hub.subscriptions.watch("one", URI))
        assert text(await watched.news()) == "1"

        def mine() -> list[Any]:
            return [s for s in world.peer.subscriptions if s.wanted == {"resourceSubscriptions": [URI]}]

        mine()[0].ended.set()
        assert text(await watched.news()) == "2"
        assert len(mine()) == 2
        await watched.close()
        await settle()
    assert set(seen) == {"resources/read"}


async def test_roots_with_half_a_character_in_a_name_are_kept_without_it(world: World) -> None:
    roots = ({"uri": "file:///srv", "_meta": {"half \ud800": ["\udc00", {"\ud83d": 1}]}},)
    kept = {"uri": "file:///srv", "_meta": {"half \ufffd": ["\ufffd", {"\ufffd": 1}]}}
    async with world.hub(server()) as hub:
        await connected(hub)
        await hub.servers.set_roots("one", roots)
    async with world.hub(server()) as hub:
        await connected(hub)
        assert await world.peer.link.asked("roots/list", {}) == {"roots": [kept]}


async def test_roots_that_are_set_are_told_and_last_over_a_restart(world: World) -> None:
    roots = ({"uri": "file:///srv"},)
    async with world.hub(server()) as hub:
        await connected(hub)
        await hub.servers.set_roots("one", roots)
        await settle()
        assert ("notifications/roots/list_changed", {}) in world.peer.link.notified
        assert await world.peer.link.asked("roots/list", {}) == {"roots": [{"uri": "file:///srv"}]}
    async with world.hub(server()) as hub:
        await connected(hub)
        assert await world.peer.link.asked("roots/list", {}) == {"roots": [{"uri": "file:///srv"}]}
    async with world.hub(server(roots=[{"uri": "file:///other"}])) as hub:
        await connected(hub)
        assert await world.peer.link.asked("roots/list", {}) == {"roots": [{"uri": "file:///other"}]}
        assert hub.servers.get("one").roots is None
