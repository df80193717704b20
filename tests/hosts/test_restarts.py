"""MCP hosts that others wrote go on in their session, over HTTP, however often the hub ends and is started again."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
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
    environment = os.environ | {"TOKEN": place.hub.token}
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
