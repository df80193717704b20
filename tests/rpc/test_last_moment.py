"""Streams whose caller takes a response in the moment in which the hub gives up on it, in virtual time."""

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


class LastMoment:
    """The context of an RPC whose caller takes what is written now when the limit is over, and no later."""

    def __init__(self) -> None:
        self.aborted: list[object] = []
        loop = asyncio.get_running_loop()
        self._taken: asyncio.Future[None] = loop.create_future()
        loop.call_at(loop.time() + methods.STALL_S, self._taken.set_result, None)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, response: bytes) -> None:
        await self._taken

    async def abort(self, *status: object) -> None:
        self.aborted.append(status)


class Short:
    """A servicer whose streams have one response."""

    def __getattr__(self, name: str) -> object:
        return None  # no other RPC is called

    async def watch_servers(self, request: object) -> AsyncGenerator[bytes, None]:
        yield b""

    async def stream_calls(self, steps: object, write: methods.Write) -> None:
        await write(b"")


@pytest.mark.parametrize(
    ("service", "method", "kind"),
    [
        (server_pb2.DESCRIPTOR.services_by_name["ServerService"], "WatchServers", "unary_stream"),
        (call_pb2.DESCRIPTOR.services_by_name["CallService"], "StreamCalls", "stream_stream"),
    ],
)
async def test_a_stream_whose_last_response_was_taken_has_ended_well(service: Any, method: str, kind: str) -> None:
    dropped: list[bool] = []
    table = methods.generic_handler(service, Short(), 1024, dropped=lambda: dropped.append(True))
    handler: Any = table.service(cast("Any", SimpleNamespace(method=f"/{service.full_name}/{method}")))
    context = LastMoment()
    await getattr(handler, kind)(b"", context)
    assert (dropped, context.aborted) == ([], [])
