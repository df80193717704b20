"""Thousands of sessions over HTTP that nobody ends."""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import httpx2
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from .conftest import LIMIT_S, RunningHub

COUNT, FIRST = 3_000, 500
MIB = 5.0
"""What memory may grow by after the first sessions; those that come after them would take five times as much."""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


def rss_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Raw:
    """A connection over which sessions are opened as fast as the hub opens them."""

    def __init__(self, hub: RunningHub, stream: SocketStream) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
        head = f"POST /mcp/s/plain HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {hub.token}\r\n"
        about = f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n"
        self._request = f"{head}{about}content-type: application/json\r\n\r\n".encode() + body
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def open(self) -> str:
        """Opens one; its id."""
        await self._stream.send(self._request)
        lines = (await self._lines.receive_until(b"\r\n\r\n", 1 << 16)).decode().lower().split("\r\n")
        assert lines[0].startswith("http/1.1 200"), lines
        headers = dict(line.split(": ", 1) for line in lines[1:])
        await self._lines.receive_exactly(int(headers["content-length"]))
        return headers["mcp-session-id"]


async def test_they_take_no_more_memory_than_those_that_there_may_be(
    start_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path
) -> None:
    server = {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "plain_server.py")]}
    hub = await start_hub({"plain": server}, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    url = httpx2.URL(hub.ready["mcp"])
    async with await anyio.connect_tcp(url.host, url.port or 0) as stream:
        raw = Raw(hub, stream)
        with anyio.fail_after(COUNT / 100 + LIMIT_S):
            ids = {await raw.open() for _ in range(FIRST)}
            before = rss_mib(hub.process.pid)
            ids |= {await raw.open() for _ in range(COUNT - FIRST)}
    assert len(ids) == COUNT
    assert len(await hub.client.hosts.list()) == 100
    assert rss_mib(hub.process.pid) < before + MIB
