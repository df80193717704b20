"""A server that asks for what nobody should have to read. 2025-11-25, standard library only.

Each tool asks one question, or as many as its arguments say, and returns the answers as JSON.

    strict       a mail address                      all_kinds    a field of every kind
    markup       markup, control characters and right-to-left tricks wherever a text may stand
    enormous     a form of 5000 fields               look_alike   a page whose host looks like another
    flood        so many questions at once (`count`), to which nobody waits for an answer
"""

import json
import sys
from typing import Any

TRICK = "[bold red]\u202egnp.exe[/] \x1b[31m\x07 <script>alert(1)</script> [@click=app.quit]click[/]"


def choices(*titles: str) -> list[dict[str, str]]:
    return [{"const": title.lower(), "title": title} for title in titles]


STRICT = {
    "type": "object",
    "properties": {"mail": {"type": "string", "title": "Mail", "format": "email"}},
    "required": ["mail"],
}
ALL_KINDS = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "title": "Size", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "toppings": {"type": "array", "title": "Toppings", "items": {"anyOf": choices("Cheese", "Olives", "Ham")}},
        "member": {"type": "boolean", "title": "Member"},
        "day": {"type": "string", "title": "Day", "format": "date"},
        "weight": {"type": "number", "title": "Weight", "minimum": 0.5},
    },
    "required": ["size"],
}
MARKUP = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "title": TRICK, "description": TRICK, "default": TRICK},
        "b": {"type": "string", "title": "b", "oneOf": [{"const": TRICK, "title": TRICK}], "default": TRICK},
        TRICK: {"type": "array", "items": {"type": "string", "enum": [TRICK]}},
    },
}
ENORMOUS = {"type": "object", "properties": {f"field {n}": {"type": "string"} for n in range(5000)}}
PAGE = "https://user@xn--exmple-cua.com:8443/login?next=https://example.com"

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "strict": ("A strict form", STRICT),
    "all_kinds": ("A form of all kinds", ALL_KINDS),
    "markup": (TRICK, MARKUP),
    "enormous": ("An enormous form", ENORMOUS),
    "flood": ("A question", STRICT),
}
# The calls that wait for the answer to a question.
waiting: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(call_id: Any, name: str, arguments: dict[str, Any]) -> None:
    if name == "look_alike":
        params: dict[str, Any] = {"mode": "url", "message": TRICK, "url": PAGE, "elicitationId": "page"}
    else:
        message, schema = FORMS[name]
        params = {"message": message, "requestedSchema": schema}
    count = arguments.get("count", 1)
    for number in range(count):
        numbered = {**params, "message": f"{params['message']} {number}"} if count > 1 else params
        send({"id": f"{call_id}-{number}", "method": "elicitation/create", "params": numbered})
    if count == 1:
        waiting[f"{call_id}-0"] = call_id
    else:
        finish(call_id, count)


def finish(call_id: Any, what: Any) -> None:
    send({"id": call_id, "result": {"content": [{"type": "text", "text": json.dumps(what)}]}})


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": TRICK, "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
        case "tools/list":
            tools = [
                {"name": name, "title": TRICK if name == "markup" else name, "inputSchema": {"type": "object"}}
                for name in (*FORMS, "look_alike")
            ]
            send({"id": message["id"], "result": {"tools": tools}})
        case "tools/call":
            call(message["id"], message["params"]["name"], message["params"].get("arguments") or {})
        case "ping":
            send({"id": message["id"], "result": {}})
        case _:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        if "method" not in received:
            if received["id"] in waiting:
                finish(waiting.pop(received["id"]), received.get("result") or received.get("error"))
        elif "id" in received:
            serve(received)
