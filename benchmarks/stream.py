"""Calls as RPCs of their own, over one stream, and by the library, which uses the stream; one hub, in turns."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import grpc
from measure import TEXT, Series, Work
from processes import HubProcess, start_hub, stdio_server

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import call_pb2_grpc

SERVER: Mapping[str, Any] = {"light": {**stdio_server("light_stdio.py"), "max_in_flight": 64}}
Call = Callable[[str], Awaitable[Any]]
"""Makes a call with this call_id; if it is empty, the hub chooses one."""


@dataclass(frozen=True, slots=True)
class Made:
    """One row. With `again`, a call that has ended is repeated, so only the API is measured."""

    way: str
    again: bool
    in_flight: int
    median_ms: float
    rate: float
    hub_cpu_ms: float
    client_cpu_ms: float


async def ways(directory: Path, *, rounds: int, calls: int) -> list[Made]:
    """A row for each way, for new and repeated calls, with 1 and with 32 in flight."""
    rows: list[Made] = []
    async with start_hub(SERVER, directory) as running, _rpc(running) as alone, streamed(running) as over:

        async def library(call_id: str) -> None:
            await running.client.call_tool("light", "echo", {"text": TEXT}, call_id=call_id or None)

        calling: dict[str, Call] = {"an RPC each": alone, "one stream": over, "the library": library}
        await alone("again")
        for in_flight in (1, 32):
            for call_id in ("again", ""):
                works = {name: partial(call, call_id) for name, call in calling.items()}
                for name, (hub_series, own_cpu_ms) in (
                    await _measured(running, works, rounds, calls, in_flight)
                ).items():
                    median_ms, cpu_ms = hub_series.median_ms, hub_series.cpu_ms
                    rows.append(Made(name, bool(call_id), in_flight, median_ms, hub_series.rate, cpu_ms, own_cpu_ms))
    return rows


async def _measured(
    running: HubProcess, works: Mapping[str, Work], rounds: int, calls: int, in_flight: int
) -> dict[str, tuple[Series, float]]:
    """The rounds of each, with the processor time per call of the hub, and that of this process."""
    series = {name: Series(running.cpu_s) for name in works}
    own_s = dict.fromkeys(works, 0.0)
    for work in works.values():
        await Series().round(work, max(calls // 4, in_flight), in_flight)
    for _ in range(rounds):
        for name, work in works.items():
            before_s = time.process_time()
            await series[name].round(work, calls, in_flight)
            own_s[name] += time.process_time() - before_s
    return {name: (one, own_s[name] / rounds / calls * 1000) for name, one in series.items()}


@asynccontextmanager
async def _rpc(running: HubProcess) -> AsyncGenerator[Call]:
    """Yield a function that makes a call as an RPC of its own."""
    async with _service(running) as (calls, metadata):

        async def call(call_id: str) -> None:
            await calls.CallMethod(pb.CallMethodRequest(spec=_spec(call_id)), metadata=metadata)

        yield call


@asynccontextmanager
async def streamed(running: HubProcess, text: str = TEXT) -> AsyncGenerator[Call]:
    """Yield a function that makes a call over one stream, with as little of a client as there can be."""
    waiting: dict[int, asyncio.Future[Any]] = {}
    unwritten: list[pb.StreamCallsRequest.Step] = []
    news, ids = asyncio.Event(), count(1)

    async def call(call_id: str) -> None:
        number = next(ids)
        waiting[number] = asyncio.get_running_loop().create_future()
        request = pb.CallMethodRequest(spec=_spec(call_id, text))
        unwritten.append(pb.StreamCallsRequest.Step(start=pb.StreamCallsRequest.Start(id=number, request=request)))
        news.set()
        assert (await waiting[number]).HasField("completed")

    async def write() -> None:
        while True:
            await news.wait()
            news.clear()
            steps, unwritten[:] = unwritten[:], []
            await rpc.write(pb.StreamCallsRequest(steps=steps))

    async def read() -> None:
        while True:
            for step in (await rpc.read()).steps:
                waiting.pop(step.id).set_result(step)

    async with _service(running) as (calls, metadata):
        rpc = calls.StreamCalls(metadata=metadata)
        await rpc.read()  # ready
        async with anyio.create_task_group() as both:
            both.start_soon(write)
            both.start_soon(read)
            yield call
            both.cancel_scope.cancel()


@asynccontextmanager
async def _service(running: HubProcess) -> AsyncGenerator[tuple[Any, Any]]:
    token = json.loads((running.data_dir / "client.json").read_text())["token"]
    async with grpc.aio.insecure_channel(running.address) as channel:
        yield call_pb2_grpc.CallServiceStub(channel), (("authorization", f"Bearer {token}"),)


def _spec(call_id: str, text: str = TEXT) -> pb.CallSpec:
    params = b'{"name":"echo","arguments":{"text":"%b"}}' % text.encode()
    return pb.CallSpec(server="light", method="tools/call", params=params, call_id=call_id)
