"""Hundreds of watchers over the wire, one in ten of which stops to read."""

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from grpc import aio

from hubbub.v1 import call_pb2, call_pb2_grpc
from hubbubd.runtime.records.broadcast import BUFFER_EVENTS

from .conftest import LIMIT_S, Lines, RunningHub, child
from .crowd import bad, rss_kb

WATCHERS = Path(__file__).with_name("watchers.py")
PROCESSES, READING, STALLED, CHANNELS = 2, 180, 20, 10
BURST = 40
"""Calls that everybody watches."""
FLOOD = BUFFER_EVENTS + 500
"""Calls that only those who stall watch: more than a buffer holds, and what is already on the way to them."""
STARTERS = 16
CROWD_LIMIT_S = 4 * LIMIT_S
"""Bound of a wait for all of them, on a machine that does other things too."""
EVENT_BYTES = 512
"""What one event in the buffer of one watcher may cost: a place in an ordered table. The events are shared."""
RECORD_BYTES = 8192
"""What one call may cost, as a record, in its history and on its way to the disk."""


async def start_calls(hub: RunningHub, server: str, count: int) -> None:
    """Queues so many calls, several at once."""
    client = json.loads((hub.data_dir / "client.json").read_text())
    metadata = [("authorization", f"Bearer {client['token']}")]
    left = iter(range(count))

    async with aio.insecure_channel(client["address"]) as channel:
        stub = call_pb2_grpc.CallServiceStub(channel)

        async def starter() -> None:
            for number in left:
                spec = call_pb2.CallSpec(server=server, method="tools/call", call_id=f"{server}-{number}")
                await stub.StartCall(call_pb2.StartCallRequest(spec=spec), metadata=metadata)

        async with anyio.create_task_group() as starters:
            for _ in range(STARTERS):
                starters.start_soon(starter)


async def test_of_many_watchers_those_who_read_are_on_time_and_those_who_stall_cost_little(
    start_hub: Any,
) -> None:
    # Servers that never finish their handshake, so that all calls wait until they are cleared.
    queue = {
        "connect_timeout_s": 3600,
        "call_timeout_s": 3600,
        "call_max_s": 3600,
        "max_queued": 2 * FLOOD,
        "call_history_count": 2 * FLOOD,
    }
    servers = {"few": bad("hang", **queue), "many": bad("hang", **queue)}
    hub = await start_hub(servers, hub={"max_watchers": PROCESSES * (READING + STALLED)})
    client = json.loads((hub.data_dir / "client.json").read_text())
    arguments = [client["address"], client["token"], "few", READING, STALLED, CHANNELS, BURST, FLOOD]
    command = [sys.executable, str(WATCHERS), *map(str, arguments)]
    async with AsyncExitStack() as stack:
        crowd = [
            Lines(await stack.enter_async_context(child(command, stdin=PIPE, stdout=PIPE))) for _ in range(PROCESSES)
        ]
        for each in crowd:
            assert await each.next(CROWD_LIMIT_S) == {"synced": READING + STALLED}
        before_kb = rss_kb(hub.process.pid)

        await start_calls(hub, "many", FLOOD)
        await start_calls(hub, "few", BURST)
        await hub.client.calls.clear_queue("many")
        await hub.client.calls.clear_queue("few")
        few = {f"few-{number}" for number in range(BURST)}
        for each in crowd:  # nobody who stalls has read a word by now
            seen = await each.next(CROWD_LIMIT_S)
            assert (seen["done"], seen["wrong"], set(seen["ids"])) == (READING, 0, few)
        stalled = PROCESSES * STALLED
        bound = stalled * BUFFER_EVENTS * EVENT_BYTES + (FLOOD + BURST) * RECORD_BYTES
        grown = (rss_kb(hub.process.pid) - before_kb) * 1024
        print(f"memory of the hub grew by {grown >> 20} MiB of at most {bound >> 20}")
        assert grown < bound

        for each in crowd:
            assert each.process.stdin is not None
            await each.process.stdin.send(b"read on\n")
        everything = few | {f"many-{number}" for number in range(FLOOD)}
        for each in crowd:
            met = await each.next(CROWD_LIMIT_S)
            assert {why["code"] for why in met["closed"]} == {"RESOURCE_EXHAUSTED"}
            assert {why["reason"] for why in met["closed"]} == {"WATCHER_TOO_SLOW"}
            assert (len(met["closed"]), met["same"], met["wrong"]) == (STALLED, True, 0)
            assert set(met["ids"]) == everything
        listed = {call.id: call.state for call in await hub.client.calls.list()}
        assert listed == dict.fromkeys(everything, "cancelled")
        for each in crowd:
            assert each.process.stdin is not None
            await each.process.stdin.aclose()
            assert await each.wait() == 0
    with anyio.fail_after(LIMIT_S):
        while (await hub.client.admin.status()).watchers:
            await anyio.sleep(0.05)
