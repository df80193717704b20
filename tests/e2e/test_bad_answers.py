"""Whatever a server answers, the caller reads what was wrong with it, and nothing else comes of it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import hubbub_client

from .conftest import RunningHub
from .crowd import bad, rss_kb

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
INVALID = ("INVALID_RESPONSE", "protocol")
PASSED_ON = ("SERVER_ERROR", "server")
MALFORMED = {
    "wrong_flag": INVALID,
    "number": INVALID,
    "list": INVALID,
    "null": INVALID,
    "nothing": INVALID,
    "both": PASSED_ON,
    "other_version": INVALID,
    "error_text": PASSED_ON,
    "error_code": PASSED_ON,
    "method_not_found": PASSED_ON,
    "refused_revision": PASSED_ON,
}
WRONG: dict[str, dict[str, tuple[str, str]]] = {
    HANDSHAKE: {**MALFORMED, "unasked_task": INVALID},
    STATELESS: {
        **MALFORMED,
        "surprise": INVALID,
        "type_7": INVALID,
        "no_questions": INVALID,
        "wrong_questions": INVALID,
        "strange_question": INVALID,
        "wrong_state": INVALID,
        "endless": ("TOO_MANY_ROUNDS", "protocol"),
        "crowd": ("TOO_MANY_OPEN_REQUESTS", "server"),
    },
}
WRONG_TASKS = {
    "task_without_name": INVALID,
    "task_of_no_status": INVALID,
    "task_that_is_none": INVALID,
    "task_unknown": ("TASK_LOST", "server"),
}
TAKEN: dict[str, list[dict[str, Any]]] = {
    "wrong_content": [{"type": "text", "text": "no list"}],
    "wrong_block": [{"type": "text", "text": '{"type":"text","text":7}'}],
    "strange_block": [{"type": "smell", "scent": "roses"}],
    "no_content": [],
}
"""The content of answers that are wrong and do no harm."""

GROWTH_KB = 32 * 1024
"""More than the wrong answers may add to the hub's memory."""


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> RunningHub:
    """A hub with a server of each family whose answers are wrong, and one whose answers are right."""
    script = str(peer_scripts / "bad_answers.py")
    wrong = {revision: {"command": sys.executable, "args": ["-I", "-S", script, revision]} for revision in WRONG}
    hub = await start_shared_hub({**wrong, "good": bad("good")})
    await hub.connected(*WRONG, "good")
    return hub


async def refused(hub: RunningHub, server: str, tool: str, **how: Any) -> tuple[str, str]:
    """The reason and the category of the failure of a call."""
    with pytest.raises(hubbub_client.HubbubError) as caught:
        await hub.client.call_tool(server, tool, **how)
    assert caught.value.message
    call = (await hub.client.calls.list(server=server))[0]
    assert call.state == "failed"
    return caught.value.reason, call.error.category


async def is_well(hub: RunningHub) -> None:
    """Every server is connected and answers, and nobody is asked anything."""
    assert {server.state for server in await hub.client.servers.list()} == {"connected"}
    for name in (*WRONG, "good"):
        assert (await hub.client.call_tool(name, "echo", {"text": "x"})).content
    assert await hub.client.inbox.list(states=["open"]) == []


@pytest.mark.parametrize(("server", "tool"), [(server, tool) for server, tools in WRONG.items() for tool in tools])
async def test_an_answer_that_is_wrong_fails_its_call_alone_with_what_is_wrong(
    hub: RunningHub, server: str, tool: str
) -> None:
    assert await refused(hub, server, tool) == WRONG[server][tool]
    await is_well(hub)


@pytest.mark.parametrize("tool", TAKEN)
@pytest.mark.parametrize("server", [HANDSHAKE, STATELESS])
async def test_an_answer_that_does_no_harm_is_taken_and_noted(hub: RunningHub, server: str, tool: str) -> None:
    result = await hub.client.call_tool(server, tool)
    assert list(result.content) == TAKEN[tool]
    kind = "content of an unknown type" if tool == "strange_block" else "a result is not as MCP says"
    await hub.watched(hub.client.servers.watch([server]), lambda record: any(kind in note for note in record.notes))
    await is_well(hub)


async def test_structured_content_that_is_no_object_becomes_text_if_there_is_no_other(hub: RunningHub) -> None:
    assert (await hub.client.call_tool(HANDSHAKE, "wrong_structure")).text == "[7]"


@pytest.mark.parametrize("tool", WRONG_TASKS)
async def test_a_task_that_is_none_fails_its_call_alone(hub: RunningHub, tool: str) -> None:
    assert await refused(hub, HANDSHAKE, tool, as_task=True) == WRONG_TASKS[tool]
    await is_well(hub)


async def test_a_server_that_says_it_has_tasks_may_answer_without_one(hub: RunningHub) -> None:
    assert (await hub.client.call_tool(HANDSHAKE, "echo", as_task=True)).text == "well"


async def test_a_stateless_server_has_nothing_to_ask_on_the_wire(hub: RunningHub) -> None:
    result = await hub.client.call_tool(STATELESS, "asks_back")
    response = json.loads(result.text)
    assert response["error"]["code"] == -32601
    await is_well(hub)


async def test_rounds_without_end_and_wrong_answers_cost_bounded_memory(hub: RunningHub) -> None:
    async def each() -> None:
        for tool in ("endless", "crowd", "wrong_flag"):
            await refused(hub, STATELESS, tool)

    for _ in range(2):
        await each()
    before = rss_kb(hub.process.pid)
    for _ in range(5):
        await each()
    assert rss_kb(hub.process.pid) - before < GROWTH_KB
