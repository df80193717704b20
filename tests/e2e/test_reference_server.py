"""The reference server of the protocol, over stdio and over streamable HTTP: all that it offers, asks and tells."""

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_client import ToolResult

from .conftest import LIMIT_S, RunningHub
from .told import Told

NOT_CALLED = {"toggle-simulated-logging", "toggle-subscriber-updates"}
"""Tools that only start what the server tells at random."""

PERSON = {"name": "Ada", "favoriteColor": "Blue", "agreeToTerms": True}
RESEARCH = "simulate-research-query"
RESOURCE = "demo://resource/dynamic/text/1"
PREREQUISITE = "https://modelcontextprotocol.io"
PAGE = "https://example.com/visit"


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, everything_command: list[str], reached: Any
) -> RunningHub:
    """A hub with the reference server."""
    env = {"GREETING": "h\u00e4llo"}
    server = reached(request.param, *everything_command, env=env, http="streamableHttp")
    return await start_shared_hub({"everything": server}, connected=True)


def said(result: ToolResult) -> str:
    assert not result.is_error, result
    return result.text


async def used(hub: RunningHub, tool: str, **arguments: Any) -> ToolResult:
    result = await hub.client.call_tool("everything", tool, arguments)
    assert not result.is_error, result
    return result


async def asked_by(hub: RunningHub, tool: str, as_task: bool = False, **arguments: Any) -> tuple[Any, Any]:
    """A call, and the first thing that it asks."""
    params = {"name": tool, "arguments": arguments}
    call = await hub.client.start("everything", "tools/call", params, as_task=as_task)
    (asked,) = await hub.asked(call_id=call.id)
    return call, asked


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "answer", "says"),
    [
        ("trigger-elicitation-request", {}, "elicitation_form", ["--accept", '{"name": "Ada"}'], ["Ada"]),
        (
            "trigger-elicitation-request-async",
            {},
            "elicitation_form",
            ["--accept", json.dumps(PERSON)],
            ["[COMPLETED]", "Name: Ada"],
        ),
        (
            "trigger-sampling-request",
            {"prompt": "Hi", "maxTokens": 10},
            "sampling",
            ["--text", "Good day"],
            ["Good day", "human"],
        ),
        (
            "trigger-sampling-request-async",
            {"prompt": "Hi"},
            "sampling",
            ["--text", "Good day"],
            ["[COMPLETED]", "Good day"],
        ),
        ("trigger-url-elicitation", {"url": PAGE}, "elicitation_url", ["--accept"], ["completed"]),
    ],
)
async def test_what_a_tool_asks_is_answered_and_reaches_it(
    hub: RunningHub, tool: str, arguments: dict[str, Any], kind: str, answer: list[str], says: list[str]
) -> None:
    call, asked = await asked_by(hub, tool, **arguments)
    assert (asked.kind, bool(asked.task_id)) == (kind, tool.endswith("-async"))
    if not asked.task_id:
        assert (await hub.call(call.id, "waiting_input")).pending_ids == (asked.id,)
    assert (await hub.answer(asked, *answer))["state"] == "answered"
    text = said(ToolResult((await hub.call(call.id)).result))
    assert [wanted for wanted in says if wanted not in text] == []
    assert "[SYNC]" not in text
    assert (await hub.request(asked.id, delivery="delivered")).task_id == asked.task_id


async def test_a_task_asks_in_its_course_and_goes_on_with_the_answer(hub: RunningHub) -> None:
    call, asked = await asked_by(hub, RESEARCH, as_task=True, topic="python", ambiguous=True)
    assert (asked.kind, asked.cause_source) == ("elicitation_form", "wire")
    tasks = hub.client.tasks.watch(role="client")
    (task,) = await hub.watched(tasks, lambda each: each.call_id == call.id and each.status == "input_required")
    assert (asked.task_id, task.role, task.method) == (task.id, "client", "tools/call")
    assert task.pending_ids == (asked.id,)
    waiting = await hub.call(call.id, "waiting_input")
    assert (waiting.task_id, waiting.pending_ids) == (task.id, (asked.id,))
    await hub.answer(asked, "--accept", '{"interpretation": "snake"}')
    result = (await hub.call(call.id)).result
    assert "python (snake)" in result["content"][0]["text"]
    assert (await hub.hubbub("tasks", "get", task.id)).record["status"] == "completed"
    assert (await hub.hubbub("tasks", "result", task.id)).record == result
    assert (await hub.request(asked.id, delivery="delivered")).state == "answered"


