"""Servers whose lists are wrong, one way each; all else is right. Standard library only.

bad_lists.py MODE

endless        every page of tools leads to another one       repeated   the second page leads back to itself
huge N         N tools on one page                            many N     N tools on each of pages without end
wrong_types    tools that are no tools                        no_list    a result without tools
scalar         a result whose tools are a number              hang       never lists its tools; calls are answered
nothing        announces tools and lists none                 lying      announces tools and does not know the method
noisy          tells of a change with each list
"""

import json
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

MODE = sys.argv[1]
SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 1
PAGES = count(1)


def tools(size: int, page: int = 0) -> list[dict[str, Any]]:
    return [{"name": f"tool {page} {at}", "inputSchema": {"type": "object"}} for at in range(size)]


def listing() -> dict[str, Any] | None:
    """What is answered to tools/list; None is nothing, ever."""
    page = next(PAGES)
    found: dict[str, Any] = {
        "endless": {"tools": tools(1, page), "nextCursor": str(page)},
        "repeated": {"tools": tools(1, page), "nextCursor": "again"},
        "huge": {"tools": tools(SIZE)},
        "many": {"tools": tools(SIZE, page), "nextCursor": str(page)},
        "wrong_types": {"tools": [{"name": 7, "inputSchema": []}, "tool"]},
        "no_list": {"resources": []},
        "scalar": {"tools": 7},
        "nothing": {"tools": []},
        "noisy": {"tools": tools(1)},
    }
    return found.get(MODE)


def answers(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match message["method"]:
        case "initialize":
            yield result(
                message,
                {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": MODE, "version": "1"},
                },
            )
        case "tools/list" if MODE != "lying":
            if MODE == "noisy":
                yield {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            listed = listing()
            if listed is not None:
                yield result(message, listed)
        case "tools/call":
            yield result(message, {"content": [{"type": "text", "text": "called"}]})
        case "ping":
            yield result(message, {})
        case _:
            yield {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}


def result(message: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        if "id" in received and "method" in received:
            for answer in answers(received):
                print(json.dumps(answer), flush=True)
