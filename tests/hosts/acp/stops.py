"""What is tried with each coding agent: the same work, approved, refused, cancelled and cut off in several ways."""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import anyio
from playwright.async_api import expect

from ..real.dialects import Use
from .coders import COMMAND
from .desk import LAPTOP, PHONE, SERVER, Desk, Missed, find_choice, name_choice

Stop = Callable[[Desk], Awaitable[None]]
GONE_S = 20
"""Within which a question leaves the inbox when its turn is cancelled."""
WORD = "through the hub"


async def _approve_on_page(desk: Desk, size: dict[str, int], name: str) -> None:
    desk.begin()
    call_id = await desk.start()
    async with desk.visited(size) as person:
        for number in range(1, desk.coder.edits + 2):
            request = await desk.next_question(call_id)
            await person.go(f"request/{request.id}")
            main = person.page.locator("main")
            await expect(main.locator(f".page[data-route='#/request/{request.id}'] h1")).to_be_visible()
            await desk.take_picture(person, f"{name}-{number}")
            shown = await main.inner_text()
            wanted = _find_shown(desk, request)
            if missing := [each for each in wanted if each not in shown]:
                raise Missed(f"the page does not show {missing} of {request.request['_meta']['acp/toolCall']}")
            if await person.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                raise Missed(f"the page is wider than {size['width']} px")
            await main.get_by_role("button", name=name_choice(request, "allow_once")).first.click()
            await desk.hub.request(request.id, state="answered")
        result = await desk.find_end(call_id)
    desk.check_result(result)
    desk.check_work()


def _find_shown(desk: Desk, request: Any) -> list[str]:
    """Return what people must see before they say yes: the command, or the lines that change."""
    asked = request.request["_meta"]["acp/toolCall"]
    if asked["toolCall"].get("kind") == "execute":
        return [COMMAND, str(desk.folder)]
    if not any(each["type"] == "diff" for each in asked["toolCall"]["content"]):
        raise Missed(f"the question has no diff: {asked}")
    return [line for each in asked["toolCall"]["content"] if each["type"] == "diff" for line in each["newText"].split()]


async def approve_on_page(desk: Desk) -> None:
    """All is approved on the page of a laptop."""
    await _approve_on_page(desk, LAPTOP, "page")


async def approve_on_phone(desk: Desk) -> None:
    """All is approved on the page of a phone."""
    await _approve_on_page(desk, PHONE, "phone")


async def approve_by_command(desk: Desk) -> None:
    """All is started, read and approved by the command line."""
    desk.begin()
    arguments = json.dumps({"prompt": desk.script.prompt, "cwd": str(desk.folder)})
    started = await desk.hub.hubbub("call", "--detach", SERVER, "start", arguments)
    if started.status:
        raise Missed(f"hubbub call: {started.err}")
    call_id = started.record["id"]
    for _ in range(desk.coder.edits + 1):
        request = await desk.next_question(call_id)
        shown = (await desk.hub.hubbub("inbox", "show", request.id)).record
        wanted = _find_shown(desk, request)
        if missing := [each for each in wanted if each not in json.dumps(shown)]:
            raise Missed(f"`hubbub inbox show` does not show {missing}")
        choice = find_choice(request, "allow_once")
        answered = await desk.hub.hubbub("inbox", "answer", request.id, f"decision={choice}")
        if answered.status:
            raise Missed(f"hubbub inbox answer: {answered.err}")
    desk.check_result(await desk.find_end(call_id))
    desk.check_work()


async def refuse(desk: Desk) -> None:
    """The first change of a file is refused: it is not made. What comes after it is allowed."""
    desk.begin()
    call_id = await desk.start()
    request = await desk.next_question(call_id)
    await desk.choose(request, "reject_once")
    result = await _allow_rest(desk, call_id)
    if (desk.folder / "a.txt").exists():
        raise Missed("the file was written though it was refused")
    if result["stopReason"] not in ("end_turn", "cancelled"):  # Codex ends the turn with that
        raise Missed(f"the turn ended with {result['stopReason']!r}")


async def _allow_rest(desk: Desk, call_id: str) -> dict[str, Any]:
    """Allow whatever else a call asks, and return its result."""
    while (request := await desk.find_question(call_id)) is not None:
        await desk.choose(request, "allow_once")
    return await desk.find_end(call_id)


