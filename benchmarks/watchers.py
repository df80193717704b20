"""What it takes to tell many watchers of one change, beside bare gRPC that writes the same bytes to as many streams."""

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import anyio
from grpc import aio
from processes import HERE, HubProcess, cpu_s, end_after, start_hub, stdio_server

from hubbub.v1 import inbox_pb2

WATCHERS = 100
LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Told:
    """One row. `rate` is deliveries per second: from a change being asked for until all have it, one after the other.

    `ratio` compares it with bare gRPC: the middle one of the rounds' own. `spread_ms` is from the first watcher that
    has it to the last, in the middle. The processor time is that of the process that tells.
    """

    by: str
    rate: float
    ratio: float
    spread_ms: float
    cpu_us: float


@dataclass(slots=True)
class _Crowd:
    """What the watchers of one side have read."""

    times: list[float] = field(default_factory=list[float])
    whole: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_all_told(self) -> None:
        """Waits until each watcher has one more message than at `expect`."""
        with anyio.fail_after(LIMIT_S):
            await self.whole.wait()

    def expect(self) -> None:
        """Begins to count."""
        self.times.clear()
        self.whole.clear()

    async def read(self, call: Any) -> None:
        """Reads a stream, unparsed, until cancelled."""
        while await call.read():
            self.times.append(perf_counter())
            if len(self.times) == WATCHERS:
                self.whole.set()


@dataclass(slots=True)
class _Side:
    """One who tells, and what was measured."""

    by: str
    pid: int
    crowd: _Crowd
    change: Callable[[], Awaitable[object]]
    rates: list[float] = field(default_factory=list[float])
    spreads_s: list[float] = field(default_factory=list[float])
    cpu_s: float = 0.0

    async def measure(self, changes: int) -> None:
        """Adds a round."""
        before_s, began = cpu_s(self.pid), perf_counter()
        for _ in range(changes):
            self.crowd.expect()
            await self.change()
            await self.crowd.wait_until_all_told()
            self.spreads_s.append(self.crowd.times[-1] - self.crowd.times[0])
        self.rates.append(changes * WATCHERS / (perf_counter() - began))
        self.cpu_s += cpu_s(self.pid) - before_s

    def row(self, bare: "_Side") -> Told:
        """The row of this side, compared with bare gRPC."""
        return Told(
            by=self.by,
            rate=statistics.median(self.rates),
            ratio=statistics.median(ours / theirs for ours, theirs in zip(self.rates, bare.rates, strict=True)),
            spread_ms=statistics.median(self.spreads_s) * 1000,
            cpu_us=self.cpu_s / (len(self.spreads_s) * WATCHERS) * 1e6,
        )


async def tell(directory: Path, *, rounds: int, changes: int) -> list[Told]:
    """A row for bare gRPC and one for the hub. They take turns."""
    async with (
        start_hub({"light": stdio_server("light_stdio.py")}, directory) as running,
        _of_the_hub(running) as ours,
        _bare() as bare,
    ):
        for _ in range(rounds):
            await bare.measure(changes)
            await ours.measure(changes)
        return [bare.row(bare), ours.row(bare)]


@asynccontextmanager
async def _of_the_hub(running: HubProcess) -> AsyncGenerator[_Side]:
    """The hub: a pending request changes as its claim is renewed."""
    inbox, claim_id = running.client.inbox, "claim_of_benchmark"
    await running.client.calls.start("light", "tools/call", {"name": "ask"})
    while not (questions := await inbox.list(states=["open"])):
        await anyio.sleep(0.05)
    await inbox.claim(questions[0].id, claim_id=claim_id)
    token = json.loads((running.data_dir / "client.json").read_text())["token"]

    def stream(channel: aio.Channel) -> Any:
        watch = cast("Any", channel).unary_stream("/hubbub.v1.InboxService/WatchPendingRequests")
        return watch(
            inbox_pb2.WatchPendingRequestsRequest().SerializeToString(),
            metadata=[("authorization", f"Bearer {token}")],
        )

    async with _crowd(running.address, stream, first=2) as crowd:
        yield _Side("hub", running.pid, crowd, lambda: inbox.renew(questions[0].id, claim_id))


@asynccontextmanager
async def _bare() -> AsyncGenerator[_Side]:
    """Bare gRPC (`servers/bare.py`), with a message as large as the hub's."""
    message = inbox_pb2.WatchPendingRequestsResponse(
        upsert=inbox_pb2.PendingRequest(request=b"x" * 300), resume_token="x" * 50
    ).SerializeToString()
    command = [sys.executable, str(HERE / "servers" / "bare.py")]
    process = await anyio.open_process(command, stderr=None)
    async with end_after(process):
        assert process.stdout is not None
        address = f"127.0.0.1:{int(await process.stdout.receive())}"

        def stream(channel: aio.Channel) -> Any:
            watch = cast("Any", channel).unary_stream("/bare.Bare/Watch")
            return watch(message)

        async with aio.insecure_channel(address) as channel, _crowd(address, stream, first=1) as crowd:
            publish = cast("Any", channel).unary_unary("/bare.Bare/Publish")
            yield _Side("bare gRPC", process.pid, crowd, lambda: publish(message))


@asynccontextmanager
async def _crowd(address: str, stream: Callable[[aio.Channel], Any], first: int) -> AsyncGenerator[_Crowd]:
    """Watchers, each over its own connection, that have read the first messages of their streams."""
    crowd = _Crowd()
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for _ in range(WATCHERS):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await stack.enter_async_context(aio.insecure_channel(address, options=options))
            call = stream(channel)
            for _ in range(first):
                await call.read()
            tasks.start_soon(crowd.read, call)
        yield crowd
        tasks.cancel_scope.cancel()
