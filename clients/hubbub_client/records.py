"""The records of the hub as frozen dataclasses, and the one converter that reads them from messages.

The converter follows the message's descriptor: JSON bytes become values, enums short lower-case strings, timestamps
aware datetimes; what is unset (an empty string, enum zero) becomes None. `to_json` has every field under its name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hubbub_client import payload

if TYPE_CHECKING:
    from hubbub_client.inbox import Inbox

Transport = Literal["stdio", "http", "sse"]
ServerState = Literal["disconnected", "connecting", "connected", "disconnecting", "error"]
DesiredState = Literal["connected", "disconnected"]
RequestKind = Literal["elicitation_form", "elicitation_url", "sampling", "roots"]
RequestState = Literal["open", "answered", "withdrawn", "expired"]
DeliveryState = Literal["none", "pending", "delivered", "failed"]
CauseSource = Literal["wire", "inferred"]
Happening = Literal["shown", "claimed", "released", "lapsed", "answered", "expired", "withdrawn", "delivered", "failed"]
CallState = Literal["queued", "in_progress", "waiting_input", "completed", "failed", "cancelled"]
EventKind = Literal[
    "progress",
    "log",
    "stderr",
    "resource_updated",
    "list_changed",
    "cancelled",
    "elicitation_complete",
    "task_status",
    "other",
    "throttled",
    "config_reloaded",
    "config_problem",
]
TaskRole = Literal["receiver", "client"]
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
CatalogKind = Literal["tool", "resource", "template", "prompt"]
Freshness = Literal["unknown", "fresh", "stale", "error", "empty"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CALL_ENDED: frozenset[CallState] = frozenset(("completed", "failed", "cancelled"))


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records."""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values, times in RFC 3339."""
        return {
            each.name: _json(getattr(self, each.name))
            for each in dataclasses.fields(self)
            if not each.name.startswith("_")
        }


@dataclass(frozen=True, kw_only=True)
class Fault(Record):
    """Why a connection or a call failed."""

    code: str
    category: str
    message: str | None
    retryable: bool
    help_url: str | None
    details: Any


@dataclass(frozen=True, kw_only=True)
class QueueCounts(Record):
    """How many calls of a server are in each state."""

    queued: int
    in_progress: int
    waiting_input: int
    completed: int
    failed: int
    cancelled: int


@dataclass(frozen=True, kw_only=True)
class Server(Record):
    """One configured MCP server and the hub's connection to it."""

    name: str
    transport: Transport | None
    state: ServerState
    desired_state: DesiredState | None
    protocol_version: str | None
    server_info: Any
    capabilities: Any
    error: Fault | None
    attempt: int
    next_retry_at: datetime | None
    pid: int | None
    queue: QueueCounts | None


@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """A lease on a pending request; `id` is known only to the one who claimed it."""

    id: str | None
    by: str | None
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Moment(Record):
    """Something that happened to a pending request, and who did it: an agent where `agent`."""

    at: datetime
    what: Happening | None
    by: str | None
    agent: bool


class How(TypedDict, total=False):
    """What goes with any answer: the claim it is made under (else the record's own, where it has one), and an id
    that makes it safe to repeat."""

    claim_id: str
    answer_id: str


@dataclass(frozen=True, kw_only=True)
class PendingRequest(Record):
    """One thing that a server asks; `request` is the MCP params. Answers go through the hub that it came from."""

    id: str
    server: str
    kind: RequestKind
    state: RequestState
    delivery: DeliveryState | None
    request: Any
    call_id: str | None
    cause_source: CauseSource | None
    task_id: str | None
    created_at: datetime
    deadline: datetime | None
    claim: Claim | None
    answer: Any
    answered_by: str | None
    reason: str | None
    caller: str | None = None
    answered_at: datetime | None = None
    trace_id: str | None = None
    moments: tuple[Moment, ...] = ()
    _inbox: Inbox | None = field(default=None, repr=False, compare=False)

    async def accept(self, content: Mapping[str, Any] | None = None, **how: Unpack[How]) -> PendingRequest:
        """Agrees to an elicitation with the form's `content`; without it, with the form's defaults."""
        return await self._source.answer(self.id, accept=True if content is None else content, **self._how(how))

    async def decline(self, **how: Unpack[How]) -> PendingRequest:
        """Says no to an elicitation."""
        return await self._source.answer(self.id, decline=True, **self._how(how))

    async def cancel(self, **how: Unpack[How]) -> PendingRequest:
        """Dismisses an elicitation without a choice."""
        return await self._source.answer(self.id, cancel=True, **self._how(how))

    async def reply_text(self, text: str, **how: Unpack[How]) -> PendingRequest:
        """Answers a sampling with an assistant message."""
        return await self._source.answer(self.id, text=text, **self._how(how))

    async def reply(self, result: Mapping[str, Any], **how: Unpack[How]) -> PendingRequest:
        """Answers any kind with the whole MCP result."""
        return await self._source.answer(self.id, result=result, **self._how(how))

    async def reject(self, message: str, **how: Unpack[How]) -> PendingRequest:
        """Refuses a sampling or a roots request."""
        return await self._source.answer(self.id, reject=message, **self._how(how))

    async def take(self, ttl_s: float = 60) -> PendingRequest:
        """Claims it for `ttl_s` seconds; the record that comes back has the claim's id."""
        return await self._source.claim(self.id, ttl_s)

    async def give_back(self) -> PendingRequest:
        """Releases the claim that this record has."""
        return await self._source.release(self.id, (self.claim and self.claim.id) or "")

    def _how(self, how: How) -> How:
        own = self.claim.id if self.claim is not None else None
        return how if own is None or "claim_id" in how else {**how, "claim_id": own}

    @property
    def _source(self) -> Inbox:
        if self._inbox is None:
            raise RuntimeError("this record does not come from a hub")
        return self._inbox


