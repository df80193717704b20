"""Converts the hub's records to messages of the API. Payloads are JSON bytes already and pass through unchanged."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, common_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2
from hubbubd import payload
from hubbubd.config.servers.server import TransportName
from hubbubd.core.access import Grant, Principal, Role, Scope
from hubbubd.core.audit import AuditEntry, AuditKind
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.inbox.request_states import (
    CauseSource,
    Delivery,
    PendingRequest,
    RequestEventType,
    RequestKind,
    RequestState,
)
from hubbubd.core.logins.issued import TokenLogin
from hubbubd.core.servers.catalog import CatalogKind, CatalogList, Freshness
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.core.servers.server_record import QueueCounts, ServerRecord
from hubbubd.core.tasks import Task, TaskRole, TaskStatus
from hubbubd.errors import Category, Fault
from hubbubd.rpc.messages import approval_records
from hubbubd.rpc.messages.fallback import never_failing
from hubbubd.rpc.messages.values import millis, text, timestamp
from hubbubd.runtime.calls import LogEvent, ProgressEvent
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.oversight import Token
from hubbubd.runtime.servers import ResourceUpdate, ServerEvent, ServerEventKind
from hubbubd.store import StoreStats

E = TypeVar("E", bound=StrEnum)


def _enum_numbers(members: type[E], number: Callable[[str], Any], prefix: str) -> Mapping[E, Any]:
    """Return the API's number of each member. Fails on import if the API lacks a member."""
    return MappingProxyType({member: number(f"{prefix}_{member.name}") for member in members})


TRANSPORTS: Mapping[TransportName, Any] = MappingProxyType(
    {
        "stdio": server_pb2.TRANSPORT_STDIO,
        "http": server_pb2.TRANSPORT_HTTP,
        "sse": server_pb2.TRANSPORT_SSE,
    }
)
SERVER_STATES = _enum_numbers(ConnectionState, server_pb2.ServerState.Value, "SERVER_STATE")
REQUEST_KINDS = _enum_numbers(RequestKind, inbox_pb2.PendingRequestKind.Value, "PENDING_REQUEST_KIND")
REQUEST_STATES = _enum_numbers(RequestState, inbox_pb2.PendingRequestState.Value, "PENDING_REQUEST_STATE")
DELIVERIES = _enum_numbers(Delivery, inbox_pb2.DeliveryState.Value, "DELIVERY_STATE")
CAUSE_SOURCES = _enum_numbers(CauseSource, inbox_pb2.CauseSource.Value, "CAUSE_SOURCE")
REQUEST_EVENT_TYPES = _enum_numbers(RequestEventType, inbox_pb2.PendingRequest.EventType.Value, "EVENT_TYPE")
CALL_STATES = _enum_numbers(CallState, call_pb2.CallState.Value, "CALL_STATE")
EVENT_KINDS = _enum_numbers(ServerEventKind, event_pb2.EventKind.Value, "EVENT_KIND")
TASK_ROLES = _enum_numbers(TaskRole, task_pb2.TaskRole.Value, "TASK_ROLE")
TASK_STATUSES = _enum_numbers(TaskStatus, task_pb2.TaskStatus.Value, "TASK_STATUS")

CATALOG_KINDS = _enum_numbers(CatalogKind, catalog_pb2.CatalogKind.Value, "CATALOG_KIND")
AUDIT_KINDS = _enum_numbers(AuditKind, admin_pb2.AuditKind.Value, "AUDIT_KIND")
PEERS: Mapping[str, Any] = MappingProxyType(
    {
        "loopback": admin_pb2.PEER_KIND_LOOPBACK,
        "unix": admin_pb2.PEER_KIND_UNIX,
        "network": admin_pb2.PEER_KIND_NETWORK,
    }
)
FAULT_CATEGORIES = _enum_numbers(Category, common_pb2.FaultCategory.Value, "FAULT_CATEGORY")
ROLES = _enum_numbers(Role, admin_pb2.AccessRole.Value, "ACCESS_ROLE")
SEVERITIES = _enum_numbers(Severity, admin_pb2.Finding.Severity.Value, "SEVERITY")
FRESHNESS = _enum_numbers(Freshness, catalog_pb2.Freshness.Value, "FRESHNESS")


STDERR = "stderr"
"""The fault detail with lines of a server's log, shown only with the permission `see`."""


def fault(record: Fault | None, *, details: bool, log: bool) -> common_pb2.Fault | None:
    """Return a fault as a message; None for None.

    `details` says whether its details are shown, `log` whether lines of the server's log are among them.
    """
    if record is None:
        return None
    shown = {key: value for key, value in record.details.items() if log or key != STDERR} if details else {}
    return common_pb2.Fault(
        code=record.code,
        category=FAULT_CATEGORIES[record.category],
        message=text(record.message),
        retryable=record.retryable,
        help_url=record.help_url,
        details=payload.dumps(shown),
    )


