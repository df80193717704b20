"""Who sits at the page: names, and which of them may be had."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, ask, form

pytestmark = pytest.mark.usefixtures("settled")


async def test_a_person_has_a_name_in_any_script(hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]) -> None:
    questions = [form("In your own letters?", {"name": {"type": "string"}})]
    call_id = await ask(hub, *questions)
    jorg = await visit(await bridge.new_link(), "Jörg 山田")
    main = await jorg.open("In your own letters?")
    await expect(main.locator(".claim")).to_contain_text("You are answering this")
    assert (await hub.client.inbox.list(call_id=call_id))[0].claim.by == "Jörg 山田"
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.locator(".outcome")).to_contain_text("arrived at the server")
    assert (await hub.client.inbox.list(call_id=call_id))[0].answered_by == "Jörg 山田"
    await jorg.page.reload()
    await expect(jorg.page.locator("#person")).to_contain_text("Jörg 山田")


async def test_a_name_that_nobody_may_take_is_asked_for_again(bridge: Bridge, ada: Person) -> None:
    await ada.page.locator("#person").click()
    name, save = ada.page.get_by_label("Your name"), ada.page.get_by_role("button", name="Save")
    for wrong, says in (
        ("", "Please give a name."),
        ("hub", "Nobody may take this name."),
        ("ö" * 65, "1 to 64 characters"),
    ):
        await name.fill(wrong)
        await save.click()
        await expect(ada.page.locator("dialog .problem")).to_contain_text(says)
    await name.fill(" Zoë ")
    await save.click()
    await expect(ada.page.locator("#person")).to_contain_text("Zoë")
    await ada.page.evaluate("localStorage.setItem('hubbub-name', 'hub')")
    again = await ada.context.new_page()
    await again.goto(await bridge.new_link())
    await expect(again.get_by_label("Your name")).to_be_visible()
