"""A server whose results and lists are what its caller wants, letter by letter. Standard library only.

    mirror_server.py [--stateless]      2025-11-25, or 2026-07-28; on stdio

mirror  {result}     returns this text as its result
offer   {lists}      from now on lists these: {method: text of the result}; says so
"""

import json
import sys
from typing import Any

STATELESS = "--stateless" in sys.argv
NAME = {"name": "mirror", "version": "1"}
OFFERS: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {"listChanged": True}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("mirror", "offer")]
CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if STATELESS else {}

lists: dict[str, str] = {}


def reply(id_: Any, result: str) -> None:
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"result":{result}}}\n')


def call(name: str, given: dict[str, Any]) -> str:
    if name == "mirror":
        return given["result"]
    lists.update(given["lists"])
    return json.dumps({"content": [], **({"resultType": "complete"} if STATELESS else {})})


def serve(id_: Any, method: str, params: dict[str, Any]) -> None:
    match method:
        case "initialize":
            reply(id_, json.dumps({"protocolVersion": "2025-11-25", "capabilities": OFFERS, "serverInfo": NAME}))
        case "server/discover":
            about = {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS, "serverInfo": NAME}
            reply(id_, json.dumps(CACHED | about))
        case "tools/call":
            reply(id_, call(params["name"], params["arguments"]))
        case _ if method in lists:
            reply(id_, lists[method])
        case "tools/list":
            reply(id_, json.dumps(CACHED | {"tools": TOOLS}))
        case "resources/list":
            reply(id_, json.dumps(CACHED | {"resources": []}))
        case "resources/templates/list":
            reply(id_, json.dumps(CACHED | {"resourceTemplates": []}))
        case _:
            reply(id_, "{}")


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        serve(message["id"], message["method"], message.get("params") or {})
        sys.stdout.flush()
