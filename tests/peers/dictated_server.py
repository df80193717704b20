"""A server that asks whatever its caller dictates. 2025-11-25, standard library only.

ask     {questions: [{method, params}, ...]}      asks all at once; returns the responses, in that order
many    {count, question: {method, params}}       asks the same so often, and goes on at once; returns how many
fail    {}                                        says that it failed
tools   with {tools: [...]} as its only command line argument, those are listed too, and just return their arguments
"""

import json
import sys
from typing import Any

LISTED: list[dict[str, Any]] = json.loads(sys.argv[1])["tools"] if len(sys.argv) > 1 else []
waiting: dict[str, list[Any]] = {}
open_calls: dict[str, tuple[Any, int]] = {}
asked = 0


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def ask(group: str, questions: list[dict[str, Any]]) -> None:
    global asked
    waiting[group] = [None] * len(questions)
    for at, question in enumerate(questions):
        asked += 1
        send({"id": f"{group}:{at}:{asked}", **question})


def finish(call_id: Any, value: Any, **more: Any) -> None:
    send({"id": call_id, "result": {"content": [{"type": "text", "text": json.dumps(value)}], **more}})


def call(call_id: Any, name: str, given: dict[str, Any]) -> None:
    match name:
        case "ask":
            open_calls[f"call-{call_id}"] = (call_id, len(given["questions"]))
            ask(f"call-{call_id}", given["questions"])
        case "many":
            ask(f"many-{call_id}", [given["question"]] * given["count"])
            finish(call_id, given["count"])
        case "fail":
            finish(call_id, "no such file", isError=True)
        case _:
            finish(call_id, given)


def take(response: dict[str, Any]) -> None:
    group, at, _ = response["id"].split(":")
    waiting[group][int(at)] = {key: response[key] for key in ("result", "error") if key in response}
    if group in open_calls and all(waiting[group]):
        finish(open_calls.pop(group)[0], waiting.pop(group))


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "dictated", "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
        case "tools/list":
            own = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "many", "fail")]
            send({"id": message["id"], "result": {"tools": own + LISTED}})
        case "tools/call":
            call(message["id"], message["params"]["name"], message["params"].get("arguments", {}))
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
        sys.stdout.flush()
