"""MCP hosts that others wrote go on in their session, over HTTP, however often the hub ends and is started again."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from ..e2e.conftest import Lines, RunningHub, start_hub
from ..ports import reserved

__all__ = ["start_hub"]

HERE = Path(__file__).parent
HOLD_S = 8
"""For how long a host's request is held for a person; more than a restart of the hub takes. Otherwise it is 45 s."""

LIMIT_S = 120 + 20 * int(os.environ.get("HUBBUB_RESTARTS", "0"))
TIMES = int(os.environ.get("HUBBUB_RESTARTS", "3"))
"""How often the hub is ended in each way; `make crash-hosts` does so RESTARTS times."""

WAYS = [each for _ in range(TIMES) for each in ("terminate", "kill")]


@dataclass
class Place:
    """A hub that can be replaced by another one with the same data, at the same place."""

    start: Callable[[], Awaitable[RunningHub]]
    hub: RunningHub

    @property
    def token(self) -> str:
        """The hub's own token."""
        return json.loads((self.hub.data_dir / "client.json").read_text())["token"]

    async def again(self, way: str) -> None:
        """Ends the hub, and starts another one."""
        await getattr(self.hub, way)()
        self.hub = await self.start()

    async def hosts(self) -> list[str]:
        """The names of the hosts that are connected, one for each session."""
        return [each["name"] for each in (await self.hub.hubbub("mcp", "sessions")).lines]


@pytest.fixture
async def place(start_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path) -> AsyncGenerator[Place]:
    """A hub with a server that has a tool `echo` and one that asks."""
    servers = {"one": {"command": sys.executable, "args": [str(peer_scripts / "conformance_server.py"), "stdio"]}}
    with reserved() as port:

        async def start() -> RunningHub:
            return await start_hub(
                servers, hub={"mcp_listen": f"127.0.0.1:{port}"}, mcp={"profiles": {"default": {"hold_s": HOLD_S}}}
            )

        yield Place(start, await start())


async def test_the_first_generation_of_the_python_sdk(place: Place, mcp1_python: str) -> None:
    command = [mcp1_python, str(HERE / "sdk1_restarts.py"), place.hub.ready["mcp"]]
    environment = os.environ | {"TOKEN": place.token}
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None, env=environment) as process:
        lines = Lines(process)

        async def begin(tool: str, **arguments: str) -> None:
            assert process.stdin is not None
            await process.stdin.send(json.dumps({"tool": f"one__{tool}", "arguments": arguments}).encode() + b"\n")

        async def outcome() -> Any:
            while (said := await lines.next(LIMIT_S)) == {"begun": True}:
                pass
            return said

        assert (await lines.next(LIMIT_S))["session"]
        for number, way in enumerate(WAYS):
            await begin("echo", text=str(number))
            assert await outcome() == {"text": [str(number)]}
            await place.again(way)
        for way in ("terminate", "kill"):
            await begin("test_elicitation", message="Who?")
            assert await lines.next(LIMIT_S) == {"begun": True}
            await place.again(way)
            said = await outcome()  # within the grace of SIGTERM the server may say what it makes of the end
            if way == "terminate" or said == {"error": {"reason": "HUB_RESTARTED"}}:
                continue
            # A call whose question was stored before the end goes on, and its host gets a ticket for it.
            (ticket,) = re.findall(r"call_id (call_\w+) for the result", "".join(said["text"]))
            assert (await place.hub.hubbub("calls", "get", ticket)).record["state"] == "waiting_input"
        await begin("echo", text="last")
        assert await outcome() == {"text": ["last"]}
        assert await place.hosts() == ["mcp"]
        process.terminate()


class Model:
    """A model that follows a script: it calls `echo` again and again, and lets the test do something before each."""

    def __init__(self, before: Callable[[int], Awaitable[None]], times: int) -> None:
        self.heard: list[str] = []
        """What the tool said."""
        self._before = before
        self._times = times

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Its URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next((int(each[15:]) for each in head.split("\r\n") if each.startswith("content-length:")), 0)
        part = await self._part(json.loads(await reader.readexactly(length) or b"{}"))
        said = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}
        body = b"data: " + json.dumps(said).encode() + b"\n\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    async def _part(self, asked: dict[str, Any]) -> dict[str, Any]:
        parts = [part for each in asked.get("contents", []) for part in each.get("parts", [])]
        self.heard = [json.dumps(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        tools = [each["name"] for group in asked.get("tools", []) for each in group.get("functionDeclarations", [])]
        echo = next((name for name in tools if name.endswith("one__echo")), None)
        done = len(self.heard)
        if echo is None or done > self._times:
            return {"text": "done"}
        if done:
            await self._before(done - 1)
        return {"functionCall": {"name": echo, "args": {"text": f"number {done}"}}}


async def test_gemini_cli(place: Place, gemini_cli: Path, tmp_path: Path) -> None:
    connected: list[list[str]] = []

    async def end_and_start(number: int) -> None:
        connected.append(await place.hosts())
        await place.again(WAYS[number])

    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    server = {
        "httpUrl": place.hub.ready["mcp"],
        "headers": {"Authorization": f"Bearer {place.token}"},
        "trust": True,
    }
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        "mcpServers": {"hub": server},
    }
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    model = Model(end_and_start, len(WAYS))
    program = gemini_cli / "node_modules/@google/gemini-cli/bundle/gemini.js"
    words = ["--yolo", "--skip-trust", "--model", "gemini-2.5-flash", "--prompt", "Call the tool"]
    async with model.serving() as url:
        environment = {
            "HOME": str(home),
            "PATH": f"{gemini_cli}:/usr/bin:/bin",
            "GEMINI_API_KEY": "made-up",
            "GOOGLE_GEMINI_BASE_URL": url,
        }
        with anyio.fail_after(LIMIT_S):
            command = [str(gemini_cli / "node"), str(program), *words]
            ended = await anyio.run_process(command, check=False, cwd=home, env=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert [f"number {each}" in said for each, said in enumerate(model.heard)] == [True] * (len(WAYS) + 1)
    assert connected == [["gemini-cli-mcp-client"]] * len(WAYS)
