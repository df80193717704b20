"""From the messages that callers send to the values that the runtime takes, checked.

Everything here raises InvalidArgument with a violation that names the field, and changes nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2
from hubbubd import bounds, payload
from hubbubd.core import forms
from hubbubd.core.access import ANY, Grant, Scope
from hubbubd.core.audit import AuditFilter
from hubbubd.core.filters import CallFilter, CatalogFilter, RequestFilter, ServerFilter, TaskFilter
from hubbubd.errors import InvalidArgument
from hubbubd.rpc import auth, convert
from hubbubd.rpc.context import LOCAL
from hubbubd.rpc.spec_fields import seconds
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.inbox import MAX_CAPACITY
from hubbubd.runtime.servers import LOG_LINES, EventFilter

R = TypeVar("R")

MAX_ID = 128
"""Characters of an id or a name."""
MAX_METHOD = 256
"""Characters of an MCP method."""
MAX_URI = 8192
"""Characters of a URI, as many as most HTTP servers take (RFC 9110, section 4.1, asks for 8000)."""
MAX_NAMES = 1000
"""Names in one filter; each is compared with every record."""
MAX_SECONDS = 10_000_000.0
"""The longest time that a caller may ask for, some 115 days: beyond it a mistake is more likely than a wish."""
MAX_REJECTION = 4096
"""Characters of the message with which a sampling is rejected."""
MAX_GRANTS = 20
"""Grants of a token; each is asked for every record that is shown."""
MAX_PATTERNS = 100
"""Patterns of server names in one grant."""
_CLAIM_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")
MAX_TOKEN_S = 10 * 365 * 86_400.0
"""Seconds of the longest life of a token: ten years."""


def identifier(value: str, field: str, *, longest: int = MAX_ID) -> str:
    """A value that names something."""
    if not value:
        raise InvalidArgument.field(field, "must not be empty")
    return optional(value, field, longest=longest) or value


def optional(value: str, field: str, *, longest: int = MAX_ID) -> str | None:
    """A value that names something, or None for an empty one."""
    if len(value) > longest:
        raise InvalidArgument.field(field, f"is {len(value)} characters long; at most {longest} are taken")
    if not value.isprintable():
        raise InvalidArgument.field(field, "has characters that cannot be printed")
    return value or None


def lease_s(value: Duration) -> float:
    """Seconds of a claim; 0 leaves the choice to the hub."""
    found = seconds(value)
    if not 0 <= found <= bounds.LONGEST_S:
        raise InvalidArgument.field("ttl", f"must be 0 to {bounds.LONGEST_S:.0f} seconds")
    return found


def claim_id(value: str) -> str | None:
    """The id that a caller chooses for a claim; None leaves the choice to the hub."""
    if value and not _CLAIM_ID.fullmatch(value):
        raise InvalidArgument.field("claim_id", "must be 16 to 64 letters, digits, `_` and `-`")
    return value or None


def capacity(value: int) -> int:
    """How many requests a worker takes at once."""
    if value > MAX_CAPACITY:
        raise InvalidArgument.field("ready.capacity", f"must be at most {MAX_CAPACITY}")
    return value or 1


def call_spec(spec: call_pb2.CallSpec) -> CallSpec:
    """A request to send, with its params read."""
    server = identifier(spec.server, "spec.server")
    method = identifier(spec.method, "spec.method", longest=MAX_METHOD)
    call_id = optional(spec.call_id, "spec.call_id")
    timeout_s = _limit_s(spec.timeout, "spec.timeout") if spec.HasField("timeout") else None
    max_s = _limit_s(spec.max_duration, "spec.max_duration") if spec.HasField("max_duration") else None
    try:
        return CallSpec(
            server=server,
            method=method,
            params=spec.params,
            call_id=call_id,
            timeout_s=timeout_s,
            max_s=max_s,
            as_task=spec.as_task,
        )
    except InvalidArgument as exc:  # the hub knows the params by their own name
        raise InvalidArgument.fields(tuple((f"spec.{path}", wrong) for path, wrong in exc.violations)) from None


def given_answer(request: inbox_pb2.AnswerPendingRequestRequest) -> forms.Given:
    """What somebody answers; whether it fits the request is the inbox's to say."""
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
            if len(request.reject.message) > MAX_REJECTION:
                raise InvalidArgument.field("reject.message", f"may have {MAX_REJECTION} characters")
            return forms.Reject(request.reject.message)
        case _:
            raise InvalidArgument.field("answer", "must be one of accept, decline, cancel, text, result, reject")


def server_filter(chosen: server_pb2.ServerFilter, within: Scope, seen: Scope) -> ServerFilter:
    """Which servers."""
    return ServerFilter(names=_names(chosen.names, "filter.names"), scope=within, seen=seen)


def request_filter(chosen: inbox_pb2.PendingRequestFilter, within: Scope) -> RequestFilter:
    """Which pending requests."""
    return RequestFilter(
        server=optional(chosen.server, "filter.server") or "",
        kinds=_any_of(chosen.kinds, convert.REQUEST_KINDS, "filter.kinds"),
        states=_any_of(chosen.states, convert.REQUEST_STATES, "filter.states"),
        call_id=optional(chosen.call_id, "filter.call_id") or "",
        scope=within,
    )


