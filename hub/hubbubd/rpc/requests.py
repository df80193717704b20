"""From the messages that callers send to the values that the runtime takes, checked.

Everything here raises InvalidArgument with a violation that names the field, and changes nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2
from hubbubd import bounds, payload
from hubbubd.config import ServerConfig
from hubbubd.config.server import Roots
from hubbubd.core import forms
from hubbubd.core.access import ANY, Grant, Scope
from hubbubd.core.audit import AuditFilter
from hubbubd.core.filters import CallFilter, CatalogFilter, RequestFilter, ServerFilter, TaskFilter
from hubbubd.errors import InvalidArgument
from hubbubd.rpc import auth, convert
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.inbox import MAX_CAPACITY
from hubbubd.runtime.servers import LOG_LINES, EventFilter

R = TypeVar("R")

MAX_ID = 128
MAX_METHOD = 256
MAX_URI = 8192
MAX_NAMES = 1000
MAX_SECONDS = 10_000_000.0
MAX_REJECTION = 4096
MAX_GRANTS = 20
MAX_PATTERNS = 100
MAX_ENTRIES = 1000
"""Entries of a list, or names of a mapping, in the spec of a server: each that is wrong costs several mistakes."""
_CLAIM_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")
MAX_TOKEN_S = 10 * 365 * 86_400.0


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


def lease_s(value: float) -> float:
    """Seconds of a claim; 0 leaves the choice to the hub."""
    if not 0 <= value <= bounds.LONGEST_S:
        raise InvalidArgument.field("ttl_s", f"must be 0 to {bounds.LONGEST_S:.0f} seconds")
    return value


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


def server_config(spec: server_pb2.ServerSpec) -> ServerConfig:
    """A server as it is to be configured; options that the spec leaves out take their defaults."""
    given: dict[str, Any] = {}
    for field, value in spec.ListFields():
        match field.name:
            case "transport":
                given["transport"] = _one(spec.transport, convert.TRANSPORTS, "spec.transport")
            case "roots":
                given["roots"] = value if value == "ask" else _json(value, "spec.roots")
            case name if isinstance(value, str | int | float):
                given[name] = value
            case name:
                given[name] = dict(cast("Mapping[str, str]", value)) if isinstance(value, Mapping) else list(value)
        if isinstance(given[field.name], dict | list) and len(given[field.name]) > MAX_ENTRIES:
            raise InvalidArgument.field(f"spec.{field.name}", f"may have at most {MAX_ENTRIES} entries")
    try:
        return ServerConfig.model_validate(given)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidArgument.fields(
            tuple(
                (".".join(["spec", *map(str, error["loc"])]), error["msg"]) for error in found[: forms.MAX_VIOLATIONS]
            )
        ) from None


def roots(text: str) -> Roots | None:
    """The roots of a server; None for those of its configuration."""
    if not text or text == "ask":
        return text or None
    given = _json(text, "roots")
    if not isinstance(given, list) or not all(map(_is_root, cast("list[object]", given))):
        raise InvalidArgument.field("roots", "must be `ask`, or an array of objects with a `uri` that is file://")
    return tuple(cast("list[dict[str, Any]]", given))


def _is_root(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    root = cast("Mapping[str, object]", value)
    return str(root.get("uri")).startswith("file://") and isinstance(root.get("name", ""), str)


def call_spec(spec: call_pb2.CallSpec) -> CallSpec:
    """A request to send, with its params read."""
    server = identifier(spec.server, "spec.server")
    method = identifier(spec.method, "spec.method", longest=MAX_METHOD)
    call_id = optional(spec.call_id, "spec.call_id")
    timeout_s = _seconds(spec.timeout_s, "spec.timeout_s") if spec.HasField("timeout_s") else None
    max_s = _seconds(spec.max_s, "spec.max_s") if spec.HasField("max_s") else None
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


def given_answer(request: inbox_pb2.AnswerRequestRequest) -> forms.Given:
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


def server_filter(request: server_pb2.WatchServersRequest, within: Scope, seen: Scope) -> ServerFilter:
    """Which servers."""
    return ServerFilter(names=_names(request.names, "names"), scope=within, seen=seen)


def request_filter(chosen: inbox_pb2.RequestFilter, within: Scope) -> RequestFilter:
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


def audit_filter(request: admin_pb2.ListAuditRequest) -> AuditFilter:
    """Which entries of the audit log."""
    return AuditFilter(
        principal=optional(request.principal, "principal") or "",
        action=optional(request.action, "action") or "",
        target=optional(request.target, "target") or "",
        since=bounds.moment(request.since.seconds + request.since.nanos / 1e9) or 0.0,
    )


def catalog_filter(
    request: catalog_pb2.ListCatalogRequest | catalog_pb2.WatchCatalogRequest, within: Scope
) -> CatalogFilter:
    """Which lists of the catalog."""
    kinds = [request.kind] if isinstance(request, catalog_pb2.ListCatalogRequest) else request.kinds
    field = "kind" if isinstance(request, catalog_pb2.ListCatalogRequest) else "kinds"
    return CatalogFilter(
        server=optional(request.server, "server") or "",
        kinds=_any_of(kinds, convert.CATALOG_KINDS, field),
        scope=within,
    )


def event_filter(request: event_pb2.WatchEventsRequest, within: Scope) -> EventFilter:
    """Which events."""
    return EventFilter(
        server=optional(request.server, "server") or "",
        kinds=_any_of(request.kinds, convert.EVENT_KINDS, "kinds"),
        scope=within,
    )


def token_name(name: str) -> str:
    """The name of a token's principal, which no authority and nobody else could have."""
    identifier(name, "name", longest=auth.MAX_NAME)
    if name != name.strip() or ":" in name or name.casefold() == auth.LOCAL or auth.RESERVED.fullmatch(name):
        raise InvalidArgument.field("name", "must have no `:` and no space around it, and not be `local`, `hub` or `*`")
    return name


def token_ttl_s(value: float) -> float | None:
    """Seconds for which a token is good; None for ever."""
    if not 0 <= value <= MAX_TOKEN_S:
        raise InvalidArgument.field("ttl_s", f"must be 0 to {MAX_TOKEN_S:.0f} seconds")
    return value or None


def grants(given: Sequence[admin_pb2.Grant]) -> list[Grant]:
    """What a token may do."""
    if not 1 <= len(given) <= MAX_GRANTS:
        raise InvalidArgument.field("grants", f"must be 1 to {MAX_GRANTS}")
    return [_grant(grant, f"grants.{at}") for at, grant in enumerate(given)]


def _grant(given: admin_pb2.Grant, field: str) -> Grant:
    if len(given.servers) > MAX_PATTERNS:
        raise InvalidArgument.field(f"{field}.servers", f"has more than {MAX_PATTERNS} entries")
    patterns = tuple(identifier(each, f"{field}.servers.{at}") for at, each in enumerate(given.servers))
    return Grant(_one(given.role, convert.ROLES, f"{field}.role"), patterns or (ANY,))


def log_lines(value: int) -> int:
    """How many lines of a log; 0 leaves the choice to the hub."""
    if not 0 <= value <= LOG_LINES:
        raise InvalidArgument.field("lines", f"must be 0 to {LOG_LINES}")
    return value


def _seconds(value: float, field: str) -> float:
    if not 0 < value <= MAX_SECONDS:
        raise InvalidArgument.field(field, f"must be more than 0 seconds and at most {MAX_SECONDS:.0f}")
    return value


def _json(text: str, field: str) -> Any:
    try:
        return payload.loads(text)
    except ValueError as exc:
        raise InvalidArgument.field(field, f"is not valid JSON: {exc}") from None


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
