"""Work with each other member, as members come and go."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from hubbubd.rpc.fleet.changes import Changes
from hubbubd.runtime.ownership import Owner, Ownership

LOOK_S = 1.0
"""Seconds between looks which members there are."""


async def with_each_other(
    ownership: Ownership, changes: Changes, work: Callable[[Owner], Coroutine[Any, Any, None]]
) -> None:
    """Do work with each other member, for as long as it takes part; until cancelled."""
    working: dict[Owner, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as tasks:
        while True:
            now = set(ownership.others())
            for gone in working.keys() - now:
                working.pop(gone).cancel()
            for new in now - working.keys():
                working[new] = tasks.create_task(work(new))
            changed = changes.next()
            with anyio.move_on_after(LOOK_S):
                await changed.wait()


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
