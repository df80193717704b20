"""What hosts receive about changed lists, over a session's own stream and in answer to `subscriptions/listen`."""

import gc
from typing import Any
from weakref import ref

import anyio
import pytest

from hubbubd.downstream import EndpointSession, McpEndpoint, McpHost
from hubbubd.downstream.views.view import ServerView

from ..runtime.conftest import World, server
from ..runtime.peer import gives
from .conftest import ADA, NEW, OLD, NewHost, Opened, Place, handles, lists, said, settle, until

ALL = {kind: {"listChanged": True} for kind in ("tools", "prompts", "resources")} | {"completions": {}}
LISTENED = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def changed(kind: str) -> str:
    return f"notifications/{kind}/list_changed"


def told(messages: list[dict[str, Any]]) -> list[str]:
    return [message["method"] for message in messages]


@pytest.fixture
def offers() -> dict[str, list[dict[str, Any]]]:
    """What the server lists; change it as you like."""
    return {"tools": [{"name": "a"}], "prompts": [{"name": "p"}], "resources": []}


async def listening(at: Place, **wanted: Any) -> NewHost:
    """A host whose `subscriptions/listen` was acknowledged."""
    host = at.new()
    host.begin("subscriptions/listen", notifications=wanted)
    await until(lambda: not host.outlet.is_empty)
    return host


@pytest.mark.parametrize("protocol", [OLD, NEW])
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_every_host_is_told_of_a_list_that_its_server_says_has_changed_once_it_can_be_fetched(
    place: Opened, offers: dict[str, Any], protocol: str, kind: str
) -> None:
    async with place(protocol, capabilities=ALL, listing=lists(**offers)) as at:
        old, new = at.old(), await listening(at, **LISTENED)
        said(new.outlet)
        at.peer.link.tell(changed(kind))  # the list itself is the same
        assert said(old.stream) == []
        await settle(1)
        assert told(said(old.stream)) == [changed(kind)]
        (message,) = said(new.outlet)
        assert (message["method"], message["params"]) == (changed(kind), {"_meta": {SUBSCRIPTION: 1}})


async def test_a_storm_of_changes_is_told_five_times_a_second_at_most(place: Opened, offers: dict[str, Any]) -> None:
    async with place(OLD, capabilities=ALL, listing=lists(**offers)) as at:
        host = at.old()
        at_once: list[float] = []
        began = anyio.current_time()
        for number in range(1000):
            offers["tools"].append({"name": f"b{number}"})
            at.peer.link.tell(changed("tools"))
            await anyio.sleep(0.005)
            at_once += [anyio.current_time()] * len(said(host.stream))
        assert 1 <= len(at_once) <= 5 * (anyio.current_time() - began) + 1


async def test_a_list_whose_changes_the_server_does_not_announce_is_not_told_of(
    place: Opened, offers: dict[str, list[dict[str, Any]]]
) -> None:
    capabilities = ALL | {"tools": {}}
    async with place(OLD, capabilities=capabilities, listing=lists(**offers)) as at:
        old, new = at.old(), await listening(at, **LISTENED)
        (acknowledged,) = said(new.outlet)
        wanted = {flag: True for flag in LISTENED if flag != "toolsListChanged"}
        assert acknowledged["params"]["notifications"] == wanted
        at.peer.link.tell(changed("tools"))
        await settle(2)
        assert said(old.stream) == said(new.outlet) == []


async def test_changes_wait_once_for_a_host_that_does_not_read(place: Opened, offers: dict[str, Any]) -> None:
    async with place(OLD, capabilities=ALL, listing=lists(**offers)) as at:
        host = at.old()
        for _ in range(5):
            at.peer.link.tell(changed("tools"))
            await settle(10)
        assert told(said(host.stream)) == [changed("tools")]


# subscriptions/listen


async def test_what_is_honoured_is_the_first_that_a_listening_host_hears(place: Opened, offers: dict[str, Any]) -> None:
    capabilities = ALL | {"resources": {"subscribe": True}}
    async with place(OLD, capabilities=capabilities, listing=lists(**offers)) as at:
        wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["x://a", "x://a"]}
        host = await listening(at, **wanted, unknown=True)
        first, *others = said(host.outlet)
        assert (first["method"], others) == (ACKNOWLEDGED, [])
        assert first["params"] == {
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]},
            "_meta": {SUBSCRIPTION: 1},
        }
        at.peer.link.tell("notifications/resources/updated", {"uri": "x://a"})
        at.peer.link.tell("notifications/resources/updated", {"uri": "x://b"})
        at.peer.link.tell(changed("prompts"))
        await settle(2)
        (updated,) = said(host.outlet)
        assert updated["params"] == {"uri": "x://a", "_meta": {SUBSCRIPTION: 1}}


