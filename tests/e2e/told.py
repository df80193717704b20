"""What servers tell while a test goes on."""

from typing import Any

import anyio

from .conftest import LIMIT_S


class Told:
    """The events that a watcher of the library has seen."""

    def __init__(self, hub: Any, tasks: Any, **chosen: Any) -> None:
        self.events: list[Any] = []
        self.listening = anyio.Event()
        self._more = anyio.Event()
        tasks.start_soon(self._watch, hub, chosen)

    async def until(self, wanted: Any) -> Any:
        """The first event that is wanted."""
        with anyio.fail_after(LIMIT_S):
            while not (found := [event for event in self.events if wanted(event)]):
                self._more = anyio.Event()
                await self._more.wait()
        return found[0]

    async def _watch(self, hub: Any, chosen: Any) -> None:
        async for event in hub.client.events.watch(on_listening=self.listening.set, **chosen):
            self.events.append(event)
            self._more.set()
