"""A stdio server that costs next to nothing, so that what is measured is the way to it.

`echo` returns its text; `ask` asks a form question and returns when it did so, by the machine's monotonic clock;
`ask_all` returns and asks `count` of them; `flood` returns and sends `count` log messages of `size` bytes, evenly over
`seconds`.
"""

import sys
from collections.abc import Callable
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import Any

import orjson

MORE = int(sys.argv[1]) if len(sys.argv) > 1 else 0
"""How many more tools it has, for a long list."""
NAMES = ("echo", "ask", "ask_all", "flood", *(f"tool_{number}" for number in range(MORE)))
TOOLS = [{"name": name, "description": "x" * 200, "inputSchema": {"type": "object"}} for name in NAMES]
ONE_AT_A_TIME = Lock()
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def send(**message: Any) -> None:
    """Writes one message."""
    with ONE_AT_A_TIME:
        sys.stdout.buffer.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
        sys.stdout.buffer.flush()


def text(value: str) -> dict[str, Any]:
    """The result of a tool that returns a text."""
    return {"content": [{"type": "text", "text": value}]}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request that is answered at once."""
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "light", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return text(params["arguments"].get("text", ""))
        case _:
            return None


def ask(request_id: str) -> None:
    """Asks who the other side is."""
    params = {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}
    send(id=request_id, method="elicitation/create", params=params)


def ask_all(count: int) -> None:
    """Asks so many times, without waiting for an answer."""
    for number in range(count):
        ask(f"one-{perf_counter()}-{number}")


def flood(count: int, size: int, seconds: float) -> None:
    """Sends log messages beside all else; what the reader does not take in time is sent late."""

    def run() -> None:
        began = perf_counter()
        for sent in range(count):
            sleep(max(0.0, began + seconds * sent / count - perf_counter()))
            send(method="notifications/message", params={"level": "info", "data": "x" * size})

    Thread(target=run, daemon=True).start()


BESIDE: dict[str, Callable[..., None]] = {"ask_all": ask_all, "flood": flood}
"""What a tool does after it has returned."""


def main() -> None:
    """Serves until stdin ends."""
    asked: dict[str, tuple[int, float]] = {}
    for line in sys.stdin.buffer:
        message = orjson.loads(line)
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            if request_id in asked:
                call_id, since = asked.pop(request_id)
                send(id=call_id, result=text(repr(since)))
        elif request_id is None:
            continue
        elif method == "tools/call" and message["params"]["name"] == "ask":
            asked[f"ask-{request_id}"] = request_id, perf_counter()
            ask(f"ask-{request_id}")
        elif method == "tools/call" and message["params"]["name"] in BESIDE:
            send(id=request_id, result=text(""))
            BESIDE[message["params"]["name"]](**message["params"]["arguments"])
        elif (result := result_of(method, message.get("params", {}))) is not None:
            send(id=request_id, result=result)
        else:
            send(id=request_id, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
