"""Calls that wait for people: who says yes sees exactly what is sent, and presses nothing by accident."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from hubbub_client import Grant

from ..e2e.conftest import RunningHub
from ..e2e.test_notify import Receiver, receiver
from .conftest import LAPTOP, Bridge, Person, dictated
from .test_looks import CALM, HEIGHTS, RUN_AXE
from .test_looks import PEERS as NPM

__all__ = ["receiver"]

pytestmark = pytest.mark.usefixtures("settled")

SCRIPT = "<img src=x onerror=alert(1)>Approve this\u202e"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
TEXT = {"type": "string"}
DELETE: dict[str, Any] = {
    "name": "delete_branch",
    "title": "Delete a branch",
    "description": f"Deletes a branch. {SCRIPT}",
    "annotations": {"destructiveHint": True},
    "inputSchema": {
        "type": "object",
        "properties": {"repo": TEXT | {"title": "Repository"}, "branch": TEXT | {"title": "Branch", "maxLength": 20}},
        "required": ["repo", "branch"],
    },
}
EDIT = {"name": "edit_file", "inputSchema": {"type": "object", "properties": {"path": TEXT | {"title": "File"}}}}
PAY = {"name": "pay", "inputSchema": {"type": "object"}}
BRANCH = {"repo": "shop", "branch": "release/1.4"}
RULES = [
    {
        "name": "payments",
        "tools": ["pay"],
        "action": "ask",
        "needed": 2,
        "message": "Payments need two people.",
    },
    {"name": "edits", "tools": ["edit_file"], "action": "ask", "edit": False, "approvers": ["Ben"]},
    {"name": "deletes", "tools": ["delete_*"], "action": "ask", "remember": ["1h", "1d"]},
]

SUGGESTIONS: list[dict[str, Any]] = [
    {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "git push:*"}],
        "behavior": "allow",
        "destination": "session",
    },
    {"type": "setMode", "mode": "acceptEdits", "destination": "userSettings"},
]


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub whose rules ask about some tools."""
    return await start_shared_hub(
        {"dictated": dictated(DELETE, EDIT, PAY)},
        hub={"mcp_listen": "127.0.0.1:0"},
        mcp={"profiles": {"people": {"people": True}}},
        approvals={"rules": RULES},
        connected=True,
    )


async def call(hub: RunningHub, tool: str, arguments: Any) -> str:
    """Calls a tool that people are asked about; the call's id."""
    started = await hub.client.start_tool("dictated", tool, arguments)
    await hub.asked(1, call_id=started.id)
    return started.id


async def received(hub: RunningHub, call_id: str) -> str:
    """What the server has received as arguments, once the call has returned; it returns just these."""
    return (await hub.call(call_id)).result["content"][0]["text"]


def button(main: Locator, name: str) -> Locator:
    return main.get_by_role("button", name=name)


async def ready(main: Locator) -> None:
    """Waits until the buttons can be pressed: not at once, after what is shown has changed."""
    await expect(main.locator("[data-sends], [data-opens]").first).not_to_have_attribute("aria-disabled", "true")


async def opened(person: Person, tool: str) -> Locator:
    """Opens a call to approve, until its buttons can be pressed."""
    main = await person.open(f"Run {tool}?")
    await ready(main)
    return main


async def test_a_call_is_sent_once_somebody_has_approved_it_as_it_is_shown(hub: RunningHub, ada: Person) -> None:
    call_id = await call(hub, "delete_branch", BRANCH)
    main = await opened(ada, "delete_branch")
    await expect(main.locator("h1")).to_have_text("local wants to run delete_branch on dictated")
    await expect(main.locator(".hints")).to_have_text("destructive")
    await expect(main.get_by_label("The rule")).to_contain_text("Rule “deletes”")
    sent = main.get_by_label("What is sent")
    await expect(sent.locator("dt")).to_have_text(["Repositoryrepo", "Branch"])
    await expect(sent.locator("dd")).to_have_text(["shop", "release/1.4"])
    await expect(main.locator(".bar")).to_contain_text("Approve sends exactly this call to dictated, once.")
    await button(main, "Approve: delete_branch on dictated").click()
    await expect(main.get_by_role("heading", name="You have approved it")).to_be_visible()
    await expect(main.locator(".returned")).to_contain_text("delete_branch returned")
    assert await received(hub, call_id) == '{"repo": "shop", "branch": "release/1.4"}'


