"""Servers that answer with nonsense, over both transports, of both families of revisions."""

import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc

from hubbub.v1 import call_pb2, server_pb2
from tests.e2e.conftest import LIMIT_S, POLL_S, child
from tests.e2e.crowd import bad

from .chance import Chance
from .payloads import rpc_has_no_end
from .subject import PEER, Finding, Subject, Tally, drive, outcome, peer, subject

REVISIONS = ("2025-11-25", "2026-07-28")
WAITING_S = 3.0
"""How long a caller waits for people, who never answer here."""

SHAKES = 150
"""One in so many inputs is a connection anew whose handshake is nonsense."""

PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "echo", "arguments": {}},
    "tools/list": {},
    "prompts/list": {},
    "prompts/get": {"name": "p"},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "file:///x"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    "logging/setLevel": {"level": "info"},
    "ping": {},
}
QUICK = {
    "call_timeout_s": 2,
    "connect_timeout_s": 3,
    "answer_timeout_s": 2,
    "receiver_task_ttl_s": 2,
    "retries": -1,
    "backoff_s": [0.05],
    "backoff_max_s": 0.1,
    "max_in_flight": 4,
    "max_message_bytes": 300_000,
}


async def hostile(tally: Tally, seed: int, directory: Path) -> None:
    """Tries what servers may send; a server that behaves answers beside them all the time."""
    async with AsyncExitStack() as started:
        servers: dict[str, Any] = {"good": bad("good")}
        for revision in REVISIONS:
            url = await started.enter_async_context(_http_peer(revision))
            servers[f"stdio-{revision}"] = peer(revision, **QUICK)
            servers[f"http-{revision}"] = {"url": f"{url}/mcp", **QUICK, "protocol": revision}
            servers[f"shake-{revision}"] = {"url": f"{url}/shake", **QUICK, "retries": 1}
        names = [name for name in servers if name != "good" and not name.startswith("shake")]
        tried = await started.enter_async_context(subject(directory, servers, {}))
        await tried.hub.connected("good", *names)
        for revision in REVISIONS:
            await tried.hub.client.servers.disconnect(f"shake-{revision}")
        await tried.note_rest()
        await drive(tally, _Trial(tried, seed, names).one, width=12, halfway=tried.note_memory)
        for revision in REVISIONS:
            await tried.hub.client.servers.disconnect(f"shake-{revision}")
        await tried.hub.connected("good", *names)
        for name in names:
            await tried.hub.client.call_tool(name, "echo")
        await tried.judge(tally)


@asynccontextmanager
async def _http_peer(revision: str) -> AsyncIterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-S", str(PEER), "http", revision]
    async with child(command, env=os.environ | {"PORT": str(port)}, stdout=None):
        with anyio.fail_after(LIMIT_S):
            while True:
                try:
                    async with await anyio.connect_tcp("127.0.0.1", port):
                        break
                except OSError:
                    await anyio.sleep(POLL_S)
        yield f"http://127.0.0.1:{port}"


class _Trial:
    def __init__(self, tried: Subject, seed: int, names: list[str]) -> None:
        self._tried = tried
        self._seed = seed
        self._names = names

    async def one(self, number: int) -> str:
        """One request to a server, and whatever it sends back."""
        chance = Chance(self._seed, "hostile", number)
        if chance.one_in(SHAKES):
            return await self._shake(chance)
        if chance.one_in(20):
            with anyio.fail_after(LIMIT_S):
                return f"good: {len(await self._tried.hub.client.call_tool('good', 'echo', {'text': 'x'}))}"
        name, method = chance.of(self._names), chance.of(("tools/call", *PARAMS))
        params = PARAMS[method] | {"_meta": {"seed": f"{self._seed} {number}"}}
        spec = call_pb2.CallSpec(server=name, method=method, params=json.dumps(params).encode())
        spec.as_task = method == "tools/call" and chance.one_in(6)
        shown = f"{name} {method} as_task={spec.as_task} seed {params['_meta']['seed']!r}"
        try:
            await self._tried.channel.unary_unary("/hubbub.v1.CallService/CallMethod")(
                call_pb2.CallMethodRequest(spec=spec).SerializeToString(),
                metadata=self._tried.metadata,
                timeout=WAITING_S,
            )
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED and rpc_has_no_end(exc):
                return "left by its caller"
            return outcome(exc, shown)
        return "OK"

    async def _shake(self, chance: Chance) -> str:
        request = server_pb2.ConnectServerRequest(name=f"shake-{chance.of(REVISIONS)}").SerializeToString()
        for rpc in ("DisconnectServer", "ConnectServer"):
            try:
                await self._tried.channel.unary_unary(f"/hubbub.v1.ServerService/{rpc}")(
                    request, metadata=self._tried.metadata, timeout=LIMIT_S
                )
            except grpc.aio.AioRpcError as exc:
                if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise Finding(f"{rpc} has no end") from None
                return outcome(exc, rpc)
        return "shaken"
