"""Whose question it is, as the page sees it: what the hub has not said hinders nobody."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from ..e2e.conftest import LIMIT_S, RunningHub
from .conftest import Bridge, Person, ask, form

pytestmark = pytest.mark.usefixtures("settled")

QUESTION = form("Whose?", {"name": {"type": "string", "title": "Name"}})
HEARD = """async id => (await import("/static/js/store.js")).tables.request.get(id)?.claim?.by"""
"""Who holds a claim, as far as the page's lists have heard."""

LAG = """
const lag = window.lag = { on: false, text: "", waiting: [] };
const decoder = new TextDecoder();
const fetched = window.fetch;
window.fetch = async (url, ...more) => {
  const response = await fetched(url, ...more);
  if (!String(url).endsWith("/feed")) return response;
  const late = new TransformStream({ transform: (chunk, out) => {
    if (!lag.on) { out.enqueue(chunk); return; }
    lag.text += decoder.decode(chunk, { stream: true });
    lag.waiting.push(() => out.enqueue(chunk));
  } });
  return new Response(response.body.pipeThrough(late), response);
};
"""
"""Lets a page's stream lag behind: while `lag.on`, what it brings waits in `lag.waiting`, as `lag.text`."""


@pytest.fixture
async def question(hub: RunningHub) -> str:
    """The id of the one open question."""
    await ask(hub, QUESTION)
    return (await hub.client.inbox.list(states=["open"]))[0].id


async def heard(page: Page, request_id: str, by: str | None) -> None:
    """Waits until the page's lists say who holds the claim."""
    with anyio.fail_after(LIMIT_S):
        while await page.evaluate(HEARD, request_id) != by:
            await anyio.sleep(0.01)


async def answered(hub: RunningHub, request_id: str) -> str | None:
    return (await hub.request(request_id, state="answered")).answered_by


async def test_an_answer_is_sent_while_the_claims_response_is_still_on_its_way(
    hub: RunningHub, question: str, ada: Person
) -> None:
    arrived = anyio.Event()

    async def hold(route: Route) -> None:
        response = await route.fetch()
        await arrived.wait()
        await route.fulfill(response=response)

    await ada.page.route("**/api/claim", hold)
    main = await ada.open("Whose?")
    await heard(ada.page, question, "Ada")
    await expect(main.locator(".claim")).to_be_hidden()
    await main.get_by_label("Name").fill("Ada")
    await ada.page.keyboard.press("Enter")
    await expect(main.get_by_role("heading", name="You have answered")).to_be_visible()
    assert await answered(hub, question) == "Ada"
    arrived.set()
    await expect(main.locator(".claim")).to_be_hidden()


async def test_a_renewal_that_gets_no_answer_hinders_nothing_and_is_made_again_soon(
    bridge: Bridge, question: str, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", clock=True)
    main = await ada.open("Whose?")
    await expect(main.locator(".claim")).to_contain_text("You are answering")
    asked: list[str] = []

    async def away(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or "")["claim_id"])
        error = {"reason": "UNAVAILABLE", "message": "the hub is away", "metadata": {}, "violations": []}
        await route.fulfill(status=503, json={"error": error})

    await ada.page.route("**/api/claim", away)
    await ada.page.clock.fast_forward(20_000)
    await expect(main.locator(".claim")).to_be_hidden()
    await expect(main.get_by_role("button", name="Send answer")).to_be_enabled()
    await ada.page.unroute("**/api/claim", away)
    await expect(main.locator(".claim")).to_contain_text("You are answering")
    assert len(set(asked)) == 1


async def test_a_claim_whose_response_was_lost_is_asked_for_again_and_is_the_same(
    hub: RunningHub, question: str, ada: Person
) -> None:
    lost: list[str] = []

    async def lose_one(route: Route) -> None:
        if lost:
            await route.continue_()
        else:
            lost.append(question)
            await route.fetch()
            await route.abort()

    await ada.page.route("**/api/claim", lose_one)
    main = await ada.open("Whose?")
    await heard(ada.page, question, "Ada")
    await expect(main.get_by_role("button", name="Send answer")).to_be_enabled()
    await expect(main.locator(".claim")).to_contain_text("You are answering")
    moments = (await hub.client.inbox.get(question)).moments
    assert [each.by for each in moments if each.what == "claimed"] == ["Ada"]


async def test_an_answer_that_was_lost_on_its_way_is_sent_again_with_the_id_of_the_first_attempt(
    hub: RunningHub, question: str, ada: Person
) -> None:
    sent: list[str] = []

    async def lose_one(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or "")["answer_id"])
        await (route.abort() if len(sent) == 1 else route.continue_())

    await ada.page.route("**/api/answer", lose_one)
    main = await ada.open("Whose?")
    await main.get_by_label("Name").fill("Ada")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main).to_contain_text("send it again in a moment")
    await main.get_by_role("button", name="Send answer").click()
    assert await answered(hub, question) == "Ada"
    first, second = sent
    assert first == second


async def test_what_is_answered_stays_so_when_an_older_change_comes_later(
    hub: RunningHub, bridge: Bridge, question: str, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", script=LAG)
    await ada.page.evaluate("lag.on = true")
    main = await ada.open("Whose?")
    with anyio.fail_after(LIMIT_S):
        while "Ada" not in await ada.page.evaluate("lag.text"):
            await anyio.sleep(0.01)
    older = await ada.page.evaluate("lag.waiting.length")
    await main.get_by_label("Name").fill("Ada")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.get_by_role("heading", name="You have answered")).to_be_visible()
    await ada.page.evaluate("count => lag.waiting.splice(0, count).forEach((bring) => bring())", older)
    await heard(ada.page, question, "Ada")
    await ada.page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    await expect(main.locator(".pill")).to_have_text("answered")
    await ada.page.keyboard.press("Escape")
    await expect(ada.page.get_by_role("heading", name="Inbox")).to_be_visible()
    assert await answered(hub, question) == "Ada"


