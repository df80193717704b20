"""Any number of streamable HTTP servers in one process, each at a path of its own: /0, /1, and so on.

Each has a session, without which it refuses, and an own stream (a GET) that it holds open and never uses. A GET of
/open returns how many servers have such a stream. The first line on stdout says that all listen.
"""

import asyncio
import os
import re
from typing import cast

import orjson
import uvloop
from light_stdio import result_of

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SESSION = re.compile(rb"\r\nmcp-session-id: *(\S+)", re.IGNORECASE)
STREAM = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

sessions: set[bytes] = set()
streams: set[bytes] = set()
"""Paths of the servers whose own stream is open."""


class Connection(asyncio.Protocol):
    """One client's connection, kept alive."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answers every request that is complete."""
        self._received += data
        while (head_end := self._received.find(b"\r\n\r\n") + 4) > 3:
            found = LENGTH.search(self._received, 0, head_end)
            end = head_end + (int(found[1]) if found else 0)
            if len(self._received) < end:
                return
            head, body = self._received[:head_end], self._received[head_end:end]
            self._received = self._received[end:]
            self._transport.write(answer(head, body))


def answer(head: bytes, body: bytes) -> bytes:
    """The whole HTTP response to a request, or the beginning of the stream."""
    how, path, _ = head.split(b" ", 2)
    if path == b"/open":
        return response(200, len(streams))
    found = SESSION.search(head)
    if found is not None and found[1] not in sessions:
        return response(404)
    if how == b"GET":
        streams.add(path)
        return STREAM
    if how == b"DELETE":
        return response(200)
    message = orjson.loads(body)
    method = message.get("method")
    if "id" not in message or method is None:
        return response(202)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = result_of(method, message.get("params", {}))
    if result is None:
        return response(200, reply | {"error": {"code": -32601, "message": "Method not found"}})
    if method != "initialize":
        return response(200, reply | {"result": result})
    session = os.urandom(8).hex().encode()
    sessions.add(session)
    return response(200, reply | {"result": result}, b"mcp-session-id: %b\r\n" % session)


def response(status: int, message: object = None, header: bytes = b"") -> bytes:
    """An HTTP response, with JSON when there is a message."""
    body = b"" if message is None else orjson.dumps(message)
    return b"HTTP/1.1 %d -\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        header,
        len(body),
        body,
    )


async def main() -> None:
    """Serves on PORT until the process is ended."""
    listening = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", int(os.environ["PORT"]), backlog=4096
    )
    print("ready", flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
