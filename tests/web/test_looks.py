"""Every page, for people with a phone, in the dark, with a screen reader, or with nothing but a keyboard."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, dictated, form

PEERS = Path(os.environ.get("HUBBUB_PEERS") or Path(__file__).parents[2] / ".peers")
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PICTURE = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
LONG = "word " * 60 + "x" * 400
LONG_CHOICE = "a-word-that-is-far-too-long-for-any-line-" * 5
RUN_AXE = """async () => {
    const runOnly = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'];
    const { violations } = await axe.run(document, { runOnly });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)}`));
}"""
# In one step: what is drawn again meanwhile has no height any more.
HEIGHTS = """() => Math.min(...[...document.querySelectorAll("main button, nav a")]
    .filter((it) => it.checkVisibility()).map((it) => Math.round(it.getBoundingClientRect().height)))"""
# The longest line of running text, in letters of its own size.
LETTERS = """() => Math.max(0, ...[...document.querySelectorAll("main p, main .words, main .help")]
    .filter((it) => !it.matches(".code, .address") && it.checkVisibility() && it.textContent.length > 115)
    .map((it) => it.clientWidth / (parseFloat(getComputedStyle(it).fontSize) / 2)))"""
SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) window.shifted += value;
}).observe({ type: "layout-shift" });
"""
"""How much of the page moved by itself, as browsers measure it."""
# Colours that fade in are looked at when they are there.
CALM = {"reduced_motion": "reduce"}
OPEN_ALL = "document.querySelectorAll('main details').forEach((each) => { each.open = true; })"
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}

TOOL = {
    "name": "greet",
    "description": LONG,
    "inputSchema": {"type": "object", "properties": {"who": {"type": "string", "title": "Who"}}},
}
FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Name", "description": LONG},
    "dish": {"type": "string", "title": LONG_CHOICE, "enum": ["soup", LONG_CHOICE]},
    "sides": {"type": "array", "title": "Sides", "items": {"type": "string", "enum": ["rice", "salad"]}},
    "more": {"type": "array", "title": "More", "items": {"type": "string", "enum": [f"side {n}" for n in range(30)]}},
    "city": {"type": "string", "title": "City", "enum": [f"city {n}" for n in range(20)]},
    "sure": {"type": "boolean", "title": "Sure", "default": True},
    "day": {"type": "string", "title": "Day", "format": "date"},
    "moment": {"type": "string", "title": "Moment", "format": "date-time"},
}
URL = f"http://xn--e1awd7f.{LONG_CHOICE[:60]}.example/{LONG[-400:]}"
PAGE = {"mode": "url", "message": "A page", "url": URL, "elicitationId": "1"}
TALK = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": f"A talk {LONG}"}},
        {"role": "assistant", "content": {"type": "image", "mimeType": "image/gif", "data": PICTURE}},
        {"role": "user", "content": {"type": "audio", "mimeType": "audio/wav", "data": SOUND}},
    ],
    "maxTokens": 50,
    "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.9, "costPriority": 0.1},
}
QUESTIONS = (
    form(f"A form {LONG}", FIELDS, "name"),
    {"method": "elicitation/create", "params": PAGE},
    {"method": "sampling/createMessage", "params": TALK},
    {"method": "roots/list"},
)


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub where something of each kind waits, and something is over."""
    gone = {"command": "no-such-command", "retries": 0}
    hub = await start_shared_hub({"dictated": dictated(TOOL, roots="ask", answer_timeout_s=3600), "gone": gone})
    await hub.connected("dictated")
    done = await hub.client.start(
        "dictated", "tools/call", {"name": "ask", "arguments": {"questions": [form("Before?", {})]}}
    )
    await (await hub.asked())[0].decline()
    await hub.call(done.id)
    given = {"questions": list(QUESTIONS)}
    await hub.client.start_tool("dictated", "ask", given, call_id="waits")
    await hub.asked(len(QUESTIONS))
    return hub


async def routes(hub: RunningHub) -> list[str]:
    """Every page."""
    requests = [f"request/{request.id}" for request in await hub.client.inbox.list()]
    lists = ("inbox", "calls", "servers", "tasks", "catalog", "hosts", "approvals", "events", "history")
    return [
        *lists,
        *requests,
        "call/waits",
        "server/dictated",
        "server/gone",
        "catalog/dictated",
        "tool/dictated/greet",
        "add",
        "nowhere",
    ]


async def shown(person: Person, route: str) -> None:
    """Goes to a page, and waits until it is there: the one before it stays until it is made."""
    await person.go(route)
    await expect(person.page.locator(f"main .page[data-route='#/{route}']")).to_be_visible()
    if route != "nowhere":
        home = HOME.get(route.split("/")[0], route)
        await expect(person.page.locator(f"#nav [aria-current][href='#/{home}']")).to_have_count(1)
    await expect(person.page.locator("main h1")).to_be_visible()
    await expect(person.page.locator("main .warning", has_text="cannot be shown")).to_have_count(0)


HOME = {
    "request": "inbox",
    "call": "calls",
    "server": "servers",
    "tool": "catalog",
    "catalog": "catalog",
    "add": "servers",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
async def test_names_roles_and_colours_are_fit_for_everybody(
    scheme: str, device: str, hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    axe = (PEERS / "page/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    options = CALM | {"color_scheme": scheme} | (PHONE if device == "phone" else {})
    ada: Person = await visit(await bridge.new_link(), "Ada", script=axe, **options)
    wrong: dict[str, list[str]] = {}
    for route in await routes(hub):
        await shown(ada, route)
        await ada.page.evaluate(OPEN_ALL)
        wrong[route] = await ada.page.evaluate(RUN_AXE)
    await ada.page.locator("#person").click()
    wrong["the dialog of the person"] = await ada.page.evaluate(RUN_AXE)
    await ada.page.get_by_role("button", name="Log out").click()
    await expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()
    wrong["out"] = await ada.page.evaluate(RUN_AXE)
    assert {where: found for where, found in wrong.items() if found} == {}


async def test_no_page_is_wider_than_a_phone_and_every_button_can_be_hit_with_a_finger(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, **PHONE)
    for route in await routes(hub):
        await shown(ada, route)
        assert await ada.page.evaluate("document.documentElement.scrollWidth") <= 360, route
        assert await ada.page.evaluate(HEIGHTS) >= 44, route


async def test_a_phone_has_four_pages_at_hand_and_the_others_behind_one_button(
    bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, **PHONE)
    nav = ada.page.get_by_role("navigation", name="Pages")
    await expect(nav.locator("a:visible > span:not(.badge)")).to_have_text(["Inbox", "Calls", "Catalog", "Servers"])
    more = nav.get_by_role("button", name="More")
    await more.click()
    await expect(more).to_have_attribute("aria-expanded", "true")
    await nav.get_by_role("link", name="History").click()
    await expect(ada.page.get_by_role("heading", level=1)).to_have_text("History")
    await expect(nav.get_by_role("link", name="History")).to_be_hidden()
    await more.focus()
    await ada.page.keyboard.press("Enter")
    await expect(nav.get_by_role("link", name="History")).to_be_visible()
    await ada.page.keyboard.press("Escape")
    await expect(nav.get_by_role("link", name="History")).to_be_hidden()
    await expect(more).to_be_focused()


async def test_with_letters_of_twice_the_size_nothing_is_cut_off(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    zoomed = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, **zoomed)
    for route in await routes(hub):
        await shown(ada, route)
        assert await ada.page.evaluate("document.documentElement.scrollWidth") <= 640, route


@pytest.mark.parametrize("width", [1280, 2560, 3840])
async def test_lines_are_no_longer_than_can_be_read_on_however_large_a_screen(
    width: int, hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    size = {"viewport": {"width": width, "height": width * 9 // 16}}
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, **size)
    for route in await routes(hub):
        await shown(ada, route)
        assert await ada.page.evaluate(LETTERS) <= 115, route


async def test_colours_that_a_person_forces_show_what_is_chosen_and_what_is_new(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, forced_colors="active")
    main = await ada.open("A form")
    await expect(main.locator(".bar button").first).to_be_visible()
    side = ada.page.locator("#side")
    await expect(side.locator("a.card[aria-current]")).to_have_css("outline-style", "solid")
    ground = await ada.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await expect(side.locator(".unread").first).not_to_have_css("background-color", ground)


async def test_pages_stand_still_once_they_are_there_and_each_has_a_title_of_its_own(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", script=SHIFTS, **CALM)
    titles: dict[str, str] = {}
    for route in await routes(hub):
        await shown(ada, route)
        await ada.page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
        assert await ada.page.evaluate("window.shifted") <= 0.1, route
        await ada.page.evaluate("window.shifted = 0")
        titles[route] = await ada.page.title()
        assert await ada.page.locator("img:not([width][height]):not(.picture)").count() == 0
    assert len(set(titles.values())) == len(titles), titles


async def test_arrivals_are_said_to_those_who_do_not_see_them(hub: RunningHub, ada: Person) -> None:
    call = await hub.client.start_tool("dictated", "ask", {"questions": [form("Do you hear me?", {})]})
    await expect(ada.page.locator("#arrivals[aria-live=polite]")).to_have_text("dictated asks: Do you hear me?")
    await hub.client.calls.cancel(call.id, abort=True)


async def test_a_sampling_shows_its_picture_and_its_sound(hub: RunningHub, ada: Person) -> None:
    main = await ada.open("[audio]")
    await expect(main.get_by_role("img", name="Picture sent")).to_have_js_property("naturalWidth", 1)
    sound = main.get_by_label("Sound sent by the server")
    assert (await sound.get_attribute("src") or "").startswith("blob:")
    assert await sound.evaluate("it => it.controls && !it.autoplay")
    await expect(main.get_by_label("Low cost: 10 %")).to_be_visible()


async def test_who_asks_and_why_who_answered_and_when(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    (request,) = await hub.client.inbox.list(states=["answered"])
    ada: Person = await visit(await bridge.new_link(), "Ada")
    await ada.go(f"request/{request.id}")
    main = ada.page.locator("main")
    await expect(main.get_by_role("heading", name="Before?", level=1)).to_be_visible()
    await expect(main.locator(".facts").first).to_contain_text("Because ofask")
    await expect(main.locator(".facts").first).to_contain_text(f"Called by{request.caller}")
    await expect(main.get_by_role("heading", name=f"{request.answered_by} has answered")).to_be_visible()
    await expect(main.locator(".outcome time")).to_have_attribute("datetime", request.to_json()["answered_at"])
    await expect(main.locator(".moments")).to_contain_text(f"answered by {request.answered_by}")
    await ada.go("inbox")
    await expect(ada.page.locator("a.card").first).to_contain_text("because of ask, called by local")
