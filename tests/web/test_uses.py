"""What people use of the catalog by the page: tools, resources, templates and prompts."""

from typing import Any

import anyio
import pytest
from playwright.async_api import Locator, expect

from ..e2e.conftest import LIMIT_S, RunningHub
from .conftest import Person, dictated

pytestmark = pytest.mark.usefixtures("settled")

GREET = {
    "name": "greet",
    "inputSchema": {
        "type": "object",
        "properties": {"who": {"type": "string", "title": "Who"}, "more": {"type": "object", "title": "More"}},
    },
}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, everything_command: list[str]) -> RunningHub:
    """A hub with a server that a test dictates to, and one that offers everything."""
    every = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    return await start_shared_hub({"dictated": dictated(GREET), "every": every}, connected=True)


async def test_a_tool_is_called_with_a_form_from_the_catalog(ada: Person) -> None:
    main = ada.page.locator("main")
    await ada.page.get_by_role("link", name="Catalog").click()
    await main.get_by_role("link", name="dictated").click()
    await main.get_by_role("link", name="greet").click()
    await main.get_by_label("Who").fill("Bob")
    await main.get_by_label("More").fill('{"loud": true}')
    await main.get_by_role("button", name="Call").click()
    await expect(main.locator(".pill")).to_have_text("completed")
    await expect(main.get_by_text('{"who": "Bob", "more": {"loud": true}}')).to_be_visible()


async def offered(ada: Person, kind: str, name: str) -> Locator:
    """Opens what a server offers; what is on its page."""
    await ada.go("catalog/every")
    main = ada.page.locator("main")
    await main.get_by_label("Kind", exact=True).select_option(kind)
    await main.get_by_role("searchbox").fill(name)
    await main.get_by_role("link", name=name).first.click()
    await expect(main.get_by_role("heading", level=1)).to_be_visible()
    return main


async def test_a_resource_is_read_a_template_filled_in_and_a_prompt_got(ada: Person) -> None:
    main = await offered(ada, "resource", "architecture.md")
    await main.get_by_role("button", name="Read").click()
    await expect(main.locator(".pill")).to_have_text("completed")
    await expect(main.locator(".words", has_text="Architecture").first).to_be_visible()
    main = await offered(ada, "template", "Dynamic Text")
    await main.get_by_label("resourceId").fill("7")
    await main.get_by_role("button", name="Read").click()
    await expect(main.get_by_text("demo://resource/dynamic/text/7").first).to_be_visible()
    await expect(main.locator(".pill")).to_have_text("completed")
    main = await offered(ada, "prompt", "args-prompt")
    await main.get_by_role("button", name="Get").click()
    await expect(main.locator(".problem:visible")).to_have_text("Please give a value.")
    await main.get_by_label("city").fill("Graz")
    await main.get_by_role("button", name="Get").click()
    await expect(main.locator(".message")).to_contain_text("Graz")


async def test_a_list_that_comes_late_does_not_replace_the_kind_that_was_chosen_after_it(ada: Person) -> None:
    shown, late = anyio.Event(), anyio.Event()

    async def hold(route: Any) -> None:
        if route.request.post_data_json["kind"] == "resource":
            await shown.wait()
        await route.continue_()

    ada.page.on("requestfinished", lambda asked: "resource" in (asked.post_data or "") and late.set())
    await ada.go("catalog/every")
    main = ada.page.locator("main")
    kind = main.get_by_label("Kind", exact=True)
    await expect(kind).to_be_visible()
    await ada.page.route("**/api/catalog", hold)
    await kind.select_option("resource")
    await kind.select_option("prompt")
    prompt = main.get_by_role("link", name="args-prompt")
    await expect(prompt).to_be_visible()
    shown.set()
    with anyio.fail_after(LIMIT_S):
        await late.wait()
    await main.get_by_role("searchbox").fill("args-prompt")  # draws the list again
    await prompt.click()
    await expect(main.get_by_role("button", name="Get")).to_be_visible()


async def test_a_tool_is_called_as_a_task_and_the_task_cancelled(hub: RunningHub, ada: Person) -> None:
    main = await offered(ada, "tool", "simulate-research-query")
    await main.get_by_label("topic").fill("python")
    await main.get_by_label("ambiguous").check()
    await main.get_by_role("button", name="Call").click()
    await expect(main.locator(".pill").first).to_have_text("waiting for a person")
    (asked,) = await hub.asked(server="every")
    await ada.go(f"request/{asked.id}")
    await main.locator(".facts").get_by_role("link", name="a task").click()
    await main.get_by_role("button", name="Cancel task").click()
    await expect(main.locator(".pill").first).to_have_text("cancelled")
    assert (await hub.call(asked.call_id)).state == "cancelled"