async def test_a_resource_of_which_the_server_tells_nothing_is_not_honoured(place: Opened) -> None:
    async with place(OLD, capabilities={"resources": {}}) as at:
        host = await listening(at, resourceSubscriptions=["x://a"])
        assert said(host.outlet)[0]["params"]["notifications"] == {}


async def test_a_slow_server_holds_no_acknowledgement_up(place: Opened) -> None:
    async with place(OLD, capabilities={"resources": {"subscribe": True}}, behaviour=gives({}, after_s=60)) as at:
        began = anyio.current_time()
        host = await listening(at, resourceSubscriptions=["x://a"])
        assert anyio.current_time() - began < 5
        assert said(host.outlet)[0]["params"]["notifications"] == {"resourceSubscriptions": ["x://a"]}


async def test_a_resource_that_a_slow_server_accepts_later_is_watched_from_then_on(place: Opened) -> None:
    async with place(OLD, capabilities={"resources": {"subscribe": True}}, behaviour=gives({}, after_s=20)) as at:
        host = await listening(at, resourceSubscriptions=["x://a"])
        said(host.outlet)
        await settle(30)
        at.peer.link.tell("notifications/resources/updated", {"uri": "x://a"})
        assert [message["params"]["uri"] for message in said(host.outlet)] == ["x://a"]


async def test_a_subscription_ends_with_its_stream(place: Opened) -> None:
    async with place(OLD, capabilities={"resources": {"subscribe": True}}) as at:
        host = at.new()
        under_way = host.begin("subscriptions/listen", notifications={"resourceSubscriptions": ["x://a"]})
        await until(lambda: not host.outlet.is_empty)
        under_way.cancel()
        await until(lambda: [each.method for each in at.peer.sent][-1] == "resources/unsubscribe")


async def test_a_subscription_ends_with_a_result_when_the_hub_does(place: Opened, offers: dict[str, Any]) -> None:
    async with place(OLD, capabilities=ALL, listing=lists(**offers)) as at:
        host = at.new()
        under_way = host.begin("subscriptions/listen", notifications=LISTENED)
        await until(lambda: not host.outlet.is_empty)
        await at.hub.drain(0)
        assert b'"result":{"resultType":"complete","_meta":{"%s":1}}' % SUBSCRIPTION.encode() in await under_way


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        [],
        {"resourceSubscriptions": "x://a"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": ["x"] * 101},
    ],
)
async def test_a_subscription_to_something_else_is_refused(place: Opened, wanted: object) -> None:
    async with place(OLD, capabilities=ALL) as at:
        response = await at.new().begin("subscriptions/listen", notifications=wanted)
        assert b'"code":-32602' in response


async def test_what_a_server_listed_is_expected_of_it_after_a_restart(world: World, offers: dict[str, Any]) -> None:
    world.peer.capabilities, world.peer.listing = {"prompts": {}}, lists(**offers)
    async with world.hub(server()) as hub:
        await until(lambda: hub.catalog.entries("one/prompt"))
    world.peer.plan.append(30.0)
    async with world.hub(server(connect_timeout_s=60)) as hub:
        host = Place(hub, world).new()
        assert (await host.ask("server/discover"))["capabilities"] == {"prompts": {"listChanged": True}}
        assert [prompt["name"] for prompt in (await host.ask("prompts/list"))["prompts"]] == ["p"]


async def test_a_session_that_has_ended_is_freed_without_a_collection(
    place: Opened, offers: dict[str, list[dict[str, Any]]]
) -> None:
    async with place(OLD, capabilities=ALL, listing=lists(**offers)) as at:
        endpoint = McpEndpoint(at.hub, ServerView(at.hub, "one"), handles(at.hub))
        session = EndpointSession(McpHost(principal=ADA, revision=OLD), endpoint, at.hub.clock.steady)
        await session.notifications.set_level("info")
        at.peer.link.tell(changed("tools"))
        await settle(2)
        freed = [ref(each) for each in (session, session.notifications, session.notifications.resources)]
        gc.disable()
        try:
            session.end()
            del session
            assert [each() for each in freed] == [None, None, None]
        finally:
            gc.enable()
