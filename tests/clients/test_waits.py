"""Work beside a block: how each of the two ends the other."""

import asyncio
from contextlib import suppress

import pytest

from hubbub_client.waits import run_beside


class Broken(Exception):
    pass


async def for_ever() -> None:
    await asyncio.Event().wait()


async def works(*, ends: bool = False, fails: bool = False, when_cancelled: bool = False) -> None:
    try:
        if not ends and not fails:
            await for_ever()
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
    async with run_beside(works()):
        await asyncio.sleep(0)
    assert asked_to_end() == 0


async def test_work_that_fails_while_its_end_is_waited_for_leaves_no_cancellation() -> None:
    with pytest.raises(Broken):
        async with run_beside(works(when_cancelled=True)):
            await asyncio.sleep(0)
    assert asked_to_end() == 0
    await asyncio.sleep(0)


async def test_what_the_block_raises_goes_before_what_the_work_raises_at_its_end() -> None:
    async def block() -> None:
        async with run_beside(works(when_cancelled=True)):
            await asyncio.sleep(0)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await block()
    assert asked_to_end() == 0


async def test_who_is_cancelled_meanwhile_ends_as_cancelled_and_the_work_with_it() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await for_ever()
        finally:
            ended.set()

    async def both() -> None:
        async with run_beside(work()):
            await for_ever()

    task = asyncio.ensure_future(both())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_block_that_takes_its_cancellation_for_something_else_ends_all_the_same() -> None:
    async def block() -> None:
        async with run_beside(works(fails=True)):
            with suppress(asyncio.CancelledError):
                await for_ever()

    with pytest.raises(Broken):
        await block()
    assert asked_to_end() == 0


async def test_work_that_fails_while_its_caller_is_cancelled_does_not_keep_it_from_ending() -> None:
    fail = asyncio.Event()

    async def work() -> None:
        await fail.wait()
        raise Broken

    async def both() -> None:
        async with run_beside(work()):
            await for_ever()

    task = asyncio.ensure_future(both())
    for _ in range(3):
        await asyncio.sleep(0)
    fail.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, Broken)):
        await asyncio.wait_for(task, 60)
