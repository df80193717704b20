"""What takes long to read waits for its turn, and is handed on in pieces."""

import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.upstream.http import body
from hubbubd.upstream.http import streamable as http
from hubbubd.upstream.http.body import LINE_COST, TURN_COST, read_in_turns
from hubbubd.upstream.http.streams import get_stream
from hubbubd.upstream.messages.codec import SHORT
from hubbubd.upstream.stdio import transport as stdio

from .conftest import Connect, Recorder, Scripted, event, says

CHUNK = 64 * 1024

SPEAKING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": "speaking", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message.get("method") == "tools/call":
        text = "x" * message["params"]["arguments"]["size"]
        result = {"content": [{"type": "text", "text": text}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def chunks(chunk: bytes, count: int) -> AsyncIterator[bytes]:
    """A body of so many chunks."""
    for _ in range(count):
        yield chunk


@pytest.mark.parametrize(
    "chunk",
    [b"x" * CHUNK, b"data:xxxxxxxx\n" * (CHUNK // 14), b"\r" * CHUNK, b"\n"],
    ids=["text", "lines", "returns", "single"],
)
async def test_a_long_body_is_handed_on_in_pieces_of_bounded_cost(
    chunk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = [0]

    async def wait_for_turn() -> None:
        spent.append(0)

    monkeypatch.setattr(body, "wait_for_turn", wait_for_turn)
    whole = chunks(chunk, 4 * 1024 * 1024 // CHUNK)
    received: list[bytes] = []
    async for piece in read_in_turns(whole):
        received.append(piece)
        spent[-1] += len(piece) + LINE_COST * (piece.count(b"\n") + piece.count(b"\r"))
    assert b"".join(received) == chunk * (4 * 1024 * 1024 // CHUNK)
    assert max(spent) <= TURN_COST + LINE_COST
    assert len(spent) <= 2 * sum(spent) // TURN_COST + 2


@pytest.mark.usefixtures("processes")
async def test_a_long_line_waits_for_its_turn_and_a_short_one_does_not(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def wait_for_turn() -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(stdio, "wait_for_turn", wait_for_turn)
    async with connect(command=sys.executable, args=("-I", "-S", "-c", SPEAKING)) as link:

        async def call(size: int) -> Any:
            return await link.request("tools/call", {"name": "speak", "arguments": {"size": size}})

        await call(10_000)
        assert turns == 0
        result = await call(1_000_000)
        assert len(result["content"][0]["text"]) == 1_000_000
        assert turns > 0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """The modules of HTTP that waited for a turn, each time."""
    taken: list[ModuleType] = []
    for module in (http, get_stream):

        async def wait_for_turn(module: ModuleType = module) -> None:
            taken.append(module)

        monkeypatch.setattr(module, "wait_for_turn", wait_for_turn)
    return taken


@pytest.mark.parametrize("streamed", [False, True], ids=["body", "event"])
async def test_a_long_response_over_http_waits_for_its_turn_and_a_short_one_does_not(
    streamed: bool, scripted: Scripted, connect: Connect, turns: list[ModuleType]
) -> None:
    async def speak(request: Request) -> Response:
        message = await request.json()
        text = "x" * message["params"]["arguments"]["size"]
        response = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}
        if streamed:
            return Response(event(response), media_type="text/event-stream")
        return JSONResponse(response)

    scripted.replaced = {"tools/call": speak}
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "speak", "arguments": {"size": SHORT // 2}})
        assert turns == []
        result = await link.request("tools/call", {"name": "speak", "arguments": {"size": SHORT}})
        assert len(result["content"][0]["text"]) == SHORT
        assert turns == [http]


async def test_what_a_server_tells_at_length_on_its_own_stream_waits_for_its_turn(
    scripted: Scripted, connect: Connect, recorder: Recorder, turns: list[ModuleType]
) -> None:
    told = [
        event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * size}})
        for size in (1, SHORT)
    ]
    scripted.replaced = {"GET": says(200, "".join(told), "text/event-stream")}
    async with connect(url=scripted.url):
        await recorder.until(lambda: len(recorder.notifications) == 2)
        assert turns == [get_stream]
