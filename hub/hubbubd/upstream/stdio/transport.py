"""The stdio transport: JSON-RPC messages as lines on the pipes of a process.

Backpressure: the hub reads only when messages are taken, and a bounded piece per turn of the event loop, so a flooding
server waits for itself. Messages are parsed in the task that takes them, which saves a task switch each.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from io import FileIO
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from hubbubd.config import ServerConfig
from hubbubd.errors import Fault
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream.faults import fault
from hubbubd.upstream.messages.codec import (
    BadMessage,
    LineSplitter,
    NotJson,
    OversizedLine,
    oversized_error,
    parse_message,
    serialize,
)
from hubbubd.upstream.messages.exchange import SIZE
from hubbubd.upstream.stdio.process import ExitStatus, ServerProcess
from hubbubd.upstream.stdio.stderr import Fold, OnLine, Tail

__all__ = ["BadMessage", "ExitStatus", "StdioStreams", "stdio_transport"]

CHUNK: Final = 64 * 1024
"""Bytes per read, and about how many bytes of messages are passed on before other tasks run."""

LINE_COST: Final = 1024
"""What a line counts against CHUNK besides its bytes."""

BRIEF_PAUSE_S: Final = 0.01
"""Seconds between reads of data that is only discarded."""

UNPARSEABLE_LIMIT: Final = 10
"""Lines of JSON in a row that are no JSON-RPC, after which this is no MCP server."""

STRAY_LIMIT: Final = 1000
"""Lines in a row that are no messages, after which this is no MCP server, unless it has sent a message before."""

STRAY_PAUSE_S: Final = 1.0
"""Seconds for which a server that has sent a message is not read, after each STRAY_LIMIT such lines."""

STRAY_LOG_INTERVAL_S: Final = 5.0
"""Seconds between two log lines about stray output."""

log = structlog.get_logger(__name__)


class _PipeReader:
    """A pipe that is read on demand; `on_chunk` gets b"" at the end."""

    def __init__(self, pipe: FileIO, on_chunk: Callable[[bytes], None]) -> None:
        self._pipe = pipe
        self._on_chunk = on_chunk
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._resume_timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.resume()

    def resume(self) -> None:
        """Read each chunk as it comes, unless the reader rests or has ended."""
        if not self._reading and not self._resume_timer and not self.ended:
            self._reading = True
            self._loop.add_reader(self._pipe.fileno(), self.read)

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._pipe.fileno())

    def pause_briefly(self) -> None:
        """Stop reading for REST_S, then resume."""
        self.pause()
        if not self._resume_timer and not self.ended:
            self._resume_timer = self._loop.call_later(BRIEF_PAUSE_S, self._wake)

    def read(self) -> bool:
        """Read one chunk, if there is one; return whether there was."""
        if self.ended:  # closed after the loop reported it readable
            return False
        try:
            chunk = self._pipe.read(CHUNK)
        except OSError:
            chunk = b""  # a pipe that broke has ended
        if chunk is None:  # there is nothing to read now
            return False
        if not chunk:
            self.pause()
            self.ended = True
        self._on_chunk(chunk)
        return bool(chunk)

    def close(self) -> None:
        """Stop reading, and close the pipe."""
        self.pause()
        self.ended = True
        if self._resume_timer:
            self._resume_timer.cancel()
        self._pipe.close()

    def _wake(self) -> None:
        """Resume reading at the end of a rest."""
        self._resume_timer = None
        self.resume()


class MessageReader(ObjectReceiveStream[SessionMessage | Exception]):
    """The server's stdout, for one receiving task."""

    closed = False

    def __init__(self, pipe: FileIO, config: ServerConfig, on_stray: Callable[[bytes], None]) -> None:
        self.fault: Fault | None = None
        self.stray_lines = 0
        self.unparseable = 0
        self._config = config
        self._on_stray = on_stray
        self._has_sent_message = self._must_pause = False
        self._lines = LineSplitter(config.max_message_bytes)
        self._stray_run = 0
        self._unparseable_run = 0
        self._turn_cost = 0
        self._log_after = 0.0
        self._ends_when_empty = False
        self._draining = False
        self._waiter: asyncio.Future[None] | None = None
        self._pipe_reader = _PipeReader(pipe, self._on_chunk)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or a BadMessage in its place.

        Raises EndOfStream at the end and after a fault, ClosedResourceError when closed from this side.
        """
        while True:
            if self.closed:
                raise anyio.ClosedResourceError
            if self.fault:
                raise anyio.EndOfStream
            if self._must_pause:  # it has sent messages, and now STRAY_LIMIT lines that are none
                self._must_pause = False
                await anyio.sleep(STRAY_PAUSE_S)
                continue
            if self._turn_cost >= CHUNK:
                self._turn_cost = 0
                await anyio.lowlevel.checkpoint()
                continue
            if self._lines.may_have_line and len(self._lines) > 2 * CHUNK:
                await wait_for_turn()  # parsing a long line is long work
            line = self._lines.take_line()
            if line is None:
                await self._wait_for_data()
            elif (item := self._parse_line(line)) is not None:
                return item

    def end_after_buffered_data(self) -> None:
        """End the stream after what the server has written already, as the server no longer reads messages."""
        self._ends_when_empty = True
        self._wake()

    def drain(self) -> None:
        """Discard what comes from now on, so that a full pipe does not keep the server from ending."""
        self._draining = True
        self._pipe_reader.resume()
        self.closed = True
        self._wake()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe_reader.close()

    async def aclose(self) -> None:
        """Close the stream, but not yet the pipe: what comes is discarded (`drain`) until `close`."""
        self.drain()

    async def _wait_for_data(self) -> None:
        """Wait until there may be a line. Raises EndOfStream when there will be none."""
        if self._pipe_reader.ended or (self._ends_when_empty and not self._pipe_reader.read()):
            raise anyio.EndOfStream
        if self._lines.may_have_line:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        self._pipe_reader.resume()
        try:
            await self._waiter
        finally:
            self._waiter = None
        self._turn_cost = 0

    def _wake(self) -> None:
        """Wake `receive`, if it waits for data."""
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_chunk(self, chunk: bytes) -> None:
        """Buffer a chunk, unless draining; pause reading if much is buffered; wake `receive` if it can continue."""
        if not self._draining:
            self._lines.feed(chunk)
        if len(chunk) == CHUNK and (self._draining or self._lines.is_skipping):
            self._pipe_reader.pause_briefly()
        elif self._lines.may_have_line and len(self._lines) >= CHUNK:
            self._pipe_reader.pause()
        if self._lines.may_have_line or self._pipe_reader.ended:
            self._wake()

    def _parse_line(self, line: bytes | bytearray | OversizedLine) -> SessionMessage | Exception | None:
        """Return the line as a message, or a BadMessage in its place; None for a line that is not meant as a message.

        Sets SIZE for who handles the message, and adds to the cost of this turn of the event loop.
        """
        if isinstance(line, OversizedLine):
            self._turn_cost += LINE_COST
            SIZE.set(line.size)
            return oversized_error(line, self._config.max_message_bytes)
        self._turn_cost += LINE_COST + len(line)
        SIZE.set(len(line))
        try:
            message = parse_message(line)
        except BadMessage as bad:
            # A damaged response, whose request is still known, is no such line: its request gets an error.
            if isinstance(bad, NotJson) and not bad.answered_ids:
                self._note_stray_line(line)
                return None
            self.unparseable += 1
            self._unparseable_run += 1
            if self._unparseable_run >= UNPARSEABLE_LIMIT:
                self._give_up(f"{UNPARSEABLE_LIMIT} messages in a row are not JSON-RPC", str(bad))
            return bad
        self._has_sent_message = True
        self._stray_run = self._unparseable_run = 0
        return SessionMessage(message)

    def _note_stray_line(self, line: bytes | bytearray) -> None:
        """Log a line that is no message. After STRAY_LIMIT in a row, give up, or pause if there has been a message."""
        self.stray_lines += 1
        self._stray_run += 1
        text = line[:200].decode("utf-8", "replace")
        now = asyncio.get_running_loop().time()
        if now >= self._log_after:
            self._log_after = now + STRAY_LOG_INTERVAL_S
            log.warning(
                "stray line on stdout skipped", server=self._config.name, line=text, stray_lines=self.stray_lines
            )
        self._on_stray(bytes(line[:CHUNK]) + b"\n")
        if self._stray_run % STRAY_LIMIT == 0:
            self._must_pause = self._has_sent_message
            if not self._has_sent_message:
                self._give_up(f"{STRAY_LIMIT} lines in a row are not JSON-RPC", text)

    def _give_up(self, message: str, sample: str) -> None:
        """Note that this is no MCP server, with a sample of what it wrote: `receive` then raises EndOfStream."""
        self.fault = fault(
            "INVALID_RESPONSE",
            message,
            server=self._config.name,
            error=sample,
            stray_lines=self.stray_lines,
            unparseable=self.unparseable,
        )


class MessageWriter(ObjectSendStream[SessionMessage]):
    """The server's stdin, for any number of sending tasks."""

    closed = False

    def __init__(self, pipe: FileIO, on_broken: Callable[[], None]) -> None:
        self._pipe = pipe
        self._on_broken = on_broken
        self._send_lock = asyncio.Lock()
        self._unwritten = memoryview(b"")

    async def send(self, item: SessionMessage) -> None:
        """Write a message to the pipe, however long the server takes to make room (backpressure).

        A cancelled send has written nothing, or the rest is written before the next message: lines are never torn.
        Raises BrokenResourceError when the server no longer reads, ClosedResourceError when closed from this side.
        """
        line = serialize(item.message) + b"\n"
        async with self._send_lock:
            await self._flush()
            self._unwritten = memoryview(line)
            try:
                await self._flush()
            finally:
                if len(self._unwritten) == len(line):
                    self._unwritten = memoryview(b"")

    async def aclose(self) -> None:
        """Close the server's stdin, which asks it to exit (MCP lifecycle, shutdown, stdio)."""
        if not self.closed:
            self.closed = True
            anyio.notify_closing(self._pipe)
            self._pipe.close()

    async def _flush(self) -> None:
        """Write what is unwritten; wait while the pipe is full. Raises BrokenResourceError, ClosedResourceError."""
        while self._unwritten:
            if self.closed:
                raise anyio.ClosedResourceError
            try:
                written = self._pipe.write(self._unwritten)
            except OSError:
                self._on_broken()
                raise anyio.BrokenResourceError from None
            if written is None:
                await anyio.wait_writable(self._pipe)
            else:
                self._unwritten = self._unwritten[written:]


