"""A connection comes up, goes away and comes back, as the state table says."""

import itertools
from dataclasses import replace

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import FailedPrecondition, UpstreamError
from hubbubd.upstream.ports import Era, LostDuringProbe

from ..raising import raising
from .conftest import FORM, World, open_requests, server, settle, spec, until
from .peer import LOST, REFUSED, SESSION_LOST, Outcome, Sent, at_once, fault, never


def steps(times: list[float]) -> list[float]:
    """The pauses between attempts."""
    return [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbubd.runtime.servers.connections.shell.random.random", lambda: 0.0)


async def test_three_retries_after_one_two_and_four_seconds_then_every_call_fails_with_the_reason(world: World) -> None:
    world.peer.always = UpstreamError(REFUSED)
    async with world.hub(server(retries=3)) as hub, anyio.create_task_group() as tasks:
        ended = []

        async def call() -> None:
            ended.append(await hub.calls.call(spec(), "me"))

        tasks.start_soon(call)
        tasks.start_soon(call)
        await until(lambda: len(ended) == 2)
        assert steps(world.peer.attempts) == [1, 2, 4]
        assert {call.fault.code for call in ended} == {"CONNECTION_REFUSED"}
        assert "gave up" in ended[0].fault.message
        record = hub.servers.get("one")
        assert record.connection.state is ConnectionState.DISCONNECTED
        assert record.connection.gave_up
        assert record.connection.fault is not None
        with raising(FailedPrecondition, "SERVER_NOT_CONNECTED", match="disconnected"):
            await hub.calls.call(spec(), "me")


async def test_a_lost_connection_fails_what_is_in_flight_and_runs_what_is_queued_after_the_reconnect(
    world: World,
) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        calls = [await hub.calls.start(spec(f"t{n}"), "me") for n in range(4)]
        await until(lambda: world.peer.sent)
        world.peer.behaviour = at_once
        world.peer.link.lose()
        await until(lambda: all(hub.calls.get(call.id).state.ended for call in calls))
        states = [hub.calls.get(call.id).state for call in calls]
        assert states == [CallState.FAILED] + [CallState.COMPLETED] * 3
        assert hub.calls.get(calls[0].id).fault.code == "CONNECTION_LOST"
        assert [sent.params["name"] for sent in world.peer.sent] == ["t0", "t1", "t2", "t3"]


async def test_queued_calls_do_not_fall_for_a_connection_that_is_just_going(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server(max_in_flight=2)) as hub:
        calls = [await hub.calls.start(spec(f"t{n}"), "me") for n in range(6)]
        await until(lambda: len(world.peer.sent) == 2)
        world.peer.behaviour = at_once
        world.peer.link.lose()
        await until(lambda: all(hub.calls.get(call.id).state.ended for call in calls))
        assert [sent.params["name"] for sent in world.peer.sent] == [f"t{n}" for n in range(6)]
        assert [hub.calls.get(call.id).state.value for call in calls] == ["failed"] * 2 + ["completed"] * 4


async def test_a_call_that_meets_a_lost_session_is_sent_once_more_and_no_attempt_is_counted(world: World) -> None:
    async def lose_session(sent: Sent) -> Outcome:
        if len(world.peer.sent) == 1:
            sent.link.lose(SESSION_LOST)
            await anyio.sleep_forever()
        return await at_once(sent)

    world.peer.behaviour = lose_session
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.state is CallState.COMPLETED
        assert len(world.peer.sent) == 2
        assert len(world.peer.attempts) == 2
        assert anyio.current_time() < 0.1
        assert hub.servers.get("one").connection.attempt == 0


async def test_a_call_for_which_no_connection_could_be_made_waits_for_the_next_one(world: World) -> None:
    async def refuse_once(sent: Sent) -> Outcome:
        if len(world.peer.sent) == 1:
            sent.link.lose(REFUSED)
            raise UpstreamError(replace(LOST, details={"sent": False}))
        return await at_once(sent)

    world.peer.behaviour = refuse_once
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.state is CallState.COMPLETED
        assert len(world.peer.sent) == 2
        assert len(world.peer.attempts) == 2


async def test_disconnecting_rejects_all_calls_and_clears_tasks_with_their_questions(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        calls = [await hub.calls.start(spec(), "me") for _ in range(3)]
        await until(lambda: world.peer.sent)
        await world.peer.link.asked("elicitation/create", {**FORM, "task": {}})
        plain = world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 2)
        record = await hub.servers.disconnect("one")
        assert record.connection.state is ConnectionState.DISCONNECTED
        assert not record.wanted
        assert plain.done.is_set()
        await settle()
        assert [hub.calls.get(call.id).fault.code for call in calls] == ["SERVER_DISCONNECTED"] * 3
        assert not open_requests(hub)
        assert not list(hub.tasks)
        await anyio.sleep(600)
        assert len(world.peer.attempts) == 1


async def test_disconnecting_while_a_lost_connection_is_still_being_closed_ends_it(world: World) -> None:
    world.peer.closing_s = 5
    async with world.linked() as hub:
        await settle()
        world.peer.link.lose()
        await settle()
        with anyio.fail_after(60):
            await hub.servers.disconnect("one")
        assert hub.servers.get("one").connection.state is ConnectionState.DISCONNECTED
        await hub.servers.connect("one")
        assert (await hub.calls.call(spec(), "me")).state is CallState.COMPLETED


async def test_missed_pings_do_not_count_while_a_call_is_on_the_wire(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server(call_timeout_s=1000, call_max_s=1000)) as hub:
        call = await hub.calls.start(spec(), "me")
        await until(lambda: world.peer.links)
        world.peer.link.silent = True
        await anyio.sleep(900)
        assert hub.servers.get("one").connection.state is ConnectionState.CONNECTED
        assert len(world.peer.links) == 1
        await until(lambda: hub.calls.get(call.id).state.ended)
        await anyio.sleep(120)
        assert len(world.peer.links) == 2


async def test_after_a_server_died_of_the_probe_the_next_attempt_is_a_handshake(world: World) -> None:
    world.peer.plan.append(LostDuringProbe(fault("CONNECTION_LOST", during="probe")))
    async with world.hub(server()) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        assert world.peer.hints == [None, Era.HANDSHAKE]


async def test_a_server_of_the_newer_family_that_is_cut_off_while_it_is_probed_is_probed_once_more(
    world: World,
) -> None:
    world.peer.era = Era.STATELESS
    died = LostDuringProbe(fault("CONNECTION_LOST", during="probe"))
    async with world.hub(server(stable_after_s=0)) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        world.peer.plan.append(died)
        world.peer.link.lose()
        await until(lambda: len(world.peer.links) == 2)
        assert world.peer.hints == [None, Era.STATELESS, None]
        world.peer.plan.extend([died, died])
        world.peer.link.lose()
        await until(lambda: len(world.peer.links) == 3)
        assert world.peer.hints[3:] == [Era.STATELESS, None, Era.HANDSHAKE]


@pytest.mark.parametrize("mistake", [RuntimeError("a bug"), ExceptionGroup("two", [ValueError(), KeyError()])])
async def test_an_exception_that_nobody_expects_of_a_connector_is_one_more_failed_attempt(
    world: World, mistake: Exception
) -> None:
    world.peer.plan.append(mistake)
    async with world.hub(server()) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        assert steps(world.peer.attempts) == [1]
