"""Work beside a block: how each of the two ends the other."""

import asyncio

import pytest

from hubbub_client.waits import beside


class Broken(Exception):
    pass


async def works(seconds: float, *, fails: bool = False, when_cancelled: bool = False) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if when_cancelled:
            raise Broken from None
        raise
    if fails:
        raise Broken


def asked_to_end() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_the_end_of_the_block_ends_the_work() -> None:
    async with beside(works(1000)):
        await asyncio.sleep(0)
    assert asked_to_end() == 0


async def test_work_that_fails_ends_the_block_with_what_it_raised() -> None:
    with pytest.raises(Broken):
        async with beside(works(0, fails=True)):
            await asyncio.sleep(1000)
    assert asked_to_end() == 0


async def test_work_that_fails_while_its_end_is_waited_for_leaves_no_cancellation() -> None:
    with pytest.raises(Broken):
        async with beside(works(1000, when_cancelled=True)):
            await asyncio.sleep(0)
    assert asked_to_end() == 0
    await asyncio.sleep(0)


async def test_what_the_block_raises_goes_before_what_the_work_raises_at_its_end() -> None:
    async def block() -> None:
        async with beside(works(1000, when_cancelled=True)):
            await asyncio.sleep(0)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await block()
    assert asked_to_end() == 0


async def test_who_is_cancelled_meanwhile_ends_as_cancelled_and_the_work_with_it() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    async def both() -> None:
        async with beside(work()):
            await asyncio.sleep(1000)

    task = asyncio.ensure_future(both())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_work_that_ends_well_lets_the_block_go_on() -> None:
    async with beside(works(0)):
        await asyncio.sleep(0.01)
    assert asked_to_end() == 0
