"""What came of questions and calls, in its words and colours, and how one goes on from there."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from hubbub_client.data.records import Call

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, ask, dictated, form

pytestmark = pytest.mark.usefixtures("settled")

MANY = {
    "name": "copy",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "often": {"type": "integer", "default": 1},
            "loud": {"type": "boolean"},
            "parts": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object"},
        },
        "required": ["text"],
    },
}
GIVEN = {"text": "Hello", "often": 3, "loud": False, "parts": ["a", "b"], "more": {"deep": [1]}}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks, one that has a tool with arguments."""
    return await start_shared_hub({"dictated": dictated(MANY, roots="ask")}, connected=True)


@pytest.fixture
async def ada(bridge: Bridge, visit: Callable[..., Any]) -> Person:
    """Somebody at a laptop."""
    return await visit(await bridge.new_link(), "Ada", viewport={"width": 1100, "height": 800})


async def expect_pill(page: Page, title: str, word: str, kind: str) -> None:
    """Waits for the word at the right of a row; `kind` is the kind of end that its colour stands for."""
    found = page.locator("a.card", has_text=title).first.locator(".right .pill").last
    await expect(found).to_have_text(word)
    classes = (await found.get_attribute("class") or "").split()
    assert " ".join(each for each in classes if each != "pill") == kind


async def test_each_answer_is_named_by_what_it_was(hub: RunningHub, ada: Person) -> None:
    await ask(hub, *(form(f"{what}?", {}) for what in ("accept", "decline", "cancel")), {"method": "roots/list"})
    how: dict[str, dict[str, Any]] = {
        "accept": {"accept": True},
        "decline": {"decline": True},
        "cancel": {"cancel": True},
    }
    for request in await hub.client.inbox.list(states=["open"]):
        said = how[request.request["message"].rstrip("?")] if request.kind == "elicitation_form" else {"reject": "No"}
        await hub.client.inbox.answer(request.id, **said)
    await ada.go("history")
    await expect_pill(ada.page, "accept?", "answered", "good")
    await expect_pill(ada.page, "decline?", "declined", "bad")
    await expect_pill(ada.page, "cancel?", "dismissed", "")
    await expect_pill(ada.page, "Which directories", "refused", "bad")
    await ada.page.locator("a.card", has_text="decline?").click()
    outcome = ada.page.get_by_role("region", name="Outcome")
    await expect(outcome.get_by_role("heading", level=2)).to_have_text("local has answered: declined")
    assert await outcome.get_attribute("data-came") == "declined"
    await expect(ada.page.locator(".status .pill")).to_have_text("declined")
    await expect(ada.page.locator(".moments")).to_contain_text("answered by local: declined")


async def test_a_tool_that_says_that_it_failed_is_not_shown_as_a_success(hub: RunningHub, ada: Person) -> None:
    call = await hub.client.start_tool("dictated", "fail", {})
    await hub.call(call.id)
    await ada.go("calls")
    await expect_pill(ada.page, "fail", "tool error", "bad")
    await ada.page.get_by_label("All states").select_option("tool error")
    await expect(ada.page.locator("a.card")).to_have_count(1)
    await ada.page.locator("a.card").click()
    await expect(ada.page.locator("main .status .pill")).to_have_text("tool error")


async def test_the_result_of_a_call_stands_above_where_its_time_went(hub: RunningHub, ada: Person) -> None:
    call = await hub.client.start_tool("dictated", "copy", {"text": "Result!"})
    await hub.call(call.id)
    await ada.go(f"call/{call.id}")
    await expect(ada.page.locator("main section:not([hidden]) h2")).to_have_text(
        ["Result", "Where the time went", "What was sent"]
    )


async def test_a_call_is_made_again_from_a_form_filled_in_as_before(hub: RunningHub, ada: Person) -> None:
    first = await hub.client.start_tool("dictated", "copy", GIVEN)
    await hub.call(first.id)
    await ada.go(f"call/{first.id}")
    main = ada.page.locator("main")
    await main.get_by_role("link", name="Call again").click()
    await expect(main.get_by_label("text")).to_have_value("Hello")
    await main.get_by_label("often").fill("4")
    await main.get_by_role("button", name="Call", exact=True).click()
    await expect(main.locator(".status .pill")).to_have_text("completed")
    newest: Call = (await hub.client.calls.list(limit=1))[0]
    assert newest.id != first.id
    assert newest.params["arguments"] == GIVEN | {"often": 4}


async def test_who_approves_sees_what_the_call_was_sent_with(hub: RunningHub, ada: Person) -> None:
    script = "set -e\nrm -rf ./build\nmake"
    questions = [form("Run it?", {})]
    await hub.client.start_tool("dictated", "ask", {"questions": questions, "script": script, "host": "db1"})
    await hub.asked(1)
    main = await ada.open("Run it?")
    sent = main.locator("details.sent")
    await expect(sent.locator("summary").first).to_have_text("Called with these 3 arguments")
    await expect(sent).to_contain_text("hostdb1")
    await expect(sent.locator(".code", has_text="rm -rf")).to_have_text(script)
    await main.get_by_role("button", name="Accept").click()
    await expect(main.locator(".outcome h2")).to_have_text("You have answered")
    await expect(sent).to_contain_text("hostdb1")


async def test_the_most_urgent_question_comes_first(
    start_hub: Callable[..., Any], start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    hub = await start_hub(
        {
            "slow": dictated(answer_timeout_s=3000),
            "soon": dictated(answer_timeout_s=600),
            "dictated": dictated(answer_timeout_s=300),
        },
        connected=True,
    )
    for server in ("slow", "dictated", "soon"):
        await ask(hub, form(f"{server}?", {}), server=server)
    bridge = await start_bridge(hub)
    ada: Person = await visit(await bridge.new_link(), "Ada")
    await expect(ada.page.locator("a.card .what")).to_have_text(["dictated?", "soon?", "slow?"])
    options = ada.page.get_by_label("All kinds").locator("option")
    kinds = ["All kinds", "Form", "Page to visit", "Reply as a model", "Directories", "Approval"]
    await expect(options).to_have_text(kinds)
    await hub.terminate()
    await expect(ada.page.locator("#banner")).to_contain_text("The hub does not answer")
    await expect(ada.page.locator("a.card .what")).to_have_count(3)


async def test_an_empty_list_says_nothing_of_the_hub_while_that_is_away(
    start_hub: Callable[..., Any], start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    hub = await start_hub({"dictated": dictated()})
    bridge = await start_bridge(hub)
    ada: Person = await visit(await bridge.new_link(), "Ada")
    nothing = ada.page.get_by_text("Nothing waits for you.")
    await expect(nothing).to_be_visible()
    await hub.terminate()
    await expect(ada.page.get_by_text("The hub cannot be reached.")).to_be_visible()
    await expect(nothing).to_be_hidden()
    await ada.go("calls")
    await expect(ada.page.get_by_text("The hub cannot be reached.")).to_be_visible()
    await expect(ada.page.get_by_text("Nothing has been called yet")).to_be_hidden()
