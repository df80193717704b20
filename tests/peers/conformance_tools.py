"""The tools of `conformance_server.py`; the public suite says what each must do."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
from conformance_offers import (
    IMAGE,
    KINDS,
    WAV,
    Context,
    Tools,
    answers,
    can,
    embedded,
    form,
    modern,
    needs,
    refused,
    sampling,
    text,
)
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import AudioContent, CallToolResult, ListRootsRequest

Arguments = Mapping[str, Any]

STEP_S = 0.05
"""How long the tools pause that tell of their progress."""

WATCHED = "test://watched-resource"
STRING = {"type": "string"}
TOOLS = Tools()
tool = TOOLS.add

bus = InMemorySubscriptionBus()
"""The notices to clients of 2026-07-28 that listen."""

watching: dict[tuple[str, str], ServerSession] = {}
"""The sessions of 2025-11-25 that get notices of a resource, by the session's key and the URI."""


def session_key(ctx: Context) -> str:
    """Tells the sessions of one process apart; over stdio there is one."""
    return "" if ctx.request is None else ctx.request.headers.get("mcp-session-id", "")


@tool("test_simple_text", "Returns a text")
async def simple_text(_: Context, __: Arguments) -> CallToolResult:
    return text("This is a simple text response for testing.")


@tool("test_image_content", "Returns an image")
async def image_content(_: Context, __: Arguments) -> CallToolResult:
    return CallToolResult(content=[IMAGE])


@tool("test_audio_content", "Returns a sound")
async def audio_content(_: Context, __: Arguments) -> CallToolResult:
    return CallToolResult(content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


@tool("test_embedded_resource", "Returns a resource")
async def embedded_resource(_: Context, __: Arguments) -> CallToolResult:
    resource = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return CallToolResult(content=[resource])


@tool("test_multiple_content_types", "Returns content of three types")
async def multiple_content_types(_: Context, __: Arguments) -> CallToolResult:
    resource = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return CallToolResult(content=[*text("Multiple content types test:").content, IMAGE, resource])


@tool("test_tool_with_logging", "Logs three times")
async def tool_with_logging(ctx: Context, _: Arguments) -> CallToolResult:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await anyio.sleep(STEP_S)
    return text("Logged three times.")


@tool("test_logging_tool", "Logs once, if it may")
async def logging_tool(ctx: Context, _: Arguments) -> CallToolResult:
    await ctx.session.send_log_message("info", "A line of a log", related_request_id=ctx.request_id)
    return text("Logged once.")


@tool("test_tool_with_progress", "Tells of its progress three times")
async def tool_with_progress(ctx: Context, _: Arguments) -> CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await anyio.sleep(STEP_S)
    return text("Told of its progress.")


@tool("test_error_handling", "Fails")
async def error_handling(_: Context, __: Arguments) -> CallToolResult:
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool("test_reconnection", "Closes the stream of its call, and returns later")
async def reconnection(ctx: Context, _: Arguments) -> CallToolResult:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
        await anyio.sleep(STEP_S)
    return text("Returned on another stream.")


@tool("test_sampling", "Asks a model", prompt=STRING)
async def asks_a_model(ctx: Context, arguments: Arguments) -> CallToolResult:
    said = (await answers(ctx, {"sampling": sampling(arguments["prompt"])}))["sampling"]
    return text(f"LLM response: {said['content'].get('text')}")


@tool("test_elicitation", "Asks for a name and an address", message=STRING)
async def elicitation(ctx: Context, arguments: Arguments) -> CallToolResult:
    username, email = STRING | {"description": "User's response"}, STRING | {"description": "User's email address"}
    question = form(arguments["message"], username=username, email=email)
    answer = (await answers(ctx, {"elicitation": question}))["elicitation"]
    return text(f"User response: action={answer['action']}, content={json.dumps(answer.get('content'))}")


@tool("test_elicitation_sep1034_defaults", "Asks with a default of each type")
async def elicitation_sep1034_defaults(ctx: Context, _: Arguments) -> CallToolResult:
    question = form(
        "Please review the values",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    answer = (await answers(ctx, {"elicitation": question}))["elicitation"]
    return text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}")


@tool("test_elicitation_sep1330_enums", "Asks with a choice of each form")
async def elicitation_sep1330_enums(ctx: Context, _: Arguments) -> CallToolResult:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)]
    several = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second"), 1)]
    names = ["Option One", "Option Two", "Option Three"]
    question = form(
        "Please choose",
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": several}},
    )
    answer = (await answers(ctx, {"elicitation": question}))["elicitation"]
    return text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}")


@tool("test_missing_capability", "Needs a client with a model")
async def missing_capability(ctx: Context, _: Arguments) -> CallToolResult:
    needs(ctx, "sampling")
    return text("The client has a model.")


@tool("test_streaming_elicitation", "Tells of its progress, then asks")
async def streaming_elicitation(ctx: Context, _: Arguments) -> CallToolResult:
    await ctx.session.report_progress(1, 2)
    answer = (await answers(ctx, {"name": form("What is your name?", name=STRING)}))["name"]
    return text(f"User response: action={answer['action']}")


