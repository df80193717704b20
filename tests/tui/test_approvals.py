"""A person at the terminal approves calls before they are sent."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import hubbub_client

from .conftest import Person, RunningHub, at_terminal, demo, peer

RULES: list[dict[str, Any]] = [
    {
        "name": "echoes",
        "servers": ["plain"],
        "tools": ["echo"],
        "action": "ask",
        "edit": True,
        "remember": ["1h", "1d"],
        "message": "Look at the text.",
    },
    {
        "name": "tips",
        "tools": ["tip_*"],
        "action": "ask",
        "needed": 2,
        "edit": True,
        "message": "Tips need two people.",
    },
]

SUGGESTIONS: list[dict[str, Any]] = [
    {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "git push:*"}],
        "behavior": "allow",
        "destination": "session",
    },
    {"type": "setMode", "mode": "acceptEdits", "destination": "userSettings"},
]


@pytest.fixture(scope="module")
async def shared_hub(start_shared_hub: Callable[..., Any]) -> RunningHub:
    """One hub for all these tests."""
    servers = {"demo": demo(), "plain": peer("plain_server.py")}
    return await start_shared_hub(
        servers,
        hub={"mcp_listen": "127.0.0.1:0"},
        mcp={"profiles": {"people": {"people": True}}},
        approvals={"rules": RULES},
    )


@pytest.fixture
async def hub(shared_hub: RunningHub) -> AsyncIterator[RunningHub]:
    """A hub whose inbox is empty before and after each test, and which remembers nothing."""
    await shared_hub.connected("demo", "plain")
    yield shared_hub
    for request in await shared_hub.client.inbox.list(states=["open"]):
        await shared_hub.client.inbox.deny(request.id)
    for approval in await shared_hub.client.approvals.list():
        await shared_hub.client.approvals.revoke(approval.id)


async def echo(hub: RunningHub, text: str) -> Any:
    return await hub.client.start_tool("plain", "echo", {"text": text})


async def open_first(person: Person) -> None:
    await person.sees("wants to run", "approval")
    await person.press("enter")
    await person.sees("Approve (ctrl+s)")


async def fill_in(person: Person, arguments: str) -> None:
    """Put other arguments in place of those in the editor."""
    await person.press("ctrl+e")
    await person.sees("are sent in place of those")
    await person.press("f7", "delete")
    await person.types(arguments)


async def test_what_is_approved_is_shown_and_then_sent(hub: RunningHub) -> None:
    call = await echo(hub, "good morning")
    async with at_terminal(hub) as ann:
        await open_first(ann)
        await ann.sees(
            "wants to run echo on plain", "good morning", "Look at the text.", "everyone with the permission"
        )
        assert (await hub.client.calls.get(call.id)).started_at is None
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you", "good morning")
    ended = await hub.call(call.id)
    assert ended.result["content"][0]["text"] == "good morning"
    assert ended.approval.approved_by == ("ann",)


async def test_changed_arguments_are_shown_once_more_and_then_sent(hub: RunningHub) -> None:
    call = await echo(hub, "rm -rf /")
    async with at_terminal(hub, size=(100, 60)) as ann:
        await open_first(ann)
        await fill_in(ann, "{text}")
        await ann.press("ctrl+s")
        await ann.sees("✗ this is not JSON")
        await ann.press("f7", "delete")
        await ann.types('{"text": "ls"}')
        await ann.press("ctrl+s")
        await ann.sees("Approve it with these changes?", '-  "text": "rm -rf /"', '+  "text": "ls"')
        await ann.press("ctrl+y")
        await ann.sees("Nothing waits for you")
        ended = await hub.call(call.id)
        await ann.press("3", "enter")
        await ann.sees("approved by   ann", "in place of those that were asked for")
    assert ended.result["content"][0]["text"] == "ls"
    assert ended.approval.changed_arguments == {"text": "ls"}


async def test_arguments_that_do_not_fit_the_schema_are_refused_with_the_reason(hub: RunningHub) -> None:
    await hub.client.start_tool("demo", "tip_kitchen", {"amount": 5})
    async with at_terminal(hub) as ann:
        await open_first(ann)
        await fill_in(ann, '{"amount": "all"}')
        await ann.press("ctrl+s")
        await ann.sees("Approve it with these changes?")
        await ann.press("ctrl+y")
        await ann.sees("✗", "amount", "integer")


async def test_an_approval_that_is_remembered_is_listed_and_can_be_revoked(hub: RunningHub) -> None:
    await echo(hub, "first")
    async with at_terminal(hub) as ann:
        await open_first(ann)
        await ann.press("f5")
        await ann.sees("For how long may", "1 hour, any arguments", "1 day, these arguments only")
        await ann.press("enter")
        await ann.sees("Nothing waits for you")
        assert (await hub.call((await echo(hub, "second")).id)).state == "completed"
        await ann.press("r")
        await ann.sees("Approvals that are remembered", "may call echo on plain until", "; ann said")
        await ann.press("x")
        await ann.sees("Forget this approval?")
        await ann.press("ctrl+y")
        await ann.sees("Nothing is remembered")
        await ann.press("escape")
        await echo(hub, "third")
        await ann.sees("wants to run echo on plain")


async def test_what_a_host_suggests_is_among_what_an_approval_may_hold_for(hub: RunningHub) -> None:
    params = {"name": "Bash", "arguments": {"command": "ls"}, "_meta": {"hubbub/suggestions": SUGGESTIONS}}
    await hub.client.calls.start("host", "tools/call", params)
    async with at_terminal(hub, size=(100, 40)) as ann:
        await open_first(ann)
        await ann.sees("suggestion 0", "allow Bash(git push:*) for this session")
        await ann.press("f5")
        await ann.sees("what else may", "change files without asking (mode acceptEdits) for good, in all projects")
        await ann.press("enter")
        await ann.sees("Nothing waits for you")
    (settled,) = await hub.client.inbox.list(server="host")
    assert settled.answer["suggestions"] == [0]


async def test_a_denial_gives_the_caller_the_reason(hub: RunningHub) -> None:
    call = await echo(hub, "x")
    async with at_terminal(hub) as ann:
        await open_first(ann)
        await ann.press("f8")
        await ann.sees("Deny it. Why?")
        await ann.types("not today")
        await ann.press("enter")
        await ann.sees("Nothing waits for you")
        await ann.press("h")
        await ann.sees("denied")
    error = (await hub.call(call.id)).error
    assert (error.code, "not today" in error.message) == ("APPROVAL_DENIED", True)


async def test_what_the_caller_called_before_is_one_key_away(hub: RunningHub) -> None:
    first = await echo(hub, "the first text")
    (request,) = await hub.asked()
    await hub.client.inbox.approve(request.id, digest=request.arguments_digest or "")
    await hub.call(first.id)
    await echo(hub, "the second")
    async with at_terminal(hub) as ann:
        await open_first(ann)
        await ann.sees("f7 shows its")
        await ann.press("f7")
        await ann.sees("called of plain before", "echo on plain: completed", "the first text")
        await ann.press("escape")
        await ann.sees("Approve (ctrl+s)")


async def test_a_call_that_needs_two_people_says_who_has_approved_and_a_change_is_looked_at_again(
    hub: RunningHub,
) -> None:
    call = await hub.client.start_tool("demo", "tip_kitchen", {"amount": 5})
    (request,) = await hub.asked()
    async with at_terminal(hub) as ann, hubbub_client.connect(data_dir=hub.data_dir, name="ben") as ben:
        claimed = await ben.inbox.claim(request.id)
        await open_first(ann)
        await ann.sees("Two people have to say yes.", "Tips need two people.", "being answered by ben")
        await claimed.approve({"amount": 7})
        await ann.sees("ben has said yes; one more is needed.", "ben has changed the arguments: look at it again")
        await ann.press("ctrl+s")
        await ann.sees("not what you saw before")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
    ended = await hub.call(call.id)
    assert (ended.approval.changed_arguments, ended.approval.approved_by) == ({"amount": 7}, ("ben", "ann"))


async def test_who_may_not_approve_sees_the_call_and_why_there_is_nothing_to_press(hub: RunningHub) -> None:
    await echo(hub, "look")
    made = await hub.client.tokens.create("onlooker", [hubbub_client.Grant(role="viewer")])
    async with at_terminal(hub, token=made.secret) as ann:
        await open_first(ann)
        await ann.sees("you can only look at this", "look")
        await ann.press("ctrl+s")
        await ann.sees("1 open request")
    assert len(await hub.client.inbox.list(states=["open"])) == 1
