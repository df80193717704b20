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
RUN_AXE = """async () => {
    const runOnly = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'];
    const { violations } = await axe.run(document, { runOnly });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)}`));
}"""
# In one step: what is drawn again meanwhile has no height any more.
HEIGHTS = """() => Math.min(...[...document.querySelectorAll("main button, nav a")]
    .filter((it) => it.checkVisibility()).map((it) => it.getBoundingClientRect().height))"""
# Colours that fade in are looked at when they are there.
CALM = {"reduced_motion": "reduce"}
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}

TOOL = {
    "name": "greet",
    "description": LONG,
    "inputSchema": {"type": "object", "properties": {"who": {"type": "string", "title": "Who"}}},
}
FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Name", "description": LONG},
    "dish": {"type": "string", "title": "Dish", "enum": ["soup", "pasta"]},
    "sides": {"type": "array", "title": "Sides", "items": {"type": "string", "enum": ["rice", "salad"]}},
    "city": {"type": "string", "title": "City", "enum": [f"city {n}" for n in range(20)]},
    "sure": {"type": "boolean", "title": "Sure", "default": True},
    "day": {"type": "string", "title": "Day", "format": "date"},
}
PAGE = {"mode": "url", "message": "A page", "url": f"http://xn--e1awd7f.example/{LONG[-400:]}", "elicitationId": "1"}
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
    hub = await start_shared_hub({"dictated": dictated(TOOL, roots="ask"), "gone": gone})
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


@pytest.fixture(scope="module")
async def bridge(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Bridge:
    """The bridge to that hub."""
    return await start_shared_bridge(hub)


async def routes(hub: RunningHub) -> list[str]:
    """Every page."""
    requests = [f"request/{request.id}" for request in await hub.client.inbox.list()]
    lists = ("inbox", "calls", "servers", "tasks", "catalog", "hosts", "events", "history")
    return [
        *lists,
        *requests,
        "call/waits",
        "server/dictated",
        "server/gone",
        "catalog/dictated",
        "tool/dictated/greet",
    ]


async def shown(person: Person, route: str) -> None:
    """Goes to a page, and waits until it is there: the one before it stays until it is made."""
    await person.go(route)
    await expect(person.page.locator(f"main .page[data-route='#/{route}']")).to_be_visible()
    await expect(
        person.page.locator(f"#nav [aria-current][href='#/{HOME.get(route.split('/')[0], route)}']")
    ).to_be_visible()
    await expect(person.page.locator("main h1")).to_be_visible()
    await expect(person.page.locator("main .warning", has_text="cannot be shown")).to_have_count(0)


HOME = {"request": "inbox", "call": "calls", "server": "servers", "tool": "catalog", "catalog": "catalog"}


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
        if found := await ada.page.evaluate(RUN_AXE):
            wrong[route] = found
    assert wrong == {}


async def test_no_page_is_wider_than_a_phone_and_every_button_can_be_hit(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", **CALM, **PHONE)
    for route in await routes(hub):
        await shown(ada, route)
        assert await ada.page.evaluate("document.documentElement.scrollWidth") <= 360, route
        assert await ada.page.evaluate(HEIGHTS) >= 24, route


async def test_dark_is_dark(bridge: Bridge, visit: Callable[..., Any]) -> None:
    ground = {}
    for scheme in ("light", "dark"):
        person: Person = await visit(await bridge.new_link(), "Ada", color_scheme=scheme)
        ground[scheme] = await person.page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = {scheme: sum(map(int, colour[4:-1].split(","))) for scheme, colour in ground.items()}
    assert lightness["dark"] < 100 < 600 < lightness["light"]


async def test_a_sampling_shows_its_picture_and_its_sound(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada")
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
