"""The page for everybody: on a phone, by its accessibility tree, in the dark."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from ..e2e.conftest import RunningHub
from .conftest import Person, dictated, form

CONTROLS = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "checkbox",
    "radio",
    "combobox",
    "listbox",
    "meter",
    "img",
    "slider",
    "spinbutton",
    "DisclosureTriangle",
}
TOOL = {"name": "greet", "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}}}
LONG = "a-word-that-is-far-too-long-for-any-line-" * 5

PAIRS = [
    pair.split("/")
    for line in (
        "text/ground text/surface text/sunken text/accent-soft quiet/ground quiet/surface quiet/sunken",
        "accent/surface accent/ground accent/accent-soft on-accent/accent",
        "good/good-soft waits/waits-soft bad/bad-soft bad/surface busy/busy-soft",
    )
    for pair in line.split()
]
"""Which colours are written on which."""

FIELDS = {
    "name": {"type": "string", "title": "Name", "description": "As in the passport"},
    "dish": {"type": "string", "title": LONG, "enum": ["soup", LONG]},
    "city": {"type": "string", "title": "City", "enum": [f"city {n}" for n in range(20)]},
    "sides": {"type": "array", "title": "Sides", "items": {"type": "string", "enum": [f"side {n}" for n in range(30)]}},
    "spicy": {"type": "boolean", "title": "Spicy", "default": False},
    "day": {"type": "string", "title": "Day", "format": "date-time"},
}
QUESTIONS = (
    form(f"A form {LONG}", FIELDS, "dish"),
    {
        "method": "elicitation/create",
        "params": {
            "mode": "url",
            "message": "A page",
            "url": f"https://{LONG[:60]}.example/{LONG}",
            "elicitationId": "auth_1",
        },
    },
    {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": LONG}}],
            "maxTokens": 5,
            "modelPreferences": {"costPriority": 1},
        },
    },
    {"method": "roots/list"},
)


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with one question of each kind."""
    hub = await start_shared_hub({"dictated": dictated(TOOL, roots="ask")})
    await hub.connected("dictated")
    given = {"name": "ask", "arguments": {"questions": list(QUESTIONS)}}
    await hub.client.start("dictated", "tools/call", given, call_id="asks")
    await hub.asked(len(QUESTIONS))
    return hub


@pytest.fixture(scope="module")
async def link(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Callable[..., Any]:
    """Makes links to that hub."""
    return (await start_shared_bridge(hub)).new_link


async def routes(hub: RunningHub) -> list[str]:
    requests = [f"request/{each.id}" for each in await hub.client.inbox.list()]
    others = [
        "inbox",
        "approvals",
        "history",
        "calls",
        "call/asks",
        "servers",
        "server/dictated",
        "tasks",
        "catalog",
        "catalog/dictated",
        "tool/dictated/greet",
    ]
    return requests + others


async def show(person: Person, route: str) -> None:
    await person.go(route)
    # The page before it stays until this one is made.
    await expect(person.page.locator(f".page[data-route='#/{route}'] h1")).to_be_visible()


async def unnamed(page: Page) -> list[str]:
    """The roles of all controls without a name."""
    session = await page.context.new_cdp_session(page)
    tree = await session.send("Accessibility.getFullAXTree")
    await session.detach()
    return [
        node["role"]["value"]
        for node in tree["nodes"]
        if not node["ignored"]
        and node["role"]["value"] in CONTROLS
        and not node.get("name", {}).get("value", "").strip()
    ]


async def test_on_a_phone_no_page_is_wider_than_the_screen(
    hub: RunningHub, link: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await link(), "Ada", viewport={"width": 360, "height": 640}, has_touch=True)
    for route in await routes(hub):
        await show(ada, route)
        assert await ada.page.evaluate("document.documentElement.scrollWidth") == 360, route


async def test_every_control_has_a_name(hub: RunningHub, link: Callable[..., Any], visit: Callable[..., Any]) -> None:
    ada: Person = await visit(await link(), "Ada", color_scheme="dark", reduced_motion="reduce")
    for route in await routes(hub):
        await show(ada, route)
        await ada.page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
        assert await unnamed(ada.page) == [], route
    await ada.page.locator("#person").click()
    assert await unnamed(ada.page) == []
    await ada.page.get_by_role("button", name="Log out").click()
    await expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()
    assert await unnamed(ada.page) == []


async def test_arrivals_are_said_to_those_who_do_not_see_them(
    hub: RunningHub, link: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await link(), "Ada")
    given = {"name": "ask", "arguments": {"questions": [form("Do you hear me?", {})]}}
    call = await hub.client.start("dictated", "tools/call", given)
    await expect(ada.page.locator("#arrivals[aria-live=polite]")).to_have_text("dictated asks: Do you hear me?")
    await hub.client.calls.cancel(call.id, abort=True)


async def test_text_has_enough_contrast_in_light_and_dark(
    hub: RunningHub, link: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await link(), "Ada")
    for scheme in ("light", "dark"):
        await ada.page.emulate_media(color_scheme=scheme)
        names = {name for pair in PAIRS for name in pair}
        colours = {name: await _colour(ada.page, name) for name in names}
        weak = [pair for pair in PAIRS if _contrast(*(colours[name] for name in pair)) < 4.5]
        assert weak == [], scheme


async def _colour(page: Page, name: str) -> list[int]:
    found = await page.evaluate(
        "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()", name
    )
    digits = found.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    return [int(digits[at : at + 2], 16) for at in (0, 2, 4)]


def _contrast(one: list[int], other: list[int]) -> float:
    """WCAG 2.2, contrast ratio."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: list[int]) -> float:
    shares = [value / 255 for value in colour]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
