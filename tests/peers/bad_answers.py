"""A server whose answers are wrong, a tool for each way; all else is right. Standard library only.

    bad_answers.py 2025-11-25 | 2026-07-28

The tool `asks_back` sends a request of its own, also where the revision knows none, and returns the response.
Its list says nothing of what comes: every tool takes part in tasks, none is one unless its name says so.
"""

import json
import sys
from typing import Any

REVISION = sys.argv[1]
STATELESS = REVISION == "2026-07-28"
OPTIONAL = {"taskSupport": "optional"}
NOW = "2025-11-25T10:00:00Z"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
TEXT = [{"type": "text", "text": "well"}]
TASK = {"taskId": "T", "status": "working", "createdAt": NOW, "lastUpdatedAt": NOW, "ttl": None, "pollInterval": 100}
ASK_AGAIN = {"a": {"method": "elicitation/create", "params": {"message": "Again?", "requestedSchema": FORM}}}
BLOB = "x" * 1_000_000

# What comes instead of a response's `result`, by tool.
RESULTS: dict[str, Any] = {
    "echo": {"content": TEXT},
    "wrong_content": {"content": "no list"},
    "wrong_block": {"content": [{"type": "text", "text": 7}]},
    "strange_block": {"content": [{"type": "smell", "scent": "roses"}]},
    "wrong_structure": {"content": [], "structuredContent": [7]},
    "wrong_flag": {"content": [], "isError": "perhaps"},
    "no_content": {"well": "done"},
    "number": 7,
    "list": [TEXT],
    "null": None,
    "unasked_task": {"task": TASK},
    "task_without_name": {"task": {**TASK, "taskId": 7}},
    "task_of_no_status": {"task": {**TASK, "status": "dancing"}},
    "task_that_is_none": {"task": "T"},
    "task_unknown": {"task": TASK},
    "surprise": {"resultType": "surprise"},
    "type_7": {"resultType": 7, "content": []},
    "no_questions": {"resultType": "input_required"},
    "wrong_questions": {"resultType": "input_required", "inputRequests": [7]},
    "strange_question": {"resultType": "input_required", "inputRequests": {"a": {"method": "tools/list"}}},
    "wrong_state": {"resultType": "input_required", "requestState": 7},
    "endless": {"resultType": "input_required", "requestState": BLOB},
    "crowd": {"resultType": "input_required", "inputRequests": {str(n): ASK_AGAIN["a"] for n in range(2000)}},
}
# What comes instead of a response, by tool.
RESPONSES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "both": {"result": {"content": TEXT}, "error": {"code": 1, "message": "and yet not"}},
    "other_version": {"jsonrpc": "1.0", "result": {"content": TEXT}},
    "error_text": {"error": "it went wrong"},
    "error_code": {"error": {"code": "E7", "message": "it went wrong"}},
    "method_not_found": {"error": {"code": -32601, "message": "Method not found"}},
    "refused_revision": {
        "error": {"code": -32022, "message": "no", "data": {"supported": ["1999-01-01"], "requested": REVISION}}
    },
}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """What belongs into the response besides version and id."""
    info = {"name": "bad-answers", "version": "1"}
    tools = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    match message["method"]:
        case "initialize" if not STATELESS:
            return {"result": {"protocolVersion": REVISION, "capabilities": tools, "serverInfo": info}}
        case "server/discover" if STATELESS:
            return {
                "result": {
                    "resultType": "complete",
                    "supportedVersions": [REVISION],
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            }
        case "tools/list":
            names = [*RESULTS, *RESPONSES]
            listed = [{"name": name, "inputSchema": {"type": "object"}, "execution": OPTIONAL} for name in names]
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if STATELESS else {}
            return {"result": {"tools": listed, **more}}
        case "tools/call":
            name = message["params"]["name"]
            return RESPONSES[name] if name in RESPONSES else {"result": RESULTS[name]}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    waiting: Any = None
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received:
            # What came back of the request that `asks_back` sent is what that tool returns.
            text = json.dumps(received)
            send({"id": waiting, "result": {"content": [{"type": "text", "text": text}]}})
        elif "id" in received and (received.get("params") or {}).get("name") == "asks_back":
            waiting = received["id"]
            send({"id": "q", **ASK_AGAIN["a"]})
        elif "id" in received:
            send({"id": received["id"], **answer(received)})
