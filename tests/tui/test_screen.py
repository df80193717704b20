"""What the panes show, and what can be done there besides answering."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_tui.panes import pane
from hubbub_tui.panes.calls import CallsPane

from .conftest import LIMIT_S, POLL_S, Person, RunningHub, at_terminal, demo

StartHub = Callable[..., Any]
SNAPSHOTS = Path(__file__).parent / "snapshots"
# Whatever differs from run to run, and what stands in its place, as wide.
MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b(call|req)_[0-9a-f]{16}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\d+[smh] ago *"), "SOME ago"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "DATE TIME"),
    (re.compile(r"\b\d?\d:\d\d\b *"), "M:SS"),
    (re.compile(r"^[━╸╺]+$", re.MULTILINE), "━"),
    (re.compile(r"(?<=process       )\d+ *"), "PID"),
)


def masked(screen: str) -> str:
    for pattern, mask in MASKS:
        screen = pattern.sub(lambda found, mask=mask: mask.ljust(len(found[0])), screen)
    return "".join(f"{line.rstrip()}\n" for line in screen.strip("\n").split("\n"))


async def is_as_before(name: str, person: Person) -> None:
    """Waits until the screen is as it is stored; UPDATE_SNAPSHOTS=1 stores it."""
    stored = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        await person.pilot.pause(1)
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(masked(person.screen), encoding="utf-8")
    expected = stored.read_text(encoding="utf-8")
    with anyio.move_on_after(LIMIT_S):
        while masked(person.screen) != expected:
            await person.pilot.pause(POLL_S)
    assert masked(person.screen) == expected


@pytest.fixture(scope="module")
async def hub(start_shared_hub: StartHub) -> RunningHub:
    """A hub to look at: with one ended call, and one of each kind of question."""
    return await furnished(start_shared_hub)


@pytest.fixture(scope="module")
async def changed(start_shared_hub: StartHub) -> RunningHub:
    """As `hub`, for the tests that do something there; none of them minds what the others have done before."""
    return await furnished(start_shared_hub)


async def furnished(start_hub: StartHub) -> RunningHub:
    gone = {"command": "no-such-command", "retries": 0}
    hub = await start_hub({"cafe": demo(), "demo": demo(), "gone": gone})
    await hub.connected("demo", "cafe")
    await hub.client.call_tool("demo", "long_walk", {"steps": 1, "step_s": 0})
    for count, tool in enumerate(("order_lunch", "write_haiku", "sign_up", "plan_trip"), 1):
        await hub.client.start_tool("demo", tool)
        await hub.asked(count)
    return hub


@pytest.mark.parametrize("size", [(80, 24), (150, 32)], ids=["small", "large"])
async def test_each_pane_looks_as_it_did(hub: RunningHub, size: tuple[int, int]) -> None:
    width = f"{size[0]}"
    async with at_terminal(hub, size=size) as ann:
        await ann.sees("Where shall we go?", "City", "2 forms, 1 page, 1 sampling", "Inbox (4)", "Calls (4)")
        await is_as_before(f"inbox-{width}", ann)
        await ann.press("2")
        await ann.sees("2 of 3 connected", "3 in progress, 1 waiting", "transport")
        await is_as_before(f"servers-{width}", ann)
        await ann.press("3")
        await ann.sees("5 calls · 4 not ended", "what  ")
        await is_as_before(f"calls-{width}", ann)
        await ann.press("4")
        await ann.sees("1 task", "receiver: held by the hub")
        await is_as_before(f"tasks-{width}", ann)
        await ann.press("5")
        await ann.sees("12 entries of 2 servers", "order_lunch", "Open a branch")
        await is_as_before(f"catalog-{width}", ann)
        await ann.press("6")
        await ann.sees("No events yet")
        await is_as_before(f"events-{width}", ann)
        await ann.press("7")
        await ann.sees("No host is connected", "claude mcp add")
        await is_as_before(f"hosts-{width}", ann)


async def test_the_forms_and_the_help_look_as_they_did(hub: RunningHub) -> None:
    async with at_terminal(hub) as ann:
        await ann.sees("Where shall we go?")
        for words, seen in (("lunch", "Note for"), ("haiku", "Written by"), ("page", "I have read"), ("go?", "Nights")):
            await ann.press("slash")
            await ann.types(words)
            await ann.press("enter", "enter")
            await ann.sees(seen, "Leave open")
            await is_as_before(f"answer-{words.strip('?')}", ann)
            await ann.press("escape")
            await ann.no_longer_sees("Leave open")
            await ann.press("escape")
        await ann.press("2")
        await ann.sees("2 of 3 connected")
        await ann.press("question_mark")
        await ann.sees("Everywhere")
        await is_as_before("help", ann)


async def test_a_pane_can_be_used_with_the_next_key(hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "TICK_S", 3600)  # nothing is drawn by the way
    async with at_terminal(hub) as ann:
        with anyio.fail_after(LIMIT_S):
            while not ann.app.boards.calls.synced:
                await ann.pilot.pause(POLL_S)
        ann.app.action_pane("calls")  # as its key does; nothing is laid out before the next ones
        table = ann.app.query_one(CallsPane).table
        table.action_cursor_down()
        table.action_select_cursor()
        await ann.sees("sign_up on demo")


async def test_what_failed_says_why_and_what_helps(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 32)) as ann:
        await ann.press("2")
        await ann.sees("COMMAND_NOT_FOUND")
        await ann.press("down", "down")
        await ann.sees("hubbub explain COMMAND_NOT_FOUND", "Trouble")


async def test_the_cursor_stays_on_its_row_when_the_terminal_changes_its_size(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 32)) as ann:
        await ann.press("2")
        await ann.sees("COMMAND_NOT_FOUND")
        await ann.press("down", "down")
        await ann.sees("hubbub explain COMMAND_NOT_FOUND", "Trouble")
        for size in (151, 32), (90, 40), (150, 24):
            await ann.pilot.resize_terminal(*size)
            await ann.press("enter")
            await ann.sees("COMMAND_NOT_FOUND (")
            await ann.press("escape")


async def test_a_tool_is_called_from_the_catalog_with_a_question_in_between(start_hub: StartHub) -> None:
    hub = await start_hub({"cafe": demo()}, connected=True)
    async with at_terminal(hub) as ann:
        await ann.press("5")
        await ann.sees("order_lunch")
        await ann.press("down", "down", "enter")
        await ann.sees("It takes no arguments.")
        await ann.press("ctrl+s")
        await ann.sees("Requests", "press a to answer it")
        await ann.press("a")
        await ann.sees("Portions")
        await ann.press("ctrl+s")
        await ann.sees("Result", "Ordered: 1 x curry", "answered by ann")
        await ann.press("escape", "escape", "down", "down", "down", "down", "down", "enter")
        await ann.sees("Steps", "Step S")
        await ann.types("3")
        await ann.press("enter")
        await ann.types("0.01")
        await ann.press("ctrl+s")
        await ann.sees("Walked 3 steps")


async def test_a_running_call_is_aborted_once_that_is_confirmed(changed: RunningHub) -> None:
    call = await changed.client.start_tool("demo", "long_walk", {"steps": 1000})
    async with at_terminal(changed) as ann:
        await ann.press("3")
        await ann.sees("long_walk", "in progress", "/1000 step")
        await ann.press("x")
        await ann.sees("Abort long_walk on demo?")
        await ann.press("n")
        await ann.no_longer_sees("Abort")
        assert (await changed.client.calls.get(call.id)).state == "in_progress"
        await ann.press("x", "ctrl+y")
        await ann.sees("CALL_CANCELLED")
    assert (await changed.call(call.id)).state == "cancelled"


async def test_a_task_is_cancelled_and_its_question_leaves_the_inbox(changed: RunningHub) -> None:
    before = await forms(changed)
    await changed.client.start_tool("demo", "plan_trip")
    async with at_terminal(changed) as ann:
        await ann.press("4")
        await ann.sees("2 tasks · 2 not ended")
        await ann.press("x")
        await ann.sees("Cancel the task")
        await ann.press("ctrl+y")
        await ann.sees("2 tasks · 1 not ended", "cancelled")
    assert [task.status for task in await changed.client.tasks.list()] == ["cancelled", "working"]
    assert await forms(changed) == before


async def forms(hub: RunningHub) -> set[str]:
    """The ids of the open questions with a form."""
    return {request.id for request in await hub.client.inbox.list(states=["open"], kinds=["elicitation_form"])}


async def test_events_are_live_filtered_and_paused(changed: RunningHub) -> None:
    walk = {"name": "long_walk", "arguments": {"steps": 2, "step_s": 0.01}}
    async with at_terminal(changed) as ann:
        await ann.press("6")
        await ann.sees("No events yet")
        with anyio.fail_after(LIMIT_S):
            while not ann.app.boards.events:
                await changed.client.call("demo", "tools/call", walk)
                await anyio.sleep(POLL_S)
        await ann.sees("step 2 of 2", "progress", "notifications/progress")
        # No event until now is still to come when the last of it is there.
        await changed.client.call(
            "demo", "tools/call", {"name": "long_walk", "arguments": {"steps": 3, "step_s": 0.01}}
        )
        await ann.sees("step 3 of 3")
        await ann.press("p")
        await ann.sees("PAUSED, 0 more since")
        await changed.client.call("demo", "tools/call", walk)
        await ann.sees("PAUSED, 2 more since")
        await ann.press("p", "slash")
        await ann.types("stderr")
        await ann.sees("0 with stderr")
        await ann.press("escape", "c")
        await ann.sees("No events yet")


async def test_the_screen_survives_a_hub_that_is_killed(start_hub: StartHub, free_port: int) -> None:
    listen = f"127.0.0.1:{free_port}"
    hub = await start_hub({"demo": demo()}, listen=listen, connected=True)
    await hub.client.start_tool("demo", "plan_trip")
    (request,) = await hub.asked()
    async with at_terminal(hub) as ann:
        await ann.sees("Where shall we go?", "1 form")
        await ann.press("enter")
        await ann.sees("City *")
        await ann.types("Graz")
        await hub.kill()
        await ann.sees("lost, reconnecting")
        await ann.press("ctrl+s")
        await ann.sees("what you wrote is kept here")
        hub = await start_hub({"demo": demo()}, listen=listen)
        await ann.no_longer_sees("lost, reconnecting")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
        await hub.connected("demo")
        await hub.client.start_tool("demo", "order_lunch")
        await ann.sees("What would you like for lunch?")
    answered = await hub.client.inbox.get(request.id)
    assert (answered.answered_by, answered.answer["content"]) == ("ann", {"city": "Graz", "nights": 3})


async def test_where_it_is_not_known_which_call_asks_all_that_may_be_it_is_offered(changed: RunningHub) -> None:
    call = await changed.client.start_tool("demo", "order_lunch")
    async with at_terminal(changed, size=(150, 32)) as ann:
        await ann.press("3")
        await ann.sees("perhaps for this call")
        await ann.press("a")
        await ann.sees("demo asks", "Leave open")
        await ann.press("escape")
        await ann.sees("3 Calls")
    await changed.client.calls.cancel(call.id, abort=True)
