"""What the models of the runtime share: a hub in virtual time that each rule moves on a little, and restarts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, aclosing
from typing import Any, Generic, TypeVar

import anyio
import structlog.testing
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant

from hubbubd.config import ServerConfig
from hubbubd.errors import Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import EventKind, WatchEvent
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .conftest import FailingStore, World, server
from .news import News
from .noted import Noted
from .virtual_time import VirtualTimeLoop

T = TypeVar("T")

FOREVER = 10**9
"""So many failures of the store that none succeeds."""

LONG_S = 7200.0
"""Longer than anything of a server that is gone is kept waiting for."""

SETTLE_S = 0.25
"""Long enough for what may follow a change to be written."""


def bounded(share: float, steps: int) -> settings:
    """As many examples as this share of what the profile asks for, each of so many steps."""
    return settings(
        max_examples=max(int(settings().max_examples * share), 1),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


class View(Generic[T]):
    """What a watcher knows: the records as the events so far tell of them."""

    def __init__(self, seen: Callable[[T], T] = lambda record: record) -> None:
        """`seen` makes of a record what a watcher gets of it."""
        self._seen = seen
        self.records: dict[str, T] = {}
        self.token = ""
        self.resets = 0

    def see(self, event: WatchEvent[T]) -> None:
        """Takes an event in."""
        if event.kind is EventKind.RESET:
            self.records.clear()
            self.resets += 1
        elif event.kind is EventKind.UPSERT:
            assert event.record is not None
            self.records[event.id] = self._seen(event.record)
        elif event.kind is EventKind.REMOVED:
            self.records.pop(event.id, None)
        self.token = event.token

    async def follow(self, events: AsyncGenerator[WatchEvent[T]]) -> None:
        """Takes in what comes, until the hub stops."""
        news = News()
        try:
            async with aclosing(events) as steps:
                async for event in steps:
                    self.see(event)
                    news.hear(event)
                    assert not news.repeated
        except Unavailable as exc:
            self.token = exc.metadata["resume_token"]

    async def look(self, events: AsyncGenerator[WatchEvent[T]]) -> None:
        """Takes in what there is now, and leaves."""
        with anyio.move_on_after(SETTLE_S):
            await self.follow(events)


class HubModel(RuleBasedStateMachine):
    """A hub over a store that outlives it; subclasses say which servers it has, and what must hold."""

    hub: Hub

    def __init__(self) -> None:
        super().__init__()
        self.around = ExitStack()
        self.said = self.around.enter_context(structlog.testing.capture_logs())
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.tracer = Noted()
        self.world = World(FailingStore(self.run(SqliteStore.open(":memory:"))), tracer=self.tracer)
        self.life: asyncio.Task[None] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Lets the world go on until the work is done."""
        return self.runner.run(work)

    def do(self, act: Callable[..., T], *args: Any) -> T:
        """What the act returns; it needs the loop around it."""

        async def acting() -> T:
            return act(*args)

        return self.run(acting())

    def rest(self, seconds: float = SETTLE_S) -> None:
        """Lets so much time pass."""
        self.run(anyio.sleep(seconds))

    def catch_up_with(self, view: View[T], records: Callable[[], dict[str, T]]) -> None:
        """Gives a watcher the moment that it is behind those who read."""
        for _ in range(4):
            if view.records != records():
                self.rest()

    def now(self) -> float:
        """Seconds since the epoch, as the hub counts them."""
        return self.hub.clock.now()

    def told_to_the_end(self) -> None:
        """However things went, no span is left unfinished. A last hub, which has no servers any more, ends them all."""
        self.world.store.failures = 0
        self.stop()
        self.servers = list[ServerConfig]
        self.start()
        self.rest(LONG_S)
        self.stop()
        self.tracer.check()

    def servers(self) -> list[ServerConfig]:
        """The servers of the configuration."""
        return [server()]

    def start(self) -> None:
        """A hub begins."""
        self.run(self._start())
        self.rest()

    async def _start(self) -> None:
        running, self._stop = anyio.Event(), anyio.Event()

        async def live() -> None:
            async with self.world.hub(*self.servers()) as self.hub:
                running.set()
                await self._stop.wait()

        self.life = asyncio.create_task(live())
        waiting = asyncio.create_task(running.wait())
        await asyncio.wait([self.life, waiting], return_when=asyncio.FIRST_COMPLETED)
        if self.life.done():
            self.life.result()

    def stop(self, *, killed: bool = False) -> None:
        """The hub ends; one that is killed writes nothing more."""
        if killed:
            self.world.store.failures = FOREVER
            self.tracer.kill()
        life, self.life = self.life, None
        assert life is not None

        async def end() -> None:
            self._stop.set()
            await life

        self.run(end())
        self.world.store.failures = 0
        self.tracer.revive()

    @property
    def blocked(self) -> bool:
        """Whether the store refuses what is written."""
        return self.world.store.failures > 0

    @invariant()
    def nothing_failed_unforeseen(self) -> None:
        """The hub logs an error for what nobody has thought of, and when the store is broken."""
        errors = [line for line in self.said if line["log_level"] == "error"]
        unforeseen = [line for line in errors if not line["event"].startswith("store write failed")]
        assert not unforeseen, unforeseen

    def teardown(self) -> None:
        try:
            if self.life is not None:
                self.told_to_the_end()
                self.run(self.world.store.close())
        finally:
            self.runner.close()
            self.around.close()