async def test_where_two_have_to_say_yes_each_sees_who_has(
    hub: RunningHub, bridge: Bridge, ada: Person, visit: Callable[..., Any]
) -> None:
    amount = 2**60 + 1  # a browser would round it
    call_id = await call(hub, "pay", {"amount": amount})
    main = await opened(ada, "pay")
    await expect(main.get_by_label("What is sent")).to_contain_text(f"amount{amount}")
    await expect(main.locator(".bar")).to_contain_text("Approve does not send it yet")
    await button(main, "Approve: pay").click()
    await expect(main.locator(".bar")).to_contain_text("You have said yes. One more person has to say yes too.")
    await expect(button(main, "Approve")).to_have_count(0)
    ben: Person = await visit(await bridge.new_link(), "Ben", viewport=LAPTOP)
    other = await opened(ben, "pay")
    await expect(ben.page.locator("#side a.card")).to_contain_text("1 of 2 said yes")
    await expect(other.get_by_label("The rule")).to_contain_text("Ada has said yes; one more is needed.")
    await button(other, "Approve: pay").click()
    for page in (main, other):
        await expect(page.get_by_role("heading", name="Ada and Ben have approved it")).to_be_visible()
    assert await received(hub, call_id) == f'{{"amount": {amount}}}'


async def test_changed_arguments_are_shown_before_they_are_sent_and_on_the_page_of_the_call(
    hub: RunningHub, ada: Person
) -> None:
    call_id = await call(hub, "delete_branch", BRANCH)
    main = await opened(ada, "delete_branch")
    await button(main, "Change…").click()
    field = main.get_by_role("textbox", name="Branch")
    await field.fill("x" * 30)
    await button(main, "Show what is different").click()
    await expect(main.get_by_text("At most 20 characters are taken")).to_be_visible()
    await field.fill("release/1.3")
    await button(main, "Show what is different").click()
    changes = main.get_by_label("What is different")
    lines = ["1-removed: release/1.4", "1+added: release/1.3"]
    await expect(changes.locator("del, ins")).to_have_text(lines)
    assert (await hub.client.calls.get(call_id)).state == "waiting_input"
    await button(main, "Approve with these changes").click()
    await expect(main.get_by_role("heading", name="You have approved it")).to_be_visible()
    assert await received(hub, call_id) == '{"repo":"shop","branch":"release/1.3"}'.replace(":", ": ").replace(
        ",", ", "
    )
    await ada.go(f"call/{call_id}")
    approval = ada.page.get_by_label("Approval", exact=True)
    await expect(approval).to_contain_text("Approved byAda")
    await expect(approval.locator("del, ins")).to_have_text(lines)


async def test_what_the_hub_says_against_changed_arguments_stands_at_their_field(hub: RunningHub, ada: Person) -> None:
    await call(hub, "pay", {"amount": 5})
    main = await opened(ada, "pay")
    await button(main, "Change…").click()
    field = main.get_by_label("Arguments as JSON")
    for text, problem in (('{"amount": 5', "line 1"), ('{"amount": 5, "amount": 6}', "twice"), ("[5]", "an object")):
        await field.fill(text)
        await button(main, "Show what is different").click()
        await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(main.locator(".field .problem")).to_contain_text(problem)
    await field.fill('{"amount": 5}')
    await button(main, "Show what is different").click()
    await expect(main.locator(".bar .problem")).to_have_text("Nothing is different from what is shown.")


