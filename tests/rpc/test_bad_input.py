"""Bad input to every RPC: a clear status with details, nothing changed, the hub alive."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import admin_pb2, common_pb2, server_pb2
from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime.hub import Hub

from ..config.test_allowances import ODD
from .conftest import Caller
from .wrong_requests import UNKNOWN, WRONG, spec

METHODS: dict[str, MethodDescriptor] = {m.name: m for service in SERVICES.values() for m in service.methods}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
GET_STATUS = METHODS["GetStatus"]


@pytest.fixture(autouse=True)
async def unharmed(shared_hub: Hub, shared_api: Caller) -> Any:
    """The hub answers as before, and has nothing that it had not."""
    yield
    assert (await shared_api(GET_STATUS, admin_pb2.GetStatusRequest())).pid
    assert [server.name for server in shared_hub.servers.all()] == ["away"]
    assert shared_hub.calls.select(CallFilter()) == []
    assert shared_hub.inbox.select(RequestFilter()) == []
    assert shared_hub.tasks.select(TaskFilter()) == []


@EVERY
async def test_bytes_that_are_no_message_are_refused(shared_api: Caller, method: MethodDescriptor) -> None:
    refusal = await shared_api.refused(method, b"\xff\xff\xff\xff")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")
    assert method.input_type.full_name in refusal.message


@EVERY
async def test_a_request_that_is_a_little_too_long_is_refused_with_the_limit(
    shared_api: Caller, method: MethodDescriptor
) -> None:
    refusal = await shared_api.refused(method, unknown_field(1024 * 1024 + 1))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert "1048576" in refusal.message


@EVERY
async def test_a_request_that_is_much_too_long_is_not_even_read(shared_api: Caller, method: MethodDescriptor) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shared_api.raw(method, unknown_field(2 * 1024 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def unknown_field(size: int) -> bytes:
    """A well-formed message with one long field that no message has."""
    return varint(9999 << 3 | 2) + varint(size) + b"x" * size


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


# Fields for which every text is right: a watch resumes from what it can, and people write what they like.
FREE = {"resume_token", "text"}


def text_fields(*, but: set[str] | frozenset[str] = frozenset()) -> list[Any]:
    return [
        pytest.param(method, field, id=f"{method.name}.{field.name}")
        for method in METHODS.values()
        for field in method.input_type.fields
        if field.type == FieldDescriptor.TYPE_STRING and field.name not in but
    ]


@pytest.mark.parametrize(("method", "field"), text_fields())
async def test_text_that_is_no_utf_8_is_refused(
    shared_api: Caller, method: MethodDescriptor, field: FieldDescriptor
) -> None:
    refusal = await shared_api.refused(method, varint(field.number << 3 | 2) + b"\x02\xc3\x28")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")


LONGEST = {"uri": 8192, "tool": 256}
LONG = "one character more than it may have"


@pytest.mark.parametrize("value", [LONG, "a\nb", "a\x00b"], ids=["long", "newline", "null"])
@pytest.mark.parametrize(("method", "field"), text_fields(but=FREE))
async def test_a_name_of_the_wrong_shape_is_refused_by_field(
    shared_api: Caller, method: MethodDescriptor, field: FieldDescriptor, value: str
) -> None:
    if value is LONG:
        value = "x" * (LONGEST.get(field.name, 128) + 1)
    request = GetMessageClass(method.input_type)()
    for other in method.input_type.fields:
        if other.type == FieldDescriptor.TYPE_STRING and other.name not in FREE and not is_list(other):
            setattr(request, other.name, "x")
    if method.name == "AnswerPendingRequest":
        request.decline.SetInParent()
    if is_list(field):
        getattr(request, field.name).append(value)
    else:
        setattr(request, field.name, value)
    refusal = await shared_api.refused(method, request)
    assert refusal.code is INVALID
    assert [path.partition(".")[0] for path in refusal.violations] == [field.name]


def is_list(field: FieldDescriptor) -> bool:
    return isinstance(getattr(GetMessageClass(field.containing_type)(), field.name), str) is False


PAGED = {
    "ListServers",
    "ListPendingRequests",
    "ListCalls",
    "ListTasks",
    "ListCatalogEntries",
    "ListTokens",
    "ListHosts",
    "ListAuditEntries",
    "ListRememberedApprovals",
}


WATCHES = [name for name, method in METHODS.items() if "resume_token" in method.input_type.fields_by_name]


@pytest.mark.parametrize("token", ["x", "????", "ä", "bm90IG91cnM", "A" * 5000, "\x00"])
@pytest.mark.parametrize("rpc", WATCHES)
async def test_a_watch_with_a_token_that_is_none_starts_over_and_says_so(
    shared_api: Caller, rpc: str, token: str
) -> None:
    request = GetMessageClass(METHODS[rpc].input_type)(resume_token=token)
    response = await shared_api(METHODS[rpc], request)
    assert response.WhichOneof("event") == "reset"
    assert response.reset.reason == common_pb2.RESET_REASON_MALFORMED


@pytest.mark.parametrize(("rpc", "request_", "violation"), WRONG)
async def test_a_wrong_field_is_named(shared_api: Caller, rpc: str, request_: Message, violation: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], request_)
    assert refusal.code is INVALID
    assert violation in refusal.violations
    assert refusal.violations[violation]


@pytest.mark.parametrize("url", ODD)
async def test_a_url_that_is_none_once_its_references_are_replaced_is_not_added(api: Caller, url: str) -> None:
    refusal = await api.refused(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec(name="new", url=url)))
    assert refusal.code is INVALID
    assert set(refusal.violations) <= {"spec", "spec.http.url"}
    assert refusal.violations


@pytest.mark.parametrize(("rpc", "request_", "reason"), UNKNOWN)
async def test_what_does_not_exist_is_said_not_to(shared_api: Caller, rpc: str, request_: Message, reason: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], request_)
    assert (refusal.code, refusal.reason) == (MISSING, reason)


async def test_every_rpc_that_takes_something_has_its_bad_input_here() -> None:
    tried = {rpc for rpc, _, _ in [*WRONG, *UNKNOWN]} | PAGED
    of_the_hub = {"GetStatus", "GetStoreStats", "CompactStore", "BackupStore", "ReloadConfig", "CheckHub", "GetSelf"}
    assert set(METHODS) - tried == of_the_hub | {
        "GetFleet",
        "TrustClock",
        "RotateVaultKey",
        "FinishUpgrade",
        "GetApprovalRules",
        "CreateLoginCode",
    }
