"""Connections of browsers, and of what stands before the page, that rest between requests."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from hubbub_web.serve import bind, serve

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


async def test_the_page_keeps_a_connection_for_longer_than_browsers_and_proxies_do() -> None:
    hub: Any = Silent()
    links: list[str] = []
    with bind("127.0.0.1:0") as bound:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(hub, lambda _: hub, bound, links.append, print, open_browser=False))
            while not links:
                await asyncio.sleep(0.01)
            async with kept(links[0]) as connection:
                assert await connection.ask("/") == 200
                await asyncio.sleep(LONGEST_S)
                assert await connection.ask("/") == 200
            tasks.cancel_scope.cancel()
