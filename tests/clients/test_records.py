"""A message becomes a record by its descriptor, and the record's JSON is what scripts rely on."""

import math
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio

from hubbub.v1 import (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    common_pb2,
    event_pb2,
    fleet_pb2,
    inbox_pb2,
    login_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)
from hubbub_client import numbers
from hubbub_client.data import catalog, conversion, literals, records
from hubbub_client.data.conversion import enum_number, read, read_result
from hubbub_client.data.records import PendingRequest, Server, Task
from hubbub_client.data.specs import ServerSpec
from hubbub_client.errors import DETAILS_KEY, Cancelled, ConnectionLost, HubbubError, NotFound, Unavailable, from_rpc
from hubbub_client.services import admin, audit, tokens
from hubbub_client.services.admin import HubStatus

MESSAGES: dict[str, Any] = {
    "Fault": common_pb2.Fault,
    "QueueCounts": server_pb2.QueueCounts,
    "Server": server_pb2.Server,
    "Approval": inbox_pb2.PendingRequest.Approval,
    "Claim": inbox_pb2.PendingRequest.Claim,
    "Event": inbox_pb2.PendingRequest.Event,
    "PendingRequest": inbox_pb2.PendingRequest,
    "Call": call_pb2.Call,
    "Progress": call_pb2.Progress,
    "CallLog": call_pb2.CallLog,
    "Task": task_pb2.Task,
    "CatalogList": catalog_pb2.CatalogList,
    "CatalogEntry": catalog_pb2.CatalogEntry,
    "ConnectedHost": mcp_pb2.ConnectedHost,
    "HostRequest": mcp_pb2.HostRequest,
    "AskedKind": mcp_pb2.AskedKind,
    "AskedHost": inbox_pb2.PendingRequest.AskedHost,
    "ServerEvent": event_pb2.ServerEvent,
    "ResourceUpdate": event_pb2.ResourceUpdate,
    **{
        f"{noun}Count": getattr(admin_pb2.GetStatusResponse, f"{noun}Count")
        for noun in ("Server", "PendingRequest", "PendingRequestKind", "Call", "Task")
    },
    "ApprovalRule": approval_pb2.ApprovalRule,
    "RememberedApproval": approval_pb2.RememberedApproval,
    "Row": approval_pb2.ReplayApprovalsResponse.Row,
    "CallApproval": call_pb2.CallApproval,
    "CallOrigin": call_pb2.CallOrigin,
    "StoreStatus": admin_pb2.StoreStatus,
    "Compaction": admin_pb2.Compaction,
    "GetStatusResponse": admin_pb2.GetStatusResponse,
    "Versions": admin_pb2.Versions,
    "ConfigStatus": admin_pb2.ConfigStatus,
    "TelemetryStatus": admin_pb2.TelemetryStatus,
    "ConfigChanges": admin_pb2.ConfigChanges,
    "Finding": admin_pb2.Finding,
    "AccessGrant": admin_pb2.AccessGrant,
    "ApiToken": admin_pb2.ApiToken,
    "CreateLoginCodeResponse": login_pb2.CreateLoginCodeResponse,
    "CreateTokenResponse": admin_pb2.CreateTokenResponse,
    "Caller": admin_pb2.Caller,
    "TokenLogin": admin_pb2.TokenLogin,
    **{
        name: getattr(fleet_pb2, name)
        for name in (
            "FleetMember",
            "GetFleetResponse",
            "MoveServerResponse",
            "RotateVaultKeyResponse",
            "UnownedServer",
        )
    },
}

ENUMS = [
    (server_pb2.Transport, records.Transport),
    (server_pb2.ServerState, records.ServerState),
    (server_pb2.DesiredState, records.DesiredState),
    (inbox_pb2.PendingRequestKind, records.RequestKind),
    (inbox_pb2.PendingRequestState, records.RequestState),
    (inbox_pb2.DeliveryState, records.DeliveryState),
    (inbox_pb2.PendingRequest.EventType, records.Happening),
    (inbox_pb2.CauseSource, records.CauseSource),
    (call_pb2.CallState, records.CallState),
    (event_pb2.EventKind, records.EventKind),
    (task_pb2.TaskRole, records.TaskRole),
    (task_pb2.TaskStatus, records.TaskStatus),
    (catalog_pb2.CatalogKind, literals.CatalogKind),
    (catalog_pb2.Freshness, literals.Freshness),
    (admin_pb2.AuditKind, audit.AuditSort),
    (admin_pb2.AccessRole, tokens.Role),
    (admin_pb2.Finding.Severity, admin.Verdict),
]

