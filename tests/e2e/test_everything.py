"""The reference server of the protocol, over stdio and over streamable HTTP, answered through the command line."""

import json
from typing import Any

import pytest

from hubbub_client import ToolResult

MODES = ["stdio", "http"]


@pytest.fixture(scope="module", params=MODES)
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, everything_command: list[str], shared_http_peer: Any
) -> Any:
    """A hub with the reference server."""
    if request.param == "stdio":
        server: dict[str, Any] = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    else:
        server = {"url": f"{shared_http_peer([*everything_command, 'streamableHttp']).url}/mcp"}
    hub = await start_shared_hub({"everything": server})
    await hub.connected("everything")
    return hub


def text_of(result: ToolResult) -> str:
    assert not result.is_error, result
    return result.text


async def call(hub: Any, tool: str, arguments: dict[str, Any] | None = None) -> Any:
    return await hub.client.start_tool("everything", tool, arguments or {})


PERSON = {"name": "Ada", "favoriteColor": "Blue", "agreeToTerms": True}


@pytest.mark.parametrize("tool", ["trigger-elicitation-request-async", "trigger-sampling-request-async"])
async def test_a_question_asked_as_a_task_ends_completed(hub: Any, tool: str) -> None:
    started = await call(hub, tool, {"prompt": "Hi"} if "sampling" in tool else {})
    (asked,) = await hub.asked(call_id=started.id)
    assert asked.task_id
    assert asked.call_id == started.id
    answer = ["--text", "Good day"] if asked.kind == "sampling" else ["--accept", json.dumps(PERSON)]
    assert (await hub.answer(asked, *answer))["state"] == "answered"
    said = text_of(await started.result())
    assert "[COMPLETED]" in said
    assert "[SYNC]" not in said
    assert ("Good day" if asked.kind == "sampling" else "Name: Ada") in said
    assert (await hub.request(asked.id, delivery="delivered")).task_id == asked.task_id


async def test_a_form_is_answered(hub: Any) -> None:
    started = await call(hub, "trigger-elicitation-request")
    (asked,) = await hub.asked(call_id=started.id)
    assert asked.kind == "elicitation_form"
    assert asked.task_id is None
    assert (await hub.call(started.id, "waiting_input")).pending_ids == (asked.id,)
    await hub.answer(asked, "--accept", '{"name": "Ada"}')
    said = text_of(await started.result())
    assert "Ada" in said
    assert (await hub.request(asked.id, delivery="delivered")).state == "answered"


async def test_a_sampling_is_answered(hub: Any) -> None:
    started = await call(hub, "trigger-sampling-request", {"prompt": "Hi", "maxTokens": 10})
    (asked,) = await hub.asked(call_id=started.id)
    assert asked.kind == "sampling"
    await hub.answer(asked, "--text", "Good day")
    said = text_of(await started.result())
    assert "Good day" in said
    assert "human" in said


async def test_a_page_to_visit_is_agreed_to(hub: Any) -> None:
    started = await call(hub, "trigger-url-elicitation", {"url": "https://example.com/visit"})
    (asked,) = await hub.asked(call_id=started.id)
    assert asked.kind == "elicitation_url"
    assert asked.request["url"] == "https://example.com/visit"
    await hub.answer(asked, "--accept")
    assert "completed" in text_of(await started.result())


async def test_its_other_tools_and_requests_answer(hub: Any) -> None:
    async def tool(name: str, **arguments: Any) -> str:
        return text_of(await hub.client.call_tool("everything", name, arguments))

    assert await tool("echo", message="hällo") == "Echo: hällo"
    assert "5" in await tool("get-sum", a=2, b=3)
    assert "no roots" in await tool("get-roots-list")
    image = await hub.client.call_tool("everything", "get-tiny-image")
    assert "image" in [part["type"] for part in image.content]
    structured = await hub.client.call_tool("everything", "get-structured-content", {"location": "Chicago"})
    assert structured.structured["conditions"]
    assert (await hub.client.call("everything", "prompts/list"))["prompts"]
    assert (await hub.client.call("everything", "resources/list"))["resources"]


async def test_progress_of_a_long_call_is_shown_by_the_command_line(hub: Any) -> None:
    ran = await hub.hubbub("call", "everything", "trigger-long-running-operation", '{"duration": 0.4, "steps": 4}')
    assert "completed" in text_of(ToolResult(ran.record))
    shown = [line for line in ran.err.splitlines() if line.startswith("progress")]
    assert len(shown) >= 2
    assert "4/4" in shown[-1]
