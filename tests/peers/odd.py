"""A server that does every odd thing at once, in groups of those that go together. Standard library only.

odd.py GROUP           over stdio, 2025-11-25; its tool `odd` does the next odd thing each time
odd.py http            (PORT in the environment) the same for the groups of the second list, each at /GROUP

tasks       calls become tasks that live for ever, are polled never, fail without a word, or have names of the arguments
answers     NaN, too deep, a byte order mark, no UTF-8, a batch, half a surrogate pair, numbers past a double
wrong       results and questions of 240 kB with nothing right in them
questions   of 15 MB, with half surrogates, after the end of the call, and the call's cancellation is not heard
flood       notifications of 10 MB, for ever              stderr      complaints, for ever
names       other tools in each list, which always changes intro       introduces itself with 15 MB
escapes     control and invisible characters in all texts  progress    of numbers past all bounds

good        nothing odd                                    later       429, to be tried again in the year 9999
stream      events of very many short lines, and of lines that end with CR
retry       its stream ends at once, `retry: 0`            forgets     its session after five requests, says 400
headers     2026-07-28: other tools with other headers in each list
"""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GROUP = sys.argv[1]
NOW = "2025-11-25T10:00:00Z"
HIDDEN = "a\x1b]0;EVIL\x07\x1b[31m\x1bc\x9b2J\b\b\u200b\u200f\u202e\u2060\ufeff\u3164\U000e0041 b"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
TEXT = [{"type": "text", "text": "well"}]
SCHEMA = {"type": "object"}
HUGE = (2**64 - 1, 10**400, 2**53, -1, 0, 2**31, 1e308)
TOOL = {"name": "odd", "inputSchema": SCHEMA, "execution": {"taskSupport": "optional"}}
MEGABYTE = 1_000_000
turns = itertools.count()
turn_of_stdout = threading.Lock()


def long(number: int) -> Any:
    """One of the numbers that a server may mean by for ever."""
    return HUGE[number % len(HUGE)]


def response(message_id: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}).encode()


def request(name: object, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": f"q{name}", "method": method, "params": params}).encode()


def notification(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}).encode()


def raw(message_id: Any, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(message_id).encode(), result)


def say(*lines: bytes) -> None:
    with turn_of_stdout:
        for line in lines:
            text = line + b"\n"
            while text:
                text = text[os.write(1, text) :]


# What `odd` does, by group: the lines that come, the response among them or not.


