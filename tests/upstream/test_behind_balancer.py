"""A server behind a load balancer that cuts each connection over which nothing came for a minute."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..idle_time import IdleTimeLoop
from . import conftest
from .conftest import CALL, Connect, Recorder, Scripted, event

IDLE_S = 60.0
"""The time limit of idle connections at AWS's load balancers."""

LASTS_S = 600.0
CALLS_S = (20.0, 45.0, 170.0)
"""How long calls take, one after the other; the server tells of progress each 20 seconds."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time passes faster while nothing happens."""
    return "asyncio", {"loop_factory": IdleTimeLoop}


@asynccontextmanager
async def balanced(url: str, cut: list[bytes]) -> AsyncIterator[str]:
    """The URL of a server behind such a load balancer. `cut` gets how the first request of each cut one began."""
    place = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(place.hostname, place.port)
        heard = asyncio.Event()
        began: list[bytes] = []

        async def carry(from_: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await from_.read(65536):
                    began.append(data[:4])
                    heard.set()
                    to.write(data)
                    await to.drain()

        carriers = [asyncio.create_task(carry(*way)) for way in ((reader, back_writer), (back_reader, writer))]
        ended = asyncio.ensure_future(asyncio.wait(carriers, return_when=asyncio.FIRST_COMPLETED))
        while not ended.done():
            heard.clear()
            sound = asyncio.create_task(heard.wait())
            await asyncio.wait([sound, ended], timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
            sound.cancel()
            if not heard.is_set() and not ended.done():
                cut.extend(began[:1])
                break
        for each in (*carriers, ended):
            each.cancel()
        writer.transport.abort()
        back_writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{place.path}"


def slow_calls() -> Any:
    """Calls that take as long as they are to, and tell of progress."""

    async def respond(request: Request) -> Response:
        message = await request.json()
        lasts_s: float = message["params"]["arguments"]["lasts_s"]
        token = message["params"]["_meta"]["progressToken"]

        async def body() -> AsyncIterator[str]:
            begun = anyio.current_time()
            while (left := begun + lasts_s - anyio.current_time()) > 0:
                told = {"progressToken": token, "progress": lasts_s - left}
                yield event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
                await anyio.sleep(min(left, 20.0))
            yield event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

        return StreamingResponse(body(), media_type="text/event-stream")

    return respond


def quiet_stream(opened: list[float]) -> Any:
    """A GET stream on which something is asked when it was opened for the fifth time, and nothing else."""

    async def respond(_: Request) -> Response:
        opened.append(anyio.current_time())
        number = len(opened)

        async def body() -> AsyncIterator[str]:
            yield ": open\n\n"
            if number == 5:
                params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
                yield event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})
            await anyio.sleep_forever()

        return StreamingResponse(body(), media_type="text/event-stream")

    return respond


async def test_ten_minutes_behind_a_load_balancer_cost_no_call_and_no_question(
    scripted: Scripted, connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "LIMIT_S", 3 * LASTS_S)
    opened: list[float] = []
    cut: list[bytes] = []
    results: list[Any] = []
    scripted.replaced = {"GET": quiet_stream(opened), "tools/call": slow_calls()}
    async with balanced(scripted.url, cut) as url, connect(url=url) as link:

        async def call_for(lasts_s: float) -> None:
            begun = anyio.current_time()
            while anyio.current_time() - begun < LASTS_S:
                params = {"name": "any", "arguments": {"lasts_s": lasts_s}}
                results.append(await link.request(CALL[0], params, on_progress=lambda _: None))

        async with anyio.create_task_group() as tasks:
            for lasts_s in CALLS_S:
                tasks.start_soon(call_for, lasts_s)
    assert len(results) >= sum(LASTS_S / lasts_s for lasts_s in CALLS_S) - 1
    assert all(result == {"content": []} for result in results)
    assert len(opened) >= LASTS_S / (IDLE_S + 5)
    assert set(cut) == {b"GET "}
    assert recorder.sent == [None]
    assert "after 60 s" in recorder.notes["stream_cut"]
