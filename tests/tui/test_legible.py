"""Text that others wrote reaches the screen with nothing in it that steers a terminal, turns text or cannot be seen."""

import pytest
from rich.segment import ControlType, Segment
from textual.app import App
from textual.color import Color
from textual.widgets import Static

from hubbub.v1 import inbox_pb2, server_pb2
from hubbub_shared.legible import NOT_LEGIBLE, is_clean
from hubbub_tui.app import HubbubApp
from hubbub_tui.output_filter import CleanOutput

from ..clients.conftest import ScriptedHub, hub
from .conftest import Person, at_terminal
from .hostile_hub import TRICK, events, questions, refused_watch, refuses, script

__all__ = ["hub"]

SIZE = (170, 60)
MARK = "\N{REPLACEMENT CHARACTER}"


class Looks:
    """Somebody who looks closely at each screen."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.leaks: dict[str, set[str]] = {}

    async def at(self, where: str, *texts: str) -> str:
        """Waits until the screen shows these; notes what it should not have."""
        shown = await self.person.sees(*texts)
        found = {f"U+{ord(each):04X}" for line in shown.split("\n") for each in NOT_LEGIBLE.findall(line)}
        found |= {f"U+{ord(each):04X}" for each in shown if not each.isprintable() and each != "\n"}
        if found:
            self.leaks.setdefault(where, set()).update(found)
        return shown

    async def press(self, where: str, keys: str, *texts: str) -> str:
        """Presses keys, then looks."""
        await self.person.press(*keys.split())
        return await self.at(where, *texts)


async def answers(look: Looks, hub: ScriptedHub) -> None:
    """Opens a question of each kind, sends what is refused, and refuses."""
    await look.press("a form", "1 ctrl+home enter", "Leave open", "held for", "title")
    await look.press("what is missing", "ctrl+s", "is required")
    await look.person.types("well")
    hub.replies["AnswerPendingRequest"] = refuses(
        "INVALID_ARGUMENT", violations=(("content.needed", f"{TRICK}wrong"), (TRICK, f"{TRICK}besides"))
    )
    await look.press("what the hub finds wrong", "ctrl+s", "wrong", "besides")
    hub.replies["AnswerPendingRequest"] = refuses("UNAVAILABLE")
    await look.press("an answer that is refused", "ctrl+s", "ctrl+s sends it again")
    hub.replies["AnswerPendingRequest"] = refuses(reason="ALREADY_CLAIMED")
    await look.press("an answer to another's question", "ctrl+s", "refused; what you wrote is kept here")
    await look.press("a form as JSON", "ctrl+e", "{")
    await look.press("inbox again", "escape", "open requests")
    await look.press("a page", "down enter", "this is not https", "what stands before the @")
    await look.press("no consent", "ctrl+s", "agree to it first")
    await look.press("inbox after a page", "escape", "open requests")
    await look.press("a sampling", "down enter", "Written by", "wishes")
    await look.press("why it is refused", "f8", "Reason that the server gets")
    await look.press("a sampling again", "escape", "Written by")
    await look.press("inbox after a sampling", "escape", "open requests")
    await look.press("roots", "down enter", "Which directories")
    over = next(each for each in questions() if each.state == inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=over)
    hub.replies["AnswerPendingRequest"] = refuses(reason="ALREADY_ANSWERED")
    await look.press("what another has answered", "ctrl+s", "answered it before you")
    await look.press("inbox at last", "escape", "open requests")
    await look.press("history", "h", "past requests", "What happened", "delivered too late")


async def servers_and_calls(look: Looks, hub: ScriptedHub) -> None:
    """Each row, each dialog, each refusal of the panes for servers, calls and tasks."""
    await look.press("a server", "2 ctrl+home", "Trouble", "Capabilities")
    await look.press("a server that was given up", "down", "The hub does not try")
    await look.press("connecting is refused", "c", "(TRICKY)")
    hub.replies["ConnectServer"] = lambda _: server_pb2.ConnectServerResponse()
    await look.press("connecting", "c", "is being connected")
    await look.press("whether to disconnect", "d", "Its calls fail")
    await look.press("whether to clear the queue", "n x", "Cancel all calls that wait")
    await look.press("calls", "n 3 ctrl+home", "Params", "Result")
    for number in range(6):
        await look.press(f"call {number}", "enter", "Params", "Back")
        await look.press(f"calls after {number}", "escape down", "Params")
    await look.press("a call with progress", "ctrl+home down down enter", "progress", "perhaps for this call")
    await look.press("whether to abort", "x", "Abort")
    await look.press("that is refused", "ctrl+y", "(TRICKY)")
    await look.press("its task", "escape g", "is not among the tasks")
    await look.press("tasks", "4 ctrl+home", "held by the server", "says")
    await look.press("whether to cancel a task", "x", "Cancel the task")
    await look.press("a task that completed", "n down down down", "Result")
    await look.press("its call", "g", "is not among the calls")


async def catalog_and_events(look: Looks, hub: ScriptedHub) -> None:
    """What is offered, used in each way; what the hub received."""
    await look.press("catalog", "5", "entries of", "tools 1", "entry 1")
    uses = {"tools": "call it", "resources": "read it", "templates": "read one", "prompts": "get it"}
    for number, (kind, use) in enumerate(uses.items(), 1):
        await look.press(f"list of {kind}", "down", "freshness")
        if kind != "tools":
            await look.press(f"opened {kind}", "enter", f"entry {number}")
        await look.press(f"one of {kind}", "down", f"enter to {use}", "Definition")
        if kind == "tools":
            hub.replies["StartCall"] = refuses("INVALID_ARGUMENT", violations=((TRICK, f"{TRICK}wrong"),))
            await look.press("a tool", "enter", "needed", "title")
            await look.person.press("tab", "tab", "tab")
            await look.person.types("well")
            await look.press("arguments that are refused", "ctrl+s", "wrong")
            hub.replies["StartCall"] = refuses()
            await look.press("a call that is refused", "ctrl+s", "refused")
            await look.press("catalog after a tool", "escape", "entries of")
    await look.press("a prompt", "enter", "prompt of")
    await look.press("lists that are not fetched again", "escape r", "(TRICKY)")
    await look.press("events", "6 ctrl+home", "Told", "method")
    for number in range(len(events()) - 1):
        await look.press(f"event {number}", "down", "Told")
    await look.press("events of a server", "s", "Events of which server?")
    await look.press("of one", "down enter", "only ")
    await look.press("which events", "e", "Which events?")
    await look.press("hosts", "escape 7 ctrl+home", "1 host", "principal")


async def test_nothing_that_others_wrote_steers_the_screen_in_any_pane_or_dialog(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the last step of a line, so that columns are known to be as wide as they are laid out."""
    monkeypatch.setattr(HubbubApp, "get_line_filters", App.get_line_filters)
    script(hub)
    async with at_terminal(hub, who=f"ann{TRICK}", size=SIZE, notices=True) as ann:
        look = Looks(ann)
        await look.at("inbox", "open requests")
        await answers(look, hub)
        await servers_and_calls(look, hub)
        await catalog_and_events(look, hub)
    assert look.leaks == {}


