"""gRPC by hand, for what no client does (https://www.rfc-editor.org/rfc/rfc9113; headers literal and never indexed,
RFC 7541 section 6.2.2)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketStream

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, END_HEADERS = 1, 4, 4
MAX_CONCURRENT_STREAMS = 3


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def begun(stream: int, path: str, **more: str) -> bytes:
    """An RPC whose request does not come: HEADERS without END_STREAM."""
    about = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    fields = about | {"content-type": "application/grpc"} | more
    packed = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
    return frame(HEADERS, END_HEADERS, stream, packed)


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


@asynccontextmanager
async def raw(address: str) -> AsyncIterator[SocketStream]:
    """A connection over which nothing has been said."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        yield stream


async def begin(stream: SocketStream, count: int, path: str, **more: str) -> None:
    """So many RPCs whose requests do not come."""
    await stream.send(PREFACE + frame(SETTINGS, 0, 0, b""))
    for number in range(count):
        await stream.send(begun(2 * number + 1, path, **more))
        await anyio.sleep(0.001)


async def drain(stream: SocketStream) -> None:
    """Reads until the other end is gone."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
