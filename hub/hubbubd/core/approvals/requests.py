"""What people are asked of a call: the document of its pending request, and digests of what it is about."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.config.sections.approvals import ApprovalRule
from hubbubd.config.sections.mcp import PEOPLE
from hubbubd.core.approvals.suggestions import describe_offered_suggestions
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.errors import FailedPrecondition, InvalidArgument
from hubbubd.redaction import REDACTION

MAX_SHOWN_BYTES: Final = 1024 * 1024
"""Bytes of arguments that a person can be asked about; nobody reads more."""

MAX_EXACT_BYTES: Final = 64 * 1024
"""Longer values that need RFC 8785 to be canonical get no canonical form: to make it takes a second per megabyte."""

MAX_SCHEMA_BYTES: Final = 64 * 1024
"""Bytes of a tool's input schema that are shown with its arguments."""

CWD: Final = "hubbub/cwd"
"""The member of a call's `_meta` with the folder in which a host wants to use its own tool."""

MAX_EARLIER_CALLS: Final = 5
"""How many earlier calls of the caller the document names."""

_VISIBLE_TOOL_MEMBERS: Final = ("name", "title", "description", "annotations", "inputSchema")
_LEAD_BYTES_BEYOND_16_BITS: Final = frozenset(range(0xF0, 0xF8))
"""The first bytes, in UTF-8, of characters beyond 16 bits, which JavaScript sorts before some others."""

_NOT_AN_INTEGER: Final = re.compile(rb"[0-9][.eE]|[0-9]{16}")
_LEFT_OUT_OF_DIGEST: Final = frozenset({"_meta", "icons"})


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server lists it. `digest` is "" for one that the server is not known to have."""

    entry: Mapping[str, Any]
    digest: str = ""

    @property
    def hints(self) -> Mapping[str, Any]:
        """The annotations of the tool, as its server claims them."""
        annotations = self.entry.get("annotations")
        return cast("Mapping[str, Any]", annotations) if isinstance(annotations, Mapping) else {}

    @property
    def input_schema(self) -> Mapping[str, Any] | None:
        """The schema of the arguments, if there is one."""
        schema = self.entry.get("inputSchema")
        return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else None


UNKNOWN_TOOL: Final = ToolDefinition({})


def define_tool(entry: bytes) -> ToolDefinition:
    """Return a tool by its JSON in a server's list; its digest is without `_meta` and `icons`, which nobody judges."""
    tool = cast("dict[str, Any]", payload.loads(entry))
    judged = {key: value for key, value in tool.items() if key not in _LEFT_OUT_OF_DIGEST}
    return ToolDefinition(tool, canonical_digest(judged))


