"""Requests of every RPC, over gRPC and over Connect."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import anyio
import grpc
import httpx2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToJson, SerializeToJsonError
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import admin_pb2
from hubbubd.rpc.listeners.grpc_server import MAX_METADATA, SERVICES
from hubbubd.rpc.messages import json_codec

from .chance import Chance
from .messages import Maker, Memory
from .subject import Finding, Subject, Tally, drive, left_in_time, outcome, peer, subject

METHODS: list[MethodDescriptor] = [method for service in SERVICES.values() for method in service.methods]
UNARY = [method for method in METHODS if not method.server_streaming]
HELD_S = 8.0
"""How long a request may be held, by a server that is being connected for example; then its caller goes away."""

PATIENCE_S = 45.0
"""How long any other request may take; a machine that does other things too is slow."""

GLIMPSE_S = 0.05
"""How long a stream is read."""

HELD = {"CallMethod", "RefreshCatalog", "ConnectServer", "DisconnectServer", "CompactStore"}
"""What may take as long as a server, or the disk, takes."""

KINDS = ("grpc", "grpc+proto", "grpc-web+proto", "grpc-web", "connect+json", "connect+proto", "x", "JSON")
METADATA = ("authorization", "hubbub-as", "hubbub-as-bin", "grpc-timeout-x", "x-forwarded-for", "forwarded")


async def over_grpc(tally: Tally, seed: int, directory: Path) -> None:
    """Tries every RPC with any fields."""
    quick = {"call_timeout_s": 1, "connect_timeout_s": 5, "answer_timeout_s": 5, "receiver_task_ttl_s": 5}
    servers = {
        "toy": peer("2025-11-25", **quick),
        "asker": peer("2026-07-28", **quick),
        "away": {"url": "http://127.0.0.1:9/mcp", "retries": 0, **quick},
    }
    async with subject(directory, servers, {"connect_listen": "127.0.0.1:0", "allow_hosts": ["127.0.0.1"]}) as tried:
        await tried.hub.connected("toy", "asker")
        await tried.note_rest()
        async with httpx2.AsyncClient(base_url=tried.hub.ready["connect"], timeout=PATIENCE_S) as http:
            trial = _Trial(tried, http, seed)
            await drive(tally, trial.one, width=8, halfway=tried.note_memory)
        for server in await tried.hub.client.servers.list():
            if server.name not in servers:
                await tried.hub.client.servers.remove(server.name)
        await tried.hub.client.servers.connect("toy")
        await tried.hub.connected("toy")
        await tried.hub.client.call_tool("toy", "echo", {"text": "x"})
        await tried.judge(tally)


def _refused_by_grpc(error: grpc.aio.AioRpcError, metadata: Any) -> bool:
    """Whether metadata past the bound of the connection was refused before the hub could say so in its own words."""
    sent = sum(len(name) + len(value) for name, value in metadata)
    return (
        error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        and sent > MAX_METADATA
        and (error.details() or "").startswith("received metadata size exceeds")
    )


class _Trial:
    def __init__(self, tried: Subject, http: httpx2.AsyncClient, seed: int) -> None:
        self._tried = tried
        self._http = http
        self._seed = seed
        self._memory = Memory()

    async def one(self, number: int) -> str:
        """One request."""
        chance = Chance(self._seed, "grpc", number)
        if chance.one_in(8):
            return await self._connect(chance)
        method = chance.of(METHODS)
        raw = Maker(chance, self._memory).request(method.input_type)
        metadata = self._tried.metadata
        if chance.one_in(10):
            name, text = chance.of(METADATA), chance.text()
            # gRPC itself sends nothing but bytes under such a name, and nothing but printable text under others.
            value = text.encode(errors="replace") if name.endswith("-bin") else _printable(text)
            metadata = (*metadata[chance.upto(1) :], (name, value))
        shown = f"{method.name} {raw.hex()} {metadata[1:]}"
        try:
            return await (self._stream if method.server_streaming else self._unary)(method, raw, metadata)
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED and "eadline" in (exc.details() or ""):
                if method.server_streaming or method.name in HELD:
                    return f"{method.name} left by its caller"
                raise Finding(f"no response within {PATIENCE_S} s to {shown}") from None
            if method.server_streaming and exc.details() == "Internal error from Core":
                return f"{method.name} left by its caller"  # so gRPC's client calls a deadline in the middle of a write
            if _refused_by_grpc(exc, metadata):
                return "RESOURCE_EXHAUSTED by gRPC itself"
            return outcome(exc, shown)

    async def _unary(self, method: MethodDescriptor, raw: bytes, metadata: Any) -> str:
        call = self._tried.channel.unary_unary(_path(method))
        response = GetMessageClass(method.output_type).FromString(
            await call(raw, metadata=metadata, timeout=_limit_s(method))
        )
        self._memory.note(response)
        if isinstance(response, admin_pb2.CreateTokenResponse):
            self._memory.note(response.token)
        return "OK"

    async def _stream(self, method: MethodDescriptor, raw: bytes, metadata: Any) -> str:
        async def requests() -> Any:
            yield raw
            await anyio.sleep(GLIMPSE_S / 2)

        if method.client_streaming:
            call = self._tried.channel.stream_stream(_path(method))(requests(), metadata=metadata, timeout=GLIMPSE_S)
        else:
            call = self._tried.channel.unary_stream(_path(method))(raw, metadata=metadata, timeout=GLIMPSE_S)
        begun_at = anyio.current_time()
        try:
            async for response in call:
                self._memory.note(GetMessageClass(method.output_type).FromString(response))
        except asyncio.CancelledError:
            return await left_in_time(begun_at, GLIMPSE_S)
        return "OK"

    async def _connect(self, chance: Chance) -> str:
        method = chance.of(UNARY)
        raw, kind = Maker(chance, self._memory).request(method.input_type), "proto"
        if chance.one_in(2):
            raw, kind = _as_json(method, raw, chance), "json"
        headers = {"authorization": self._tried.metadata[0][1], "content-type": f"application/{kind}"}
        if chance.one_in(10):
            headers[chance.of((*METADATA, "content-type", "content-encoding"))] = _printable(chance.text())
        if chance.one_in(20):
            headers["content-type"] = f"application/{chance.of(KINDS)}"
        shown = f"Connect {method.name} {kind} {base64.b64encode(raw).decode()} {headers.keys()}"
        try:
            response = await self._http.post(_path(method), content=raw, headers=headers, timeout=_limit_s(method))
        except httpx2.TimeoutException:
            if method.name in HELD:
                return f"{method.name} left by its caller"
            raise Finding(f"no response within {PATIENCE_S} s to {shown}") from None
        if response.status_code == 200:
            return "Connect OK"
        if response.status_code == 415:
            return f"Connect HTTP {response.status_code}"
        try:
            code = json.loads(response.content)["code"]
        except (ValueError, KeyError, TypeError):
            code = f"HTTP {response.status_code} {response.content[:40]!r}"
        if code == "unimplemented" and "content-encoding" in headers:
            return "Connect unknown compression"
        if code in ("internal", "unimplemented") or (response.status_code == 500 and code != "unknown"):
            raise Finding(f"{response.status_code} {response.content[:300]!r} for {shown}")
        return f"Connect {code}"


def _as_json(method: MethodDescriptor, raw: bytes, chance: Chance) -> bytes:
    try:
        value = _plain(GetMessageClass(method.input_type).FromString(raw))
    except (DecodeError, SerializeToJsonError):  # bytes that are no message, times that JSON does not know
        value = {}
    return chance.document(chance.maybe_changed(value))


def _plain(message: Message) -> Any:
    try:
        return json.loads(json_codec.dumps(message))
    except ValueError:  # a document that is none: as the text of base64
        return json.loads(MessageToJson(message))


def _limit_s(method: MethodDescriptor) -> float:
    return HELD_S if method.name in HELD else PATIENCE_S


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _printable(text: str) -> str:
    return "".join(each for each in text if " " < each <= "~")[:4000]
