"""A server that asks on the wire although its revision knows no such request."""

import json
import sys
from pathlib import Path
from typing import Any

SERVER = "bad"


async def test_a_stateless_server_has_nothing_to_ask_on_the_wire(start_shared_hub: Any, peer_scripts: Path) -> None:
    script = str(peer_scripts / "bad_answers.py")
    hub = await start_shared_hub({SERVER: {"command": sys.executable, "args": ["-I", "-S", script]}})
    await hub.connected(SERVER)
    response = json.loads((await hub.client.call_tool(SERVER, "asks_back")).text)
    assert response["error"]["code"] == -32601
    assert await hub.client.inbox.list(states=["open"]) == []
    assert (await hub.client.servers.get(SERVER)).state == "connected"
