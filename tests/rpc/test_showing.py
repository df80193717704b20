"""One record that does not fit its message is shown as far as it does, and costs nobody the list or the watch."""

import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2, task_pb2
from hubbub.v1.task_pb2 import ListTasksRequest
from hubbubd.config import ServerConfig
from hubbubd.core.access import EVERYTHING, Grant, Principal, Role
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.approvals.vote import Vote
from hubbubd.core.audit import AuditEntry, AuditKind
from hubbubd.core.calls.call_states import Call, CallApproval, CallOrigin
from hubbubd.core.inbox.request_states import (
    Answer,
    Claim,
    Origin,
    PendingRequest,
    RequestEvent,
    RequestEventType,
    RequestKind,
)
from hubbubd.core.servers.catalog import CatalogKind, CatalogList
from hubbubd.core.servers.connection_states import ServerConnection
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.core.tasks import Task, TaskRole
from hubbubd.errors import Category, Fault
from hubbubd.rpc.messages import api_records, approval_records, pages, watch
from hubbubd.rpc.messages.fallback import never_failing
from hubbubd.runtime.oversight import Token
from hubbubd.runtime.records import EventKind, WatchEvent
from hubbubd.runtime.servers import ResourceUpdate, ServerEvent, ServerEventKind

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 2**31, 2**53, 2**63, 2**64 - 1, 10**400, -(10**400)),
    *(1e308, -1e308, math.inf, -math.inf, math.nan, -62135596800.0, 253402300800.0, 1e15),
)
TEXTS = ("\ud800", "a\udfffb", "\0", "x" * 100_000)
FAULT = Fault(code="CONNECTION_LOST", category=Category.CONNECTION, message="gone", retry_after_s=1.0, details={"a": 1})
SERVER = ServerRecord(
    name="one",
    config=ServerConfig(name="one", command="/bin/peer"),
    source="file",
    wanted=True,
    connection=ServerConnection(fault=FAULT, next_retry_at=2.0, attempt=1),
    protocol_version="2025-11-25",
    pid=7,
)
VOTE = Vote(by="me", at=1.0, digest="sha256:0", groups=("a",), comment="yes")
REQUEST = PendingRequest(
    id="req",
    server="one",
    kind=RequestKind.SAMPLING,
    origin=Origin.PLAIN,
    request=b"{}",
    created_at=1.0,
    deadline=2.0,
    claim=Claim(id="c", by="me", expires_at=3.0),
    answer=Answer(payload=b"{}"),
    answered_by="me",
    answered_at=4.0,
    moments=(RequestEvent(at=1.0, what=RequestEventType.SHOWN, by="me"),),
    votes=(VOTE,),
)
CALL = Call(
    id="call",
    server="one",
    method="tools/call",
    params=b"{}",
    principal="me",
    detached=False,
    timeout_s=1.0,
    max_s=2.0,
    created_at=1.0,
    started_at=1.0,
    completed_at=2.0,
    fault=FAULT,
    origin=CallOrigin(host="h", profile="p", roles=("caller",), app=True),
    approval=CallApproval(rule="r", definition="d", request_id="q", votes=(VOTE,), granted=True, arguments=b"{}"),
)
TASK = Task(
    id="task",
    server="one",
    fingerprint="f",
    role=TaskRole.CLIENT,
    method="tools/call",
    created_at=1.0,
    last_updated_at=1.0,
    ttl_ms=5,
    status_message="half",
    call_id="call",
)
TOKEN = Token(
    id="t",
    name="n",
    digest="d",
    grants=(Grant(Role.VIEWER, ("*",)),),
    may_name_others=False,
    created_at=1.0,
    created_by="me",
    expires_at=2.0,
    last_used_at=1.0,
)
APPROVAL = RememberedApproval(
    id="a",
    server="one",
    tool="t",
    caller="me",
    rule="r",
    terms="",
    definition="",
    approved_by=("me",),
    created_at=1.0,
    expires_at=2.0,
    request_id="q",
)
RECORDS: dict[Callable[..., Message], Any] = {
    api_records.server: SERVER,
    api_records.request: REQUEST,
    api_records.call: CALL,
    api_records.task: TASK,
    api_records.token: TOKEN,
    approval_records.remembered: APPROVAL,
    api_records.catalog_list: CatalogList(
        id="one/tool", server="one", kind=CatalogKind.TOOL, fetched_at=1.0, fault=FAULT, count=3
    ),
    api_records.audit_entry: AuditEntry(
        id="a", kind=AuditKind.CHANGE, created_at=1.0, principal="me", action="X", count=2
    ),
    api_records.event: ServerEvent(
        server="one", kind=ServerEventKind.LOG, params=b"{}", at=1.0, method="m", call_id="c"
    ),
    api_records.resource_update: ResourceUpdate(server="one", uri="a:b", at=1.0, result=b"{}", fault=None),
    api_records.principal: Principal(name="me", credential="token:t", grants=TOKEN.grants, expires_at=3.0),
}
MARKED = (api_records.server, api_records.request, api_records.call, api_records.task)


