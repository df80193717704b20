"""The hosts on the page: who is connected, what each waits for, and who may not see it."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from hubbub_client.services.tokens import Grant

from ..e2e import hosts
from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, dictated, form


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks, and an endpoint for hosts."""
    return await start_shared_hub({"dictated": dictated()}, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)


async def test_a_host_comes_with_what_it_waits_for_and_goes(hub: RunningHub, ada: Person) -> None:
    main = ada.page.locator("main")
    await ada.go("hosts")
    await expect(main.locator(".address")).to_have_text("claude mcp add hubbub -- hubbub mcp")
    async with hosts.waiting(hub, "", "claude-code", "dictated__ask", questions=[form("Lunch?", {})]):
        (request,) = await hub.asked()
        card = main.locator("a.card", has_text="claude-code")
        await expect(card).to_contain_text("waits for ask: Lunch?")
        await expect(card).to_contain_text("profile default")
        await expect(main.locator(".address")).to_have_count(0)
        await card.click()
        await expect(main.get_by_role("heading", name="claude-code 1.2")).to_be_visible()
        await expect(main.locator(".facts")).to_contain_text("Acts forlocal")
        await expect(main.get_by_role("link", name="ask")).to_have_attribute("href", f"#/call/{request.call_id}")
        await main.get_by_role("link", name="Lunch?").click()
        await main.get_by_role("link", name="claude-code").click()
        await main.get_by_role("link", name="ask").click()
        await main.get_by_role("link", name="claude-code").click()
        await expect(main.get_by_role("heading", name="What it waits for")).to_be_visible()
    await expect(main.locator(".pill")).to_have_text("not connected any more")


async def test_hosts_that_have_probably_gone_are_shown_when_that_is_wanted(hub: RunningHub, ada: Person) -> None:
    main = ada.page.locator("main")
    async with hosts.waiting(hub, "", "claude-code", "dictated__ask", questions=[form("Lunch?", {})]):
        await hub.asked()

        async def with_one_that_left(route: Any) -> None:
            found = await (await route.fetch()).json()
            (here,) = found["hosts"]
            left = here | {"id": "host_2", "name": "cursor", "requests": [], "gone": True, "state": "probably gone"}
            await route.fulfill(json=found | {"hosts": [here | {"stream_open": True}, left]})

        await ada.page.route("**/api/hosts", with_one_that_left)
        await ada.go("hosts")
        await expect(main.locator("a.card")).to_contain_text(["last seen"])
        await expect(main.locator("a.card")).to_contain_text(["stream open"])
        await main.get_by_label("Show those that have probably gone, too (1)").check()
        await expect(main.locator("a.card", has_text="cursor").locator(".pill")).to_have_text("probably gone")


async def test_a_page_of_a_host_that_has_left_says_so(ada: Person) -> None:
    await ada.go("host/host_gone")
    await expect(ada.page.locator("main .none")).to_have_text("This host is not connected any more.")


async def test_a_hub_that_shows_no_hosts_to_somebody_is_put_in_words(
    hub: RunningHub, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    made = await hub.client.tokens.create("some", [Grant(role="responder", servers=("dictated",))])
    bridge: Bridge = await start_bridge(hub, token=made.secret)
    ada = await visit(await bridge.new_link(), None)
    for route in ("hosts", "host/host_1"):
        await ada.go(route)
        await expect(ada.page.get_by_text("You may not see who is connected")).to_be_visible()
