"""Hosts that have probably gone, in the terminal UI."""

from hubbub.v1 import mcp_pb2

from ..clients.conftest import ScriptedHub, hub
from .conftest import at_terminal
from .hostile_hub import script

__all__ = ["hub"]


async def test_hosts_that_have_probably_gone_are_shown_when_that_is_wanted(hub: ScriptedHub) -> None:
    script(hub)
    here = mcp_pb2.ConnectedHost(id="host_1", name="claude-code", endpoint="p/default", stream_open=True)
    left = mcp_pb2.ConnectedHost(id="host_2", name="cursor", endpoint="p/default", gone=True)
    hub.replies["ListHosts"] = lambda _: mcp_pb2.ListHostsResponse(hosts=[here, left])
    async with at_terminal(hub, size=(130, 32)) as ann:
        await ann.press("7")
        shown = await ann.sees(
            "1 host · 1 probably gone: h shows them", "claude-code", "stream        open", "last seen"
        )
        assert "cursor" not in shown
        await ann.press("h")
        await ann.sees("1 host · 1 probably gone: shown, too", "cursor", "Hide gone")
        await ann.press("j")
        await ann.sees("state         probably gone")
        await ann.press("h")
        await ann.no_longer_sees("cursor")
