"""Many sessions of a real client that pause between calls for as long as it keeps a connection: none is lost."""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from ..e2e.conftest import RunningHub, start_hub

__all__ = ["start_hub"]

HERE = Path(__file__).parent
LIMIT_S = 120
SESSIONS, ROUNDS = 150, 2


async def test_no_session_ends_that_pauses_for_as_long_as_its_client_keeps_connections(
    start_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path, mcp1_python: str
) -> None:
    servers = {"one": {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}}
    most = {"mcp_sessions_per_principal": 2 * SESSIONS, "mcp_streams_per_principal": 4 * SESSIONS}
    hub = await start_hub(servers, hub={"mcp_listen": "127.0.0.1:0", **most}, connected=True)
    command = [mcp1_python, str(HERE / "sdk1_pauses.py"), hub.ready["mcp"], str(SESSIONS), str(ROUNDS)]
    with anyio.fail_after(LIMIT_S):
        ended = await anyio.run_process(command, env=os.environ | {"TOKEN": hub.token}, stderr=None)
    assert json.loads(ended.stdout) == {"answered": SESSIONS * ROUNDS, "failed": {}}
