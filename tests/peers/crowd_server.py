"""A server that asks many questions at once, and notes each answer that it receives. 2025-11-25, standard library only.

The tool `ask` takes `count`; every third question is a sampling, the others are forms. It returns when all have come.
"""

import json
import sys
from typing import Any

from journal import note

FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
waiting: dict[Any, set[str]] = {}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(call_id: Any, count: int) -> None:
    waiting[call_id] = {f"{call_id}-{number}" for number in range(count)}
    for number in range(count):
        words = f"question {number}"
        if number % 3 == 2:
            message = {"role": "user", "content": {"type": "text", "text": words}}
            send_one(f"{call_id}-{number}", "sampling/createMessage", {"messages": [message], "maxTokens": 9})
        else:
            send_one(f"{call_id}-{number}", "elicitation/create", {"message": words, "requestedSchema": FORM})


def send_one(request_id: str, method: str, params: dict[str, Any]) -> None:
    send({"id": request_id, "method": method, "params": params})


def take(response: dict[str, Any]) -> None:
    note(sys.argv[1], response)
    for call_id, left in [*waiting.items()]:
        left.discard(response["id"])
        if not left:
            del waiting[call_id]
            send({"id": call_id, "result": {"content": [{"type": "text", "text": "all answered"}]}})


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "crowd", "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
        case "tools/list":
            send({"id": message["id"], "result": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}})
        case "tools/call":
            ask(message["id"], message["params"]["arguments"]["count"])
        case "ping":
            send({"id": message["id"], "result": {}})
        case _:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received:
            take(received)
        elif "id" in received:
            serve(received)
