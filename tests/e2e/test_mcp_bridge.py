"""Hosts that start `hubbub mcp`: published clients of both generations, hubs that come late, restart and stay away."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from hubbub_bridge import bridge, uplink
from hubbub_bridge.bridge import serve
from hubbub_bridge.options import BridgeOptions
from hubbub_client.transport.discovery import HubLocation
from hubbub_local.stdio import read_lines

from .. import forks
from .conftest import BIN, LIMIT_S, POLL_S, alive, environment

HUBBUB = str(BIN / "hubbub")
RESTARTS, WAVE = 3, 40
# So often a hub is ended under load, with so many requests.

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}


@pytest.fixture
def plain(peer_scripts: Path) -> dict[str, Any]:
    """A server that returns what it is asked to return, and asks."""
    return {"plain": {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "plain_server.py")]}}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where the hub of a test has its data, once there is one."""
    return tmp_path / "data"


def message_of(method: str, id_: Any, params: Any) -> bytes:
    """A request, or without an id a notification, as a line."""
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id_ is None else {"id": id_})
    return json.dumps(message).encode() + b"\n"


class Host:
    """A host that says what it is asked to say."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def say(self, method: str, id_: Any = None, **params: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(message_of(method, id_, params))

    async def next(self) -> Any:
        """The next line."""
        with anyio.fail_after(LIMIT_S):
            return json.loads(await self._lines.receive_until(b"\n", 1 << 20))

    async def response(self, id_: Any) -> Any:
        """The response to a request, after what comes before it."""
        while (line := await self.next()).get("id") != id_ or "method" in line:
            pass
        return line

    async def shake(self) -> Any:
        """Has its handshake; what the hub says of itself."""
        await self.say("initialize", 0, **HELLO)
        about = await self.response(0)
        await self.say("notifications/initialized")
        return about["result"]

    async def leave(self) -> tuple[int, bytes]:
        """Closes its end; the exit status of the bridge, and what it has said after all that was read."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.end()

    async def end(self) -> tuple[int, bytes]:
        rest = self._lines.buffer
        assert self.process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            async for chunk in self.process.stdout:
                rest += chunk
            return await self.process.wait(), rest


@asynccontextmanager
async def hosted(data_dir: Path, *words: str, env: dict[str, str] | None = None) -> AsyncIterator[Host]:
    """A host that has started the bridge."""
    command = [HUBBUB, "--data-dir", str(data_dir), "mcp", *(words or ("--server", "plain"))]
    process = await forks.start(command, stderr=None, env=environment() | (env or {}))
    async with process:
        try:
            yield Host(process)
        finally:
            if process.returncode is None:
                process.kill()


