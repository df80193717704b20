"""Slots are given in order, come back whatever happens to those that hold them or wait, and none is lost or doubled."""

import asyncio

import anyio
import pytest
from anyio.abc import TaskGroup

from hubbubd.timing.slots import Slots

from .conftest import settle

HOLD_S = 10.0


class Users:
    """Who has a slot, in the order in which they got it."""

    def __init__(self, count: int, hold_s: float = HOLD_S) -> None:
        self.slots = Slots(count, hold_s)
        self.began: list[int] = []
        self.scopes: dict[int, anyio.CancelScope] = {}

    async def use(self, number: int) -> None:
        """Holds a slot until it is cancelled."""
        with anyio.CancelScope() as self.scopes[number]:
            give_back = await self.slots.take()
            self.began.append(number)
            try:
                await anyio.sleep_forever()
            finally:
                give_back()

    async def come(self, tasks: TaskGroup, count: int) -> None:
        """So many ask for a slot, one after the other."""
        for number in range(count):
            tasks.start_soon(self.use, number)
        await settle()


async def test_slots_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    users = Users(2)
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 5)
        assert users.began == [0, 1]
        for number in range(5):
            users.scopes[number].cancel()
            await settle()
            assert users.began == [*range(min(number + 3, 5))]


async def test_who_gives_up_waiting_is_passed_over() -> None:
    users = Users(1)
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 4)
        users.scopes[1].cancel()
        await settle()
        users.scopes[0].cancel()
        await settle()
        assert users.began == [0, 2]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)], ids=["first-first", "last-first"])
async def test_those_that_wait_and_those_that_have_slots_can_end_together(order: tuple[int, ...]) -> None:
    users = Users(2)
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 4)
        for number in order:
            users.scopes[number].cancel()
    users.began.clear()
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 3)
        assert users.began == [0, 1]
        tasks.cancel_scope.cancel()


async def test_who_ends_as_its_turn_comes_passes_it_on() -> None:
    users = Users(1)
    first = await users.slots.take()
    ending = asyncio.create_task(users.use(0))
    async with anyio.create_task_group() as tasks:
        await settle()
        tasks.start_soon(users.use, 1)
        await settle()
        first()
        ending.cancel()  # a scope would let it have its turn first
        await settle()
        assert users.began == [1]
        tasks.cancel_scope.cancel()


async def test_a_slot_that_is_given_back_twice_is_one_slot() -> None:
    users = Users(1)
    first = await users.slots.take()
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 3)
        first()
        first()
        await settle()
        assert users.began == [0]
        tasks.cancel_scope.cancel()


async def test_a_slot_that_is_held_for_long_goes_to_the_next_and_comes_back_once() -> None:
    users = Users(1)
    first = await users.slots.take()
    async with anyio.create_task_group() as tasks:
        await users.come(tasks, 3)
        assert users.began == []
        await anyio.sleep(HOLD_S)
        assert users.began == [0]
        first()
        await settle()
        assert users.began == [0]
        await anyio.sleep(HOLD_S)
        assert users.began == [0, 1]
        tasks.cancel_scope.cancel()
