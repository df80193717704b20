"""A server that answers each request as the seed in it says: with nonsense, and with the right answer at the end.

    hostile_peer.py stdio | http  2025-11-25 | 2026-07-28      (PORT in the environment for http)

Where the seed of a request is (`params._meta.seed`) everything may come; where it is not, all is right. A list of
requests in `params.ask` is sent as it is (stdio); `params.question` is asked as 2026-07-28 does, and the result has
the answer. Over HTTP the path `/shake` answers the first requests of a connection with nonsense as well. Standard
library only.
"""

import itertools
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chance import Chance

REVISION = sys.argv[2]
STATELESS = REVISION == "2026-07-28"
NOW = "2025-11-25T10:00:00Z"
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "format": "email", "default": "x"},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
    },
    "required": ["name"],
}
TEXT = {"type": "text", "text": "well"}
TASK = {"taskId": "T", "status": "working", "createdAt": NOW, "lastUpdatedAt": NOW, "ttl": None, "pollInterval": 100}
MESSAGES = [{"role": "user", "content": TEXT}]
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}},
    {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Go", "url": "https://example.com/a", "elicitationId": "e"},
    },
    {"method": "sampling/createMessage", "params": {"messages": MESSAGES, "maxTokens": 5}},
    {"method": "roots/list"},
)
REQUESTS: tuple[dict[str, Any], ...] = (
    *QUESTIONS,
    {"method": "ping"},
    {"method": "tasks/get", "params": {"taskId": "T"}},
    {"method": "tasks/result", "params": {"taskId": "T"}},
    {"method": "tasks/list", "params": {"cursor": "x"}},
    {"method": "tasks/cancel", "params": {"taskId": "T"}},
    {"method": "tools/call", "params": {"name": "x"}},
    {**QUESTIONS[0], "params": {**QUESTIONS[0]["params"], "task": {"ttl": 60000}}},
)
NOTIFICATIONS: tuple[dict[str, Any], ...] = (
    {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1, "total": 2, "message": "m"}},
    {"method": "notifications/message", "params": {"level": "info", "logger": "l", "data": {"a": 1}}},
    {"method": "notifications/cancelled", "params": {"requestId": 1, "reason": "r"}},
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/resources/updated", "params": {"uri": "file:///x"}},
    {"method": "notifications/tasks/status", "params": TASK},
    {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}},
    {"method": "notifications/initialized"},
)
ERROR = {"code": -32603, "message": "no", "data": {"a": 1}}
PAGE_FIRST = {"code": -32042, "message": "go", "data": {"elicitations": [QUESTIONS[1]["params"]]}}
SHAPES: tuple[dict[str, Any], ...] = (
    {"content": [TEXT], "structuredContent": {"a": 1}, "isError": False},
    {"content": [{"type": "image", "data": "eA==", "mimeType": "image/png"}, {"type": "resource_link", "uri": "a:b"}]},
    {"task": TASK},
    {"resultType": "input_required", "requestState": "s", "inputRequests": {"a": QUESTIONS[0], "b": QUESTIONS[2]}},
    {"resultType": "task", "taskId": "T", "status": "working", "createdAt": NOW, "ttlMs": 1000},
)
asking = itertools.count()
INFO = {"name": "hostile", "version": "1"}
NEEDS_ALL = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": REVISION, "capabilities": NEEDS_ALL, "serverInfo": INFO},
    "server/discover": {"supportedVersions": [REVISION], "capabilities": NEEDS_ALL, "serverInfo": INFO},
    "tools/call": SHAPES[0],
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]},
    "prompts/get": {"messages": MESSAGES},
    "resources/list": {"resources": [{"name": "r", "uri": "file:///x"}]},
    "resources/templates/list": {"resourceTemplates": [{"name": "t", "uriTemplate": "file:///{x}"}]},
    "resources/read": {"contents": [{"uri": "file:///x", "text": "x"}]},
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    "logging/setLevel": {},
    "ping": {},
}


def right(message: dict[str, Any]) -> dict[str, Any]:
    """The response that nobody could complain of."""
    method = message["method"]
    known = method in RESULTS and method != ("initialize" if STATELESS else "server/discover")
    if not known:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    more = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"} if STATELESS else {}
    params = message.get("params") or {}
    if STATELESS and isinstance(params.get("question"), dict):
        if "inputResponses" not in params:
            rounds = {"resultType": "input_required", "inputRequests": {"a": params["question"]}}
            return {"jsonrpc": "2.0", "id": message["id"], "result": rounds}
        more["content"] = [{"type": "text", "text": json.dumps(params["inputResponses"])}]
    return {"jsonrpc": "2.0", "id": message["id"], "result": {**RESULTS[method], **more}}


