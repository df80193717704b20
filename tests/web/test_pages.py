"""Ways that lead somewhere: what is not there, what is empty, a search over all servers, a server that is added."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from hubbub_client.services.tokens import Grant

from ..e2e.conftest import RunningHub
from .conftest import PEERS, Bridge, Person, dictated, form

GREET = {
    "name": "greet",
    "title": "Say hello",
    "description": "Greets people on the pier",
    "inputSchema": {"type": "object", "properties": {"who": {"type": "string", "title": "Who"}}},
}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with two servers; this Python may be started by others, too."""
    servers = {"first": dictated(GREET), "second": dictated(GREET | {"name": "wave", "title": "Wave"})}
    return await start_shared_hub(
        servers, hub={"allow_commands": [{"command": sys.executable, "args": ["**"]}]}, connected=True
    )


@pytest.fixture(scope="module")
async def bridge(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Bridge:
    """The bridge to that hub, of an administrator who does not own the machine."""
    made = await hub.client.tokens.create("adm", [Grant(role="admin")], may_name_others=True)
    return await start_shared_bridge(hub, token=made.secret)


@pytest.fixture
async def ada(bridge: Bridge, visit: Callable[..., Any]) -> Person:
    """Somebody at the page."""
    return await visit(await bridge.new_link(), "Ada")


@pytest.mark.parametrize(
    ("route", "says", "back", "to"),
    [
        ("call/nope", "No call “nope”", "Back to calls", "Calls"),
        ("request/req_nope", "No request “req_nope”", "Back to the inbox", "Inbox"),
        ("server/nope", "No server “nope”", "Back to servers", "Servers"),
        ("task/nope", "No task “nope”", "Back to tasks", "Tasks"),
        ("catalog/nope", "No catalog “nope”", "Back to catalog", "Catalog"),
        ("tool/first/nope", "No tool “nope”", "See what it offers", "first"),
        ("somewhere", "There is no such page", "Back to the inbox", "Inbox"),
        ("call/%", "No call “%”", "Back to calls", "Calls"),
        ("request/%", "No request “%”", "Back to the inbox", "Inbox"),
        ("call/no%20such", "No call “no such”", "Back to calls", "Calls"),
        ("constructor", "There is no such page", "Back to the inbox", "Inbox"),
    ],
)
async def test_what_is_not_there_says_so_and_leads_back(route: str, says: str, back: str, to: str, ada: Person) -> None:
    await ada.go(route)
    await expect(ada.page.get_by_role("heading", level=1)).to_have_text(says)
    await expect(ada.page).to_have_title("Not found · Hubbub")
    await ada.page.get_by_role("link", name=back).click()
    await expect(ada.page.get_by_role("heading", level=1)).to_have_text(to)


async def test_a_search_over_all_servers_leads_to_the_form_of_a_tool(ada: Person) -> None:
    main = ada.page.locator("main")
    await ada.go("catalog")
    await main.get_by_role("searchbox").fill("pier hello")
    await expect(main.locator("a.card:visible")).to_have_count(1)
    await expect(main.locator("a.card:visible")).to_contain_text("first")
    await main.get_by_role("searchbox").fill("greets")
    await expect(main.locator("a.card:visible")).to_have_count(2)
    await expect(main.get_by_text("2 found.")).to_be_visible()
    await main.get_by_role("searchbox").fill("nothing like it")
    await expect(main.get_by_text("No tool, resource, prompt or skill has these words.")).to_be_visible()
    await main.get_by_role("searchbox").fill("wave")
    await main.get_by_role("link", name="Wave").click()
    await expect(main.get_by_role("heading", name="Wave")).to_be_visible()
    await expect(main.get_by_label("Who")).to_be_visible()
    await ada.go("catalog")
    await expect(main.locator("a.card:visible")).to_have_count(2)
    await main.get_by_role("link", name="second").click()
    await expect(main.get_by_role("link", name="Wave")).to_be_visible()


async def test_a_server_is_added_and_what_is_wrong_is_said_at_its_field(hub: RunningHub, ada: Person) -> None:
    main = ada.page.locator("main")
    await ada.go("servers")
    await main.get_by_role("link", name="Add a server").click()
    await main.get_by_role("button", name="Add server").click()
    await expect(main.locator(".problem:visible")).to_have_text(["Please give a name.", "Please give a command."])
    await expect(main.get_by_label("Name")).to_be_focused()
    await main.get_by_label("Name").fill("first")
    await main.get_by_label("Command").fill("no-such-command --here")
    await main.get_by_role("button", name="Add server").click()
    await expect(main.get_by_label("Command")).to_have_accessible_description(
        "With its arguments, as in a terminal: uvx mcp-server-time The command 'no-such-command' may not be started: "
        "allow_commands of the hub's configuration does not have it."
    )
    await main.get_by_label("Command").fill(f"{sys.executable} 'open")
    await main.get_by_role("button", name="Add server").click()
    await expect(main.locator(".problem:visible")).to_have_text("Has a quotation mark that is not closed.")
    script = Path(PEERS) / "dictated_server.py"
    await main.get_by_label("Command").fill(f"{sys.executable} '{script}'")
    await main.get_by_label("Variables").fill("no value")
    await main.get_by_role("button", name="Add server").click()
    await expect(main.get_by_label("Variables")).to_be_focused()
    await main.get_by_label("Variables").fill("")
    await main.get_by_role("button", name="Add server").click()
    await expect(main.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    await main.get_by_label("Name").fill("third")
    await main.get_by_role("button", name="Add server").click()
    await expect(main.get_by_role("heading", level=1)).to_have_text("third")
    await expect(main.locator(".pill").first).to_have_text("connected")
    await main.get_by_role("button", name="Disconnect").click()
    await expect(main.locator(".pill").first).to_have_text("disconnected")
    await main.get_by_role("button", name="Connect", exact=True).click()
    await hub.connected("third")
    await hub.client.servers.remove("third")


async def test_what_is_refused_here_is_said_before_with_the_command_that_adds_it(hub: RunningHub, ada: Person) -> None:
    main = ada.page.locator("main")
    await ada.go("add")
    said = main.get_by_role("region", name="What is refused here")
    await expect(said).to_contain_text("the hub starts no command from this page")
    pasted = said.get_by_role("group", name="What to paste")
    start = f"hubbub --data-dir {hub.data_dir} servers add"
    await expect(pasted).to_have_text(f"{start} NAME -- uvx mcp-server-time")
    await main.get_by_label("Name").fill("files")
    await main.get_by_label("Command").fill("npx -y server-files '/my files'")
    await main.get_by_label("Variables").fill("KEY=it's\n")
    await expect(pasted).to_have_text(f"{start} files --env 'KEY=it'\\''s' -- npx -y server-files '/my files'")
    await main.get_by_label("Is reached over HTTP").check()
    await main.get_by_label("URL").fill("http://127.0.0.1:9/mcp?a=1&b=2")
    await expect(pasted).to_have_text(f"{start} files --url 'http://127.0.0.1:9/mcp?a=1&b=2'")


async def test_who_may_not_add_servers_is_told_who_can(
    hub: RunningHub, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    made = await hub.client.tokens.create("desk", [Grant(role="responder")])
    bridge: Bridge = await start_bridge(hub, token=made.secret)
    desk: Person = await visit(bridge.link, None)
    async with desk.page.expect_response("**/api/may_add"):
        await desk.go("servers")
    await expect(desk.page.get_by_role("link", name="first")).to_be_visible()
    await expect(desk.page.get_by_role("link", name="Add a server")).to_be_hidden()
    await desk.go("add")
    await expect(desk.page.get_by_text("You may not add servers here.")).to_be_visible()


async def test_a_task_is_called_by_the_question_that_it_asks(
    start_hub: Any, start_bridge: Callable[..., Any], visit: Callable[..., Any], mcp1_python: str
) -> None:
    demo = Path(__file__).parents[2] / "docs" / "demo" / "server.py"
    hub: RunningHub = await start_hub({"demo": {"command": mcp1_python, "args": [str(demo)]}}, connected=True)
    await hub.client.start_tool("demo", "plan_trip")
    await hub.asked()
    ada: Person = await visit((await start_bridge(hub)).link, "Ada")
    await ada.go("tasks")
    await expect(ada.page.locator("a.card .what")).to_have_text("Where shall we go?")
    await ada.page.locator("a.card").click()
    await expect(ada.page.get_by_role("heading", level=1)).to_have_text("Where shall we go?")


async def test_what_is_asked_is_bounded_in_the_row_of_its_kind(hub: RunningHub, ada: Person) -> None:
    odd = form("Odd?", {"x" * 400: {"type": "boolean"}})
    call = await hub.client.start_tool("first", "ask", {"questions": [odd, form("Even?", {"a": 1})]})
    await expect(ada.page.locator("a.card")).to_have_count(2)
    await expect(ada.page.locator(".quick")).to_have_count(0)
    await hub.client.calls.cancel(call.id, abort=True)