class StdioStreams:
    """An open stdio transport.

    `read` ends with the server's stdout, when its stdin breaks, or when it no longer writes JSON-RPC: then `fault` says
    so. `pid` is the server's own.
    """

    def __init__(self, process: ServerProcess, config: ServerConfig, on_stderr: OnLine | None = None) -> None:
        self.pid = process.pid
        clock = asyncio.get_running_loop().time
        self._stray_tail = Tail(on_stderr and (lambda line: on_stderr(f"stdout: {line}")), clock)
        self.read = MessageReader(process.stdout, config, self._stray_tail.feed)
        self.write = MessageWriter(process.stdin, self.read.end_after_buffered_data)
        self.side_output = Fold(on_stderr or (lambda _: None), self._drop_stderr_lines, config.name)
        self._tail = Tail(on_stderr and self.side_output.add_line, clock)
        self._stderr = _PipeReader(process.stderr, self._on_stderr)
        self._process = process

    @property
    def fault(self) -> Fault | None:
        """Why the hub stopped reading, if the reason is what the server wrote; else None."""
        return self.read.fault

    @property
    def stray_lines(self) -> int:
        """Number of lines on stdout that were not meant as messages: no JSON, or JSON of another kind."""
        return self.read.stray_lines

    @property
    def unparseable(self) -> int:
        """Number of lines on stdout that were meant as messages, and could not be parsed."""
        return self.read.unparseable

    def stderr_tail(self) -> tuple[str, ...]:
        """Return the last lines of the server's stderr: at most 50, of at most 2000 characters each."""
        return self._tail.lines()

    def stray_tail(self) -> tuple[str, ...]:
        """Return the last lines of the server's stdout that are no messages, bounded as those of its stderr."""
        return self._stray_tail.lines()

    async def wait_exit(self) -> ExitStatus:
        """Wait until the server process has ended, and return how."""
        return await self._process.wait_exit()

    async def close(self) -> None:
        """End the process and all its descendants; bounded, and not cancellable."""
        self.read.drain()
        with anyio.CancelScope(shield=True):
            await self.write.aclose()
            await self._process.stop()
        self._stderr.close()
        self.read.close()
        self._process.release()

    def _drop_stderr_lines(self, count: int) -> None:
        """Drop the last `count` lines of stderr that are kept."""
        self._tail.drop_last_lines(count)

    def _on_stderr(self, chunk: bytes) -> None:
        """Handle a chunk of stderr; rest a while if the server floods it."""
        self._tail.feed(chunk)
        if len(chunk) == CHUNK or self._tail.is_flooded:
            self._stderr.pause_briefly()


@asynccontextmanager
async def stdio_transport(config: ServerConfig, on_stderr: OnLine | None = None) -> AsyncGenerator[StdioStreams]:
    """Run `config.command` and yield its streams; leaving ends the process and all its descendants.

    `on_stderr` is called with each line of its stderr. References in `config` must be resolved. Leaving follows the MCP
    specification (lifecycle, shutdown, stdio): stdin is closed, 2 s later SIGTERM, 2 s later SIGKILL. Raises
    UpstreamError: COMMAND_NOT_FOUND, COMMAND_NOT_EXECUTABLE, WORKING_DIRECTORY_INVALID, START_FAILED.
    """
    process = await ServerProcess.start(config)
    streams = StdioStreams(process, config, on_stderr)
    try:
        yield streams
    finally:
        await streams.close()
