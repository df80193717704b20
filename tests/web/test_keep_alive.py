"""Connections of browsers, and of what stands before the page: those that rest between requests, or end within one."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from hubbub_web.server import bind, serve

from ..idle_time import IdleTimeLoop
from ..rpc.test_keep_alive import LONGEST_S, kept


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time passes faster while nothing happens."""
    return "asyncio", {"loop_factory": IdleTimeLoop}


class Silent:
    """In the place of a hub of which nothing is heard."""

    def __getattr__(self, _: str) -> "Silent":
        return self

    async def watch(self) -> AsyncGenerator[Any, None]:
        """As each watch of the library."""
        await anyio.sleep_forever()
        yield

    async def whoami(self) -> None:
        """As `hub.admin`."""


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The link to a page that is served."""
    hub: Any = Silent()
    links: list[str] = []
    with bind("127.0.0.1:0") as bound:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(hub, lambda _: hub, bound, links.append, print, open_browser=False))
            while not links:
                await asyncio.sleep(0.01)
            yield links[0]
            tasks.cancel_scope.cancel()


async def test_the_page_keeps_a_connection_for_longer_than_browsers_and_proxies_do() -> None:
    async with served() as link, kept(link) as connection:
        assert await connection.ask("/") == 200
        await asyncio.sleep(LONGEST_S)
        assert await connection.ask("/") == 200


async def test_a_browser_that_leaves_within_a_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as link:
        place = urlsplit(link)
        lines = (
            "POST /api/login HTTP/1.1",
            f"host: {place.netloc}",
            f"origin: http://{place.netloc}",
            "content-type: application/json",
            "x-hubbub-token: none",
            "content-length: 9",
            "",
            '{"li',
        )
        async with await anyio.connect_tcp(place.hostname or "", place.port or 0) as stream:
            await stream.send("\r\n".join(lines).encode())
        async with kept(link) as connection:
            assert await connection.ask("/") == 200
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