def tasks(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    params = message["params"]
    name = (params.get("arguments") or {}).get("id") or f"t{turn}"
    status = ("working", "failed", "input_required", "completed", "working")[turn % 5]
    task = {"taskId": name, "status": status, "createdAt": NOW, "lastUpdatedAt": NOW, "ttl": long(turn)}
    task |= {"pollInterval": long(turn + 3), "statusMessage": HIDDEN}
    yield response(message["id"], {"task": task} if "task" in params else {"content": TEXT})
    yield notification("tasks/status", {**task, "status": "failed"})


def answers(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    whole = response(message["id"], {"content": TEXT})
    deep = b"[" * 300 + b"]" * 300
    yield (
        raw(message["id"], b'{"content":[],"structuredContent":{"a":NaN}}'),
        raw(message["id"], b'{"content":[],"structuredContent":{"a":%s}}' % deep),
        b"\xef\xbb\xbf" + whole,
        whole.replace(b"well", b"\xff\xfe"),
        b"[" + whole + b"]",
        whole.replace(b"well", b"\\ud83d"),
        raw(message["id"], b'{"content":[],"structuredContent":{"a":1e999,"b":%s}}' % (b"9" * 5000)),
        raw(message["id"], b'{"content":[],"_meta":{"a":-Infinity}}'),
    )[turn % 8]


def wrong(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    blocks = b"[" + b"{}," * 80_000 + b"{}]"
    if turn % 3 == 0:
        yield raw(message["id"], b'{"content":%s}' % blocks)
    elif turn % 3 == 1:
        yield raw(message["id"], b'{"content":[%s7]}' % (b"7," * 120_000))
    else:
        said = b'{"messages":[{"role":"user","content":%s}],"maxTokens":-5}' % blocks
        yield b'{"jsonrpc":"2.0","id":"w%d","method":"sampling/createMessage","params":%s}' % (turn, said)
        yield response(message["id"], {"content": TEXT})


def questions(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    asked = b'{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":%s}' % (turn, question(turn % 3))
    if turn % 2:
        yield asked
    yield response(message["id"], {"content": TEXT})
    if not turn % 2:
        yield asked  # after the end of its call


@cache  # what it takes to make them is not what they cost the hub
def question(kind: int) -> bytes:
    """The params of one: long, of many fields, or of half characters."""
    if kind == 0:
        return json.dumps({"message": "x" * 15 * MEGABYTE, "requestedSchema": FORM}).encode()
    if kind == 1:
        many = {f"f{n}": {"type": "string"} for n in range(300_000)}
        return json.dumps({"message": "many", "requestedSchema": {"type": "object", "properties": many}}).encode()
    fields = {f"\ud83d{n}": {"type": "string", "enum": ["\udc00"]} for n in range(3)}
    return json.dumps({"message": HIDDEN, "requestedSchema": {"type": "object", "properties": fields}}).encode()


def progress(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    token = ((message["params"].get("_meta") or {}).get("progressToken"), message["id"])[turn % 2]
    for number in (b"1e999", b"1" + b"0" * 400, b"NaN", b"-1", b"1e308", b"9223372036854775808"):
        said = notification("progress", {"progressToken": token, "progress": 7, "total": 7, "message": HIDDEN})
        yield said.replace(b": 7", b": " + number)
    yield notification("cancelled", {"requestId": 2**64, "reason": HIDDEN})
    yield response(message["id"], {"content": TEXT})


def escapes(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    os.write(2, HIDDEN.encode() + b"\n")
    yield HIDDEN.replace(" ", "").encode()  # no message, and no space in it
    yield notification("message", {"level": "error", "logger": HIDDEN, "data": HIDDEN})
    yield request(turn, "elicitation/create", {"message": HIDDEN, "requestedSchema": FORM})
    yield response(message["id"], {"content": [{"type": "text", "text": HIDDEN}], "isError": True})


def plain(message: dict[str, Any], turn: int) -> Iterator[bytes]:
    text = (message["params"].get("arguments") or {}).get("text", "well")
    yield response(message["id"], {"content": [{"type": "text", "text": text}]})


ODD = {
    "tasks": tasks,
    "answers": answers,
    "wrong": wrong,
    "questions": questions,
    "progress": progress,
    "escapes": escapes,
}


def result(message: dict[str, Any]) -> Any:
    """What belongs to all other methods."""
    turn, params = next(turns), message.get("params") or {}
    match message["method"]:
        case "initialize":
            info = {"name": HIDDEN if GROUP == "escapes" else GROUP, "version": "1"}
            if GROUP == "intro":
                info["title"] = "x" * 15 * MEGABYTE
            tasks_offered = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            offers = {"tools": {"listChanged": True}, "tasks": tasks_offered, "logging": {}}
            return {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
        case "tools/list" if GROUP == "names":
            return {"tools": [TOOL, *({**TOOL, "name": f"n{turn}-{n}"} for n in range(1000))]}
        case "tools/list" if GROUP == "escapes":
            return {"tools": [{**TOOL, "title": HIDDEN, "description": HIDDEN}]}
        case "tools/list":
            return {"tools": [TOOL, {**TOOL, "name": "echo"}]}
        case "tasks/get":
            task = {"taskId": params["taskId"], "createdAt": NOW, "lastUpdatedAt": NOW, "ttl": long(turn)}
            return {**task, "status": ("working", "failed")[turn % 2], "pollInterval": long(turn + 1)}
        case "tasks/result":
            return {}
        case "ping":
            return {}
        case _:
            return None


def serve_stdio() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "notifications/initialized":
            threading.Thread(target=in_background, daemon=True).start()
        if "method" not in message or "id" not in message:
            continue
        if message["method"] == "tools/call":
            say(*ODD.get(GROUP, plain)(message, next(turns)))
        elif (said := result(message)) is not None:
            say(response(message["id"], said))
        else:
            error = {"code": -32601, "message": "Method not found"}
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())


def in_background() -> None:
    """What goes on by itself, once the hub is connected."""
    big = notification("message", {"level": "info", "data": "x" * 10 * MEGABYTE})
    changed = notification("tools/list_changed", {})
    while GROUP in ("flood", "stderr", "names"):
        if GROUP == "flood":
            say(big)
        elif GROUP == "stderr":
            os.write(2, b"something is wrong\n" * 3000)
        else:
            say(changed)
            time.sleep(0.2)


class Http(BaseHTTPRequestHandler):
    """The groups over streamable HTTP."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else head and body may be 40 ms apart
    requests = itertools.count(1)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        group, turn = self.path.strip("/").partition("-")[0], next(self.requests)
        if group == "later":
            self.reply(429, b"", {"Retry-After": "Fri, 31 Dec 9999 23:59:59 -2300"})
        elif group == "forgets" and message.get("method") != "initialize" and turn % 5 == 0:
            gone = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            self.reply(400, json.dumps({"jsonrpc": "2.0", "error": gone, "id": None}).encode())
        elif "method" not in message or "id" not in message:
            self.reply(202, b"")
        elif group == "stream" and message["method"] == "tools/call":
            self.stream(turn)
        elif group == "headers":
            self.reply(200, modern(message, turn))
        else:
            said = result(message)
            if message["method"] == "tools/call":
                (body,) = plain(message, turn)
            elif said is not None:
                body = response(message["id"], said)
            else:
                body = json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
                ).encode()
            named = group in ("retry", "forgets") and message["method"] == "initialize"
            self.reply(200, body, {"Mcp-Session-Id": f"s{turn}"} if named else {})

    def stream(self, turn: int) -> None:
        """No blank line ever, or none that ends with LF only."""
        self.head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
        self.close_connection = True
        if turn % 2:
            self.wfile.write(b"data:xxxxxxxxxxxxxxxxxxxx\n" * 250_000)
        else:
            for _ in range(100):
                self.wfile.write(b"data:\r\r:" + b"x" * MEGABYTE + b"\r\r\n")

    def do_GET(self) -> None:
        if self.path == "/retry":
            body = b"id: 1\nretry: 0\ndata:\n\n"
            self.reply(200, body, {"Content-Type": "text/event-stream"})
        else:
            self.reply(405, b"")

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.head(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def modern(message: dict[str, Any], turn: int) -> bytes:
    """2026-07-28, where arguments of tools are repeated as headers."""
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    info = {"name": "headers", "version": "1"}
    match message["method"]:
        case "server/discover":
            offers = {"tools": {"listChanged": True}}
            said: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": offers, "serverInfo": info}
        case "tools/list":
            fields = {f"a{n}": {"type": "string", "x-mcp-header": f"H{turn}-{n}"} for n in range(12)}
            tools = [{"name": f"n{turn}-{n}", "inputSchema": {**SCHEMA, "properties": fields}} for n in range(300)]
            said = {"tools": [{"name": "odd", "inputSchema": SCHEMA}, *tools]}
        case "tools/call":
            said = {"content": TEXT}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
    return response(message["id"], {**said, **more})


class Quiet(ThreadingHTTPServer):
    """Says nothing of callers that hang up."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """They may."""


if __name__ == "__main__":
    if GROUP == "http":
        Quiet(("127.0.0.1", int(os.environ["PORT"])), Http).serve_forever()
    else:
        serve_stdio()