def counts(record: QueueCounts) -> server_pb2.QueueCounts:
    """Return the numbers of calls of a server, by state."""
    return server_pb2.QueueCounts(
        queued=record.queued,
        in_progress=record.in_progress,
        waiting_input=record.waiting_input,
        completed=record.completed,
        failed=record.failed,
        cancelled=record.cancelled,
    )


@never_failing
def server(record: ServerRecord, seen: Scope) -> server_pb2.Server:
    """Return a server; without fault details, counts and notes if it is not in `seen`."""
    is_visible = seen.has_server(record.name)
    connection = record.connection
    desired_state = server_pb2.DESIRED_STATE_CONNECTED if record.wanted else server_pb2.DESIRED_STATE_DISCONNECTED
    return server_pb2.Server(
        name=record.name,
        transport=TRANSPORTS[record.config.transport],
        state=SERVER_STATES[connection.state],
        desired_state=desired_state,
        protocol_version=text(record.protocol_version),
        server_info=record.server_info or b"",
        capabilities=record.capabilities or b"",
        error=fault(connection.fault, details=is_visible, log=is_visible),
        attempt=connection.attempt,
        next_retry_at=timestamp(connection.next_retry_at),
        pid=record.pid,
        queue=counts(record.counts) if is_visible else None,
        gave_up=connection.gave_up,
        defect=text(record.defect),
        revision=record.revision,
        trusted=record.trusted,
        notes=map(text, record.notes) if is_visible else (),
    )


@never_failing
def request(record: PendingRequest, *, with_claim_id: bool = False) -> inbox_pb2.PendingRequest:
    """Return a pending request. The claim's id is a secret (fencing token), only for the holder."""
    claim = record.claim
    return inbox_pb2.PendingRequest(
        id=record.id,
        server=record.server,
        kind=REQUEST_KINDS[record.kind],
        state=REQUEST_STATES[record.state],
        delivery=DELIVERIES[record.delivery],
        request=record.request,
        call_id=record.call_id or "",
        cause_source=CAUSE_SOURCES[record.cause_source] if record.cause_source else inbox_pb2.CAUSE_SOURCE_UNSPECIFIED,
        task_id=record.task_id or "",
        created_at=timestamp(record.created_at),
        expires_at=timestamp(record.deadline),
        claim=claim
        and inbox_pb2.PendingRequest.Claim(
            id=claim.id if with_claim_id else "",
            by=text(claim.by),
            expires_at=timestamp(claim.expires_at),
            host=text(claim.host),
        ),
        answer=record.answer.payload if record.answer else b"",
        answered_by=text(record.answered_by),
        reason=text(record.reason),
        caller=text(record.principal),
        answered_at=timestamp(record.answered_at),
        candidate_call_ids=record.candidate_call_ids,
        cause_ended=record.cause_ended or "",
        trace_id=record.trace.trace_id if record.trace else "",
        events=[
            inbox_pb2.PendingRequest.Event(
                occurred_at=timestamp(moment.at),
                type=REQUEST_EVENT_TYPES[moment.what],
                by=text(moment.by),
                agent=moment.agent,
                via=text(moment.via),
            )
            for moment in record.moments
        ],
        defect=text(record.defect),
        hosts=[
            inbox_pb2.PendingRequest.AskedHost(
                host=text(each.host), why_not=text(each.why_not), decided_at=timestamp(each.at)
            )
            for each in record.hosts
        ],
        caller_left_at=timestamp(record.caller_left_at),
        approvals=approval_records.votes(record.votes),
        changed_arguments=record.changed or b"",
        arguments_digest=approval_records.digest_to_approve(record),
    )


@never_failing
def call(record: Call, seen: Scope) -> call_pb2.Call:
    """Return a call; without the server's log if its server is not in `seen`."""
    return call_pb2.Call(
        id=record.id,
        server=record.server,
        method=record.method,
        params=record.params,
        state=CALL_STATES[record.state],
        created_at=timestamp(record.created_at),
        started_at=timestamp(record.started_at),
        completed_at=timestamp(record.completed_at),
        result=record.result or b"",
        error=fault(record.fault, details=True, log=seen.has_server(record.server)),
        pending_request_ids=record.pending_ids,
        perhaps_pending_request_ids=record.perhaps_pending_ids,
        task_id=record.task_id or "",
        trace_id=record.trace.trace_id if record.trace else "",
        defect=text(record.defect),
        approval=approval_records.approval(record.approval),
        origin=approval_records.origin(record.origin),
    )


@never_failing
def progress(event: ProgressEvent) -> call_pb2.Progress:
    """Return the progress of a call."""
    return call_pb2.Progress(
        call_id=event.call_id, progress=event.progress, total=event.total, message=text(event.message)
    )


@never_failing
def call_log(event: LogEvent) -> call_pb2.CallLog:
    """Return a log message of a call."""
    return call_pb2.CallLog(call_id=event.call_id, params=event.params)