def seed_of(message: dict[str, Any]) -> object:
    meta = (message.get("params") or {}).get("_meta")
    return meta.get("seed") if isinstance(meta, dict) else None


def asked(message: dict[str, Any]) -> list[bytes]:
    wanted = (message.get("params") or {}).get("ask")
    return [
        json.dumps({"jsonrpc": "2.0", "id": f"a{next(asking)}", **each}).encode()
        for each in (wanted if isinstance(wanted, list) else ())
        if isinstance(each, dict)
    ]


def burst(chance: Chance, message: dict[str, Any]) -> list[bytes]:
    """What comes before the right response, or instead of it."""
    return [line(chance, message) for _ in range(chance.upto(5))]


def line(chance: Chance, message: dict[str, Any]) -> bytes:
    base: dict[str, Any] = {"jsonrpc": "2.0"}
    match chance.upto(7):
        case 0:
            return chance.document(chance.value()).replace(b"\n", b" ")
        case 1 | 2:
            said = {**base, "id": f"q{chance.upto(3)}", **chance.of(REQUESTS)}
        case 3:
            said = {**base, **chance.of(NOTIFICATIONS)}
        case 4:
            said = {**right(message), "id": chance.of((message["id"], 0, -1, 10**9, "x", None, 1.5, True, [1], {}))}
        case 5:
            said = {**base, "id": message["id"], "error": chance.of((ERROR, PAGE_FIRST))}
        case _:
            said = {**base, "id": message["id"], "result": chance.of((*SHAPES, *RESULTS.values()))}
            if STATELESS and chance.one_in(2):
                said["result"] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **said["result"]}
    return chance.document(chance.maybe_changed(said)).replace(b"\n", b" ")


def serve_stdio() -> None:
    out = sys.stdout.buffer
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        if "method" not in message or "id" not in message:
            continue
        seed = seed_of(message)
        said = burst(Chance(seed), message) if seed is not None else asked(message)
        out.write(b"".join(each + b"\n" for each in (*said, json.dumps(right(message)).encode())))
        out.flush()


class Http(BaseHTTPRequestHandler):
    """A server over streamable HTTP."""

    protocol_version = "HTTP/1.1"
    shakes = itertools.count()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "method" not in message or "id" not in message:
            self.reply(202, b"")
            return
        seed = f"shake {next(self.shakes)}" if self.path == "/shake" else seed_of(message)
        if seed is None:
            self.reply(200, json.dumps(right(message)).encode())
            return
        chance = Chance(seed)
        final = json.dumps(right(message)).encode()
        match chance.upto(9):
            case 0:
                self.reply(chance.of((200, 202, 204, 301, 307, 400, 401, 404, 406, 429, 500, 503)), chance.noise(99))
            case 1:
                kind = chance.of(("text/html", "application/json; charset=x", "", "text/event-stream", "a/b"))
                self.reply(200, line(chance, message), kind)
            case 2:
                self.reply(200, final, length=len(final) + chance.upto(3))
            case 3 | 4 | 5:
                self.reply(200, line(chance, message))
            case _:
                events = [self.event(chance, each) for each in (*burst(chance, message), final)]
                self.reply(200, b"".join(events), "text/event-stream")

    def event(self, chance: Chance, said: bytes) -> bytes:
        start = chance.of((b"", b"event: message\n", b"event: x\n", b"id: 7\n", b"retry: x\n", b": well\n", b"\xff\n"))
        return start + b"data: " + said.replace(b"\r", b" ") + b"\n\n"

    def do_GET(self) -> None:
        self.reply(405, b"")

    do_DELETE = do_GET  # noqa: N815  (a name that the base class looks up)

    def reply(self, status: int, body: bytes, kind: str = "application/json", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if status in (301, 307):
            self.send_header("Location", "http://127.0.0.1:9/")
        if length is not None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the hub's log is the one that is read."""


class Quiet(ThreadingHTTPServer):
    """Says nothing of callers that hang up."""

    def handle_error(self, *_: object) -> None:
        """They may."""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    else:
        Quiet(("127.0.0.1", int(os.environ["PORT"])), Http).serve_forever()
