"""An answer that did not reach the hub, sent again."""

from ..clients.conftest import ScriptedHub, hub
from .conftest import at_terminal
from .hostile_hub import refuses, script

__all__ = ["hub"]


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
