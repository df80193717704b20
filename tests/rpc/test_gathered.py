"""What is written in one turn of the loop leaves at once; the bounds of a connection are still its transport's."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbub_http.write_buffer import TOGETHER_BYTES, GatheringTransport

from .conftest import LIMIT_S


class Counted:
    """A transport that notes each write."""

    def __init__(self, transport: Any) -> None:
        self.writes: list[bytes] = []
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[GatheringTransport, Counted, asyncio.StreamReader]]:
    """A gathered transport, what it writes to, and who reads it."""
    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    counted: Any = Counted(transport)
    with anyio.fail_after(LIMIT_S):
        yield GatheringTransport(counted), counted, reader
    transport.abort()
    writer.close()


async def test_the_head_of_a_response_leaves_with_its_body() -> None:
    async with connected() as (gathered, counted, reader):
        gathered.write(b"head")
        gathered.write(b"")
        gathered.write(b"body")
        assert await reader.readexactly(8) == b"headbody"
        assert counted.writes == [b"headbody"]


async def test_what_is_written_in_a_later_turn_is_not_held_for_more() -> None:
    async with connected() as (gathered, counted, reader):
        for said in (b"one", b"two"):
            gathered.write(said)
            assert await reader.readexactly(3) == said
        assert counted.writes == [b"one", b"two"]


async def test_long_bodies_reach_the_transport_at_once_so_that_it_can_say_that_it_is_full() -> None:
    async with connected() as (gathered, counted, reader):
        gathered.write(b"head")
        gathered.write(b"x" * TOGETHER_BYTES)
        assert counted.writes == [b"head" + b"x" * TOGETHER_BYTES]
        gathered.write(b"last")
        assert (await reader.readexactly(8 + TOGETHER_BYTES)).endswith(b"xlast")


async def test_a_connection_that_is_closed_sends_what_was_written_before() -> None:
    async with connected() as (gathered, _, reader):
        gathered.write(b"last words")
        gathered.close()
        assert await reader.read() == b"last words"


async def test_nothing_is_written_to_a_connection_that_was_cut() -> None:
    async with connected() as (gathered, counted, reader):
        gathered.write(b"lost")
        gathered.abort()
        assert await reader.read() == b""
        assert counted.writes == []
