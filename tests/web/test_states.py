"""Questions and calls with odd ends, as the page shows them."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from ..clients.conftest import ScriptedHub, hub
from ..clients.states import WHY_OVER, script
from .conftest import Bridge

__all__ = ["hub"]


@pytest.fixture
async def bridge(hub: ScriptedHub, start_bridge: Callable[..., Any]) -> Bridge:
    """The bridge to a hub with such questions."""
    script(hub)
    return await start_bridge(hub)


async def test_the_page_says_what_became_of_questions_as_it_was(bridge: Bridge, visit: Callable[..., Any]) -> None:
    ada = await visit(bridge.link, "Ada")
    main = ada.page.locator("main")
    await ada.go("request/held")
    await expect(main.locator(".claim")).to_contain_text("Held for claude-code until ")
    await ada.go("request/expired")
    await expect(main.locator(".outcome")).to_contain_text(f"The server has been notified.Because{WHY_OVER}")
    await ada.go("request/answered")
    await expect(main.locator(".returned h3")).to_have_text("release was cancelled")


async def test_on_a_phone_the_buttons_are_in_sight_above_the_tabs_under_long_arguments(
    bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada = await visit(bridge.link, "Ada", viewport={"width": 390, "height": 700})
    await ada.go("request/long")
    await expect(ada.page.locator("details.sent")).to_contain_text("step 39")
    bar = await ada.page.get_by_role("button", name="Send answer").bounding_box()
    tabs = await ada.page.locator("#nav").bounding_box()
    assert bar["y"] + bar["height"] <= tabs["y"]
