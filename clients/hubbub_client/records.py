"""The records of the hub as frozen dataclasses; `to_json` has every field under its name.

`reading.py` makes them from the hub's messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict, Unpack

from hubbub_client import numbers, payload

Transport = Literal["stdio", "http", "sse"]
ServerState = Literal["disconnected", "connecting", "connected", "disconnecting", "error"]
DesiredState = Literal["connected", "disconnected"]
RequestKind = Literal["elicitation_form", "elicitation_url", "sampling", "roots"]
RequestState = Literal["open", "answered", "withdrawn", "expired"]
DeliveryState = Literal["none", "pending", "delivered", "failed", "late"]
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

EPOCH = numbers.EPOCH
CALL_ENDED: frozenset[CallState] = frozenset(("completed", "failed", "cancelled"))


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records."""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values, times in RFC 3339."""
        return {
            each.name: payload.plain(getattr(self, each.name))
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
    gave_up: bool = False
    defect: str | None = None
    revision: int = 0


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


class Answering(Protocol):
    """What a pending request needs of the inbox that it came from."""

    def answer(
        self,
        id: str,  # noqa: A002 - the field's name
        *,
        accept: Mapping[str, Any] | bool = False,
        decline: bool = False,
        cancel: bool = False,
        text: str | None = None,
        result: Mapping[str, Any] | None = None,
        reject: str | None = None,
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> Awaitable[PendingRequest]:
        """Gives exactly one answer."""
        ...


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
    candidate_call_ids: tuple[str, ...] = ()
    cause_ended: str | None = None
    defect: str | None = None
    _inbox: Answering | None = field(default=None, repr=False, compare=False)

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

    def _how(self, how: How) -> How:
        own = self.claim.id if self.claim is not None else None
        return how if own is None or "claim_id" in how else {**how, "claim_id": own}

    @property
    def _source(self) -> Answering:
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
    perhaps_pending_ids: tuple[str, ...] = ()
    defect: str | None = None

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
    defect: str | None = None


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
        return _text(self.object, "name") or ""

    @property
    def title(self) -> str | None:
        """What people call it."""
        return _text(self.object, "title")

    @property
    def description(self) -> str | None:
        """What it is for."""
        return _text(self.object, "description")

    @property
    def uri(self) -> str | None:
        """Where a resource is; of a template, the pattern of where."""
        return _text(self.object, "uri") or _text(self.object, "uriTemplate")


def _text(value: object, key: str) -> str | None:
    """The text under a key of what a server sent, which need not be an object."""
    found = payload.as_object(value).get(key)
    return found if isinstance(found, str) else None


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
RECORDS["Event"] = RECORDS.pop("Moment")  # PendingRequest.Event
del RECORDS["StateCount"]  # one for each kind of state, in admin.py
