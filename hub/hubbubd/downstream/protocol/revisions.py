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
    """A member that the revisions from `first` to `last` have; by default all revisions ("9" is after any date)."""

    name: str
    first: str = ""
    last: str = "9"

    def is_known_in(self, revision: str) -> bool:
        """Return whether a revision has it."""
        return self.first <= revision <= self.last


_ICONS: Final = RevisionMember("icons", first="2025-11-25")

# Members that not all revisions have: of results, of results about caching, of tools, of capabilities.
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

FIRST_REVISIONS: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""By type of block, the first revision that has it; types of the oldest revision are left out."""

STRUCTURED_SINCE: Final = "2025-06-18"
"""The first revision whose tools have `structuredContent`."""

SEVERAL_BLOCKS_SINCE: Final = "2025-11-25"
"""The first revision in which a message of a sampling request may have several blocks."""

_KNOWN_TYPES: Final = ("text", "image", "resource", "tool_use", "tool_result", *FIRST_REVISIONS)
"""All types of blocks that any revision has, those of sampling requests included."""

_COMMON_MEMBERS: Final = ("annotations", "_meta")
"""Members that every block may have."""

_OTHER_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?!(?:%s)")' % "|".join(_KNOWN_TYPES).encode())
"""Matches the type of a block that no revision knows; it may match JSON that is no block, too."""

_DEFAULTS: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Values of members that a revision needs and the server has not sent."""


def render_result(method: str, raw: bytes, revision: str, server_revision: str | None) -> bytes:
    """Return a server's result as a revision has it. `server_revision` is None if it is not known.

    The result is only parsed if something may have to change.
    """
    members = RESULTS.get(method, RESULT)
    stateless = revision >= STATELESS
    raw = render_blocks(method, raw, revision)
    if server_revision is not None and (server_revision >= STATELESS) is stateless:  # it has the same members
        return raw
    if stateless:
        defaults = {member.name: _DEFAULTS[member.name] for member in members}
        if not _may_have(raw, defaults):
            return with_members(raw, **defaults)
        return payload.dumps({**defaults, **payload.loads(raw)})
    unknown_names = [member.name for member in members if not member.is_known_in(revision)]
    if not _may_have(raw, unknown_names):
        return raw
    parsed = cast("dict[str, Any]", payload.loads(raw))
    known = {name: value for name, value in parsed.items() if name not in unknown_names}
    if method == "tools/call" and not isinstance(known.get("structuredContent", {}), dict):
        known = _add_structured_as_text(known)
        del known["structuredContent"]  # any JSON from 2026-07-28 on, before that an object
    return payload.dumps(known)


def render_entry(kind: CatalogKind, raw: bytes, revision: str) -> bytes:
    """Return an entry of a list as a revision has it; parsed only if something may have to change."""
    unknown_names = [member.name for member in ENTRIES[kind] if not member.is_known_in(revision)]
    if kind is CatalogKind.TOOL and revision < STATELESS and _may_have(raw, ["outputSchema"]):
        parsed = cast("dict[str, Any]", payload.loads(raw))
        schema: object = parsed.get("outputSchema", {"type": "object"})
        if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
            unknown_names.append("outputSchema")  # any schema from 2026-07-28 on, before that one of an object
    if kind is CatalogKind.TOOL and revision == NEWEST_HANDSHAKE and _may_have(raw, ["taskSupport"]):
        raw = _make_task_optional(raw)
    return _remove_members(raw, unknown_names)


