"""A time limit that begins with the first wait."""

import asyncio

import anyio
import pytest

from hubbubd.timing.limited import run_with_limit


async def test_work_that_does_not_wait_returns_what_it_returns() -> None:
    async def work() -> int:
        return 7

    assert await run_with_limit(work(), 0.0) == 7


async def test_work_that_waits_goes_on_and_ends_in_time() -> None:
    async def work() -> str:
        await anyio.sleep(1)
        await anyio.sleep(1)
        return "done"

    assert await run_with_limit(work(), 3) == "done"


async def test_work_that_waits_too_long_is_ended_and_may_clean_up() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(TimeoutError):
        await run_with_limit(work(), 3)
    assert seen == ["cancelled"]


async def test_what_the_work_raises_is_raised() -> None:
    async def at_once() -> None:
        raise ConnectionError

    async def later() -> None:
        await anyio.sleep(1)
        raise ConnectionError

    for work in (at_once, later):
        with pytest.raises(ConnectionError):
            await run_with_limit(work(), 3)


async def test_it_is_cancelled_from_outside_as_any_work_is() -> None:
    async def work() -> None:
        await anyio.sleep(10)

    with anyio.move_on_after(1) as scope:
        await run_with_limit(work(), 3)
    assert scope.cancelled_caught
