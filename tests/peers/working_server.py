"""A small server that keeps a journal. 2025-11-25 over stdio, standard library only.

work     notes `text` in the journal, and returns it once the file that GO names is there
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
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def work(call_id: Any, text: str) -> None:
    note("working", text)
    while not Path(os.environ["GO"]).exists():
        time.sleep(POLL_S)
    send({"id": call_id, "result": {"content": [{"type": "text", "text": text}]}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "working", "version": "1"}}
                send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **hello}})
            case "tools/list":
                send({"id": message["id"], "result": {"tools": [{"name": "work", "inputSchema": SCHEMA}]}})
            case "tools/call":
                text = message["params"]["arguments"]["text"]
                threading.Thread(target=work, args=(message["id"], text), daemon=True).start()
            case "ping":
                send({"id": message["id"], "result": {}})
            case _ if "id" in message:
                send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


if __name__ == "__main__":
    main()
