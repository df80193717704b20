"""The hub's records as frozen dataclasses. `conversion.py` makes them from messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack

from hubbub_client import numbers, payload
from hubbub_client.data.approvals import ApproveOptions
from hubbub_client.data.literals import (
    CallState,
    CauseSource,
    DeliveryState,
    DesiredState,
    EventKind,
    Happening,
    RequestState,
    ServerState,
    TaskRole,
    TaskStatus,
    Transport,
)
from hubbub_client.data.params import RequestKind, TypedParams

EPOCH = numbers.EPOCH
CALL_ENDED: frozenset[CallState] = frozenset(("completed", "failed", "cancelled"))


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields by name as JSON values, times in RFC 3339."""
        return {
            each.name: payload.to_plain(getattr(self, each.name))
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
    """Number of a server's calls in each state."""

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
    trusted: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """A lease on a pending request; only its holder sees the `id`. `host` is the MCP host that it is held for."""

    id: str | None
    by: str | None
    expires_at: datetime | None
    host: str | None = None


@dataclass(frozen=True, kw_only=True)
class AskedHost(Record):
    """An MCP host of the call that caused a pending request; `why_not` says why it was not asked, None if it was."""

    host: str
    why_not: str | None
    decided_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Moment(Record):
    """An event of a pending request, and who caused it; `agent` is true if that was an agent.

    `via` is the program that they used, by the name that the program gives itself.
    """

    at: datetime
    what: Happening | None
    by: str | None
    agent: bool
    via: str | None = None


@dataclass(frozen=True, kw_only=True)
class Approval(Record):
    """One of several approvals that a call needs: who gave it, when, and their comment."""

    by: str
    at: datetime
    comment: str | None = None


class AnswerOptions(TypedDict, total=False):
    """Options of any answer: a claim (default: the record's own, if it has one), and an id for safe repetition."""

    claim_id: str
    answer_id: str


class AnsweringInbox(Protocol):
    """The inbox, as far as a pending request needs it."""

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
        approve: ApproveOptions | bool = False,
        deny: str | None = None,
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> Awaitable[PendingRequest]:
        """Answer a pending request, and return it; exactly one answer is given. Raises as `Inbox.answer`."""
        ...


@dataclass(frozen=True, kw_only=True)
class PendingRequest(Record, TypedParams):
    """A request of a server that a person or an agent answers; `request` has its MCP params, `form` those of a form.

    Its methods answer it through its hub, and return the answered request. They raise as `Inbox.answer`.
    """

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
    hosts: tuple[AskedHost, ...] = ()
    caller_left_at: datetime | None = None
    approvals: tuple[Approval, ...] = ()
    changed_arguments: Any = None
    arguments_digest: str | None = None
    _inbox: AnsweringInbox | None = field(default=None, repr=False, compare=False)

    async def accept(
        self, content: Mapping[str, Any] | None = None, **options: Unpack[AnswerOptions]
    ) -> PendingRequest:
        """Accept an elicitation with the form's `content`, or with the form's defaults."""
        accepted = True if content is None else content
        return await self._inbox_or_raise.answer(self.id, accept=accepted, **self._with_own_claim(options))

    async def decline(self, **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Decline an elicitation."""
        return await self._inbox_or_raise.answer(self.id, decline=True, **self._with_own_claim(options))

    async def cancel(self, **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Cancel an elicitation: neither accept nor decline it."""
        return await self._inbox_or_raise.answer(self.id, cancel=True, **self._with_own_claim(options))

    async def reply_text(self, text: str, **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Answer a sampling with an assistant message."""
        return await self._inbox_or_raise.answer(self.id, text=text, **self._with_own_claim(options))

    async def reply(self, result: Mapping[str, Any], **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Answer a pending request of any kind with the MCP result."""
        return await self._inbox_or_raise.answer(self.id, result=result, **self._with_own_claim(options))

    async def reject(self, message: str, **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Reject a sampling or a roots request with an error message."""
        return await self._inbox_or_raise.answer(self.id, reject=message, **self._with_own_claim(options))

    async def approve(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        remember_s: float = 0.0,
        same_arguments: bool = False,
        suggestions: Sequence[int] = (),
        comment: str = "",
        **options: Unpack[AnswerOptions],
    ) -> PendingRequest:
        """Approve the call of this record, with other `arguments` if given; other options are as `Inbox.approve`."""
        approval: ApproveOptions = {
            "remember_s": remember_s,
            "same_arguments": same_arguments,
            "suggestions": suggestions,
            "comment": comment,
            "digest": self.arguments_digest or "",
        }
        if arguments is not None:
            approval["arguments"] = arguments
        return await self._inbox_or_raise.answer(self.id, approve=approval, **self._with_own_claim(options))

    async def deny(self, reason: str = "", **options: Unpack[AnswerOptions]) -> PendingRequest:
        """Deny the call, with the reason that its caller gets."""
        return await self._inbox_or_raise.answer(self.id, deny=reason, **self._with_own_claim(options))

    def _with_own_claim(self, options: AnswerOptions) -> AnswerOptions:
        """Return the options of an answer with the claim of this record, unless they name one."""
        claim_id = self.claim.id if self.claim is not None else None
        return options if claim_id is None or "claim_id" in options else {**options, "claim_id": claim_id}

    @property
    def _inbox_or_raise(self) -> AnsweringInbox:
        """Return the inbox through which this record is answered. Raises RuntimeError if it comes from no hub."""
        if self._inbox is None:
            raise RuntimeError("this record does not come from a hub")
        return self._inbox


@dataclass(frozen=True, kw_only=True)
class CallOrigin(Record):
    """Where a call came from: its host and profile, its principal's roles, and whether a page of an app made it."""

    host: str | None
    profile: str | None
    roles: tuple[str, ...]
    app: bool = False


@dataclass(frozen=True, kw_only=True)
class CallApproval(Record):
    """The approval that a rule wants for a call: who gave it, or the id of a remembered one, and changed arguments."""

    rule: str
    pending_request_id: str | None
    remembered_id: str | None
    approved_by: tuple[str, ...]
    granted: bool
    changed_arguments: Any


@dataclass(frozen=True, kw_only=True)
class Call(Record):
    """An MCP request to a server, with its state and its outcome."""

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
    approval: CallApproval | None = None
    origin: CallOrigin | None = None

    @property
    def ended(self) -> bool:
        """Return whether the call is completed, failed or cancelled."""
        return self.state in CALL_ENDED


@dataclass(frozen=True, kw_only=True)
class Progress(Record):
    """Progress of a call, as its server reports it."""

    call_id: str
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, kw_only=True)
class CallLog(Record):
    """A log message of a server about a call; `params` are those of notifications/message."""

    call_id: str
    params: Any


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """A task that the hub holds for a server (role `receiver`), or a server for the hub (role `client`)."""

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
    """A notification or a log line of a server, or an event of the hub itself (then `server` is None).

    `params` are the MCP params; `{"line": ...}` for a line on stderr and for a throttled server; the changes (as
    `Reload`) for a reloaded configuration; `{"problem": ...}` for a configuration that is wrong.
    """

    server: str | None
    kind: EventKind
    params: Any
    method: str | None
    call_id: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class ResourceUpdate(Record):
    """The contents of a watched resource: the MCP result of resources/read, or the error."""

    server: str
    uri: str
    result: Any
    error: Fault | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class StateCount(Record):
    """Number of records in one state."""

    state: str
    count: int


@dataclass(frozen=True, kw_only=True)
class StoreStatus(Record):
    """Size and revisions of the store."""

    id: str | None
    revision: int
    compacted_revision: int
    size_bytes: int
    keys: int
    deletions: int
    free_bytes: int


# The record class of each message, by the message's name.
RECORDS: dict[str, type[Record]] = {kind.__name__: kind for kind in Record.__subclasses__()}
RECORDS["Event"] = RECORDS.pop("Moment")  # PendingRequest.Event
del RECORDS["StateCount"]  # admin.py has an entry for each of its messages
