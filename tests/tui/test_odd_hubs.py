"""What a scripted hub can say and a real one seldom does: hosts that have gone, several addresses, a lost answer."""

import json

from hubbub.v1 import mcp_pb2

from ..clients.conftest import ScriptedHub, hub
from .conftest import at_terminal
from .hostile_hub import refuses, script

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


async def test_the_line_at_the_top_says_which_address_of_how_many_is_in_use(hub: ScriptedHub, free_port: int) -> None:
    script(hub)
    several = {"address": f"127.0.0.1:{free_port},{hub.address}", "token": hub.token}
    (hub.data_dir / "client.json").write_text(json.dumps(several))
    async with at_terminal(hub, size=(170, 40)) as ann:
        await ann.sees(f"{hub.address} (one of 2) ● live")


async def test_an_answer_that_is_sent_again_has_the_id_of_the_first_attempt(hub: ScriptedHub) -> None:
    script(hub)
    hub.replies["AnswerPendingRequest"] = refuses("UNAVAILABLE")
    async with at_terminal(hub, size=(170, 60)) as ann:
        await ann.sees("open requests")
        await ann.press("ctrl+home", "enter")
        await ann.sees("Leave open", "title")
        await ann.press("ctrl+s")
        await ann.sees("is required")
        await ann.types("well")
        await ann.press("ctrl+s")
        await ann.sees("ctrl+s sends it again")
        hub.replies["AnswerPendingRequest"] = refuses(reason="ALREADY_CLAIMED")
        await ann.press("ctrl+s")
        await ann.sees("refused; what you wrote is kept here")
    first, second = (request.answer_id for request in hub.requests("AnswerPendingRequest"))
    assert first == second
    assert first
