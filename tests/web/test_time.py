"""Where the time of a call went, as the page draws it: the same rows as the command line's, and who did what."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, form

pytestmark = pytest.mark.usefixtures("settled")

STEP = re.compile(r"[○◐◌●✓✗] (\w+) (?:(?:to|by) (\w+) )?after [\d.]+ (?:ms|s)")


async def asking(hub: RunningHub, *messages: str) -> str:
    """A call that asks all these at once; its id."""
    questions = [form(message, {"name": {"type": "string"}}) for message in messages]
    call = await hub.client.start_tool("dictated", "ask", {"questions": questions})
    await hub.asked(len(messages), call_id=call.id)
    return call.id


async def steps(time: Locator, question: str) -> list[tuple[str, str | None]]:
    """What is said to have happened to a question, and by whom or to whom."""
    told = (
        await time.get_by_role("list", name=f"What happened to: {question}").get_by_role("listitem").all_inner_texts()
    )
    found = [STEP.fullmatch(text) for text in told]
    assert all(found), told
    return [(match[1], match[2]) for match in found if match]


async def test_who_was_shown_a_question_who_claimed_and_who_answered_it_is_drawn_and_said(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await asking(hub, "First?", "Second?")
    ada: Person = await visit(await bridge.new_link(), "Ada")
    bob: Person = await visit(await bridge.new_link(), "Bob")
    watching = bob.page.get_by_role("region", name="Time")
    await bob.go(f"call/{call_id}")
    await expect(watching.get_by_role("img", name="waiting for a person")).to_be_visible()
    main = await ada.open("First?")
    # What happens to a question is seen while it does, by those who look at the call.
    await expect(watching.get_by_role("list", name="What happened to: First?")).to_contain_text("claimed by Ada")
    await main.get_by_label("Name").fill("Ada Lovelace")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.locator(".outcome")).to_contain_text("arrived at the server")
    (request,) = await hub.client.inbox.list(states=["open"], call_id=call_id)
    await hub.client.inbox.answer(request.id, decline=True)
    await hub.call(call_id)
    await hub.request(request.id, delivery="delivered")
    await ada.go(f"call/{call_id}")
    time = ada.page.get_by_role("region", name="Time")
    await expect(time.locator(".story")).to_have_count(2)
    for question in ("First?", "Second?"):  # what was known before is drawn first
        await expect(time.get_by_role("list", name=f"What happened to: {question}")).to_contain_text("delivered")
    first, second = await steps(time, "First?"), await steps(time, "Second?")
    assert [what for what, _ in first if what != "shown"] == ["claimed", "answered", "delivered"]
    assert {by for what, by in first if what in ("claimed", "answered")} == {"Ada"}
    assert ("answered", "local") in second
    await expect(time.locator("svg .question")).to_have_count(2)
    await expect(time.locator("svg .step")).to_have_count(len(first) + len(second))
    drawn = await time.locator("svg .step").all_text_contents()
    assert drawn.count("●") == drawn.count("✓") == 2
    assert drawn.count("◐") == 1


async def test_the_page_and_the_command_line_say_the_same(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await asking(hub, "Same?")
    (request,) = await hub.asked(call_id=call_id)
    claim = await hub.client.inbox.claim(request.id)
    await claim.accept({"name": "Ann"})
    await hub.call(call_id)
    await hub.request(request.id, delivery="delivered")
    line = (await hub.hubbub("calls", "show", call_id, "--timeline")).record
    link = await bridge.new_link()
    whole = (await bridge.post("call", {"id": call_id})).json()
    assert whole["timeline"] == {name: value for name, value in line.items() if name in whole["timeline"]}
    assert (await bridge.post("call_time", {"id": call_id})).json() == whole["timeline"]
    ada: Person = await visit(link, "Ada")
    await ada.go(f"call/{call_id}")
    time = ada.page.get_by_role("region", name="Time")
    await expect(time.locator("svg .part")).to_have_count(len(line["parts"]))
    assert [what for what, _ in await steps(time, "Same?")] == [step["what"] for step in line["asked"][0]["steps"]]
