"""The inbox as a list to work through: rows, keys, several at once, and what was opened beside it."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from playwright.async_api import Page, expect

from ..e2e.conftest import LIMIT_S, POLL_S, RunningHub
from .conftest import LAPTOP, Bridge, Person, ask, form
from .test_looks import CALM, RUN_AXE
from .test_looks import PEERS as NPM

pytestmark = pytest.mark.usefixtures("settled")

PHONE = {"width": 390, "height": 844}
MENU: dict[str, Any] = {
    "dish": {
        "type": "string",
        "title": "Dish",
        "oneOf": [{"const": "curry", "title": "Vegetable curry"}, {"const": "soup", "title": "Tomato soup"}],
    },
    "sides": {
        "type": "array",
        "title": "Sides",
        "items": {"anyOf": [{"const": "r", "title": "Rice"}, {"const": "s", "title": "Salad"}]},
    },
    "spicy": {"type": "boolean", "title": "Spicy", "default": False},
    **{f"note{n}": {"type": "string", "title": f"Note {n}"} for n in range(6)},
}
IN_SIGHT = """it => {
    const { top, bottom } = it.getBoundingClientRect();
    const at = document.elementFromPoint(it.getBoundingClientRect().left + 5, (top + bottom) / 2);
    return top >= 0 && bottom <= innerHeight && it.contains(at);
}"""
MOST_ELEMENTS = """async () => {
    const list = document.querySelector(".listing");
    let most = 0;
    for (let at = 0; at <= 40; at += 1) {
        list.scrollTop = list.scrollHeight * at / 40;
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        most = Math.max(most, document.querySelectorAll("*").length);
    }
    return most;
}"""


async def in_turn(hub: RunningHub, *questions: dict[str, Any]) -> list[str]:
    """Has a server ask one question after the other; the calls' ids."""
    return [await ask(hub, question) for question in questions]


async def opened(page: Page, title: str) -> None:
    await expect(page.locator("main h1")).to_have_text(title)
    await expect(page.locator("main :focus")).to_have_count(1)


async def test_two_keys_lead_from_the_top_of_the_page_to_the_first_field(hub: RunningHub, ada: Person) -> None:
    await in_turn(hub, form("First?", MENU), form("Second?", {}))
    press = ada.page.keyboard.press
    await expect(ada.page.locator("a.card")).to_have_count(2)
    await press("j")
    await press("Enter")
    await opened(ada.page, "First?")
    assert await ada.page.locator(":focus").evaluate("it => it.closest('.field').textContent") == (
        "Dish optionalVegetable currySoupNo choice".replace("Soup", "Tomato soup")
    )


async def test_keys_move_through_the_rows_open_and_come_back(hub: RunningHub, ada: Person) -> None:
    await in_turn(hub, form("One?", {}), form("Two?", {}), form("Three?", {}))
    press, focused = ada.page.keyboard.press, ada.page.locator(":focus")
    await expect(ada.page.locator("a.card")).to_have_count(3)
    for key, text in (("j", "One?"), ("j", "Two?"), ("j", "Three?"), ("j", "Three?"), ("k", "Two?")):
        await press(key)
        await expect(focused).to_contain_text(text)
    await press("Enter")
    await opened(ada.page, "Two?")
    await press("Escape")
    await expect(ada.page.locator("main h1")).to_have_text("Inbox")
    await press("j")
    await expect(focused).to_contain_text("Two?")
    await press("j")
    await press("Enter")
    await opened(ada.page, "Three?")
    await press("Escape")
    await expect(ada.page.locator("main h1")).to_have_text("Inbox")
    await press("/")
    await expect(ada.page.get_by_role("searchbox")).to_be_focused()
    await ada.page.keyboard.type("jke?x Two")
    await expect(ada.page.get_by_role("searchbox")).to_have_value("jke?x Two")
    await expect(ada.page.locator("dialog")).to_be_hidden()