CONNECTED = admin_pb2.GetStatusResponse.ServerCount(state=server_pb2.SERVER_STATE_CONNECTED, count=3)
MOMENT = Timestamp(seconds=1_767_225_600, nanos=123_000_000)


@pytest.mark.parametrize("name", sorted(records.RECORDS))
def test_a_record_has_exactly_the_fields_of_its_message_in_its_order(name: str) -> None:
    message = MESSAGES[name]()
    shape = read(records.RECORDS[name], message).to_json()
    names = conversion.NAMES.get(message.DESCRIPTOR.name, {})
    assert list(shape) == [names.get(field.name, field.name) for field in message.DESCRIPTOR.fields]


@pytest.mark.parametrize(("enum", "names"), ENUMS)
def test_short_names_and_enum_values_are_the_same(enum: Any, names: Any) -> None:
    numbers = [enum_number(enum.DESCRIPTOR, name) for name in get_args(names)]
    assert sorted(numbers) == sorted(number for number in enum.values() if number)


def test_an_unknown_short_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'opened' is not one of open, answered"):
        enum_number(inbox_pb2.PendingRequestState.DESCRIPTOR, "opened")


@pytest.mark.parametrize("document", [b"{", b"\xff", b"NaN" * 3, b"[" * 100_000, b"9" * 5000, b'{"a": "\xff"}'])
def test_a_payload_that_stands_by_itself_and_cannot_be_read_is_refused(document: bytes) -> None:
    with pytest.raises(HubbubError) as caught:
        read_result(document)
    assert caught.value.reason == "ANSWER_UNREADABLE"


def test_a_spec_has_its_options_in_the_order_of_the_api() -> None:
    spec = ServerSpec(name="a", url="http://h", transport="sse", headers={}, confirm=["x"], roots="ask", protocol="p")
    assert list(spec.to_json()) == ["name", "url", "transport", "headers", "confirm", "roots", "protocol"]


@pytest.mark.parametrize("thing", [None, [], "x", 5, {}, {"name": None}, {"name": [], "title": {}, "uri": 5}])
def test_what_a_server_offers_has_a_name_whatever_it_is(thing: Any) -> None:
    entry = catalog.CatalogEntry(server="time", kind="tool", object=thing)
    assert (entry.name, entry.title, entry.description, entry.uri) == ("", None, None, None)


@pytest.mark.parametrize("document", [b"\xff", b"\x08", b"\x1a\x05\x0a\x03abc"])
def test_details_that_no_hub_wrote_cost_no_error_its_class(document: bytes) -> None:
    trailers = aio.Metadata((DETAILS_KEY, document))
    failure = aio.AioRpcError(StatusCode.NOT_FOUND, aio.Metadata(), trailers, details="gone")
    assert (type(from_rpc(failure)), from_rpc(failure).message) == (NotFound, "gone")


def test_a_stream_whose_end_grpc_has_forgotten_is_a_lost_connection() -> None:
    failure = aio.AioRpcError(StatusCode.INTERNAL, aio.Metadata(), aio.Metadata(), details="Internal error from Core")
    error = from_rpc(failure)
    assert isinstance(error, ConnectionLost)
    assert error.sent
    fault = aio.AioRpcError(StatusCode.INTERNAL, aio.Metadata(), aio.Metadata(), details="the hub failed")
    assert not isinstance(from_rpc(fault), Unavailable)


def test_a_call_that_a_stopping_hub_did_not_take_is_a_lost_connection_and_not_a_cancelled_call() -> None:
    failure = aio.AioRpcError(StatusCode.CANCELLED, aio.Metadata(), aio.Metadata(), details="CANCELLED")
    error = from_rpc(failure)
    assert isinstance(error, ConnectionLost)
    assert (error.reason, error.sent) == ("UNAVAILABLE", True)  # a proxy may say so of a call that has begun
    about = AnyMessage()
    about.Pack(error_details_pb2.ErrorInfo(reason="CALL_CANCELLED", domain="hubbub"))
    trailers = aio.Metadata((DETAILS_KEY, status_pb2.Status(details=[about]).SerializeToString()))
    assert isinstance(from_rpc(aio.AioRpcError(StatusCode.CANCELLED, aio.Metadata(), trailers)), Cancelled)


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 10**12])
def test_a_wait_of_any_length_is_a_number(seconds: int) -> None:
    detail = AnyMessage()
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=seconds)))
    trailers = aio.Metadata((DETAILS_KEY, status_pb2.Status(details=[detail]).SerializeToString()))
    error = from_rpc(aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), trailers, details="later"))
    assert error.retry_after_s is not None
    assert 0 <= error.retry_after_s <= numbers.LARGEST