async def test_who_presses_while_the_arguments_change_has_approved_nothing(
    hub: RunningHub, bridge: Bridge, ada: Person, visit: Callable[..., Any]
) -> None:
    call_id = await call(hub, "pay", {"amount": 5})
    ben: Person = await visit(await bridge.new_link(), "Ben", viewport=LAPTOP)
    other = await opened(ben, "pay")
    main = await ada.open("Run pay?")
    await expect(main.locator(".claim")).to_contain_text("Being answered by Ben")
    await button(other, "Change…").click()
    await other.get_by_label("Arguments as JSON").fill('{"amount": 500}')
    await button(other, "Show what is different").click()
    await ada.page.mouse.move(*await middle(button(main, "Approve: pay")))
    await ada.page.mouse.down()
    await button(other, "Approve with these changes").click()
    await expect(main.get_by_label("What has been changed")).to_contain_text("Ben has changed the arguments")
    await ready(main)
    await ada.page.mouse.up()
    await expect(main.locator(".bar .problem")).to_contain_text("The arguments have changed meanwhile")
    (request,) = await hub.client.inbox.list(call_id=call_id)
    assert [each.by for each in request.approvals] == ["Ben"]
    await button(main, "Approve: pay").click()
    await expect(main.get_by_role("heading", name="Ben and Ada have approved it")).to_be_visible()
    assert await received(hub, call_id) == '{"amount": 500}'


