"""Tickets at hosts made with the SDK's client, of calls of real servers."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from .conftest import LIMIT_S, RunningHub
from .test_hosts_questions import CELLS, TOOLS, host, text


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path) -> RunningHub:
    """A hub with a server of each family, and a profile that holds nothing."""
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(peer_scripts / f"{name}_server.py"), "stdio"],
            "protocol": revision,
        }
        for name, revision in (("asking", "2025-11-25"), ("mrtr", "2026-07-28"))
    }
    profiles = {"quick": {"hold_s": 0}}
    running = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, mcp={"profiles": profiles})
    await running.connected(*TOOLS)
    return running


@pytest.mark.parametrize(("mode", "server"), CELLS)
async def test_a_host_gives_up_and_fetches_the_result_once_the_inbox_has_answered(
    hub: RunningHub, mode: str, server: str
) -> None:
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, "/p/quick", None) as client:
            ticket = await client.call_tool(f"{server}__{TOOLS[server]}", {})
            assert ticket.is_error  # the SDK's tools have an output schema, and its client looks at it
            assert ticket.meta is not None
            call_id = ticket.meta["hubbub/callId"]
            again = await client.call_tool("hubbub_result", {"call_id": call_id})
            assert text(again) == text(ticket)
            (asked,) = await hub.asked()
            assert asked.id in text(ticket)
            await asked.accept({"name": "Grace"})
            await hub.client.calls.handle(call_id).wait()
            for _ in range(2):
                result = await client.call_tool("hubbub_result", {"call_id": call_id})
                assert text(result).endswith("Grace")
                assert result.structured_content == {"result": text(result)}
