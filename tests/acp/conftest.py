"""The bridge within the test: a host over pipes on one side, a coding agent in a thread on the other."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from hubbub_acp.options import AcpOptions
from hubbub_acp.program import serve

LIMIT_S = 60
TASKS = "io.modelcontextprotocol/tasks"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"


class _Output:
    """The output of an agent in a thread: after its end nothing is written, as by a process that has ended."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


class ThreadedAgent:
    """The agent of the tests as a thread of this process, with the pipes of a process."""

    def __init__(self, serve_agent: Callable[..., None], words: Sequence[str]) -> None:
        source, self.stdin = os.pipe()
        self.stdout, output = os.pipe()
        self.stops = 0
        self._files = (os.fdopen(source, encoding="utf-8"), os.fdopen(output, "w", encoding="utf-8"))
        self._serve_agent = serve_agent
        self._words = list(words)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        source, output = self._files
        with suppress(OSError, ValueError), output:
            self._serve_agent(self._words, source, _Output(output))

    def say(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self._files[1].write(f"{json.dumps(message)}\n")
        self._files[1].flush()

    def hang_up(self) -> None:
        """The agent's output ends, as if it had died."""
        with suppress(OSError, ValueError):
            self._files[1].close()

    async def describe_end(self) -> str:
        return "ended with exit code 3; it wrote: the last word"

    def read_stderr_tail(self) -> str:
        return ""

    async def stop(self) -> None:
        self.stops += 1
        os.close(self.stdin)
        self.hang_up()
        os.close(self.stdout)


class Host:
    """An MCP host of either family of revisions. `asked` has the questions, which `answers` answers in turn."""

    def __init__(self, revision: str, source: int, output: int) -> None:
        self.revision = revision
        self.extensions: dict[str, Any] = {TASKS: {}}
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.notes: list[dict[str, Any]] = []
        self.noted = asyncio.Event()
        self._source, self._output = source, output
        self._responses: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0

    async def read(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._source, "rb")
        )
        try:
            async for line in reader:
                message = json.loads(line)
                if "method" not in message:
                    self._responses.pop(message["id"]).set_result(message)
                elif "id" in message:
                    self.asked.put_nowait(message)
                else:
                    self.notes.append(message)
                    self.noted.set()
        finally:
            transport.close()

    def send(self, message: dict[str, Any]) -> None:
        raw = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        threading.Thread(target=self._write, args=(raw,), daemon=True).start() if len(raw) > 60_000 else self._write(
            raw
        )

    def _write(self, raw: memoryview) -> None:
        while raw:
            raw = raw[os.write(self._output, raw) :]

    def leave(self) -> None:
        os.close(self._output)

    def begin(self, method: str, **params: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        self._last_id += 1
        if self.revision == STATELESS:
            params["_meta"] = {
                PROTOCOL_VERSION_META_KEY: STATELESS,
                CLIENT_INFO_META_KEY: {"name": "host", "version": "1"},
                CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}, "extensions": self.extensions},
                **params.get("_meta", {}),
            }
        future = self._responses[self._last_id] = asyncio.get_running_loop().create_future()
        self.send({"id": self._last_id, "method": method, "params": params})
        return self._last_id, future

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            return await self.begin(method, **params)[1]

    async def introduce(self) -> dict[str, Any]:
        params = {"capabilities": {"elicitation": {"form": {}}}, "clientInfo": {"name": "host", "version": "1"}}
        response = await self.request("initialize", protocolVersion=HANDSHAKE, **params)
        self.send({"method": "notifications/initialized"})
        return response["result"]

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        response = await self.request("tools/call", name=name, arguments=arguments)
        return response["result"] if "result" in response else response["error"]

    def begin_call(self, name: str, **arguments: Any) -> asyncio.Future[dict[str, Any]]:
        return self.begin("tools/call", name=name, arguments=arguments, _meta={"progressToken": "p"})[1]

    async def next_question(self) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            return await self.asked.get()

    def answer(self, question: dict[str, Any], decision: str | None, action: str = "accept") -> None:
        content = {} if decision is None else {"content": {"decision": decision}}
        self.send({"id": question["id"], "result": {"action": action, **content}})

    async def read_resource(self, uri: str) -> str:
        response = await self.request("resources/read", uri=uri)
        return response["result"]["contents"][0]["text"]

    async def until_noted(self, method: str) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            while not (found := [note for note in self.notes if note["method"] == method]):
                self.noted.clear()
                await self.noted.wait()
        return found[-1]


class Bridge:
    """A bridge under way, with its host and the agents that it has started."""

    def __init__(self, host: Host, agents: list[ThreadedAgent], serving: asyncio.Task[None]) -> None:
        self.host = host
        self.agents = agents
        self.serving = serving

    async def end(self) -> None:
        """The host leaves, and the bridge ends."""
        self.host.leave()
        async with asyncio.timeout(LIMIT_S):
            await self.serving


StartBridge = Callable[..., Any]


@pytest.fixture(scope="session")
def serve_agent(peer_scripts: Path) -> Callable[..., None]:
    """What the agent of the tests runs."""
    spec = spec_from_file_location("acp_agent", peer_scripts / "acp_agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serve


@pytest.fixture
async def start_bridge_within(serve_agent: Callable[..., None], tmp_path: Path) -> AsyncIterator[StartBridge]:
    """Starts bridges: `await start_bridge_within("--modes", revision=STATELESS)`; the words are the agent's."""
    (tmp_path / "work").mkdir()
    async with AsyncExitStack() as ends:

        async def start(*words: str, revision: str = HANDSHAKE, **options: Any) -> Bridge:
            agents: list[ThreadedAgent] = []

            async def start_agent(command: Sequence[str]) -> ThreadedAgent:
                agents.append(ThreadedAgent(serve_agent, words))
                return agents[-1]

            stdin, to_bridge = os.pipe()
            from_bridge, stdout = os.pipe()
            host = Host(revision, from_bridge, to_bridge)
            given = {"command": ("agent", *words), "name": "coder", "version": "1", "records": tmp_path / "records"}
            settings = AcpOptions(**{**given, **options})
            reading = asyncio.create_task(host.read())
            serving = asyncio.create_task(serve(settings, stdin, stdout, start_agent=start_agent))
            bridge = Bridge(host, agents, serving)

            async def end() -> None:
                with suppress(OSError):
                    host.leave()
                async with asyncio.timeout(LIMIT_S):
                    await asyncio.wait({serving})
                for descriptor in (stdin, stdout):
                    os.close(descriptor)
                await reading
                serving.result()

            ends.push_async_callback(end)
            if revision == HANDSHAKE:
                await host.introduce()
            return bridge

        yield start


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder of sessions."""
    return tmp_path / "work"
