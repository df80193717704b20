"""Lines from a host and for it, over real pipes."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from hubbub_local.stdio import MAX_UNREAD_BYTES, LineTooLong, PipeLineWriter, read_lines
from hubbub_shared.platform import pipes

LIMIT_S = 60


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A reading and a writing end, which a test may close."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


async def all_of(descriptor: int, longest: int = 100) -> list[bytes | str]:
    async with asyncio.timeout(LIMIT_S), aclosing(read_lines(descriptor, longest)) as found:
        return ["too long" if isinstance(line, LineTooLong) else line async for line in found]


async def test_each_line_is_one_however_it_comes(pipe: tuple[int, int]) -> None:
    reading = asyncio.create_task(all_of(pipe[0]))
    for part in (b"one\ntw", b"o\n", b"\n \r\nthree", b"\nno end"):
        os.write(pipe[1], part)
        await asyncio.sleep(0)
    os.close(pipe[1])
    assert await reading == [b"one", b"two", b"three"]


async def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_is_read(pipe: tuple[int, int]) -> None:
    reading = asyncio.create_task(all_of(pipe[0]))
    for part in (b"x" * 90, b"x" * 90, b"x" * 90, b"\ngood\n", b"y" * 101 + b"\n", b"z" * 100 + b"\n"):
        os.write(pipe[1], part)
        await asyncio.sleep(0)
    os.close(pipe[1])
    assert await reading == ["too long", b"good", "too long", b"z" * 100]


async def test_a_file_can_take_the_place_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    descriptor = os.open(tmp_path / "in", os.O_RDONLY)
    assert await all_of(descriptor) == [b"one", b"two"]
    os.close(descriptor)


async def test_more_than_a_pipe_holds_is_written_as_it_is_read_while_the_loop_goes_on(pipe: tuple[int, int]) -> None:
    out = PipeLineWriter(pipe[1], lambda: None)
    writing = asyncio.create_task(out.run())
    messages = [b"%d" % number * 100_000 for number in range(5)]
    for message in messages:
        out.queue_line(message)
    written = asyncio.create_task(out.wait_until_written())
    for _ in range(10):  # the pipe is full by now, and this goes on
        await asyncio.sleep(0)
    assert not written.done()
    reading = asyncio.create_task(all_of(pipe[0], longest=1 << 20))
    async with asyncio.timeout(LIMIT_S):
        await written
    os.close(pipe[1])
    writing.cancel()
    assert await reading == messages
    assert os.get_blocking(pipe[0])


async def test_there_is_no_room_for_more_than_a_host_can_be_expected_to_read(pipe: tuple[int, int]) -> None:
    out = PipeLineWriter(pipe[1], lambda: None)
    message = b"x" * (MAX_UNREAD_BYTES // 4)
    for _ in range(4):
        out.queue_line(message)
    await asyncio.wait_for(out.wait_for_capacity(), LIMIT_S)
    out.queue_line(message)
    waiting = asyncio.create_task(out.wait_for_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    writing = asyncio.create_task(out.run())
    reading = asyncio.create_task(all_of(pipe[0], longest=MAX_UNREAD_BYTES))
    async with asyncio.timeout(LIMIT_S):
        await waiting
        await out.wait_until_written()
    os.close(pipe[1])
    writing.cancel()
    assert await reading == [message] * 5


async def test_a_host_that_reads_no_more_has_left(pipe: tuple[int, int]) -> None:
    left = asyncio.Event()
    out = PipeLineWriter(pipe[1], left.set)
    os.close(pipe[0])
    out.queue_line(b"x")
    async with asyncio.timeout(LIMIT_S):
        await out.run()
    assert left.is_set()


async def test_a_host_has_left_even_if_its_last_lines_are_unread(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\n")
    assert not pipes.has_hung_up(pipe[0])
    os.close(pipe[1])
    assert pipes.has_hung_up(pipe[0])
