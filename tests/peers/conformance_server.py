"""A server that offers all that the public conformance suite asks servers for, in both revisions. For `mcp` 2.3.

    conformance_server.py stdio | http        (PORT in the environment for the latter)

Beyond the suite: `echo` returns its text, and `touch` tells that the watched resource has changed.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from conformance_offers import IMAGE, PNG, Asking, Context, answers, embedded, form, refused, text
from conformance_tools import TOOLS, bus, session_key, watching
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    JSONRPCMessage,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)

WORDS = ("paris", "park", "party", "rome")
"""What any argument is completed with."""

TEMPLATE = "test://template/{id}/data"

RESOURCES = [
    Resource(uri="test://static-text", name="static-text", description="A text", mime_type="text/plain"),
    Resource(uri="test://static-binary", name="static-binary", description="An image", mime_type="image/png"),
    Resource(uri="test://watched-resource", name="watched", description="Can change", mime_type="text/plain"),
]

PROMPTS = [
    Prompt(name="test_simple_prompt", description="Has no arguments"),
    Prompt(
        name="test_prompt_with_arguments",
        description="Has two arguments",
        arguments=[
            PromptArgument(name="arg1", description="The first", required=True),
            PromptArgument(name="arg2", description="The second", required=True),
        ],
    ),
    Prompt(
        name="test_prompt_with_embedded_resource",
        description="Embeds a resource",
        arguments=[PromptArgument(name="resourceUri", description="Which", required=True)],
    ),
    Prompt(name="test_prompt_with_image", description="Has an image"),
    Prompt(name="test_input_required_result_prompt", description="Asks for its context"),
]


class Both(Server[Any]):
    """A server whose lists can change, which it tells clients of either revision."""

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(True, True, True))


@dataclass
class Events(EventStore):
    """All events of all streams, in one list, so that a client can come back for the rest."""

    kept: list[tuple[str, JSONRPCMessage | None]]

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 0 < last <= len(self.kept):
            return None
        stream = self.kept[last - 1][0]
        for number, (of, message) in enumerate(self.kept[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=TOOLS.listed)


async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    if params.name not in TOOLS.handlers:
        raise refused(f"no tool {params.name}")
    try:
        return await TOOLS.handlers[params.name](ctx, params.arguments or {})
    except Asking as asking:
        return asking.result
    except RuntimeError as exc:
        failed = text(str(exc))
        failed.is_error = True
        return failed


async def list_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=RESOURCES)


async def list_templates(_: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    template = ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="Data by id", mime_type="application/json"
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)])
    mime_type, content = "text/plain", ""
    if uri == "test://static-text":
        content = "This is the content of the static text resource."
    elif uri == "test://watched-resource":
        content = "This is the content of the watched resource."
    elif match := re.fullmatch(r"test://template/([^/]+)/data", uri):
        which = match[1]
        mime_type, content = "application/json", f'{{"id":"{which}","templateTest":true,"data":"Data for ID: {which}"}}'
    else:
        raise refused("Resource not found", uri=uri)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=content)])


async def list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=PROMPTS)


async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    try:
        content = await prompt(ctx, params.name, given)
    except Asking as asking:
        return asking.result
    except KeyError as exc:
        raise refused(f"{params.name} needs {exc}") from None
    return GetPromptResult(messages=[PromptMessage(role="user", content=each) for each in content])


async def prompt(ctx: Context, name: str, given: Mapping[str, str]) -> list[Any]:
    """What each message of a prompt has. Raises KeyError for a missing argument, and Asking."""

    def says(words: str) -> TextContent:
        return TextContent(type="text", text=words)

    match name:
        case "test_simple_prompt":
            return [says("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [says(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return [resource, says("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [IMAGE, says("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            question = form("What context should the prompt use?", context={"type": "string"})
            answer = (await answers(ctx, {"user_context": question}))["user_context"]
            return [says(f"Use this context: {(answer.get('content') or {}).get('context')}")]
        case _:
            raise refused(f"no prompt {name}")


async def complete(_: Context, params: CompleteRequestParams) -> CompleteResult:
    fitting = [word for word in WORDS if word.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=fitting, total=len(fitting), has_more=False))


async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
    watching[session_key(ctx), str(params.uri)] = ctx.session
    return EmptyResult()


async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    watching.pop((session_key(ctx), str(params.uri)), None)
    return EmptyResult()


async def set_level(_: Context, __: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


def made() -> Server[Any]:
    """The server, with all that it offers."""
    cached = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    server = Both(
        "conformance",
        version="1",
        instructions="A server for tests.",
        cache_hints={method: CacheHint(ttl_ms=60_000) for method in (*cached, "server/discover")},
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=set_level,
    )
    sealed = RequestStateSecurity(keys=["a key for tests that is long enough"])
    server.middleware.append(RequestStateBoundary(sealed, default_audience=server.name))
    return server


async def main(transport: str) -> None:
    server = made()
    if transport == "http":
        app = server.streamable_http_app(event_store=Events([]), retry_interval=100)
        settings = uvicorn.Config(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning", http="h11")
        await uvicorn.Server(settings).serve()
    else:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
