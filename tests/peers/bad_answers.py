"""A server of 2026-07-28 that sends a request of its own although that revision knows none. Standard library only.

Its tool `asks_back` returns what came back.
"""

import json
import sys
from typing import Any

COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
QUESTION = {"message": "?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
RESULTS: dict[str, Any] = {
    "server/discover": {
        **COMPLETE,
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bad-answers", "version": "1"},
    },
    "tools/list": {**COMPLETE, "tools": [{"name": "asks_back", "inputSchema": {"type": "object"}}]},
    "ping": {},
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    call_id: Any = None
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received:
            send({"id": call_id, "result": {"content": [{"type": "text", "text": json.dumps(received)}]}})
        elif received["method"] == "tools/call":
            call_id = received["id"]
            send({"id": "q", "method": "elicitation/create", "params": QUESTION})
        elif "id" in received:
            send({"id": received["id"], "result": RESULTS[received["method"]]})
