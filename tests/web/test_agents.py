"""An agent's question on the page and on a phone: what it would do as code, its decisions, and all else folded."""

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


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with an agent as codex is."""
    return await start_shared_hub(
        {"codex": {"command": sys.executable, "args": ["-I", "-S", str(PEERS / "agent_server.py")]}}, connected=True
    )


async def asks(hub: RunningHub, prompt: str) -> str:
    call = await hub.client.start_tool("codex", "codex", {"prompt": prompt})
    await hub.asked(call_id=call.id)
    return call.id


async def heard(hub: RunningHub, call_id: str) -> str:
    return (await hub.call(call_id)).result["content"][0]["text"]


async def shown(page: Page, name: str) -> None:
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


async def is_code(page: Page, selector: str) -> None:
    for font in await page.locator(selector).evaluate_all("all => all.map((one) => getComputedStyle(one).fontFamily)"):
        assert "monospace" in font


@pytest.mark.parametrize("size", ["laptop", "phone"])
async def test_changes_of_files_are_read_as_lines_and_approved_for_the_session(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any], size: str
) -> None:
    viewport = PHONE if size == "phone" else {"width": 1100, "height": 800}
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport=viewport)
    call_id = await asks(hub, "patch")
    main = await ada.open("apply proposed code changes")
    agent = main.locator(".agent")
    await expect(agent.get_by_label("What it would do").locator("dt")).to_have_text(
        [
            f"{what}: /srv/shop/{name}.py"
            for what, name in (("Changed", "prices"), ("Deleted", "old_prices"), ("New file", "test_prices"))
        ]
    )
    await expect(agent.locator(".diff .removed")).to_contain_text(["return sum(items)", "RATE = 7"])
    await expect(agent.locator(".diff .added")).to_contain_text(
        ["return round(sum(items), 2)", "def test_total():", "assert total"]
    )
    await is_code(ada.page, ".agent .diff")
    more = agent.locator("details", has_text="More from the server")
    await expect(more.get_by_text("01a227dc")).to_be_hidden()
    await shown(ada.page, f"patch-{size}")
    await more.locator("summary").click()
    await expect(more.get_by_text("01a227dc")).to_be_visible()
    await expect(main.locator(".bar button")).to_have_text(
        ["Approve", "Approve for this session", "Deny", "Deny and stop the agent"]
    )
    assert await ada.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tall = "all => all.map((one) => one.clientHeight / parseFloat(getComputedStyle(one).lineHeight))"
    assert max(await main.locator(".bar button").evaluate_all(tall)) < 3.5  # two lines at most, and what is around them
    await main.get_by_role("button", name="Approve for this session").click()
    await expect(main.get_by_text("Approved for this session", exact=True)).to_be_visible()
    assert await heard(hub, call_id) == "approved_for_session"


async def test_a_command_is_code_in_the_list_the_heading_and_the_question(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport={"width": 1100, "height": 800})
    call_id = await asks(hub, "command")
    await ada.go("inbox")
    first = '/bin/bash -lc "cd shop && …'
    await expect(ada.page.locator("a.card .what code")).to_have_text([first, "/srv/shop"])
    main = await ada.open("Allow Codex to run")
    await expect(main.locator("h1 code").first).to_have_text(first)
    await expect(main.get_by_label("Command, run by")).to_have_text(
        "cd shop && \\\n  npm test -- --silent\nnpm run build"
    )
    await expect(main.locator(".agent")).to_contain_text("In the folder /srv/shop")
    await is_code(ada.page, "h1 code, .agent .code, .ask code")
    await shown(ada.page, "command")
    await main.get_by_role("button", name="Deny", exact=True).click()
    await expect(main.get_by_text("Denied", exact=True)).to_be_visible()
    assert await heard(hub, call_id) == "denied"
