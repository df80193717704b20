"""What `conformance_server.py` offers, by name, and how its tools ask: alike in both revisions.

A tool of a session of 2025-11-25 asks on the stream of its call. One of a request of 2026-07-28 ends it with an
`input_required` result, and runs again from its start with the answers.
"""

import base64
import io
import struct
import wave
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, Mapping[str, Any]], Awaitable[CallToolResult]]
Question = ElicitRequest | CreateMessageRequest | ListRootsRequest

KINDS: dict[str, tuple[str, type[ElicitResult | CreateMessageResult | ListRootsResult]]] = {
    "elicitation/create": ("elicitation", ElicitResult),
    "sampling/createMessage": ("sampling", CreateMessageResult),
    "roots/list": ("roots", ListRootsResult),
}
"""Per method of a question: the capability that a client needs, and what it answers with."""


class Asking(Exception):
    """Ends a request of 2026-07-28 with a question."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("asks")
        self.result = result


@dataclass
class Tools:
    """Tools by name; a decorator adds one."""

    listed: list[Tool] = field(default_factory=list[Tool])
    handlers: dict[str, Handler] = field(default_factory=dict[str, Handler])

    def add(self, name: str, description: str, /, **arguments: Any) -> Callable[[Handler], Handler]:
        """Adds a tool; each argument is required, and given with its schema."""
        schema = {"type": "object", "properties": arguments, "required": list(arguments)}
        return self.with_schema(name, description, schema)

    def with_schema(self, name: str, description: str, schema: dict[str, Any]) -> Callable[[Handler], Handler]:
        """As `add`, with the whole schema of the arguments."""

        def added(handler: Handler) -> Handler:
            self.listed.append(Tool(name=name, description=description, input_schema=schema))
            self.handlers[name] = handler
            return handler

        return added


def modern(ctx: Context) -> bool:
    """Whether a request is of a revision without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def can(ctx: Context, capability: str) -> bool:
    """Whether the client declared it."""
    return getattr(ctx.session.client_capabilities, capability, None) is not None


def needs(ctx: Context, capability: str) -> None:
    """Raises MCPError for a client that has not declared this capability."""
    if not can(ctx, capability):
        required = {"requiredCapabilities": {capability: {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client has no {capability}", required)


async def answers(ctx: Context, questions: Mapping[str, Question], state: str | None = None) -> dict[str, Any]:
    """What was answered, as it was sent, by key. Raises Asking, or MCPError for a client that cannot be asked."""
    for question in questions.values():
        needs(ctx, KINDS[question.method][0])
    if not modern(ctx):
        return {key: await asked(ctx, question) for key, question in questions.items()}
    given = (ctx.params or {}).get("inputResponses") or {}
    missing = {key: question for key, question in questions.items() if not fits(question, given.get(key))}
    if missing or (state is not None and (ctx.params or {}).get("requestState") != state):
        raise Asking(InputRequiredResult(input_requests=missing or dict(questions), request_state=state))
    return {key: given[key] for key in questions}


async def asked(ctx: Context, question: Question) -> dict[str, Any]:
    """Asks a client of 2025-11-25, as part of the request under way."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(question, KINDS[question.method][1], metadata=related)
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def fits(question: Question, answer: Any) -> bool:
    """Whether it is an answer to this kind of question at all."""
    try:
        KINDS[question.method][1].model_validate(answer, by_name=False)
    except ValueError:
        return False
    return True


def form(message: str, /, **properties: Any) -> ElicitRequest:
    """A question for a form whose fields are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str, max_tokens: int = 100) -> CreateMessageRequest:
    """A question for a model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def text(*parts: str) -> CallToolResult:
    """A result of texts."""
    return CallToolResult(content=[TextContent(type="text", text=each) for each in parts])


def embedded(uri: str, mime_type: str, content: str) -> EmbeddedResource:
    """A text resource inside of a result or a prompt."""
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=content))


def refused(what: str, **data: Any) -> MCPError:
    """The error for params that name nothing there is."""
    return MCPError(INVALID_PARAMS, what, data or None)


def _png() -> str:
    """One red pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def _wav() -> str:
    """A hundredth of a second of silence, in base64."""
    kept = io.BytesIO()
    with wave.open(kept, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 80)
    return base64.b64encode(kept.getvalue()).decode()


PNG = _png()
WAV = _wav()
IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")
