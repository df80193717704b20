"""Servers that mean harm: what they write is shown, never obeyed, and never stops the page."""

import json
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from playwright.async_api import expect

from ..e2e.conftest import LIMIT_S, POLL_S, RunningHub
from .conftest import Bridge, Person, dictated, form

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TURN = "\u202e"
SERVERS = 10
EACH = 1000
LOT = 250

TOOL = {
    "name": "trap",
    "title": SCRIPT,
    "description": f"{SCRIPT}{TURN}",
    "inputSchema": {"type": "object", "properties": {SCRIPT: {"type": "string", "title": SCRIPT}}},
}
FIELDS: dict[str, Any] = {
    SCRIPT: {"type": "string", "title": SCRIPT, "description": SCRIPT, "default": SCRIPT},
    "__proto__": {"type": "string", "title": "Proto"},
    "choice": {"type": "string", "title": "Choice", "oneOf": [{"const": "a", "title": SCRIPT}]},
    "none": None,
    "odd": {"type": "string", "title": "Odd", "minLength": "x", "enum": {}, "format": SCRIPT},
    "many": {"type": "string", "title": "Many", "enum": [f"value {n}" for n in range(20_000)]},
    **{f"field {n}": {"type": "string", "title": f"Field {n}"} for n in range(5000)},
}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks whatever it likes."""
    return await start_shared_hub({"hostile0": dictated(TOOL)}, connected=True)


async def ask(hub: RunningHub, *questions: dict[str, Any]) -> str:
    given = {"name": "ask", "arguments": {"questions": list(questions)}}
    return (await hub.client.start("hostile0", "tools/call", given)).id


async def flood(hub: RunningHub, server: str) -> None:
    """Has a server ask EACH questions; the hub takes as many as it may at a time."""
    question = form("flood", {"name": {"type": "string"}})
    for _ in range(EACH // LOT):
        await hub.client.call_tool(server, "many", {"question": question, "count": LOT})


async def count_open(hub: RunningHub) -> int:
    status = await hub.client.admin.status()
    return sum(each.count for each in status.requests if each.state == "open")


async def answers(person: Person) -> None:
    """The page still does what it is asked to."""
    await person.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Servers").click()
    await expect(person.page.get_by_role("heading", name="Servers", level=1)).to_be_visible()


async def test_markup_and_script_are_words(hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]) -> None:
    image = {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"}
    messages = [{"role": "user", "content": [{"type": "text", "text": SCRIPT}, image]}]
    call_id = await ask(
        hub,
        form(f"form {SCRIPT}{TURN}txt", FIELDS),
        {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 9, "systemPrompt": SCRIPT}},
    )
    ada: Person = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("form <img")
    await expect(main.locator(".ask")).to_have_text(f"form {SCRIPT}[U+202E]txt")
    await expect(main.get_by_label(SCRIPT).first).to_have_value(SCRIPT)
    assert await main.locator(".field").count() < 200
    await main.get_by_role("button", name="Show more fields").click()
    await main.get_by_label("Proto").fill("kept")
    await main.get_by_label("Many").fill("value 19999")
    await main.get_by_role("button", name="Send answer").click()
    await expect(main.get_by_role("heading", name="You have answered")).to_be_visible()
    reply = await ada.open("[image]")
    await expect(reply.get_by_text("image of the type image/svg+xml, not shown")).to_be_visible()
    await reply.get_by_role("button", name="Refuse").click()
    await expect(reply.get_by_role("heading", name="You have answered")).to_be_visible()
    given, _ = json.loads((await hub.call(call_id)).result["content"][0]["text"])
    assert given["result"]["content"] | {"odd": ""} == {
        SCRIPT: SCRIPT,
        "__proto__": "kept",
        "many": "value 19999",
        "odd": "",
    }
    await ada.go("tool/hostile0/trap")
    await ada.page.get_by_label(SCRIPT).fill(SCRIPT)
    await ada.page.get_by_role("button", name="Call").click()
    await expect(ada.page.get_by_role("heading", name="Result")).to_be_visible()
    for route in ("history", "calls", "catalog/hostile0", "server/hostile0"):
        await ada.go(route)
        await answers(ada)
    assert await ada.page.locator("img[src=x], main script, iframe, object, embed").count() == 0


async def test_script_that_gets_into_the_page_in_spite_of_all_is_not_executed(ada: Person) -> None:
    await ada.page.evaluate(
        """() => {
            window.blocked = [];
            window.executed = 0;
            addEventListener('securitypolicyviolation', (seen) => window.blocked.push(seen.effectiveDirective));
            const button = document.createElement('button');
            document.body.append(button);
            const add = (tag, what) => document.body.append(Object.assign(document.createElement(tag), what));
            for (const attempt of [
                () => button.setAttribute('onclick', 'window.executed += 1'),
                () => button.click(),
                () => { button.innerHTML = '<img src=x onerror="window.executed += 1">'; },
                () => add('script', { text: 'window.executed += 1' }),
                () => add('style', { textContent: 'body { display: none }' }),
                () => add('iframe', { src: 'https://example.org/' }),
                () => add('img', { src: 'https://example.org/' }),
            ]) {
                try { attempt(); } catch { /* the page would have said so */ }
            }
        }"""
    )
    with anyio.fail_after(LIMIT_S):
        wanted = {"require-trusted-types-for", "style-src-elem", "frame-src", "img-src"}
        while len(blocked := await ada.page.evaluate("window.blocked")) < 6 or not wanted <= set(blocked):
            await anyio.sleep(POLL_S)
    assert set(blocked) == wanted
    assert await ada.page.evaluate("window.executed") == 0
    await expect(ada.page.get_by_role("heading", name="Inbox")).to_be_visible()
    # What the browser said of each is not what the page must never do.
    ada.troubles.clear()


async def test_an_address_that_is_no_page_is_never_a_link(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    def page(url: str) -> dict[str, Any]:
        return {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": f"visit {url[:9]}", "url": url, "elicitationId": "x"},
        }

    hebrew = "http://\u05d0\u05d1.example/\u05d2?next=https://bank.example"
    call_id = await ask(hub, page("javascript:alert(1)"), page("data:text/html,x"), page(hebrew))
    ada: Person = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("visit http")
    await expect(main.locator(".host")).to_have_text("\u05d0\u05d1.example")
    await expect(main.locator(".warning")).to_have_count(3)
    assert await main.locator(".address").evaluate("it => getComputedStyle(it).unicodeBidi") == "isolate-override"
    await main.get_by_role("button", name="Decline").click()
    refused, also, _ = json.loads((await hub.call(call_id)).result["content"][0]["text"])
    assert "error" in refused
    assert "error" in also
    # Even if the hub had let it pass.
    shown = await ada.page.evaluate(
        """async () => {
            const { visitForm } = await import('/static/js/visit.js');
            const { h } = await import('/static/js/dom.js');
            let problem = '';
            try { h('a', { href: 'javascript:alert(1)' }); } catch (error) { problem = error.message; }
            return [visitForm({ url: 'javascript:alert(1)' }, () => {}).element.outerHTML, problem];
        }"""
    )
    assert "href" not in shown[0]
    assert shown[1] == "not a page to visit"


async def test_a_text_without_end_is_shown_in_parts(hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]) -> None:
    await ask(hub, form("endless " + "x" * 1_000_000, {}))
    ada: Person = await visit(await bridge.new_link(), "Ada")
    main = await ada.open("endless")
    assert len(await main.locator(".ask").inner_text()) < 25_000
    await expect(main.get_by_role("button", name="Show more")).to_be_visible()
    await answers(ada)
    await (await ada.open("endless")).get_by_role("button", name="Decline").click()
    await expect(ada.page.locator(".outcome")).to_be_visible()


async def test_ten_thousand_questions_do_not_stop_the_page(
    start_hub: Any, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    names = [f"hostile{n}" for n in range(SERVERS)]
    hub: RunningHub = await start_hub({name: dictated(TOOL) for name in names})
    await hub.connected(*names)
    bridge: Bridge = await start_bridge(hub)
    ada: Person = await visit(await bridge.new_link(), "Ada")
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(flood, hub, name)
        await expect(ada.page).to_have_title(re.compile(r"^\([1-9]"), timeout=LIMIT_S * 1000)
        await answers(ada)
        await ada.go("inbox")
    with anyio.fail_after(LIMIT_S):
        # The hub refuses a few that come too many at once.
        while (waiting := await count_open(hub)) < 0.9 * SERVERS * EACH or await ada.waiting() != waiting:
            await anyio.sleep(POLL_S)
    assert 10 < await ada.page.locator("a.card").count() < 100
    last = ada.page.locator(".rows > li").last
    with anyio.fail_after(LIMIT_S):
        while await last.get_attribute("aria-posinset") != str(await ada.waiting()):  # some may still come
            await ada.page.locator(".listing").evaluate("it => { it.scrollTop = it.scrollHeight; }")
            await anyio.sleep(POLL_S)
    await expect(last).to_be_visible()
    assert await ada.page.locator("a.card").count() < 100
    await ada.page.get_by_role("searchbox").fill("hostile9")
    await expect(ada.page.locator("a.card").first).to_contain_text("hostile9")
    await answers(ada)
    await hub.terminate(4 * LIMIT_S)  # it takes back each question
