"""MCP content in words: texts unchanged, other content described."""

from collections.abc import Mapping
from typing import Any

from hubbub_client.payload import as_list, as_object, as_objects
from hubbub_shared.legible import clean

Part = Mapping[str, Any]


def describe_result(method: str, result: object) -> str:
    """Render the result of tools/call, resources/read, prompts/get or completion/complete as text; empty for others."""
    fields = as_object(result)
    match method:
        case "resources/read":
            parts = [_resource_text(resource) for resource in as_objects(fields.get("contents"))]
        case "prompts/get":
            parts = [f"{each.get('role')}: {content_text(each)}" for each in as_objects(fields.get("messages"))]
            if fields.get("description"):
                parts.insert(0, str(fields["description"]))
        case "tools/call":
            parts = [_block_text(block) for block in as_objects(fields.get("content"))]
        case "completion/complete":
            parts = _completion_lines(as_object(fields.get("completion")))
        case _:
            return ""
    return clean("\n".join(parts))


def content_text(message: Part) -> str:
    """Return the content of a message as text. In MCP it is one block, or a list of blocks."""
    content = message.get("content")
    return "\n".join(_block_text(block) for block in as_objects(content) or [as_object(content)])


def _block_text(block: Part) -> str:
    """Return a block of content as text; what is no text is described in square brackets."""
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
    """Return the text of a resource, or a description of its bytes."""
    if "text" in resource:
        return str(resource["text"])
    return _describe_binary(str(resource.get("uri")), resource.get("mimeType"), resource.get("blob"))


def _describe_binary(name: str, mime_type: object, base64_data: object) -> str:
    """Return a description of bytes that are not shown: name, type and size."""
    size = len(str(base64_data or "").rstrip("=")) * 3 // 4
    return f"[{name}: {mime_type or 'unknown type'}, {size} bytes; --json shows them in base64]"


def _completion_lines(completion: Part) -> list[str]:
    """Return the values, and `...` if the server has more."""
    values = [str(value) for value in as_list(completion.get("values"))]
    total = completion.get("total")
    if completion.get("hasMore") or (isinstance(total, (int, float)) and total > len(values)):
        values.append("...")
    return values
