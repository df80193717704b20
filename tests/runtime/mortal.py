"""Hubs that are killed: what they leave behind in the store."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from hubbubd.config import ServerConfig
from hubbubd.runtime.hub import Hub
from hubbubd.store import Guard, StoreUnavailable, Write
from hubbubd.store.sqlite import SqliteStore

from .conftest import FailingStore, World


@asynccontextmanager
async def killed(world: World, *servers: ServerConfig) -> AsyncGenerator[Hub]:
    """A hub that is killed at the end of the block: what it does from then on is not remembered."""
    async with world.hub(*servers) as hub:
        yield hub
        world.store.failures = 10**9
    world.store.failures = 0


class MortalStore(FailingStore):
    """A store that takes so many commits more; with `last_words`, the next one is kept though nobody hears of it."""

    def __init__(self, inner: SqliteStore, *, last_words: bool) -> None:
        super().__init__(inner)
        self.left: int | None = None
        self._last_words = last_words

    @property
    def dead(self) -> bool:
        return self.left is not None and self.left < 0

    async def commit(self, writes: Sequence[Write], guards: Sequence[Guard] = ()) -> int:
        if self.left is None:
            return await super().commit(writes, guards)
        self.left -= 1
        if self.left >= 0:
            return await super().commit(writes, guards)
        if self.left == -1 and self._last_words:
            await super().commit(writes, guards)
        raise StoreUnavailable("the machine is off")
