"""What each revision of MCP has. Members that a host's revision does not know are left out of what it gets, and those
that it needs are added. Members that no revision knows stay.

Of content, a block of a type that a host's revision does not know becomes text. A host refuses a result that has such a
block, and so loses all of it: the SDKs that hosts are made with do so in every revision (Python 1.30.0 and 2.3.0,
TypeScript 1.32.2). So a type that no revision knows becomes text for all hosts. Clients of the API get every block as
it is.

The table is compared with the SDK's schemas of the revisions in the tests. A revision is a date; so texts compare.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.hosts.extensions import extension_entries
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.core.tasks import EXTENSION as TASKS
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from hubbubd.downstream.protocol.messages import Refusal, with_members
from hubbubd.errors import NotFound

RESOURCE_NOT_FOUND: Final = -32002
"""Up to 2025-11-25, server/resources. From 2026-07-28 on it is INVALID_PARAMS (SEP-2164)."""

NEWEST_HANDSHAKE: Final = HANDSHAKE_REVISIONS[0]
STATELESS: Final = STATELESS_REVISIONS[-1]
"""The oldest revision without a handshake."""


@dataclass(frozen=True, slots=True)
class RevisionMember:
    """A member that revisions from `first` to `last` have."""

    name: str
    first: str = ""
    last: str = "9"

    def is_known_in(self, revision: str) -> bool:
        """Return whether a revision has it."""
        return self.first <= revision <= self.last


_ICONS: Final = RevisionMember("icons", first="2025-11-25")

RESULT: Final = (RevisionMember("resultType", first=STATELESS),)
CACHED: Final = (*RESULT, RevisionMember("ttlMs", first=STATELESS), RevisionMember("cacheScope", first=STATELESS))
TOOL: Final = (RevisionMember("execution", first="2025-11-25", last=NEWEST_HANDSHAKE), _ICONS)
CAPABILITIES: Final = (
    RevisionMember("tasks", first="2025-11-25", last=NEWEST_HANDSHAKE),
    RevisionMember("completions", first="2025-03-26"),
)
EXTENSIONS: Final = (RevisionMember(TASKS, first=STATELESS),)
"""The extensions that not all revisions have."""

SERVER_INFO: Final = (
    _ICONS,
    RevisionMember("description", first="2025-11-25"),
    RevisionMember("websiteUrl", first="2025-06-18"),
)

RESULTS: Final[Mapping[str, tuple[RevisionMember, ...]]] = MappingProxyType(
    {
        "tools/call": RESULT,
        "prompts/get": RESULT,
        "completion/complete": RESULT,
        "resources/read": CACHED,
        "skills/get": CACHED,
        "resources/directory/read": CACHED,  # by its specification it need not be, but some hosts insist
    }
)
"""The members of results that not all revisions have, by method."""

ENTRIES: Final[Mapping[CatalogKind, tuple[RevisionMember, ...]]] = MappingProxyType(
    {
        CatalogKind.TOOL: TOOL,
        CatalogKind.PROMPT: (_ICONS,),
        CatalogKind.RESOURCE: (_ICONS,),
        CatalogKind.TEMPLATE: (_ICONS,),
        CatalogKind.SKILL: (),
    }
)
"""The members of entries of lists that not all revisions have, by kind."""

FIRST: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The first revision that has a type of blocks, where that is not the oldest."""

STRUCTURED: Final = "2025-06-18"
"""The first revision whose tools have `structuredContent`."""

SEVERAL: Final = "2025-11-25"
"""The first revision in which a message of a sampling may have several blocks."""

_KNOWN_TYPES: Final = ("text", "image", "resource", "tool_use", "tool_result", *FIRST)
"""All types that revisions have, those of samplings included."""

_BESIDE: Final = ("annotations", "_meta")
"""Members of every block."""

_OTHER_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?!(?:%s)")' % "|".join(_KNOWN_TYPES).encode())
"""Matches the type of a block if no revision knows it; what is no block may match, too."""

