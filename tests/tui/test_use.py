"""What a person does at the terminal with servers, their queues, what they offer and what they hold."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from anyio import fail_after, sleep
from starlette.applications import Starlette

from ..upstream.conftest import served
from ..upstream.guarded import Guarded, visit
from .conftest import LIMIT_S, POLL_S, Person, RunningHub, at_terminal, demo, peer

RESEARCH = "simulate-research-query"


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Callable[..., Any], everything_command: list[str]) -> RunningHub:
    """A hub with servers that hold tasks, have resources, and ask; `narrow` takes one call at a time."""
    everything = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    narrow = {**demo(), "max_in_flight": 1}
    return await start_shared_hub(
        {"every": everything, "narrow": narrow, "plain": peer("plain_server.py")}, connected=True
    )


async def find(person: Person, words: str, seen: str) -> None:
    """Puts the cursor of the catalog on the first entry with these words."""
    await person.press("5", "slash")
    await person.types(words)
    await person.sees(f"1 with {words}", seen)
    await person.press("enter")
    await person.sees("enter to ")


async def test_a_tool_is_called_as_a_task_and_the_task_is_cancelled_where_it_is_seen(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 40)) as ann:
        await find(ann, RESEARCH, "Simulate Research Query")
        await ann.press("enter")
        await ann.sees("topic *", "As a task (ctrl+t)")
        await ann.types("python")
        await ann.press("tab", "enter", "up", "enter")
        await ann.press("ctrl+t")
        await ann.sees("waiting input", "press a to answer")
        (asked,) = await hub.asked(server="every")
        await ann.sees("waiting input", "press a to answer")
        await ann.press("escape", "escape", "4")
        await ann.sees("1 task · 1 not ended", "client: held by the server", "input required")
        await ann.press("x", "ctrl+y")
        await ann.sees("1 task · 0 not ended", "cancelled")
        await ann.press("g")
        await ann.sees("TASK_CANCELLED", RESEARCH)
    (task,) = await hub.client.tasks.list(role="client")
    assert (task.id, task.status) == (asked.task_id, "cancelled")
    assert (await hub.call(asked.call_id)).state == "cancelled"
    assert (await hub.request(asked.id, state="withdrawn")).reason


async def test_a_tool_is_offered_only_in_the_ways_that_its_server_takes(hub: RunningHub) -> None:
    before = [call.id for call in await hub.client.calls.list(server="narrow")]
    async with at_terminal(hub, size=(150, 40)) as ann:
        await find(ann, "narrow write_haiku", "write_haiku")
        await ann.press("enter")
        shown = await ann.sees("Call (ctrl+s)", "This server does not carry out tools as tasks.")
        assert "As a task (ctrl+t)" not in shown
        await ann.press("ctrl+t", "escape")
        await find(ann, "every echo", "Echo")
        await ann.press("enter")
        shown = await ann.sees("Call (ctrl+s)", "The server does not carry out this tool as a task.")
        assert "As a task (ctrl+t)" not in shown
        await ann.press("escape")
        await find(ann, RESEARCH, "Simulate Research Query")
        await ann.press("enter")
        shown = await ann.sees("As a task (ctrl+t)", "The server carries out this tool only as a task.")
        assert "Call (ctrl+s)" not in shown
    assert [call.id for call in await hub.client.calls.list(server="narrow")] == before


async def test_a_resource_is_read_and_a_prompt_is_got(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 40)) as ann:
        await find(ann, "architecture.md", "resources")
        await ann.press("enter")
        await ann.sees("resources/read", "completed", "Result", "Architecture")
        await ann.press("escape")
        await find(ann, "args-prompt", "prompts")
        await ann.press("enter")
        await ann.sees("city *", "Get (ctrl+s)")
        await ann.press("ctrl+s")
        await ann.sees("✗ is required")
        await ann.types("Graz")
        await ann.press("ctrl+s")
        await ann.sees("prompts/get", "completed", "Graz")


async def test_a_call_is_made_again_from_a_form_filled_in_as_before(hub: RunningHub) -> None:
    first = await hub.client.call_tool("every", "get-sum", {"a": 20, "b": 22})
    assert first
    made = len(await hub.client.calls.list(server="every"))
    async with at_terminal(hub, size=(100, 40)) as ann:
        await ann.press("3", "slash")
        await ann.types("get-sum")
        await ann.press("enter")
        await ann.sees("1 with get-sum", "completed")
        await ann.press("c")
        await ann.sees("Get Sum Tool · tool of every", "Filled in as it was called before.", "20", "22")
        await ann.press("c", "y")
        await ann.sees("20cy")
        await ann.press("backspace", "backspace", "enter", "enter", "enter")
        assert len(await hub.client.calls.list(server="every")) == made
        await ann.types("300")
        await ann.press("ctrl+s")
        await ann.sees("get-sum on every", "completed", "320")
        await ann.press("c")
        await ann.sees("Get Sum Tool · tool of every", "20", "300")
        await ann.press("escape")
        await ann.sees("get-sum on every")
    newest = (await hub.client.calls.list(server="every", limit=1))[0]
    assert newest.params["arguments"] == {"a": 20, "b": 300}
    assert len(await hub.client.calls.list(server="every")) == made + 1


async def test_a_call_that_is_no_task_leads_to_none(hub: RunningHub) -> None:
    await hub.client.call_tool("every", "echo", {"message": "plain"})
    async with at_terminal(hub, size=(150, 40), notices=True) as ann:
        await ann.press("3")
        await ann.sees("echo", "completed")
        await ann.press("g")
        await ann.sees("this call is no task")


async def test_arguments_that_no_field_can_show_are_sent_again_as_json(hub: RunningHub) -> None:
    given = {"message": "one\ntwo", "unknown": [1, None]}
    await hub.client.call("every", "tools/call", {"name": "echo", "arguments": given})
    async with at_terminal(hub, size=(100, 40)) as ann:
        await ann.press("3")
        await ann.sees("echo")
        await ann.press("c")
        await ann.sees("Echo Tool · tool of every", '"one\\ntwo"', '"unknown": [')
        await ann.press("ctrl+s")
        await ann.sees("echo on every", "completed")
    newest = (await hub.client.calls.list(server="every", limit=1))[0]
    assert newest.params["arguments"] == given


async def test_what_takes_no_arguments_is_used_again_only_when_that_is_said(hub: RunningHub) -> None:
    uri = "demo://resource/dynamic/text/3"
    await hub.client.call("every", "resources/read", {"uri": uri})
    made = len(await hub.client.calls.list(server="every"))
    async with at_terminal(hub, size=(100, 40)) as ann:
        await ann.press("3")
        await ann.sees(uri)
        await ann.press("c")
        await ann.sees("resource of every", "It takes no arguments.", "Read (ctrl+s)")
        await ann.press("c", "y", "space", "enter")
        await ann.no_longer_sees("It takes no arguments.")
        assert len(await hub.client.calls.list(server="every")) == made
        await ann.press("c")
        await ann.sees("It takes no arguments.")
        await ann.press("ctrl+s")
        await ann.sees(uri, "completed")
    assert len(await hub.client.calls.list(server="every")) == made + 1


async def test_the_catalog_shows_what_has_all_the_words_and_then_all_again(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(150, 40)) as ann:
        await ann.press("5")
        await ann.sees("order_lunch", "of 3 servers")
        await ann.press("slash")
        await ann.types("narrow HAIKU")
        await ann.sees("1 with narrow haiku", "write_haiku")
        shown = await ann.no_longer_sees("order_lunch")
        assert "every" not in shown
        await ann.types("no such thing")
        await ann.sees("0 with no such thing")
        await ann.press("escape")
        await ann.sees("order_lunch", "write_haiku", "every", "plain")


async def test_events_of_one_server_and_of_one_kind_are_picked_out(hub: RunningHub) -> None:
    walk = {"name": "long_walk", "arguments": {"steps": 2, "step_s": 0.01}}
    async with at_terminal(hub, size=(100, 40)) as ann:
        await ann.press("6")
        await ann.sees("No events yet")
        with fail_after(LIMIT_S):
            while not ann.app.boards.events:
                await hub.client.call("narrow", "tools/call", walk)
                await sleep(POLL_S)
        await ann.sees("step 2 of 2")
        await ann.press("s")
        await ann.sees("Events of which server?", "of all servers", "plain")
        await ann.press("down", "down", "down", "enter")
        await ann.sees("only plain")
        await ann.no_longer_sees("step 2 of 2")
        await ann.press("s", "up", "enter")
        await ann.sees("only narrow", "step 2 of 2")
        await ann.press("e")
        await ann.sees("Which events?", "resource_updated")
        await ann.press("down", "down", "enter")
        await ann.sees("only narrow log")
        await ann.no_longer_sees("step 2 of 2")
        await ann.press("e", "up", "enter")
        await ann.sees("only narrow progress", "step 2 of 2")
        await ann.press("s", "home", "enter", "e", "home", "enter")
        await ann.sees("s, e and / choose which", "step 2 of 2")


async def test_a_server_is_disconnected_once_that_is_confirmed_and_connected_again(hub: RunningHub) -> None:
    async with at_terminal(hub) as ann:
        await ann.press("2", "slash")
        await ann.types("plain")
        await ann.press("enter")
        await ann.sees("1 with plain", "connected")
        await ann.press("d")
        await ann.sees("Disconnect plain?")
        await ann.press("n")
        await ann.no_longer_sees("Disconnect plain?")
        assert (await hub.client.servers.get("plain")).desired_state == "connected"
        await ann.press("d", "ctrl+y")
        await ann.sees("2 of 3 connected", "disconnected")
        await ann.press("c")
        await ann.sees("3 of 3 connected")
    assert (await hub.client.servers.get("plain")).state == "connected"


async def test_what_waits_in_a_queue_is_cancelled_and_what_runs_goes_on(hub: RunningHub) -> None:
    running = await hub.client.start_tool("narrow", "long_walk", {"steps": 1000})
    await hub.call(running.id, "in_progress")
    waiting = [await hub.client.start_tool("narrow", "long_walk") for _ in range(3)]
    async with at_terminal(hub) as ann:
        await ann.press("2", "slash")
        await ann.types("narrow")
        await ann.press("enter")
        await ann.sees("1 with narrow", "3 queued")
        await ann.press("x")
        await ann.sees("Cancel all calls that wait in the queue of narrow?")
        await ann.press("ctrl+y")
        await ann.no_longer_sees("3 queued")
    for call in waiting:
        assert (await hub.call(call.id)).state == "cancelled"
    assert (await hub.client.calls.get(running.id)).state == "in_progress"
    await hub.client.calls.cancel(running.id, abort=True)


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A server that asks for OAuth."""
    server = Guarded()
    async with served(Starlette(routes=server.routes())) as server.origin:
        yield server


async def test_the_address_where_the_browser_ended_lets_the_hub_in(
    start_hub: Callable[..., Any], guarded: Guarded
) -> None:
    hub = await start_hub({"guarded": {"url": guarded.url, "retries": 0}})
    async with at_terminal(hub, size=(100, 40)) as ann:
        (asked,) = await hub.asked(server="guarded")
        back = (await visit(asked.request["url"], follow=False)).headers["location"]
        await ann.sees("1 open request", "The hub needs access to guarded")
        await ann.press("enter")
        await ann.sees("the address where it ended", "Copy the address", "Send (ctrl+s)")
        await ann.press("ctrl+s")
        await ann.sees("✗ open the address")
        await ann.types(back.replace("state=", "state=not"))
        await ann.press("ctrl+s")
        await ann.sees("is not where this authorization leads back to")
        await ann.types(back)
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
        await ann.press("2")
        await ann.sees("1 of 1 connected")
    settled = await hub.client.inbox.get(asked.id)
    assert (settled.answered_by, settled.state) == ("ann", "answered")
    assert "code" not in str(settled.answer)
