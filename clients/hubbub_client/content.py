"""MCP content for people: texts as they are, and what else there is in words."""

from collections.abc import Mapping
from typing import Any, cast

from hubbub_client.wording import clean

Part = Mapping[str, Any]


def describe_result(method: str, result: Part) -> str:
    """The result of tools/call, resources/read, prompts/get or completion/complete as text."""
    match method:
        case "resources/read":
            parts = [_resource(part) for part in _parts(result.get("contents"))]
        case "prompts/get":
            description = [str(result["description"])] if result.get("description") else []
            parts = description + [f"{each.get('role')}: {content(each)}" for each in _parts(result.get("messages"))]
        case "tools/call":
            parts = [_block(part) for part in _parts(result.get("content"))]
        case _:
            parts = _completions(cast("Part", result.get("completion") or {}))
    return "\n".join(map(_readable, parts))


def content(message: Part) -> str:
    """The content of a message: one block or several."""
    given = message.get("content")
    return "\n".join(map(_block, _parts(cast("object", given)) or [cast("Part", given or {})]))


def _block(block: Part) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return _binary(str(kind), block.get("mimeType"), block.get("data"))
        case "resource":
            return _resource(cast("Part", block.get("resource") or {}))
        case "resource_link":
            return f"[link to {block.get('uri')}]"
        case kind:
            return f"[{kind}]"


def _resource(resource: Part) -> str:
    if "text" in resource:
        return str(resource["text"])
    return _binary(str(resource.get("uri")), resource.get("mimeType"), resource.get("blob"))


def _binary(what: str, mime_type: object, data: object) -> str:
    size = len(str(data or "").rstrip("=")) * 3 // 4
    return f"[{what}: {mime_type or 'unknown type'}, {size} bytes; --json shows them in base64]"


def _completions(completion: Part) -> list[str]:
    values = [str(value) for value in cast("list[object]", completion.get("values") or [])]
    more = completion.get("hasMore") or (completion.get("total") or 0) > len(values)
    return [*values, *(["..."] if more else [])]


def _parts(value: object) -> list[Part]:
    return cast("list[Part]", value) if isinstance(value, list) else []


def _readable(text: str) -> str:
    return "\n".join(map(clean, text.split("\n")))