_NEEDED: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What is put in where a revision needs a member and the server has not sent it."""


def render_result(method: str, raw: bytes, revision: str, origin: str | None) -> bytes:
    """Return a server's result as a revision has it. `origin` is the server's own revision, None for unknown.

    The result is only parsed if something may have to change.
    """
    members = RESULTS.get(method, RESULT)
    stateless = revision >= STATELESS
    raw = render_blocks(method, raw, revision)
    if origin is not None and (origin >= STATELESS) is stateless:  # the server's revision has the same members
        return raw
    if stateless:
        needed = {member.name: _NEEDED[member.name] for member in members}
        if not _may_have(raw, needed):
            return with_members(raw, **needed)
        return payload.dumps({**needed, **payload.loads(raw)})
    left_out = [member.name for member in members if not member.is_known_in(revision)]
    if not _may_have(raw, left_out):
        return raw
    parsed = cast("dict[str, Any]", payload.loads(raw))
    kept = {name: value for name, value in parsed.items() if name not in left_out}
    if method == "tools/call" and not isinstance(kept.get("structuredContent", {}), dict):
        kept = _add_structured_as_text(kept)
        del kept["structuredContent"]  # any JSON from 2026-07-28 on, before that an object
    return payload.dumps(kept)


def render_entry(kind: CatalogKind, raw: bytes, revision: str) -> bytes:
    """Return an entry of a list as a revision has it; parsed only if something may have to change."""
    left_out = [member.name for member in ENTRIES[kind] if not member.is_known_in(revision)]
    if kind is CatalogKind.TOOL and revision < STATELESS and _may_have(raw, ["outputSchema"]):
        parsed = cast("dict[str, Any]", payload.loads(raw))
        schema: object = parsed.get("outputSchema", {"type": "object"})
        if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
            left_out.append("outputSchema")  # any schema from 2026-07-28 on, before that one of an object
    if kind is CatalogKind.TOOL and revision == NEWEST_HANDSHAKE and _may_have(raw, ["taskSupport"]):
        raw = _make_task_optional(raw)
    return _remove_members(raw, left_out)


def select_capabilities(own: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return those of the endpoint's capabilities that a revision has."""
    known = _select_known(own, CAPABILITIES, revision)
    if extensions := _select_known(extension_entries(known), EXTENSIONS, revision):
        return {**known, "extensions": extensions}
    known.pop("extensions", None)
    return known


