"""An event of a server's stream that never ends, or seems not to, costs its own call alone."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio
import grpc
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hubbub.v1 import admin_pb2, call_pb2, server_pb2

from ..upstream.conftest import Scripted, event, scripted, served
from .conftest import LIMIT_S, Caller, Refusal, Until, explain, spec_of
from .test_bad_input import METHODS

__all__ = ["scripted"]

LIMIT = 256 * 1024
MOST = 64 * LIMIT
"""What is sent at most: by far more than may be on the way in buffers when the hub has given up."""


@dataclass
class Endless:
    """Answers a call with an event stream that goes on until it is told to end, or nobody reads it."""

    part: bytes
    sent: int = 0
    enough: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)

    async def respond(self, request: Request) -> Response:
        return StreamingResponse(self._body(request, (await request.json())["id"]), media_type="text/event-stream")

    async def _body(self, request: Request, call_id: int) -> AsyncIterator[bytes]:
        try:
            while not self.enough.is_set() and self.sent < MOST and not await request.is_disconnected():
                yield self.part
                self.sent += len(self.part)
                await anyio.sleep(0)
            result = {"content": [{"type": "text", "text": "at last"}]}
            yield f"\n\n{event({'jsonrpc': '2.0', 'id': call_id, 'result': result})}".encode()
        finally:
            self.over.set()


@dataclass
class Beside:
    """Two servers of one hub: one with an endless stream, and a good one."""

    api: Caller
    bad: Scripted

    async def call(self, server: str) -> call_pb2.Call:
        """A call, when it has ended."""
        spec = call_pb2.CallSpec(server=server, method="tools/call", params=b'{"name":"any","arguments":{}}')
        return (await self.api(METHODS["CallMethod"], call_pb2.CallMethodRequest(spec=spec))).call

    async def others_go_on(self) -> None:
        """The hub and the good server answer."""
        assert (await self.api(METHODS["GetSelf"], admin_pb2.GetSelfRequest())).caller
        good = await self.call("good")
        assert json.loads(good.result)["content"][0]["text"] == "hi"


@pytest.fixture
async def beside(api: Caller, scripted: Scripted) -> AsyncIterator[Beside]:
    """Both servers, connected."""
    good = Scripted()
    async with served(Starlette(routes=[Route("/mcp", good.serve, methods=["GET", "POST", "DELETE"])])) as origin:
        for name, url in (("bad", scripted.url), ("good", f"{origin}/mcp")):
            spec = spec_of(name=name, url=url, protocol="2025-11-25", max_message_bytes=LIMIT)
            await api(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))
        yield Beside(api, scripted)
        for name in ("bad", "good"):
            await api(METHODS["RemoveServer"], server_pb2.RemoveServerRequest(name=name))


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
async def test_an_event_that_never_ends_fails_its_call_whatever_its_lines_end_with(end: bytes, beside: Beside) -> None:
    endless = Endless((b"data:" + b"x" * 20 + end) * 500)
    beside.bad.replaced = {"tools/call": endless.respond}
    refused: list[Refusal] = []

    async def call() -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await beside.call("bad")
        refused.append(explain(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await beside.others_go_on()
    await beside.others_go_on()
    with anyio.fail_after(LIMIT_S):
        await endless.over.wait()
    assert refused[0].reason == "INVALID_RESPONSE"
    assert f"an event is larger than {LIMIT} bytes" in refused[0].message
    assert endless.sent < MOST


async def test_short_events_that_only_a_carriage_return_ends_are_read_for_as_long_as_they_come(
    beside: Beside, until: Until
) -> None:
    endless = Endless(b"data:\r\r:" + b"x" * 8000 + b"\r\r\n")
    beside.bad.replaced = {"tools/call": endless.respond}
    done: list[call_pb2.Call] = []

    async def call() -> None:
        done.append(await beside.call("bad"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: endless.sent > 8 * LIMIT or bool(done))
        await beside.others_go_on()
        assert not done, "they went on meanwhile"
        endless.enough.set()
    assert json.loads(done[0].result)["content"][0]["text"] == "at last"
