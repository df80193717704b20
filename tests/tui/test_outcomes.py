"""What a person sees first, what an answer led to, and how a question is declined from the list."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from hubbub_frontend.display.answers import answer_line, answer_pairs
from hubbub_frontend.display.call_details import fetch_asking_call
from hubbub_frontend.display.questions import render_request as asked_in_full
from hubbub_tui.screens.form import Question

from ..clients.agent_requests import LUNCH, request
from .conftest import RunningHub, at_terminal, demo, peer


@pytest.fixture(scope="module")
async def shared_hub(start_shared_hub: Callable[..., Any]) -> RunningHub:
    """One hub for all these tests."""
    return await start_shared_hub({"demo": demo(), "dictated": peer("dictated_server.py")}, connected=True)


@pytest.fixture
async def hub(shared_hub: RunningHub) -> AsyncIterator[RunningHub]:
    """A hub that asks nothing before and after each test."""
    yield shared_hub
    for left in await shared_hub.client.inbox.list(states=["open"]):
        await (left.decline() if left.kind.startswith("elicitation") else left.reject("no"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_one_key_leads_to_the_first_field_and_send_is_in_sight(hub: RunningHub, size: tuple[int, int]) -> None:
    await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub, size=size) as ann:
        await ann.sees("What would you like for lunch?", "order_lunch")
        await ann.press("enter")
        await ann.sees("Send (ctrl+s)", "Decline (f8)", "Dish *")
        focused = ann.app.screen.focused
        assert focused is not None
        assert isinstance(focused.parent, Question)
        assert focused.parent.field.name == "dish"


async def test_after_an_answer_it_is_said_in_words_and_so_is_what_the_call_returned(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub, size=(150, 30)) as ann:
        await ann.sees("What would you like for lunch?")
        await ann.press("enter")
        await ann.sees("Portions *")
        await ann.press("ctrl+s")
        await ann.sees(
            "✓ Sent: What would you like for lunch? Dish: Vegetable curry, Portions: 1, Spicy: no",
            "order_lunch returned: Ordered: 1 x curry",
            "Nothing waits for you",
        )
        await ann.press("h")
        shown = await ann.sees("past request", "Open questions", "ago")
        assert "History" not in shown
        await ann.sees("Dish          Vegetable curry", "Spicy         no", "returned: Ordered: 1 x curry")
        await ann.press("2")
        await ann.no_longer_sees("✓ Sent")
    assert (await hub.call(call.id)).state == "completed"


async def test_a_question_is_declined_from_the_list_once_that_is_confirmed(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "order_lunch")
    (asked,) = await hub.asked()
    async with at_terminal(hub) as ann:
        await ann.sees("What would you like for lunch?", "e Decline")
        await ann.press("e")
        await ann.sees("Decline this question of demo?")
        await ann.press("n")
        await ann.no_longer_sees("Decline this question")
        assert (await hub.client.inbox.get(asked.id)).state == "open"
        await ann.press("e", "ctrl+y")
        await ann.sees("✓ Sent: What would you like for lunch? declined", "order_lunch returned:")
    assert (await hub.client.inbox.get(asked.id)).answer == {"action": "decline"}
    await hub.call(call.id)


async def test_a_request_that_cannot_be_declined_is_refused_once_that_is_confirmed(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "write_haiku")
    (asked,) = await hub.asked()
    async with at_terminal(hub) as ann:
        await ann.sees("Write a haiku about waiting.")
        await ann.press("e")
        await ann.sees("Refuse this request of demo?")
        await ann.press("ctrl+y")
        await ann.sees("✓ Sent: Write a haiku about waiting. refused: refused by a person")
    assert (await hub.client.inbox.get(asked.id)).answer["error"]["message"] == "refused by a person"
    await hub.call(call.id)


async def test_what_came_of_questions_and_calls_is_named(hub: RunningHub) -> None:
    declined = await hub.client.start_tool("demo", "order_lunch")
    (asked,) = await hub.asked()
    await asked.decline()
    failed = await hub.client.start_tool("dictated", "fail")
    await hub.call(declined.id)
    await hub.call(failed.id)
    async with at_terminal(hub, size=(150, 40)) as ann:
        await ann.press("h")
        await ann.sees("past request", "declined", "returned:")
        await ann.press("3")
        await ann.sees("fail", "tool error", "Result, which the tool says is an error")


async def test_who_approves_sees_what_the_call_was_sent_with(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "write_haiku", {"topic": "rain\non tin"})
    (asked,) = await hub.asked()
    async with at_terminal(hub, size=(150, 40)) as ann:
        await ann.sees("Called with", "topic", "rain", "on tin")
        await ann.press("enter")
        await ann.sees("Leave open (esc)", "Called with", "rain", "on tin")
    shown = str(asked_in_full(asked, await fetch_asking_call(hub.client, asked)))
    assert "Called with\ntopic\n  rain\n  on tin" in shown
    await asked.reject("no")
    await hub.call(call.id)


async def test_a_tool_without_arguments_is_not_called_by_enter_pressed_twice(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 40)) as ann:
        await ann.press("5", "slash")
        await ann.types("order_lunch")
        await ann.sees("1 with order_lunch")
        await ann.press("enter")
        await ann.sees("enter to ")
        await ann.press("enter")
        await ann.sees("It takes no arguments.")
        await ann.press("enter", "enter")
        await ann.sees("It takes no arguments.")
    assert not await hub.client.inbox.list(states=["open"])


async def test_panes_say_nothing_of_what_the_hub_has_while_it_is_away(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({})
    async with at_terminal(hub) as ann:
        await ann.sees("Nothing waits for you", "nothing waits")
        await hub.terminate()
        await ann.sees("The hub cannot be reached")
        await ann.no_longer_sees("othing waits")
        for key, absent in (("2", "No servers yet"), ("3", "No calls yet"), ("4", "No tasks yet"), ("5", "No server")):
            await ann.press(key)
            assert absent not in await ann.sees("The hub cannot be reached")


async def test_panes_without_rows_say_where_to_go(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({})
    async with at_terminal(hub) as ann:
        await ann.sees("Nothing waits for you", "h shows what was asked before")
        for key, seen in (
            ("2", "a adds one"),
            ("3", "5 shows what can be called"),
            ("4", "Work that takes longer"),
            ("6", "What servers report"),
            ("7", "claude mcp add"),
        ):
            await ann.press(key)
            await ann.sees(seen)
        await ann.press("1", "slash")
        await ann.types("soup")
        await ann.sees("No row has all these words; escape shows all rows.")


@pytest.mark.parametrize(
    ("kind", "answer", "line"),
    [
        ("elicitation_form", None, ""),
        (
            "elicitation_form",
            {"action": "accept", "content": {"dish": "curry", "portions": 2}},
            "Dish: Vegetable curry, portions: 2",
        ),
        ("elicitation_form", {"action": "accept", "content": {"dish": ["soup", "x"]}}, "Dish: Tomato soup, x"),
        ("elicitation_form", {"action": "accept", "content": {"odd\x1b[m": True}}, "odd�[m: yes"),
        ("elicitation_form", {"action": "accept", "content": {}}, "accepted"),
        ("elicitation_form", {"action": "cancel"}, "dismissed"),
        ("elicitation_form", {"action": 7, "content": 7}, "7"),
        ("elicitation_url", {"action": "accept"}, "accepted"),
        (
            "sampling",
            {"content": {"type": "text", "text": "A\nhaiku"}, "model": "human"},
            "reply: A haiku, model: human",
        ),
        ("sampling", {"error": {"message": "no"}}, "refused: no"),
        ("roots", {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}, "roots: file:///a, file:///b"),
        ("roots", {"roots": []}, "roots: none"),
    ],
)
def test_an_answer_is_said_in_the_words_of_its_form(kind: Any, answer: Any, line: str) -> None:
    asked = replace(request(requestedSchema=LUNCH), kind=kind, answer=answer)
    assert answer_line(asked) == line
    assert all(len(value) <= 301 for _, value in answer_pairs(asked))
