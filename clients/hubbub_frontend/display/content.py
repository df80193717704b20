"""MCP content in words: texts unchanged, other content described."""

from collections.abc import Mapping
from typing import Any

from hubbub_client.legible import clean
from hubbub_client.payload import as_list, as_object, as_objects

Part = Mapping[str, Any]


def describe_result(method: str, said: object) -> str:
    """Render the result of tools/call, resources/read, prompts/get or completion/complete as text."""
    result = as_object(said)
    match method:
        case "resources/read":
            parts = [_resource_text(part) for part in as_objects(result.get("contents"))]
        case "prompts/get":
            description = [str(result["description"])] if result.get("description") else []
            parts = description + [
                f"{each.get('role')}: {content_text(each)}" for each in as_objects(result.get("messages"))
            ]
        case "tools/call":
            parts = [_block_text(part) for part in as_objects(result.get("content"))]
        case _:
            parts = _completion_lines(as_object(result.get("completion")))
    return clean("\n".join(parts))


def content_text(message: Part) -> str:
    """Return the content of a message, one block or several, as a list."""
    given = message.get("content")
    return "\n".join(map(_block_text, as_objects(given) or [as_object(given)]))


def _block_text(block: Part) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return _describe_binary(str(kind), block.get("mimeType"), block.get("data"))
        case "resource":
            return _resource_text(as_object(block.get("resource")))
        case "resource_link":
            return f"[link to {block.get('uri')}]"
        case kind:
            return f"[{kind}]"


def _resource_text(resource: Part) -> str:
    if "text" in resource:
        return str(resource["text"])
    return _describe_binary(str(resource.get("uri")), resource.get("mimeType"), resource.get("blob"))


def _describe_binary(what: str, mime_type: object, data: object) -> str:
    size = len(str(data or "").rstrip("=")) * 3 // 4
    return f"[{what}: {mime_type or 'unknown type'}, {size} bytes; --json shows them in base64]"


def _completion_lines(completion: Part) -> list[str]:
    values, total = [str(value) for value in as_list(completion.get("values"))], completion.get("total")
    more = completion.get("hasMore") or (isinstance(total, (int, float)) and total > len(values))
    return [*values, *(["..."] if more else [])]
