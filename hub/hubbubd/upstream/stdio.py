"""A server over stdio: its process, and JSON-RPC messages as lines on its pipes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from hubbubd.config import ServerConfig
from hubbubd.errors import Fault


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a server process ended: one of the two, or neither when nobody saw it."""

    code: int | None = None
    signal: int | None = None


class BadMessage(Exception):
    """An item of the read stream in the place of a message that cannot be used.

    `request_id` is the id of the request that it answers, where that could still be read.
    """

    def __init__(self, problem: str, request_id: int | str | None = None) -> None:
        super().__init__(problem)
        self.request_id = request_id


class StdioStreams:
    """An open stdio transport.

    `read` ends (EndOfStream) when the server's stdout does, when its stdin breaks, or when what it writes is no
    JSON-RPC any more: then `fault` says so. `write.send` returns when the bytes are in the pipe, and raises
    BrokenResourceError when the server no longer takes any.
    """

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    pid: int
    fault: Fault | None
    stray_lines: int
    unparseable: int

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of the server's stderr: at most 50, of at most 2000 characters each."""
        ...

    async def wait_exit(self) -> ExitStatus:
        """Returns when the server process has ended, however it did."""
        ...


@asynccontextmanager
async def stdio_transport(config: ServerConfig) -> AsyncGenerator[StdioStreams]:
    """Runs `config.command` and yields its streams; leaving ends the process and all its descendants.

    `config` has its `${VAR}` references resolved. Leaving follows the MCP specification (lifecycle, shutdown, stdio):
    stdin is closed, 2 s later SIGTERM, 2 s later SIGKILL.
    Raises UpstreamError: COMMAND_NOT_FOUND, COMMAND_NOT_EXECUTABLE, WORKING_DIRECTORY_INVALID, START_FAILED.
    """
    raise NotImplementedError
    yield
