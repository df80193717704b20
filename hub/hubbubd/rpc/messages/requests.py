"""Validates what callers send, and converts it to the runtime's values.

Everything here raises InvalidArgument with a violation that names the field, and has no effects.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, mcp_pb2, server_pb2, task_pb2
from hubbub_shared.durations import to_seconds
from hubbubd import bounds, payload
from hubbubd.config.sections.approvals import MAX_REMEMBERED_S
from hubbubd.config.sections.mcp import LONGEST_HOLD_S
from hubbubd.core.access import ANY, Grant, Scope
from hubbubd.core.audit import AuditFilter
from hubbubd.core.calls.call_states import CallOrigin
from hubbubd.core.filters import CallFilter, CatalogFilter, RequestFilter, ServerFilter, TaskFilter
from hubbubd.core.inbox import forms
from hubbubd.errors import InvalidArgument
from hubbubd.rpc.auth import gate as auth
from hubbubd.rpc.context import LOCAL
from hubbubd.rpc.messages import api_records
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.inbox import MAX_CAPACITY
from hubbubd.runtime.oversight import HostFilter
from hubbubd.runtime.servers import LOG_LINES, EventFilter

R = TypeVar("R")

MAX_ID = 128
"""Characters of an id or a name."""
MAX_METHOD = 256
"""Characters of an MCP method."""
MAX_URI = bounds.LONGEST_URI
"""Characters of a URI, as many as most HTTP servers take (RFC 9110, section 4.1, asks for 8000)."""
MAX_NAMES = 1000
"""Names in one filter; each is compared with every record."""
MAX_SECONDS = 10_000_000.0
"""The longest time that a caller may ask for, some 115 days: beyond it a mistake is more likely than a wish."""
MAX_REMARK = 4096
"""The most characters of a remark: the reason of a rejection or denial, or the comment on an approval."""
MAX_GRANTS = 20
"""Grants of a token; each is asked for every record that is shown."""
MAX_PATTERNS = 100
"""Patterns of server names in one grant."""
_CLAIM_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")
MAX_TOKEN_S = 10 * 365 * 86_400.0
"""Seconds of the longest lifetime of a token: ten years."""


def identifier(value: str, field: str, *, longest: int = MAX_ID) -> str:
    """Return a non-empty id or name."""
    if not value:
        raise InvalidArgument.field(field, "must not be empty")
    return optional_identifier(value, field, longest=longest) or value


def optional_identifier(value: str, field: str, *, longest: int = MAX_ID) -> str | None:
    """Return an id or name, or None if empty."""
    if len(value) > longest:
        raise InvalidArgument.field(field, f"is {len(value)} characters long; at most {longest} are taken")
    if not value.isprintable():
        raise InvalidArgument.field(field, "has characters that cannot be printed")
    return value or None


def lease_s(value: Duration) -> float:
    """Return a claim's duration in seconds; 0 leaves the duration to the hub."""
    return span_s(value, "ttl")


def claim_id(value: str) -> str | None:
    """Return the caller's id for a claim (a lease on a pending request); None has the hub make an id."""
    if value and not _CLAIM_ID.fullmatch(value):
        raise InvalidArgument.field("claim_id", "must be 16 to 64 letters, digits, `_` and `-`")
    return value or None


def worker_capacity(value: int) -> int:
    """Return a worker's capacity, at least 1."""
    if not 0 <= value <= MAX_CAPACITY:
        raise InvalidArgument.field("ready.capacity", f"must be 0 to {MAX_CAPACITY}")
    return value or 1


