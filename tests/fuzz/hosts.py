"""What hosts send to the MCP endpoint: messages of every revision, headers, sessions of others, streams left."""

import json
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2

from . import talks
from .chance import Chance
from .host_messages import HANDSHAKE, INTERNAL, as_object, asked, enveloped, handshake, in_session
from .subject import Finding, Tally, drive, peer, subject

PATIENCE_S = 45.0
"""How long a request may take that nobody holds."""

GLIMPSE_S = 0.05
"""How long a stream is read."""

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
HEADERS = (
    "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id", "origin", "accept",
    "content-type", "authorization", "traceparent", "hubbub-as", "mcp-param-x", "host",
)  # fmt: skip
CLASSIFIED = {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 421, 429, 503}
BOUND = 200_000
KEPT_SESSIONS = 40
PATHS = ("/mcp", "/mcp/s/toy", "/mcp/s/asker")


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    """The lines of a stream, which end with a line feed and nothing else: JSON may have U+2028."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line


async def hosts(tally: Tally, seed: int, directory: Path) -> None:
    """Tries whatever a host may send, on sessions of its own, of others and of nobody."""
    quick = {"call_timeout_s": 1, "answer_timeout_s": 2, "receiver_task_ttl_s": 5, "max_in_flight": 8}
    servers = {"toy": peer("2026-07-28", **quick), "asker": peer("2025-11-25", **quick), talks.SERVER: talks.steady()}
    settings = {
        "mcp_listen": "127.0.0.1:0",
        "max_message_bytes": BOUND,
        "mcp_sessions_per_principal": 2 * KEPT_SESSIONS,
        "mcp_events_per_session": 20,
        "mcp_event_bytes_per_session": 10_000,
        "mcp_origins": ["https://page.example"],
    }
    async with subject(directory, servers, settings) as tried:
        await tried.hub.connected(*servers)
        await tried.note_rest()
        base = tried.hub.ready["mcp"].removesuffix("/mcp")
        (_, right), *_ = tried.metadata
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE_S, limits=limits, trust_env=False) as http:
            await drive(tally, _Trial(http, base, right, seed).one, width=8, halfway=tried.note_memory)
        talks.judge(tally)
        await tried.hub.client.call_tool("toy", "echo", {"text": "x"})
        await tried.judge(tally)


class _Trial:
    def __init__(self, http: httpx2.AsyncClient, base: str, right: str, seed: int) -> None:
        self._http = http
        self._base = base
        self._right = right
        self._seed = seed
        self._sessions = deque[tuple[str, str, str]](maxlen=KEPT_SESSIONS)
        self._events = deque[str](maxlen=20)
        self._questions = deque[str](maxlen=5)

    async def one(self, number: int) -> str:
        """One request, or a dialogue of a few."""
        chance = Chance(self._seed, "hosts", number)
        if chance.one_in(talks.ONE_IN):
            return await self._talk(chance, number)
        if chance.one_in(20):
            return await self._raw(chance)
        if chance.one_in(10) or not self._sessions:
            return await self._handshake(chance)
        kind = "stateless" if chance.one_in(3) else "session"
        path, headers, message = (self._stateless if kind == "stateless" else self._in_session)(chance)
        verb = chance.of(("POST",) * 12 + ("GET", "GET", "DELETE", "OPTIONS", "PUT", "HEAD"))
        if verb == "GET" and self._events and chance.one_in(2):
            headers["last-event-id"] = chance.of(self._events)
        if chance.one_in(4):
            headers[chance.of(HEADERS)] = _printable(chance.text())
        if chance.one_in(15):
            path = chance.of(("/", "/mcp", "/mcp/", "/mcp/p/x", "/mcp/s/", "/.well-known/oauth-protected-resource/mcp"))
        if chance.one_in(30):
            path += "?" + chance.of(("access_token=x", "a=b", "%00", "token"))
        body = chance.document(message) if verb in ("POST", "PUT") else b""
        return f"{kind} {verb} {await self._try(verb, path, headers, body, chance)}"

    async def _handshake(self, chance: Chance) -> str:
        path, revision = chance.of(PATHS), chance.of(HANDSHAKE)
        message = json.dumps(handshake(chance, revision)).encode()
        return f"handshake {await self._try('POST', path, {}, message, chance, revision)}"

    async def _talk(self, chance: Chance, number: int) -> str:
        """A call whose question is answered, with nonsense around both. Raises Finding unless the answer arrives."""
        talk, path = talks.Talk(chance, number), f"/mcp/s/{talks.SERVER}"
        headers = {
            "authorization": self._right,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }

        async def say(*bodies: bytes) -> None:
            for body in bodies:
                async with self._http.stream("POST", path, headers=headers, content=body) as response:
                    _classified(response.status_code, body)
                    headers.setdefault("mcp-session-id", response.headers.get("mcp-session-id", ""))

        await say(*talk.handshake(), *talk.noise())
        async with self._http.stream("POST", path, headers=headers, content=talk.call()) as response:
            async for line in _lines(response):
                if line.startswith("data: ") and len(line) > 6:
                    answer = talk.hear(as_object(json.loads(line[6:])))
                    if answer is not None:
                        await say(*talk.noise(), answer, *talk.noise())
        if not talk.over:
            raise Finding(f"status {response.status_code} and no result of {talk.id}")
        await self._http.delete(path, headers=headers)
        return talks.ANSWERED

    def _in_session(self, chance: Chance) -> tuple[str, dict[str, str], Any]:
        path, session, revision = chance.of(self._sessions)
        return path, {"mcp-session-id": session, "mcp-protocol-version": revision}, in_session(chance, self._questions)

    def _stateless(self, chance: Chance) -> tuple[str, dict[str, str], Any]:
        message, version = enveloped(chance)
        headers = {"mcp-protocol-version": _printable(version), "mcp-method": message["method"]}
        if isinstance(name := message["params"].get(NAMED.get(message["method"], "")), str):
            headers["mcp-name"] = _printable(name)
        return chance.of(PATHS), headers, chance.maybe_changed(message)

    async def _try(
        self, verb: str, path: str, headers: dict[str, str], body: bytes, chance: Chance, revision: str = ""
    ) -> str:
        shown = f"{verb} {path} {headers} {body[:2000]!r}"
        known = {
            "authorization": self._right,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        request = self._http.build_request(verb, path, headers=known | headers, content=body)
        try:
            response = await self._http.send(request, stream=True)
        except httpx2.ReadTimeout:
            raise Finding(f"no response within {PATIENCE_S} s to {shown}") from None
        try:
            if response.headers.get("content-type") == "text/event-stream":
                await self._glimpse(response, chance, shown)
                return f"{response.status_code} stream"
            said = await response.aread()
        finally:
            await response.aclose()
        if revision and (session := response.headers.get("mcp-session-id")):
            self._sessions.append((path, session, revision))
        return _judged(response.status_code, said, shown)

    async def _glimpse(self, response: httpx2.Response, chance: Chance, shown: str) -> None:
        """Reads a stream for a while, and leaves it in the middle more often than not."""
        with anyio.move_on_after(chance.of((GLIMPSE_S, GLIMPSE_S, 5 * GLIMPSE_S, 2.5))):
            async for line in _lines(response):
                if line.startswith("id: "):
                    self._events.append(line[4:])
                if line.startswith("data: ") and len(line) > 6:
                    _judged(200, line[6:].encode(), shown)
                    told = as_object(json.loads(line[6:]))
                    if "method" in told and isinstance(id_ := told.get("id"), str):
                        self._questions.append(id_)

    async def _raw(self, chance: Chance) -> str:
        """HTTP that is none, or not all of it."""
        body = chance.document(chance.maybe_changed(asked(chance)))
        head = {
            "host": "localhost",
            "authorization": self._right,
            "content-type": "application/json",
            "content-length": str(len(body) + chance.of((0, 0, 0, 1, -1))),
        }
        if chance.one_in(2):
            head[chance.of(HEADERS)] = chance.text().replace("\n", " ")[:300]
        lines = [f"{chance.of(('POST', 'GET', 'X'))} /mcp/s/toy HTTP/1.1", *(f"{k}: {v}" for k, v in head.items())]
        said = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body
        where, _, port = self._base.removeprefix("http://").rpartition(":")
        answer = b""
        async with await anyio.connect_tcp(where, int(port)) as stream:
            try:
                await stream.send(chance.broken(said) if chance.one_in(2) else said)
                with anyio.move_on_after(GLIMPSE_S):
                    answer = await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        status = answer[9:12].decode("ascii", "replace")
        if status.startswith("5") and status != "503":
            raise Finding(f"status {status} to {said!r}")
        return f"raw {status or 'left'}"


def _classified(status: int, shown: object) -> None:
    if status not in CLASSIFIED:
        raise Finding(f"status {status} to {shown!r}"[:3000])


def _judged(status: int, said: bytes, shown: str) -> str:
    """What a response is. Raises Finding for one that is not classified."""
    if status not in CLASSIFIED:
        raise Finding(f"status {status} {said[:300]!r} to {shown}")
    if not said:
        return str(status)
    try:
        told = json.loads(said)
    except ValueError:
        raise Finding(f"no JSON: {said[:300]!r} to {shown}") from None
    code: Any = as_object(as_object(told).get("error")).get("code") if "jsonrpc" in as_object(told) else None
    if code == INTERNAL:
        raise Finding(f"{said[:300]!r} to {shown}")
    return f"{status}" if code is None else f"{status} {code if -33000 < code < -32000 else 'own'}"


def _printable(text: str) -> str:
    """What an HTTP client sends as a header."""
    return "".join(each for each in text if " " <= each <= "~").strip()[:500]
