"""Starts processes through the fork server of this process, where they may be forked."""

import asyncio
import atexit
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from signal import SIGKILL, SIGTERM, pidfd_send_signal
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from .wire import PACKET_BYTES, PROGRAMS, ask, same_at_import

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
PEERS = HERE.parent / "peers"
SERVERS = (PEERS, HERE.parents[1] / "benchmarks/servers")
"""Where scripts of servers are."""
CHUNK_BYTES = 1 << 16


AT_START = dict(os.environ)
"""The environment that the fork server imports with, whatever a test sets in its own meanwhile."""

ADDRESS = "TESTS_FORK_SERVER"
"""The variable in which a program of the tests is given the fork server of the tests."""


class Real:
    """Whether processes are started as a user starts them."""

    wanted = False


REAL = Real()
"""Of all tests; the fixture `started_for_real` sets it."""


async def start(
    command: Sequence[str],
    *,
    stdin: Any = PIPE,
    stdout: Any = PIPE,
    stderr: Any = PIPE,
    env: Mapping[str, str] | None = None,
    cwd: Any = None,
) -> Process:
    """As `anyio.open_process`."""
    forked = _forked(command, stdin, stdout, stderr, env, cwd)
    if forked is None:
        return await anyio.open_process(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd)
    streams = [await Receiving.of(ours) if ours is not None else None for ours in (forked.stdout, forked.stderr)]
    return AsyncForked(forked, *streams)


async def run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Any = None
) -> CompletedProcess[bytes]:
    """As `anyio.run_process` without a check, and nothing to read."""
    said: dict[str, bytes] = {}

    async def listen(name: str, stream: ByteReceiveStream) -> None:
        said[name] = b"".join([chunk async for chunk in stream])

    async with await start(command, stdin=DEVNULL, env=env, cwd=cwd) as process:
        try:
            async with anyio.create_task_group() as listening:
                for name in ("stdout", "stderr"):
                    listening.start_soon(listen, name, getattr(process, name))
                await process.wait()
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(command, process.returncode or 0, said["stdout"], said["stderr"])


def popen(command: Sequence[str], *, env: Mapping[str, str], output: Any) -> "subprocess.Popen[bytes] | Forked":
    """As `Popen` with nothing to read, which writes to one file."""
    forked = _forked(command, DEVNULL, output, output, env, None)
    return forked or subprocess.Popen(command, env=env, stdin=DEVNULL, stdout=output, stderr=output)


