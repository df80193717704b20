"""A server that asks exactly what its caller tells it to. 2025-11-25, standard library only.

ask {method, params}    sends that request and returns the response, as JSON; takes it back when that call is cancelled
$(echo hostile)         a tool whose name a shell would evaluate
"""

import json
import sys
from typing import Any

HOSTILE = "$(echo hostile)"
asked: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "relay", "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
        case "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", HOSTILE)]
            send({"id": message["id"], "result": {"tools": listed}})
        case "tools/call":
            own = f"asked-{message['id']}"
            asked[own] = message["id"]
            what = message["params"]["arguments"]
            send({"id": own, "method": what["method"], "params": what["params"]})
        case "notifications/cancelled":
            cancelled = [own for own, caller in asked.items() if caller == message["params"]["requestId"]]
            for own in cancelled:
                del asked[own]
                send({"method": "notifications/cancelled", "params": {"requestId": own, "reason": "no need"}})
        case "ping":
            send({"id": message["id"], "result": {}})
        case _ if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received and received["id"] in asked:
            text = json.dumps(received.get("result", received.get("error")))
            send({"id": asked.pop(received["id"]), "result": {"content": [{"type": "text", "text": text}]}})
        elif "method" in received:
            serve(received)
