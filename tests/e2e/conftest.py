"""A real hub in a process of its own, reached by the real client library and the real command line."""

import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

import hubbub_client

from .. import forks
from .collector import Collector, collecting

LIMIT_S = 60
"""Bound of every wait of these tests."""

POLL_S = 0.02

THERE_TO_THE_END = ("collector", "http_peer")
"""What a test's hub has to do with until it has ended: it goes on telling, and servers wait for their connections."""

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> Any:
        """The one object that a command printed which went well."""
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err.splitlines()[-1])


class Lines:
    """A command that goes on, with its lines as they come."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._stream = BufferedByteReceiveStream(process.stdout)

    async def next(self, limit_s: float = LIMIT_S) -> Any:
        """The next line that is no bookmark."""
        with anyio.fail_after(limit_s):
            while True:
                line = json.loads(await self._stream.receive_until(b"\n", 1 << 20))
                if line.get("type") != "bookmark":
                    return line

    async def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """The lines up to the first that is wanted."""
        seen = [await self.next()]
        while not wanted(seen[-1]):
            seen.append(await self.next())
        return seen

    async def interrupt(self) -> int:
        """Sends SIGINT; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return await self.wait()

    async def wait(self) -> int:
        """The exit status, once the command has ended."""
        with anyio.fail_after(LIMIT_S):
            return await self.process.wait()


class RunningHub:
    """A process of `hubbubd` that serves, `client` for the library and `hubbub` for the command line."""

    def __init__(self, process: Process, ready: dict[str, Any], client: Any, stack: AsyncExitStack) -> None:
        self.process = process
        self.ready = ready
        self.data_dir = Path(ready["data_dir"])
        self.client = client
        self._stack = stack

    @property
    def token(self) -> str:
        """The owner's token, as `client.json` has it now."""
        return json.loads((self.data_dir / "client.json").read_text())["token"]

    async def hubbub(self, *words: str) -> Ran:
        """Runs `hubbub --json` to its end."""
        with anyio.fail_after(LIMIT_S):
            done = await forks.run(self._command(words), env=environment())
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def start_hubbub(self, *words: str) -> Lines:
        """Starts `hubbub --json`, which ends with the hub's test at the latest."""
        return Lines(await self._stack.enter_async_context(child(self._command(words), stdin=DEVNULL, stdout=PIPE)))

    async def answer(self, request: Any, *answer: str) -> Any:
        """Answers by the command line; the request as it then is."""
        return (await self.hubbub("inbox", "answer", request.id, *answer)).record

    async def connected(self, *names: str) -> None:
        """Waits for these servers."""
        await self.watched(self.client.servers.watch(names), lambda s: s.state == "connected", len(names))

    async def asked(self, count: int = 1, **chosen: Any) -> list[Any]:
        """Waits until so many requests are open, and returns them, oldest first."""
        found = await self.watched(self.client.inbox.watch(states=["open"], **chosen), lambda _: True, count)
        return sorted(found, key=lambda r: r.created_at)

    async def call(self, call_id: str, *states: str) -> Any:
        """Waits until a call is in one of these states; without any, until it has ended."""
        if not states:
            with anyio.fail_after(LIMIT_S):
                return await self.client.calls.handle(call_id).wait()
        return (await self.watched(self.client.calls.watch(ids=[call_id]), lambda c: c.state in states))[0]

    async def request(self, request_id: str, **wanted: Any) -> Any:
        """Waits until a pending request has these values."""

        def matches(record: Any) -> bool:
            return record.id == request_id and all(getattr(record, name) == wanted[name] for name in wanted)

        return (await self.watched(self.client.inbox.watch(), matches))[0]

    async def watched(self, watch: Any, wanted: Callable[[Any], bool], count: int = 1) -> list[Any]:
        """Follows a watch until so many of its records are as wanted."""
        found: dict[str, Any] = {}
        with anyio.fail_after(LIMIT_S):
            async for event in watch:
                if isinstance(event, hubbub_client.Upsert):
                    key = getattr(event.record, "id", None) or event.record.name
                    found.pop(key, None)
                    if wanted(event.record):
                        found[key] = event.record
                elif isinstance(event, hubbub_client.Removed):
                    found.pop(event.id, None)
                if len(found) >= count:
                    break
        await watch.aclose()
        return list(found.values())

    async def terminate(self, limit_s: float = LIMIT_S) -> None:
        """Ends the hub as an operator would; it must exit 0 and leave no process behind."""
        family = descendants(self.process.pid)
        self.process.terminate()
        with anyio.fail_after(limit_s):
            status = await self.process.wait()
        assert status == 0
        assert not [pid for pid in family if alive(pid)]

    async def kill(self) -> None:
        """Kills the hub; its descendants must follow."""
        family = descendants(self.process.pid)
        self.process.kill()
        with anyio.fail_after(LIMIT_S):
            await self.process.wait()
            while any(alive(pid) for pid in family):
                await anyio.sleep(POLL_S)

    def _command(self, words: Sequence[str]) -> list[str]:
        return [str(BIN / "hubbub"), "--data-dir", str(self.data_dir), "--json", *words]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that hubs and servers started from now on send everything to, soon."""
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "50")
        yield running


@pytest.fixture
async def start_hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts a hub with these servers: `await start_hub({"name": {...}}, hub={...})`; one data directory per test.

    Further tables of its configuration are given by name. With `connected=True` its servers are connected then.

    A hub that still runs when the test ends is ended as `terminate` does. Its log is shown when the test fails.
    """
    for name in THERE_TO_THE_END:
        if name in request.fixturenames:
            request.getfixturevalue(name)
    async with starter(tmp_path, apart=False) as start:
        yield start


