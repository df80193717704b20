"""A server that says what it is asked to, numbers and times as they stand in a text.

    magnitude_peer.py stdio | http  2025-11-25 | 2026-07-28  FILE      (PORT in the environment for http)

A request tells it by `params._meta.tell`: `say`, lines that come first, `@ID@` in them its id, `@TOKEN@` that of its
progress; `http`, how the response comes; `task` and `later`, what is answered when the task of that name is asked for,
by method, the last of them again and again. What FILE holds answers every request, over HTTP but those at /mcp:
by method a result, `http` as above. /guarded asks for a token, and its documents come from FILE too. Standard library
only.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REVISION, FILE = sys.argv[2], Path(sys.argv[3])
STATELESS = REVISION == "2026-07-28"
TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
EXTENSIONS = {"io.modelcontextprotocol/tasks": {}}
OFFERS: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {},
    "prompts": {},
    "logging": {},
    "completions": {},
}
OFFERS |= {"extensions": EXTENSIONS} if STATELESS else {"tasks": TASKS}
INFO = {"name": "magnitudes", "version": "1"}
TOOL: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": REVISION, "capabilities": OFFERS, "serverInfo": INFO},
    "server/discover": {"supportedVersions": [REVISION], "capabilities": OFFERS, "serverInfo": INFO},
    "tools/call": {"content": [{"type": "text", "text": "well"}]},
    "tools/list": {"tools": [TOOL if STATELESS else {**TOOL, "execution": {"taskSupport": "optional"}}]},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": [{"name": "r", "uri": "file:///x"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "completion/complete": {"completion": {"values": ["a"]}},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "logging/setLevel": {},
    "ping": {},
}
later: dict[str, dict[str, list[str]]] = {}


def right(message: dict[str, Any]) -> str:
    """The response that nobody could complain of."""
    method = message["method"]
    base = {"jsonrpc": "2.0", "id": message["id"]}
    if method not in RESULTS or method == ("initialize" if STATELESS else "server/discover"):
        return json.dumps({**base, "error": {"code": -32601, "message": "Method not found"}})
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if STATELESS else {}
    return json.dumps({**base, "result": {**RESULTS[method], **more}})


def told() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def lines(message: dict[str, Any], always: dict[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """What is said to a request, the response last; and how, over HTTP."""
    params, method = message.get("params") or {}, message["method"]
    tell = (params.get("_meta") or {}).get("tell") or {}
    if "task" in tell:
        later[tell["task"]] = tell["later"]
    said = [*tell.get("say", ())]
    queued = later.get(str(params.get("taskId")), {}).get(method)
    if queued:
        said.append(queued.pop(0) if len(queued) > 1 else queued[0])
    elif method in always:
        said.append(f'{{"jsonrpc":"2.0","id":@ID@,"result":{always[method]}}}')
    elif not tell.get("last"):
        said.append(right(message))
    exact = json.dumps(message["id"])
    token = json.dumps((params.get("_meta") or {}).get("progressToken", message["id"]))
    return [each.replace("@ID@", exact).replace("@TOKEN@", token) for each in said], tell.get("http") or always.get(
        "http"
    )


def serve_stdio() -> None:
    out = sys.stdout.buffer
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        if "method" in message and "id" in message:
            out.write(b"".join(line.encode() + b"\n" for line in lines(message, told())[0]))
            out.flush()


class Http(BaseHTTPRequestHandler):
    """The same over streamable HTTP, and documents of an authorization server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path in ("/token", "/register"):
            self.reply(200, told()[self.path].encode())
            return
        if self.path == "/guarded" and "Authorization" not in self.headers:
            where = f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/guarded"'
            self.reply(401, b"{}", (("WWW-Authenticate", where),))
            return
        message = json.loads(body)
        if "method" not in message or "id" not in message:
            self.reply(202, b"")
            return
        said, how = lines(message, {} if self.path == "/mcp" else told())
        how = how or {}
        if "raw" in how:
            self.reply(how["status"], how["raw"].encode(), how.get("headers", ()))
        elif len(said) == 1 and "before" not in how:
            self.reply(how.get("status", 200), said[0].encode(), how.get("headers", ()))
        else:
            events = how.get("before", "") + "".join(f"event: message\ndata: {each}\n\n" for each in said)
            self.reply(200, events.encode(), [*how.get("headers", ()), ("Content-Type", "text/event-stream")])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{os.environ['PORT']}"

    def do_GET(self) -> None:
        document = told().get(
            next((part for part in ("protected-resource", "authorization-server") if part in self.path), "")
        )
        self.reply(200, document.encode()) if document else self.reply(405, b"")

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def reply(self, status: int, body: bytes, headers: Any = ()) -> None:
        known = {name.lower() for name, _ in headers}
        more = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        every = [*headers, *((name, value) for name, value in more if name.lower() not in known)]
        if "content-length" in known:  # whatever it says, this is the end
            every.append(("Connection", "close"))
            self.close_connection = True
        head = "".join(f"{name}: {value}\r\n" for name, value in every)
        self.wfile.write(f"HTTP/1.1 {status} So\r\n{head}\r\n".encode() + body)

    def log_message(self, *_: object) -> None:
        """Nothing: the hub's log is the one that is read."""


class Quiet(ThreadingHTTPServer):
    """Says nothing of callers that hang up."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """They may."""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    else:
        Quiet(("127.0.0.1", int(os.environ["PORT"])), Http).serve_forever()
