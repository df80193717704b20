"""Starts the hub with the demo's configuration, says of each server how it is, and what to type next.

Arguments go to `hubbubd`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import aclosing
from pathlib import Path

import hubbub_client
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.records import Server
from hubbub_client.watch_events import Upsert
from hubbub_frontend.wording import why
from hubbubd.legible import clean

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

ENDPOINT = {"HUBBUBD_MCP_LISTEN": "127.0.0.1:7881"}
"""Where hosts find the demo, unless the environment says otherwise."""

NEXT = """
Hubbub serves its API on {address}. In a second terminal, in this folder, type

    {client} call demo order_lunch

and answer the form there, or see it and answer it in a browser or from a third terminal:

    {client} web
    {client} inbox watch

Let an MCP host use all of it, for example Claude Code:

    claude mcp add hubbub -- {host}

Ctrl-C here ends the hub and all its servers.
"""


async def main() -> int:
    """Runs the hub until it ends; returns its exit code."""
    command = [BIN / "hubbubd", "--config", "docs/demo/hubbub.toml", "--data-dir", ".hubbub", *sys.argv[1:]]
    # In a session of its own, so that Ctrl-C reaches the hub once: from here.
    hub = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, start_new_session=True, env=ENDPOINT | os.environ
    )
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, _end, hub)
    assert hub.stdout is not None
    telling: asyncio.Task[None] | None = None
    async for line in hub.stdout:
        text = line.decode(errors="replace")
        _say(text, end="")
        ready = _ready(text)
        if ready is not None:
            client = f"{os.path.relpath(BIN, ROOT)}/hubbub --data-dir {os.path.relpath(ready['data_dir'], ROOT)}"
            host = f"{BIN / 'hubbub'} --data-dir {ready['data_dir']} mcp"  # absolute: a host starts it from elsewhere
            _say(NEXT.format(address=ready["grpc"], client=client, host=host))
            if "mcp" in ready:
                _say(f"Hosts that speak HTTP find it at {ready['mcp']}; they need a token.")
            telling = asyncio.create_task(_tell(ready["data_dir"]))
    status = await hub.wait()
    if telling is not None:
        telling.cancel()
        await asyncio.wait([telling])
    return status


def _end(hub: asyncio.subprocess.Process) -> None:
    if hub.returncode is None:
        hub.terminate()


async def _tell(data_dir: str) -> None:
    """A line for each server, once when it is connected, and once when it fails before that."""
    began, connected, failed = time.monotonic(), set[str](), set[str]()
    with contextlib.suppress(HubbubError, ExceptionGroup):  # the hub ends, or lets nobody in: it says so itself
        async with (
            hubbub_client.connect(data_dir=data_dir) as hub,
            asyncio.TaskGroup() as group,
            aclosing(hub.servers.watch()) as events,
        ):
            async for event in events:
                match event:
                    case Upsert(record=server) if server.name in connected:
                        pass
                    case Upsert(record=server) if server.state == "connected":
                        connected.add(server.name)
                        group.create_task(_connected(hub, server, time.monotonic() - began))
                    case Upsert(record=server) if server.error and server.name not in failed:
                        failed.add(server.name)
                        _say(f"{server.name}: not connected: {why(server.error)}")
                    case _:
                        pass


async def _connected(hub: Hub, server: Server, took_s: float) -> None:
    _say(f"{server.name}: connected ({await _about(hub, server)}, {took_s:.1f} s)")


async def _about(hub: Hub, server: Server) -> str:
    """How a server is reached, and how many tools it has, as soon as the hub has their list."""
    if "tools" not in (server.capabilities or {}):
        return f"{server.transport}, no tools"
    async with aclosing(hub.catalog.watch(server=server.name, kinds=["tool"])) as events:
        async for event in events:
            match event:
                case Upsert(record=tools) if tools.freshness in ("fresh", "stale", "empty"):
                    return f"{server.transport}, {tools.count} tool{'' if tools.count == 1 else 's'}"
                case Upsert(record=tools) if tools.error:
                    break
                case _:
                    pass
    return f"{server.transport}"


def _say(text: str, end: str = "\n") -> None:
    print(clean(text), end=end, flush=True)


def _ready(line: str) -> dict[str, str] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("event") == "ready" else None


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
