"""Watches calls with many clients, each with a stream of its own; some read nothing but the snapshot.

Arguments: the hub's data directory, how many read, how many stall. It writes a line once all have the snapshot. With
the end of its stdin it writes how long those who read waited, in seconds: from the end of a call to hearing of it.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from grpc import aio

from hubbub.v1 import call_pb2

# Without probing, a stream's window stays at 64 KiB, so that those who stall do so soon.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
CHANNELS = 10


async def watch(channel: aio.Channel, token: str, synced: asyncio.Semaphore, waits: list[float] | None) -> None:
    """One watcher; without `waits` it stalls."""
    method = channel.unary_stream("/hubbub.v1.CallService/WatchCalls")
    stream = method(call_pb2.WatchCallsRequest().SerializeToString(), metadata=[("authorization", f"Bearer {token}")])
    response = call_pb2.WatchCallsResponse()
    while not response.HasField("synced"):
        response = call_pb2.WatchCallsResponse.FromString(await stream.read())
    synced.release()
    while waits is not None:
        response = call_pb2.WatchCallsResponse.FromString(await stream.read())
        if response.upsert.HasField("completed_at"):
            waits.append(time.time() - response.upsert.completed_at.ToNanoseconds() / 1e9)
    await asyncio.Event().wait()


async def main(data_dir: Path, reading: int, stalled: int) -> None:
    """Watches until stdin ends."""
    client = json.loads((data_dir / "client.json").read_text())
    channels = [aio.insecure_channel(client["address"], options=OPTIONS) for _ in range(CHANNELS)]
    synced, waits = asyncio.Semaphore(0), list[float]()
    kinds = [waits] * reading + [None] * stalled
    watches = [
        asyncio.create_task(watch(channels[n % CHANNELS], client["token"], synced, kind))
        for n, kind in enumerate(kinds)
    ]
    for _ in watches:
        await synced.acquire()
    print("watching", flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # what comes before is to stall those who do
    waits.clear()
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(waits), flush=True)
    for each in watches:
        each.cancel()
    await asyncio.wait(watches)
    for channel in channels:
        await channel.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
