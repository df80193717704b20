"""A credential ends at a time of the system's clock, whatever becomes of that clock while somebody is inside."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.errors import HubError, Unauthenticated
from hubbubd.rpc.auth.gate import ENDED_CREDENTIALS, Gate
from hubbubd.rpc.interceptors import Oversight
from hubbubd.timing.clock import TICK_S, Clock

from ..runtime.virtual_time import VirtualTimeLoop

EPOCH = 1_800_000_000.0
HOUR_S = 3600.0
GOOD_FOR_S = 8 * HOUR_S


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class System:
    """The system's clock and sleep, beside the loop's own time, and a gate that goes by them."""

    def __init__(self) -> None:
        self.epoch, self.slept = EPOCH, 0.0
        self.clock = Clock(
            self.steady,
            read_wall_s=lambda: self.epoch + self.slept + self.steady(),
            read_suspended_s=lambda: self.slept,
        )
        self.gate = Gate("token", self.clock)
        self.ended: list[float] = []

    @staticmethod
    def steady() -> float:
        return asyncio.get_running_loop().time()

    async def stay(self) -> None:
        """Is inside until the credential ends."""
        expires_at = self.clock.now() + GOOD_FOR_S
        ada = Principal(name="ada", grants=(Grant(Role.ADMIN),), credential="c", expires_at=expires_at)
        with pytest.raises(Unauthenticated), self.gate.while_valid(ada, "/x", cast("Oversight", Unnoted())):
            await anyio.sleep_forever()
        self.ended.append(self.steady())


class Unnoted:
    """Stands for the oversight: what it would note is nothing to these tests."""

    def record_cut_short(self, _path: str, exc: HubError, _caller: Principal) -> HubError:
        return exc

    record_refusal = record_cut_short


def sets(by_s: float) -> Callable[[System], None]:
    def change(system: System) -> None:
        system.epoch += by_s

    return change


def sleeps(for_s: float) -> Callable[[System], None]:
    def change(system: System) -> None:
        system.slept += for_s

    return change


@pytest.mark.parametrize(
    ("happens", "ends_at"),
    [
        (sets(0), GOOD_FOR_S),
        (sets(5 * HOUR_S), GOOD_FOR_S - 5 * HOUR_S),
        (sets(-5 * HOUR_S), GOOD_FOR_S + 5 * HOUR_S),
        (sleeps(5 * HOUR_S), GOOD_FOR_S - 5 * HOUR_S),
        (sets(20 * HOUR_S), HOUR_S),
        (sleeps(20 * HOUR_S), HOUR_S),
    ],
    ids=["nothing", "set ahead", "set back", "slept", "set past the end", "slept past the end"],
)
async def test_whoever_is_inside_is_out_when_the_clock_says_so(
    happens: Callable[[System], None], ends_at: float
) -> None:
    system = System()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(system.clock.run)
        tasks.start_soon(system.stay)
        await anyio.sleep(HOUR_S)
        happens(system)
        with anyio.fail_after(100 * HOUR_S):
            while not system.ended:
                await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    (ended,) = system.ended
    assert ends_at <= ended <= ends_at + TICK_S + 1


async def test_a_credential_that_was_revoked_between_the_gate_and_the_rpc_does_nothing_however_many_others_were() -> (
    None
):
    gate = System().gate
    for number in range(ENDED_CREDENTIALS + 10):
        gate.end_credential(f"c{number}")
    last = Principal(name="ada", grants=(Grant(Role.ADMIN),), credential=f"c{number}")
    with pytest.raises(Unauthenticated), gate.while_valid(last, "/x", cast("Oversight", Unnoted())):
        pytest.fail("it was let in")
