"""Hosts of the soak that start `hubbub mcp`: some come and go, two stay and are looked at as the hub is."""

import json
import random
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from processes import HubProcess, end_after
from soak_hosts import ABLE, ASKS, NEW, OLD, Account, call_params, envelope, handshake, request, think

PAUSE_S, CALL_PAUSE_S = 12.0, 1.0
"""Between two hosts that come, which costs a process each; between two calls of one that stays."""
HUBBUB = Path(sys.executable).parent / "hubbub"
LONGEST_LINE = 1 << 20
NAME = {"action": "accept", "content": {"name": "host"}}


class Bridged:
    """A host of one revision that has started the bridge. `account` hears what it was asked."""

    def __init__(self, process: Process, revision: str, account: Account) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._revision = revision
        self._account = account
        self._last = 0

    async def begin(self) -> None:
        """Has its handshake, if its revision has one."""
        if self._revision == OLD:
            await self.response("initialize", handshake(ABLE))
            await self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request; what is asked meanwhile is answered."""
        if self._revision == NEW:
            params = {**params, "_meta": envelope(ABLE)}
        result = (await self.response(method, params))["result"]
        while result.get("resultType") == "input_required":
            await self._think()
            answers = dict.fromkeys(result["inputRequests"], NAME)
            again = {**params, "requestState": result["requestState"], "inputResponses": answers}
            result = (await self.response(method, again))["result"]
        return result

    async def response(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The response to one request."""
        self._last += 1
        await self._say(request(self._last, method, params))
        while True:
            line = json.loads(await self._lines.receive_until(b"\n", LONGEST_LINE))
            if line.get("method") == "elicitation/create":
                await self._think()
                await self._say({"jsonrpc": "2.0", "id": line["id"], "result": NAME})
            elif "method" not in line and line.get("id") == self._last:
                return line

    async def leave(self) -> int:
        """Closes its end; the exit status of the bridge."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.process.wait()

    async def _think(self) -> None:
        await think()
        self._account.done["questions shown in hosts"] += 1

    async def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps(message).encode() + b"\n")


class OverBridges:
    """All hosts behind bridges."""

    def __init__(self, hub: HubProcess, account: Account) -> None:
        self._hub = hub
        self._account = account
        self._staying: list[Bridged] = []

    @property
    def staying(self) -> Sequence[int]:
        """The processes of the bridges that stay."""
        return [each.process.pid for each in self._staying]

    @asynccontextmanager
    async def stay(self) -> AsyncGenerator[None]:
        """Has a bridge of each revision for as long as the block."""
        async with self._bridge(OLD) as old, self._bridge(NEW) as new:
            self._staying = [old, new]
            yield
            for each in self._staying:
                status = await each.leave()
                self._account.check("bridges that stayed", status == 0, status)

    def start(self, tasks: anyio.abc.TaskGroup, pace: float) -> None:
        """Sets them to work; `pace` is how many times as long the pauses are."""
        tasks.start_soon(self._account.repeat_visit, "bridges that came and went", PAUSE_S * pace, self._visit)
        for host in self._staying:
            tasks.start_soon(self._work, host, CALL_PAUSE_S * pace)

    @asynccontextmanager
    async def _bridge(self, revision: str) -> AsyncGenerator[Bridged]:
        """A host of this revision with a bridge, which ends with the block."""
        process = await anyio.open_process(
            [HUBBUB, "--data-dir", self._hub.data_dir, "mcp"], stdin=subprocess.PIPE, stderr=None
        )
        async with end_after(process):
            host = Bridged(process, revision, self._account)
            await host.begin()
            yield host

    async def _work(self, host: Bridged, pause_s: float) -> None:
        """Calls for ever, and now and then a tool that asks. A cancelled wait must not break a line: it is shielded."""
        while True:
            await anyio.sleep(random.uniform(0, 2 * pause_s))
            server = random.choice(list(ASKS))
            params = (
                call_params(server, 1) if random.random() < 0.1 else {"name": "echo", "arguments": {"text": "x" * 100}}
            )
            with anyio.CancelScope(shield=True):
                await self._call(host, {**params, "name": f"{server}__{params['name']}"})

    async def _call(self, host: Bridged, params: dict[str, Any]) -> None:
        response = await host.result("tools/call", params)
        self._account.check("calls over bridges that stay", not response.get("isError"), response)

    async def _visit(self) -> None:
        """Comes, calls, is asked, and goes; one in three is killed while it is asked."""
        server, killed = random.choice(list(ASKS)), random.random() < 1 / 3
        params = {**call_params(server, 1), "name": f"{server}__{ASKS[server]}"}
        async with self._bridge(random.choice([OLD, NEW])) as host:
            await host.result("tools/list", {})
            if killed:
                with anyio.move_on_after(random.uniform(0, 1)):
                    await host.result("tools/call", params)
                host.process.kill()
                await host.process.wait()
                self._account.done["bridges that were killed"] += 1
                return
            response = await host.result("tools/call", params)
            status = await host.leave()
            well = status == 0 and not response.get("isError")
            self._account.check("bridges that came and went", well, (status, response))
