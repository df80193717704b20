"""What servers send otherwise than MCP says: taken where it does no harm, else it costs what has it, and no more."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.errors import UpstreamError
from hubbubd.upstream.protocol.results import ResultNotes

from ..raising import raising
from .conftest import Connect, Endpoint, Recorder, Scripted, event, says
from .test_era import modern

OBJECT = {"type": "object"}
SCRIPTED = {"capabilities": {}, "protocolVersion": "2025-11-25", "serverInfo": {"name": "odd", "version": "1"}}


def answering(result: Any) -> Endpoint:
    """Always this result."""

    async def respond(request: Request) -> Response:
        message = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    return respond


def tool(**members: Any) -> dict[str, Any]:
    return {"name": "odd", "inputSchema": OBJECT, **members}


SKILL: dict[str, Any] = {
    "uri": "skill://n/SKILL.md",
    "frontmatter": {"name": "n", "description": "about"},
    "resources": [{"uri": "skill://n/SKILL.md", "digest": "sha256:0", "size": 1}],
}
TAKEN_SKILLS: tuple[dict[str, Any], ...] = (
    {**SKILL, "resources": "dynamic", "unknown": 7},
    {**SKILL, "uri": "skill://of/another/name/SKILL.md", "frontmatter": {}},
    {**SKILL, "resources": [{"uri": "skill://../x", "digest": "md5", "size": -1}]},
)
TAKEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "no schema": ({"name": "odd"}, tool()),
    "an empty schema": (tool(inputSchema={}), tool()),
    "a schema of text": (tool(inputSchema="{}"), tool()),
    "a schema that is an empty list": (tool(inputSchema=[]), tool()),
    "only a dialect": (tool(inputSchema={"$schema": "x"}), tool(inputSchema={"$schema": "x", **OBJECT})),
    "a choice on top": (tool(inputSchema={"anyOf": [OBJECT]}), tool(inputSchema={"anyOf": [OBJECT], **OBJECT})),
    "an object or nothing": (tool(inputSchema={"type": ["object", "null"]}), tool()),
    "no properties, as a list": (
        tool(inputSchema={**OBJECT, "properties": []}),
        tool(inputSchema={**OBJECT, "properties": {}}),
    ),
    "a property that is no schema": (
        tool(inputSchema={**OBJECT, "properties": {"a": "string"}, "required": "a"}),
        tool(inputSchema={**OBJECT, "properties": {"a": {}}}),
    ),
    "icons of text": (tool(icons=["x.png", {"src": "y.png"}]), tool(icons=[{"src": "y.png"}])),
    "an unknown support of tasks": (tool(execution={"taskSupport": "sometimes"}), tool(execution={})),
    "structured content of another type": (tool(outputSchema={"type": "array"}), tool()),
    "annotations and meta as lists": (tool(annotations=[], _meta=[]), tool(annotations={}, _meta={})),
    "a title that is none": (tool(title=7, description=["x"]), tool()),
}
LEFT_OUT: dict[str, tuple[Any, str]] = {
    "nothing": (None, "no. 2"),
    "text": ("odd", "no. 2"),
    "no name": ({"inputSchema": OBJECT}, "no. 2"),
    "arguments that are no object": (tool(inputSchema={"type": "string"}), "odd"),
}


async def tools_beside(odd: Any, scripted: Scripted, connect: Connect) -> list[Any]:
    """What is listed where this stands between two tools that are in order."""
    listed = [tool(name="do"), odd, tool(name="do2")]
    scripted.replaced["tools/list"] = answering({"tools": listed})
    async with connect(url=scripted.url) as link:
        return (await link.request("tools/list", None))["tools"]


@pytest.mark.parametrize("kind", TAKEN)
async def test_a_tool_that_is_odd_is_taken_where_it_does_no_harm(
    kind: str, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    odd, taken = TAKEN[kind]
    assert await tools_beside(odd, scripted, connect) == [tool(name="do"), taken, tool(name="do2")]
    assert ("empty_list" in recorder.notes) or "odd" in recorder.notes["entry_mended/tools/list"]


@pytest.mark.parametrize("kind", LEFT_OUT)
async def test_a_tool_that_cannot_be_used_is_left_out_by_name_and_the_others_stay(
    kind: str, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    odd, name = LEFT_OUT[kind]
    assert await tools_beside(odd, scripted, connect) == [tool(name="do"), tool(name="do2")]
    assert f"(tools/list: {name})" in recorder.notes["entry_left_out/tools/list"]


@pytest.mark.parametrize(
    ("method", "member", "good", "odd", "taken"),
    [
        ("resources/list", "resources", {"uri": "a:b", "name": "n"}, {"uri": "x:y"}, {"uri": "x:y", "name": "x:y"}),
        ("resources/list", "resources", {"uri": "a:b", "name": "n"}, {"name": "without uri"}, None),
        (
            "resources/templates/list",
            "resourceTemplates",
            {"uriTemplate": "a:{b}", "name": "n"},
            {"uriTemplate": "x:{y}", "name": "n", "annotations": {"priority": "high"}},
            {"uriTemplate": "x:{y}", "name": "n", "annotations": {}},
        ),
        (
            "prompts/list",
            "prompts",
            {"name": "n"},
            {"name": "odd", "arguments": [{"name": "a"}, {"description": "nameless"}]},
            {"name": "odd", "arguments": [{"name": "a"}]},
        ),
        ("prompts/list", "prompts", {"name": "n"}, ["n"], None),
        ("skills/list", "skills", SKILL, {**SKILL, "uri": None}, None),
        ("skills/list", "skills", SKILL, {**SKILL, "frontmatter": "name: n"}, None),
        ("skills/list", "skills", SKILL, {**SKILL, "resources": None}, None),
        ("skills/list", "skills", SKILL, {**SKILL, "resources": [*SKILL["resources"], {"digest": "sha256:0"}]}, None),
        ("skills/list", "skills", SKILL, "n", None),
        *(("skills/list", "skills", SKILL, odd, odd) for odd in TAKEN_SKILLS),
    ],
)
async def test_entries_of_the_other_lists_are_judged_alone_as_well(
    method: str, member: str, good: Any, odd: Any, taken: Any, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced[method] = answering({member: [good, odd, good]})
    async with connect(url=scripted.url) as link:
        found = await link.request(method, None)
    assert found[member] == ([good, good] if taken is None else [good, taken, good])


async def test_a_note_on_a_list_is_of_all_its_pages_and_goes_when_the_list_is_in_order(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    first, second = {"tools": [None], "nextCursor": "2"}, {"tools": [{"title": "b"}]}
    async with connect(url=scripted.url) as link:
        for page, cursor in ((first, None), (second, "2")):
            scripted.replaced["tools/list"] = answering(page)
            await link.request("tools/list", {"cursor": cursor} if cursor else None)
        assert "no. 1 and 1 more" in recorder.notes["entry_left_out/tools/list"]
        scripted.replaced["tools/list"] = answering({"tools": []})
        await link.request("tools/list", None)
    assert recorder.notes == {}


@pytest.mark.parametrize("entries", [None, {}])
async def test_no_entries_may_be_written_as_nothing_or_an_empty_object(
    entries: Any, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced["tools/list"] = answering({"tools": entries})
    async with connect(url=scripted.url) as link:
        assert await link.request("tools/list", None) == {"tools": []}


async def test_a_cursor_that_is_no_text_is_the_end_of_a_list(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["tools/list"] = answering({"tools": [tool()], "nextCursor": []})
    async with connect(url=scripted.url) as link:
        assert await link.request("tools/list", None) == {"tools": [tool()]}
    assert recorder.notes


async def test_a_stateless_list_without_a_cache_time_is_not_cached(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    modern(scripted)
    scripted.replaced["prompts/list"] = answering({"prompts": [{"name": "p"}]})
    async with connect(url=scripted.url) as link:
        found = await link.request("prompts/list", None)
    assert (found["prompts"], found["ttlMs"], found["cacheScope"]) == ([{"name": "p"}], 0, "private")
    assert recorder.notes


TEXT = {"type": "text", "text": "x"}
RESULTS: list[tuple[Any, dict[str, Any]]] = [
    ({"structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
    ({"content": None, "structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
    ({"content": [{"type": "error", "error": "no"}, TEXT]}, {"content": [{"type": "error", "error": "no"}, TEXT]}),
    ({"content": {}}, {"content": []}),
    ({"content": TEXT}, {"content": [TEXT]}),
    ({"content": "x"}, {"content": [TEXT]}),
    ({"content": ["x"]}, {"content": [TEXT]}),
    ({"content": [{**TEXT, "annotations": [], "_meta": []}]}, {"content": [{**TEXT, "annotations": {}, "_meta": {}}]}),
    ({"content": [{**TEXT, "annotations": {"priority": 7}}]}, {"content": [{**TEXT, "annotations": {}}]}),
    (
        {"content": [{"type": "image", "data": "eA=="}]},
        {"content": [{"type": "text", "text": '{"type":"image","data":"eA=="}'}]},
    ),
    ({"content": [TEXT], "structuredContent": [7]}, {"content": [TEXT]}),
    ({"content": [TEXT], "_meta": "x"}, {"content": [TEXT]}),
]


@pytest.mark.parametrize(("sent", "taken"), RESULTS)
async def test_the_result_of_a_tool_that_has_run_is_not_lost_by_its_form(
    sent: Any, taken: dict[str, Any], scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["tools/call"] = answering(sent)
    async with connect(url=scripted.url) as link:
        assert await link.request("tools/call", {"name": "any"}) == taken
    assert recorder.notes


async def test_content_of_an_unknown_type_is_noted_by_its_type(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["tools/call"] = answering({"content": [{"type": "hologram", "at": [1, 2]}] * 3})
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "any"})
    assert "(tools/call: hologram and 2 more)" in recorder.notes["content_unknown"]


@pytest.mark.parametrize(
    ("method", "sent", "taken"),
    [
        (
            "prompts/get",
            {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": {"type": "smell"}}]},
            {"messages": [{"role": "user", "content": TEXT}, {"role": "user", "content": {"type": "smell"}}]},
        ),
        ("resources/read", {"contents": [{"text": "t"}]}, {"contents": [{"text": "t", "uri": "x:y"}]}),
        ("resources/read", {"contents": {"uri": "x:y", "text": "t"}}, {"contents": [{"uri": "x:y", "text": "t"}]}),
        ("completion/complete", {"completion": {"values": ["a"], "total": "x"}}, {"completion": {"values": ["a"]}}),
        ("prompts/get", {"messages": [{"role": "ghost", "content": TEXT}]}, None),
        ("resources/read", {"contents": [{"uri": "x:y"}]}, None),
        ("tools/call", {"content": [], "isError": "perhaps"}, None),
        ("tools/call", {"content": 7}, None),
    ],
)
async def test_what_would_mean_something_else_is_not_mended(
    method: str, sent: Any, taken: Any, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced[method] = answering(sent)
    async with connect(url=scripted.url) as link:
        if taken is not None:
            assert await link.request(method, {"uri": "x:y"}) == taken
            return
        with raising(UpstreamError, "INVALID_RESPONSE"):
            await link.request(method, {"uri": "x:y"})


@pytest.mark.parametrize(
    ("odd", "capabilities"),
    [
        ({"capabilities": []}, {}),
        ({"capabilities": {"tools": [], "logging": []}}, {"tools": {}, "logging": {}}),
        ({"capabilities": {"tools": {}, "experimental": []}}, {"tools": {}, "experimental": {}}),
        ({"capabilities": {"tools": {}, "experimental": {"x": True}}}, {"tools": {}, "experimental": {}}),
        ({"capabilities": {"tools": True, "prompts": {"listChanged": "often"}}}, {"tools": {}, "prompts": {}}),
        ({"serverInfo": {"name": "odd"}}, {}),
        ({"serverInfo": {"name": "odd", "version": 1.5}}, {}),
        ({"serverInfo": {"name": "odd", "version": "1", "icons": ["x.png"]}}, {}),
        ({"instructions": ["Be brief."]}, {}),
        ({"_meta": []}, {}),
    ],
)
async def test_a_server_that_introduces_itself_oddly_is_connected(
    odd: dict[str, Any], capabilities: dict[str, Any], scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["initialize"] = answering({**SCRIPTED, **odd})
    async with connect(url=scripted.url) as link:
        assert link.hello.capabilities == capabilities
        assert link.hello.server_info["name"] == "odd"
    assert recorder.notes


async def test_what_a_server_asks_with_an_empty_list_for_an_object_reaches_a_person(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    async def asks(request: Request) -> Response:
        message = await request.json()
        form: dict[str, Any] = {"message": "?", "requestedSchema": {**OBJECT, "properties": []}, "_meta": []}
        asked = event({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": form})
        told = event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": []})
        done = event({"jsonrpc": "2.0", "id": message["id"], "result": []})
        return Response(told + asked + done, media_type="text/event-stream")

    scripted.replaced["tools/call"] = asks
    async with connect(url=scripted.url) as link:
        assert await link.request("tools/call", {"name": "any"}) == {"content": []}
        await recorder.until(lambda: recorder.requests and recorder.notifications)
    assert recorder.requests[0].params["requestedSchema"]["properties"] == {}
    assert recorder.notifications[0][:2] == ("notifications/tools/list_changed", {})


@pytest.mark.parametrize("result", [None, [], True, "pong", 7, {"pong": True}])
async def test_any_result_of_a_ping_is_a_sign_of_life(result: Any, scripted: Scripted, connect: Connect) -> None:
    scripted.replaced["ping"] = answering(result)
    async with connect(url=scripted.url) as link:
        await link.probe()


@pytest.mark.parametrize(
    "answer",
    [says(202), says(500, "broken"), says(501), says(200, "<html>", "text/html"), says(405), says(200, "pong")],
)
async def test_any_answer_to_a_ping_over_http_is_a_sign_of_life(
    answer: Endpoint, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["ping"] = answer
    async with connect(url=scripted.url) as link:
        await link.probe()
        assert "any answer is a sign of life" in recorder.notes["ping_answered_oddly"]
        assert await link.request("tools/list", None) == {"tools": []}


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_that_answers_in_its_place_is_no_sign_of_life_of_a_server(
    status: int, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced["ping"] = says(status)
    async with connect(url=scripted.url) as link:
        with pytest.raises(UpstreamError):
            await link.probe()


async def test_a_server_can_be_probed_by_its_list_of_tools(scripted: Scripted, connect: Connect) -> None:
    async with connect(url=scripted.url) as link:
        await link.probe(by_list=True)
    assert ("POST", "tools/list") in scripted.seen
    assert ("POST", "ping") not in scripted.seen


async def test_a_question_of_a_server_whose_revision_has_none_reaches_a_person(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    async def asks(request: Request) -> Response:
        message = await request.json()
        form = {"message": "?", "requestedSchema": {**OBJECT, "properties": {"name": {"type": "string"}}}}
        asked = event({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": form})
        done = event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})
        return Response(asked + done, media_type="text/event-stream")

    scripted.replaced |= {"initialize": answering({**SCRIPTED, "protocolVersion": "2024-11-05"}), "tools/call": asks}
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "any"})
        await recorder.until(lambda: recorder.requests)
    assert "elicitation/create" in recorder.notes["asked_before_its_time"]


def test_what_was_found_is_remembered_for_the_lists_of_mcp_alone() -> None:
    noting = ResultNotes(lambda _kind, _text: None)
    begun, others = noting.findings_for("tools/list", None), noting.findings_for("any/list", None)
    assert noting.findings_for("tools/list", {"cursor": "2"}) is begun
    assert noting.findings_for("any/list", {"cursor": "2"}) is not others
