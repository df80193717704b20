"""Long work in an event loop that others use, too."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from hubbubd.timing import turns
from hubbubd.timing.turns import LONGEST_PAUSE_S, MAX_BUSY_S, PAUSE_FACTOR, SHORTEST_PAUSE_S, wait_for_turn

PIECE_S = 0.005
LIMIT_S = 60


@contextmanager
def somebody_busy(does: Callable[[], object] = lambda: piece(0.001)) -> Iterator[None]:
    """Somebody else has something to do in each round of the loop."""
    loop = asyncio.get_running_loop()
    going = True

    def work() -> None:
        does()
        if going:
            loop.call_soon(work)

    work()
    try:
        yield
    finally:
        going = False


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is slept, in seconds."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    return slept


def piece(seconds: float = PIECE_S) -> None:
    """Holds the loop up, and needs so much of the processor's time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_while_others_are_busy_they_get_several_times_what_a_piece_takes(pauses: list[float]) -> None:
    await wait_for_turn()
    with somebody_busy():
        for _ in range(3):
            piece()
            await anyio.lowlevel.checkpoint()
            await wait_for_turn()
    assert len(pauses) == 3
    assert min(pauses) >= PAUSE_FACTOR * PIECE_S


async def test_a_pause_is_bounded_from_both_sides(pauses: list[float]) -> None:
    with somebody_busy():
        await wait_for_turn()
        assert pauses.pop() == SHORTEST_PAUSE_S
        piece(2 * LONGEST_PAUSE_S / PAUSE_FACTOR)
        await anyio.lowlevel.checkpoint()
        await wait_for_turn()
        assert pauses.pop() == LONGEST_PAUSE_S


async def test_others_count_as_busy_in_proportion_to_what_they_do(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(turns, "perf_counter", lambda: now)
    with somebody_busy():
        await wait_for_turn()
    now = 0.02
    await wait_for_turn()
    assert len(pauses) == 2
    now = 0.4
    await wait_for_turn()
    assert len(pauses) == 2


async def test_but_for_half_a_second_at_most(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(turns, "perf_counter", lambda: now)
    with somebody_busy(lambda: piece(0.02)):
        await wait_for_turn()
    with somebody_busy():
        await wait_for_turn()
    now = MAX_BUSY_S - 0.01
    await wait_for_turn()
    assert len(pauses) == 3
    now = MAX_BUSY_S + 0.01
    await wait_for_turn()
    assert len(pauses) == 3


async def test_a_piece_counts_by_what_it_needs_and_not_by_how_long_it_took(pauses: list[float]) -> None:
    with somebody_busy():
        await wait_for_turn()
        time.sleep(0.05)
        await anyio.lowlevel.checkpoint()
        await wait_for_turn()
    assert pauses[-1] < PAUSE_FACTOR * 0.05


async def test_a_round_that_only_took_long_is_not_a_busy_one(pauses: list[float]) -> None:
    with somebody_busy(lambda: time.sleep(0.001)):  # as when other processes have the processor
        await wait_for_turn()
    assert not pauses


async def test_no_two_pieces_are_done_in_the_same_round_of_the_loop() -> None:
    rounds = 0
    done: list[int] = []

    def count() -> None:
        nonlocal rounds
        rounds += 1
        if len(done) < 20:
            asyncio.get_running_loop().call_soon(count)

    async def work() -> None:
        for _ in range(5):
            await wait_for_turn()
            done.append(rounds)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as workers:
            count()
            for _ in range(4):
                workers.start_soon(work)
    assert len(done) == 20
    assert len(set(done)) == 20


async def test_who_gives_up_waiting_keeps_no_turn() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await wait_for_turn()
    with anyio.fail_after(LIMIT_S):
        await wait_for_turn()
