"""A clock that leaps deletes nothing that a right one would keep, and ends no wait early."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.audit import AuditFilter
from hubbubd.core.filters import CallFilter, TaskFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import ages
from hubbubd.runtime.ownership import UPKEEP
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.timing.clock import TICK_S

from .conftest import FORM, FailingStore, World, open_requests, server, settle, spec, until
from .fleet import Members, members
from .model import bounded
from .system import System
from .test_tasks import create, linked
from .virtual_time import VirtualTimeLoop

HOUR_S, DAY_S = 3600.0, 86_400.0
PART_S = HOUR_S / 4
AGE_S = 6 * PART_S
"""As short as virtual time is long: a hub does something each second of it, and a fleet more."""

AGE_IN_FLEET_S = HOUR_S / 4
LEAPS = (-400, -30, -2, -0.5, 0.5, 2, 30, 400)
"""Days by which a clock is set."""

IN_FLEET = (-400, -0.5, 0.5, 400)
"""The same through several hubs at once, which cost several times as much. All others: tests/core/test_eras.py."""


@pytest.fixture
async def system(world: World) -> System:
    system = System()
    world.clock = system.clock()
    world.settings = {"call_history_age_s": AGE_S, "audit_history_age_s": AGE_S}
    return system


@pytest.fixture
async def fleet() -> AsyncGenerator[Members]:
    async with members() as fleet:
        fleet.settings["hub"] = {"call_history_age_s": AGE_IN_FLEET_S}
        yield fleet


def history(hub: Hub) -> set[str]:
    return {call.id for call in hub.calls.select(CallFilter())}


async def noticed() -> None:
    await anyio.sleep(TICK_S + 1)


@pytest.mark.parametrize("days", LEAPS)
async def test_a_clock_that_is_set_while_the_hub_runs_ages_nothing(world: World, system: System, days: float) -> None:
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        hub.audit.note("Test", "x")
        await anyio.sleep(2 * PART_S)
        system.epoch += days * DAY_S
        await hub.retention.run_round()  # before the clock is looked at by itself
        await noticed()
        await hub.retention.run_round()
        assert history(hub) == {call.id}
        assert [each.target for each in hub.audit.select(AuditFilter())] == ["x"]
        await anyio.sleep(3 * PART_S)
        assert history(hub) == {call.id}
        await anyio.sleep(2 * PART_S)
        assert not history(hub)
        await hub.retention.run_round()
        assert not hub.audit.select(AuditFilter())


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("days", LEAPS)
async def test_a_hub_that_starts_with_another_clock_ages_nothing(
    world: World, system: System, days: float, killed: bool
) -> None:
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        await anyio.sleep(2 * PART_S)
        world.store.failures = 10**6 if killed else 0
    world.store.failures = 0
    system.epoch += days * DAY_S
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        later = await hub.calls.call(spec(), "me")
        await hub.retention.run_round()
        await anyio.sleep(2 * PART_S)
        assert history(hub) == {call.id, later.id}
    system.epoch -= days * DAY_S
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await anyio.sleep(PART_S)
        assert history(hub) == {call.id, later.id}
        await anyio.sleep(AGE_S + PART_S)
        assert not history(hub)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(-400, 400)),
            st.tuples(st.just("restart"), st.integers(-400, 400)),
            st.tuples(st.just("kill"), st.integers(-400, 400)),
            st.tuples(st.just("stop"), st.integers(0, 5)),
            st.tuples(st.just("wait"), st.integers(0, 3)),
            st.tuples(st.just("service"), st.booleans()),
        ),
        max_size=8,
    )
)
@bounded(0.3, 1)
def test_nothing_is_deleted_that_true_time_would_keep(steps: list[tuple[str, int]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_live(steps))


async def _live(steps: list[tuple[str, int]]) -> None:
    """Days pass, the clock is set by days, hubs stop for days; a time service speaks only while the clock is right."""
    store, system, off_s, service = await SqliteStore.open(":memory:"), System(), 0.0, False
    world = World(FailingStore(store), settings={"call_history_age_s": 2 * PART_S})
    made: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)

        async def start() -> Hub:
            world.clock, world.store.failures = system.clock(), 0
            return await running.enter_async_context(world.hub(server()))

        running = AsyncExitStack()
        hub = await start()
        for what, amount in [("wait", 0), *steps, ("wait", 1)]:
            call = await hub.calls.call(spec(), "me")
            made[call.id] = anyio.current_time()
            await settle()
            match what:
                case "wait":
                    await anyio.sleep(amount * PART_S)
                case "service":
                    service = bool(amount)
                case _:
                    if what != "set":
                        world.store.failures = 10**6 if what == "kill" else 0
                        await running.aclose()
                    by_s = 0.0 if what == "stop" else amount * DAY_S
                    system.epoch, off_s = system.epoch + by_s, off_s + by_s
                    if what == "stop":
                        await anyio.sleep(amount * DAY_S)
            system.synchronised = service and off_s == 0
            if what in ("restart", "kill", "stop"):
                hub = await start()
            await hub.retention.run_round()
            await noticed()
            await hub.retention.run_round()
            young = {each for each, at in made.items() if anyio.current_time() - at < 2 * PART_S}
            assert young <= history(hub)
        await running.aclose()


async def test_the_right_clock_after_a_real_stop_needs_a_time_service_at_both_ends(
    world: World, system: System
) -> None:
    system.synchronised = True
    async with world.hub(server()) as hub:
        await hub.calls.call(spec(), "me")
        await settle()
    system.synchronised = False  # as at the start of a machine
    await anyio.sleep(9 * DAY_S)
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await hub.retention.run_round()
        assert len(history(hub)) == 1
        assert hub.ages.doubted_s == pytest.approx(9 * DAY_S, abs=HOUR_S)
        system.synchronised = True
        await hub.retention.run_round()
        assert not history(hub)
        assert hub.ages.doubted_s == 0


async def test_a_person_may_say_that_a_stop_was_real(world: World, system: System) -> None:
    async with world.hub(server()) as hub:
        await hub.calls.call(spec(), "me")
    await anyio.sleep(9 * DAY_S)
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await anyio.sleep(2 * PART_S)
        assert len(history(hub)) == 1
        assert await hub.ages.trust_clock() == pytest.approx(9 * DAY_S, abs=HOUR_S)
        await hub.retention.run_round()
        assert not history(hub)
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        assert hub.ages.doubted_s == 0


async def test_many_small_steps_are_a_leap(world: World, system: System) -> None:
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        for _ in range(200):
            system.epoch += 50 * 60
            await noticed()
        await hub.retention.run_round()
        assert history(hub) == {call.id}


@pytest.mark.parametrize("days", LEAPS)
async def test_a_question_has_the_rest_of_its_time_after_the_clock_was_set(
    world: World, system: System, days: float
) -> None:
    async with world.linked(server(answer_timeout_s=HOUR_S)) as hub:
        asked = [world.peer.link.ask("elicitation/create", FORM) for _ in range(2)]
        await until(lambda: len(open_requests(hub)) == 2)
        one, two = open_requests(hub)
        claimed = await hub.inbox.claim(one.id, "me", 300)
        await anyio.sleep(100)
        system.epoch += days * DAY_S
        await noticed()
        held = hub.inbox.get(one.id)
        assert held.claim.expires_at == pytest.approx(system.wall() + 300 - 106, abs=2)
        await anyio.sleep(3000)
        assert hub.inbox.get(two.id).state is RequestState.OPEN
        assert hub.inbox.get(one.id).claim is None
        await hub.inbox.answer(one.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await anyio.sleep(600)
        assert hub.inbox.get(two.id).state is RequestState.EXPIRED
        del asked, claimed


async def test_a_task_of_a_server_lives_on_after_the_clock_was_set_ahead(world: World, system: System) -> None:
    async with world.hub(server()) as hub:
        await linked(world)
        await create(world)
        system.epoch += 9 * DAY_S
        await noticed()
        (request,) = open_requests(hub)
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await anyio.sleep(240)
        assert len(hub.tasks.select(TaskFilter())) == 1


async def test_a_round_s_question_has_the_rest_of_its_time_after_a_start_with_another_clock(
    world: World, system: System
) -> None:
    async with world.hub(server()) as hub:
        await linked(world)
        await create(world)
        (request,) = open_requests(hub)
    system.epoch += 2 * DAY_S
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await anyio.sleep(60)
        assert hub.inbox.get(request.id).state is RequestState.OPEN


# A fleet


@pytest.mark.parametrize("days", IN_FLEET)
async def test_a_member_whose_clock_is_wrong_deletes_nothing_early(fleet: Members, days: float) -> None:
    a = await fleet.start("a", server())
    await until(lambda: a.fleet.owns("one"))
    call = await a.hub.calls.call(spec(), "me")
    await settle()
    fleet.wrong_s["b"] = days * DAY_S
    b = await fleet.start("b", server())
    a.kill()
    await until(lambda: b.fleet.owns("one") and b.fleet.owns(UPKEEP))
    later = await b.hub.calls.call(spec(), "me")
    assert later.created_at == pytest.approx(fleet.database.time(), abs=2)
    await b.hub.retention.run_round()
    fleet.wrong_s["b"] = -days * DAY_S
    await noticed()
    await b.hub.retention.run_round()
    assert history(b.hub) == {call.id, later.id}
    await anyio.sleep(1.2 * AGE_IN_FLEET_S)
    assert not history(b.hub)


@pytest.mark.parametrize("days", IN_FLEET)
async def test_a_database_whose_clock_is_set_ages_nothing(fleet: Members, days: float) -> None:
    a, b = await fleet.start("a", server()), await fleet.start("b", server())
    await until(lambda: a.fleet.owns("one") or b.fleet.owns("one"))
    one = a if a.fleet.owns("one") else b
    call = await one.hub.calls.call(spec(), "me")
    await settle(300)
    fleet.database.set_s += days * DAY_S
    await settle(30)
    for each in (a, b):
        if each.fleet.owns(UPKEEP):
            each.kill()
    (left,) = fleet.running.values()
    await until(lambda: left.fleet.owns(UPKEEP))
    await left.hub.retention.run_round()
    assert history(left.hub) == {call.id}
    await anyio.sleep(1.2 * AGE_IN_FLEET_S)
    assert not history(left.hub)


async def test_what_a_person_says_at_one_member_is_not_overwritten_by_another(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.start("a", server()), await fleet.start("b", server())
    await until(lambda: a.fleet.owns(UPKEEP) or b.fleet.owns(UPKEEP))
    notes, other = (a, b) if a.fleet.owns(UPKEEP) else (b, a)
    await settle(600)
    fleet.database.set_s += 9 * DAY_S
    await settle(30)
    await notes.hub.retention.run_round()
    await settle(30)
    assert other.hub.ages.doubted_s == pytest.approx(9 * DAY_S, abs=HOUR_S)
    monkeypatch.setattr(ages, "NOTE_S", 0.0)
    notes.hub.ages.close()  # it notes the time, a moment later
    await other.hub.ages.trust_clock()
    await anyio.sleep(60)
    assert (notes.hub.ages.doubted_s, other.hub.ages.doubted_s) == (0, 0)
