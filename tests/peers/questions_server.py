"""A server that asks with exactly the messages that a test wants to see answered. 2025-11-25, standard library only.

Each tool asks and returns what came back, as JSON: `{id: response}`.

    two          two questions at once            twins      two at once under the same id
    echoed       one that comes twice
    blocked      a plain question and a ping while tasks/result waits for the answer to one that was asked as a task
    keep         asks as a task, and then takes back only the request that made it; returns the task
    take_back    asks, and waits                  cancel     takes that question back, and waits for a ping
    report       the ids of all responses so far
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
responses: list[dict[str, Any]] = []
running: dict[Any, Iterator[None]] = {}


def send(*messages: dict[str, Any]) -> None:
    """Write them in one piece, so that a reader of the first has the others as well."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    sys.stdout.flush()


def question(request_id: str, **more: Any) -> dict[str, Any]:
    params = {"message": f"question {request_id}", "requestedSchema": FORM, **more}
    return {"id": request_id, "method": "elicitation/create", "params": params}


def ask(request_id: str, **more: Any) -> None:
    send(question(request_id, **more))


def come(*ids: str) -> dict[str, Any] | None:
    """The responses with these ids, once all are there."""
    found = {response["id"]: response for response in responses if response["id"] in ids}
    return found if len(found) == len(ids) else None


def two(call_id: Any) -> Iterator[None]:
    ask("a")
    ask("b")
    while (found := come("a", "b")) is None:
        yield
    finish(call_id, found)


def twins(call_id: Any) -> Iterator[None]:
    ask("twin", message="first twin")
    ask("twin", message="second twin")
    while len([response for response in responses if response["id"] == "twin"]) < 2:
        yield
    finish(call_id, [response for response in responses if response["id"] == "twin"])


def echoed(call_id: Any) -> Iterator[None]:
    send(question("echo"), question("echo"))
    while come("echo") is None:
        yield
    send({"id": "seen", "method": "ping"})
    while come("seen") is None:
        yield
    finish(call_id, [response for response in responses if response["id"] == "echo"])


def blocked(call_id: Any) -> Iterator[None]:
    ask("create", task={"ttl": 600_000})
    while (created := come("create")) is None:
        yield
    send(
        {"id": "result", "method": "tasks/result", "params": {"taskId": created["create"]["result"]["task"]["taskId"]}}
    )
    ask("plain")
    send({"id": "ping", "method": "ping"})
    while come("ping", "plain", "result") is None:
        yield
    finish(call_id, [response for response in responses if response["id"] in ("ping", "plain", "result")])


def take_back(call_id: Any) -> Iterator[None]:
    ask("taken back")
    while come("seen") is None:
        yield
    finish(call_id, "taken back")


def cancel(call_id: Any) -> Iterator[None]:
    send({"method": "notifications/cancelled", "params": {"requestId": "taken back", "reason": "no need"}})
    send({"id": "seen", "method": "ping"})
    while come("seen") is None:
        yield
    finish(call_id, "cancelled")


def keep(call_id: Any) -> Iterator[None]:
    ask("create", task={"ttl": 600_000})
    while (created := come("create")) is None:
        yield
    send({"method": "notifications/cancelled", "params": {"requestId": "create"}})
    send({"id": "get", "method": "tasks/get", "params": {"taskId": created["create"]["result"]["task"]["taskId"]}})
    while (found := come("get")) is None:
        yield
    finish(call_id, found["get"]["result"])


def report(call_id: Any) -> Iterator[None]:
    finish(call_id, [response["id"] for response in responses])
    yield


TOOLS = {tool.__name__: tool for tool in (two, twins, echoed, blocked, take_back, cancel, keep, report)}


def finish(call_id: Any, what: Any) -> None:
    send({"id": call_id, "result": {"content": [{"type": "text", "text": json.dumps(what)}]}})


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "questions", "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
        case "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            send({"id": message["id"], "result": {"tools": listed}})
        case "tools/call":
            running[message["id"]] = TOOLS[message["params"]["name"]](message["id"])
        case "ping":
            send({"id": message["id"], "result": {}})
        case _:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received:
            responses.append(received)
        elif "id" in received:
            serve(received)
        for key, tool in [*running.items()]:
            if next(tool, running) is running:
                del running[key]
