"""A small server with a result of each kind. 2025-11-25 over stdio, standard library only; calls may overlap.

    text     returns `text`
    number   returns an object, and says something else as text
    picture  returns an image
    pointer  returns a link to a resource
    ask      asks for a name with `message`, and returns `accept NAME`, or what else was answered
    work     notes `text` in the journal, and returns it once the file that GO names is there, or never

TOOLS=60 adds as many that do nothing.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from journal import note

POLL_S = 0.01
PNG = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR4nGM4IWdDEmIY1TCqYfhqAAC5FCIQyPWhDAAAAABJRU5ErkJggg=="
"""A square of 16 by 16 dots."""

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NUMBER = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def offered() -> list[dict[str, Any]]:
    words = {"type": "object", "properties": {name: {"type": "string"} for name in ("text", "message")}}
    tools = [{"name": name, "inputSchema": words} for name in ("text", "picture", "pointer", "ask", "work")]
    idle = [{"name": f"idle_{number}", "inputSchema": words} for number in range(int(os.environ.get("TOOLS", "0")))]
    return [*tools, {"name": "number", "inputSchema": words, "outputSchema": NUMBER}, *idle]


def work(call_id: Any, text: str) -> None:
    note("tour", {"working": text})
    while not Path(os.environ["GO"]).exists():
        time.sleep(POLL_S)
    send({"id": call_id, "result": said(text)})


def use(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool that returns at once."""
    link = {"type": "resource_link", "uri": "test://paper", "name": "paper", "mimeType": "text/plain"}
    match name:
        case "text":
            return said(given["text"])
        case "number":
            return {**said('{"degrees": 21.5}'), "structuredContent": {"degrees": 21.5}}
        case "picture":
            return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
        case "pointer":
            return {"content": [link]}
        case _:
            return said("nothing")


def main() -> None:
    asked: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case None:
                if message.get("id") in asked:
                    answer = message.get("result") or {"action": "error"}
                    name = (answer.get("content") or {}).get("name", "")
                    send({"id": asked.pop(message["id"]), "result": said(f"{answer['action']} {name}")})
            case "initialize":
                hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "tour", "version": "1"}}
                send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
            case "tools/list":
                send({"id": message["id"], "result": {"tools": offered()}})
            case "tools/call" if params["name"] == "ask":
                question = f"q{len(asked)}-{message['id']}"
                asked[question] = message["id"]
                form = {"message": params["arguments"]["message"], "requestedSchema": FORM}
                send({"id": question, "method": "elicitation/create", "params": form})
            case "tools/call" if params["name"] == "work":
                threading.Thread(target=work, args=(message["id"], params["arguments"]["text"]), daemon=True).start()
            case "tools/call":
                send({"id": message["id"], "result": use(params["name"], params["arguments"])})
            case "ping":
                send({"id": message["id"], "result": {}})
            case _ if "id" in message:
                send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


if __name__ == "__main__":
    main()