def canonical_digest(value: object) -> str:
    """Return the SHA-256 of a JSON value in its canonical form (RFC 8785).

    Some values are only serialized with sorted keys instead: those with integers beyond 53 bits, for which RFC 8785 has
    no form; and those beyond MAX_EXACT_BYTES with fractions, or with characters beyond 16 bits in keys.
    """
    canonical = payload.dumps_canonical(value)
    if len(canonical) <= MAX_EXACT_BYTES and not _is_canonical(canonical):
        import rfc8785  # needed with the first such arguments that are asked about

        # A value that has no such form keeps the one with sorted keys.
        with suppress(rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
            canonical = rfc8785.dumps(cast("Any", value))
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def _is_canonical(document: bytes) -> bool:
    """Return whether it is certain that a JSON document with sorted keys is as RFC 8785 writes it.

    It is certain if no character is escaped by its number, none is beyond 16 bits (RFC 8785 sorts keys by UTF-16), and
    all numbers are integers of up to 15 digits. False means only that it is not certain.
    """
    if b"\\u" in document or not _LEAD_BYTES_BEYOND_16_BITS.isdisjoint(document):
        return False
    unescaped = document.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in document else document
    outside_strings = unescaped.split(b'"')[::2]
    return _NOT_AN_INTEGER.search(b" ".join(outside_strings)) is None


def tool_arguments(params: Mapping[str, Any]) -> object:
    """Return the arguments of a tools/call; an empty object if there are none."""
    return params.get("arguments", {})


def approved_params(call: Call) -> dict[str, Any]:
    """Return the params of a call as they are sent: with the arguments that those who approved have changed."""
    params = payload.loads_message(call.params, "params")
    approval = call.approval
    if approval is None or approval.arguments is None:
        return params
    return {**params, "arguments": payload.loads(approval.arguments)}


def digest_terms(rule: ApprovalRule) -> str:
    """Return the digest of what a rule asks for: who approves, and how many; not of which calls the rule matches."""
    return canonical_digest([rule.name, rule.needed, rule.not_by_caller, sorted(rule.approvers)])


def make_document(
    call: Call,
    rule: ApprovalRule,
    tool: ToolDefinition,
    params: Mapping[str, Any],
    *,
    reason: str,
    earlier_call_ids: Iterable[str],
) -> bytes:
    """Return the document of a pending request of kind approval, as JSON; docs/approvals.md describes it.

    `earlier_call_ids` are ids of the caller's calls, newest first. Known secrets are redacted; arguments with secrets
    cannot be edited. Raises InvalidArgument for arguments that are no object, and FailedPrecondition
    (APPROVAL_TOO_LARGE) for arguments beyond MAX_SHOWN_BYTES, which nobody could read.
    """
    arguments = tool_arguments(params)
    if not isinstance(arguments, Mapping):
        raise InvalidArgument.field("params.arguments", "must be an object, so that people can be shown what they are")
    arguments = cast("Mapping[str, Any]", arguments)
    size = len(payload.dumps(arguments))
    if size > MAX_SHOWN_BYTES:
        raise FailedPrecondition(
            f"the rule {rule.name!r} wants this call approved, and nobody can read arguments of {size} bytes; "
            f"at most {MAX_SHOWN_BYTES} are shown",
            reason="APPROVAL_TOO_LARGE",
            metadata={"rule": rule.name, "server": call.server},
        )
    visible_tool = {key: tool.entry[key] for key in _VISIBLE_TOOL_MEMBERS if key in tool.entry}
    if len(payload.dumps(visible_tool.get("inputSchema"))) > MAX_SCHEMA_BYTES:
        del visible_tool["inputSchema"]
    document: dict[str, Any] = {
        "message": rule.message,
        "reason": reason,
        "rule": {
            "name": rule.name,
            "needed": rule.needed,
            "not_by_caller": rule.not_by_caller,
            "approvers": list(rule.approvers),
            "edit": rule.edit,
            "remember_s": list(rule.remember),
            "terms": digest_terms(rule),
        },
        "tool": {"name": str(params.get("name")), **visible_tool},
        "arguments": arguments,
        "digest": canonical_digest(arguments),
        "definition": tool.digest,
        "caller": _describe_caller(call),
        "before": list(earlier_call_ids)[:MAX_EARLIER_CALLS],
    }
    if call.server == PEOPLE:  # a host asks whether it may use a tool of its own
        host_members = {"cwd": read_folder(call.server, params), "suggestions": describe_offered_suggestions(params)}
        document |= {key: value for key, value in host_members.items() if value}
    redacted = REDACTION.redact_value(document)
    if redacted["arguments"] != arguments:  # a person cannot change what is hidden without losing it
        redacted["rule"]["edit"] = False
    # Digests are compared later, so redaction must not change them.
    return payload.dumps({**redacted, "digest": document["digest"], "definition": document["definition"]})


def _describe_caller(call: Call) -> dict[str, Any]:
    """Return who makes a call, as those who approve see it; `app` says that a page of an app makes it."""
    origin = call.origin
    return {
        "name": call.principal,
        "host": origin.host,
        "profile": origin.profile,
        "roles": list(origin.roles),
        "app": origin.app,
    }


def read_folder(server: str, params: Mapping[str, Any]) -> str:
    """Return the folder in which a host wants to use its own tool; "" if it does not say, and for other servers."""
    meta: object = params.get("_meta") if server == PEOPLE else None
    folder: object = cast("Mapping[str, Any]", meta).get(CWD) if isinstance(meta, Mapping) else None
    return folder if isinstance(folder, str) else ""


def arguments_digest(request: PendingRequest) -> str:
    """Return the digest of the arguments that are to be approved now, as the last voter may have changed them.

    "" for requests that are not for an approval.
    """
    if request.votes:
        return request.votes[-1].digest
    return str(payload.loads(request.request).get("digest", ""))
