"""A hub in virtual time over a store in memory, with scripted servers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.policy.commands import REST_PATTERN, AllowedCommand
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import Ownership, SoleOwnership
from hubbubd.runtime.records import EventKind, WatchEvent
from hubbubd.store import Commit, Precondition, Snapshot, StoreStats, StoreUnavailable, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.telemetry.meter import OFF, Meter
from hubbubd.telemetry.tracer import OFF as UNTRACED
from hubbubd.timing.clock import Clock

from .noted import Noted
from .peer import Peer, Peers
from .virtual_time import VirtualTimeLoop

FORM = {
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say"}}], "maxTokens": 10}
PEER = "/usr/local/bin/peer"
"""A command that nobody starts."""

ANY_PEER = AllowedCommand(command=PEER, args=(REST_PATTERN,))

EPOCH = 1_800_000_000.0
"""When a loop's time begins, in seconds since the epoch; it goes on over restarts of the hub."""

PATIENCE_S = 3600.0
"""Bound of every wait, in virtual seconds."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A new loop for each test, at second 0 of its own time."""
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class FailingStore:
    """A store whose next commits fail when told to; all else is the real one's."""

    def __init__(self, inner: SqliteStore) -> None:
        self.inner = inner
        self.failures = 0
        self.delay_s = 0.0
        self.commits: list[Sequence[Write]] = []

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def revision(self) -> int:
        return self.inner.revision

    @property
    def reconnects(self) -> int:
        return self.inner.reconnects

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        await anyio.sleep(self.delay_s)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("disk full")
        self.commits.append(writes)
        return await self.inner.commit(writes, guards)

    async def probe(self) -> None:
        if self.failures:
            raise StoreUnavailable("disk full")
        await self.inner.probe()

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        return self.inner.listen(listener)

    async def snapshot(self, prefix: str = "") -> Snapshot:
        return await self.inner.snapshot(prefix)

    def watch(self, prefix: str, after: int) -> AsyncIterator[Commit]:
        return self.inner.watch(prefix, after)

    async def compact(self, revision: int) -> None:
        await self.inner.compact(revision)

    async def reclaim(self) -> None:
        await self.inner.reclaim()

    async def copy(self) -> BinaryIO:
        return await self.inner.copy()

    async def stats(self) -> StoreStats:
        return await self.inner.stats()

    async def close(self) -> None:
        await self.inner.close()


async def update(hub: Hub, config: ServerConfig) -> ServerRecord:
    """Has a server be configured like this, whatever it was before."""
    return await hub.servers.change(config.name, lambda _before: config)


def server(name: str = "one", **options: Any) -> ServerConfig:
    """A server's configuration."""
    return ServerConfig(**{"name": name, "command": PEER, **options})


@dataclass
class World:
    """A hub's surroundings, which outlive it."""

    store: FailingStore
    peers: Peers = field(default_factory=Peers)
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    meter: Meter = OFF
    tracer: Noted | None = None
    clock: Clock | None = None
    ownership: Ownership = field(default_factory=SoleOwnership)
    fleet: FleetOwnership | None = None

    @property
    def peer(self) -> Peer:
        """The server `one`."""
        return self.peers["one"]

    @asynccontextmanager
    async def hub(self, *servers: ServerConfig) -> AsyncGenerator[Hub]:
        """A hub that runs; leaving ends it."""
        settings = HubSettings(data_dir=Path("unused"), allow_commands=(ANY_PEER,), **self.settings)
        configured = {config.name: config for config in servers}
        time = asyncio.get_running_loop().time
        clock = self.clock or Clock(time, EPOCH + time())
        if self.tracer is not None:
            self.tracer.clock, self.peer.tracer = clock.now, self.tracer
        tracer = self.tracer or UNTRACED
        async with Hub.open(
            self.store,
            self.peers,
            configured,
            settings,
            clock=clock,
            tracer=tracer,
            meter=self.meter,
            ownership=self.ownership,
            fleet=self.fleet,
        ) as hub:
            yield hub

    @asynccontextmanager
    async def linked(self, *servers: ServerConfig) -> AsyncGenerator[Hub]:
        """A hub that runs and has a connection to the server `one`."""
        async with self.hub(*(servers or (server(),))) as hub:
            await until(lambda: self.peer.links)
            yield hub


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """A store in memory and servers that answer at once."""
    store = await SqliteStore.open(":memory:")
    yield World(FailingStore(store))
    await store.close()


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():
            await anyio.sleep(0.02)


async def settle(seconds: float = 0.2) -> None:
    """Lets all that is ready to happen within so many virtual seconds happen."""
    await anyio.sleep(seconds)


def open_requests(hub: Hub) -> list[PendingRequest]:
    """What waits in the inbox, oldest first."""
    return hub.inbox.select(RequestFilter(states=frozenset({RequestState.OPEN})))[::-1]


async def question(hub: Hub) -> PendingRequest:
    """The one request that waits, once it does."""
    await until(lambda: open_requests(hub))
    (request,) = open_requests(hub)
    return request


def spec(tool: str = "t", **options: Any) -> CallSpec:
    """A call of a tool of the server `one`."""
    params = b'{"name":"%s"}' % tool.encode()
    return CallSpec(**{"server": "one", "method": "tools/call", "params": params, **options})


class Watching:
    """Collects the events of a watch."""

    def __init__(self, events: AsyncGenerator[WatchEvent[Any]]) -> None:
        self.events: list[WatchEvent[Any]] = []
        self.error: Exception | None = None
        self.ended = anyio.Event()
        self._source = events
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Collects until stopped."""
        try:
            with self._scope:
                async for event in self._source:
                    self.events.append(event)
        except Exception as exc:
            self.error = exc
        finally:
            with anyio.CancelScope(shield=True):
                await self._source.aclose()
            self.ended.set()

    async def stop(self) -> None:
        """Ends the watch."""
        self._scope.cancel()
        await self.ended.wait()

    def kinds(self) -> list[EventKind]:
        """What was said, without bookmarks."""
        return [event.kind for event in self.events if event.kind is not EventKind.BOOKMARK]

    def clear(self) -> None:
        """Forgets what was said so far."""
        self.events.clear()

    @property
    def token(self) -> str:
        """The last resume token."""
        return self.events[-1].token


@pytest.fixture
async def watching() -> AsyncGenerator[Callable[[AsyncGenerator[WatchEvent[Any]]], Watching]]:
    """Starts to collect the events of a watch."""
    async with anyio.create_task_group() as tasks:

        def start(events: AsyncGenerator[WatchEvent[Any]]) -> Watching:
            watch = Watching(events)
            tasks.start_soon(watch.run)
            return watch

        yield start
        tasks.cancel_scope.cancel()


@pytest.fixture
async def tasks():
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


@pytest.fixture
async def fleet() -> AsyncGenerator[Any]:
    """A fleet without members yet."""
    from .fleet import members

    async with members() as fleet:
        yield fleet
