"""Connections that rest between requests: the hub's HTTP ports keep them for longer than their clients do."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
import pytest
from anyio.abc import SocketStream

from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.metrics import serve_metrics

from ..idle_time import IdleTimeLoop
from .conftest import LIMIT_S, TOKEN, gate
from .mcp_host import Stage, stage

LIST_SERVERS = "/hubbub.v1.ServerService/ListServers"
SESSIONS = 150
LONGEST_S = 120
"""For so long a client may keep a connection that it does not use."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time passes faster while nothing happens."""
    return "asyncio", {"loop_factory": IdleTimeLoop}


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub whose endpoint hosts can reach."""
    async with stage(tmp_path) as made_:
        yield made_


class Kept:
    """A connection that is used again and again."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, path: str) -> int:
        """The status of the response to a small request with the right token."""
        method, body = ("POST", b"{}") if path == LIST_SERVERS else ("GET", b"")
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        sized = [*headers.items(), ("content-length", str(len(body)))]
        for each in (h11.Request(method=method, target=path, headers=sized), h11.Data(data=body), h11.EndOfMessage()):
            await self._stream.send(self._http.send(each) or b"")
        status = 0
        while not isinstance(came := self._http.next_event(), h11.EndOfMessage):
            if isinstance(came, h11.Response):
                status = came.status_code
            elif came is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive())
        self._http.start_next_cycle()
        return status


@asynccontextmanager
async def kept(url: str) -> AsyncIterator[Kept]:
    """A connection to where this leads."""
    place = urlsplit(url)
    async with await anyio.connect_tcp(place.hostname or "", place.port or 0) as stream:
        yield Kept(stream)


async def test_of_many_sessions_that_pause_as_long_as_their_client_keeps_connections_none_fails(made: Stage) -> None:
    answered: list[int] = []

    async def session(number: int) -> None:
        async with kept(made.url) as connection:
            for _ in range(2):
                answered.append(await connection.ask("/mcp"))
                await asyncio.sleep(4.9 + 0.2 * number / SESSIONS)

    async with anyio.create_task_group() as tasks:
        for number in random.sample(range(SESSIONS), SESSIONS):
            tasks.start_soon(session, number)
    assert answered == 2 * SESSIONS * [400], "they name no session"


@pytest.mark.parametrize("port", ["mcp", "connect", "metrics"])
async def test_each_port_keeps_a_connection_for_longer_than_clients_do(port: str, made: Stage) -> None:
    served = {
        "mcp": lambda: served_already(made.url),
        "connect": lambda: serve_connect(made.hub, listen="127.0.0.1:0", gate=gate(made.hub)),
        "metrics": lambda: serve_metrics("127.0.0.1:0", lambda: ("text/plain", b"up 1")),
    }
    path = {"mcp": "/mcp", "connect": LIST_SERVERS, "metrics": "/metrics"}[port]
    async with served[port]() as url, kept(url) as connection:
        first = await connection.ask(path)
        await asyncio.sleep(LONGEST_S)
        with anyio.fail_after(LIMIT_S):
            assert await connection.ask(path) == first


@asynccontextmanager
async def served_already(url: str) -> AsyncIterator[str]:
    """What is served already."""
    yield url


async def test_a_scraper_whose_second_request_does_not_come_whole_is_not_kept() -> None:
    async with serve_metrics("127.0.0.1:0", lambda: ("text/plain", b"up 1")) as url:
        place = urlsplit(url)
        async with await anyio.connect_tcp(place.hostname or "", place.port or 0) as stream:
            await stream.send(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            await stream.send(b"GET /metrics HTT")
            with anyio.fail_after(LIMIT_S), suppress(anyio.BrokenResourceError):
                async for _ in stream:
                    pass
