"""A streamable HTTP server that costs next to nothing: it answers each POST with JSON, and offers no other stream."""

import asyncio
import os
import re
from typing import cast

import orjson
import uvloop
from light_stdio import result_of

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


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
            is_post, body = self._received.startswith(b"POST"), self._received[head_end:end]
            self._received = self._received[end:]
            self._transport.write(answer(body) if is_post else response(405))


def answer(body: bytes) -> bytes:
    """The whole HTTP response to a message."""
    message = orjson.loads(body)
    if "id" not in message or "method" not in message:
        return response(202)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = result_of(message["method"], message.get("params", {}))
    if result is None:
        return response(200, reply | {"error": {"code": -32601, "message": "Method not found"}})
    return response(200, reply | {"result": result})


def response(status: int, message: object = None) -> bytes:
    """An HTTP response, with JSON when there is a message."""
    body = orjson.dumps(message) if message else b""
    return b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


async def main() -> None:
    """Serves on PORT until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
