"""What the hub's metrics say follows from what happens, also over a restart."""

from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Accept, Decline, Reject, Unchecked
from hubbubd.errors import ResourceExhausted, Unavailable, UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers import MAX_NAMES
from hubbubd.store import OutcomeUnknown
from hubbubd.telemetry import metrics
from hubbubd.telemetry.metrics import Metric
from hubbubd.telemetry.sdk.metrics import SdkMeter

from .agents import Agent
from .approving import approve, asks, deletion, deny
from .conftest import FORM, SAMPLING, World, question, server, settle, spec, until
from .peer import LOST, REFUSED

FORMS = {"kind": "elicitation_form"}


class Seen:
    """What somebody who collects metrics sees."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.meter = SdkMeter([self._reader], CollectorRegistry())

    def points(self, metric: Metric, **wanted: Any) -> list[Any]:
        """The data points with these attributes among theirs."""
        collected = self._reader.get_metrics_data()
        found = [
            point
            for resource in (collected.resource_metrics if collected else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric.name
            for point in each.data.data_points
        ]
        assert all(set(point.attributes) <= set(metric.attributes) for point in found)
        return [point for point in found if wanted.items() <= point.attributes.items()]

    def value(self, metric: Metric, **wanted: Any) -> float:
        """The one value of a gauge or counter."""
        (point,) = self.points(metric, **wanted)
        return point.value

    def summed(self, metric: Metric, **wanted: Any) -> tuple[int, float]:
        """How many values a histogram has taken, and their sum."""
        found = self.points(metric, **wanted)
        return sum(point.count for point in found), round(sum(point.sum for point in found), 1)


@pytest.fixture
def seen(world: World) -> Seen:
    """What is seen of the hubs of this world."""
    seen = Seen()
    world.meter = seen.meter
    return seen


async def ask(world: World, hub: Hub, method: str = "elicitation/create", params: dict[str, Any] = FORM) -> Any:
    await until(lambda: world.peer.links)
    world.peer.link.ask(method, params)
    return await question(hub)


async def test_open_requests_are_counted_by_kind_with_the_age_of_the_oldest(world: World, seen: Seen) -> None:
    async with world.hub(server()) as hub:
        assert seen.value(metrics.PENDING, **FORMS) == 0
        assert seen.value(metrics.OLDEST, **FORMS) == 0
        first = await ask(world, hub)
        await anyio.sleep(100)
        world.peer.link.ask("elicitation/create", FORM)
        await settle(10)
        assert seen.value(metrics.PENDING, **FORMS) == 2
        assert seen.value(metrics.PENDING, kind="sampling") == 0
        assert seen.value(metrics.OLDEST, **FORMS) == pytest.approx(110, abs=1)
        await hub.inbox.answer(first.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        assert seen.value(metrics.PENDING, **FORMS) == 1
        assert seen.value(metrics.OLDEST, **FORMS) == pytest.approx(10, abs=1)
        assert seen.summed(metrics.TIME_TO_ANSWER, by="person", **FORMS) == (1, pytest.approx(110, abs=1))


async def test_answers_are_counted_by_who_gave_them_and_what_they_say(world: World, seen: Seen) -> None:
    async with world.hub(server(answer_timeout_s=60)) as hub:
        for given in (Accept({"name": "x"}), Decline(), Decline(), Unchecked({"action": ["accept"]})):
            request = await ask(world, hub)
            await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)
        request = await ask(world, hub, "sampling/createMessage", SAMPLING)
        await hub.inbox.answer(request.id, Reject("no"), "me", answer_id=None, claim_id=None)
        await ask(world, hub)
        await anyio.sleep(61)
        async with anyio.create_task_group() as tasks:
            agent = Agent("bot")
            tasks.start_soon(agent.run, hub, RequestFilter(), 1)
            request = await ask(world, hub)
            await until(lambda: agent.mine)
            await agent.answer(hub, request.id)
            tasks.cancel_scope.cancel()
        answers = {(p.attributes["by"], p.attributes["outcome"]): p.value for p in seen.points(metrics.ANSWERS)}
        assert answers == {
            ("person", "accepted"): 2,
            ("person", "declined"): 2,
            ("person", "refused"): 1,
            ("hub", "expired"): 1,
            ("agent", "accepted"): 1,
        }
        assert seen.summed(metrics.TIME_TO_ANSWER)[0] == 6


async def test_a_connection_that_is_lost_and_comes_back_is_a_session_and_a_reconnect(world: World, seen: Seen) -> None:
    async with world.hub(server(), server("two")) as hub:
        await until(lambda: world.peer.links and world.peers["two"].links)
        await anyio.sleep(30)
        assert seen.value(metrics.SERVERS, state="connected") == 2
        assert seen.value(metrics.RECONNECTS) == 0
        assert seen.summed(metrics.SESSION) == (0, 0)
        world.peer.link.lose(LOST)
        await settle()
        assert seen.value(metrics.SERVERS, state="error") == 1
        assert seen.value(metrics.SERVERS, state="connected") == 1
        lost = {"error.type": "CONNECTION_LOST", "mcp.protocol.version": "2025-11-25", "network.transport": "pipe"}
        assert seen.summed(metrics.SESSION, **lost) == (1, pytest.approx(30, abs=0.5))
        await until(lambda: len(world.peer.links) == 2)
        assert seen.value(metrics.RECONNECTS) == 1
        await hub.servers.disconnect("two")
        await hub.servers.connect("two")
        await settle()
        assert seen.value(metrics.SERVERS, state="connected") == 2
        assert seen.value(metrics.RECONNECTS) == 1
        assert seen.summed(metrics.SESSION)[0] == 2
        assert not [p for p in seen.points(metrics.SESSION) if p.attributes.get("error.type") not in (None, LOST.code)]


async def test_watchers_are_always_counted_and_one_that_is_too_slow_is_dropped(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.runtime.records.broadcast.BUFFER_EVENTS", 1)
    async with world.hub(server()) as hub:
        assert seen.value(metrics.WATCHERS) == seen.value(metrics.WATCHERS_DROPPED) == 0
        await until(lambda: world.peer.links)
        watch = hub.calls.watch(CallFilter())
        await anext(watch)
        assert seen.value(metrics.WATCHERS) == 1
        await hub.calls.call(spec(), "me")
        await settle(1)
        assert seen.value(metrics.WATCHERS_LAG) == 1
        await hub.calls.call(spec(), "me")
        await settle(1)
        with pytest.raises(ResourceExhausted):
            await anext(watch)
        assert seen.value(metrics.WATCHERS) == 0
        assert seen.value(metrics.WATCHERS_DROPPED) == 1


async def test_a_store_that_fails_is_not_available_until_it_works_again(world: World, seen: Seen) -> None:
    async with world.hub(server()) as hub:
        await settle()
        before, _ = seen.summed(metrics.STORE_COMMIT)
        assert before > 0
        assert seen.value(metrics.STORE_AVAILABLE) == 1
        world.store.failures = 3
        await hub.calls.call(spec(), "me")
        await settle()
        assert seen.value(metrics.STORE_AVAILABLE) == 0
        await settle(10)
        assert seen.value(metrics.STORE_AVAILABLE) == 1
        assert seen.summed(metrics.STORE_COMMIT)[0] > before
    # A hub that stops is not one whose disk is full.
    assert seen.value(metrics.STORE_AVAILABLE) == 1


async def unanswered(*_: Any) -> int:
    raise OutcomeUnknown("no answer yet")


async def test_commits_of_unknown_outcome_and_new_connections_to_the_database_are_counted(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.hub(server()) as hub:
        await settle()
        assert (seen.value(metrics.STORE_RECONNECTS), seen.value(metrics.STORE_UNKNOWN)) == (0, 0)
        monkeypatch.setattr(world.store, "commit", unanswered)
        with pytest.raises(Unavailable):
            await hub.servers.add(server("two"))
        monkeypatch.undo()
        monkeypatch.setattr(world.store.inner, "reconnects", 2)
        assert (seen.value(metrics.STORE_RECONNECTS), seen.value(metrics.STORE_UNKNOWN)) == (2, 1)


async def test_the_next_hub_counts_on_from_what_is_open(world: World, seen: Seen) -> None:
    task = {**FORM, "task": {"ttl": 3_600_000}}
    async with world.hub(server(answer_timeout_s=3600)) as hub:
        await ask(world, hub, params=task)
        await anyio.sleep(50)
    world.meter = (again := Seen()).meter
    async with world.hub(server(answer_timeout_s=3600)):
        assert again.value(metrics.PENDING, **FORMS) == 1
        assert again.value(metrics.OLDEST, **FORMS) == pytest.approx(50, abs=1)
        await until(lambda: len(world.peer.links) == 2)
        await settle()
        assert {p.attributes["state"]: p.value for p in again.points(metrics.SERVERS)} == {
            "connected": 1,
            "connecting": 0,
            "disconnected": 0,
            "disconnecting": 0,
            "error": 0,
        }


async def test_every_metric_is_measured(world: World, seen: Seen) -> None:
    world.settings |= asks()
    async with world.hub(server()) as hub:
        request = await ask(world, hub)
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await hub.calls.call(spec("u"), "me")
        await hub.calls.start(deletion(), "me")
        await deny(hub, await question(hub))
        await settle(1)
    silent = [metric.name for metric in metrics.METRICS if not seen.points(metric)]
    # It is no member of a fleet (test_fleet_measures.py).
    silent = [name for name in silent if not name.startswith("hubbub.fleet.")]
    # The wire below it is scripted here, and nobody serves hosts.
    assert silent == [metrics.OPERATION.name, metrics.SERVED.name, metrics.HOST_SESSIONS.name]


async def test_servers_that_are_wanted_and_away_are_counted_and_named_those_given_up_too(
    world: World, seen: Seen
) -> None:
    world.peer.always = UpstreamError(REFUSED)
    async with world.hub(server(retries=0), server("two")) as hub:
        await until(lambda: hub.servers.get("one").connection.gave_up and world.peers["two"].links)
        await settle()
        assert seen.value(metrics.SERVERS_AWAY, gave_up="yes") == 1
        assert seen.value(metrics.SERVERS_AWAY, gave_up="no") == 0
        assert named(seen) == {"one": 0, "two": 1}
        world.peer.always = None
        await hub.servers.connect("one")
        await settle()
        assert seen.value(metrics.SERVERS_AWAY, gave_up="yes") == 0
        assert named(seen) == {"one": 1, "two": 1}
        await hub.servers.disconnect("two")
        await settle()
        assert named(seen) == {"one": 1}


async def test_only_so_many_servers_have_a_series_under_their_name(world: World, seen: Seen) -> None:
    async with world.hub() as hub:
        for number in range(MAX_NAMES + 20):
            await hub.servers.add(server(f"s{number}"))
            await settle()
            if number % 2:
                await hub.servers.remove(f"s{number}")
        await settle()
        assert len(named(seen)) == MAX_NAMES / 2


async def test_metrics_name_no_server_where_that_is_switched_off(world: World, seen: Seen) -> None:
    world.settings = {"metrics_server_names": False}
    async with world.hub(server()):
        await until(lambda: world.peer.links)
        await settle()
        assert named(seen) == {}
        assert seen.value(metrics.SERVERS_AWAY, gave_up="no") == 0


def named(seen: Seen) -> dict[str, float]:
    return {str(point.attributes["server"]): point.value for point in seen.points(metrics.SERVER_CONNECTED)}


async def test_approvals_are_counted_by_their_rule_and_how_they_ended(world: World, seen: Seen) -> None:
    world.settings |= asks()
    async with world.hub(server()) as hub:
        await hub.calls.start(deletion("yes"), "bot")
        request = await question(hub)
        await anyio.sleep(30)
        await approve(hub, request)
        await hub.calls.start(deletion("no"), "bot")
        await deny(hub, await question(hub))
        await hub.calls.start(deletion("withdrawn"), "bot")
        await question(hub)
        await hub.calls.cancel("withdrawn", abort=False)
        await settle()
        await hub.calls.start(deletion("silence"), "bot")
        await question(hub)
        await anyio.sleep(86_401)
        counted = {point.attributes["outcome"]: point.value for point in seen.points(metrics.APPROVALS, rule="deletes")}
        assert counted == {"asked": 4, "approved": 1, "denied": 1, "withdrawn": 1, "expired": 1}
        assert seen.summed(metrics.APPROVAL_WAIT, outcome="approved") == (1, pytest.approx(30, abs=1))
        assert seen.summed(metrics.QUEUE_WAIT)[0] == 0
