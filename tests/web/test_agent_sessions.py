"""Sessions of coding agents on the page: started, followed as they go on, answered in place, continued, stopped."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from ..e2e.conftest import RunningHub
from .conftest import PEERS, Bridge, Person

pytestmark = pytest.mark.usefixtures("settled")

SHOTS = os.environ.get("HUBBUB_SHOTS")
"""A folder for pictures of the page, if somebody wants to see them."""

PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1100, "height": 900}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with two coding agents behind it."""
    agent = {
        "command": str(Path(sys.executable).with_name("hubbub")),
        "args": ["acp", "--", sys.executable, "-I", "-S", str(PEERS / "acp_agent.py")],
        "env": {"LANG": "C.UTF-8"},
        "max_in_flight": 16,
    }
    hub = await start_shared_hub({"coder": agent, "helper": agent})
    await hub.connected("coder")
    await hub.connected("helper")
    return hub


async def shown(page: Page, name: str) -> None:
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


async def fits(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("size", ["laptop", "phone"])
async def test_a_session_is_started_followed_answered_in_place_and_continued(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any], tmp_path: Path, size: str
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport=PHONE if size == "phone" else LAPTOP)
    page = ada.page
    (tmp_path / "prices.py").write_text("def total(items):\n    return sum(items)\n")
    await ada.go("agents")
    main = page.locator("#main")
    await main.get_by_text("Start a session").click()
    await main.get_by_label("What is it to do?").fill(
        "plan Read the code; Round the prices; Run the tests\nsay I round the prices.\n"
        "edit prices.py def total(items):\nrun echo tested\nsay Done."
    )
    await main.get_by_label("In the folder").fill(str(tmp_path))
    await main.get_by_role("button", name="Start", exact=True).click()
    row = main.locator("a.entry", has_text="waits").first
    await expect(row).to_contain_text("coder")
    await shown(page, f"agents-{size}")
    await row.click()
    waits = main.get_by_label("It waits for an answer")
    await expect(waits.locator(".diff .removed")).to_contain_text(["return sum(items)"])
    await expect(waits.locator(".bar button")).to_have_text(
        ["Allow once", "Always allowfor what is like it, too", "Reject"]
    )
    await expect(main.get_by_label("Plan", exact=True).locator("li")).to_have_count(3)
    await fits(page)
    await shown(page, f"session-diff-{size}")
    await waits.get_by_role("button", name="Allow once").click()
    await expect(waits.locator(".given .code").first).to_have_text("echo tested")
    await expect(main.get_by_label("Files changed")).to_contain_text("prices.py")
    await shown(page, f"session-command-{size}")
    await waits.get_by_role("button", name="Reject").click()
    await expect(main.locator(".status .pill")).to_have_text("idle")
    await expect(main.get_by_label("The text so far")).to_contain_text("Done.")
    await main.get_by_label("Go on with").fill("say One more thing.\nhang")
    await main.get_by_role("button", name="Send").click()
    await expect(main.get_by_label("The text so far")).to_contain_text("One more thing.")
    await shown(page, f"session-{size}")
    await main.get_by_role("button", name="Stop this turn").click()
    await expect(main.get_by_text("the turn ended: cancelled")).to_be_visible()
    await fits(page)


async def test_a_command_is_approved_from_the_inbox_with_the_agents_own_options(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any], tmp_path: Path
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport=PHONE)
    call = await hub.client.start_tool("helper", "start", {"prompt": "run echo hello", "cwd": str(tmp_path)})
    await hub.asked(call_id=call.id)
    await ada.go("inbox")
    await ada.page.locator("a.card").first.click()
    main = ada.page.locator("#main")
    await expect(main.locator(".agent .given .code").first).to_have_text("echo hello")
    await expect(main.locator(".agent")).to_contain_text(f"In the folder {tmp_path}")
    await shown(ada.page, "command-phone")
    await main.get_by_role("button", name="Allow once").click()
    await expect(main.get_by_text("Allow once", exact=True)).to_be_visible()
    await ada.go("agents")
    await expect(ada.page.locator("#main a.entry").first).to_contain_text("idle")


async def test_what_goes_wrong_is_said_where_it_was_asked_for(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport=LAPTOP)
    await ada.go("agents")
    main = ada.page.locator("#main")
    await main.get_by_text("Start a session").click()
    await main.get_by_role("button", name="Start", exact=True).click()
    await expect(main.get_by_text("Please say what it is to do.")).to_be_visible()
    await main.get_by_label("What is it to do?").fill("say hi")
    await main.get_by_label("In the folder").fill("/nowhere/at/all")
    await main.get_by_role("button", name="Start", exact=True).click()
    await expect(main.locator("form .problem")).to_contain_text("/nowhere/at/all")
    await ada.go("session/coder/nosuch")
    await expect(main.locator(".problem").first).to_contain_text("nosuch")