def parse_call_spec(spec: call_pb2.CallSpec, origin: CallOrigin) -> CallSpec:
    """Return the spec of a call; `origin` is where the call comes from."""
    server = identifier(spec.server, "spec.server")
    method = identifier(spec.method, "spec.method", longest=MAX_METHOD)
    call_id = optional_identifier(spec.call_id, "spec.call_id")
    timeout_s = _parse_limit_s(spec.timeout, "spec.timeout") if spec.HasField("timeout") else None
    max_s = _parse_limit_s(spec.max_duration, "spec.max_duration") if spec.HasField("max_duration") else None
    try:
        return CallSpec(
            server=server,
            method=method,
            params=spec.params,
            call_id=call_id,
            timeout_s=timeout_s,
            max_s=max_s,
            as_task=spec.as_task,
            origin=origin,
        )
    except InvalidArgument as exc:  # CallSpec names its fields without the API's prefix
        raise InvalidArgument.fields(tuple((f"spec.{path}", wrong) for path, wrong in exc.violations)) from None


def wait_s(start: call_pb2.StreamCallsRequest.Start) -> float:
    """Return for how many seconds the caller of a call on a stream waits."""
    return _parse_limit_s(start.wait, "start.wait")


def max_response_bytes(
    step: call_pb2.StreamCallsRequest.Start | call_pb2.StreamCallsRequest.Answer, name: str
) -> int | None:
    """Return the longest response that the caller on a stream of calls takes; None leaves the limit to the hub."""
    if step.max_response_bytes < 0:
        raise InvalidArgument.field(f"{name}.max_response_bytes", "must not be negative")
    return step.max_response_bytes or None


def followed_call_id(start: call_pb2.StreamCallsRequest.Start) -> str:
    """Return the id by which a call on a stream is followed, or its pending requests are found."""
    return identifier(start.request.spec.call_id, "start.request.spec.call_id")


def answered_requests(start: call_pb2.StreamCallsRequest.Start, within: Scope) -> RequestFilter:
    """Return the filter of the pending requests that the caller of a call on a stream answers for that call."""
    return RequestFilter(
        kinds=_parse_filter_values(start.answers, api_records.REQUEST_KINDS, "start.answers"),
        call_id=followed_call_id(start),
        scope=within,
    )


def parse_answer(
    request: inbox_pb2.AnswerPendingRequestRequest, groups: frozenset[str] = frozenset()
) -> forms.ClientAnswer:
    """Return the answer of a caller with these `groups`; whether it fits the request, the inbox checks."""
    match request.WhichOneof("answer"):
        case "accept":
            content = request.accept.content
            return forms.Accept(payload.loads_object(content, "accept.content") if content else None)
        case "decline":
            return forms.Decline()
        case "cancel":
            return forms.Dismiss()
        case "text":
            return forms.Text(request.text)
        case "result":
            return forms.Result(payload.loads_message(request.result, "result"))
        case "reject":
            return forms.Reject(_check_remark(request.reject.message, "reject.message"))
        case "approve":
            return _parse_approve(request.approve, groups)
        case "deny":
            return forms.Deny(reason=_check_remark(request.deny.reason, "deny.reason"), groups=groups)
        case _:
            raise InvalidArgument.field(
                "answer", "must be one of accept, decline, cancel, text, result, reject, approve, deny"
            )


def _parse_approve(approve: inbox_pb2.AnswerPendingRequestRequest.Approve, groups: frozenset[str]) -> forms.Approve:
    """Return the approval of a caller with these groups."""
    remember_s = to_seconds(approve.remember)
    if not 0 <= remember_s <= MAX_REMEMBERED_S:
        raise InvalidArgument.field("approve.remember", f"must be 0 to {MAX_REMEMBERED_S:.0f} seconds")
    return forms.Approve(
        arguments=payload.loads_object(approve.arguments, "approve.arguments") if approve.arguments else None,
        remember_s=remember_s,
        same_arguments=approve.same_arguments,
        suggestions=tuple(approve.suggestions),
        comment=_check_remark(approve.comment, "approve.comment"),
        digest=optional_identifier(approve.digest, "approve.digest") or "",
        groups=groups,
    )


def _check_remark(text: str, field: str) -> str:
    """Return the remark of an answer unchanged. Raises InvalidArgument if it has more than MAX_REMARK characters."""
    if len(text) > MAX_REMARK:
        raise InvalidArgument.field(field, f"may have {MAX_REMARK} characters")
    return text