@never_failing
def task(record: Task) -> task_pb2.Task:
    """Return a task of either role."""
    return task_pb2.Task(
        id=text(record.id),
        server=record.server,
        role=TASK_ROLES[record.role],
        status=TASK_STATUSES[record.status],
        status_message=text(record.status_message),
        method=record.method,
        created_at=timestamp(record.created_at),
        last_updated_at=timestamp(record.last_updated_at),
        ttl=millis(record.ttl_ms),
        poll_interval=millis(record.poll_interval_ms),
        call_id=record.call_id or "",
        pending_request_ids=record.pending_ids,
        defect=text(record.defect),
    )


@never_failing
def catalog_list(record: CatalogList, seen: Scope) -> catalog_pb2.CatalogList:
    """Return a catalog list without its entries; without fault details if its server is not in `seen`."""
    return catalog_pb2.CatalogList(
        id=record.id,
        server=record.server,
        kind=CATALOG_KINDS[record.kind],
        freshness=FRESHNESS[record.freshness],
        fetched_at=timestamp(record.fetched_at),
        error=fault(record.fault, details=(is_visible := seen.has_server(record.server)), log=is_visible),
        count=record.count,
    )


@never_failing
def event(record: ServerEvent) -> event_pb2.ServerEvent:
    """Return an event of a server."""
    return event_pb2.ServerEvent(
        server=record.server,
        kind=EVENT_KINDS[record.kind],
        params=record.params,
        method=text(record.method),
        call_id=record.call_id or "",
        occurred_at=timestamp(record.at),
    )


@never_failing
def resource_update(record: ResourceUpdate, seen: Scope) -> event_pb2.ResourceUpdate:
    """Return a resource as read; without the server's log if its server is not in `seen`."""
    return event_pb2.ResourceUpdate(
        server=record.server,
        uri=text(record.uri),
        result=record.result or b"",
        error=fault(record.fault, details=True, log=seen.has_server(record.server)),
        read_at=timestamp(record.at),
    )


@never_failing
def audit_entry(record: AuditEntry) -> admin_pb2.AuditEntry:
    """Return an entry of the audit log."""
    return admin_pb2.AuditEntry(
        id=record.id,
        kind=AUDIT_KINDS[record.kind],
        created_at=timestamp(record.created_at),
        principal=record.principal,
        credential=record.credential,
        peer=PEERS.get(record.peer, admin_pb2.PEER_KIND_UNSPECIFIED),
        action=record.action,
        target=record.target,
        outcome=record.outcome,
        trace_id=record.trace_id,
        count=record.count,
    )


@never_failing
def store(stats: StoreStats) -> admin_pb2.StoreStatus:
    """Return the size and revisions of the store."""
    return admin_pb2.StoreStatus(
        id=stats.id,
        revision=stats.revision,
        compacted_revision=stats.compacted_revision,
        size_bytes=stats.size_bytes,
        keys=stats.keys,
        deletions=stats.deletions,
        free_bytes=stats.free_bytes,
    )


@never_failing
def finding(found: Finding) -> admin_pb2.Finding:
    """Return a finding of the diagnostics."""
    return admin_pb2.Finding(
        about=found.about,
        severity=SEVERITIES[found.severity],
        message=found.message,
        advice=found.advice,
    )


@never_failing
def token(record: Token) -> admin_pb2.ApiToken:
    """Return a token without its digest."""
    return admin_pb2.ApiToken(
        id=record.id,
        name=record.name,
        grants=_render_grants(record.grants),
        may_name_others=record.may_name_others,
        created_at=timestamp(record.created_at),
        created_by=record.created_by,
        expires_at=timestamp(record.expires_at),
        last_used_at=timestamp(record.last_used_at),
        hold=None if record.hold_s is None else millis(round(record.hold_s * 1000)),
        login=None if record.login is None else _token_login(record.login),
    )


def _token_login(login: TokenLogin) -> admin_pb2.TokenLogin:
    """Return the log-in that a token belongs to."""
    return admin_pb2.TokenLogin(
        client_name=text(login.client_name),
        client_id=text(login.client_id),
        redirect_host=text(login.redirect_host),
        granted_by=text(login.granted_by),
        endpoint=text(login.endpoint),
    )


@never_failing
def principal(caller: Principal) -> admin_pb2.Caller:
    """Return a caller with its grants, without secrets."""
    return admin_pb2.Caller(
        name=text(caller.name),
        credential=text(caller.credential),
        grants=_render_grants(caller.grants),
        expires_at=timestamp(caller.expires_at),
        may_name_others=caller.may_name_others,
    )


def _render_grants(grants: Iterable[Grant]) -> list[admin_pb2.AccessGrant]:
    return [admin_pb2.AccessGrant(role=ROLES[grant.role], servers=grant.servers) for grant in grants]
