"""A page that must be visited before a call can succeed, and a server that tells when it was (error -32042)."""

from pathlib import Path
from typing import Any

import anyio
import pytest

LIMIT_S = 60


@pytest.fixture(params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_hub: Any, reached: Any, mcp1_python: str, peer_scripts: Path
) -> Any:
    """A hub with a server that wants a page visited."""
    return await start_hub(
        {"pages": reached(request.param, mcp1_python, str(peer_scripts / "pages_server.py"))}, connected=True
    )


async def said(hub: Any, tool: str) -> str:
    return (await hub.client.call_tool("pages", tool)).text


async def test_a_call_sent_again_too_early_goes_on_when_the_server_says_that_the_page_was_visited(hub: Any) -> None:
    call = await hub.client.start_tool("pages", "statement")
    (asked,) = await hub.asked(call_id=call.id)
    assert (asked.kind, asked.request["url"]) == ("elicitation_url", "https://example.com/sign-in")
    await hub.answer(asked, "--accept")
    with anyio.fail_after(LIMIT_S):
        while await said(hub, "count") != "2":
            await anyio.sleep(0.05)
    waiting = await hub.call(call.id, "waiting_input")
    assert waiting.pending_ids == (asked.id,)  # nobody is asked a second time
    assert await said(hub, "visit") == "visited"
    ended = await hub.call(call.id)
    assert ended.result["content"][0]["text"] == "attempt 3"
    assert (await hub.request(asked.id, delivery="delivered")).state == "answered"
