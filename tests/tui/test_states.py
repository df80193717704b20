"""Questions and calls with odd ends, as the terminal UI shows them."""

from ..clients.conftest import ScriptedHub, hub
from ..clients.states import WHY_OVER, script
from .conftest import at_terminal

__all__ = ["hub"]


async def test_a_question_that_is_held_for_a_host_says_for_which_and_until_when(hub: ScriptedHub) -> None:
    script(hub)
    async with at_terminal(hub, size=(100, 30)) as ann:
        await ann.sees("held for claude-code  Held?")
        await ann.press("slash")
        await ann.types("held?")
        await ann.press("enter", "enter")
        await ann.sees("held for claude-code until ", "what you send now is refused")


async def test_what_became_of_a_question_without_an_answer_is_told_as_it_was(hub: ScriptedHub) -> None:
    script(hub)
    async with at_terminal(hub, size=(150, 40)) as ann:
        await ann.press("h", "slash")
        await ann.types("expired?")
        shown = await ann.sees("state         expired", f"reason        {WHY_OVER}")
        assert "dismissed" not in shown
        await ann.types("withdrawn?")
        await ann.sees("state         withdrawn", "release was cancelled: its caller hung up")


async def test_where_the_hub_is_lost_the_first_line_is_not_cut(hub: ScriptedHub) -> None:
    script(hub)
    async with at_terminal(hub) as ann:
        await ann.sees("· as ann · 2 forms")
        await hub.stop()
        shown = await ann.sees("lost, reconnecting")
        assert shown.splitlines()[0].endswith("lost, reconnecting · as ann")