def server_filter(chosen: server_pb2.ServerFilter, within: Scope, seen: Scope) -> ServerFilter:
    """Return a filter of servers; `within` are those the caller may know of, `seen` those whose details it may see."""
    return ServerFilter(names=_parse_names(chosen.names, "filter.names"), scope=within, full_scope=seen)


def request_filter(chosen: inbox_pb2.PendingRequestFilter, within: Scope) -> RequestFilter:
    """Return a filter of pending requests within the caller's scope."""
    return RequestFilter(
        server=optional_identifier(chosen.server, "filter.server") or "",
        kinds=_parse_filter_values(chosen.kinds, api_records.REQUEST_KINDS, "filter.kinds"),
        states=_parse_filter_values(chosen.states, api_records.REQUEST_STATES, "filter.states"),
        call_id=optional_identifier(chosen.call_id, "filter.call_id") or "",
        scope=within,
    )


def call_filter(chosen: call_pb2.CallFilter, within: Scope) -> CallFilter:
    """Return a filter of calls within the caller's scope."""
    return CallFilter(
        server=optional_identifier(chosen.server, "filter.server") or "",
        states=_parse_filter_values(chosen.states, api_records.CALL_STATES, "filter.states"),
        ids=_parse_names(chosen.ids, "filter.ids"),
        scope=within,
    )


def task_filter(chosen: task_pb2.TaskFilter, within: Scope) -> TaskFilter:
    """Return a filter of tasks within the caller's scope."""
    return TaskFilter(
        server=optional_identifier(chosen.server, "filter.server") or "",
        role=_find_member(chosen.role, api_records.TASK_ROLES, "filter.role") if chosen.role else None,
        statuses=_parse_filter_values(chosen.statuses, api_records.TASK_STATUSES, "filter.statuses"),
        scope=within,
    )


def audit_filter(chosen: admin_pb2.AuditFilter) -> AuditFilter:
    """Return a filter of audit entries."""
    since = chosen.earliest_created_at
    return AuditFilter(
        principal=optional_identifier(chosen.principal, "filter.principal") or "",
        action=optional_identifier(chosen.action, "filter.action") or "",
        target=optional_identifier(chosen.target, "filter.target") or "",
        since=bounds.clamp_moment(since.seconds + since.nanos / 1e9) or 0.0,
    )


def catalog_filter(chosen: catalog_pb2.CatalogFilter, within: Scope) -> CatalogFilter:
    """Return a filter of catalog lists within the caller's scope."""
    return CatalogFilter(
        server=optional_identifier(chosen.server, "filter.server") or "",
        kinds=_parse_filter_values(chosen.kinds, api_records.CATALOG_KINDS, "filter.kinds"),
        scope=within,
    )


def event_filter(chosen: event_pb2.EventFilter, within: Scope) -> EventFilter:
    """Return a filter of events within the caller's scope."""
    return EventFilter(
        server=optional_identifier(chosen.server, "filter.server") or "",
        kinds=_parse_filter_values(chosen.kinds, api_records.EVENT_KINDS, "filter.kinds"),
        scope=within,
    )


def token_names(chosen: admin_pb2.TokenFilter) -> frozenset[str]:
    """Return the names of a filter of tokens; an empty set means all."""
    return _parse_names(chosen.names, "filter.names")


def host_filter(chosen: mcp_pb2.HostFilter) -> HostFilter:
    """Return a filter of connected hosts."""
    return HostFilter(
        principals=_parse_names(chosen.principals, "filter.principals"),
        ids=_parse_names(chosen.ids, "filter.ids"),
        call_ids=_parse_names(chosen.call_ids, "filter.call_ids"),
    )


def token_name(name: str) -> str:
    """Return the name of a new token's principal: none that an authority could give or the hub uses itself."""
    identifier(name, "name", longest=auth.MAX_NAME)
    if name != name.strip() or ":" in name or name.casefold() == LOCAL or auth.RESERVED.fullmatch(name):
        raise InvalidArgument.field("name", "must have no `:` and no space around it, and not be `local`, `hub` or `*`")
    return name


