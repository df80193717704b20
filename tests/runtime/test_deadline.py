"""A deadline that is moved, in virtual time."""

import asyncio
import math

import anyio
import pytest

from hubbubd.timing.deadline import Deadline


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


async def for_ever() -> str:
    """Work without an end."""
    await anyio.sleep(1e6)
    return "done"


@pytest.mark.parametrize("at", [5.0, 15.0, 30.0])
async def test_it_ends_the_work_at_the_time_it_was_last_moved_to(at: float) -> None:
    deadline, begun = Deadline(now() + 10), now()

    async def work() -> None:
        deadline.move(math.inf)
        await anyio.sleep(1)
        deadline.move(begun + 20)
        deadline.move(begun + at)
        await for_ever()

    assert await deadline.run(work) is None
    assert (deadline.is_over, now() - begun) == (True, at)


@pytest.mark.parametrize("passed", [True, False], ids=["in time", "by hand"])
async def test_work_that_is_over_already_ends_at_its_first_wait(passed: bool) -> None:
    deadline, done = Deadline(), list[str]()
    if passed:
        deadline.move(now())
    else:
        deadline.end()

    async def work() -> None:
        try:
            await anyio.sleep(0)
            pytest.fail("it went on")
        finally:
            done.append("cleaned up")

    assert await deadline.run(work) is None
    assert (deadline.is_over, done) == (True, ["cleaned up"])


@pytest.mark.parametrize("passed", [True, False], ids=["in time", "by hand"])
async def test_a_check_ends_what_is_over_without_a_wait(passed: bool) -> None:
    deadline = Deadline()

    async def work() -> None:
        await deadline.stop_if_over()
        if passed:
            deadline.move(now())
        else:
            deadline.end()
        await deadline.stop_if_over()
        pytest.fail("it went on")

    assert await deadline.run(work) is None


async def test_work_that_has_no_wait_left_returns_its_result_even_if_it_is_over() -> None:
    deadline = Deadline()

    async def work() -> str:
        deadline.end()
        return "done"

    assert await deadline.run(work) == "done"
    assert deadline.is_over


async def test_what_is_shielded_ends_first() -> None:
    deadline, kept = Deadline(now() + 1), list[str]()

    async def work() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
            kept.append("written")
        await for_ever()

    assert await deadline.run(work) is None
    assert kept == ["written"]


async def test_who_cancels_the_task_itself_is_heard_even_when_it_is_over() -> None:
    deadline = Deadline()
    task = asyncio.create_task(deadline.run(for_ever))
    await anyio.sleep(1)
    deadline.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
