"""HTTP/1.1 that costs next to nothing, for the servers beside this file."""

import asyncio
import os
import re
from collections.abc import Callable
from functools import partial
from typing import cast

import orjson
from light_stdio import result_of

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Answer = Callable[[bytes, bytes], bytes]
"""Returns the whole response to a request, or the beginning of one, from its head and its body."""


class Connection(asyncio.Protocol):
    """One client's connection, kept alive."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answers every request that is complete."""
        self._received += data
        while (head_end := self._received.find(b"\r\n\r\n") + 4) > 3:
            length = LENGTH.search(self._received, 0, head_end)
            end = head_end + (int(length[1]) if length else 0)
            if len(self._received) < end:
                return
            head, body = self._received[:head_end], self._received[head_end:end]
            self._received = self._received[end:]
            self._transport.write(self._answer(head, body))


def reply_to(message: dict[str, object], header: bytes = b"") -> bytes:
    """The response to a JSON-RPC message."""
    method = message.get("method")
    if "id" not in message or method is None:
        return response(202)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = result_of(cast("str", method), cast("dict[str, object]", message.get("params", {})))
    if result is None:
        return response(200, reply | {"error": {"code": -32601, "message": "Method not found"}})
    return response(200, reply | {"result": result}, header)


def response(status: int, message: object = None, header: bytes = b"") -> bytes:
    """An HTTP response, with JSON when there is a message."""
    body = b"" if message is None else orjson.dumps(message)
    return b"HTTP/1.1 %d -\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        header,
        len(body),
        body,
    )


async def listen(answer: Answer) -> asyncio.Server:
    """A server at PORT."""
    factory = partial(Connection, answer)
    return await asyncio.get_running_loop().create_server(factory, "127.0.0.1", int(os.environ["PORT"]), backlog=4096)