def token_ttl_s(value: Duration) -> float | None:
    """Return a token's lifetime in seconds; None for a token without an end."""
    ttl_s = to_seconds(value)
    if not 0 <= ttl_s <= MAX_TOKEN_S:
        raise InvalidArgument.field("ttl", f"must be 0 to {MAX_TOKEN_S:.0f} seconds")
    return ttl_s or None


def token_hold_s(request: admin_pb2.CreateTokenRequest) -> float | None:
    """Return for how many seconds requests of hosts are held; None leaves that to the profile."""
    if not request.HasField("hold"):
        return None
    hold_s = to_seconds(request.hold)
    if not 0 <= hold_s <= LONGEST_HOLD_S:
        raise InvalidArgument.field("hold", f"must be 0 to {LONGEST_HOLD_S} seconds")
    return hold_s


def parse_grants(grants: Sequence[admin_pb2.AccessGrant]) -> list[Grant]:
    """Return a token's grants, at least one."""
    if not 1 <= len(grants) <= MAX_GRANTS:
        raise InvalidArgument.field("grants", f"must be 1 to {MAX_GRANTS}")
    return [_parse_grant(grant, f"grants.{at}") for at, grant in enumerate(grants)]


def _parse_grant(grant: admin_pb2.AccessGrant, field: str) -> Grant:
    """Return a grant; without patterns it is for all servers."""
    if len(grant.servers) > MAX_PATTERNS:
        raise InvalidArgument.field(f"{field}.servers", f"has more than {MAX_PATTERNS} entries")
    patterns = tuple(identifier(each, f"{field}.servers.{at}") for at, each in enumerate(grant.servers))
    return Grant(_find_member(grant.role, api_records.ROLES, f"{field}.role"), patterns or (ANY,))


def span_s(value: Duration, field: str) -> float:
    """Return a time in seconds that is not negative."""
    seconds = to_seconds(value)
    if not 0 <= seconds <= bounds.LONGEST_S:
        raise InvalidArgument.field(field, f"must be 0 to {bounds.LONGEST_S:.0f} seconds")
    return seconds


def names(values: Sequence[str], field: str) -> tuple[str, ...]:
    """Return several names in their order."""
    _parse_names(values, field)
    return tuple(values)


def log_lines(value: int) -> int:
    """Return the number of log lines; 0 leaves the number to the hub."""
    if not 0 <= value <= LOG_LINES:
        raise InvalidArgument.field("lines", f"must be 0 to {LOG_LINES}")
    return value


def _parse_limit_s(value: Duration, field: str) -> float:
    """Return a limit of time in seconds, more than 0 and at most MAX_SECONDS."""
    seconds = to_seconds(value)
    if not 0 < seconds <= MAX_SECONDS:
        raise InvalidArgument.field(field, f"must be more than 0 seconds and at most {MAX_SECONDS:.0f}")
    return seconds


def _parse_names(values: Iterable[str], field: str) -> frozenset[str]:
    """Return the names of a filter, none empty, at most MAX_NAMES."""
    names = frozenset(identifier(value, f"{field}.{at}") for at, value in enumerate(values))
    if len(names) > MAX_NAMES:
        raise InvalidArgument.field(field, f"has {len(names)} entries; at most {MAX_NAMES} are taken")
    return names


def _parse_filter_values(numbers: Iterable[int], table: Mapping[R, int], field: str) -> frozenset[R]:
    """Return the members that a filter chooses; empty, which means any, if 0 (unspecified) is among the numbers."""
    chosen = set(numbers)
    return frozenset() if 0 in chosen else frozenset(_find_member(number, table, field) for number in chosen)


def _find_member(number: int, table: Mapping[R, int], field: str) -> R:
    """Return the member that has this number in the API. Raises InvalidArgument for an unknown number."""
    for member, value in table.items():
        if value == number:
            return member
    raise InvalidArgument.field(field, f"{number} is no known value")