async def test_the_command_line_waits_for_a_task(hub: RunningHub) -> None:
    ran = await hub.hubbub("call", "everything", RESEARCH, '{"topic": "tea"}', "--as-task")
    assert "Research Report: tea" in ran.record["content"][0]["text"]


async def test_a_page_that_must_be_visited_first_is_asked_about_and_the_call_goes_on(hub: RunningHub) -> None:
    call, first = await asked_by(hub, "trigger-url-elicitation", url=PAGE, errorPath=True, elicitationId="agreed")
    assert (first.kind, first.cause_source, first.request["url"]) == ("elicitation_url", "wire", PREREQUISITE)
    assert (await hub.call(call.id, "waiting_input")).pending_ids == (first.id,)
    await hub.answer(first, "--accept")
    (second,) = await hub.asked(call_id=call.id)
    assert second.request["url"] == PAGE
    await hub.answer(second, "--accept")
    ended = await hub.call(call.id)
    assert "completed the URL elicitation" in ended.result["content"][0]["text"]
    assert {(await hub.request(asked.id, delivery="delivered")).state for asked in (first, second)} == {"answered"}


@pytest.mark.parametrize("no", ["--decline", "--cancel"])
async def test_a_page_that_nobody_wants_to_visit_ends_the_call_with_the_error_of_the_server(
    hub: RunningHub, no: str
) -> None:
    call, asked = await asked_by(hub, "trigger-url-elicitation", url=PAGE, errorPath=True, elicitationId=no)
    await hub.answer(asked, no)
    ended = await hub.call(call.id)
    assert (ended.state, ended.error.code) == ("failed", "SERVER_ERROR")
    assert ended.error.details["jsonrpc_code"] == -32042
    assert ended.error.details["jsonrpc_data"]["elicitations"][0]["url"] == PREREQUISITE


async def test_all_that_it_offers_is_listed(hub: RunningHub) -> None:
    # It adds tools once the hub has said what it can do, and tells of that.
    names = {tool["name"] for tool in (await hub.client.call("everything", "tools/list"))["tools"]}
    assert "trigger-elicitation-request" in names
    counts = {"tool": len(names), "resource": None, "template": 2, "prompt": None}
    for kind, count in counts.items():
        watch = hub.client.catalog.watch(server="everything", kinds=[kind])
        await hub.watched(watch, lambda each, n=count: each.freshness == "fresh" and n in (None, each.count))
    tools = await hub.hubbub("catalog", "tools", "--server", "everything")
    assert (tools.status, tools.err) == (0, "")
    assert {row["server"] for row in tools.lines} == {"everything"}
    listed = {row["tool"]["name"]: row["tool"] for row in tools.lines}
    assert (set(listed), listed["get-sum"]["inputSchema"]["required"]) == (names, ["a", "b"])
    templates = (await hub.hubbub("catalog", "templates")).lines
    assert [row["template"]["uriTemplate"].split("{")[0] for row in templates] == [
        "demo://resource/dynamic/text/",
        "demo://resource/dynamic/blob/",
    ]
    resources = (await hub.hubbub("catalog", "resources")).lines
    assert all(row["resource"]["uri"].startswith("demo://") for row in resources)
    prompts = (await hub.hubbub("catalog", "prompts")).lines
    assert "simple-prompt" in [row["prompt"]["name"] for row in prompts]


async def test_each_of_its_tools_is_called_here(hub: RunningHub) -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    names = {tool["name"] for tool in (await hub.client.call("everything", "tools/list"))["tools"]}
    assert {name for name in names if f'"{name}"' not in here} == set()
    assert names > NOT_CALLED


async def test_its_plain_tools_answer(hub: RunningHub) -> None:
    assert (await used(hub, "echo", message="h\u00e4llo")).text == "Echo: h\u00e4llo"
    assert "5" in (await used(hub, "get-sum", a=2, b=3)).text
    assert "no roots" in (await used(hub, "get-roots-list")).text
    assert json.loads((await used(hub, "get-env")).text)["GREETING"] == "h\u00e4llo"
    structured = await used(hub, "get-structured-content", location="Chicago")
    assert structured.structured["conditions"]


