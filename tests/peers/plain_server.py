"""A small server that asks in the middle of a call. 2025-11-25 over stdio, standard library only, so that many start
quickly; any number of calls may be under way.

    ask      asks for a name with `message`, and returns `accept NAME`, or what else was answered
    echo     returns `text`
"""

import json
import os
import sys
from typing import Any

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(answer: Any) -> None:
    """Keeps what was called as `journal.py` does; this file is also used alone, without what is beside it."""
    if path := os.environ.get("JOURNAL"):
        journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(journal, (json.dumps({"server": "plain", "answer": answer}) + "\n").encode())
        os.close(journal)


def returned(call_id: Any, text: str) -> None:
    send({"id": call_id, "result": {"content": [{"type": "text", "text": text}]}})


def main() -> None:
    asked: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        params = message.get("params") or {}
        match message.get("method"):
            case None:
                if message.get("id") in asked:
                    answer = message.get("result") or {"action": "error"}
                    name = (answer.get("content") or {}).get("name", "")
                    returned(asked.pop(message["id"]), f"{answer['action']} {name}")
            case "initialize":
                hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "plain", "version": "1"}}
                send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "echo")]
                send({"id": message["id"], "result": {"tools": tools}})
            case "tools/call" if params["name"] == "ask":
                question = f"q{len(asked)}-{message['id']}"
                asked[question] = message["id"]
                form = {"message": params["arguments"]["message"], "requestedSchema": FORM}
                send({"id": question, "method": "elicitation/create", "params": form})
            case "tools/call":
                note(params["arguments"])
                returned(message["id"], params["arguments"]["text"])
            case "ping":
                send({"id": message["id"], "result": {}})
            case _ if "id" in message:
                send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


if __name__ == "__main__":
    main()