@tool("test_trigger_tool_change", "Says that the list of tools has changed, which it has not")
async def trigger_tool_change(ctx: Context, _: Arguments) -> CallToolResult:
    await bus.publish(ToolsListChanged())
    if not modern(ctx):
        await ctx.session.send_tool_list_changed()
    return text("Told.")


@tool("test_trigger_prompt_change", "Says that the list of prompts has changed, which it has not")
async def trigger_prompt_change(ctx: Context, _: Arguments) -> CallToolResult:
    await bus.publish(PromptsListChanged())
    if not modern(ctx):
        await ctx.session.send_prompt_list_changed()
    return text("Told.")


@tool("test_input_required_result_elicitation", "Asks for a name")
async def input_required_result_elicitation(ctx: Context, _: Arguments) -> CallToolResult:
    answer = (await answers(ctx, {"user_name": form("What is your name?", name=STRING)}))["user_name"]
    return text(f"Hello, {(answer.get('content') or {}).get('name')}!")


@tool("test_input_required_result_sampling", "Asks a model for a capital")
async def input_required_result_sampling(ctx: Context, _: Arguments) -> CallToolResult:
    said = (await answers(ctx, {"capital_question": sampling("What is the capital of France?")}))["capital_question"]
    return text(f"The model says: {said['content'].get('text')}")


@tool("test_input_required_result_list_roots", "Asks for the roots")
async def input_required_result_list_roots(ctx: Context, _: Arguments) -> CallToolResult:
    roots = (await answers(ctx, {"client_roots": ListRootsRequest(params=None)}))["client_roots"]["roots"]
    return text(f"Roots: {', '.join(root['uri'] for root in roots)}")


@tool("test_input_required_result_request_state", "Asks for a confirmation, with a state")
async def input_required_result_request_state(ctx: Context, _: Arguments) -> CallToolResult:
    await answers(ctx, {"confirm": form("Please confirm", ok={"type": "boolean"})}, state="asked to confirm")
    return text("state-ok")


@tool("test_input_required_result_tampered_state", "Asks for a confirmation, with a state that nobody may change")
async def input_required_result_tampered_state(ctx: Context, _: Arguments) -> CallToolResult:
    await answers(ctx, {"confirm": form("Please confirm", ok={"type": "boolean"})}, state="not to be changed")
    return text("The state is as it was.")


@tool("test_input_required_result_multiple_inputs", "Asks a person, a model and for the roots at once")
async def input_required_result_multiple_inputs(ctx: Context, _: Arguments) -> CallToolResult:
    questions = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ListRootsRequest(params=None),
    }
    given = await answers(ctx, questions, state="asked all three")
    return text(f"Answered: {', '.join(given)}")


@tool("test_input_required_result_multi_round", "Asks for a name, then for a color")
async def input_required_result_multi_round(ctx: Context, _: Arguments) -> CallToolResult:
    name, color = (
        form("Step 1: What is your name?", name=STRING),
        form("Step 2: What is your favorite color?", color=STRING),
    )
    state = (ctx.params or {}).get("requestState")
    if modern(ctx) and state is not None and state.startswith("2 "):
        first = json.loads(state.removeprefix("2 "))
    else:
        first = (await answers(ctx, {"step1": name}, state="1"))["step1"]
    second = (await answers(ctx, {"step2": color}, state=f"2 {json.dumps(first)}"))["step2"]
    return text(f"{(first.get('content') or {}).get('name')}: {(second.get('content') or {}).get('color')}")


@tool("test_input_required_result_capabilities", "Asks whatever this client can be asked")
async def input_required_result_capabilities(ctx: Context, _: Arguments) -> CallToolResult:
    questions = {"name": form("What is your name?", name=STRING), "greeting": sampling("Generate a greeting")}
    possible = {key: each for key, each in questions.items() if can(ctx, KINDS[each.method][0])}
    return text(f"Answered: {', '.join(await answers(ctx, possible))}")


@TOOLS.with_schema(
    "test_x_mcp_header",
    "Takes an argument that is a header, too",
    {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}, "required": ["region"]},
)
async def x_mcp_header(_: Context, arguments: Arguments) -> CallToolResult:
    return text(f"Region: {arguments['region']}")


@TOOLS.with_schema(
    "json_schema_2020_12_tool",
    "Has a schema with what only JSON Schema of 2020-12 knows",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema(_: Context, arguments: Arguments) -> CallToolResult:
    return text(f"Arguments: {json.dumps(dict(arguments))}")


@tool("echo", "Returns its text", text=STRING)
async def echo(_: Context, arguments: Arguments) -> CallToolResult:
    if not isinstance(arguments.get("text"), str):
        raise refused("echo needs a text")
    return text(arguments["text"])


@tool("touch", "Tells that the watched resource has changed")
async def touch(_: Context, __: Arguments) -> CallToolResult:
    await bus.publish(ResourceUpdated(WATCHED))
    for (_key, uri), session in watching.items():
        if uri == WATCHED:
            await session.send_resource_updated(WATCHED)
    return text("Told.")
