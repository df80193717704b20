"""What people type answers no question that they did not mean to answer."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, ask, form

pytestmark = pytest.mark.usefixtures("settled")

TEXT, YES_OR_NO = {"type": "string", "title": "Name"}, {"type": "boolean", "title": "Approve"}
FEW = {"type": "string", "title": "Colour", "enum": ["red", "yes", "no"]}
MANY = {"type": "string", "title": "City", "enum": ["yes", *(f"city {n}" for n in range(9))]}
SEVERAL = {"type": "array", "title": "Sides", "items": {"type": "string", "enum": ["yes", "no"]}}
PAGE = {"mode": "url", "message": "Asked?", "url": "https://example.org/", "elicitationId": "1"}
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "Asked?"}}]
KINDS: dict[str, dict[str, Any]] = {
    "nothing to fill in": form("Asked?", {}),
    "a form of several lines": form("Asked?", {"first": TEXT, "second": TEXT}),
    "a required yes or no": form("Asked?", {"ok": YES_OR_NO}, "ok"),
    "a yes or no that may be left out": form("Asked?", {"ok": YES_OR_NO}),
    "a yes or no with a default": form("Asked?", {"ok": YES_OR_NO | {"default": False}}),
    "a few choices": form("Asked?", {"one": FEW}),
    "many choices": form("Asked?", {"one": MANY}),
    "several choices": form("Asked?", {"some": SEVERAL}),
    "a long text": form("Asked?", {"text": TEXT | {"maxLength": 5000}}),
    "a page to visit": {"method": "elicitation/create", "params": PAGE},
    "a reply as a model": {"method": "sampling/createMessage", "params": {"messages": MESSAGES, "maxTokens": 9}},
    "directories": {"method": "roots/list"},
}
NARROW = {"width": 900, "height": 700}


async def still_open(hub: RunningHub, person: Person, count: int = 1) -> None:
    """Checks that the page has sent no answer, and that no dialog is left."""
    await expect(person.page.locator("dialog")).to_be_hidden()
    sent = await person.page.evaluate("performance.getEntriesByType('resource').map((it) => it.name)")
    assert [name for name in sent if name.endswith("/api/answer")] == []
    assert len(await hub.client.inbox.list(states=["open"])) == count


@pytest.mark.parametrize("kind", KINDS)
async def test_yes_and_no_typed_where_a_question_opens_answer_nothing(kind: str, hub: RunningHub, ada: Person) -> None:
    await ask(hub, KINDS[kind])
    press, write = ada.page.keyboard.press, ada.page.keyboard.type
    await expect(ada.page.locator("a.card")).to_have_count(1)
    await press("j")
    await press("Enter")
    await expect(ada.page.locator("main .claim")).to_contain_text("You are answering")
    await expect(ada.page.locator("main button:focus")).to_have_count(0)
    for word in ("yes", "no", "decline", "jex") if kind != "a form of several lines" else ("yes",):
        await write(word)
        await press("Enter")
        await press("Space")
    await still_open(hub, ada)
    # Where the list is not beside the question, there is nothing else that keys could mean.
    await ada.page.set_viewport_size(NARROW)
    await write("ejx")
    await still_open(hub, ada)
    await expect(ada.page.locator("main .claim")).to_contain_text("You are answering")


async def test_what_is_typed_into_the_only_line_is_the_answer(hub: RunningHub, ada: Person) -> None:
    await ask(hub, form("Asked?", {"name": TEXT}))
    await ada.open("Asked?")
    for _ in range(2):  # the second Enter of somebody who opens a question with two
        await ada.page.keyboard.press("Enter")
    await still_open(hub, ada)
    await ada.page.keyboard.type("yes")
    await ada.page.keyboard.press("Enter")
    await expect(ada.page.locator(".outcome h2")).to_have_text("You have answered")
    (answered,) = await hub.client.inbox.list(states=["answered"], limit=1)
    assert answered.answer == {"action": "accept", "content": {"name": "yes"}}


async def test_enter_leads_through_the_lines_and_sends_in_the_last(hub: RunningHub, ada: Person) -> None:
    fields = {"first": TEXT | {"title": "First"}, "last": TEXT | {"title": "Last"}}
    await ask(hub, form("Asked?", fields), form("By Ctrl Enter?", fields))
    main = await ada.open("Asked?")
    await ada.page.keyboard.type("a")
    await ada.page.keyboard.press("Enter")
    await expect(main.get_by_label("Last")).to_be_focused()
    await ada.page.keyboard.type("b")
    await ada.page.keyboard.press("Enter")
    await expect(ada.page.locator(".outcome h2")).to_have_text("You have answered")
    await ada.open("By Ctrl Enter?")
    await ada.page.keyboard.type("c")
    await ada.page.keyboard.press("Control+Enter")
    await expect(ada.page.locator(".outcome h2")).to_have_text("You have answered")
    answers = [each.answer["content"] for each in await hub.client.inbox.list(states=["answered"], limit=2)]
    assert sorted(answers, key=str) == [{"first": "a", "last": "b"}, {"first": "c"}]


@pytest.mark.parametrize("typed", ["yes\n", "every\n", "decline\n", "next please\n", "j\nyes\n"])
async def test_words_typed_in_the_list_decline_nothing(typed: str, hub: RunningHub, ada: Person) -> None:
    await ask(hub, form("One?", {"ok": YES_OR_NO}), form("Two?", {}))
    await expect(ada.page.locator("a.card")).to_have_count(2)
    await ada.page.locator("a.card").first.focus()
    await ada.page.keyboard.type(typed)
    if await ada.page.get_by_role("dialog").is_visible():
        await expect(ada.page.locator("dialog :focus")).to_have_text("Keep")
        await ada.page.keyboard.press("Enter")
    await still_open(hub, ada, 2)


@pytest.mark.parametrize("kind", ["nothing to fill in", "a page to visit", "a reply as a model", "directories"])
async def test_no_key_that_people_type_on_says_yes_in_a_dialog(kind: str, hub: RunningHub, ada: Person) -> None:
    await ask(hub, KINDS[kind])
    card, dialog = ada.page.locator("a.card"), ada.page.get_by_role("dialog")
    for keys in ("y", "n", "Space", "Escape", "Enter", "Tab Enter", "Shift+Tab Enter", "Tab Tab Space"):
        await card.focus()
        await ada.page.keyboard.press("e")
        await expect(ada.page.locator("dialog :focus")).to_have_text("Keep")
        for key in keys.split():
            await ada.page.keyboard.press(key)
        if await dialog.is_visible():
            await ada.page.keyboard.press("Escape")
        await still_open(hub, ada)


async def test_enter_twice_quickly_answers_one_question_and_leaves_the_next(hub: RunningHub, ada: Person) -> None:
    fields = {"name": TEXT}
    await ask(hub, form("One?", fields), form("Two?", fields))
    await ada.open("One?")
    await ada.page.keyboard.type("yes\n\n")
    await expect(ada.page.locator(".outcome h2")).to_have_text("You have answered")
    await ada.page.keyboard.type("\n\n y\n")
    assert [each.request["message"] for each in await hub.client.inbox.list(states=["open"])] == ["Two?"]
    sent = await ada.page.evaluate("performance.getEntriesByType('resource').map((it) => it.name)")
    assert len([name for name in sent if name.endswith("/api/answer")]) == 1


async def test_a_word_tab_and_enter_in_the_list_say_neither_yes_nor_no(hub: RunningHub, ada: Person) -> None:
    await ask(hub, form("One?", {"ok": YES_OR_NO}))
    await expect(ada.page.get_by_role("button", name="Yes: One?")).to_be_visible()
    for word in ("ok", "please"):  # the last letter of the second one asks whether to decline
        await ada.page.locator("a.card").focus()
        await ada.page.keyboard.type(word)
        await ada.page.keyboard.press("Tab")
        await expect(ada.page.locator(".quick button:focus, dialog button.danger:focus")).to_have_count(0)
        await ada.page.keyboard.press("Enter")
        await ada.page.keyboard.press("Escape")
    await still_open(hub, ada)


async def test_the_dialog_that_declines_begins_at_keep(hub: RunningHub, ada: Person) -> None:
    await ask(hub, form("One?", {}))
    await ada.page.locator("a.card").focus()
    await ada.page.keyboard.press("e")
    await expect(ada.page.get_by_role("dialog").get_by_role("button", name="Keep")).to_be_focused()
    await ada.page.keyboard.press("Enter")
    await still_open(hub, ada)
    await expect(ada.page.locator("a.card")).to_be_focused()


async def test_on_a_phone_no_keys_come_up_over_the_question(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await ask(hub, form("Asked?", {"name": TEXT}))
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    ada: Person = await visit(await bridge.new_link(), "Ada", **phone)
    main = await ada.open("Asked?")
    await expect(main.get_by_role("heading", level=1)).to_be_focused()
    await ada.page.keyboard.type("yes\n")
    await still_open(hub, ada)


async def test_a_link_of_a_notification_opens_at_the_first_field(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await ask(hub, form("Asked?", {"name": TEXT}))
    (waits,) = await hub.client.inbox.list(states=["open"])
    ada: Person = await visit(f"{await bridge.new_link()}&to=request/{waits.id}", "Ada")
    await expect(ada.page.locator("main").get_by_label("Name")).to_be_focused()