@dataclass(frozen=True, kw_only=True)
class Call(Record):
    """One MCP request and what became of it."""

    id: str
    server: str
    method: str
    params: Any
    state: CallState
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    result: Any
    error: Fault | None
    pending_ids: tuple[str, ...]
    task_id: str | None
    trace_id: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in CALL_ENDED


@dataclass(frozen=True, kw_only=True)
class Progress(Record):
    """How far a call has come, as its server says."""

    call_id: str
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, kw_only=True)
class CallLog(Record):
    """One log line of a server about a call; `params` are those of notifications/message."""

    call_id: str
    params: Any


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """A task that the hub holds for a server (receiver), or a server for the hub (client)."""

    id: str
    server: str
    role: TaskRole
    status: TaskStatus
    status_message: str | None
    method: str | None
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int | None
    poll_interval_ms: int | None
    call_id: str | None
    pending_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ServerEvent(Record):
    """One thing that a server told, or the hub: then `server` is None.

    `params` is the MCP params, of a line on stderr and of a throttled server `{"line": ...}`; of a configuration that
    was read again what is different, that of `Reload`, and of one that is wrong `{"problem": ...}`.
    """

    server: str | None
    kind: EventKind
    params: Any
    method: str | None
    call_id: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class ResourceUpdate(Record):
    """A watched resource as it was read: the MCP result of resources/read, or why there is none."""

    server: str
    uri: str
    result: Any
    error: Fault | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class CatalogList(Record):
    """One list of what a server offers, and how far it can be relied on."""

    id: str
    server: str
    kind: CatalogKind
    freshness: Freshness
    fetched_at: datetime | None
    error: Fault | None
    count: int


@dataclass(frozen=True, kw_only=True)
class CatalogEntry(Record):
    """One thing that a server offers; `object` is the MCP Tool, Resource, ResourceTemplate or Prompt."""

    server: str
    kind: CatalogKind
    object: Any

    @property
    def name(self) -> str:
        """What it is called by."""
        return self.object["name"]

    @property
    def title(self) -> str | None:
        """What people call it."""
        return self.object.get("title")

    @property
    def description(self) -> str | None:
        """What it is for."""
        return self.object.get("description")

    @property
    def uri(self) -> str | None:
        """Where a resource is; of a template, the pattern of where."""
        return self.object.get("uri") or self.object.get("uriTemplate")


@dataclass(frozen=True, kw_only=True)
class StateCount(Record):
    """How many of a thing are in one state."""

    state: str
    count: int


@dataclass(frozen=True, kw_only=True)
class StoreStatus(Record):
    """The store in numbers."""

    id: str | None
    revision: int
    compacted_revision: int
    size_bytes: int
    keys: int
    deletions: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class Compaction(Record):
    """What compacting the store was good for; `deleted` counts records."""

    deleted: int
    before: StoreStatus | None
    after: StoreStatus | None


# The record of each message, by the message's name.
RECORDS: dict[str, type[Record]] = {kind.__name__: kind for kind in Record.__subclasses__()}

R = TypeVar("R", bound=Record)


def read(kind: type[R], message: Message) -> R:
    """The record of a message."""
    return kind(**{name: value(message) for name, value in _readers(message.DESCRIPTOR)})


def enum_number(enum: EnumDescriptor, name: str) -> Any:
    """The number of a short name such as `connected`. Raises ValueError, naming those there are."""
    prefix = _prefix(enum)
    known = [each.name.removeprefix(prefix).lower() for each in enum.values if each.number]
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    return enum.values_by_name[prefix + name.upper()].number


def enum_numbers(enum: EnumDescriptor, names: Collection[str]) -> list[Any]:
    """The numbers of several short names. Raises ValueError as `enum_number` does."""
    return [enum_number(enum, name) for name in names]


def _prefix(enum: EnumDescriptor) -> str:
    zero = enum.values_by_number[0].name
    return zero.removesuffix("UNSPECIFIED")


@cache
def _readers(message: Descriptor) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """For each field, how to take its value out of a message."""
    return tuple((each.name, _reader(each)) for each in message.fields)


def _reader(spec: FieldDescriptor) -> Callable[[Any], Any]:
    name, convert = spec.name, _converter(spec)
    if spec.is_repeated:
        return lambda message: tuple(convert(item) for item in getattr(message, name))
    if spec.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _converter(spec: FieldDescriptor) -> Callable[[Any], Any]:
    match spec.type:
        case FieldDescriptor.TYPE_BYTES:
            return payload.loads
        case FieldDescriptor.TYPE_STRING:
            return lambda value: value or None
        case FieldDescriptor.TYPE_ENUM:
            assert spec.enum_type is not None
            prefix = _prefix(spec.enum_type)
            short = {each.number: each.name.removeprefix(prefix).lower() for each in spec.enum_type.values}
            # A number that this client does not know yet comes from a newer hub.
            return lambda number: short.get(number, str(number)) if number else None
        case FieldDescriptor.TYPE_MESSAGE:
            assert spec.message_type is not None
            if spec.message_type.full_name == "google.protobuf.Timestamp":
                return lambda value: EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
            kind = RECORDS[spec.message_type.name]
            return lambda value: read(kind, value)
        case _:
            return lambda value: value


def _json(value: object) -> Any:
    match value:
        case Record():
            return value.to_json()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case tuple():
            return [_json(item) for item in cast("tuple[object, ...]", value)]
        case _:
            return value
