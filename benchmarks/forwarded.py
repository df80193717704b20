"""Calls by the shortest way that a hub with a gRPC API could have: over a stream, and a process that only forwards."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
from grpc import aio
from measure import TEXT
from processes import HERE, START_LIMIT_S, Process, end_after
from servers.forward_calls import METHOD

FORWARDED = "only forwarded"
REVISION, PREFIX = "2026-07-28", "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": REVISION, f"{PREFIX}clientCapabilities": {}}
FIELDS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": REVISION,
    "mcp-method": "tools/call",
    "mcp-name": "echo",
}


class Forwarder:
    """A stream to a process that forwards; `process` is that one, `before` what each message to it begins with."""

    def __init__(self, process: Process, stream: Any, before: bytes) -> None:
        self.process = process
        self._stream = stream
        self._before = before
        self._writing = asyncio.Lock()
        self._waiting = dict[int, asyncio.Future[Any]]()
        self._last = 0

    async def echo(self) -> None:
        """Call `echo`, and check what comes back."""
        self._last = mine = self._last + 1
        self._waiting[mine] = arrived = asyncio.get_running_loop().create_future()
        params = {"name": "echo", "arguments": {"text": TEXT}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": mine, "method": "tools/call", "params": params}
        async with self._writing:  # gRPC takes one message at a time
            await self._stream.write(self._before + orjson.dumps(message))
        result = await arrived
        assert result["content"][0]["text"] == TEXT

    async def read(self) -> None:
        """Take what comes back, until the stream ends."""
        while (answer := await self._stream.read()) is not aio.EOF:
            message = orjson.loads(answer[answer.index(b"{") :])  # an event of HTTP has a field's name before it
            self._waiting.pop(message["id"]).set_result(message["result"])


@asynccontextmanager
async def open_forwarder(options: Mapping[str, Any]) -> AsyncGenerator[Forwarder]:
    """A process that forwards to a server, and a stream to it."""
    url = options.get("url")
    target = [url] if url else [options["command"], *options["args"]]
    command = [sys.executable, HERE / "servers" / "forward_calls.py", *target]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
    before = "; ".join(f"{name}: {value}" for name, value in FIELDS.items()).encode() + b"\n" if url else b""
    async with end_after(process):
        assert process.stdout is not None
        with anyio.fail_after(START_LIMIT_S):
            port = int(await process.stdout.receive())
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stream = channel.stream_stream(METHOD)()
            forwarder = Forwarder(Process(process.pid), stream, before)
            reading = asyncio.create_task(forwarder.read())
            try:
                yield forwarder
            finally:
                reading.cancel()
                stream.cancel()