async def test_an_annotated_message_keeps_its_annotations(hub: RunningHub) -> None:
    text, image = (await used(hub, "get-annotated-message", messageType="error", includeImage=True)).content
    assert text["annotations"] == {"priority": 1, "audience": ["user", "assistant"]}
    assert (image["type"], image["annotations"]) == ("image", {"priority": 0.5, "audience": ["user"]})
    assert b64decode(image["data"]).startswith(b"\x89PNG")


async def test_resource_links_lead_to_resources(hub: RunningHub) -> None:
    _, *links = (await used(hub, "get-resource-links", count=2)).content
    assert {link["type"] for link in links} == {"resource_link"}
    for link in links:
        (content,) = (await hub.client.read_resource("everything", link["uri"]))["contents"]
        assert (content["uri"], content["mimeType"]) == (link["uri"], link["mimeType"])


@pytest.mark.parametrize(("kind", "field"), [("Text", "text"), ("Blob", "blob")])
async def test_a_resource_comes_inside_of_a_result(hub: RunningHub, kind: str, field: str) -> None:
    _, embedded, _ = (await used(hub, "get-resource-reference", resourceType=kind, resourceId=3)).content
    assert embedded["type"] == "resource"
    assert embedded["resource"][field]


async def test_a_file_comes_back_compressed_and_as_a_resource_of_the_session(hub: RunningHub) -> None:
    arguments = {"name": "hello.gz", "data": "data:text/plain;base64,aGVsbG8="}
    (embedded,) = (await used(hub, "gzip-file-as-resource", outputType="resource", **arguments)).content
    assert gzip.decompress(b64decode(embedded["resource"]["blob"])) == b"hello"
    (link,) = (await used(hub, "gzip-file-as-resource", **{**arguments, "name": "again.gz"})).content
    (content,) = (await hub.client.read_resource("everything", link["uri"]))["contents"]
    assert gzip.decompress(b64decode(content["blob"])) == b"hello"


async def test_binary_and_embedded_content_passes_through_unharmed(hub: RunningHub) -> None:
    blob = await hub.client.read_resource("everything", "demo://resource/dynamic/blob/1")
    assert b64decode(blob["contents"][0]["blob"], validate=True)
    (picture,) = [part for part in (await used(hub, "get-tiny-image")).content if part["type"] == "image"]
    assert b64decode(picture["data"], validate=True).startswith(b"\x89PNG")
    arguments = {"resourceType": "Text", "resourceId": "1"}
    embedded = await hub.client.get_prompt("everything", "resource-prompt", arguments)
    assert [m["content"]["resource"]["uri"] for m in embedded["messages"] if m["content"]["type"] == "resource"]


async def test_progress_of_a_call_is_an_event_that_names_the_call(hub: RunningHub) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, kinds=["progress"])
        await told.listening.wait()
        arguments = {"duration": 1, "steps": 3}
        started = await hub.client.start_tool("everything", "trigger-long-running-operation", arguments)
        await told.until(lambda event: event.params["progress"] == 3)
        tasks.cancel_scope.cancel()
    assert [event.params["progress"] for event in told.events] == [1, 2, 3]
    assert {event.call_id for event in told.events} == {started.id}
    assert {event.method for event in told.events} == {"notifications/progress"}


async def test_a_resource_that_is_watched_twice_is_subscribed_once_and_again_after_a_reconnect(hub: RunningHub) -> None:
    async def subscriptions() -> int:
        calls = await hub.client.calls.list(server="everything")
        return sum(c.method == "resources/subscribe" and c.params == {"uri": f"{RESOURCE}0"} for c in calls)

    one, other = (hub.client.subscribe("everything", f"{RESOURCE}0") for _ in range(2))
    with anyio.fail_after(LIMIT_S):
        before, _ = await anext(one), await anext(other)
        assert await subscriptions() == 1
        await hub.client.servers.disconnect("everything")
        await hub.client.servers.connect("everything")
        await hub.connected("everything")
        after = await anext(one)
    assert after.at > before.at
    assert await subscriptions() == 2
    await one.aclose()
    await other.aclose()
