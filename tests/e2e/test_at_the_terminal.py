"""A person at a terminal, a real hub, a server that really asks."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hubbub.v1 import inbox_pb2

from ..clients.conftest import ScriptedHub, told
from .terminals import terminal

URL = "https://example.com/sign-up?plan=demo"
TURNED = "https://xn--pple-43d.com/\u202egnp.exe"

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "dish": {
            "type": "string",
            "title": "Dish",
            "oneOf": [{"const": "s", "title": "Soup"}, {"const": "c", "title": "Curry"}],
            "default": "c",
        },
        "sides": {
            "type": "array",
            "title": "Sides",
            "items": {"anyOf": [{"const": "r", "title": "Rice"}, {"const": "b", "title": "Bread"}]},
        },
        "portions": {"type": "integer", "title": "Portions", "minimum": 1, "maximum": 8},
        "when": {"type": "string", "title": "When", "format": "date"},
        "spicy": {"type": "boolean", "title": "Spicy", "default": True},
    },
    "required": ["dish", "portions"],
}
FORM = ("elicitation/create", {"message": "What shall it be?", "requestedSchema": ORDER})
PAGE = ("elicitation/create", {"mode": "url", "message": "Please sign up", "url": URL, "elicitationId": "e1"})
SAMPLING = (
    "sampling/createMessage",
    {"messages": [{"role": "user", "content": {"type": "text", "text": "Write a haiku"}}], "maxTokens": 50},
)


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> Any:
    """A hub with a server that asks what it is asked to."""
    server = {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "relay_server.py")]}
    return await start_shared_hub({"relay": {**server, "max_in_flight": 4}}, connected=True)


async def ask(hub: Any, asks: tuple[str, Any]) -> tuple[Any, Any]:
    """A call, and what it asks."""
    method, params = asks
    arguments = {"method": method, "params": params}
    before = {each.id for each in await hub.client.inbox.list()}
    call = await hub.client.start_tool("relay", "ask", arguments)
    (asked,) = await hub.watched(hub.client.inbox.watch(states=["open"]), lambda each: each.id not in before)
    return call, asked


async def cancel(hub: Any, call: Any, asked: Any) -> None:
    """Ends a call; the server takes its question back a moment later, and nothing of it is left for the next test."""
    await hub.client.calls.cancel(call.id, abort=True)
    await hub.request(asked.id, state="withdrawn")


async def said(hub: Any, call: Any) -> Any:
    """What the server was answered."""
    return json.loads((await hub.call(call.id)).result["content"][0]["text"])


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


async def test_a_form_is_filled_in_field_by_field_under_a_claim(hub: Any) -> None:
    call, asked = await ask(hub, FORM)
    async with terminal(hub, "inbox", "answer") as person:
        await person.sees("What shall it be?")
        await person.sees("1) Soup\n  2) Curry\n")
        assert (await hub.client.inbox.get(asked.id)).claim.by == "ann"
        await person.answers("Dish [c]: ", "Soup")
        await person.answers("Sides (numbers, with commas, optional): ", "2, Rice")
        await person.answers("Portions (integer): ", "many")
        await person.sees("type a whole number")
        await person.answers("Portions (integer): ", "9")
        await person.sees("must be a whole number, 1 to 8")
        await person.answers("Portions (integer): ", "2")
        await person.answers("When (date, optional): ", "tomorrow")
        await person.sees("must look like 2026-12-31")
        await person.answers("When (date, optional): ", "2027-01-31")
        await person.answers("Spicy (y/n, optional) [true]: ", "-")
        await person.answers("[l]ater or [e]dit? [s] ", "")
        await person.sees(f"{asked.id} is answered\n")
        await person.sees("ask on relay: completed after ")
        assert await person.ends() == 0
    assert person.shown.count("What shall it be?") == 1
    given = {"dish": "s", "sides": ["b", "r"], "portions": 2, "when": "2027-01-31"}
    answer = await said(hub, call)
    assert answer["action"] == "accept"
    assert {name: answer["content"].get(name) for name in given} == given
    assert (await hub.client.inbox.get(asked.id)).answered_by == "ann"


async def test_a_form_is_filled_in_again_before_it_is_sent(hub: Any) -> None:
    call, asked = await ask(hub, FORM)
    async with terminal(hub, "inbox", "answer", asked.id) as person:
        for prompt, typed in (("Dish [c]: ", ""), ("optional): ", ""), ("Portions (integer): ", "2")):
            await person.answers(prompt, typed)
        for prompt, typed in (("When (date, optional): ", ""), ("[true]: ", ""), ("[e]dit? [s] ", "e")):
            await person.answers(prompt, typed)
        for prompt, typed in (("Dish [c]: ", "s"), ("optional): ", ""), ("Portions (integer) [2]: ", "")):
            await person.answers(prompt, typed)
        for prompt, typed in (("When (date, optional): ", ""), ("[true]: ", ""), ("[e]dit? [s] ", "")):
            await person.answers(prompt, typed)
        assert await person.ends() == 0
    answer = await said(hub, call)
    assert answer == {"action": "accept", "content": {"dish": "s", "portions": 2, "spicy": True}}


async def test_a_form_that_nobody_needs_any_more_goes_away(hub: Any) -> None:
    call, asked = await ask(hub, FORM)
    async with terminal(hub, "inbox", "answer", asked.id) as person:
        await person.sees("Dish")
        await hub.client.calls.cancel(call.id, abort=True)
        await person.sees(f"{asked.id} is withdrawn")
        assert await person.ends() == 1


async def test_one_who_names_no_request_chooses_and_may_leave_it_open(hub: Any) -> None:
    first, second = [await ask(hub, asks) for asks in (FORM, SAMPLING)]
    async with terminal(hub, "inbox", "answer") as person:
        await person.sees("1) relay: What shall it be?")
        await person.sees("2) relay: Write a haiku")
        await person.answers("which one [1]: ", "7")
        await person.sees("from 1 to 2")
        await person.answers("which one [1]: ", "")
        await person.sees(first[1].id)
        await person.answers("Dish [c]: ", "!l")
        await person.sees("left open")
        assert await person.ends() == 1
    for call, asked in (first, second):
        assert (await hub.client.inbox.get(asked.id)).claim is None
        await cancel(hub, call, asked)


async def test_a_long_reply_is_written_in_the_editor(hub: Any, tmp_path: Path) -> None:
    call, asked = await ask(hub, SAMPLING)
    editor = script(tmp_path / "editor", "printf 'An old silent pond\\nA frog\\n' > \"$1\"")
    async with terminal(hub, "inbox", "answer", asked.id, VISUAL="", EDITOR=editor) as person:
        await person.sees("user: Write a haiku")
        await person.sees("at most 50 tokens")
        await person.answers("[l]ater? ", "e")
        await person.sees("A frog")
        await person.answers("[l]ater? ", "s")
        assert await person.ends() == 0
    assert (await said(hub, call))["content"]["text"] == "An old silent pond\nA frog"


async def test_a_page_is_shown_whole_and_opened_only_with_consent(hub: Any, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = script(tmp_path / "browser", f'echo "$1" >> {opened}')
    call, asked = await ask(hub, PAGE)
    async with terminal(hub, "open", asked.id, BROWSER=f"{browser} %s") as person:
        await person.sees("Please sign up")
        await person.answers("[l]ater? ", "d")
        assert await person.ends() == 0
    assert URL.partition("//")[2].partition("/")[0] in person.shown
    assert (await said(hub, call))["action"] == "decline"
    assert not opened.exists()

    call, asked = await ask(hub, PAGE)
    printed = await hub.hubbub("open", asked.id, "--print-only")
    assert printed.record == {"id": asked.id, "url": URL, "host": "example.com", "imitates": False}
    refused = await hub.hubbub("open", asked.id)
    assert (refused.status, refused.error["reason"]) == (2, "USAGE")
    assert f"inbox answer {asked.id} --accept" in refused.error["message"]
    assert (await hub.client.inbox.get(asked.id)).state == "open"

    async with terminal(hub, "open", asked.id, BROWSER=f"{browser} %s") as person:
        await person.sees("Please sign up")
        assert not opened.exists()
        await person.answers("[l]ater? ", "o")
        assert await person.ends() == 0
    assert opened.read_text().splitlines() == [URL]
    assert (await said(hub, call))["action"] == "accept"


async def test_a_page_with_a_host_that_imitates_another_has_a_warning(hub: Any) -> None:
    method, params = PAGE
    call, asked = await ask(hub, (method, {**params, "url": "https://xn--pple-43d.com/"}))
    async with terminal(hub, "open", asked.id) as person:
        await person.sees("its letters may only look like those")
        await person.answers("[l]ater? ", "d")
        assert await person.ends() == 0
    assert (await said(hub, call))["action"] == "decline"


async def test_a_page_whose_address_turns_its_letters_around_is_shown_to_nobody(hub: Any) -> None:
    method, params = PAGE
    arguments = {"method": method, "params": {**params, "url": TURNED}}
    call = await hub.client.start_tool("relay", "ask", arguments)
    assert "url is not a URL" in (await said(hub, call))["message"]
    assert await hub.client.inbox.list(call_id=call.id) == []


async def test_where_a_hub_lets_such_an_address_through_it_is_shown_by_its_numbers_and_not_opened(
    tmp_path: Path,
) -> None:
    """Another hub than ours may be less careful: a scripted one, with the real command at a real terminal."""
    shown = json.dumps({**PAGE[1], "url": TURNED}).encode()
    asked = inbox_pb2.PendingRequest(
        id="r1",
        server="relay",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_URL,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=shown,
        claim=inbox_pb2.PendingRequest.Claim(id="c1", by="ann"),
    )

    unchanged = told(inbox_pb2.WatchPendingRequestsResponse, asked)
    careless = ScriptedHub(tmp_path)
    careless.replies = {
        "GetPendingRequest": lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked),
        "ClaimPendingRequest": lambda _: inbox_pb2.ClaimPendingRequestResponse(pending_request=asked),
        "AnswerPendingRequest": lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=asked),
    }
    careless.streams = {"WatchPendingRequests": unchanged}
    await careless.start()
    opened = tmp_path / "opened"
    browser = script(tmp_path / "browser", f'echo "$1" >> {opened}')
    async with terminal(careless, "open", asked.id, BROWSER=f"{browser} %s") as person:
        await person.sees("\\u202e")
        await person.sees("its letters may only look like those")
        await person.sees("it has characters that urls do not have")
        await person.answers("[l]ater? ", "o")
        await person.sees("it is not opened")
        await person.answers("[l]ater? ", "d")
        assert await person.ends() == 0
    await careless.stop()
    assert "\u202e" not in person.shown
    assert not opened.exists()
    assert [answer.WhichOneof("answer") for answer in careless.requests("AnswerPendingRequest")] == ["decline"]
