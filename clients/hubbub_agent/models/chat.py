"""A sampling as a request to a model, and its completion as the answer: the API that OpenAI made usual. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hubbub_agent.models.endpoint import Chat
from hubbub_agent.rules.conditions import content_blocks
from hubbub_agent.rules.limits import ModelUsage
from hubbub_agent.rules.problems import AnswerProblem
from hubbub_agent.rules.rulebook import Answer
from hubbub_client import payload
from hubbub_client.numbers import is_finite, whole

MAX_STOPS = 4
"""Most stop sequences that such an endpoint accepts."""

STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}
AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that a model read and wrote."""

    input: int
    output: int

    def to_model_usage(self, chat: Chat) -> ModelUsage:
        """Return the usage of one request with these tokens: their sum, and their cost by the prices of a model."""
        cost = (self.input * chat.input_price + self.output * chat.output_price) / 1_000_000
        return ModelUsage(self.input + self.output, cost, 1)

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer, its name, and the tokens that it used; None if the endpoint reports none."""

    answer: Answer
    model: str
    tokens: TokenUsage | None


def max_usage(body: Mapping[str, Any]) -> TokenUsage:
    """Return the most tokens that a request can use: an input token is at least one byte of the request."""
    return TokenUsage(len(payload.dumps(body)), body["max_tokens"])


def build_request(chat: Chat, params: Mapping[str, Any]) -> dict[str, Any]:
    """Build the endpoint's request from the params of `sampling/createMessage` (MCP client/sampling).

    Raises AnswerProblem for content that no model takes.
    """
    system = [text for text in (chat.system, params.get("systemPrompt")) if text]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in system]
    for message in payload.as_objects(params.get("messages")):
        messages += _convert_message(str(message.get("role")), content_blocks(message.get("content")))
    body: dict[str, Any] = {
        "model": _choose_model(chat, params),
        "messages": messages,
        "max_tokens": _output_limit(params.get("maxTokens"), chat.max_tokens),
    }
    if is_finite(temperature := params.get("temperature")):
        body["temperature"] = temperature
    if stops := payload.as_list(params.get("stopSequences")):
        body["stop"] = stops[:MAX_STOPS]
    if tools := payload.as_objects(params.get("tools")):
        body["tools"] = [{"type": "function", "function": _function_spec(tool)} for tool in tools]
        if mode := payload.as_object(params.get("toolChoice")).get("mode"):
            body["tool_choice"] = mode
    return body


def parse_reply(completion: Mapping[str, Any], requested_model: str, *, with_tools: bool) -> ModelReply:
    """Convert a completion to the MCP result of the sampling; without `with_tools`, its calls of tools are dropped.

    Raises ValueError, TypeError, KeyError or IndexError if it is no completion, or has no content left.
    """
    choice = completion["choices"][0]
    message, finish_reason = payload.as_object(choice["message"]), choice.get("finish_reason")
    text = message.get("content")
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    if with_tools:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            tool_use = {
                "id": call["id"],
                "name": function["name"],
                "input": json.loads(function.get("arguments") or "{}"),
            }
            content.append({"type": "tool_use", **tool_use})
    if not content:
        raise ValueError(f"it has no text (finish_reason {finish_reason})")
    model = str(completion.get("model") or requested_model)
    is_single_text = len(content) == 1 and content[0]["type"] == "text"
    result = {
        "role": "assistant",
        "content": content[0] if is_single_text else content,
        "model": model,
        "stopReason": STOP_REASONS.get(str(finish_reason), str(finish_reason or "endTurn")),
    }
    return ModelReply({"result": result}, model, reported_usage(completion))


def reported_usage(completion: Mapping[str, Any]) -> TokenUsage | None:
    """Return the usage that a completion reports; None if it reports none."""
    usage = payload.as_object(completion.get("usage"))
    input_tokens, output_tokens = whole(usage.get("prompt_tokens")), whole(usage.get("completion_tokens"))
    return None if input_tokens is None and output_tokens is None else TokenUsage(input_tokens or 0, output_tokens or 0)


def _output_limit(requested: object, allowed: int) -> int:
    """Return the limit on output tokens that a server requests, at least 1 and at most `allowed`.

    Return `allowed` if the server requests no number. A negative limit would mean "no limit" at some endpoints, and
    would lower the usage that is counted.
    """
    if not isinstance(requested, (int, float)) or not requested <= allowed:  # the second is true for NaN, too
        return allowed
    return max(1, int(max(1.0, requested)))  # raised to 1.0 first: `int` takes no minus infinity


def _choose_model(chat: Chat, params: Mapping[str, Any]) -> str:
    """Return the model to ask: the one to which the rules map the server's first known hint, else the default one."""
    preferences = payload.as_object(params.get("modelPreferences"))
    for hint in payload.as_objects(preferences.get("hints")):
        for pattern, model in chat.models.items():
            if fnmatchcase(str(hint.get("name", "")), pattern):
                return model
    return chat.model


def _function_spec(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool of MCP to a function of the endpoint's request."""
    function = {"name": tool.get("name"), "parameters": tool.get("inputSchema") or {"type": "object"}}
    return function | ({"description": tool["description"]} if tool.get("description") else {})


def _convert_message(role: str, content: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert one MCP message to messages of the endpoint's request: each tool result becomes a separate message."""
    results = [_convert_tool_result(block) for block in content if block.get("type") == "tool_result"]
    uses = [_convert_tool_use(block) for block in content if block.get("type") == "tool_use"]
    parts = [_convert_block(block) for block in content if block.get("type") not in ("tool_result", "tool_use")]
    if not parts and not uses:
        return results
    message: dict[str, Any] = {"role": role, "content": parts or None}
    if all(part["type"] == "text" for part in parts) and parts:
        message["content"] = "\n".join(part["text"] for part in parts)
    return [*results, message | ({"tool_calls": uses} if uses else {})]


def _convert_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a block of MCP content. Raises AnswerProblem for a block that no model takes."""
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        case "image":
            url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio" if (kind := AUDIO.get(str(block.get("mimeType")))) is not None:
            return {"type": "input_audio", "input_audio": {"data": block.get("data"), "format": kind}}
        case other:
            raise AnswerProblem(f"a model cannot be shown {other} {block.get('mimeType', '')}".strip())


def _convert_tool_use(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a model's call of a tool."""
    function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
    return {"id": block.get("id"), "type": "function", "function": function}


def _convert_tool_result(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the result of a tool that a model called. Without any text, the structured content is sent as text."""
    parts = content_blocks(block.get("content"))
    texts = [part["text"] if part.get("type") == "text" else json.dumps(part) for part in parts]
    structured = block.get("structuredContent")
    if not any(texts) and structured is not None:
        texts = [json.dumps(structured)]
    return {"role": "tool", "tool_call_id": block.get("toolUseId"), "content": "\n".join(texts)}
