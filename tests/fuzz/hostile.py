"""Servers that answer with nonsense, over both transports, of both families of revisions."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
from tests.e2e.conftest import LIMIT_S
from tests.e2e.crowd import bad

from hubbub.v1 import call_pb2, server_pb2

from .chance import Chance
from .payloads import rpc_has_no_end
from .subject import PEER, Finding, Subject, Tally, drive, outcome, peer, peer_over_http, subject

REVISIONS = ("2025-11-25", "2026-07-28")
NAMES = [f"{how}-{revision}" for revision in REVISIONS for how in ("stdio", "http")]
WAITING_S = 3.0
"""How long a caller waits for people, who never answer here."""

SHAKES = 150
"""One in so many inputs is a reconnection whose handshake is nonsense."""

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
    async with trial(directory, seed) as tried:
        client = tried.subject.hub.client
        for revision in REVISIONS:
            await client.servers.disconnect(f"shake-{revision}")
        await tried.subject.note_rest()
        await drive(tally, tried.one, width=12, halfway=tried.subject.note_memory)
        for revision in REVISIONS:
            await client.servers.disconnect(f"shake-{revision}")
        await tried.subject.hub.connected("good", *NAMES)
        for name in NAMES:
            await client.call_tool(name, "echo")
        for task in await client.tasks.list(role="receiver"):
            if task.status in ("working", "input_required"):  # each lives for minutes
                await client.tasks.cancel(task.id)
        await tried.subject.judge(tally)


@asynccontextmanager
async def trial(directory: Path, seed: int) -> AsyncIterator["Trial"]:
    """A hub between servers of all kinds."""
    async with AsyncExitStack() as started:
        servers: dict[str, Any] = {"good": bad("good")}
        for revision in REVISIONS:
            url = await started.enter_async_context(peer_over_http([str(PEER), "http", revision]))
            servers[f"stdio-{revision}"] = peer(revision, **QUICK)
            servers[f"http-{revision}"] = {"url": f"{url}/mcp", **QUICK, "protocol": revision}
            servers[f"shake-{revision}"] = {"url": f"{url}/shake", **QUICK, "retries": 1}
        tried = await started.enter_async_context(subject(directory, servers, {}))
        await tried.hub.connected("good", *NAMES)
        yield Trial(tried, seed)


class Trial:
    """What is asked of the servers, and by it of the hub."""

    revisions = REVISIONS

    def __init__(self, tried: Subject, seed: int) -> None:
        self.subject = tried
        self._seed = seed

    async def one(self, number: int) -> str:
        """One request to a server, and whatever it sends back."""
        chance = Chance(self._seed, "hostile", number)
        if chance.one_in(SHAKES):
            return await self._shake(chance)
        if chance.one_in(20):
            with anyio.fail_after(LIMIT_S):
                return f"good: {(await self.subject.hub.client.call_tool('good', 'echo', {'text': 'x'})).text}"
        return await self.call(chance.of(NAMES), number)

    async def call(self, name: str, number: int) -> str:
        """Sends a request whose answer is nonsense, made from the number."""
        chance = Chance(self._seed, "call", number)
        method = chance.of(("tools/call", *PARAMS))
        params = PARAMS[method] | {"_meta": {"seed": f"{self._seed} {number}"}}
        spec = call_pb2.CallSpec(server=name, method=method, params=json.dumps(params).encode())
        spec.as_task = method == "tools/call" and chance.one_in(6)
        shown = f"{name} {method} as_task={spec.as_task} seed {params['_meta']['seed']!r}"
        try:
            await self.subject.channel.unary_unary("/hubbub.v1.CallService/CallMethod")(
                call_pb2.CallMethodRequest(spec=spec).SerializeToString(),
                metadata=self.subject.metadata,
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
                await self.subject.channel.unary_unary(f"/hubbub.v1.ServerService/{rpc}")(
                    request, metadata=self.subject.metadata, timeout=LIMIT_S
                )
            except grpc.aio.AioRpcError as exc:
                if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise Finding(f"{rpc} has no end") from None
                return outcome(exc, rpc)
        return "shaken"