def show(converter: Callable[..., Any], record: Any) -> Any:
    """The record as a reader has it who may see everything."""
    return (
        converter(record, seen=EVERYTHING) if "seen" in inspect.signature(converter).parameters else converter(record)
    )


def spoilt(record: Any) -> Iterator[tuple[str, Any]]:
    """The record with one of its values replaced at a time, those of the records in it included."""
    for field in fields(record):
        value: Any = getattr(record, field.name)
        others: tuple[Any, ...] = ()
        if isinstance(value, int | float) and not isinstance(value, bool):
            others = NUMBERS
        elif isinstance(value, str):
            others = ("paused",) if type(value) is not str else TEXTS
        elif is_dataclass(value) and not isinstance(value, type):
            others = tuple(each for _, each in spoilt(value))
        elif isinstance(value, tuple) and value:
            first = cast("tuple[Any, ...]", value)[0]
            others = tuple((each,) for _, each in spoilt(first)) if is_dataclass(first) else ()
        for other in others:
            yield field.name, replace(record, **{field.name: other})


@pytest.mark.parametrize("converter", RECORDS, ids=lambda each: each.__name__)
def test_a_record_is_shown_whatever_stands_in_it(converter: Callable[..., Message]) -> None:
    seen = 0
    for name, record in spoilt(RECORDS[converter]):
        message = show(converter, record)
        assert type(message).FromString(message.SerializeToString()) == message, name
        seen += 1
    assert seen > 4


@pytest.mark.parametrize("converter", MARKED, ids=lambda each: each.__name__)
def test_a_sound_record_has_no_defect_and_one_that_is_cut_has(converter: Callable[..., Any]) -> None:
    record = RECORDS[converter]
    assert not show(converter, record).defect
    at = "next_retry_at" if converter is api_records.server else "created_at"
    cut = replace(record, connection=replace(record.connection, next_retry_at=1e15)) if at == "next_retry_at" else None
    message = show(converter, cut or replace(record, created_at=1e15))
    assert message.defect
    assert getattr(message, at).seconds == 253402300799


def test_every_converter_of_a_record_shows_what_it_can() -> None:
    parts = {"fault", "counts", "rule", "replay_row", "votes", "digest_to_approve", "approval", "origin"}
    public = {
        n: f
        for module in (api_records, approval_records)
        for n, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__
    }
    bare = {n for n, f in public.items() if not n.startswith("_") and not hasattr(f, "__wrapped__")}
    assert bare == parts


def test_a_bad_record_among_good_ones_leaves_the_list_whole_in_pages_of_any_size() -> None:
    for name, bad in spoilt(TASK):
        records = [replace(TASK, id="a", created_at=3.0), bad, *(replace(TASK, id=i, created_at=2.0) for i in "bc")]
        for size in (0, 1, 3):
            found, token = list[task_pb2.Task](), ""
            for _ in range(5):
                of = task_pb2.TaskFilter()
                some, token = pages.page_records(
                    records,
                    ListTasksRequest(page_size=size, page_token=token),
                    pages.newest_position,
                    api_records.task,
                    list_filter=of,
                    scope=EVERYTHING,
                )
                found += some
                if not token:
                    break
            assert len(found) == 4, (name, size)


@pytest.mark.parametrize(
    ("converter", "response"),
    [
        (api_records.server, server_pb2.WatchServersResponse),
        (api_records.request, inbox_pb2.WatchPendingRequestsResponse),
        (api_records.call, call_pb2.WatchCallsResponse),
        (api_records.task, task_pb2.WatchTasksResponse),
    ],
)
async def test_a_bad_record_among_good_ones_leaves_the_watch_whole(converter: Any, response: Any) -> None:
    good = RECORDS[converter]
    records = [good, *(bad for _, bad in spoilt(good)), good]

    async def events() -> AsyncIterator[WatchEvent[Any]]:
        for record in records:
            yield WatchEvent(EventKind.UPSERT, "token", "id", record)

    told = [
        response.FromString(raw) async for raw in watch.serialize_events(events(), response, partial(show, converter))
    ]
    assert len(told) == len(records)
    assert told[-1].upsert == show(converter, good)


def test_a_bad_record_is_logged_once_however_many_look() -> None:
    bad = replace(TASK, id="looked-at", created_at=math.inf)
    with capture_logs() as logs:
        for _ in range(50):
            api_records.task(bad)
    assert [line["id"] for line in logs] == ["looked-at"]


def test_of_a_record_that_cannot_be_converted_at_all_its_name_is_shown() -> None:
    @never_failing
    def broken(_record: Task) -> task_pb2.Task:
        raise RuntimeError("nothing of it")

    message = broken(TASK)
    assert (message.id, message.server) == ("task", "one")
    assert "nothing of it" in message.defect