async def test_a_dialog_has_all_keys_and_turns_them_off(hub: RunningHub, ada: Person) -> None:
    await ask(hub, form("Here?", {}))
    await expect(ada.page.locator("a.card")).to_have_count(1)
    await ada.page.keyboard.press("?")
    dialog = ada.page.get_by_role("dialog", name="Keys")
    await expect(dialog.locator("kbd")).to_have_text(["j", "k", "Enter", "x", "e", "/", "Esc", "Ctrl Enter", "?"])
    await dialog.get_by_label("Use keys of one letter").uncheck()
    await ada.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(ada.page.locator("main")).to_be_focused()
    await ada.page.keyboard.press("j")
    await expect(ada.page.locator("main")).to_be_focused()
    await ada.page.keyboard.press("?")
    await dialog.get_by_label("Use keys of one letter").check()
    await dialog.get_by_role("button", name="Close").click()
    await ada.page.keyboard.press("j")
    await expect(ada.page.locator("a.card")).to_be_focused()


async def test_several_questions_are_declined_at_once_after_asking(hub: RunningHub, ada: Person) -> None:
    asked = (*(form(f"No {n}?", {}) for n in range(3)), {"method": "roots/list"}, form("Stays?", {}))
    *_, last = await in_turn(hub, *asked)
    page = ada.page
    await expect(page.locator("a.card")).to_have_count(5)
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.get_by_label("Select: No 2?").check()
    await page.get_by_label("Select: Which directories").check()
    await expect(page.get_by_role("button", name="Decline 4")).to_be_visible()
    await page.keyboard.press("e")
    dialog = page.get_by_role("dialog", name="Decline 4 questions?")
    await dialog.get_by_role("button", name="Keep").click()
    assert len(await hub.client.inbox.list(states=["open"])) == 5
    await page.get_by_role("button", name="Decline 4").click()
    await dialog.get_by_role("button", name="Decline").click()
    await expect(page.get_by_text("4 declined.")).to_be_visible()
    await expect(page.locator("a.card")).to_have_count(1)
    await expect(page.locator("a.card")).to_contain_text("Stays?")
    declined = await hub.client.inbox.list(states=["answered"], limit=4)
    assert [each.answered_by for each in declined] == ["Ada"] * 4
    await page.locator("a.card").focus()
    await page.keyboard.press("e")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await hub.call(last)


async def test_a_question_of_yes_or_no_is_answered_in_its_row(hub: RunningHub, ada: Person) -> None:
    sure = {"sure": {"type": "boolean", "title": "Deploy now"}}
    first = await ask(hub, form("Deploy?", sure, "sure"))
    await ada.page.get_by_role("button", name="Yes: Deploy?").click()
    await expect(ada.page.locator(".listing [role=status]")).to_have_text("“Deploy?”: Yes.")
    second = await ask(hub, form("Mirror?", sure), form("Two fields?", sure | {"other": {"type": "boolean"}}))
    await expect(ada.page.locator("a.card")).to_have_count(2)
    await expect(ada.page.get_by_role("button", name="Yes: Two fields?")).to_have_count(0)
    no = ada.page.get_by_role("button", name="No: Mirror?")
    await expect(no).to_have_accessible_description("Deploy now")
    await no.click()
    answered = await hub.request((await hub.client.inbox.list(call_id=first))[0].id, state="answered")
    assert (answered.answer["content"], answered.answered_by) == ({"sure": True}, "Ada")
    await expect(ada.page.locator("a.card")).to_have_count(1)
    found = [each.answer for each in await hub.client.inbox.list(call_id=second, states=["answered"])]
    assert found == [{"action": "accept", "content": {"sure": False}}]