def call_filter(chosen: call_pb2.CallFilter, within: Scope) -> CallFilter:
    """Which calls."""
    return CallFilter(
        server=optional(chosen.server, "filter.server") or "",
        states=_any_of(chosen.states, convert.CALL_STATES, "filter.states"),
        ids=_names(chosen.ids, "filter.ids"),
        scope=within,
    )


def task_filter(chosen: task_pb2.TaskFilter, within: Scope) -> TaskFilter:
    """Which tasks."""
    return TaskFilter(
        server=optional(chosen.server, "filter.server") or "",
        role=_one(chosen.role, convert.TASK_ROLES, "filter.role") if chosen.role else None,
        statuses=_any_of(chosen.statuses, convert.TASK_STATUSES, "filter.statuses"),
        scope=within,
    )


def audit_filter(chosen: admin_pb2.AuditFilter) -> AuditFilter:
    """Which entries of the audit log."""
    since = chosen.earliest_created_at
    return AuditFilter(
        principal=optional(chosen.principal, "filter.principal") or "",
        action=optional(chosen.action, "filter.action") or "",
        target=optional(chosen.target, "filter.target") or "",
        since=bounds.moment(since.seconds + since.nanos / 1e9) or 0.0,
    )


def catalog_filter(chosen: catalog_pb2.CatalogFilter, within: Scope) -> CatalogFilter:
    """Which lists of the catalog."""
    return CatalogFilter(
        server=optional(chosen.server, "filter.server") or "",
        kinds=_any_of(chosen.kinds, convert.CATALOG_KINDS, "filter.kinds"),
        scope=within,
    )


def event_filter(chosen: event_pb2.EventFilter, within: Scope) -> EventFilter:
    """Which events."""
    return EventFilter(
        server=optional(chosen.server, "filter.server") or "",
        kinds=_any_of(chosen.kinds, convert.EVENT_KINDS, "filter.kinds"),
        scope=within,
    )


def token_name(name: str) -> str:
    """The name of a token's principal, which no authority and nobody else could have."""
    identifier(name, "name", longest=auth.MAX_NAME)
    if name != name.strip() or ":" in name or name.casefold() == LOCAL or auth.RESERVED.fullmatch(name):
        raise InvalidArgument.field("name", "must have no `:` and no space around it, and not be `local`, `hub` or `*`")
    return name


def token_ttl_s(value: Duration) -> float | None:
    """Seconds for which a token is good; None for ever."""
    found = seconds(value)
    if not 0 <= found <= MAX_TOKEN_S:
        raise InvalidArgument.field("ttl", f"must be 0 to {MAX_TOKEN_S:.0f} seconds")
    return found or None


def grants(given: Sequence[admin_pb2.AccessGrant]) -> list[Grant]:
    """What a token may do."""
    if not 1 <= len(given) <= MAX_GRANTS:
        raise InvalidArgument.field("grants", f"must be 1 to {MAX_GRANTS}")
    return [_grant(grant, f"grants.{at}") for at, grant in enumerate(given)]


def _grant(given: admin_pb2.AccessGrant, field: str) -> Grant:
    if len(given.servers) > MAX_PATTERNS:
        raise InvalidArgument.field(f"{field}.servers", f"has more than {MAX_PATTERNS} entries")
    patterns = tuple(identifier(each, f"{field}.servers.{at}") for at, each in enumerate(given.servers))
    return Grant(_one(given.role, convert.ROLES, f"{field}.role"), patterns or (ANY,))


def log_lines(value: int) -> int:
    """How many lines of a log; 0 leaves the choice to the hub."""
    if not 0 <= value <= LOG_LINES:
        raise InvalidArgument.field("lines", f"must be 0 to {LOG_LINES}")
    return value


def _limit_s(value: Duration, field: str) -> float:
    found = seconds(value)
    if not 0 < found <= MAX_SECONDS:
        raise InvalidArgument.field(field, f"must be more than 0 seconds and at most {MAX_SECONDS:.0f}")
    return found


def _names(values: Iterable[str], field: str) -> frozenset[str]:
    names = frozenset(identifier(value, f"{field}.{at}") for at, value in enumerate(values))
    if len(names) > MAX_NAMES:
        raise InvalidArgument.field(field, f"has {len(names)} entries; at most {MAX_NAMES} are taken")
    return names


def _any_of(numbers: Iterable[int], table: Mapping[R, int], field: str) -> frozenset[R]:
    """The members of a filter; a 0 among them stands for any."""
    chosen = set(numbers)
    return frozenset() if 0 in chosen else frozenset(_one(number, table, field) for number in chosen)


def _one(number: int, table: Mapping[R, int], field: str) -> R:
    for member, value in table.items():
        if value == number:
            return member
    raise InvalidArgument.field(field, f"{number} means nothing here")
