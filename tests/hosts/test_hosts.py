"""MCP hosts that others wrote, at the hub's endpoint: each uses all that a server offers.

The scripts beside this module are the hosts; each prints what came back.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from ..e2e.conftest import RunningHub, start_shared_hub

__all__ = ["start_shared_hub"]

HERE = Path(__file__).parent
LIMIT_S = 60
RESOURCE = "test://static-text"

USED = {
    "echo": "e" * 1024,
    "failed": "This tool intentionally returns an error for testing",
    "asked": 'User response: action=accept, content={"username": "ada", "email": "ada@example.org"}',
    "generated": "LLM response: Paris",
    "roots": "Roots: file:///srv",
    "progress": [0, 50, 100],
    "resource": "This is the content of the static text resource.",
    "prompt": "Prompt with arguments: arg1='1', arg2='2'",
}
"""What a host gets of the server, whatever is in between."""


@dataclass(frozen=True)
class Place:
    """An endpoint with its tools; `prefix` is what it puts before the names of the server that is used."""

    url: str
    token: str
    prefix: str
    resource: str
    tools: Sequence[str]

    async def host(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Any:
        """What a host reports that is started so, and that answers what it is asked."""
        command = [*map(str, words[:2]), self.url, self.prefix, self.resource, *map(str, words[2:])]
        return json.loads(await self.run(command, env))

    async def run(self, command: Sequence[str], env: Mapping[str, str] | None = None, status: int = 0) -> str:
        """What a command prints, which must end with this status."""
        with anyio.fail_after(LIMIT_S):
            environment = os.environ | {"TOKEN": self.token, **(env or {})}
            ended = await anyio.run_process(command, check=False, stdout=PIPE, stderr=PIPE, env=environment)
        assert ended.returncode == status, ended.stderr.decode()
        return ended.stdout.decode()

    def used(self, revision: str) -> dict[str, Any]:
        """What every host reports that negotiated this revision."""
        return {"revision": revision, "tools": self.tools, **USED}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, shared_http_peer: Any, peer_scripts: Path) -> RunningHub:
    """A hub that knows one server twice: as one of each revision."""
    url = f"{shared_http_peer([sys.executable, str(peer_scripts / 'conformance_server.py'), 'http']).url}/mcp"
    servers = {
        "before": {"url": url, "protocol": "2025-11-25", "roots": "ask"},
        "now": {"url": url, "protocol": "2026-07-28", "roots": "ask"},
    }
    hub = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    for name in servers:
        await hub.client.catalog.refresh(name)
    return hub


@pytest.fixture(params=["all", "one"])
async def place(request: pytest.FixtureRequest, hub: RunningHub) -> Place:
    """The endpoint for all servers, where the one of 2025-11-25 is used; and the endpoint for that of 2026-07-28."""
    if request.param == "one":
        tools = [tool.name for tool in await hub.client.catalog.tools("now")]
        return Place(f"{hub.ready['mcp']}/s/now", hub.token, "", RESOURCE, tools)
    shown = [f"{name}__{tool.name}" for name in ("before", "now") for tool in await hub.client.catalog.tools(name)]
    return Place(hub.ready["mcp"], hub.token, "before__", f"hubbub://s/before/{RESOURCE}", ["hubbub_result", *shown])


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_second_generation_of_the_python_sdk(place: Place, mode: str, revision: str) -> None:
    assert await place.host(sys.executable, HERE / "sdk.py", mode) == place.used(revision)


async def test_the_first_generation_of_the_python_sdk(place: Place, mcp1_python: str) -> None:
    assert await place.host(mcp1_python, HERE / "sdk1.py") == place.used("2025-11-25")


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_client_of_fastmcp(place: Place, hosts_python: str, mode: str, revision: str) -> None:
    assert await place.host(hosts_python, HERE / "fast.py", mode) == place.used(revision)


async def test_an_agent_of_pydantic_ai(place: Place, hosts_python: str) -> None:
    told = json.loads(await place.run([hosts_python, str(HERE / "agent.py"), place.url, place.prefix]))
    assert told == {
        "ended": "done",
        "tools": place.tools,
        "echo": USED["echo"],
        "failed": USED["failed"],
    }


@pytest.mark.parametrize(
    ("which", "revision"), [("v1", "2025-11-25"), ("v2", "2025-11-25"), ("2026-07-28", "2026-07-28")]
)
async def test_the_clients_of_npm(place: Place, npm_hosts: Path, which: str, revision: str) -> None:
    env = {"NODE_PATH": str(npm_hosts / "node_modules")}
    assert await place.host(npm_hosts / "node", HERE / "npm.cjs", which, env=env) == place.used(revision)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_command_line_of_the_inspector(place: Place, npm_hosts: Path, tmp_path: Path, era: str) -> None:
    async def inspect(*words: str, status: int = 0) -> Any:
        program = [str(npm_hosts / "node"), str(npm_hosts / "node_modules/.bin/inspector"), "--cli", place.url]
        options = ["--transport", "http", "--protocol-era", era, "--header", f"Authorization: Bearer {place.token}"]
        env = {"MCP_CATALOG_PATH": str(tmp_path / "catalog.json")}
        return json.loads(await place.run([*program, *options, "--method", *words], env, status))

    tools = (await inspect("tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == place.tools
    echoed = await inspect("tools/call", "--tool-name", f"{place.prefix}echo", "--tool-arg", f"text={USED['echo']}")
    assert echoed["content"] == [{"type": "text", "text": USED["echo"]}]
    failed = await inspect("tools/call", "--tool-name", f"{place.prefix}test_error_handling", status=5)
    assert (failed["isError"], failed["content"][0]["text"]) == (True, USED["failed"])
    assert (await inspect("resources/read", "--uri", place.resource))["contents"][0]["text"] == USED["resource"]
    prompt = f"{place.prefix}test_prompt_with_arguments"
    got = await inspect("prompts/get", "--prompt-name", prompt, "--prompt-args", "arg1=1", "arg2=2")
    assert got["messages"][0]["content"]["text"] == USED["prompt"]


ASKED = 'User response: action=accept, content={"username": "ada", "email": "ada@example.org"}'


async def test_tasks_of_the_first_generation_of_the_python_sdk(place: Place, mcp1_python: str) -> None:
    told = await place.host(mcp1_python, HERE / "sdk1_tasks.py")
    assert told == {"asked": ASKED, "status": "completed", "listed": True}


async def test_tasks_of_the_client_of_fastmcp(place: Place, hosts_python: str) -> None:
    told = await place.host(hosts_python, HERE / "fast_tasks.py")
    assert told == {"asked": ASKED, "status": "completed"}
