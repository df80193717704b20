"""Content as each revision of MCP has it: a block of a type that a host's revision does not know becomes text.

A host refuses a result that has such a block, and so loses all of it: the SDKs that hosts are made with do so in every
revision (Python 1.30.0 and 2.3.0, TypeScript 1.32.2). So a type that no revision knows becomes text for all hosts.
Clients of the API get every block as it is.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from hubbubd import payload

FIRST: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The first revision that has a type of blocks, where that is not the oldest."""

STRUCTURED: Final = "2025-06-18"
"""The first revision whose tools have `structuredContent`."""

SEVERAL: Final = "2025-11-25"
"""The first revision in which a message of a sampling may have several blocks."""


_KNOWN: Final = ("text", "image", "resource", "tool_use", "tool_result", *FIRST)
"""All types that revisions have, those of samplings included."""

_BESIDE: Final = ("annotations", "_meta")
"""Members of every block."""

_OTHER: Final = re.compile(rb'"type"\s*:\s*"(?!(?:%s)")' % "|".join(_KNOWN).encode())
"""What a block of no known type has; other members of a result may look so, too."""


def unknown(revision: str) -> list[str]:
    """Return the types that a revision does not know."""
    return [kind for kind, first in FIRST.items() if revision < first]


def of_result(method: str, raw: bytes, revision: str) -> bytes:
    """Return a result with blocks of known types alone. It is not parsed if nothing can have to change."""
    marks = [*unknown(revision), *(["structuredContent"] if revision < STRUCTURED else [])]
    if method not in ("tools/call", "prompts/get"):
        return raw
    if not any(b'"%s"' % mark.encode() in raw for mark in marks) and not _OTHER.search(raw):
        return raw
    result = cast("dict[str, Any]", payload.loads(raw))
    if method == "prompts/get":
        return payload.dumps({**result, "messages": of_messages(result.get("messages"), revision)})
    if "content" in result:
        result["content"] = _known(result["content"], revision)
    return payload.dumps(in_text(result) if revision < STRUCTURED else result)


def in_text(result: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's result with what it says in `structuredContent` alone as text, too."""
    if result.get("content") or "structuredContent" not in result:
        return result
    return {**result, "content": [{"type": "text", "text": payload.dumps(result["structuredContent"]).decode()}]}


def of_sampling(params: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return the params of `sampling/createMessage` with messages as a revision has them."""
    return {**params, "messages": of_messages(params.get("messages"), revision)}


def of_messages(messages: object, revision: str) -> object:
    """Return the messages of a prompt or a sampling as a revision has them: what they say, and how many blocks."""
    if not isinstance(messages, list):
        return messages
    found: list[object] = []
    for message in cast("list[object]", messages):
        said = cast("dict[str, object]", message) if isinstance(message, dict) else {}
        content = _known(said.get("content"), revision)
        if isinstance(content, list) and revision < SEVERAL:
            found += [{**said, "content": block} for block in cast("list[object]", content)]
        else:
            found += [{**said, "content": content}] if "content" in said else cast("list[object]", [message])
    return found


def _known(content: object, revision: str) -> object:
    if isinstance(content, list):
        return [_known(block, revision) for block in cast("list[object]", content)]
    if not isinstance(content, dict):
        return content
    block = cast("dict[str, Any]", content)
    kind = block.get("type")
    if not isinstance(kind, str) or (kind in _KNOWN and revision >= FIRST.get(kind, "")):
        return block
    beside = {name: block[name] for name in _BESIDE if name in block}
    return {"type": "text", "text": _in_words(kind, block), **beside}


def _in_words(kind: str, block: Mapping[str, Any]) -> str:
    if kind == "audio":
        return f"[audio, {block.get('mimeType')}: this host's revision of MCP has no audio]"
    if kind not in FIRST:
        return payload.dumps({name: value for name, value in block.items() if name not in _BESIDE}).decode()
    named = block.get("title") or block.get("name")
    described = block.get("description")
    return f"{named}: {block.get('uri')}" + (f"\n{described}" if described else "")
