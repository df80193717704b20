"""What bridges send over the stream of gRPC that carries a host's messages: frames of any kind, order and size."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from hubbub.v1 import mcp_pb2 as pb
from hubbub_client import Grant

from . import talks
from .chance import Chance
from .host_messages import HANDSHAKE, INTERNAL, as_object, enveloped, handshake, in_session
from .subject import Finding, Subject, Tally, drive, outcome, peer, subject

RPC = "/hubbub.v1.McpService/Serve"
PATIENCE_S = 45.0
"""How long a stream may take that is not read, or whose last request has no response."""

GLIMPSE_S = 0.05
BOUND = 200_000
KEYS = [f"key-{number:013}" for number in range(6)]
"""Few, so that bridges take the streams of one another."""

LONG = json.dumps({"jsonrpc": "2.0", "id": "l", "method": "tools/call", "params": {"name": "x" * 50_000}}).encode()

Metadata = tuple[tuple[str, str], ...]


async def bridges(tally: Tally, seed: int, directory: Path) -> None:
    """Tries whatever a bridge may send, several at once, also under the same session key."""
    quick = {"call_timeout_s": 1, "answer_timeout_s": 2, "receiver_task_ttl_s": 5, "max_in_flight": 8}
    servers = {"toy": peer("2026-07-28", **quick), "asker": peer("2025-11-25", **quick), talks.SERVER: talks.steady()}
    async with subject(directory, servers, {"max_message_bytes": BOUND}) as tried:
        await tried.hub.connected(*servers)
        other = await tried.hub.client.tokens.create("other", [Grant(role="caller", servers=["*"])])
        await tried.note_rest()
        rights = (tried.metadata, (("authorization", f"Bearer {other.secret}"),))
        await drive(tally, _Trial(tried, rights, seed).one, width=8, halfway=tried.note_memory)
        talks.judge(tally)
        await tried.hub.client.call_tool("toy", "echo", {"text": "x"})
        await tried.judge(tally)


class _Trial:
    def __init__(self, tried: Subject, rights: tuple[Metadata, ...], seed: int) -> None:
        self._serve = tried.channel.stream_stream(RPC)
        self._rights = rights
        self._seed = seed

    async def one(self, number: int) -> str:
        """One stream, from its first frame to its end."""
        chance = Chance(self._seed, "bridges", number)
        rpc = self._serve(metadata=chance.of(self._rights), timeout=2 * PATIENCE_S)
        stream = _Stream(rpc, chance, f"end-{number}")
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await (stream.talk(number) if chance.one_in(talks.ONE_IN) else stream.play())
        except TimeoutError:
            raise Finding(f"no end within {PATIENCE_S} s of {stream.shown}") from None
        except grpc.aio.AioRpcError as exc:
            if exc.details() == "Internal error from Core":
                return "ended in the middle of a write"  # so gRPC's client calls that, whatever the status was
            if (exc.details() or "").startswith("SERVER: Received message larger than max"):
                return "RESOURCE_EXHAUSTED by gRPC itself"
            return outcome(exc, stream.shown)
        finally:
            rpc.cancel()


@dataclass
class _Stream:
    """One stream of a bridge, and what went over it."""

    rpc: Any
    chance: Chance
    last: str
    sent: list[bytes] = field(default_factory=list[bytes])
    heard: Counter[str] = field(default_factory=Counter[str])

    @property
    def shown(self) -> str:
        return f"{[frame[:1000] for frame in self.sent]}"

    async def play(self) -> str:
        """Says what it has to say, and hears the hub out or goes away; how it ended."""
        chance = self.chance
        frames = [_first(chance), *(_frame(chance) for _ in range(chance.upto(6)))]
        if chance.one_in(40):
            return await self._deaf(frames)
        for frame in frames:
            if not await self._say(frame):
                return await self._hear()
        match chance.upto(3):
            case 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(chance.of((0, GLIMPSE_S))):
                        await self._hear()
                return "left without a word"
            case 1:
                await self._say(pb.ServeRequest(leave=True).SerializeToString())
                return await self._hear()
            case _:
                ping = json.dumps({"jsonrpc": "2.0", "id": self.last, "method": "ping"}).encode()
                if await self._say(pb.ServeRequest(messages=[ping]).SerializeToString()):
                    await self._hear(until=self.last)
                    await self.rpc.done_writing()
                return await self._hear()

    async def talk(self, number: int) -> str:
        """A call whose question is answered, with nonsense around both. Raises Finding unless the answer arrives."""
        talk = talks.Talk(self.chance, number)
        opening = pb.ServeRequest.Open(session_key=f"{talk.id}-of-a-bridge", bridge_version="1", server=talks.SERVER)
        await self._say(pb.ServeRequest(open=opening, messages=talk.handshake()).SerializeToString())
        await self._say(pb.ServeRequest(messages=[*talk.noise(), talk.call(), *talk.noise()]).SerializeToString())
        while not talk.over:
            if (raw := await self.rpc.read()) is grpc.aio.EOF:
                raise Finding(f"the stream ended within a talk: {self.shown}")
            for message in pb.ServeResponse.FromString(raw).messages:
                self._judged(message)
                if (answer := talk.hear(as_object(json.loads(message)))) is not None:
                    frame = pb.ServeRequest(messages=[*talk.noise(), answer, *talk.noise()])
                    await self._say(frame.SerializeToString())
        return talks.ANSWERED

    async def _deaf(self, frames: list[bytes]) -> str:
        """Sends much that has a response, and reads none of it until it has sent all, or cannot."""
        much = pb.ServeRequest(messages=[LONG] * 3).SerializeToString()
        with suppress(TimeoutError):
            async with asyncio.timeout(GLIMPSE_S * self.chance.of((1, 10, 40))):
                for frame in (*frames, *[much] * self.chance.of((5, 200))):
                    if not await self._say(frame):
                        break
        return "left without having read"

    async def _say(self, frame: bytes) -> bool:
        """Sends a frame; False once the hub has ended the stream."""
        self.sent.append(frame)
        try:
            await self.rpc.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            return False
        return True

    async def _hear(self, until: str | None = None) -> str:
        """Reads until the end, or until a request has its response. Raises AioRpcError, and Finding for nonsense."""
        while (raw := await self.rpc.read()) is not grpc.aio.EOF:
            for message in pb.ServeResponse.FromString(raw).messages:
                id_ = self._judged(message)
                if id_ is not None and id_ == until:
                    return "answered"
        if (code := await self.rpc.code()) is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                code,
                await self.rpc.initial_metadata(),
                await self.rpc.trailing_metadata(),
                await self.rpc.details(),
            )
        return "ended"

    def _judged(self, message: bytes) -> object:
        """The id of a response. Raises Finding for what must not be said."""
        try:
            told = as_object(json.loads(message))
        except ValueError:
            raise Finding(f"no JSON: {message[:300]!r} to {self.shown}") from None
        if as_object(told.get("error")).get("code") == INTERNAL:
            raise Finding(f"{message[:300]!r} to {self.shown}")
        if "method" in told or told.get("id") is None:
            return None
        said = json.dumps(told["id"])
        self.heard[said] += 1
        if self.heard[said] > sum(frame.count(b'"id"') for frame in self.sent):
            raise Finding(f"more responses than requests: {said[:100]} to {self.shown}")
        return told["id"]


def _first(chance: Chance) -> bytes:
    """What opens a stream, or should."""
    opening = pb.ServeRequest.Open(session_key=chance.of(KEYS), bridge_version="1")
    match chance.upto(3):
        case 0:
            opening.profile = chance.text() if chance.one_in(8) else "default"
        case 1:
            opening.server = chance.text() if chance.one_in(8) else "asker"
        case _:
            opening.server = "toy"
    if chance.one_in(25):
        opening.session_key = chance.text()
    frame = pb.ServeRequest(open=opening, messages=_messages(chance), leave=chance.one_in(50))
    if chance.one_in(30):
        frame.ClearField("open")
    return _raw(chance, frame)


def _frame(chance: Chance) -> bytes:
    frame = pb.ServeRequest(messages=_messages(chance), again=chance.one_in(5), leave=chance.one_in(40))
    if chance.one_in(60):
        frame.messages.extend([chance.of((b"{}", b""))] * chance.of((998, 999, 1000, 1001)))
    if chance.one_in(40):
        frame.open.session_key = chance.of(KEYS)
    return _raw(chance, frame)


def _raw(chance: Chance, frame: pb.ServeRequest) -> bytes:
    raw = frame.SerializeToString()
    return chance.broken(raw) if chance.one_in(30) else raw


def _messages(chance: Chance) -> list[bytes]:
    """Messages of a host, in their order or in none; now and then the same one twice."""
    said: list[bytes] = []
    if chance.one_in(2):
        said.append(json.dumps(handshake(chance, chance.of(HANDSHAKE))).encode())
    for _ in range(chance.upto(3)):
        message = enveloped(chance)[0] if chance.one_in(3) else in_session(chance)
        said += [chance.document(message)] * (2 if chance.one_in(10) else 1)
    if chance.one_in(100):
        said.append(b"[" * chance.of((BOUND - 1100, BOUND - 1024, BOUND - 1023, BOUND + 1)))
    return said
