"""What many open questions cost: their snapshot for a new watcher, and an answer to one more."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import anyio
from grpc import aio
from processes import HubProcess, start_hub, stdio_server

from hubbub.v1 import inbox_pb2

FEW = 12
SERVERS = 12
LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Backlog:
    """One row. The snapshot is timed until its last message has come; an answer until it is durable."""

    open: int
    snapshot_ms: float
    answer_ms: float
    answer_cpu_ms: float


async def measure_backlog(directory: Path, *, most: int, answers: int) -> list[Backlog]:
    """A row with few and one with many open questions, of the same hub."""
    names = [f"light{number}" for number in range(SERVERS)]
    servers = {name: stdio_server("light_stdio.py") for name in (*names, "answered")}
    rows: list[Backlog] = []
    async with start_hub(servers, directory, settings={"open_requests_per_server": 1024}) as running:
        for count in (FEW, most):
            open_count = await _count_open(running)
            for name in names:
                await running.client.call_tool(name, "ask_all", {"count": (count - open_count) // SERVERS})
            await running.client.call_tool("answered", "ask_all", {"count": answers})
            with anyio.fail_after(LIMIT_S):
                while await _count_open(running) < open_count + (count - open_count) // SERVERS * SERVERS + answers:
                    await anyio.sleep(0.1)
            rows.append(await _measure_row(running, count, answers))
    return rows


async def _count_open(running: HubProcess) -> int:
    return sum(each.count for each in (await running.client.admin.status()).open_requests)


async def _measure_row(running: HubProcess, count: int, answers: int) -> Backlog:
    """The row of `count` open questions: answers the `answers` others, and then times snapshots."""
    inbox, waits = running.client.inbox, list[float]()
    questions = await inbox.list(states=["open"], limit=answers)
    before_s = running.cpu_s()
    for request in questions:
        began = perf_counter()
        await inbox.answer(request.id, accept={"name": "Ada"})
        waits.append(perf_counter() - began)
    spent_s = running.cpu_s() - before_s
    return Backlog(
        open=count,
        snapshot_ms=statistics.median([await _time_snapshot(running) for _ in range(5)]) * 1000,
        answer_ms=statistics.median(waits) * 1000,
        answer_cpu_ms=spent_s / answers * 1000,
    )


async def _time_snapshot(running: HubProcess) -> float:
    """How many seconds a new watcher waits for the end of its snapshot."""
    token = json.loads((running.data_dir / "client.json").read_text())["token"]
    open_ones = inbox_pb2.PendingRequestFilter(states=[inbox_pb2.PENDING_REQUEST_STATE_OPEN])
    request = inbox_pb2.WatchPendingRequestsRequest(filter=open_ones, allow_batches=True).SerializeToString()
    async with aio.insecure_channel(running.address) as channel:
        await channel.channel_ready()
        method = cast("Any", channel).unary_stream("/hubbub.v1.InboxService/WatchPendingRequests")
        began = perf_counter()
        stream = method(request, metadata=[("authorization", f"Bearer {token}")])
        while not _ends_snapshot(inbox_pb2.WatchPendingRequestsResponse.FromString(await stream.read())):
            pass
        return perf_counter() - began


def _ends_snapshot(response: inbox_pb2.WatchPendingRequestsResponse) -> bool:
    """Whether the snapshot ends with it."""
    return any(step.HasField("synced") for step in (response, *response.batch))
