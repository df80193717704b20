"""The hub or the bridge goes away under the page, and comes back."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import expect

from ..e2e.conftest import LIMIT_S
from .conftest import Person, dictated

DEMO = Path(__file__).parents[2] / "docs" / "demo" / "server.py"


async def test_the_hub_killed_under_the_page_comes_back_and_nothing_is_lost(
    start_hub: Any, start_bridge: Callable[..., Any], visit: Callable[..., Any], mcp1_python: str
) -> None:
    servers = {"demo": {"command": mcp1_python, "args": [str(DEMO)]}}
    hub = await start_hub(servers, connected=True)
    ada: Person = await visit((await start_bridge(hub)).link, "Ada")
    # Asked as a task, which outlives the hub.
    await hub.client.start_tool("demo", "plan_trip")
    main = await ada.open("Where shall we go?")
    await main.get_by_label("City").fill("Graz")
    await hub.kill()
    await expect(ada.page.get_by_role("alert").filter(has_text="The hub does not answer")).to_be_visible()
    again = await start_hub(servers)
    await expect(ada.page.locator("#link")).to_have_text("Live")
    await expect(ada.page.locator("#banner")).to_be_empty()
    await expect(main.get_by_label("City")).to_have_value("Graz")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.get_by_role("heading", name="You have answered")).to_be_visible()
    (settled,) = await again.client.inbox.list(states=["answered"])
    assert (settled.answer["content"]["city"], settled.answered_by) == ("Graz", "Ada")
    await again.connected("demo")
    await again.client.start_tool("demo", "plan_trip")
    await expect(ada.page).to_have_title(re.compile(r"\(1\)"))


async def test_a_bridge_that_was_started_anew_asks_to_log_in_again(
    start_hub: Any, start_bridge: Callable[..., Any], visit: Callable[..., Any], free_port: int
) -> None:
    hub = await start_hub({"dictated": dictated()})
    listen = ("--listen", f"127.0.0.1:{free_port}")
    bridge = await start_bridge(hub, *listen)
    ada: Person = await visit(bridge.link, "Ada")
    bridge.process.terminate()
    with anyio.fail_after(LIMIT_S):
        await bridge.process.wait()
    await expect(ada.page.get_by_role("alert").filter(has_text="The bridge does not answer")).to_be_visible()
    second = await start_bridge(hub, *listen)
    await expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()
    await ada.page.get_by_label("Or paste the link here").fill(bridge.link)
    await ada.page.get_by_role("button", name="Log in").click()
    await expect(ada.page.get_by_text("This link has been used")).to_be_visible()
    await ada.page.get_by_label("Or paste the link here").fill(second.link)
    await ada.page.get_by_role("button", name="Log in").click()
    await expect(ada.page.get_by_role("heading", name="Inbox")).to_be_visible()
    await expect(ada.page.locator("#person")).to_contain_text("Ada")
