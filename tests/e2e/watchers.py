"""A process full of watchers of calls, each with a stream of its own, some of which stop to read.

    watchers.py ADDRESS TOKEN SERVER READING STALLED CHANNELS BURST FLOOD

Those who read watch the BURST calls of one server, those who stall these and FLOOD others. It writes JSON lines:
`synced` once all have the snapshot; `done` once all who read have seen the calls of the burst end. Then, told so by a
line on stdin, those who stalled read on, and one of them resumes: `closed`, with what they met. It ends with its stdin.
"""

import asyncio
import json
import sys
from typing import Any

from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from grpc import aio

from hubbub.v1 import call_pb2

# Without probing, a stream's window stays at 64 KiB; else each of those who stall would take megabytes unread.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
STATES = {call_pb2.CALL_STATE_QUEUED: 0, call_pb2.CALL_STATE_CANCELLED: 1}


class Watcher:
    """One stream, and what it has shown."""

    def __init__(self, channel: aio.Channel, token: str, server: str) -> None:
        self.states: dict[str, int] = {}
        self.backwards = 0
        self.resets = 0
        self.resume_token = ""
        self._method = channel.unary_stream("/hubbub.v1.CallService/WatchCalls")
        self._metadata = [("authorization", f"Bearer {token}")]
        self._filter = call_pb2.CallFilter(server=server)

    def open(self, resume_token: str = "") -> None:
        """Begins, or goes on from a token."""
        request = call_pb2.WatchCallsRequest(filter=self._filter, resume_token=resume_token)
        self.stream = self._method(request.SerializeToString(), metadata=self._metadata)

    async def read(self) -> str:
        """The kind of the next response."""
        response = call_pb2.WatchCallsResponse.FromString(await self.stream.read())
        self.resume_token = response.resume_token or self.resume_token
        kind = response.WhichOneof("event") or ""
        if kind == "upsert":
            state = STATES[response.upsert.state]
            self.backwards += state < self.states.get(response.upsert.id, 0)
            self.states[response.upsert.id] = state
        self.resets += kind == "reset"
        return kind

    async def until_synced(self) -> None:
        """Reads the snapshot."""
        while await self.read() != "synced":
            pass

    async def until_ended(self, count: int) -> None:
        """Reads until so many calls have ended."""
        while sum(self.states.values()) < count:
            await self.read()

    async def until_closed(self) -> dict[str, Any]:
        """Reads until the hub has closed the watch; why it did."""
        try:
            while True:
                await self.read()
        except aio.AioRpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            about = error_details_pb2.ErrorInfo()
            for detail in Status.FromString(trailers["grpc-status-details-bin"]).details:
                detail.Unpack(about)
            return {"code": error.code().name, "reason": about.reason, **about.metadata}


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def main() -> None:
    """As the module says."""
    address, token, server = sys.argv[1:4]
    reading_count, stalled_count, channel_count, burst, flood = map(int, sys.argv[4:])
    channels = [aio.insecure_channel(address, options=OPTIONS) for _ in range(channel_count)]
    kinds = [server] * reading_count + [""] * stalled_count
    watchers = [Watcher(channels[n % channel_count], token, kind) for n, kind in enumerate(kinds)]
    reading, stalled = watchers[:reading_count], watchers[reading_count:]
    for watcher in watchers:
        watcher.open()
    await asyncio.gather(*(watcher.until_synced() for watcher in watchers))
    say(synced=len(watchers))
    await asyncio.gather(*(watcher.until_ended(burst) for watcher in reading))
    wrong = sum(watcher.backwards + watcher.resets for watcher in reading)
    say(done=len(reading), wrong=wrong, ids=sorted({call for watcher in reading for call in watcher.states}))
    await asyncio.to_thread(sys.stdin.readline)
    closed = [await watcher.until_closed() for watcher in stalled]
    again = stalled[0]
    same = closed[0].get("resume_token") == again.resume_token
    again.open(again.resume_token)
    await again.until_ended(burst + flood)
    wrong = sum(watcher.backwards + watcher.resets for watcher in stalled)
    say(closed=closed, same=same, wrong=wrong, ids=sorted(again.states))
    await asyncio.to_thread(sys.stdin.read)
    for watcher in watchers:
        watcher.stream.cancel()
    for channel in channels:
        await channel.close()


if __name__ == "__main__":
    asyncio.run(main())