def test_an_unset_server_has_every_field_and_null_where_nothing_is_known() -> None:
    shape = read(Server, server_pb2.Server(name="time")).to_json()
    assert list(shape) == [field.name for field in fields(Server)]
    assert {key: value for key, value in shape.items() if value} == {"name": "time", "state": "unknown"}
    assert {key for key, value in shape.items() if value is None} >= {"transport", "error", "next_retry_at", "pid"}
    assert "" not in shape.values()


def test_a_pending_request_keeps_its_payload_and_its_claim() -> None:
    message = inbox_pb2.PendingRequest(
        id="r1",
        server="s",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        delivery=inbox_pb2.DELIVERY_STATE_NONE,
        request=b'{"message":"how many?","big":123456789012345678901234567890}',
        claim=inbox_pb2.PendingRequest.Claim(by="ann", expires_at=MOMENT),
        created_at=MOMENT,
    )
    record = read(PendingRequest, message)
    assert record.created_at == datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
    shape = record.to_json()
    assert shape["kind"] == "elicitation_form"
    assert shape["delivery"] == "none"
    assert shape["request"]["big"] == 123456789012345678901234567890
    assert shape["claim"] == {
        "id": None,
        "by": "ann",
        "expires_at": "2026-01-01T00:00:00.123000Z",
        "host": None,
    }
    assert shape["answer"] is None
    assert shape["call_id"] is None


@pytest.mark.parametrize(
    ("kind", "name"), [("ELICITATION_FORM", "form"), ("ELICITATION_URL", "page"), ("SAMPLING", "sampling")]
)
def test_what_is_asked_has_the_type_of_its_kind_and_is_read_once(kind: str, name: str) -> None:
    number = inbox_pb2.PendingRequestKind.Value(f"PENDING_REQUEST_KIND_{kind}")
    asked = read(PendingRequest, inbox_pb2.PendingRequest(kind=number, request=b'{"message":"Lunch?"}'))
    views = {each: getattr(asked, each) for each in ("form", "page", "sampling")}
    assert views.pop(name) is asked.request
    assert [*views.values()] == [None, None]
    for document in (b"", b"{", b"[]"):
        assert getattr(read(PendingRequest, inbox_pb2.PendingRequest(kind=number, request=document)), name) is None


def test_nested_records_of_a_list_are_read_too() -> None:
    counted = admin_pb2.GetStatusResponse(servers=[CONNECTED])
    assert read(HubStatus, counted).to_json()["servers"] == [{"state": "connected", "count": 3}]


def test_a_state_that_only_a_newer_hub_knows_is_shown_by_its_number() -> None:
    message = server_pb2.Server.FromString(server_pb2.Server(name="x").SerializeToString() + b"\x18\x2a")
    assert read(Server, message).state == "42"


def test_an_entry_of_the_audit_log_has_exactly_the_fields_of_its_message() -> None:
    shape = read(audit.AuditEntry, admin_pb2.AuditEntry(count=1)).to_json()
    names = conversion.NAMES["AuditEntry"]
    assert list(shape) == [names.get(field.name, field.name) for field in admin_pb2.AuditEntry.DESCRIPTOR.fields]


@pytest.mark.parametrize("raw", [b"{", b"NaN}", b"\xff", b"[" * 100_000])
def test_a_payload_that_is_no_json_costs_only_itself(raw: bytes) -> None:
    pages = [inbox_pb2.PendingRequest(id=name, server="one", request=b"{}") for name in "ab"]
    bad = inbox_pb2.PendingRequest(id="bad", server="one", request=raw)
    good, spoilt, last = (read(PendingRequest, message) for message in (pages[0], bad, pages[1]))
    assert (good.defect, spoilt.id, spoilt.request, last.id) == (None, "bad", None, "b")
    assert "request cannot be read" in (spoilt.defect or "")


@pytest.mark.parametrize(("seconds", "year"), [(2**62, 9999), (-(2**62), 1970), (253402300800, 9999), (0, 1970)])
def test_a_date_that_no_calendar_has_is_the_nearest_one(seconds: int, year: int) -> None:
    task = read(Task, task_pb2.Task(id="t", created_at=Timestamp(seconds=seconds)))
    assert task.created_at is not None
    assert task.created_at.year == year


@pytest.mark.parametrize("value", [0, -1, 2**64, 10**400, math.inf, -math.inf, math.nan, None, "7", True, []])
def test_a_number_of_anybody_is_read_within_bounds(value: Any) -> None:
    found = numbers.whole(value, high=100)
    assert found is None or 0 <= found <= 100


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("007", 7), ("9" * 5000, 100), ("-1", None), ("\u0664", None)])
def test_a_number_in_a_text_is_read_within_bounds(text: str, number: int | None) -> None:
    assert numbers.whole_text(text, high=100) == number
