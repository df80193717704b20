"""A server that asks by `input_required` results, over stdio and streamable HTTP."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(request: pytest.FixtureRequest, start_shared_hub: Any, peer_scripts: Path, reached: Any) -> Any:
    """A hub with the asking server; its roots are asked for, too."""
    server = reached(request.param, sys.executable, str(peer_scripts / "mrtr_server.py"))
    hub = await start_shared_hub({"mrtr": server | {"roots": "ask"}}, connected=True)
    assert (await hub.client.servers.get("mrtr")).protocol_version == "2026-07-28"
    return hub


async def start(hub: Any, tool: str, **arguments: Any) -> Any:
    return await hub.client.start_tool("mrtr", tool, arguments)


async def said(hub: Any, call_id: str) -> str:
    call = await hub.call(call_id)
    assert call.state == "completed", call.error
    assert not call.result.get("isError"), call.result
    return call.result["content"][0]["text"]


async def test_two_rounds_are_asked_one_after_the_other(hub: Any) -> None:
    call = await start(hub, "two_rounds")
    (name,) = await hub.asked(call_id=call.id)
    assert (name.call_id, name.cause_source) == (call.id, "wire")
    await hub.answer(name, "--accept", '{"name": "Ada"}')
    (age,) = await hub.asked(call_id=call.id)
    assert "age" in age.request["requestedSchema"]["properties"]
    assert (await hub.call(call.id, "waiting_input")).pending_ids == (name.id, age.id)
    await hub.answer(age, "--accept", '{"age": 36}')
    heard = json.loads(await said(hub, call.id))
    assert heard["name"]["content"] == {"name": "Ada"}
    assert heard["age"]["content"] == {"age": 36}
    assert (await hub.request(age.id, delivery="delivered")).state == "answered"


async def test_three_questions_are_asked_at_once_and_answered_in_any_order(hub: Any) -> None:
    call = await start(hub, "three_questions")
    asked = {each.kind: each for each in await hub.asked(3, call_id=call.id)}
    assert set(asked) == {"elicitation_form", "sampling", "roots"}
    await hub.answer(asked["roots"], "--result", '{"roots": [{"uri": "file:///srv"}]}')
    await hub.answer(asked["sampling"], "--text", "Good day")
    assert (await hub.client.calls.get(call.id)).state == "waiting_input"
    await hub.answer(asked["elicitation_form"], "--accept", '{"name": "Ada"}')
    heard = json.loads(await said(hub, call.id))
    assert heard["state"] == "asked"
    assert heard["answers"]["form"] == {"action": "accept", "content": {"name": "Ada"}}
    assert heard["answers"]["sampling"]["content"]["text"] == "Good day"
    assert heard["answers"]["roots"]["roots"][0]["uri"] == "file:///srv"