class Piped(Host):
    """A host in the process of its bridge."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin = stdin
        self.lines = read_lines(stdout, 1 << 20)

    async def say(self, method: str, id_: Any = None, **params: Any) -> None:
        os.write(self._stdin, message_of(method, id_, params))

    async def next(self) -> Any:
        with anyio.fail_after(LIMIT_S):
            line = await anext(self.lines)
        assert isinstance(line, bytes)
        return json.loads(line)


@asynccontextmanager
async def piped(data_dir: Path) -> AsyncIterator[Piped]:
    """As `hosted`, in the process of the test."""
    (to_bridge, said), (told, from_bridge) = ends = os.pipe(), os.pipe()
    endpoint = BridgeOptions(where=HubLocation(data_dir=str(data_dir)), version="0", server="plain")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, endpoint, to_bridge, from_bridge)
        host = Piped(said, told)
        async with aclosing(host.lines):
            yield host
        os.close(said)
    for descriptor in {*ends[0], *ends[1]} - {said}:
        os.close(descriptor)


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_sdk_uses_a_server_in_both_kinds_of_revisions(
    start_hub: Any, plain: Any, mode: Any, revision: str
) -> None:
    hub = await start_hub(plain)
    await hub.connected("plain")
    command = StdioServerParameters(command=HUBBUB, args=["--data-dir", str(hub.data_dir), "mcp", "--server", "plain"])
    async with Client(stdio_client(command), mode=mode) as client:
        assert client.protocol_version == revision
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "echo"]
        said = await client.call_tool("echo", {"text": "hi"})
        assert said.content[0].text == "hi"


async def test_a_host_that_starts_before_the_hub_is_served_once_there_is_one(
    start_hub: Any, plain: Any, data_dir: Path
) -> None:
    async with hosted(data_dir) as host:
        about = await host.shake()
        assert about["serverInfo"]["name"] == "hubbub"
        await host.say("tools/call", 1, name="echo", arguments={"text": "hi"})
        hub = await start_hub(plain)
        assert hub.data_dir == data_dir
        assert (await host.response(1))["result"]["content"][0]["text"] == "hi"


async def test_a_call_that_waits_for_a_person_outlives_its_hub_and_its_host_notices_nothing(
    start_hub: Any, peer_scripts: Path
) -> None:
    servers = {"plain": {"command": sys.executable, "args": [str(peer_scripts / "mrtr_server.py"), "stdio"]}}
    first = await start_hub(servers, connected=True)
    async with hosted(first.data_dir) as host:
        await host.shake()
        await host.say("tools/call", 1, name="greet", arguments={})
        (asked,) = await first.asked()
        await first.kill()
        second = await start_hub(servers)
        await second.connected("plain")
        await second.answer(asked, "--accept", '{"name": "Ada"}')
        assert "Ada" in (await host.response(1))["result"]["content"][0]["text"]
        assert len(await second.client.calls.list()) == 1


async def test_a_call_that_a_server_works_on_is_not_made_twice_when_the_hub_dies(
    start_hub: Any, peer_scripts: Path, tmp_path: Path
) -> None:
    journal, go = tmp_path / "journal", tmp_path / "go"
    env = {"JOURNAL": str(journal), "GO": str(go)}
    servers = {"plain": {"command": sys.executable, "args": [str(peer_scripts / "working_server.py")], "env": env}}
    first = await start_hub(servers, connected=True)
    async with hosted(first.data_dir) as host:
        await host.shake()
        await host.say("tools/call", 1, name="work", arguments={"text": "once"})
        with anyio.fail_after(LIMIT_S):
            while not journal.exists():
                await anyio.sleep(POLL_S)
        await first.kill()
        go.touch()
        second = await start_hub(servers)
        await second.connected("plain")
        assert (await host.response(1))["error"]["data"]["reason"] == "HUB_RESTARTED"
        await host.say("tools/call", 2, name="work", arguments={"text": "again"})
        assert (await host.response(2))["result"]["content"][0]["text"] == "again"
    assert [json.loads(line)["answer"] for line in journal.read_text().splitlines()] == ["once", "again"]


@pytest.mark.parametrize("end", ["terminate", "kill"])
async def test_under_load_each_request_has_one_response_and_no_tool_is_called_twice_however_hubs_end(
    start_hub: Any, peer_scripts: Path, tmp_path: Path, end: str
) -> None:
    journal, go = tmp_path / "journal", tmp_path / "go"
    go.touch()
    env = {"JOURNAL": str(journal), "GO": str(go)}
    server = {"command": sys.executable, "args": [str(peer_scripts / "working_server.py")], "env": env}
    servers = {"plain": {**server, "max_in_flight": 16}}
    hub = await start_hub(servers, connected=True)
    async with hosted(hub.data_dir) as host:
        await host.shake()
        answered: dict[int, str] = {}
        for wave in range(RESTARTS):
            for number in range(wave * WAVE, (wave + 1) * WAVE):
                await host.say("tools/call", number + 1, name="work", arguments={"text": str(number + 1)})
            first = await host.next()  # the others are anywhere between the host and the server
            await getattr(hub, end)()
            hub = await start_hub(servers)
            while True:
                assert first["id"] not in answered
                answered[first["id"]] = first.get("error", {}).get("data", {}).get("reason", "")
                if len(answered) == (wave + 1) * WAVE:
                    break
                first = await host.next()
    made = [json.loads(line)["answer"] for line in journal.read_text().splitlines()]
    assert len(made) == len(set(made))
    good = {str(number) for number, reason in answered.items() if not reason}
    assert good <= set(made)
    wrong = {reason for reason in answered.values() if reason}
    assert wrong <= ({"HUB_RESTARTED"} if end == "kill" else set())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_bridge_well(data_dir: Path, number: signal.Signals) -> None:
    async with hosted(data_dir) as host:
        await host.shake()
        host.process.send_signal(number)
        assert await host.end() == (0, b"")


async def test_when_the_hub_stays_away_a_request_says_what_to_do_and_the_bridge_goes_on_looking(
    start_hub: Any, plain: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink, "GIVE_UP_AFTER_S", 0.1)
    monkeypatch.setattr(uplink, "CONNECT_S", 0.1)
    monkeypatch.setattr(bridge, "HUB_WAIT_S", 0.1)
    async with piped(data_dir) as host:
        await host.shake()
        await host.say("tools/list", 1)
        error = (await host.response(1))["error"]
        assert error["code"] == -32000
        assert "`hubbub up -d`" in error["message"]
        assert str(data_dir) in error["message"]
        hub = await start_hub(plain)
        assert (await host.next())["method"] == "notifications/tools/list_changed"
        await hub.connected("plain")
        await host.say("tools/list", 2)
        assert len((await host.response(2))["result"]["tools"]) == 2


async def test_a_wrong_token_is_named_in_the_error_at_once(start_hub: Any, plain: Any) -> None:
    hub = await start_hub(plain)
    async with hosted(hub.data_dir, env={"HUBBUB_TOKEN": "wrong"}) as host:
        await host.shake()
        await host.say("tools/list", 1)
        error = (await host.response(1))["error"]
        assert error["code"] == -32000
        assert "HUBBUB_TOKEN" in error["message"]


async def test_a_server_that_the_hub_does_not_have_is_named_in_the_error(start_hub: Any, plain: Any) -> None:
    hub = await start_hub(plain)
    async with hosted(hub.data_dir, "--server", "missing") as host:
        await host.shake()
        await host.say("tools/list", 1)
        assert "missing" in (await host.response(1))["error"]["message"]


async def test_the_bridge_starts_a_hub_if_it_is_told_to_and_leaves_it_running(data_dir: Path) -> None:
    async with hosted(data_dir, "--server", "missing", "--start") as host:
        await host.shake()
        await host.say("tools/list", 1)
        assert "missing" in (await host.response(1))["error"]["message"]  # which only a hub can say
        await host.leave()
    process = int((data_dir / "hubbub.db.lock").read_text())
    os.kill(process, signal.SIGTERM)
    with anyio.fail_after(LIMIT_S):
        while alive(process):
            await anyio.sleep(POLL_S)


async def test_check_says_what_a_host_would_see(start_hub: Any, plain: Any) -> None:
    hub = await start_hub(plain)
    await hub.connected("plain")
    ran = await hub.hubbub("mcp", "check", "--server", "plain")
    assert [(each["revision"], each["counts"], each["failure"]) for each in ran.lines] == [
        ("2025-11-25", {"tools": 2}, ""),
        ("2026-07-28", {"tools": 2}, ""),
    ]
    asked = {"form": "both", "url": "both", "sampling": "host-first", "roots": "host-first", "approval": "inbox"}
    # Those of `default`.
    assert ran.lines[0]["questions"] == asked
    merged = await hub.hubbub("mcp", "check")
    assert merged.lines[0]["questions"]["form"] == "both"
    assert merged.lines[0]["counts"]["tools"] == 3  # and hubbub_result
    refused = await hub.hubbub("mcp", "check", "--server", "missing")
    assert (refused.status, refused.error["reason"]) == (1, "SERVER_NOT_FOUND")
