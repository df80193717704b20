"""Hosts without a model: the command line of the Inspector, and `mcp-remote` before a client of the SDK."""

import json
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process
from mcp import Client, StdioServerParameters, stdio_client

from .places import Place
from .puppets import CALL_LIMIT_S, Failed


class Inspector:
    """The Inspector's command line, which is one process for each request."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self._process: Process | None = None

    async def list_tools(self) -> Sequence[str]:
        """Return the names of all tools."""
        printed = await self._run("tools/list")
        try:
            return [tool["name"] for tool in json.loads(printed)["tools"]]
        except (ValueError, KeyError):
            raise Failed(printed) from None

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; return the result as it was printed."""
        given = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
        return await self._run("tools/call", "--tool-name", tool, *given)

    def interrupt(self) -> None:
        """Send SIGINT to the request that is under way."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    async def end(self) -> None:
        """Nothing is left of the last request."""

    async def _run(self, *words: str) -> str:
        command = [*self._command, "--method", *words]
        async with await anyio.open_process(command, env=self._env, stdout=PIPE, stderr=PIPE) as process:
            self._process = process
            out: list[bytes] = []
            with anyio.move_on_after(CALL_LIMIT_S) as limit:
                async with anyio.create_task_group() as tasks:
                    for pipe in (process.stdout, process.stderr):
                        tasks.start_soon(_collect, pipe, out)
            if limit.cancelled_caught:
                process.kill()
                raise Failed(f"nothing came back within {CALL_LIMIT_S} s")
            await process.wait()
        return b"".join(out).decode()


async def _collect(pipe: Any, into: list[bytes]) -> None:
    into.extend([part async for part in pipe])


class Proxied:
    """A client of the SDK behind a proxy."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._call = anyio.CancelScope()

    async def list_tools(self) -> Sequence[str]:
        """Return the names of all tools, as the server lists them now."""
        return [tool.name for tool in (await self._client.list_tools(cache_mode="bypass")).tools]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; return its result, or its error."""
        with anyio.move_on_after(CALL_LIMIT_S) as self._call:
            try:
                return (await self._client.call_tool(tool, dict(arguments))).model_dump_json(by_alias=True)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        raise Failed(f"nothing came back within {CALL_LIMIT_S} s")

    def interrupt(self) -> None:
        """Cancel the call, as nobody presses a key there."""
        self._call.cancel()

    async def end(self) -> None:
        """It ends with its block."""


@asynccontextmanager
async def inspecting(place: Place, peers: Path) -> AsyncGenerator[Inspector]:
    """Open the Inspector's command line at the hub."""
    npm = peers / "npm-hosts"
    command = [str(npm / "node"), str(npm / "node_modules/.bin/inspector"), "--cli"]
    if place.url:
        command += [place.url, "--transport", "http", "--header", f"Authorization: Bearer {place.token}"]
    else:
        command += place.bridge
    yield Inspector(command, {**_environment(place, npm), "MCP_CATALOG_PATH": str(place.home / "catalog.json")})


@asynccontextmanager
async def proxied(place: Place, peers: Path) -> AsyncGenerator[Proxied]:
    """Open `mcp-remote` at the hub, with a client of the SDK before it."""
    npm = peers / "npm-hosts"
    headers = place.home / "headers.txt"
    headers.write_text(f"Authorization: Bearer {place.token}\n")
    script = str(npm / "node_modules/mcp-remote/dist/proxy.js")
    words = [script, place.url, "--allow-http", "--transport", "http-only", "--header-file", str(headers)]
    parameters = StdioServerParameters(command=str(npm / "node"), args=words, env=_environment(place, npm))
    with place.log.open("a") as log:
        async with Client(stdio_client(parameters, errlog=log)) as client:
            yield Proxied(client)


def _environment(place: Place, npm: Path) -> dict[str, str]:
    # A browser cannot be opened there, for a log-in that nobody has asked for.
    return {"HOME": str(place.home), "PATH": f"{npm}:/usr/bin:/bin", "LANG": "C.UTF-8", "BROWSER": "/bin/true"}