async def test_yes_or_no_that_cannot_be_read_in_its_row_is_shown_whole_first(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    long = f"Shall it go on {'and on ' * 20}until all is gone?"
    await ask(hub, form(long, {"keep": {"type": "boolean", "title": "Keep a copy of all that is there"}}))
    person: Person = await visit(await bridge.new_link(), "Ada", viewport=PHONE)
    yes, dialog = person.page.get_by_role("button", name="Yes: Shall"), person.page.get_by_role("dialog")
    await yes.click()
    await expect(dialog.locator("p:not(.help)")).to_have_text([long, "Keep a copy of all that is there: Yes"])
    await dialog.get_by_role("button", name="Keep").click()
    assert len(await hub.client.inbox.list(states=["open"])) == 1
    await yes.click()
    await dialog.get_by_role("button", name="Yes").click()
    await expect(person.page.locator("a.card")).to_have_count(0)
    (answered,) = await hub.client.inbox.list(states=["answered"], limit=1)
    assert answered.answer["content"] == {"keep": True}


async def test_the_second_click_of_two_answers_nothing(hub: RunningHub, ada: Person) -> None:
    await in_turn(hub, *(form(f"Now {n}?", {"ok": {"type": "boolean"}}) for n in range(3)))
    box = await ada.page.get_by_role("button", name="Yes: Now 0?").bounding_box()
    assert box is not None
    x, y = box["x"] + 5, box["y"] + 5
    await ada.page.mouse.click(x, y)
    await expect(ada.page.locator("a.card")).to_have_count(2)
    # What has come under the pointer is pressed by the second click of a double click.
    button = ada.page.get_by_role("button", name="Yes: Now 1?")
    await button.evaluate("it => it.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 2 }))")
    await ada.page.get_by_role("button", name="No: Now 2?").click()
    await expect(ada.page.locator("a.card")).to_have_count(1)
    await expect(ada.page.locator("a.card")).to_contain_text("Now 1?")


async def test_the_keyboard_goes_on_where_a_row_has_gone(hub: RunningHub, ada: Person) -> None:
    await in_turn(hub, *(form(f"Next {n}?", {"ok": {"type": "boolean"}}) for n in range(4)))
    press, focused = ada.page.keyboard.press, ada.page.locator(":focus")
    await expect(ada.page.locator("a.card")).to_have_count(4)
    await ada.page.get_by_role("button", name="Yes: Next 1?").focus()
    await press("Enter")
    await expect(ada.page.locator("a.card")).to_have_count(3)
    await expect(focused).to_contain_text("Next 2?")
    await press("x")
    await expect(ada.page.get_by_label("Select: Next 2?")).to_be_checked()
    await ada.page.get_by_label("Select: Next 2?").focus()
    await press("x")
    await expect(ada.page.get_by_label("Select: Next 2?")).not_to_be_checked()
    await expect(focused).to_contain_text("Next 2?")
    await press("j")
    await expect(focused).to_contain_text("Next 3?")
    await press("e")
    await press("ArrowRight")
    await press("Enter")
    await expect(ada.page.locator("a.card")).to_have_count(2)
    await expect(focused).to_contain_text("Next 2?")


@pytest.mark.parametrize("size", [PHONE, LAPTOP])
async def test_the_question_comes_first_and_sending_stays_in_sight(
    size: dict[str, int], hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await ask(hub, form("What would you like?", MENU))
    person: Person = await visit(await bridge.new_link(), "Ada", viewport=size)
    main = await person.open("What would you like?")
    await expect(main.locator(".claim")).to_contain_text("You are answering")
    top = await main.get_by_role("heading", level=1).evaluate("it => it.getBoundingClientRect().bottom")
    assert top < size["height"] / 3
    assert await main.locator(".folded").evaluate("it => it.offsetHeight") < 50
    send = main.get_by_role("button", name="Send answer")
    assert await send.evaluate(IN_SIGHT)
    await main.get_by_label("Note 5").focus()
    assert await main.get_by_label("Note 5").evaluate(IN_SIGHT)
    assert await send.evaluate(IN_SIGHT)


async def test_an_answer_is_shown_in_its_words_with_what_the_call_returned_and_the_next_question(
    hub: RunningHub, ada: Person
) -> None:
    await ask(hub, form("Lunch?", MENU), form("Dessert?", {}))
    main = await ada.open("Lunch?")
    await main.get_by_label("Vegetable curry").check()
    await main.get_by_label("Rice").check()
    await main.get_by_label("Salad").check()
    await main.get_by_role("button", name="Send answer").click()
    outcome = main.get_by_role("region", name="Outcome")
    await expect(outcome.locator(".facts").first).to_have_text("DishVegetable currySidesRice, SaladSpicyno")
    await expect(outcome.locator(".returned")).to_contain_text("ask goes on")
    await expect(outcome.locator("a.primary")).to_have_text("Next question")
    await outcome.get_by_role("link", name="Next question").click()
    await opened(ada.page, "Dessert?")
    await main.get_by_role("button", name="Accept").click()
    await expect(outcome.locator(".returned")).to_contain_text("ask returned")
    await expect(outcome.locator(".returned")).to_contain_text('"action": "accept"')
    await expect(outcome.locator("a.primary")).to_have_text("Back to the inbox")


async def test_a_thousand_questions_are_scrolled_through_with_few_elements(hub: RunningHub, ada: Person) -> None:
    given = {"question": form("Flood?", {"name": {"type": "string"}}), "count": 250}
    for _ in range(4):
        await hub.client.call_tool("dictated", "many", given)
    with anyio.fail_after(LIMIT_S):
        while await ada.waiting() != 1000:
            await anyio.sleep(POLL_S)
    assert await ada.page.evaluate(MOST_ELEMENTS) < 1500
    await expect(ada.page.locator(".rows > li[aria-posinset='1000']")).to_be_visible()
    focused = ada.page.locator(":focus")
    await ada.page.keyboard.press("j")
    await expect(focused).to_contain_text("Flood?")
    await ada.page.locator(".listing").evaluate("it => { it.scrollTop = it.scrollHeight; }")
    await expect(ada.page.locator(".rows > li[aria-posinset='1000']")).to_be_visible()
    # A person who scrolls away keeps the place of the keyboard.
    assert await focused.evaluate("it => it.parentElement.ariaPosInSet") == "1"
    await ada.page.keyboard.press("j")
    assert await focused.evaluate("it => it.parentElement.ariaPosInSet") == "2"
    assert await focused.evaluate(IN_SIGHT)
    # The list stays where it is scrolled to, on its page and beside what was opened.
    for _ in range(498):
        await ada.page.keyboard.press("j")
    assert await focused.evaluate("it => it.parentElement.ariaPosInSet") == "500"
    await ada.page.keyboard.press("Enter")
    await opened(ada.page, "Flood?")
    current = ada.page.locator(".listing a.card[aria-current]")
    await expect(ada.page.locator("#side .rows > li[aria-posinset='500'] a[aria-current]")).to_have_count(1)
    assert await current.evaluate(IN_SIGHT)
    await ada.page.keyboard.press("Escape")
    await expect(ada.page.locator("main .listing")).to_be_visible()
    assert await ada.page.locator(".rows > li[aria-posinset='500']").evaluate(IN_SIGHT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_what_comes_over_the_page_is_fit_for_everybody_too(
    scheme: str, hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    axe = (NPM / "page/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    person: Person = await visit(await bridge.new_link(), "Ada", script=axe, color_scheme=scheme, **CALM)
    page = person.page
    await ask(hub, form("Sure?", {"sure": {"type": "boolean"}}), form("Lunch?", MENU))
    await expect(page.locator("a.card")).to_have_count(2)
    wrong: dict[str, list[str]] = {"rows": await page.evaluate(RUN_AXE)}
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    wrong["keys"] = await page.evaluate(RUN_AXE)
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.get_by_role("button", name="Decline 1")).to_be_visible()
    wrong["selection"] = await page.evaluate(RUN_AXE)
    await page.keyboard.press("e")
    await expect(page.get_by_role("dialog")).to_be_visible()
    wrong["sure"] = await page.evaluate(RUN_AXE)
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Done").click()
    await page.get_by_role("button", name="Yes: Sure?").click()
    await expect(page.get_by_text("“Sure?”: Yes.")).to_be_visible()
    await expect(page.locator("a.card")).to_have_count(1)  # else the row may move while it is clicked
    main = await person.open("Lunch?")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.locator(".returned")).to_contain_text("ask returned")
    wrong["outcome"] = await page.evaluate(RUN_AXE)
    await page.set_viewport_size(PHONE)
    await page.get_by_role("button", name="More").click()
    wrong["more"] = await page.evaluate(RUN_AXE)
    assert {name: found for name, found in wrong.items() if found} == {}
