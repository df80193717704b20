"""The system's clock is set, and the computer sleeps, while the hub runs."""

import ast
import asyncio
from pathlib import Path

import anyio
import pytest

import hubbubd
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.timing.clock import STEP_S, TICK_S

from .conftest import EPOCH, FORM, World, question, server, spec, until
from .peer import REFUSED, never
from .system import System

HOUR_S, DAY_S, YEAR_S = 3600.0, 86400.0, 365 * 86400.0


@pytest.fixture
async def system(world: World) -> System:
    """What a test sets; the next hub's clock follows it."""
    system = System()
    world.clock = system.clock()
    return system


async def noticed() -> None:
    await anyio.sleep(TICK_S + 1)


@pytest.mark.parametrize("step_s", [8 * HOUR_S, -8 * HOUR_S, 5.0, -5.0, 50 * YEAR_S])
async def test_what_is_stamped_follows_the_system_through_a_step(world: World, system: System, step_s: float) -> None:
    async with world.hub(server(answer_timeout_s=300)) as hub:
        system.epoch += step_s
        call = await hub.calls.call(spec(), "me")
        assert call.created_at == pytest.approx(system.wall(), abs=STEP_S)
        await until(lambda: world.peer.links)
        world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        assert request.created_at == pytest.approx(system.wall(), abs=STEP_S)
        assert request.deadline == pytest.approx(system.wall() + 300, abs=STEP_S)


async def test_less_than_a_second_is_left_alone_so_that_records_keep_their_order(system: System) -> None:
    clock = system.clock()
    before = clock.now()
    system.epoch -= 0.9
    assert clock.now() == before


async def test_a_deadline_that_passed_while_the_computer_slept_has_passed(world: World, system: System) -> None:
    async with world.linked() as hub:
        world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        system.slept += 8 * HOUR_S
        await noticed()
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED


@pytest.mark.parametrize("step_s", [8 * HOUR_S, -8 * HOUR_S])
async def test_a_call_has_its_own_time_whatever_becomes_of_the_clock(
    world: World, system: System, step_s: float
) -> None:
    world.peer.behaviour = never
    async with world.hub(server(call_timeout_s=60)) as hub:
        call = await hub.calls.start(spec(), "me")
        await until(lambda: world.peer.sent)
        system.epoch += step_s
        await anyio.sleep(50)
        assert not hub.calls.get(call.id).state.ended
        await anyio.sleep(15)
        assert hub.calls.get(call.id).fault.code == "CALL_TIMEOUT"


async def test_a_step_back_holds_up_neither_counts_nor_lists_nor_the_next_attempt(world: World, system: System) -> None:
    world.peer.plan.extend([UpstreamError(REFUSED)] * 2)
    async with world.hub(server()) as hub:
        system.epoch -= 8 * HOUR_S
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        assert asyncio.get_running_loop().time() < 10
        await hub.calls.call(spec(), "me")
        await until(lambda: hub.servers.get("one").counts.completed == 1)


def history(hub: Hub) -> int:
    return len(hub.calls.select(CallFilter(server="one")))


async def test_what_a_hub_stamped_in_1970_is_as_old_as_it_is_once_the_clock_was_set(
    world: World, system: System
) -> None:
    system.epoch = 100.0
    world.clock = system.clock()
    world.settings = {"call_history_age_s": DAY_S}
    async with world.hub(server()) as hub:
        await hub.calls.call(spec(), "me")
        system.epoch = EPOCH
        await noticed()
        await hub.retention.run_round()
        assert history(hub) == 1
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await anyio.sleep(2 * HOUR_S)
        await hub.retention.run_round()
        assert history(hub) == 1
        await anyio.sleep(DAY_S)
        await hub.retention.run_round()
        assert history(hub) == 0


async def test_what_was_stamped_by_a_clock_that_was_ahead_does_not_keep_later_records(
    world: World, system: System
) -> None:
    system.epoch += YEAR_S
    world.clock = system.clock()
    async with world.hub(server()) as hub:
        await hub.calls.call(spec(), "me")
    system.epoch -= YEAR_S
    world.clock = system.clock()
    world.settings = {"call_history_count": 2, "call_history_age_s": DAY_S}
    async with world.hub(server()) as hub:
        for _ in range(4):
            await hub.calls.call(spec(), "me")
            await anyio.sleep(10)
        await hub.retention.run_round()
        assert history(hub) == 2


ALLOWED = {
    "timing/clock.py": {"time.time", "time.clock_gettime"},
    "downstream/instrumentation.py": {"time.perf_counter"},  # how long something took
    "process/garbage.py": {"time.perf_counter"},
    "config/sections/tls.py": {"datetime.now"},  # certificates are good by the system's clock
    "rpc/auth/jwt.py": {"time.time"},  # and so are tokens of others
    "rpc/listeners/tls.py": {"datetime.now"},
    "runtime/diagnostics/checks.py": {"datetime.now"},
    "runtime/records/ledger.py": {"time.perf_counter"},  # how long something took
    "telemetry/sdk/tracer.py": {"time.monotonic"},
    "telemetry/sdk/logs.py": {"time.time_ns"},  # when a line was written
    "telemetry/tracer.py": {"time.time"},  # before there is a clock
    "timing/turns.py": {"perf_counter", "thread_time"},  # when, and how much, the loop was busy
    "upstream/faults.py": {"time"},  # a date of `Retry-After`
    "upstream/http/oauth/flow.py": {"time"},  # the SDK compares the end of a token with it
    "upstream/stdio/reaper.py": {"time.monotonic"},  # a process of its own
    "upstream/links/instrumentation.py": {"time.perf_counter"},
}
"""Who looks at a clock of the system's, and why. Everybody else asks `Clock`, or waits on the event loop."""

CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns", "perf_counter"}
DATES = {"now", "utcnow", "today"}


def clocks_in(source: str) -> set[str]:
    found: set[str] = set()
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=name) if name in CLOCKS:
                found.add(f"time.{name}")
            case ast.Attribute(value=ast.Name(id="datetime" | "date" as kind), attr=name) if name in DATES:
                found.add(f"{kind}.{name}")
            case ast.Call(func=ast.Name(id=name)) if name in imported:
                found.add(name)
            case _:
                pass
    return found


def test_nobody_else_looks_at_a_clock_of_the_systems() -> None:
    root = Path(hubbubd.__file__).parent
    found = {
        str(path.relative_to(root)): clocks
        for path in root.rglob("*.py")
        if (clocks := clocks_in(path.read_text(encoding="utf-8")))
    }
    assert {
        name: clocks - ALLOWED.get(name, set()) for name, clocks in found.items() if clocks - ALLOWED.get(name, set())
    } == {}
    assert clocks_in("import time\nfrom time import time as now\nnow(); time.monotonic()") == {"now", "time.monotonic"}
