"""What many calls that wait for approval cost, while nobody or a crowd watches."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from urllib.request import urlopen

import anyio
from grpc import aio
from processes import HubProcess, find_free_port, start_hub, stdio_server

from hubbub.v1 import inbox_pb2

WATCHERS = 100
AT_ONCE = 8
LIMIT_S = 300
RULES = json.dumps([{"name": "echoes", "tools": ["echo"], "remember": ["1h"]}])
OPEN = inbox_pb2.PENDING_REQUEST_STATE_OPEN


@dataclass(frozen=True, slots=True)
class Held:
    """One row. Each is measured with the first tenth of the calls and with the last, when all others are open.

    `held` is from a call being made until it is durable with its question; `approved` until the approval is durable.
    `cpu` is the hub's time, with what it takes to tell all who watch. `lag` is how late the hub's loop was at the most.
    """

    watchers: int
    calls: int
    held_ms: float
    last_held_ms: float
    held_cpu_ms: float
    last_held_cpu_ms: float
    kib_per_call: float
    approved_ms: float
    last_approved_ms: float
    approved_cpu_ms: float
    last_approved_cpu_ms: float
    lag_ms: float
    lost: int
    """Changes that a watcher was not told, and calls that were approved and are not completed."""


@dataclass(slots=True)
class _Crowd:
    """What those who watch have seen."""

    opened: list[set[str]] = field(default_factory=list[set[str]])
    answered: list[set[str]] = field(default_factory=list[set[str]])

    async def follow(self, call: Any) -> None:
        """Read a watch until cancelled."""
        opened, answered = set[str](), set[str]()
        self.opened.append(opened)
        self.answered.append(answered)
        while message := await call.read():
            response = inbox_pb2.WatchPendingRequestsResponse.FromString(message)
            if response.HasField("upsert"):
                (opened if response.upsert.state == OPEN else answered).add(response.upsert.id)

    async def see(self, seen: Sequence[set[str]], count: int) -> int:
        """Wait until all have seen so many; return how many are missing, added up, after LIMIT_S at the most."""
        with anyio.move_on_after(LIMIT_S):
            while any(len(each) < count for each in seen):
                await anyio.sleep(0.05)
        return sum(count - len(each) for each in seen)


async def measure_held(directory: Path, *, calls: int) -> list[Held]:
    """A row without and one with a crowd that watches, each of a hub of its own."""
    rows: list[Held] = []
    for watchers in (0, WATCHERS):
        place = directory / f"held-{watchers}"
        place.mkdir()
        metrics = f"127.0.0.1:{find_free_port()}"
        settings = {"metrics_listen": metrics, "open_requests_per_server": 1024}
        servers = {"light": stdio_server("light_stdio.py")}
        async with (
            start_hub(servers, place, settings=settings, environ={"HUBBUBD_APPROVALS__RULES": RULES}) as running,
            _watch(running, watchers) as crowd,
        ):
            rows.append(await _measure(running, crowd, metrics, watchers, calls))
    return rows


async def _measure(running: HubProcess, crowd: _Crowd, metrics: str, watchers: int, calls: int) -> Held:
    """The row of one hub: makes the calls, approves all of them, and waits for their ends."""
    ids = [f"call-{number}" for number in range(calls)]
    params = {"name": "echo", "arguments": {"text": "hello", "repo": "shop"}}

    async def make(call_id: str) -> None:
        await running.client.calls.start("light", "tools/call", params, call_id=call_id)

    async def approve(request: Any) -> None:
        await running.client.inbox.approve(request.id, digest=request.arguments_digest)

    before_mib = running.rss_mib()
    make_times = await _in_tenths(running, make, ids)
    lost = await crowd.see(crowd.opened, calls)
    lags_ms = [await _read_lag_ms(metrics)]
    held_mib = running.rss_mib() - before_mib
    questions = await running.client.inbox.list(states=["open"])
    approved = await _in_tenths(running, approve, questions)
    lost += await crowd.see(crowd.answered, calls)
    lags_ms.append(await _read_lag_ms(metrics))
    for call_id in ids:
        lost += (await running.client.calls.handle(call_id).wait()).state != "completed"
    return Held(
        watchers=watchers,
        calls=len(questions),
        held_ms=make_times[0][0],
        last_held_ms=make_times[-1][0],
        held_cpu_ms=make_times[0][1],
        last_held_cpu_ms=make_times[-1][1],
        kib_per_call=held_mib * 1024 / calls,
        approved_ms=approved[0][0],
        last_approved_ms=approved[-1][0],
        approved_cpu_ms=approved[0][1],
        last_approved_cpu_ms=approved[-1][1],
        lag_ms=max(lags_ms),
        lost=lost + calls - len(questions),
    )


async def _in_tenths(
    running: HubProcess, work: Callable[[Any], Awaitable[None]], items: Sequence[Any]
) -> list[tuple[float, float]]:
    """Do the work with each, AT_ONCE at a time. Return, by tenth, the milliseconds per item and those of the hub."""
    size, tenths = len(items) // 10, list[tuple[float, float]]()
    for at in range(0, size * 10, size):
        part = iter(items[at : at + size])

        async def worker(part: Any) -> None:
            for item in part:
                await work(item)

        began, before_s = perf_counter(), running.cpu_s()
        async with anyio.create_task_group() as workers:
            for _ in range(AT_ONCE):
                workers.start_soon(worker, part)
        took_s, cpu_s = perf_counter() - began, running.cpu_s() - before_s
        tenths.append((took_s / size * 1000, cpu_s / size * 1000))
    return tenths


async def _read_lag_ms(metrics: str) -> float:
    """How late the hub's loop was at the most, as its metrics say."""

    def read() -> str:
        with urlopen(f"http://{metrics}/metrics") as response:
            return response.read().decode()

    text = await asyncio.to_thread(read)
    match_ = re.search(r"^hubbub_loop_lag\w*(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    assert match_ is not None, "the hub tells its loop's lag"
    return float(match_[1]) * 1000


@asynccontextmanager
async def _watch(running: HubProcess, count: int) -> AsyncGenerator[_Crowd]:
    """Watchers of the inbox, each with a connection of its own."""
    crowd, metadata = _Crowd(), [("authorization", f"Bearer {running.token}")]
    channels = [
        aio.insecure_channel(running.address, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(count)
    ]
    watches: list[asyncio.Task[None]] = []
    for channel in channels:
        method = cast("Any", channel).unary_stream("/hubbub.v1.InboxService/WatchPendingRequests")
        call = method(inbox_pb2.WatchPendingRequestsRequest().SerializeToString(), metadata=metadata)
        await call.read()
        watches.append(asyncio.create_task(crowd.follow(call)))
    try:
        yield crowd
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for channel in channels:
            await channel.close()
