"""Each field of a message comes from its own place in the record, and none is left out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hubbubd.core.inbox.asked_hosts import AskedHost
from hubbubd.core.inbox.request_states import CauseSource, RequestKind
from hubbubd.core.logins.issued import TokenLogin
from hubbubd.core.servers.server_record import QueueCounts
from hubbubd.rpc.messages import api_records
from hubbubd.runtime.calls import LogEvent, ProgressEvent
from hubbubd.store import StoreStats
from hubbubd.telemetry.trace import Trace

from .test_showing import CALL, FAULT, RECORDS, REQUEST, SERVER, TASK, TOKEN, show

TRACE = Trace(trace_id="trace", span_id="span")
ERROR = {
    "code": "CONNECTION_LOST",
    "category": "FAULT_CATEGORY_CONNECTION",
    "message": "gone",
    "retryable": True,
    "help_url": FAULT.help_url,
    "details": '{"a":1}',
}
LOST = replace(FAULT, retryable=True)
GRANTS = [{"role": "ACCESS_ROLE_VIEWER", "servers": ["*"]}]

LOGIN = TokenLogin(
    client_id="client",
    client_name="Robot",
    redirect_host="127.0.0.1",
    granted_by="ada",
    granted_with="local",
    endpoint="/mcp/p/work",
    family="f",
    refresh="r",
    access_until=3.0,
    refreshed_at=2.0,
)

CASES: list[tuple[Callable[..., Message], Any, dict[str, Any]]] = [
    (
        api_records.server,
        replace(
            SERVER,
            connection=replace(SERVER.connection, fault=LOST, attempt=3, next_retry_at=4.0, gave_up=True),
            server_info=b'"info"',
            capabilities=b'"can"',
            revision=6,
            defect="defect",
            trusted=True,
            notes=("noted",),
        ),
        {
            "name": "one",
            "transport": "TRANSPORT_STDIO",
            "state": "SERVER_STATE_DISCONNECTED",
            "desired_state": "DESIRED_STATE_CONNECTED",
            "protocol_version": "2025-11-25",
            "server_info": '"info"',
            "capabilities": '"can"',
            "error": ERROR,
            "attempt": 3,
            "next_retry_at": 4.0,
            "pid": 7,
            "queue": {},
            "gave_up": True,
            "revision": 6,
            "trusted": True,
            "defect": "defect",
            "notes": ["noted"],
        },
    ),
    (
        api_records.counts,
        QueueCounts(queued=1, in_progress=2, waiting_input=3, completed=4, failed=5, cancelled=6),
        {"queued": 1, "in_progress": 2, "waiting_input": 3, "completed": 4, "failed": 5, "cancelled": 6},
    ),
    (
        api_records.request,
        replace(
            REQUEST,
            request=b'"request"',
            call_id="call",
            cause_source=CauseSource.WIRE,
            candidate_call_ids=("candidate",),
            cause_ended="ended",
            task_id="task",
            answered_by="answerer",
            reason="reason",
            principal="caller",
            moments=(replace(REQUEST.moments[0], at=6.0, by="seer", agent=True),),
            trace=TRACE,
            answer=replace(REQUEST.answer, payload=b'"answer"') if REQUEST.answer else None,
            defect="defect",
            hosts=(AskedHost(host="host 1", at=7.0, why_not="why not"),),
            caller_left_at=8.0,
            kind=RequestKind.APPROVAL,
            changed=b"{}",
        ),
        {
            "id": "req",
            "server": "one",
            "kind": "PENDING_REQUEST_KIND_APPROVAL",
            "state": "PENDING_REQUEST_STATE_OPEN",
            "delivery": "DELIVERY_STATE_NONE",
            "request": '"request"',
            "call_id": "call",
            "cause_source": "CAUSE_SOURCE_WIRE",
            "candidate_call_ids": ["candidate"],
            "cause_ended": "ended",
            "task_id": "task",
            "created_at": 1.0,
            "expires_at": 2.0,
            "claim": {"by": "me", "expires_at": 3.0},
            "answer": '"answer"',
            "answered_by": "answerer",
            "answered_at": 4.0,
            "reason": "reason",
            "caller": "caller",
            "trace_id": "trace",
            "events": [{"occurred_at": 6.0, "type": "EVENT_TYPE_SHOWN", "by": "seer", "agent": True}],
            "defect": "defect",
            "hosts": [{"host": "host 1", "why_not": "why not", "decided_at": 7.0}],
            "caller_left_at": 8.0,
            "approvals": [{"by": "me", "approved_at": 1.0, "comment": "yes"}],
            "changed_arguments": "{}",
            "arguments_digest": "sha256:0",
        },
    ),
    (
        api_records.call,
        replace(
            CALL,
            params=b'"params"',
            started_at=2.0,
            completed_at=3.0,
            result=b'"result"',
            fault=LOST,
            pending_ids=("pending",),
            perhaps_pending_ids=("perhaps",),
            task_id="task",
            trace=TRACE,
            defect="defect",
        ),
        {
            "id": "call",
            "server": "one",
            "method": "tools/call",
            "params": '"params"',
            "state": "CALL_STATE_QUEUED",
            "created_at": 1.0,
            "started_at": 2.0,
            "completed_at": 3.0,
            "result": '"result"',
            "error": ERROR,
            "pending_request_ids": ["pending"],
            "perhaps_pending_request_ids": ["perhaps"],
            "task_id": "task",
            "trace_id": "trace",
            "defect": "defect",
            "origin": {"host": "h", "profile": "p", "roles": ["caller"], "app": True},
            "approval": {
                "rule": "r",
                "pending_request_id": "q",
                "approved_by": ["me"],
                "granted": True,
                "changed_arguments": "{}",
            },
        },
    ),
    (
        api_records.task,
        replace(
            TASK, last_updated_at=2.0, ttl_ms=5000, poll_interval_ms=6000, pending_ids=("pending",), defect="defect"
        ),
        {
            "id": "task",
            "server": "one",
            "role": "TASK_ROLE_CLIENT",
            "status": "TASK_STATUS_WORKING",
            "status_message": "half",
            "method": "tools/call",
            "created_at": 1.0,
            "last_updated_at": 2.0,
            "ttl": 5.0,
            "poll_interval": 6.0,
            "call_id": "call",
            "pending_request_ids": ["pending"],
            "defect": "defect",
        },
    ),
    (
        api_records.token,
        replace(TOKEN, may_name_others=True, last_used_at=3.0, hold_s=9.0, login=LOGIN),
        {
            "id": "t",
            "name": "n",
            "grants": GRANTS,
            "may_name_others": True,
            "created_at": 1.0,
            "created_by": "me",
            "expires_at": 2.0,
            "last_used_at": 3.0,
            "hold": 9.0,
            "login": {
                "client_name": "Robot",
                "client_id": "client",
                "redirect_host": "127.0.0.1",
                "granted_by": "ada",
                "endpoint": "/mcp/p/work",
            },
        },
    ),
    (
        api_records.catalog_list,
        replace(RECORDS[api_records.catalog_list], fault=LOST),
        {
            "id": "one/tool",
            "server": "one",
            "kind": "CATALOG_KIND_TOOL",
            "freshness": "FRESHNESS_UNKNOWN",
            "fetched_at": 1.0,
            "error": ERROR,
            "count": 3,
        },
    ),
    (
        api_records.audit_entry,
        replace(
            RECORDS[api_records.audit_entry],
            credential="shown",
            peer="unix",
            target="it",
            outcome="NO",
            trace_id="trace",
        ),
        {
            "id": "a",
            "kind": "AUDIT_KIND_CHANGE",
            "created_at": 1.0,
            "principal": "me",
            "credential": "shown",
            "peer": "PEER_KIND_UNIX",
            "action": "X",
            "target": "it",
            "outcome": "NO",
            "count": 2,
            "trace_id": "trace",
        },
    ),
    (
        api_records.event,
        RECORDS[api_records.event],
        {
            "server": "one",
            "kind": "EVENT_KIND_LOG",
            "params": "{}",
            "method": "m",
            "call_id": "c",
            "occurred_at": 1.0,
        },
    ),
    (
        api_records.resource_update,
        replace(RECORDS[api_records.resource_update], fault=LOST),
        {"server": "one", "uri": "a:b", "result": "{}", "error": ERROR, "read_at": 1.0},
    ),
    (
        api_records.principal,
        replace(RECORDS[api_records.principal], may_name_others=True),
        {"name": "me", "credential": "token:t", "grants": GRANTS, "expires_at": 3.0, "may_name_others": True},
    ),
    (
        api_records.progress,
        ProgressEvent("call", 1.0, 2.0, "words"),
        {"call_id": "call", "progress": 1.0, "total": 2.0, "message": "words"},
    ),
    (api_records.call_log, LogEvent("call", b"{}"), {"call_id": "call", "params": "{}"}),
    (
        api_records.store,
        StoreStats(id="store", revision=1, compacted_revision=2, size_bytes=3, keys=4, deletions=5, free_bytes=6),
        {
            "id": "store",
            "revision": 1,
            "compacted_revision": 2,
            "size_bytes": 3,
            "keys": 4,
            "deletions": 5,
            "free_bytes": 6,
        },
    ),
]


@pytest.mark.parametrize(("converter", "record", "expected"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_message_says_all_of_its_record(
    converter: Callable[..., Message], record: Any, expected: dict[str, Any]
) -> None:
    message = show(converter, record)
    assert said(message) == expected
    assert set(expected) == set(message.DESCRIPTOR.fields_by_name)


def said(message: Message) -> dict[str, Any]:
    """What a message says, with times in seconds, the names of enums, and JSON documents as text."""
    return {
        field.name: [plain(field, each) for each in value] if field.is_repeated else plain(field, value)
        for field, value in message.ListFields()
    }


def plain(field: FieldDescriptor, value: Any) -> Any:
    match value:
        case Timestamp() | Duration():
            return value.seconds + value.nanos / 1e9
        case Message():
            return said(value)
        case bytes():
            return value.decode()
        case int() if field.enum_type is not None:
            return field.enum_type.values_by_number[value].name
        case _:
            return value