async def middle(element: Locator) -> tuple[float, float]:
    box = await element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def test_after_a_change_the_buttons_rest_for_half_a_second(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await call(hub, "delete_branch", BRANCH)
    ada: Person = await visit(await bridge.new_link(), "Ada", viewport=LAPTOP)
    main = await opened(ada, "delete_branch")
    await ada.go("inbox")
    await ada.page.clock.install()
    await ada.page.clock.pause_at(await ada.page.evaluate("Date.now() + 1000"))
    main = await ada.open("Run delete_branch?")
    approve = button(main, "Approve: delete_branch")
    await expect(approve).to_have_attribute("aria-disabled", "true")
    await approve.click(force=True)
    await expect(main.locator(".bar .problem")).to_contain_text("look again")
    await ada.page.clock.run_for(499)
    await expect(approve).to_have_attribute("aria-disabled", "true")
    await ada.page.clock.run_for(2)
    await expect(approve).not_to_have_attribute("aria-disabled", "true")
    assert len(await hub.client.inbox.list(states=["open"])) == 1


async def test_who_says_no_says_why_and_the_caller_hears_it(hub: RunningHub, ada: Person) -> None:
    call_id = await call(hub, "delete_branch", BRANCH)
    main = await opened(ada, "delete_branch")
    await button(main, "Deny…").click()
    await main.get_by_label("Why?").fill("It is still used.")
    await button(main, "Deny").click()
    await expect(main.get_by_role("heading", name="You have denied it")).to_be_visible()
    await expect(main.locator(".outcome")).to_contain_text("It is still used.")
    ended = await hub.call(call_id)
    assert ended.error.code == "APPROVAL_DENIED"
    assert "It is still used." in ended.error.message
    await ada.go("history")
    await expect(ada.page.locator("a.card").first).to_contain_text("denied")


async def test_an_approval_that_is_remembered_holds_until_it_is_revoked(hub: RunningHub, ada: Person) -> None:
    await call(hub, "delete_branch", BRANCH)
    main = await opened(ada, "delete_branch")
    await button(main, "Approve for longer…").click()
    await main.get_by_label("1 day").check()
    await button(main, "Approve for 1 day").click()
    await expect(main.locator(".outcome")).to_contain_text("Remembered for1 day, the same arguments only")
    again = await hub.client.start_tool("dictated", "delete_branch", BRANCH)
    assert (await hub.call(again.id)).state == "completed"
    await ada.go("approvals")
    remembered = ada.page.get_by_label("Remembered approvals")
    await expect(remembered.locator(".card")).to_contain_text(
        "local may run delete_branch on dictated with these arguments only"
    )
    await remembered.get_by_role("button", name="Revoke: delete_branch").click()
    await ada.page.keyboard.press("ArrowRight")
    await ada.page.keyboard.press("Enter")
    await expect(remembered).to_contain_text("Nothing is remembered")
    await call(hub, "delete_branch", BRANCH)


async def test_what_a_host_suggests_is_allowed_once_it_is_ticked(hub: RunningHub, ada: Person) -> None:
    params = {"name": "Bash", "arguments": {"command": "ls"}, "_meta": {"hubbub/suggestions": SUGGESTIONS}}
    started = await hub.client.calls.start("host", "tools/call", params)
    await hub.asked(1, call_id=started.id)
    main = await opened(ada, "Bash")
    await expect(main).not_to_contain_text("whether it writes")
    await button(main, "Approve and allow more…").click()
    await expect(main.get_by_label("change files without asking (mode acceptEdits) for good")).not_to_be_checked()
    await button(main, "Approve with these").click()
    await expect(main).to_contain_text("Tick what else is allowed")
    await main.get_by_label("allow Bash(git push:*) for this session").check()
    await button(main, "Approve with these").click()
    await expect(main.locator(".outcome")).to_contain_text("Allowed as well")
    (settled,) = await hub.client.inbox.list(call_id=started.id)
    assert settled.answer["suggestions"] == [0]


async def test_the_rules_are_shown_in_their_order(hub: RunningHub, ada: Person) -> None:
    await ada.go("approvals")
    rules = ada.page.get_by_label("Rules", exact=True).locator(".card")
    await expect(rules).to_have_count(5)
    names = [text.splitlines()[0] for text in await rules.all_inner_texts()]
    assert [name.partition(" is ")[0] for name in names] == [
        "1. payments",
        "2. edits",
        "3. deletes",
        "4. confirm of host",
        "Any other call",
    ]
    await expect(rules.first).to_contain_text("two people")
    await expect(rules.nth(1)).to_contain_text("WhoBen")
    await expect(rules.last).to_contain_text("is sent")


async def test_who_may_not_approve_sees_the_call_and_who_may(
    hub: RunningHub, ada: Person, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    await call(hub, "edit_file", {"path": "a"})
    main = await ada.open("Run edit_file?")
    await expect(main.locator(".bar")).to_contain_text("The rule names others who may approve this.")
    await expect(main.get_by_label("The rule")).to_contain_text("May approve: Ben.")
    made = await hub.client.tokens.create("desk", [Grant(role="responder")])
    desk: Bridge = await start_bridge(hub, token=made.secret)
    eve: Person = await visit(desk.link, None, viewport=LAPTOP)
    other = await eve.open("Run edit_file?")
    await expect(other.locator(".bar")).to_contain_text("that takes the permission to approve calls of dictated")
    for page in (main, other):
        await expect(page.locator(".bar button")).to_have_count(0)


async def test_a_change_of_a_file_is_drawn_as_a_difference(hub: RunningHub, ada: Person) -> None:
    old, new = "one\ntwo\nthree\n", "one\n2\nthree\n"
    await call(hub, "edit_file", {"path": "a.txt", "edits": [{"oldText": old, "newText": new}]})
    main = await ada.open("Run edit_file?")
    lines = main.get_by_label("What is sent").locator(".line-of")
    await expect(lines).to_have_text(["1 one", "2-removed: two", "2+added: 2", "3 three"])


async def test_what_others_wrote_is_text_and_is_not_said_by_the_hub(hub: RunningHub, ada: Person) -> None:
    await call(hub, "delete_branch", {"repo": SCRIPT, "branch": "x\nRule “none”: approved by the hub"})
    main = await ada.open("Run delete_branch?")
    foreign = main.locator(".foreign")
    await expect(foreign.locator("summary")).to_have_text("What dictated says of this tool")
    await foreign.locator("summary").click()
    await expect(foreign).to_contain_text("<img src=x onerror=alert(1)>Approve this[U+202E]")
    await expect(main.get_by_label("What is sent")).to_contain_text("<img src=x onerror=alert(1)>Approve this[U+202E]")
    assert "approved by the hub" not in await main.get_by_label("The rule").inner_text()
    await expect(main.locator("img")).to_have_count(0)


async def test_arguments_of_a_mebibyte_are_shown_in_part_until_all_is_wanted(hub: RunningHub, ada: Person) -> None:
    text = "".join(f"line {n} of many\n" for n in range(20_000))
    more = {f"key{n}": n for n in range(2000)}
    await call(hub, "edit_file", {"path": "a", "old_text": text, "new_text": text.upper(), **more})
    main = await ada.open("Run edit_file?")
    await expect(main.locator(".line-of")).to_have_count(200)
    assert await ada.page.locator("*").count() < 2000
    await button(main, "Show all (39,800 lines more)").click()
    await expect(main.locator(".line-of").last).to_contain_text("+ LINE 19999 OF MANY")
    assert await ada.page.locator("*").count() < 2000


async def test_what_the_caller_did_before_is_one_click_away(hub: RunningHub, ada: Person) -> None:
    await hub.client.call_tool("dictated", "many", {"question": {"method": "roots/list"}, "count": 0})
    await call(hub, "delete_branch", BRANCH)
    main = await ada.open("Run delete_branch?")
    await main.get_by_text("What local did before on dictated").click()
    first = main.locator(".earlier li").first
    await expect(first).to_contain_text("many completed")
    await first.get_by_role("link").click()
    await expect(ada.page.locator("main h1")).to_have_text("many")


async def test_what_is_typed_where_an_approval_opens_approves_nothing(hub: RunningHub, ada: Person) -> None:
    await call(hub, "delete_branch", BRANCH)
    await opened(ada, "delete_branch")
    for key in ("y", "e", "s", "Enter", "Space", "Enter"):
        await ada.page.keyboard.press(key)
    (request,) = await hub.client.inbox.list(states=["open"])
    assert request.approvals == ()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
async def test_an_approval_is_fit_for_everybody(
    scheme: str, device: str, hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await call(hub, "delete_branch", BRANCH)
    (request,) = await hub.client.inbox.list(call_id=call_id)
    axe = (NPM / "page/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    options = CALM | {"color_scheme": scheme} | (PHONE if device == "phone" else {"viewport": LAPTOP})
    ada: Person = await visit(f"{await bridge.new_link()}&to=request/{request.id}", "Ada", script=axe, **options)
    page, main = ada.page, ada.page.locator("main")
    await ready(main)
    wrong: dict[str, Any] = {"card": await look(page, device)}
    for name in ("Approve for longer…", "Change…", "Deny…"):
        await button(main, name).click()
        wrong[name] = await look(page, device)
        await page.keyboard.press("Escape")
        await expect(button(main, name)).to_be_focused()
    await ada.go("approvals")
    await expect(page.get_by_label("Rules", exact=True)).to_be_visible()
    wrong["approvals"] = await look(page, device)
    assert {name: found for name, found in wrong.items() if found} == {}


async def look(page: Page, device: str) -> list[str]:
    """What is wrong with what is shown."""
    found: list[str] = await page.evaluate(RUN_AXE)
    if device == "phone":
        width, height = await page.evaluate("document.documentElement.scrollWidth"), await page.evaluate(HEIGHTS)
        found += [f"{width} wide"] * (width > 390) + [f"a button of {height}"] * (height < 44)
    return found


@pytest.mark.parametrize("answer", ["approve", "change", "remember", "deny"])
async def test_a_notification_leads_a_phone_to_the_call_where_all_answers_can_be_given(
    answer: str, hub: RunningHub, bridge: Bridge, receiver: Receiver, visit: Callable[..., Any]
) -> None:
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    call_id = await call(hub, "delete_branch", BRANCH)
    (message,) = [body["message"] for body in await receiver.got(1)]
    assert "local wants to run delete_branch on dictated" in message
    assert "release/1.4" not in message
    link = message.rpartition("Answer: ")[2]
    assert link.startswith(bridge.origin)
    person: Person = await visit(link, "Cleo", **PHONE)
    main = person.page.locator("main")
    await expect(main.locator("h1")).to_have_text("local wants to run delete_branch on dictated")
    await ready(main)
    expected = BRANCH
    match answer:
        case "approve":
            await button(main, "Approve: delete_branch on dictated").tap()
        case "change":
            expected = BRANCH | {"branch": "release/1.3"}
            await button(main, "Change…").tap()
            await main.get_by_role("textbox", name="Branch").fill("release/1.3")
            await button(main, "Show what is different").tap()
            await button(main, "Approve with these changes").tap()
        case "remember":
            await button(main, "Approve for longer…").tap()
            await main.get_by_label("1 hour").check()
            await button(main, "Approve for 1 hour").tap()
        case _:
            await button(main, "Deny…").tap()
            await main.get_by_label("Why?").fill("It is still used.")
            await button(main, "Deny").tap()
    if answer == "deny":
        assert "It is still used." in (await hub.call(call_id)).error.message
    else:
        await expect(main.get_by_role("heading", name="You have approved it")).to_be_visible()
        assert json.loads(await received(hub, call_id)) == expected
    for remembered in await hub.client.approvals.list():
        assert answer == "remember"
        await hub.client.approvals.revoke(remembered.id)
    assert await notifying.interrupt() == 0
