"""A person at the terminal answers what servers ask."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from .conftest import RunningHub, at_terminal, demo, peer


@pytest.fixture(scope="module")
async def shared_hub(start_shared_hub: Callable[..., Any]) -> RunningHub:
    """One hub for all these tests."""
    mrtr = {**peer("mrtr_server.py", "stdio"), "roots": "ask"}
    return await start_shared_hub({"demo": demo(), "hostile": peer("hostile_server.py"), "mrtr": mrtr})


@pytest.fixture
async def hub(shared_hub: RunningHub) -> AsyncIterator[RunningHub]:
    """A hub whose inbox is empty before and after each test."""
    for server in ("demo", "hostile", "mrtr"):
        await shared_hub.client.servers.connect(server)
    await shared_hub.connected("demo", "hostile", "mrtr")
    yield shared_hub
    for request in await shared_hub.client.inbox.list(states=["open"]):
        await shared_hub.client.servers.disconnect(request.server)
        await shared_hub.request(request.id, state="withdrawn")


async def test_a_wrong_answer_is_told_at_its_field_and_the_next_one_is_accepted(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub) as ann:
        await ann.sees("What would you like for lunch?", "1 form")
        await ann.press("enter")
        await ann.sees("Note for the kitchen", "Portions *  whole number, 1 to 8")
        await ann.press("tab")
        await ann.types("9")
        await ann.press("ctrl+s")
        await ann.sees("✗ must be a whole number, 1 to 8")
        await ann.types("2")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
        ended = await hub.call(call.id)
        await ann.press("3", "enter")
        await ann.sees("order_lunch on demo", "· person ", "%)")
    assert ended.result["content"][0]["text"] == "Ordered: 2 x curry"
    answered = (await hub.client.inbox.list(call_id=call.id))[0]
    assert (answered.answered_by, answered.answer["content"]["portions"]) == ("ann", 2)


async def test_what_only_the_hub_finds_wrong_stands_at_the_field_too(hub: RunningHub) -> None:
    call = await hub.client.start_tool("hostile", "strict")
    async with at_terminal(hub) as ann:
        await ann.sees("strict form")
        await ann.press("enter")
        await ann.sees("Mail *")
        await ann.types("a b@c")
        await ann.press("ctrl+s")
        await ann.sees("✗ must look like name@example.com")
        await ann.types("a..b@example.com")
        await ann.press("ctrl+s")
        await ann.sees("✗", "email")
        assert (await hub.client.inbox.list(call_id=call.id))[0].state == "open"
        await ann.types("ann@example.com")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
    assert (await hub.call(call.id)).state == "completed"


async def test_a_form_with_every_kind_of_field_is_filled_in(hub: RunningHub) -> None:
    call = await hub.client.start_tool("hostile", "all_kinds")
    async with at_terminal(hub, size=(100, 50)) as ann:
        await ann.sees("all kinds")
        await ann.press("enter")
        await ann.sees("Toppings", "Cheese", "Olives", "Member", "Day")
        await ann.press("ctrl+s")
        await ann.sees("✗ is required")
        await ann.press("enter", "down", "enter", "tab")
        await ann.press("space", "down", "space", "tab")
        await ann.press("enter", "down", "enter", "tab")
        await ann.types("2026-12-24")
        await ann.press("tab")
        await ann.types("2.5")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
    await hub.call(call.id)
    answer = (await hub.client.inbox.list(call_id=call.id))[0].answer
    assert answer["content"] == {
        "size": "s",
        "toppings": ["cheese", "olives"],
        "member": True,
        "day": "2026-12-24",
        "weight": 2.5,
    }


async def test_a_form_can_be_answered_as_json(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub) as ann:
        await ann.sees("What would you like for lunch?")
        await ann.press("enter")
        await ann.sees("Portions")
        await ann.press("ctrl+e")
        await ann.sees('"dish": "curry"')
        await ann.press("f7", "delete")
        await ann.types('{"dish": "soup", "portions": 3')
        await ann.press("ctrl+s")
        await ann.sees("✗ this is not JSON")
        await ann.press("ctrl+end", "}", "ctrl+s")
        await ann.sees("Nothing waits for you")
    assert (await hub.call(call.id)).result["content"][0]["text"] == "Ordered: 3 x soup"


async def test_a_sampling_is_edited_and_sent_and_another_is_refused(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "write_haiku", {"topic": "frogs"})
    async with at_terminal(hub) as ann:
        await ann.sees("Write a haiku about frogs.")
        await ann.press("enter")
        await ann.sees("Three lines: five, seven and five syllables.", "100 tokens")
        await ann.press("ctrl+s")
        await ann.sees("✗ write a reply, or refuse")
        await ann.types("old pond\nsplash")
        await ann.types("plop")
        await ann.press("tab")
        await ann.types("basho-1")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
        assert (await hub.call(call.id)).result["content"][0]["text"] == "old pond\nplop\n-- basho-1"

        call = await hub.client.start_tool("demo", "write_haiku")
        await ann.sees("Write a haiku about waiting.")
        await ann.press("enter")
        await ann.sees("Reply")
        await ann.press("f8")
        await ann.sees("Reason that the server gets")
        await ann.types("no poets here")
        await ann.press("enter")
        await ann.sees("Nothing waits for you")
    assert "no poets here" in (await hub.call(call.id)).result["content"][0]["text"]


async def test_a_page_is_agreed_to_only_with_explicit_consent_and_never_opened(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "sign_up")
    async with at_terminal(hub) as ann:
        await ann.sees("Please sign up on this page.")
        await ann.press("enter")
        await ann.sees("https://example.com/sign-up?plan=demo")
        await ann.press("ctrl+s")
        await ann.sees("✗ agree to it first, or decline")
        assert (await hub.client.inbox.list(call_id=call.id))[0].state == "open"
        await ann.press("space", "ctrl+s")
        await ann.sees("now open its address yourself", "https://example.com/sign-up?plan=demo")
        await ann.press("escape")
        await ann.sees("Nothing waits for you")
    assert (await hub.call(call.id)).result["content"][0]["text"] == "Sign-up: accept"


async def test_who_opens_a_form_claims_it_and_gives_it_back(hub: RunningHub) -> None:
    await hub.client.start_tool("demo", "order_lunch")
    (request,) = await hub.asked()
    async with at_terminal(hub) as ann, at_terminal(hub, who="bob") as bob:
        await ann.sees("What would you like for lunch?")
        await ann.press("enter")
        await bob.sees("✎ ann")
        await bob.press("enter")
        await bob.sees("being answered by ann: what you send now is refused")
        await bob.press("ctrl+s")
        await bob.sees("ann has claimed this request")
        await ann.press("escape")
        await bob.no_longer_sees("ann has claimed this request")
        await hub.watched(hub.client.inbox.watch(states=["open"]), lambda seen: seen.claim and seen.claim.by == "bob")
    assert (await hub.client.inbox.get(request.id)).claim is None


async def test_one_who_answers_elsewhere_already_is_told_so_and_takes_it_over(hub: RunningHub) -> None:
    call = await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub) as first, at_terminal(hub) as second:
        await first.sees("What would you like for lunch?")
        await first.press("enter")
        await second.sees("✎ ann")
        await second.press("enter")
        await second.sees("you are answering this in another window or program", "f6 answers it here")
        await second.press("f6")
        await second.no_longer_sees("in another window")
        await first.press("ctrl+s")
        await first.sees("f6 answers it here")
        await second.press("ctrl+s")
        await second.sees("Nothing waits for you")
    assert (await hub.call(call.id)).result["content"][0]["text"] == "Ordered: 1 x curry"


async def test_who_loses_a_race_is_told_who_answered_and_what(hub: RunningHub) -> None:
    await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub) as ann, at_terminal(hub, who="bob") as bob:
        await ann.sees("What would you like for lunch?")
        await ann.press("enter")
        await ann.sees("Note for the kitchen")
        await bob.sees("✎ ann")
        await bob.press("enter")
        await bob.sees("being answered by ann")
        await ann.press("ctrl+s")
        await bob.sees("ann answered it before you", "Dish: Vegetable curry, Portions: 1")
        await bob.press("ctrl+s")
        await bob.sees("Nothing waits for you")
        await bob.press("h")
        await bob.sees("answered by ann", "past request")


async def test_what_a_server_takes_back_is_said_on_the_open_form(hub: RunningHub) -> None:
    await hub.client.start_tool("demo", "order_lunch")
    async with at_terminal(hub) as ann:
        await ann.sees("What would you like for lunch?")
        await ann.press("enter")
        await ann.sees("Note for the kitchen")
        await hub.client.servers.disconnect("demo")
        await ann.sees("withdrawn:")