@pytest.mark.parametrize("held_back", ["the request", "the response"])
async def test_a_claim_of_a_page_that_was_left_meanwhile_is_given_back(
    held_back: str, hub: RunningHub, bridge: Bridge, question: str, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada")
    asked, left = anyio.Event(), anyio.Event()

    async def hold(route: Route) -> None:
        if held_back == "the request":
            asked.set()
            await left.wait()
            await route.continue_()
        else:
            response = await route.fetch()
            asked.set()
            await left.wait()
            await route.fulfill(response=response)

    await ada.page.route("**/api/claim", hold)
    await ada.open("Whose?")
    await asked.wait()
    async with ada.page.expect_response("**/api/release"):
        await ada.go("inbox")
    async with ada.page.expect_response("**/api/claim"):
        left.set()
    assert (await hub.client.inbox.get(question)).claim is None
    bob: Person = await visit(await bridge.new_link(), "Bob")
    theirs = await bob.open("Whose?")
    await expect(theirs.locator(".claim")).to_contain_text("You are answering")


async def test_enter_says_why_when_somebody_else_is_at_it_and_what_was_written_stays(
    hub: RunningHub, bridge: Bridge, question: str, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada")
    bob: Person = await visit(await bridge.new_link(), "Bob")
    mine = await ada.open("Whose?")
    await expect(mine.locator(".claim")).to_contain_text("You are answering")
    theirs = await bob.open("Whose?")
    await expect(theirs.locator(".claim")).to_contain_text("Being answered by Ada")
    await theirs.get_by_label("Name").fill("Bob")
    await bob.page.keyboard.press("Enter")
    await expect(theirs.locator("[role=alert]")).to_contain_text("Being answered by Ada")
    await expect(theirs.get_by_label("Name")).to_be_focused()
    assert (await hub.client.inbox.get(question)).state == "open"
    await ada.go("inbox")
    await expect(theirs.locator(".claim")).to_contain_text("You are answering")
    await bob.page.keyboard.press("Enter")
    await expect(theirs.get_by_role("heading", name="You have answered")).to_be_visible()


async def test_a_second_window_takes_over_what_the_first_has_claimed(
    hub: RunningHub, question: str, ada: Person
) -> None:
    first = await ada.open("Whose?")
    await expect(first.locator(".claim")).to_contain_text("You are answering this; others")
    page = await ada.context.new_page()
    await page.goto(f"{ada.origin}/#/request/{question}")
    second = page.locator("main")
    await expect(second.locator(".claim")).to_contain_text("in another window")
    await expect(second.get_by_role("button", name="Send answer")).to_be_disabled()
    await second.get_by_role("button", name="Answer it here").click()
    await expect(second.locator(".claim")).to_contain_text("You are answering this; others")
    await expect(second.get_by_label("Name")).to_be_focused()
    await expect(first.locator(".claim")).to_contain_text("in another window")
    await page.keyboard.type("Ada")
    await page.keyboard.press("Enter")
    await expect(second.get_by_role("heading", name="You have answered")).to_be_visible()
    await expect(first.get_by_role("heading", name="Ada has answered")).to_be_visible()
    assert await answered(hub, question) == "Ada"


async def test_an_answer_that_did_not_get_through_leaves_consent_to_the_person(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    given = {"mode": "url", "message": "Consent?", "url": "https://example.org/", "elicitationId": "1"}
    await ask(hub, {"method": "elicitation/create", "params": given})
    ada: Person = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("Consent?")
    await ada.page.route("**/api/answer", lambda route: route.abort())
    await main.get_by_role("button", name="Decline").click()
    await expect(main.locator("[role=alert]")).to_contain_text("Nothing is lost")
    await expect(main.get_by_role("button", name="Accept")).to_be_disabled()


async def test_the_keyboard_is_at_the_page_once_the_name_is_given(bridge: Bridge, visit: Callable[..., Any]) -> None:
    live = anyio.Event()

    async def hold(route: Route) -> None:
        await live.wait()
        await route.continue_()

    async def given(person: Person) -> None:
        await person.page.route("**/api/rename", hold)
        await person.page.get_by_label("Your name").fill("Ada")
        await person.page.keyboard.press("Enter")
        await expect(person.page.locator("#link")).to_have_text("Live")
        live.set()

    ada: Person = await visit(await bridge.new_link(), given)
    await expect(ada.page.locator("main")).to_be_focused()
    await ada.page.locator("#person").focus()
    await ada.page.keyboard.press("Enter")
    await expect(ada.page.get_by_label("Your name")).to_be_focused()
    await ada.page.keyboard.press("Escape")
    await expect(ada.page.locator("#person")).to_be_focused()


async def test_a_card_that_changes_while_somebody_presses_it_still_opens(
    hub: RunningHub, question: str, ada: Person
) -> None:
    card = ada.page.locator("a.card").filter(has_text="Whose?")
    await card.locator(".what").hover(force=True)
    await ada.page.mouse.down()
    claim = await hub.client.inbox.claim(question)
    await expect(card).to_contain_text("being answered by")
    await ada.page.mouse.up()
    await expect(ada.page.locator("main").get_by_role("heading", level=1)).to_have_text("Whose?")
    await claim.decline()
