"""Servers that misbehave, one way each. Standard library only, so that a hundred of them start quickly.

    bad.py MODE        (PORT in the environment for the http modes)

Over stdio; the modes of the second group are small correct servers but for what they say:

    hang           never answers anything          garbage        writes lines that are no JSON, for ever
    flood          writes notifications for ever   endless_line   writes one line for ever
    exit           complains on stderr, exits 3

    good           nothing wrong                   chatty         a line that is no JSON before each answer
    silent         answers nothing after the handshake; calls and pings hang
    slow S         waits S seconds before each answer
    die_mid_call   complains on stderr and exits 4 during a call
    family         starts a child, and one in a session of its own, and leaves both behind; a call returns the pids

Over HTTP:

    http STATUS    answers every request with that status
    http_hang      takes every request and answers none
"""

import http.server
import json
import os
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
TOOLS = [{"name": "echo", "description": "Returns the text", "inputSchema": {"type": "object"}}]
ENDLESS = "import time; time.sleep(3600)"


def main() -> None:
    match MODE:
        case "hang":
            sys.stdin.read()
        case "flood":
            forever(line({"jsonrpc": "2.0", "method": "notifications/message", "params": notice()}))
        case "garbage":
            forever(b"this is no JSON\n")
        case "endless_line":
            forever(b"x" * 65536)
        case "exit":
            complain("cannot start: the license has expired", 3)
        case "http" | "http_hang":
            serve_http()
        case _:
            serve_stdio()


def notice() -> dict[str, Any]:
    return {"level": "info", "data": "x" * 1024}


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def forever(chunk: bytes) -> None:
    while True:
        os.write(1, chunk)


def complain(text: str, code: int) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    os._exit(code)


def serve_stdio() -> None:
    pids = family() if MODE == "family" else []
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        if "id" not in message or "method" not in message:
            continue
        if MODE == "silent" and message["method"] not in ("initialize", "tools/list", "server/discover"):
            continue
        if MODE == "slow":
            time.sleep(float(sys.argv[2]))
        if MODE == "die_mid_call" and message["method"] == "tools/call":
            complain("out of luck", 4)
        if MODE == "chatty":
            os.write(1, b"a friendly remark\n")
        os.write(1, line({"jsonrpc": "2.0", "id": message["id"], **answer(message, pids)}))


def answer(message: dict[str, Any], pids: list[int]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            asked = params.get("protocolVersion")
            return {
                "result": {
                    "protocolVersion": asked if asked in REVISIONS else REVISIONS[-1],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": MODE, "version": "1"},
                }
            }
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            text = json.dumps(pids) if pids else str((params.get("arguments") or {}).get("text", ""))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def family() -> list[int]:
    # Without the pipes of the server: what must end them is not a closed stdin.
    null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", ENDLESS]
    return [subprocess.Popen(command, **null, start_new_session=own).pid for own in (False, True)]


def serve_http() -> None:
    class Refusal(http.server.BaseHTTPRequestHandler):
        def refuse(self) -> None:
            if MODE == "http_hang":
                time.sleep(3600)
            status = int(sys.argv[2])
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Bearer error="invalid_token"')
            if status == 429:
                self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_DELETE = refuse  # noqa: N815  (names that the base class looks up)

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Refusal).serve_forever()


if __name__ == "__main__":
    main()
