"""What programs send to a model and read of it, in four APIs: chat completions, responses, messages, generateContent.

A dialect reads a request as a `Turn`, and writes an action of the script as the API streams it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

MODEL = "script-1"
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a model is asked: the tools it has, by the names to call them by, and what those called so far returned."""

    tools: Sequence[str]
    results: Sequence[str]
    body: str = ""
    """The whole request."""

    def find(self, tool: str) -> str | None:
        """The name of a tool, whatever the program puts before it."""
        ends = (f"_{tool}", f"/{tool}", f"-{tool}")
        return next((name for name in self.tools if name == tool or name.endswith(ends)), None)


@dataclass(frozen=True, slots=True)
class Use:
    """The model calls a tool, by the name that it has in the turn."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something, and its turn ends."""

    text: str


Action = Use | Say
Body = Mapping[str, Any]


class Chat:
    """Chat completions, of OpenAI and of most others."""

    @staticmethod
    def read(body: Body) -> Turn:
        """Reads a request."""
        tools = [each["function"]["name"] for each in body.get("tools", ())]
        return Turn(tools, [_text(each["content"]) for each in body["messages"] if each["role"] == "tool"])

    @staticmethod
    def write(action: Action) -> Iterator[bytes]:
        """Streams an answer."""
        if isinstance(action, Use):
            function = {"name": action.tool, "arguments": json.dumps(action.arguments)}
            delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": _new("call"), "type": "function"}]}
            delta["tool_calls"][0]["function"] = function
        else:
            delta = {"content": action.text}
        head = {"id": _new("chat"), "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        ended: dict[str, Any] = {"delta": {}, "finish_reason": "tool_calls" if isinstance(action, Use) else "stop"}
        for choice in ({"delta": {"role": "assistant", **delta}, "finish_reason": None}, ended):
            yield _event({**head, "choices": [{"index": 0, **choice}]})
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        yield _event({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


class Responses:
    """Responses of OpenAI, where tools of an MCP server may be in a namespace of their own."""

    @staticmethod
    def read(body: Body) -> Turn:
        """Reads a request."""
        tools: list[str] = []
        for each in body.get("tools", ()):
            inner = each.get("tools") if each["type"] == "namespace" else None
            tools += [f"{each['name']}/{tool['name']}" for tool in inner] if inner else [each.get("name", each["type"])]
        outputs = [each["output"] for each in body["input"] if each.get("type") == "function_call_output"]
        return Turn(tools, [_text(each) for each in outputs])

    @staticmethod
    def write(action: Action) -> Iterator[bytes]:
        """Streams an answer."""
        if isinstance(action, Use):
            namespace, _, name = action.tool.rpartition("/")
            item: dict[str, Any] = {"type": "function_call", "id": _new("fc"), "call_id": _new("call"), "name": name}
            item |= {"arguments": json.dumps(action.arguments), **({"namespace": namespace} if namespace else {})}
        else:
            said = {"type": "output_text", "text": action.text, "annotations": list[Any]()}
            item = {"type": "message", "id": _new("msg"), "role": "assistant", "content": [said]}
        answer: dict[str, Any] = {"id": _new("resp"), "object": "response", "model": MODEL, "output": []}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield _named("response.created", {"response": {**answer, "status": "in_progress"}})
        yield _named("response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress"}})
        yield _named("response.output_item.done", {"output_index": 0, "item": {**item, "status": "completed"}})
        ended = {**answer, "status": "completed", "output": [item], "usage": usage}
        yield _named("response.completed", {"response": ended})


class Messages:
    """Messages of Anthropic."""

    @staticmethod
    def read(body: Body) -> Turn:
        """Reads a request."""
        blocks = [
            block
            for each in body["messages"]
            if isinstance(each["content"], list)
            for block in each["content"]
            if block["type"] == "tool_result"
        ]
        tools = [each["name"] for each in body.get("tools", ())]
        return Turn(tools, [_text(block.get("content", "")) for block in blocks])

    @staticmethod
    def write(action: Action) -> Iterator[bytes]:
        """Streams an answer."""
        if isinstance(action, Use):
            block: dict[str, Any] = {"type": "tool_use", "id": _new("toolu"), "name": action.tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(action.arguments)}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": action.text}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message: dict[str, Any] = {"id": _new("msg"), "type": "message", "role": "assistant", "model": MODEL}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        stop = "tool_use" if isinstance(action, Use) else "end_turn"
        yield _named("message_start", {"message": message})
        yield _named("content_block_start", {"index": 0, "content_block": block})
        yield _named("content_block_delta", {"index": 0, "delta": delta})
        yield _named("content_block_stop", {"index": 0})
        yield _named("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
        yield _named("message_stop", {})


class Content:
    """generateContent of Google."""

    @staticmethod
    def read(body: Body) -> Turn:
        """Reads a request."""
        parts = [part for each in body.get("contents", ()) for part in each.get("parts", ())]
        results = [json.dumps(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        groups = [group.get("functionDeclarations", ()) for group in body.get("tools", ())]
        return Turn([each["name"] for group in groups for each in group], results)

    @staticmethod
    def write(action: Action) -> Iterator[bytes]:
        """Streams an answer."""
        called = isinstance(action, Use)
        part = {"functionCall": {"name": action.tool, "args": action.arguments}} if called else {"text": action.text}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        yield _event({"candidates": [candidate], "usageMetadata": usage})


def _text(content: Any) -> str:
    """What a tool returned, as one text: a text, or blocks with texts."""
    if isinstance(content, str):
        return content
    return "\n".join(each.get("text", "") for each in content)


def _new(kind: str) -> str:
    return f"{kind}_{next(_NUMBERS)}"


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _named(kind: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\n".encode() + _event({"type": kind, **data})