def select_server_info(own: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return those members of the server info that a revision has."""
    return _select_known(own, SERVER_INFO, revision)


def render_read_error(why: Refusal | NotFound, uri: str, own_uri: str, revision: str) -> Refusal:
    """Return the error of `resources/read`, of a server or the hub, as a revision has it.

    Revisions have different codes for a missing resource. `uri` is the host's URI for it, `own_uri` the server's.
    """
    refusal = Refusal(RESOURCE_NOT_FOUND, why.message) if isinstance(why, NotFound) else why
    said: object = refusal.data
    data = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    names_it = data.get("uri") in (uri, own_uri)  # else INVALID_PARAMS may mean anything
    if refusal.code != RESOURCE_NOT_FOUND and not (refusal.code == INVALID_PARAMS and names_it):
        return refusal
    code = INVALID_PARAMS if revision >= STATELESS else RESOURCE_NOT_FOUND
    return Refusal(code, refusal.message, {**data, "uri": uri})


def _make_task_optional(raw: bytes) -> bytes:
    """Return a tool with `taskSupport` "optional" where its server has "required", else as it is.

    A host may call it without a task: the hub then follows the server's task for it.
    """
    tool = cast("dict[str, Any]", payload.loads(raw))
    execution: object = tool.get("execution")
    said = cast("dict[str, Any]", execution) if isinstance(execution, dict) else {}
    if said.get("taskSupport") != "required":
        return raw
    return payload.dumps({**tool, "execution": {**said, "taskSupport": "optional"}})


def _select_known(own: Mapping[str, Any], members: Iterable[RevisionMember], revision: str) -> dict[str, Any]:
    """Return the members of `own` without those that, by the table `members`, the revision does not have."""
    left_out = {member.name for member in members if not member.is_known_in(revision)}
    return {name: value for name, value in own.items() if name not in left_out}


def _may_have(raw: bytes, names: Iterable[str]) -> bool:
    """Return whether a JSON object may have some of these members, itself or deeper in it. False is certain."""
    return any(b'"' + name.encode() + b'"' in raw for name in names)


def _remove_members(raw: bytes, names: list[str]) -> bytes:
    """Return a JSON object without these members; parsed only if it may have them."""
    if not _may_have(raw, names):
        return raw
    parsed = cast("dict[str, Any]", payload.loads(raw))
    return payload.dumps({name: value for name, value in parsed.items() if name not in names})


# Blocks of content


@lru_cache(maxsize=16)
def _unknown_marks(revision: str) -> re.Pattern[bytes] | None:
    """Return a pattern for the types and members that a revision does not know; None if it knows all."""
    marks = [kind for kind, first in FIRST.items() if revision < first]
    if revision < STRUCTURED:
        marks.append("structuredContent")
    return re.compile(b'"(?:%s)"' % "|".join(marks).encode()) if marks else None


def render_blocks(method: str, raw: bytes, revision: str) -> bytes:
    """Return a result with only blocks whose type a revision knows; parsed only if something may have to change."""
    if method not in ("tools/call", "prompts/get"):
        return raw
    marks = _unknown_marks(revision)
    if not (marks is not None and marks.search(raw)) and not _OTHER_TYPE.search(raw):
        return raw
    result = cast("dict[str, Any]", payload.loads(raw))
    if method == "prompts/get":
        return payload.dumps({**result, "messages": _render_messages(result.get("messages"), revision)})
    if "content" in result:
        result["content"] = _render_content(result["content"], revision)
    return payload.dumps(_add_structured_as_text(result) if revision < STRUCTURED else result)


def _add_structured_as_text(result: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's result with its `structuredContent` as text, too, if it has no other content."""
    if result.get("content") or "structuredContent" not in result:
        return result
    return {**result, "content": [{"type": "text", "text": payload.dumps(result["structuredContent"]).decode()}]}


def render_sampling(params: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return the params of `sampling/createMessage` with messages as a revision has them."""
    return {**params, "messages": _render_messages(params.get("messages"), revision)}


def _render_messages(messages: object, revision: str) -> object:
    """Return the messages of a prompt or a sampling as a revision has them; what is no list as it is.

    Blocks of unknown types become text, and before SEVERAL each block is a message of its own.
    """
    if not isinstance(messages, list):
        return messages
    found: list[object] = []
    for message in cast("list[object]", messages):
        if not isinstance(message, dict) or "content" not in message:
            found.append(cast("object", message))
            continue
        members = cast("dict[str, object]", message)
        content: object = _render_content(members["content"], revision)
        if isinstance(content, list) and revision < SEVERAL:
            found += [{**members, "content": block} for block in cast("list[object]", content)]
        else:
            found.append({**members, "content": cast("object", content)})
    return found


def _render_content(content: object, revision: str) -> object:
    """Return content, a block or a list of them, with blocks of unknown types as text."""
    if isinstance(content, list):
        return [_render_content(block, revision) for block in cast("list[object]", content)]
    if not isinstance(content, dict):
        return content
    block = cast("dict[str, Any]", content)
    kind = block.get("type")
    if not isinstance(kind, str) or (kind in _KNOWN_TYPES and revision >= FIRST.get(kind, "")):
        return block
    beside = {name: block[name] for name in _BESIDE if name in block}
    return {"type": "text", "text": _describe_block(kind, block), **beside}


def _describe_block(kind: str, block: Mapping[str, Any]) -> str:
    """Return the text that stands for a block of an unknown type."""
    if kind == "audio":
        return f"[audio, {block.get('mimeType')}: this host's revision of MCP has no audio]"
    if kind not in FIRST:
        return payload.dumps({name: value for name, value in block.items() if name not in _BESIDE}).decode()
    named = block.get("title") or block.get("name")
    described = block.get("description")
    return f"{named}: {block.get('uri')}" + (f"\n{described}" if described else "")
