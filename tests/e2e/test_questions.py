"""Questions that cross each other, or their own end, on the wire of a 2025-11-25 server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hubbub_client import FailedPrecondition

from .conftest import RunningHub


@pytest.fixture
async def hub(start_hub: Any, peer_scripts: Path) -> RunningHub:
    """A hub with a server that asks; it has one slot."""
    server = {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "questions_server.py")]}
    return await start_hub({"asking": {**server, "max_in_flight": 1}}, connected=True)


async def start(hub: RunningHub, tool: str) -> str:
    return (await hub.client.start_tool("asking", tool)).id


async def reported(hub: RunningHub, call_id: str) -> Any:
    call = await hub.call(call_id)
    assert call.state == "completed", call.error
    return json.loads(call.result["content"][0]["text"])


async def by_message(hub: RunningHub, count: int) -> dict[str, Any]:
    return {request.request["message"]: request for request in await hub.asked(count)}


async def test_two_questions_at_once_each_get_their_own_answer_in_any_order(hub: RunningHub) -> None:
    call_id = await start(hub, "two")
    asked = await by_message(hub, 2)
    assert {(request.call_id, request.kind) for request in asked.values()} == {(call_id, "elicitation_form")}
    await asked["question b"].accept({"name": "Bea"})
    assert (await hub.client.calls.get(call_id)).state == "waiting_input"
    await asked["question a"].decline()
    answers = await reported(hub, call_id)
    assert answers["a"]["result"] == {"action": "decline"}
    assert answers["b"]["result"] == {"action": "accept", "content": {"name": "Bea"}}


async def test_two_questions_under_one_id_are_two_in_the_inbox(hub: RunningHub) -> None:
    call_id = await start(hub, "twins")
    first, second = await hub.asked(2)
    assert first.id != second.id
    await first.accept({"name": "Ada"})
    await second.accept({"name": "Bea"})
    names = [answer["result"]["content"]["name"] for answer in await reported(hub, call_id)]
    assert sorted(names) == ["Ada", "Bea"]


async def test_a_question_that_comes_twice_is_asked_and_answered_once(hub: RunningHub) -> None:
    call_id = await start(hub, "echoed")
    (asked,) = await hub.asked()
    await asked.accept({"name": "Ada"})
    (answer,) = await reported(hub, call_id)
    assert answer["result"]["content"] == {"name": "Ada"}
    assert (await hub.client.calls.get(call_id)).pending_ids == (asked.id,)


async def test_a_question_and_a_ping_during_a_blocked_result_are_answered_past_it(hub: RunningHub) -> None:
    call_id = await start(hub, "blocked")
    asked = await by_message(hub, 2)
    task = asked["question create"]
    assert task.task_id
    await asked["question plain"].accept({"name": "now"})
    await hub.request(asked["question plain"].id, delivery="delivered")
    assert (await hub.client.inbox.get(task.id)).state == "open"
    await task.accept({"name": "later"})
    pong, *answers = await reported(hub, call_id)
    assert (pong["id"], pong["result"]) == ("ping", {})
    given = [(answer["id"], answer["result"]["content"]["name"]) for answer in answers]
    assert given == [("plain", "now"), ("result", "later")]


async def test_a_question_that_was_taken_back_gets_no_response_however_late_the_answer(hub: RunningHub) -> None:
    call_id = await start(hub, "take_back")
    (asked,) = await hub.asked()
    await hub.client.call_tool("asking", "cancel")
    withdrawn = await hub.request(asked.id, state="withdrawn")
    assert (withdrawn.answer, withdrawn.reason) == (None, "the server withdrew it")
    with pytest.raises(FailedPrecondition) as late:
        await asked.accept({"name": "late"})
    assert late.value.reason == "REQUEST_WITHDRAWN"
    assert await reported(hub, call_id) == "taken back"
    assert await reported(hub, await start(hub, "report")) == ["seen"]


async def test_taking_back_the_request_that_made_a_task_leaves_the_task(hub: RunningHub) -> None:
    task = await reported(hub, await start(hub, "keep"))
    assert task["status"] == "working"
    (asked,) = await hub.asked()
    assert (asked.task_id, asked.state) == (task["taskId"], "open")
