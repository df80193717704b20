"""Waiting for changes of the ownership of servers, and work with each other member."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from hubbubd.runtime.ownership import Owner, Ownership

ALL_SERVERS = ""
"""Stands for all servers."""

LOOK_S = 1.0
"""Seconds between looks at the list of members."""


class OwnershipChanges:
    """Lets tasks wait until a server gets another owner."""

    def __init__(self, ownership: Ownership) -> None:
        self._events: dict[str, anyio.Event] = {}
        ownership.on_change(self._notify_waiters)

    def next_change(self, server: str = ALL_SERVERS) -> anyio.Event:
        """Return an event that is set when the owner of a server, by default of any, changes next."""
        return self._events.setdefault(server, anyio.Event())

    def _notify_waiters(self, server: str) -> None:
        """Set the events that wait for a change of this server's owner, or of any server's, and forget them."""
        for name in {server, ALL_SERVERS}:
            if (event := self._events.pop(name, None)) is not None:
                event.set()

    async def wait_until(self, holds: Callable[[], bool], server: str) -> None:
        """Wait until a condition holds; it is checked again whenever the owner of the server changes."""
        while not holds():
            await self.next_change(server).wait()


async def work_with_each_member(
    ownership: Ownership, changes: OwnershipChanges, work: Callable[[Owner], Coroutine[Any, Any, None]]
) -> None:
    """Run `work` for each other member, and cancel that work once the member has gone; until cancelled."""
    working: dict[Owner, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as tasks:
        while True:
            now = set(ownership.others())
            for gone in working.keys() - now:
                working.pop(gone).cancel()
            for new in now - working.keys():
                working[new] = tasks.create_task(work(new))
            changed = changes.next_change()
            with anyio.move_on_after(LOOK_S):
                await changed.wait()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