async def test_nothing_in_the_words_of_a_refusal_steers_the_line_at_the_top(hub: ScriptedHub) -> None:
    for name in (
        "WatchServers",
        "WatchPendingRequests",
        "WatchCalls",
        "WatchTasks",
        "WatchCatalogLists",
        "WatchEvents",
    ):
        hub.streams[name] = refused_watch
    async with at_terminal(hub, size=SIZE, notices=True) as ann:
        look = Looks(ann)
        await look.at("header", f"{MARK} refused")
    assert look.leaks == {}


async def test_nothing_in_a_pasted_text_or_in_a_widget_of_any_kind_steers_the_screen(hub: ScriptedHub) -> None:
    script(hub)
    async with at_terminal(hub, size=SIZE) as ann:
        look = Looks(ann)
        await look.press("the filter", "slash", "words that all must occur")
        await ann.types("pasted\x1b[2J\u202ewords")
        await look.at("words of the filter", f"pasted{MARK}[2J{MARK}wor", " with ")
        await look.press("a form", "escape enter", "Leave open", "needed")
        await ann.types("into\x1b[2J\u202ea field")
        await look.at("a field", f"into{MARK}[2J{MARK}")
        await ann.app.screen.mount(Static(f"{TRICK}by itself", markup=False), before=0)
        await look.at("a widget", f"{MARK}[2J", f"{MARK}[2J{MARK}5m")
    assert look.leaks == {}


def test_what_is_cleaned_last_is_as_wide_as_before() -> None:
    segments = [Segment("ab"), Segment(f"a{TRICK}b"), Segment("\u202e東京"), Segment("x", None, [(ControlType.BELL,)])]
    shown = CleanOutput().apply(segments, Color(0, 0, 0))
    assert [each.cell_length for each in shown] == [each.cell_length for each in segments]
    assert all(each.control or is_clean(each.text) for each in shown)
    assert shown[0] is segments[0]
    assert shown[3] is segments[3]
