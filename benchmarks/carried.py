"""Calls as RPCs of their own against calls over one stream, with the same hub and server, in turns.

Run it apart: `python benchmarks/carried.py`. `again` repeats a call that has ended, so only the API is measured.
"""

import argparse
import asyncio
import json
import resource
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import grpc
from measure import Series
from processes import HubProcess, hub, stdio_server

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import call_pb2_grpc

TEXT = "x" * 100
PARAMS = json.dumps({"name": "echo", "arguments": {"text": TEXT}}, separators=(",", ":")).encode()
SERVER = "light"
Call = Callable[[str], Awaitable[Any]]


async def main(options: argparse.Namespace) -> None:
    """Prints a line for each way, with 1 and with 32 calls in flight."""
    servers = {SERVER: {**stdio_server("light_stdio.py"), "max_in_flight": 64}}
    with tempfile.TemporaryDirectory(prefix="hubbub-bench-") as folder:
        async with hub(servers, Path(folder)) as running, grpc.aio.insecure_channel(running.address) as channel:
            calls: Any = call_pb2_grpc.CallServiceStub(channel)
            token = json.loads((running.data_dir / "client.json").read_text())["token"]
            metadata = (("authorization", f"Bearer {token}"),)

            async def alone(call_id: str) -> None:
                await calls.CallMethod(pb.CallMethodRequest(spec=spec(call_id)), metadata=metadata)

            async def library(call_id: str) -> None:
                await running.client.call_tool(SERVER, "echo", {"text": TEXT}, call_id=call_id or None)

            async with carried(calls.StreamCalls(metadata=metadata)) as over:
                ways: dict[str, Call] = {"an RPC each": alone, "one stream": over, "the library": library}
                await alone("again")
                for in_flight in (1, 32):
                    for call_id in ("again", ""):
                        for name, call in ways.items():
                            await measured(running, name, call, call_id, in_flight, options.calls)


async def measured(running: HubProcess, name: str, call: Call, call_id: str, in_flight: int, calls: int) -> None:
    """Measures one way and prints its line."""
    await Series().round(lambda: call(call_id), max(calls // 4, in_flight), in_flight)
    series, hub_s, own_s = Series(), running.cpu_s(), cpu_s()
    await series.round(lambda: call(call_id), calls, in_flight)
    hub_ms, own_ms = (running.cpu_s() - hub_s) / calls * 1000, (cpu_s() - own_s) / calls * 1000
    kind = f"{call_id or 'new':6}{in_flight:3} in flight"
    print(
        f"{name:12} {kind}  median {series.median_ms:6.3f} ms  p95 {series.p95_ms:6.3f} ms  "
        f"{series.rate:7.0f}/s  CPU per call: hub {hub_ms:.3f} ms, client {own_ms:.3f} ms"
    )


@asynccontextmanager
async def carried(rpc: Any) -> AsyncGenerator[Call]:
    """Yield a function that makes a call over one stream, with as little of a client as there can be."""
    waiting: dict[int, asyncio.Future[Any]] = {}
    unwritten: list[pb.StreamCallsRequest.Step] = []
    news, ids = asyncio.Event(), count(1)

    async def call(call_id: str) -> None:
        number = next(ids)
        waiting[number] = asyncio.get_running_loop().create_future()
        request = pb.CallMethodRequest(spec=spec(call_id))
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

    await rpc.read()  # ready
    async with anyio.create_task_group() as both:
        both.start_soon(write)
        both.start_soon(read)
        yield call
        both.cancel_scope.cancel()


def spec(call_id: str) -> pb.CallSpec:
    """The call of `echo`."""
    return pb.CallSpec(server=SERVER, method="tools/call", params=PARAMS, call_id=call_id)


def cpu_s() -> float:
    """Processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    anyio.run(main, parser.parse_args())
