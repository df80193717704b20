"""All tools of the reference server, over stdio and streamable HTTP: those that the other tests leave out, and a check
that none is left out."""

import gzip
import json
from base64 import b64decode
from typing import Any

import pytest

ELSEWHERE = {
    "echo",
    "get-roots-list",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-elicitation-request",
    "trigger-elicitation-request-async",
    "trigger-long-running-operation",
    "trigger-sampling-request",
    "trigger-sampling-request-async",
}
"""What the tests of its questions, tasks and events call."""

HERE = {
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "gzip-file-as-resource",
    "trigger-url-elicitation",
}
PREREQUISITE = "https://modelcontextprotocol.io"
PAGE = "https://example.com/visit"


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, everything_command: list[str], shared_http_peer: Any
) -> Any:
    """A hub with the reference server."""
    env = {"GREETING": "h\u00e4llo"}
    if request.param == "stdio":
        server: dict[str, Any] = {
            "command": everything_command[0],
            "args": [*everything_command[1:], "stdio"],
            "env": env,
        }
    else:
        server = {"url": f"{shared_http_peer([*everything_command, 'streamableHttp'], env=env).url}/mcp"}
    hub = await start_shared_hub({"everything": server})
    await hub.connected("everything")
    return hub


async def result_of(hub: Any, tool: str, **arguments: Any) -> Any:
    result = await hub.client.call_tool("everything", tool, arguments)
    assert not result.is_error, result
    return result.content


async def visit(hub: Any, **arguments: Any) -> Any:
    """A call that needs a page to be visited before, and the question about it."""
    params = {"name": "trigger-url-elicitation", "arguments": {"url": PAGE, "errorPath": True, **arguments}}
    call = await hub.client.start("everything", "tools/call", params)
    (asked,) = await hub.asked(call_id=call.id)
    return call, asked


async def test_no_tool_is_left_out(hub: Any) -> None:
    tools = (await hub.client.call("everything", "tools/list"))["tools"]
    assert {tool["name"] for tool in tools} == ELSEWHERE | HERE


async def test_an_annotated_message_keeps_its_annotations(hub: Any) -> None:
    text, image = await result_of(hub, "get-annotated-message", messageType="error", includeImage=True)
    assert text["annotations"] == {"priority": 1, "audience": ["user", "assistant"]}
    assert (image["type"], image["annotations"]) == ("image", {"priority": 0.5, "audience": ["user"]})
    assert b64decode(image["data"]).startswith(b"\x89PNG")


async def test_the_environment_is_the_one_that_was_given(hub: Any) -> None:
    (shown,) = await result_of(hub, "get-env")
    assert json.loads(shown["text"])["GREETING"] == "h\u00e4llo"


async def test_resource_links_lead_to_resources(hub: Any) -> None:
    _, *links = await result_of(hub, "get-resource-links", count=2)
    assert {link["type"] for link in links} == {"resource_link"}
    for link in links:
        (content,) = (await hub.client.call("everything", "resources/read", {"uri": link["uri"]}))["contents"]
        assert (content["uri"], content["mimeType"]) == (link["uri"], link["mimeType"])


@pytest.mark.parametrize(("kind", "field"), [("Text", "text"), ("Blob", "blob")])
async def test_a_resource_comes_inside_of_a_result(hub: Any, kind: str, field: str) -> None:
    _, embedded, _ = await result_of(hub, "get-resource-reference", resourceType=kind, resourceId=3)
    assert embedded["type"] == "resource"
    assert embedded["resource"][field]


async def test_a_file_comes_back_compressed_and_as_a_resource_of_the_session(hub: Any) -> None:
    arguments = {"name": "hello.gz", "data": "data:text/plain;base64,aGVsbG8="}
    (embedded,) = await result_of(hub, "gzip-file-as-resource", outputType="resource", **arguments)
    assert gzip.decompress(b64decode(embedded["resource"]["blob"])) == b"hello"
    (link,) = await result_of(hub, "gzip-file-as-resource", **{**arguments, "name": "again.gz"})
    (content,) = (await hub.client.call("everything", "resources/read", {"uri": link["uri"]}))["contents"]
    assert gzip.decompress(b64decode(content["blob"])) == b"hello"


async def test_a_page_that_must_be_visited_first_is_asked_about_and_the_call_goes_on(hub: Any) -> None:
    call, first = await visit(hub, elicitationId="agreed")
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
async def test_a_page_that_nobody_wants_to_visit_ends_the_call_with_the_error_of_the_server(hub: Any, no: str) -> None:
    call, asked = await visit(hub, elicitationId=no)
    await hub.answer(asked, no)
    ended = await hub.call(call.id)
    assert (ended.state, ended.error.code) == ("failed", "SERVER_ERROR")
    assert ended.error.details["jsonrpc_code"] == -32042
    assert ended.error.details["jsonrpc_data"]["elicitations"][0]["url"] == PREREQUISITE
