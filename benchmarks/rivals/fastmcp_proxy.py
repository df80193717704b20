"""FastMCP's proxy as its documents have it, over streamable HTTP. It runs without our environment.

Argument: the server, in JSON. PORT in the environment.
"""

import json
import os
import sys

from fastmcp.server import create_proxy

if __name__ == "__main__":
    proxy = create_proxy({"mcpServers": {"echo": json.loads(sys.argv[1])}})
    proxy.run(transport="http", host="127.0.0.1", port=int(os.environ["PORT"]), show_banner=False, log_level="ERROR")
