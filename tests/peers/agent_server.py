"""An agent as `codex mcp-server` 0.153 is: it asks with members of its own, and reads `decision` alone.

Standard library only.

codex   {prompt}    "command": asks to run one; "patch": asks to change files; "work": works on, and returns when told
go      {}          lets all that work return
"""

import json
import sys
from typing import Any

THREAD = "01a227dc-e3d4-7292-bb8c-456de4b14b31"
SCRIPT = "cd shop && \\\n  npm test -- --silent\nnpm run build"
FORM = {"type": "object", "properties": dict[str, Any]()}
COMMAND = {
    "message": f'Allow Codex to run `/bin/bash -lc "{SCRIPT}"` in `/srv/shop`?',
    "codex_elicitation": "exec-approval",
    "codex_command": ["/bin/bash", "-lc", SCRIPT],
    "codex_cwd": "/srv/shop",
    "codex_parsed_cmd": [{"type": "unknown", "cmd": SCRIPT}],
}
DIFF = "@@ -1,3 +1,3 @@\n def total(items):\n-    return sum(items)\n+    return round(sum(items), 2)\n \n"
PATCH = {
    "message": "Allow Codex to apply proposed code changes?",
    "codex_elicitation": "patch-approval",
    "codex_changes": {
        "/srv/shop/prices.py": {"type": "update", "unified_diff": DIFF, "move_path": None},
        "/srv/shop/old_prices.py": {"type": "delete", "content": "RATE = 7\n"},
        "/srv/shop/test_prices.py": {"type": "add", "content": "def test_total():\n    assert total([]) == 0\n"},
    },
}
SCHEMA = {"type": "object", "properties": {"prompt": {"type": "string"}}}

working: list[Any] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(call_id: Any, kind: str) -> None:
    params = {"_meta": {"requestId": call_id, "threadId": THREAD}, "id": "", "msg": {"type": kind}}
    send({"method": "codex/event", "params": params})


def finish(call_id: Any, text: str) -> None:
    tell(call_id, "task_complete")
    content = {"threadId": THREAD, "content": text}
    send({"id": call_id, "result": {"content": [{"type": "text", "text": text}], "structuredContent": content}})


def ask(call_id: Any, question: dict[str, Any]) -> None:
    names = {"codex_mcp_tool_call_id": str(call_id), "codex_event_id": "1", "codex_call_id": "call_2"}
    params = {"requestedSchema": FORM, "threadId": THREAD, **names, **question}
    send({"id": f"ask-{call_id}", "method": "elicitation/create", "params": params})


def call(call_id: Any, name: str, given: dict[str, Any]) -> None:
    tell(call_id, "task_started")
    match given.get("prompt"):
        case "command":
            ask(call_id, COMMAND)
        case "patch":
            ask(call_id, PATCH)
        case "work":
            working.append(call_id)
        case _ if name == "go":
            for each in [*working, call_id]:
                finish(each, "done")
            working.clear()
        case _:
            finish(call_id, "nothing to do")


def take(response: dict[str, Any]) -> None:
    """Read an answer as codex does: without a `decision` of its own beside the action, it is denied."""
    decision = response.get("result", {}).get("decision", "denied, as there is no decision")
    finish(int(response["id"].removeprefix("ask-")), str(decision))


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case None:
            take(message)
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "codex-mcp-server", "version": "0.153.4"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-06-18", **hello}})
        case "tools/list":
            tools = [{"name": name, "inputSchema": SCHEMA} for name in ("codex", "go")]
            send({"id": message["id"], "result": {"tools": tools}})
        case "tools/call":
            call(message["id"], message["params"]["name"], message["params"].get("arguments", {}))
        case "ping":
            send({"id": message["id"], "result": {}})
        case method if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})
        case _:
            pass
