"""One of these servers over HTTP, which also notes each request: which member of a fleet sent it, and when.

    framed_server.py MODULE        (PORT in the environment; FRAMES names the file, SERVER is the name that is noted)

Members tell their names in the header X-Member.
"""

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

from mcp.server.mcpserver import MCPServer


def framed(app: Any) -> Any:
    """The application, whose requests are noted as they come: one write each, so that a line is whole or not there."""
    descriptor = os.open(os.environ["FRAMES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            member = dict(scope["headers"]).get(b"x-member", b"").decode()
            line = {"at": time.time(), "server": os.environ["SERVER"], "member": member, "method": scope["method"]}
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        await app(scope, receive, send)

    return noted


def main() -> None:
    import uvicorn

    served: MCPServer[Any] = import_module(sys.argv[1]).mcp
    app = framed(served.streamable_http_app())
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")


if __name__ == "__main__":
    main()
