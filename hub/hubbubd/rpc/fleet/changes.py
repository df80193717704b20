"""Waiting until a server has another owner."""

from collections.abc import Callable

import anyio

from hubbubd.runtime.ownership import Ownership

EVERY = ""
"""Stands for all servers."""


class Changes:
    """Tells of changed owners, as often as one asks."""

    def __init__(self, ownership: Ownership) -> None:
        self._events: dict[str, anyio.Event] = {}
        ownership.on_change(self._changed)

    def next(self, server: str = EVERY) -> anyio.Event:
        """Return what is set as soon as the owner of a server changes from now on."""
        return self._events.setdefault(server, anyio.Event())

    def _changed(self, server: str) -> None:
        for name in {server, EVERY}:
            if (event := self._events.pop(name, None)) is not None:
                event.set()

    async def until(self, holds: Callable[[], bool], server: str) -> None:
        """Wait until something holds that depends on the owner of a server."""
        while not holds():
            await self.next(server).wait()
