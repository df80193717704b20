"""Servers that misbehave, one way each. Standard library only, so that a hundred of them start quickly.

    bad.py MODE        (PORT in the environment for the http modes)

Over stdio; the modes of the second group are small correct servers but for what they say:

    hang           never answers anything          garbage        writes lines that are no JSON, for ever
    flood          writes notifications for ever   endless_line   writes one line for ever
    exit           complains on stderr, exits 3    malformed      writes JSON that is no JSON-RPC, for ever
    deaf           never reads

    good           nothing wrong                   chatty         a line that is no JSON before each answer
    silent         answers nothing after the handshake; calls and pings hang
    slow S         waits S seconds before each answer
    die_mid_call   complains on stderr and exits 4 during a call
    deafened       reads nothing more after the handshake
    huge           answers a call with a line of 300 kB
    muddled        with each answer, sends others: twice the same id, an unknown id, an id of its own twice
    log_flood      also logs for ever              progress_flood also reports progress for ever, of a call or of none
    stderr_flood   also complains for ever         ping_flood     also pings for ever, and reads none of the answers
    ask_flood N    also asks N questions at once; a call returns how many were refused
    heavy          also asks eight questions that cost a lot; a call returns how many were refused
    family         starts a child, one in a session of its own and a daemon, leaves all behind; a call returns the pids

Over HTTP:

    http STATUS    answers every request with that status
    http_hang      takes every request and answers none
    http_page      answers every request with a web page
    http_flood     a small correct server that logs for ever on its GET stream
"""

import json
import os
import sys
import threading
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
        case "malformed":
            forever(line({"jsonrpc": "2.0", "id": True, "result": "none"}))
        case "deaf":
            time.sleep(3600)
        case "exit":
            complain("cannot start: the license has expired", 3)
        case mode if mode.startswith("http"):
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
    refused = 0
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        refused += "error" in message
        if message.get("method") == "notifications/initialized":
            misbehave()
        if "id" not in message or "method" not in message:
            continue
        if MODE == "silent" and message["method"] not in ("initialize", "tools/list", "server/discover"):
            continue
        if MODE == "slow":
            time.sleep(float(sys.argv[2]))
        if MODE == "die_mid_call" and message["method"] == "tools/call":
            complain("out of luck", 4)
        if MODE == "chatty":
            say(b"a friendly remark\n")
        if MODE == "muddled":
            muddle(message["id"])
        said = {"pids": pids, "refused": refused, "size": 300_000 if MODE == "huge" else 0}
        response = line({"jsonrpc": "2.0", "id": message["id"], **answer(message, said)})
        if MODE == "ask_flood":  # what waits to write here does not read, and the hub waits for answers to be read
            threading.Thread(target=say, args=(response,), daemon=True).start()
        else:
            say(response)


def say(text: bytes, turn: Any = threading.Lock()) -> None:  # noqa: B008 - the one lock of stdout
    """Writes all of it, and never in the middle of what another thread writes."""
    with turn:
        while text:
            text = text[os.write(1, text) :]


def heavy() -> list[bytes]:
    """Questions that cost a lot to look at, or to keep: one that is wrong, one in order, and six of 3 MB each."""
    text = {"type": "text", "text": "x"}
    wrong = {"messages": [{"role": "user", "content": [{}] * 80_000}], "maxTokens": 1}
    many = {"messages": [{"role": "user", "content": text}] * 2000, "maxTokens": 1}
    long = {"messages": [{"role": "user", "content": {**text, "text": "x" * 3_000_000}}], "maxTokens": 1}
    return [
        line({"jsonrpc": "2.0", "id": f"heavy-{at}", "method": "sampling/createMessage", "params": params})
        for at, params in enumerate((wrong, many, *[long] * 6))
    ]


def misbehave() -> None:
    """What begins once the hub is connected."""
    ping = line({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
    log = line({"jsonrpc": "2.0", "method": "notifications/message", "params": notice()})
    progress = [
        line({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        for token in ("hub-1", 1, "unknown")
    ]
    match MODE:
        case "deafened":
            time.sleep(3600)
        case "heavy":
            for ask in heavy():
                say(ask)
        case "ping_flood":
            in_background(lambda: say(ping * 100))
            time.sleep(3600)
        case "log_flood":
            in_background(lambda: say(log * 100))
        case "progress_flood":
            in_background(lambda: say(b"".join(progress) * 100))
        case "stderr_flood":
            in_background(lambda: os.write(2, b"something is wrong\n" * 3000))
        case "ask_flood":
            threading.Thread(target=lambda: [say(question(n)) for n in range(int(sys.argv[2]))], daemon=True).start()
        case _:
            pass


def in_background(step: Any) -> None:
    def steps() -> None:
        while True:
            step()

    threading.Thread(target=steps, daemon=True).start()


def question(number: int) -> bytes:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": f"question {number}", "requestedSchema": schema}
    return line({"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create", "params": params})


def muddle(asked: Any) -> None:
    for number in (99999, "unknown"):
        say(line({"jsonrpc": "2.0", "id": number, "result": {}}))
    for _ in range(2):
        say(line({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        if asked != 1:
            say(line({"jsonrpc": "2.0", "id": asked - 1, "result": {"late": True}}))


def answer(message: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
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
            text = str((params.get("arguments") or {}).get("text", ""))
            if said["pids"]:
                text = json.dumps(said["pids"])
            elif MODE in ("ask_flood", "heavy"):
                text = str(said["refused"])
            text += "x" * said["size"]
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def family() -> list[int]:
    import subprocess

    # Without the pipes of the server: what must end them is not a closed stdin.
    null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", ENDLESS]
    children = [subprocess.Popen(command, **null, start_new_session=own).pid for own in (False, True)]
    return [*children, daemon()]


def daemon() -> int:
    """Forks twice, with a new session between, so that init would inherit what stays."""
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(send, str(os.getpid()).encode())
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            time.sleep(3600)
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(receive, 20))


def serve_http() -> None:
    import http.server

    class Refusal(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if MODE == "http_hang":
                time.sleep(3600)
            if MODE == "http_page":
                self.reply(200, b"<html><body>Welcome to nginx!</body></html>", "text/html")
            else:
                self.reply(int(sys.argv[2]), b"", "text/plain")

        def reply(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Bearer error="invalid_token"')
            if status == 429:
                self.send_header("Retry-After", "2")
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = refuse  # noqa: N815  (names that the base class looks up)

        def log_message(self, *_: object) -> None:
            pass

    class Flood(Refusal):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message or "method" not in message:
                self.reply(202, b"", "text/plain")
            else:
                found = {"jsonrpc": "2.0", "id": message["id"], **answer(message, {"pids": [], "size": 0})}
                self.reply(200, line(found), "application/json")

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            log = line({"jsonrpc": "2.0", "method": "notifications/message", "params": notice()})
            while True:
                self.wfile.write(b"event: message\ndata: " + log + b"\n")

    served = Flood if MODE == "http_flood" else Refusal
    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), served).serve_forever()


if __name__ == "__main__":
    main()