@pytest.fixture(scope="module")
async def start_shared_hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[..., Any]]:
    """As `start_hub`, for all tests of a module; a data directory per hub."""
    async with starter(tmp_path_factory.mktemp("hub"), apart=True) as start:
        yield start


@pytest.fixture(scope="module")
def reached(shared_http_peer: Any) -> Callable[..., dict[str, Any]]:
    """The configuration of a server over a transport, the last word of its command.

    `reached("stdio", *command, env={}, http="http")`; with "http" it listens until the module has ended, and its last
    word is that of `http`.
    """

    def made(transport: str, *command: str, env: Mapping[str, str] | None = None, http: str = "http") -> dict[str, Any]:
        if transport == "http":
            return {"url": f"{shared_http_peer([*command, http], env=env).url}/mcp"}
        return {"command": command[0], "args": [*command[1:], "stdio"], **({"env": dict(env)} if env else {})}

    return made


@asynccontextmanager
async def starter(directory: Path, *, apart: bool) -> AsyncIterator[Callable[..., Any]]:
    """What `start_hub` gives, in this directory; the hubs share a data directory, or live `apart`."""
    numbers = itertools.count()

    async with AsyncExitStack() as stack:

        async def start(
            servers: Mapping[str, Any] | None = None,
            hub: Mapping[str, Any] | None = None,
            listen: str | None = "127.0.0.1:0",
            connected: bool = False,
            **tables: Mapping[str, Any],
        ) -> RunningHub:
            number = next(numbers)
            config = directory / f"hub-{number}.toml"
            # What a test leaves under way is not worth the time that it usually gets.
            quick = {name: forks.quick(server) for name, server in (servers or {}).items()}
            config.write_text(toml({"hub": {"shutdown_grace_s": 1, **(hub or {})}, "servers": quick, **tables}))
            arguments = [
                "--config",
                str(config),
                "--data-dir",
                str(directory / (f"data-{number}" if apart else "data")),
            ]
            arguments += ["--listen", listen] if listen else []
            hub = await stack.enter_async_context(running(arguments))
            if connected:
                await hub.connected(*quick)
            return hub

        yield start


@asynccontextmanager
async def running(
    arguments: Sequence[str], program: Sequence[str] = ("-m", "hubbubd"), **pipes: Any
) -> AsyncIterator[RunningHub]:
    """A hub with these arguments that has said it is ready."""
    command = [sys.executable, *program, *arguments]
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(child(command, stdout=PIPE, **pipes))
        assert process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            ready = json.loads(await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16))
        client = await stack.enter_async_context(hubbub_client.connect(data_dir=ready["data_dir"]))
        hub = RunningHub(process, ready, client, stack)
        yield hub
        if process.returncode is None:
            await hub.terminate()


@asynccontextmanager
async def child(command: Sequence[str], **pipes: Any) -> AsyncIterator[Process]:
    """A process that does not outlive the block; its stderr is the test's, unless it is piped."""
    async with await forks.start(command, **{"stdin": DEVNULL, "stderr": None, "env": environment()} | pipes) as p:
        try:
            yield p
        finally:
            if p.returncode is None:
                p.kill()


def environment() -> dict[str, str]:
    """The environment without what would point to another hub."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HUBBUB_", "HUBBUBD_"))}


def toml(tables: Mapping[str, Any], prefix: str = "") -> str:
    """Tables of tables of JSON values as TOML."""
    values = [f"{name} = {_inline(v)}\n" for name, v in tables.items() if not isinstance(v, Mapping)]
    inner = [f"[{prefix}{name}]\n{toml(v, f'{prefix}{name}.')}" for name, v in tables.items() if isinstance(v, Mapping)]
    return "".join([*values, *inner])


def _inline(value: Any) -> str:
    """A value of TOML. Strings, numbers, booleans and arrays of them look as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {_inline(inner)}" for name, inner in value.items()) + "}"
    return f"[{', '.join(map(_inline, value))}]" if isinstance(value, list) else json.dumps(value)


def descendants(pid: int) -> list[int]:
    """The processes below a process, at any depth."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:  # this thread has ended meanwhile
            continue
        for each in pids:
            found += [int(each), *descendants(int(each))]
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not, once all its threads have ended: till then it holds its files."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    threads = int(fields[16])  # num_threads in proc(5)
    return state not in "ZX" or threads > 1
