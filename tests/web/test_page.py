"""What people do with the page, in a browser, with a real hub and real MCP servers behind it."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from playwright.async_api import expect

from hubbub_client.services.tokens import Grant

from ..e2e.conftest import LIMIT_S, RunningHub
from .conftest import Bridge, ask, asking, dictated, form

pytestmark = pytest.mark.usefixtures("settled")

SAMPLING = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Describe this picture."}},
            {
                "role": "user",
                "content": {
                    "type": "image",
                    "mimeType": "image/gif",
                    "data": "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
                },
            },
        ],
        "systemPrompt": "Be brief.",
        "maxTokens": 50,
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.9},
    },
}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with servers that ask; every test settles what it had asked."""
    return await start_shared_hub({"asking": asking(), "dictated": dictated(roots="ask")}, connected=True)


async def got(hub: RunningHub, call_id: str) -> list[Any]:
    """What the server got."""
    call = await hub.call(call_id)
    assert call.state == "completed", call.error
    return json.loads(call.result["content"][0]["text"])


async def test_an_answer_in_one_browser_is_seen_at_once_in_the_other(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada = await visit(await bridge.new_link(), "Ada")
    bob = await visit(await ada.another_link(), "Bob")
    call = await hub.client.start_tool("asking", "ask", {"message": "Who is it?"})
    for person in (ada, bob):
        await expect(person.page).to_have_title("(1) Inbox · Hubbub")
    main = await ada.open("Who is it?")
    await expect(bob.page.locator("a.card")).to_contain_text("being answered by Ada")
    theirs = await bob.open("Who is it?")
    await expect(theirs.locator(".claim")).to_contain_text("Being answered by Ada")
    await expect(theirs.get_by_role("button", name="Send answer")).to_be_disabled()
    await main.get_by_label("Name").fill("Ada Lovelace")
    await main.get_by_role("button", name="Send answer").click()
    await expect(theirs.get_by_role("heading", name="Ada has answered")).to_be_visible()
    await expect(theirs.locator(".outcome")).to_contain_text("Ada Lovelace")
    await expect(main.locator(".outcome")).to_contain_text("arrived at the server")
    ended = await hub.call(call.id)
    assert ended.result["content"][0]["text"] == "accept Ada Lovelace"


async def test_with_a_token_of_its_own_the_page_shows_what_that_may_see_and_answers_in_its_name(
    hub: RunningHub, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    made = await hub.client.tokens.create("desk", [Grant(role="responder", servers=("ask*",))])
    bridge: Bridge = await start_bridge(hub, token=made.secret)
    desk = await visit(bridge.link, None)
    await expect(desk.page.locator("#person")).to_contain_text("desk")
    call = await hub.client.start_tool("asking", "ask", {"message": "At the desk?"})
    main = await desk.open("At the desk?")
    await expect(main.locator(".claim")).to_contain_text("You are answering this")
    await main.get_by_label("Name").fill("Grace")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.locator(".outcome")).to_contain_text("arrived at the server")
    ended = await hub.call(call.id)
    assert (await hub.client.inbox.get(ended.pending_ids[0])).answered_by == "desk"
    await desk.go("servers")
    await expect(desk.page.locator("main a.card")).to_have_count(1)


async def test_a_claim_is_given_back_by_leaving_and_the_next_person_gets_it(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada = await visit(await bridge.new_link(), "Ada")
    bob = await visit(await bridge.new_link(), "Bob")
    await ask(hub, form("Mine?", {"name": {"type": "string"}}))
    mine = await ada.open("Mine?")
    await expect(mine.locator(".claim")).to_contain_text("You are answering")
    theirs = await bob.open("Mine?")
    await expect(theirs.locator(".claim")).to_contain_text("Being answered by Ada")
    await ada.go("inbox")
    await expect(theirs.locator(".claim")).to_contain_text("You are answering")
    await theirs.get_by_role("button", name="Decline").click()
    await expect(theirs.get_by_role("heading", name="You have answered")).to_be_visible()
    await expect(ada.page.locator(".none")).to_be_visible()


async def test_what_is_wrong_is_said_at_its_field_by_the_page_and_by_the_hub(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    fields = {
        "portions": {"type": "integer", "title": "Portions", "minimum": 1, "maximum": 8},
        "mail": {"type": "string", "title": "Mail", "format": "email"},
        "price": {"type": "number", "title": "Price"},
    }
    call_id = await ask(hub, form("Lunch?", fields, "portions", "mail"))
    ada = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("Lunch?")
    await main.get_by_label("Portions").fill("9")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.get_by_label("Portions")).to_have_attribute("aria-invalid", "true")
    await expect(main.locator(".field", has_text="Portions").locator(".problem")).to_have_text(
        "This must be at most 8."
    )
    await expect(main.get_by_label("Portions")).to_be_focused()
    await main.get_by_label("Portions").fill("2")
    await main.get_by_label("Price").fill("1e400")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.locator(".field", has_text="Price").locator(".problem")).to_contain_text("of that size")
    await main.get_by_label("Price").fill("1e3")
    # A browser takes this for an address, the hub does not.
    await main.get_by_label("Mail").fill("ada..lovelace@example.org")
    await main.get_by_role("button", name="Send answer").click()
    problem = main.locator(".field", has_text="Mail").locator(".problem")
    await expect(problem).to_be_visible()
    assert (await hub.client.inbox.list(states=["open"])) != []
    await main.get_by_label("Mail").fill("ada@example.org")
    await main.get_by_role("button", name="Send answer").click()
    assert await got(hub, call_id) == [
        {"result": {"action": "accept", "content": {"portions": 2, "mail": "ada@example.org", "price": 1000}}}
    ]


async def test_every_kind_of_field_starts_with_its_default_and_gives_its_value(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    many = [{"const": f"c{n}", "title": f"City {n}"} for n in range(10)]
    fields = {
        "dish": {"type": "string", "oneOf": [{"const": "s", "title": "Soup"}, {"const": "p", "title": "Pasta"}]},
        "city": {"type": "string", "title": "City", "oneOf": many, "default": "c3"},
        "old": {"type": "string", "title": "Old", "enum": ["x", "y"], "enumNames": ["Ex", "Why"]},
        "sides": {"type": "array", "title": "Sides", "items": {"anyOf": many[:3]}, "minItems": 1},
        "spicy": {"type": "boolean", "title": "Spicy", "default": True},
        "sure": {"type": "boolean", "title": "Sure"},
        "day": {"type": "string", "title": "Day", "format": "date"},
        "at": {"type": "string", "title": "At", "format": "date-time"},
        "page": {"type": "string", "title": "Page", "format": "uri"},
        "price": {"type": "number", "title": "Price", "default": 2.5},
        "left": {"type": "string", "title": "Left out"},
        "mood": {"type": "string", "title": "Mood", "maxLength": 1},
    }
    call_id = await ask(hub, form("Everything?", fields, "dish", "sure", "sides"))
    ada = await visit(await bridge.new_link(), "Ada", timezone_id="Europe/Vienna")
    main = await ada.open("Everything?")
    await main.get_by_label("Pasta").check()
    await expect(main.get_by_label("City", exact=False).and_(main.locator("select"))).to_have_value("3")
    await expect(main.get_by_text("if left empty")).to_have_text(["a number · if left empty: 2.5"])
    await main.get_by_label("Why").check()
    await main.get_by_label("City 1").check()
    await expect(main.get_by_label("Spicy")).to_be_checked()
    await main.get_by_label("Yes").check()
    await main.get_by_label("Day").fill("2026-02-28")
    await main.get_by_label("At", exact=False).and_(main.locator("[type=datetime-local]")).fill("2026-02-28T12:00")
    await main.get_by_label("Page").fill("https://example.org/")
    await main.get_by_label("Mood").fill("\N{GRINNING FACE}")
    await main.get_by_role("button", name="Send answer").click()
    content = {
        "dish": "p",
        "city": "c3",
        "old": "y",
        "sides": ["c1"],
        "spicy": True,
        "sure": True,
        "day": "2026-02-28",
        "at": "2026-02-28T11:00:00.000Z",
        "page": "https://example.org/",
        "price": 2.5,
        "mood": "\N{GRINNING FACE}",
    }
    assert await got(hub, call_id) == [{"result": {"action": "accept", "content": content}}]


async def test_a_page_is_visited_only_with_consent_and_its_host_is_plain(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    url = "https://paypal.com@xn--pypal-4ve.com/pay?from=paypal.com"
    question = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Pay", "url": url, "elicitationId": "1"},
    }
    call_id = await ask(hub, question)
    ada = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("Pay")
    await expect(main.locator(".address")).to_have_text(url)
    await expect(main.locator(".host")).to_have_text("xn--pypal-4ve.com")
    await expect(main.locator(".warning").first).to_contain_text("may only look like")
    link = main.get_by_role("link", name="Open the page")
    await expect(link).to_be_disabled()
    assert await link.get_attribute("href") is None
    await expect(main.get_by_role("button", name="Accept")).to_be_disabled()
    await main.get_by_label("I have looked at this address").check()
    await expect(link).to_have_attribute("href", url)
    await expect(link).to_have_attribute("rel", "noopener noreferrer")
    await main.get_by_role("button", name="Accept").click()
    assert await got(hub, call_id) == [{"result": {"action": "accept"}}]


async def test_a_reply_is_written_over_and_sent_with_its_model(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, SAMPLING)
    ada = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("[image]")
    await expect(main.get_by_text("Be brief.")).to_be_visible()
    picture = main.get_by_role("img", name="Picture sent by the server")
    await expect(picture).to_have_js_property("naturalWidth", 1)
    await expect(main.get_by_label("Speed: 90 %")).to_be_visible()
    reply = main.get_by_label("Your reply")
    await reply.fill("A dog.")
    await reply.fill("A red dot.")
    await main.get_by_text("Model, stop reason").click()
    await main.get_by_label("Model that").fill("eyes")
    await main.get_by_role("button", name="Send reply").click()
    await expect(main.locator(".outcome")).to_contain_text("A red dot.")
    (answer,) = await got(hub, call_id)
    assert answer["result"] == {
        "role": "assistant",
        "content": {"type": "text", "text": "A red dot."},
        "model": "eyes",
        "stopReason": "endTurn",
    }


async def test_the_loser_of_a_race_is_told_who_answered_and_what(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await ask(hub, form("First?", {"name": {"type": "string", "title": "Name"}}))
    (request,) = await hub.client.inbox.list(states=["open"])
    ada = await visit(await bridge.new_link(), "Ada")
    # Without its claim the page races on equal terms.
    await ada.page.route("**/api/claim", lambda route: route.abort())

    async def be_faster(route: Any) -> None:
        await request.accept({"name": "somebody else"})
        await route.continue_()

    await ada.page.route("**/api/answer", be_faster)
    main = await ada.open("First?")
    await main.get_by_label("Name").fill("me")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.get_by_role("heading", name="Somebody was faster: local has answered")).to_be_visible()
    await expect(main.locator(".outcome")).to_contain_text("somebody else")
    await expect(main.locator(".outcome")).to_contain_text("Your answer was not sent.")


async def test_a_question_is_answered_with_nothing_but_the_keyboard(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Keys?", {"name": {"type": "string", "title": "Name"}}, "name"))
    ada = await visit(await bridge.new_link(), "Ada")
    press = ada.page.keyboard.press
    focused = ada.page.locator(":focus")

    async def tab_to(text: str) -> None:
        with anyio.fail_after(LIMIT_S):
            await press("Tab")
            while text not in await focused.evaluate("it => it.labels?.[0]?.innerText ?? it.innerText"):
                await press("Tab")

    await tab_to("Keys?")
    await press("Enter")
    await expect(ada.page.get_by_role("heading", name="Keys?", level=1)).to_be_visible()
    await expect(ada.page.get_by_label("Name", exact=True)).to_be_focused()
    await ada.page.keyboard.type("Ada")
    await press("Enter")
    await expect(ada.page.locator(".outcome h2")).to_be_focused()
    assert await got(hub, call_id) == [{"result": {"action": "accept", "content": {"name": "Ada"}}}]
    await press("Escape")
    await expect(ada.page.get_by_role("heading", name="Inbox")).to_be_visible()


async def test_a_call_shows_where_its_time_went_and_its_questions(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("When?", {"name": {"type": "string"}}))
    ada = await visit(await bridge.new_link(), "Ada")
    await ada.go(f"call/{call_id}")
    main = ada.page.locator("main")
    picture = main.get_by_role("img", name="Time of the call")
    await expect(picture.locator(".person")).to_have_count(1)
    await main.get_by_role("link", name="When?").click()
    await main.get_by_role("button", name="Dismiss").click()
    await expect(main.locator(".outcome")).to_contain_text("You have answered: dismissed")
    await main.locator(".facts a").first.click()
    await expect(main.locator(".pill").first).to_have_text("completed")
    await expect(main.locator(".legend")).to_contain_text("waiting for a person")
    await expect(main.locator(".question")).to_have_count(1)
    await expect(main.get_by_text('"action": "cancel"').first).to_be_visible()
