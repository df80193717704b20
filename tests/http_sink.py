"""A server over HTTP that takes what is sent to it, and answers with the statuses that a test names."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

Received = list[tuple[dict[str, str], bytes]]
"""The headers and the body of each request."""


@asynccontextmanager
async def answering(statuses: Sequence[int], *, then: int, path: str) -> AsyncIterator[tuple[str, Received]]:
    """Answer with these statuses, and with `then` from then on; yield the URL, and what came."""
    came: Received = []
    left = list(statuses)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            head = (await reader.receive_until(b"\r\n\r\n", 1 << 16)).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            came.append((headers, await reader.receive_exactly(int(headers["content-length"]))))
            status = left.pop(0) if left else then
            await stream.send(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with server, anyio.create_task_group() as group:
        group.start_soon(server.serve, serve)
        yield f"http://127.0.0.1:{server.extra(SocketAttribute.local_port)}{path}", came
        group.cancel_scope.cancel()
