"""A program at a terminal that shows a server's question as a dialog, and the person who answers there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from ...e2e.terminals import Terminal, on_a_terminal
from .hubs import Venue
from .places import Place
from .puppets import START_LIMIT_S, Failed, Script

SIZE = (50, 100)
"""Lines and columns."""
SHOWS_S = 30
KEYS_S = 1.0
"""Between two keys, as a program draws in between."""
ENTERS = 10
"""How often Enter is pressed at most: one leaves the field, one chooses to accept."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b[()=>].?|\x1b\][^\x07]*\x07")


@dataclass(frozen=True, slots=True)
class Dialog:
    """How a program is started at a terminal."""

    words: Sequence[str]
    asks_first: str = ""
    """What it asks before anything else; Enter is the answer."""
    idle_tool: str = ""
    """A tool of its own that its model calls until those of the hub are there."""


async def answer_at_terminal(
    dialog: Dialog, command: Sequence[str], env: Mapping[str, str], place: Place, venue: Venue, script: Script
) -> str:
    """Let the program's model call a tool that asks, and answer in its dialog. Raises Failed."""
    async with (
        on_a_terminal([*command, *dialog.words], env, cwd=place.folder, size=SIZE) as person,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_read, person)
        if dialog.asks_first:
            await _wait_for(person, dialog.asks_first)
            person.types("\r")
        tasks.start_soon(_ask, dialog, place, script)
        try:
            (request,) = await venue.hub.asked(server="tour")
            await _wait_for(person, "accept")
            return await _answer(person, venue, request.id)
        finally:
            script.end()
            tasks.cancel_scope.cancel()


async def _answer(person: Terminal, venue: Venue, request_id: str) -> str:
    """Fill the field, and press Enter until the question is answered."""
    await anyio.sleep(KEYS_S)
    person.types("Ada")
    for _ in range(ENTERS):
        await anyio.sleep(KEYS_S)
        request = await venue.hub.client.inbox.get(request_id)
        if request.state != "open":
            break
        person.types("\r")
    else:
        raise Failed("its dialog is open, and Enter does not answer it")
    ended = await venue.hub.call(request.call_id)
    if request.answer != {"action": "accept", "content": {"name": "Ada"}} or ended.state != "completed":
        raise Failed(f"the question was {request.state} with {request.answer}, the call is {ended.state}")
    return f"answered in its dialog by {request.answered_by}"


async def _ask(dialog: Dialog, place: Place, script: Script) -> None:
    notes = place.folder / "notes.txt"
    notes.write_text("first\n")
    arguments = {"file_path": str(notes)}
    turn = await script.find_turn(START_LIMIT_S)
    while dialog.idle_tool and turn.find("tour__ask") is None:
        await anyio.sleep(KEYS_S)
        turn = await script.use(dialog.idle_tool, arguments, START_LIMIT_S)
    await script.use("tour__ask", {"message": "Who is there?"}, 2 * SHOWS_S)


async def _wait_for(person: Terminal, text: str) -> None:
    with anyio.move_on_after(SHOWS_S):
        while text not in _ESCAPES.sub("", person.shown).casefold():
            await anyio.sleep(0.1)
        return
    raise Failed(f"it shows no {text!r}")


async def _read(person: Terminal) -> Any:
    try:
        await person.reads_on()
    except OSError:
        return  # it has ended
