"""A person at the terminal reads what an agent would do, and decides."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import RunningHub, at_terminal

AGENT = Path(__file__).parents[1] / "peers" / "agent_server.py"


async def test_what_an_agent_would_do_is_read_and_approved_for_its_session(start_hub: Callable[..., Any]) -> None:
    hub: RunningHub = await start_hub(
        {"codex": {"command": sys.executable, "args": ["-I", "-S", str(AGENT)]}}, connected=True
    )
    call = await hub.client.start_tool("codex", "codex", {"prompt": "command"})
    async with at_terminal(hub, size=(80, 44)) as ann:
        await ann.sees('Allow Codex to run `/bin/bash -lc "cd shop &', "1 form")
        await ann.press("enter")
        await ann.sees("Command, run by /bin/bash -lc", "npm test -- --silent", "in the folder /srv/shop")
        await ann.sees("More from the server")
        await ann.sees("Approve (ctrl+s)", "Session (f5)", "Deny (f8)", "Stop (f9)", "Leave open (esc)")
        await ann.press("f5")
        await ann.sees("Nothing waits for you")
    assert (await hub.call(call.id)).result["content"][0]["text"] == "approved_for_session"