def select_capabilities(capabilities: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return those of the endpoint's capabilities that a revision has."""
    known = _select_known(capabilities, CAPABILITIES, revision)
    if extensions := _select_known(extension_entries(known), EXTENSIONS, revision):
        return {**known, "extensions": extensions}
    known.pop("extensions", None)
    return known


def select_server_info(server_info: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return those members of the server info that a revision has."""
    return _select_known(server_info, SERVER_INFO, revision)


def render_read_error(error: Refusal | NotFound, uri: str, own_uri: str, revision: str) -> Refusal:
    """Return an error of `resources/read`, from a server or the hub, as a revision has it.

    Revisions have different codes for a missing resource. `uri` is the host's URI of the resource, `own_uri` the
    server's.
    """
    refusal = Refusal(RESOURCE_NOT_FOUND, error.message) if isinstance(error, NotFound) else error
    data_value: object = refusal.data
    data = cast("dict[str, Any]", data_value) if isinstance(data_value, dict) else {}
    names_resource = data.get("uri") in (uri, own_uri)  # an INVALID_PARAMS without the URI may mean anything
    if refusal.code != RESOURCE_NOT_FOUND and not (refusal.code == INVALID_PARAMS and names_resource):
        return refusal
    code = INVALID_PARAMS if revision >= STATELESS else RESOURCE_NOT_FOUND
    return Refusal(code, refusal.message, {**data, "uri": uri})


def _make_task_optional(raw: bytes) -> bytes:
    """Return a tool with `taskSupport` "optional" in place of "required", else as it is.

    Hosts may call such a tool without a task, since the hub then follows the server's task in the host's place.
    """
    tool = cast("dict[str, Any]", payload.loads(raw))
    execution: object = tool.get("execution")
    members = cast("dict[str, Any]", execution) if isinstance(execution, dict) else {}
    if members.get("taskSupport") != "required":
        return raw
    return payload.dumps({**tool, "execution": {**members, "taskSupport": "optional"}})


def _select_known(json_object: Mapping[str, Any], members: Iterable[RevisionMember], revision: str) -> dict[str, Any]:
    """Return an object without the members that a revision does not have, by the table `members`."""
    unknown_names = {member.name for member in members if not member.is_known_in(revision)}
    return {name: value for name, value in json_object.items() if name not in unknown_names}


def _may_have(raw: bytes, names: Iterable[str]) -> bool:
    """Return whether a JSON object may have one of these members, at any depth. False is certain, True is not."""
    return any(b'"' + name.encode() + b'"' in raw for name in names)


def _remove_members(raw: bytes, names: list[str]) -> bytes:
    """Return a JSON object without these members; it is parsed only if it may have them."""
    if not _may_have(raw, names):
        return raw
    parsed = cast("dict[str, Any]", payload.loads(raw))
    return payload.dumps({name: value for name, value in parsed.items() if name not in names})


# Blocks of content


@lru_cache(maxsize=16)
def _make_unknown_pattern(revision: str) -> re.Pattern[bytes] | None:
    """Return a pattern that finds the types and members which a revision does not know; None if it knows all."""
    names = [kind for kind, first in FIRST_REVISIONS.items() if revision < first]
    if revision < STRUCTURED_SINCE:
        names.append("structuredContent")
    return re.compile(b'"(?:%s)"' % "|".join(names).encode()) if names else None


def render_blocks(method: str, raw: bytes, revision: str) -> bytes:
    """Return a result with only blocks whose type a revision knows; parsed only if something may have to change."""
    if method not in ("tools/call", "prompts/get"):
        return raw
    unknown = _make_unknown_pattern(revision)
    if not (unknown is not None and unknown.search(raw)) and not _OTHER_TYPE.search(raw):
        return raw
    result = cast("dict[str, Any]", payload.loads(raw))
    if method == "prompts/get":
        return payload.dumps({**result, "messages": _render_messages(result.get("messages"), revision)})
    if "content" in result:
        result["content"] = _render_content(result["content"], revision)
    return payload.dumps(_add_structured_as_text(result) if revision < STRUCTURED_SINCE else result)


def _add_structured_as_text(result: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's result in which `structuredContent` is repeated as text, if the result has no other content."""
    if result.get("content") or "structuredContent" not in result:
        return result
    return {**result, "content": [{"type": "text", "text": payload.dumps(result["structuredContent"]).decode()}]}


def render_sampling(params: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return the params of `sampling/createMessage` with messages as a revision has them."""
    return {**params, "messages": _render_messages(params.get("messages"), revision)}


def _render_messages(messages: object, revision: str) -> object:
    """Return the messages of a prompt or a sampling request as a revision has them; a value that is no list unchanged.

    Blocks of unknown types become text, and before SEVERAL_BLOCKS_SINCE each block is a message of its own.
    """
    if not isinstance(messages, list):
        return messages
    rendered: list[object] = []
    for message in cast("list[object]", messages):
        if not isinstance(message, dict) or "content" not in message:
            rendered.append(cast("object", message))
            continue
        members = cast("dict[str, object]", message)
        content: object = _render_content(members["content"], revision)
        if isinstance(content, list) and revision < SEVERAL_BLOCKS_SINCE:
            rendered += [{**members, "content": block} for block in cast("list[object]", content)]
        else:
            rendered.append({**members, "content": cast("object", content)})
    return rendered


def _render_content(content: object, revision: str) -> object:
    """Return content (a block, or a list of blocks) with each block of an unknown type as text."""
    if isinstance(content, list):
        return [_render_content(block, revision) for block in cast("list[object]", content)]
    if not isinstance(content, dict):
        return content
    block = cast("dict[str, Any]", content)
    block_type = block.get("type")
    if not isinstance(block_type, str) or (
        block_type in _KNOWN_TYPES and revision >= FIRST_REVISIONS.get(block_type, "")
    ):
        return block
    common = {name: block[name] for name in _COMMON_MEMBERS if name in block}
    return {"type": "text", "text": _describe_block(block_type, block), **common}


def _describe_block(block_type: str, block: Mapping[str, Any]) -> str:
    """Return the text that stands for a block of an unknown type."""
    if block_type == "audio":
        return f"[audio, {block.get('mimeType')}: this host's revision of MCP has no audio]"
    if block_type not in FIRST_REVISIONS:
        return payload.dumps({name: value for name, value in block.items() if name not in _COMMON_MEMBERS}).decode()
    title = block.get("title") or block.get("name")
    description = block.get("description")
    return f"{title}: {block.get('uri')}" + (f"\n{description}" if description else "")
