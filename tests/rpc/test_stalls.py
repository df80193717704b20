"""When the hub gives up on a caller that reads nothing, and when it does not, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hubbub.v1 import call_pb2, server_pb2
from hubbubd.rpc import methods

from ..runtime.virtual_time import VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A new loop for each test, at second 0 of its own time."""
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class Reader:
    """The context of an RPC whose caller takes nothing for so many seconds, and then everything at once."""

    def __init__(self, after_s: float) -> None:
        self.aborted: list[object] = []
        loop = asyncio.get_running_loop()
        self._taken: asyncio.Future[None] = loop.create_future()
        loop.call_at(loop.time() + after_s, self._taken.set_result, None)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return None

    async def write(self, response: bytes) -> None:
        await self._taken

    async def abort(self, *status: object) -> None:
        self.aborted.append(status)


class Slow:
    """A servicer whose streams have one response, or two with a pause between them."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def __getattr__(self, name: str) -> object:
        return None  # no other RPC is called

    async def watch_servers(self, request: object) -> AsyncGenerator[bytes, None]:
        yield b""
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
            yield b""

    async def stream_calls(self, steps: object, write: methods.Write) -> None:
        await write(b"")
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
            await write(b"")


@pytest.mark.parametrize(
    ("service", "method", "kind"),
    [
        (server_pb2.DESCRIPTOR.services_by_name["ServerService"], "WatchServers", "unary_stream"),
        (call_pb2.DESCRIPTOR.services_by_name["CallService"], "StreamCalls", "stream_stream"),
    ],
)
@pytest.mark.parametrize(
    ("after_s", "pause_s", "stalled"),
    [
        (methods.STALL_S, 0.0, False),
        (methods.STALL_S + 1, 0.0, True),
        (methods.STALL_S - 1, 3 * methods.STALL_S, False),
    ],
    ids=["the last response in the last moment", "too late", "in time, and then there is nothing to read"],
)
async def test_only_a_caller_that_does_not_read_what_there_is_is_dropped(
    service: Any, method: str, kind: str, after_s: float, pause_s: float, stalled: bool
) -> None:
    dropped: list[bool] = []
    table = methods.generic_handler(service, Slow(pause_s), 1024, dropped=lambda: dropped.append(True))
    handler: Any = table.service(cast("Any", SimpleNamespace(method=f"/{service.full_name}/{method}")))
    context = Reader(after_s)
    await getattr(handler, kind)(b"", context)
    assert (len(dropped), len(context.aborted)) == ((1, 1) if stalled else (0, 0))
