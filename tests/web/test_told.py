"""What the hub says of causes, of ends that come too late, of servers that were given up: drawn from the fields."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from ..e2e.conftest import RunningHub
from .conftest import Bridge, Person, ask, dictated, form

pytestmark = pytest.mark.usefixtures("settled")

TOLD = """
const more = %s;
const whole = window.fetch;
const told = (kind, record) => record && more[kind] ? { ...record, ...more[kind] } : record;
window.fetch = async (url, options) => {
  const response = await whole(url, options);
  const action = String(url).split("/").pop();
  if (action === "feed") {
    let rest = "";
    const lines = new TransformStream({ transform(chunk, control) {
      const found = (rest + chunk).split("\\n");
      rest = found.pop();
      for (const line of found) {
        const it = JSON.parse(line);
        if (it.record) it.record = told(it.kind, it.record);
        control.enqueue(`${JSON.stringify(it)}\\n`);
      }
    } });
    const read = response.body.pipeThrough(new TextDecoderStream());
    const body = read.pipeThrough(lines).pipeThrough(new TextEncoderStream());
    return new Response(body, { status: response.status });
  }
  if (!["request", "call", "server", "task"].includes(action) || !response.ok) return response;
  const body = await response.json();
  const record = action === "request" ? told(action, body) : { ...body, [action]: told(action, body[action]) };
  return new Response(JSON.stringify(record), { status: 200 });
};
"""
"""The hub's word with fields that a test dictates, of all records of a kind."""


def told(**more: Any) -> str:
    return TOLD % json.dumps(more)


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks, and one that is not there."""
    gone = {"command": "no-such-command", "retries": 0}
    hub = await start_shared_hub({"dictated": dictated(), "gone": gone})
    await hub.connected("dictated")
    return hub


async def test_where_one_of_several_calls_asks_each_is_named_and_led_to(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Which of you?", {}))
    more = {"call_id": None, "cause_source": None, "candidate_call_ids": [call_id, "another"]}
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(request=more))
    await expect(ada.page.locator("a.card")).to_contain_text("because of one of ask, another")
    main = await ada.open("Which of you?")
    why = main.locator(".facts")
    await expect(why).to_contain_text("one of ask, another")
    await why.get_by_role("link", name="ask").click()
    await expect(main.get_by_role("heading", level=1)).to_have_text("ask")


async def test_the_only_candidate_that_is_left_is_not_said_to_be_certain(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Was it you?", {}))
    more = {"call_id": None, "cause_source": None, "candidate_call_ids": [call_id]}
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(request=more))
    await expect(ada.page.locator("a.card", has_text="Was it you?")).to_contain_text("perhaps because of ask")
    main = await ada.open("Was it you?")
    await expect(main.locator(".facts")).to_contain_text("Perhaps because ofask")


async def test_a_question_whose_call_is_over_says_so_before_it_is_answered(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    await ask(hub, form("Too late?", {}))
    more = {"cause_ended": "its call was cancelled"}
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(request=more))
    await expect(ada.page.locator("a.card")).to_contain_text("its call is over")
    main = await ada.open("Too late?")
    await expect(main.locator(".warning")).to_have_text("Its call was cancelled: an answer may come too late.")
    await main.get_by_role("button", name="Accept").click()
    await expect(main.get_by_role("heading", name="You have answered")).to_be_visible()
    await expect(main.locator(".warning")).to_be_hidden()


async def test_an_answer_that_came_too_late_is_not_said_to_have_arrived(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Was it late?", {}))
    (request,) = await hub.client.inbox.list(states=["open"])
    await request.accept({})
    await hub.call(call_id)
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(request={"delivery": "late"}))
    await ada.go("history")
    await expect(ada.page.locator("a.card", has_text="Was it late?")).to_contain_text("came too late")
    await ada.go(f"request/{request.id}")
    await expect(ada.page.locator(".outcome")).to_contain_text("the call that asked was over already")


async def test_a_call_that_perhaps_waits_leads_to_what_it_may_wait_for(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Perhaps?", {}))
    (request,) = await hub.client.inbox.list(states=["open"])
    more = {"state": "in_progress", "pending_ids": [], "perhaps_pending_ids": [request.id]}
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(call=more))
    await ada.go("calls")
    await expect(ada.page.locator("a.card").first).to_contain_text("perhaps waiting for a person")
    await ada.go(f"call/{call_id}")
    main = ada.page.locator("main")
    await main.locator(".warning").get_by_role("link", name="Perhaps?").click()
    await expect(main.get_by_role("heading", level=1)).to_have_text("Perhaps?")


async def test_a_server_that_was_given_up_says_what_brings_it_back(bridge: Bridge, visit: Callable[..., Any]) -> None:
    ada: Person = await visit(await bridge.new_link(), "Ada", script=told(server={"gave_up": True}))
    await ada.go("servers")
    await expect(ada.page.locator("a.card").first.locator(".pill")).to_have_text("gave up")
    await ada.go("server/dictated")
    main = ada.page.locator("main")
    await expect(main.locator(".warning")).to_contain_text("hubbub servers connect dictated")
    await expect(main.get_by_role("button", name="Connect", exact=True)).to_be_visible()


@pytest.mark.parametrize("kind", ["request", "call", "server"])
async def test_a_record_that_cannot_be_shown_whole_is_marked(
    kind: str, hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    call_id = await ask(hub, form("Whole?", {}))
    (request,) = await hub.client.inbox.list(states=["open"])
    script = told(**{kind: {"defect": "its deadline is no time"}})
    ada: Person = await visit(await bridge.new_link(), "Ada", script=script)
    lists = {"request": "inbox", "call": "calls", "server": "servers"}
    pages = {"request": f"request/{request.id}", "call": f"call/{call_id}", "server": "server/dictated"}
    await ada.go(lists[kind])
    await expect(ada.page.locator("a.card").first).to_contain_text("not whole")
    await ada.go(pages[kind])
    await expect(ada.page.locator("main .warning")).to_contain_text("its deadline is no time")