async def cancel(desk: Desk) -> None:
    """The turn is cancelled while it asks; the session then takes another prompt."""
    desk.begin()
    call_id = await desk.start()
    request = await desk.next_question(call_id)
    (session,) = [each for each in await desk.list_sessions() if each["state"] == "waiting"]
    desk.script.calls = []
    await desk.hub.client.call_tool(SERVER, "cancel", {"session": session["id"]})
    call = await desk.hub.call(call_id)
    if call.state != "cancelled":
        desk.check_result(await desk.find_end(call_id), "cancelled")
    with anyio.move_on_after(GONE_S) as limit:
        await desk.hub.request(request.id, state="withdrawn")
    if limit.cancelled_caught:
        raise Missed("the question stays in the inbox")
    desk.check_work({"a.txt": None, "notes.txt": "first\n"})
    desk.begin()
    result = await _allow_rest(desk, await desk.go_on(session["id"]))
    desk.check_result(result)
    desk.check_work()


async def kill_hub_at_first(desk: Desk) -> None:
    """The hub is killed while the first turn of a session asks, and started again: the session goes on from there."""
    desk.begin()
    if desk.coder.loses_young_sessions:
        await _wait_for_minute()  # so that it loads the session in the minute in which that began, each time
    await _kill_hub(desk, await desk.start())


async def kill_hub_later(desk: Desk) -> None:
    """The same in a later turn."""
    desk.begin([])
    first = await desk.find_end(await desk.start())
    desk.begin()
    if desk.coder.loses_young_sessions:
        await _wait_for_minute()
    await _kill_hub(desk, await desk.go_on(first["session"]))


async def _wait_for_minute() -> None:
    """Wait until the clock shows another minute: some agents name the file of a session by it."""
    await anyio.sleep(60 - time.time() % 60)


async def _kill_hub(desk: Desk, call_id: str) -> None:
    request = await desk.next_question(call_id)
    (session,) = [each for each in await desk.list_sessions() if each["state"] == "waiting"]
    await desk.restart("kill")
    await desk.hub.connected(SERVER)
    (found,) = [each for each in await desk.list_sessions() if each["id"] == session["id"]]
    if found["state"] not in ("idle", "lost"):
        raise Missed(f"after the restart the session is {found['state']!r}")
    call = await desk.hub.call(call_id)
    if call.state == "completed" and not call.result.get("isError"):
        raise Missed(f"the call that was cut off counts as completed: {desk.describe(call)}")
    if [each.id for each in await desk.hub.client.inbox.list(states=["open"], server=SERVER)]:
        raise Missed(f"the question {request.id} of the call that was cut off is still open")
    desk.begin()
    result = await _allow_rest(desk, await desk.go_on(session["id"]))
    desk.check_result(result)
    desk.check_work()


async def use_hub(desk: Desk) -> None:
    """The agent calls a tool of another server of the hub, and what that asks is in the same inbox."""
    desk.begin([Use("plain__echo", {"text": WORD})])
    call_id = await desk.start()
    with anyio.move_on_after(60):
        while True:
            asked = await desk.hub.asked()
            (request,) = asked[:1]
            if request.server == "plain":
                break
            # The agent's own question, whether its model may call the tool.
            await desk.choose(request, "allow_once")
        await request.approve()
        result = await _allow_rest(desk, call_id)
        if WORD not in " ".join(desk.script.heard):
            raise Missed(f"the agent heard {desk.script.heard}; its model had no {desk.script.missing}")
        desk.check_result(result)
        return
    raise Missed(f"nothing of the other server was asked; its model had no {desk.script.missing}")


async def find_no_login(desk: Desk) -> None:
    """An agent that is not logged in: the error of the call says so, and what to do."""
    desk.begin()
    call = await desk.hub.call(await desk.start())
    said = desk.describe(call)
    if call.state == "completed" and not call.result.get("isError"):
        raise Missed(f"it was no error: {said}")
    if not re.search(r"log.?in|auth|API.?key", said, re.IGNORECASE):
        raise Missed(f"the error does not say that it is about a log-in: {said}")


STOPS: Mapping[str, Stop] = MappingProxyType(
    {
        "page": approve_on_page,
        "phone": approve_on_phone,
        "command line": approve_by_command,
        "refused": refuse,
        "cancelled": cancel,
        "hub killed at first": kill_hub_at_first,
        "hub killed later": kill_hub_later,
        "hub's tools": use_hub,
    }
)
LOG_IN = "log-in"
