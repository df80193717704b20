"""A server of 2024 that does not know requests from before the handshake. Standard library only.

old_server.py ignores | dies        what it does with such a request
"""

import json
import sys

MODE = sys.argv[1]
ready = False
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        ready = True
        result = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "serverInfo": {"name": MODE, "version": "1"},
        }
    elif "id" not in message:
        continue
    elif not ready and MODE == "dies":
        sys.exit("unexpected request")
    elif not ready:
        continue
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
