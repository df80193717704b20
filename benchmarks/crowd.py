"""Watches an inbox with many clients, each with a connection of its own, and drops what it sees.

Arguments: the hub's data directory and how many. It writes a line once all have the snapshot, and ends with its stdin.
"""

import asyncio
import json
import sys
from pathlib import Path

from grpc import aio

from hubbub.v1 import inbox_pb2


async def watch(address: str, token: str, synced: asyncio.Semaphore) -> None:
    """One watcher. It reads no message, so that this process costs the others as little as it can."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        method = channel.unary_stream("/hubbub.v1.InboxService/WatchPendingRequests")
        request = inbox_pb2.WatchPendingRequestsRequest().SerializeToString()
        stream = method(request, metadata=[("authorization", f"Bearer {token}")])
        await stream.read()
        synced.release()
        while await stream.read():
            pass


async def main(data_dir: Path, count: int) -> None:
    """Watches until stdin ends."""
    client = json.loads((data_dir / "client.json").read_text())
    synced = asyncio.Semaphore(0)
    watches = [asyncio.create_task(watch(client["address"], client["token"], synced)) for _ in range(count)]
    for _ in watches:
        await synced.acquire()
    print("watching", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for each in watches:
        each.cancel()
    await asyncio.wait(watches)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
