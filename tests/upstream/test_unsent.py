"""A call for which no connection could be made says so; one that was on the wire does not."""

import asyncio
import json
import re
from typing import Any

import anyio
import pytest

from hubbubd.errors import UpstreamError
from hubbubd.upstream.ports import Era

from .conftest import Connect

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "closing", "version": "1"}}


class Closing:
    """A server that answers the handshake, each message over a connection of its own, and holds calls for ever.

    With `cuts` it ends their connections instead.
    """

    def __init__(self, *, cuts: bool = False) -> None:
        self._cuts = cuts
        self.held = anyio.Event()
        self._release = anyio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        found = LENGTH.search(head)
        message: dict[str, Any] = json.loads(await reader.readexactly(int(found[1]))) if found else {}
        if message.get("method") == "tools/call":
            self.held.set()
            if self._cuts:
                writer.transport.abort()
                return
            await self._release.wait()
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": HELLO}) if "id" in message else ""
        status = 200 if body else 202
        headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        writer.write(f"HTTP/1.1 {status} -\r\n{headers}\r\n\r\n{body}".encode())
        writer.close()

    def release(self) -> None:
        """Let the connections of calls end."""
        self._release.set()


async def test_only_the_call_that_met_no_server_was_not_sent(connect: Connect) -> None:
    closing, failures = Closing(), list[UpstreamError]()
    server = await asyncio.start_server(closing.accept, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async with connect(Era.HANDSHAKE, url=url) as link, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(UpstreamError) as caught:
                await link.request("tools/call", {"name": "held", "arguments": {}})
            failures.append(caught.value)

        tasks.start_soon(call)
        await closing.held.wait()
        server.close()
        tasks.start_soon(call)
    closing.release()
    assert [failure.reason for failure in failures] == ["CONNECTION_LOST"] * 2
    assert sorted(failure.fault.details.get("sent", True) for failure in failures) == [False, True]
