"""How long a caller may take to read a response of a stream, in virtual time."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import anyio
import grpc
import pytest

from hubbub.v1 import call_pb2, server_pb2
from hubbubd.rpc import methods
from hubbubd.rpc.methods import STALL_S

from ..runtime.virtual_time import VirtualTimeLoop

RESPONSES = 5
STREAMS = {
    "a watch": (server_pb2.DESCRIPTOR.services_by_name["ServerService"], "WatchServers", "unary_stream"),
    "calls": (call_pb2.DESCRIPTOR.services_by_name["CallService"], "StreamCalls", "stream_stream"),
}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class Ended(Exception):
    """The RPC was ended with a status."""


class Reader:
    """A caller, as its handler sees it, that takes so many seconds to read each response."""

    def __init__(self, *paces_s: float) -> None:
        self.paces_s = list(paces_s)
        self.read = 0
        self.status = grpc.StatusCode.OK

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return None

    async def write(self, _response: bytes) -> None:
        await anyio.sleep(self.paces_s[self.read])
        self.read += 1

    async def abort(self, code: grpc.StatusCode, *_: object) -> None:
        self.status = code
        raise Ended


class Servicer:
    """A servicer whose streams are silent for so many seconds before each response."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s

    def __getattr__(self, name: str) -> object:
        return None  # no other RPC is called

    async def watch_servers(self, request: object) -> AsyncGenerator[bytes, None]:
        for _ in range(RESPONSES):
            await anyio.sleep(self.silence_s)
            yield b""

    async def stream_calls(self, steps: object, write: methods.Write) -> None:
        for _ in range(RESPONSES):
            await anyio.sleep(self.silence_s)
            await write(b"")


async def serve(stream: str, silence_s: float, reader: Reader) -> int:
    """Serve a stream to its end, and return how often a caller was dropped."""
    service, method, kind = STREAMS[stream]
    dropped: list[bool] = []
    handlers: Any = methods.make_generic_handler(
        service, Servicer(silence_s), 1024, on_dropped=lambda: dropped.append(True)
    )
    handler = handlers.service(SimpleNamespace(method=f"/{service.full_name}/{method}"))
    with suppress(Ended):
        await getattr(handler, kind)(b"", reader)
    return len(dropped)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("silence_s", [0, STALL_S / 3, 10 * STALL_S])
async def test_whoever_reads_each_response_in_time_gets_all_however_long_that_takes(
    stream: str, silence_s: float
) -> None:
    reader = Reader(*[STALL_S * 0.99] * RESPONSES)
    assert await serve(stream, silence_s, reader) == 0
    assert (reader.read, reader.status) == (RESPONSES, grpc.StatusCode.OK)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("silence_s", [0, STALL_S / 3, 10 * STALL_S])
async def test_whoever_takes_too_long_for_one_response_is_ended_then(stream: str, silence_s: float) -> None:
    reader = Reader(0, 20, 0, 1000 * STALL_S)
    began_s = anyio.current_time()
    assert await serve(stream, silence_s, reader) == 1
    assert (reader.read, reader.status) == (3, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert anyio.current_time() - began_s == pytest.approx(4 * silence_s + 20 + STALL_S)