def quick(server: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a server that the hub starts, changed so that it is forked, if it may be."""
    command, arguments = str(server.get("command")), list(server.get("args", ()))
    # The hub gets other arguments for the same command.
    is_python = command == sys.executable and bool(arguments)
    own = {str(name): str(value) for name, value in dict(server.get("env") or {}).items()}
    if REAL.wanted or not is_python or program([command, *arguments]) is None or not same_at_import(own, {}):
        return dict(server)
    return {**server, "args": command_of_script(*arguments)[1:]}


def command_of_script(script: str | Path, *arguments: str) -> list[str]:
    """The command with which another program has a script forked, whose imports are those of the fork server.

    Where its environment has settings of Python, the script is started as always.
    """
    return [sys.executable, "-I", "-S", str(HERE / "launch.py"), address(), str(script), *arguments]


def program(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """What of the fork server's a command starts, and with which arguments; None for all else."""
    first, *words = map(str, command)
    if first == sys.executable and words[:2] == ["-m", "hubbubd"]:
        return "hubbubd", words[2:]
    if first in {str(BIN / name) for name in PROGRAMS}:
        return Path(first).name, words
    if first == sys.executable and words and Path(words[0]).parent in SERVERS and _of_the_sdk(words[0]):
        return words[0], words[1:]
    return None


@cache
def _of_the_sdk(script: str) -> bool:
    """Whether a server takes long to import; only those of the SDK do."""
    return "\nfrom mcp" in Path(script).read_text()


def environment_with_forks() -> dict[str, str]:
    """The environment, in which a program of the tests need not start a fork server of its own."""
    return os.environ | {ADDRESS: address()}


@cache
def address() -> str:
    """Where the fork server listens: one of this process, with which it ends, or the one that it was given."""
    if given := os.environ.get(ADDRESS):
        return given
    directory = tempfile.TemporaryDirectory(prefix="hubbub-forks-")
    path = str(Path(directory.name) / "sock")
    command = [sys.executable, str(HERE / "server.py"), path]
    server = subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, cwd=HERE.parents[1], env=AT_START, start_new_session=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    ready = server.stdout.readline()
    assert ready == b"ready\n", "the fork server does not start"
    atexit.register(directory.cleanup)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    return path


class Forked:
    """A process that was forked, with what `Popen` has."""

    def __init__(self, way: socket.socket, pid: int, process: int) -> None:
        self.pid = pid
        self.way = way
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self._process = process
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        return self._status

    def poll(self) -> int | None:
        """The status of a process that has ended."""
        if self._status is None:
            self.way.setblocking(False)
            with suppress(BlockingIOError):
                self.ended(self.way.recv(PACKET_BYTES))
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; the status."""
        if self._status is None:
            self.way.settimeout(timeout)
            try:
                self.ended(self.way.recv(PACKET_BYTES))
            except TimeoutError:
                raise subprocess.TimeoutExpired([], timeout or 0) from None
        assert self._status is not None
        return self._status

    def ended(self, said: bytes) -> None:
        """Takes what the fork server says of its end."""
        assert said, "the fork server has ended"
        self._status = int(said)
        self.way.close()
        os.close(self._process)

    def send_signal(self, signal: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the fork server has not said so yet
                pidfd_send_signal(self._process, signal)

    def terminate(self) -> None:
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        self.send_signal(SIGKILL)


def _forked(
    command: Sequence[str], stdin: Any, stdout: Any, stderr: Any, env: Mapping[str, str] | None, cwd: Any
) -> Forked | None:
    """Forks what may be forked."""
    env = os.environ if env is None else env
    found = None if REAL.wanted else program(command)
    if found is None or not same_at_import(env, AT_START):
        return None
    sys.audit("tests.fork", list(command))
    ours: dict[str, int] = {}
    with ExitStack() as theirs:
        descriptors: list[int] = []
        for number, (name, wanted) in enumerate({"stdin": stdin, "stdout": stdout, "stderr": stderr}.items()):
            if wanted == PIPE:
                ends = os.pipe()
                ours[name] = ends[1] if name == "stdin" else ends[0]
                descriptors.append(ends[0] if name == "stdin" else ends[1])
                theirs.callback(os.close, descriptors[-1])
            elif wanted == DEVNULL:
                descriptors.append(os.open(os.devnull, os.O_RDWR))
                theirs.callback(os.close, descriptors[-1])
            elif wanted == subprocess.STDOUT:
                descriptors.append(descriptors[1])
            else:
                descriptors.append(number if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno())
        process = Forked(*ask(address(), *found, env, os.fspath(cwd or Path.cwd()), descriptors))
    for name, descriptor in ours.items():
        setattr(process, name, descriptor)
    return process


class Receiving(ByteReceiveStream):
    """The end of a pipe that is read from, ahead of who wants it, as `anyio` has one."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._reader = reader
        self._transport = transport

    @classmethod
    async def of(cls, descriptor: int) -> "Receiving":
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        return cls(reader, transport)

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        if chunk := await self._reader.read(max_bytes):
            return chunk
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self._reader.set_exception(anyio.ClosedResourceError())
        self._transport.close()


class Sending(ByteSendStream):
    """The end of a pipe that is written to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def send(self, item: bytes) -> None:
        while item:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            try:
                item = item[os.write(self._descriptor, item) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if self._descriptor >= 0:
            closed, self._descriptor = self._descriptor, -1
            os.close(closed)


class AsyncForked(Process):
    """A process that was forked, as `anyio` has one."""

    def __init__(self, forked: Forked, stdout: Receiving | None, stderr: Receiving | None) -> None:
        self._forked = forked
        self._stdin = None if forked.stdin is None else Sending(forked.stdin)
        self._stdout = stdout
        self._stderr = stderr
        self._turn = anyio.Lock()

    async def wait(self) -> int:
        async with self._turn:
            while (status := self._forked.poll()) is None:
                await anyio.wait_readable(self._forked.way)
            return status

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True) as scope:
            for stream in (self._stdin, self._stdout, self._stderr):
                if stream is not None:
                    await stream.aclose()
            scope.shield = False
            try:
                await self.wait()
            except BaseException:
                scope.shield = True
                self.kill()
                await self.wait()
                raise

    def terminate(self) -> None:
        self._forked.terminate()

    def kill(self) -> None:
        self._forked.kill()

    def send_signal(self, signal: int) -> None:
        self._forked.send_signal(signal)

    @property
    def pid(self) -> int:
        return self._forked.pid

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    @property
    def stdin(self) -> ByteSendStream | None:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return self._stdout

    @property
    def stderr(self) -> ByteReceiveStream | None:
        return self._stderr
