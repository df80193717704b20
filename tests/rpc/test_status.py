"""One table from errors to statuses: what a caller gets when something goes wrong."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
import structlog.testing
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details_pb2

from hubbub.v1 import admin_pb2
from hubbubd import errors
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.errors import Category, Fault, HubError, InvalidArgument, PeerError, UpstreamError
from hubbubd.rpc import status
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.listeners import sockets
from hubbubd.rpc.methods import make_generic_handler
from hubbubd.store import StoreUnavailable, WriteConflict

from .conftest import Caller, Refusal, settled

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
HEADER_LIMIT = 8 * 1024


class Failing:
    """A servicer all of whose RPCs raise."""

    def __init__(self, error: Exception, caller: Principal) -> None:
        self.error = error
        self.caller = caller

    def __getattr__(self, _rpc: str) -> Callable[[Message], Awaitable[Message]]:
        async def fail(_request: Message) -> Message:
            amend_context(principal=self.caller)
            raise self.error

        return fail


VIEWER = Principal(name="vic", grants=(Grant(Role.VIEWER),), credential="token:0")


async def told(error: Exception, caller: Principal = VIEWER) -> Refusal:
    """What a caller of an RPC that raises this error gets to see."""
    async with settled():
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([make_generic_handler(SERVICE, Failing(error, caller), 1024)])
        address = sockets.bind(server, "127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                return await Caller(channel).refused(SERVICE.methods_by_name["GetStatus"], b"")
        finally:
            await server.stop(None)


def fault(category: Category, code: str = "SOME_CODE", **more: Any) -> UpstreamError:
    return UpstreamError(Fault(code=code, category=category, message="the server failed", **more))


CASES: list[tuple[Exception, grpc.StatusCode, str]] = [
    (errors.InvalidArgument("no"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    (errors.InvalidServerConfig("no"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    (errors.NotFound("server", "x"), grpc.StatusCode.NOT_FOUND, "SERVER_NOT_FOUND"),
    (errors.AlreadyExists("taken", reason="CALL_ID_REUSED"), grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_REUSED"),
    (errors.FailedPrecondition("no"), grpc.StatusCode.FAILED_PRECONDITION, "FAILED_PRECONDITION"),
    (errors.PermissionDenied("no"), grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"),
    (errors.Unauthenticated("no"), grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    (errors.ResourceExhausted("full", reason="QUEUE_FULL"), grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
    (errors.Unavailable("later"), grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
    (errors.UnknownOutcome("who knows"), grpc.StatusCode.UNAVAILABLE, "OUTCOME_UNKNOWN"),
    (errors.Aborted("again"), grpc.StatusCode.ABORTED, "ABORTED"),
    (fault(Category.CONNECTION), grpc.StatusCode.UNAVAILABLE, "SOME_CODE"),
    (fault(Category.TRANSPORT), grpc.StatusCode.UNAVAILABLE, "SOME_CODE"),
    (fault(Category.TIMEOUT), grpc.StatusCode.DEADLINE_EXCEEDED, "SOME_CODE"),
    (fault(Category.PROTOCOL), grpc.StatusCode.FAILED_PRECONDITION, "SOME_CODE"),
    (fault(Category.SERVER), grpc.StatusCode.UNKNOWN, "SOME_CODE"),
    (fault(Category.CANCELLED), grpc.StatusCode.CANCELLED, "SOME_CODE"),
    (PeerError(-32000, "boom"), grpc.StatusCode.UNKNOWN, "SERVER_ERROR"),
    (StoreUnavailable("disk full"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (WriteConflict("call/1"), grpc.StatusCode.ABORTED, "CONFLICT"),
]


@pytest.mark.parametrize(("error", "code", "reason"), CASES, ids=lambda value: getattr(value, "name", None))
async def test_every_error_has_its_status_its_reason_and_where_to_read_on(
    error: Exception, code: grpc.StatusCode, reason: str
) -> None:
    refusal = await told(error)
    assert (refusal.code, refusal.reason) == (code, reason)
    assert refusal.message == str(error)
    help_links = refusal.details[details_pb2.Help]
    assert isinstance(help_links, details_pb2.Help)
    assert help_links.links[0].url == errors.help_url(reason)


def test_no_error_class_of_the_hub_was_forgotten() -> None:
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HubError)}
    assert kinds - {HubError} == {type(error) for error, _, _ in CASES if isinstance(error, HubError)}
    assert set(status.FAULT_CODES) == set(Category)


async def test_a_server_that_refuses_the_hub_does_not_look_like_a_hub_that_refuses_the_caller() -> None:
    refusal = await told(fault(Category.TRANSPORT, "AUTHENTICATION_FAILED"))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_wrong_fields_are_told_one_by_one() -> None:
    refusal = await told(InvalidArgument.fields((("content.age", "must be a number"), ("content.name", "is missing"))))
    assert refusal.violations == {"content.age": "must be a number", "content.name": "is missing"}


@pytest.mark.parametrize(
    ("seconds", "told_ms"), [(1.5, 1500), (-1, 0), (math.inf, 86_400_000), (1e300, 86_400_000), (math.nan, 0)]
)
async def test_when_to_try_again_is_told_to_the_millisecond_within_a_day(seconds: float, told_ms: int) -> None:
    refusal = await told(errors.ResourceExhausted("full", retry_after_s=seconds))
    retry = refusal.details[details_pb2.RetryInfo]
    assert isinstance(retry, details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == told_ms


async def test_the_error_of_a_server_is_passed_on_with_code_message_and_its_own_words() -> None:
    refusal = await told(PeerError(-32602, "Unknown tool", {"tool": "x"}))
    expected = {"jsonrpc_code": "-32602", "jsonrpc_message": "Unknown tool", "jsonrpc_data": '{"tool":"x"}'}
    assert refusal.metadata == expected


async def test_a_fault_is_told_with_what_is_known_of_it() -> None:
    details = {"server": "git", "exit_code": 3, "stderr": ["a", "b"]}
    refusal = await told(fault(Category.CONNECTION, retryable=True, details=details))
    expected = {"server": "git", "exit_code": "3", "stderr": '["a","b"]', "category": "connection", "retryable": "true"}
    assert refusal.metadata == expected


async def test_a_server_s_log_is_told_to_those_alone_who_may_see_that_server() -> None:
    error = fault(Category.CONNECTION, details={"server": "git", "exit_code": 3, "stderr": ["a", "b"]})
    may = {
        "everything": [Grant(Role.ADMIN)],
        "see it": [Grant(Role.VIEWER, ("git",))],
        "call it": [Grant(Role.CALLER, ("git",))],
        "see another": [Grant(Role.CALLER, ("git",)), Grant(Role.VIEWER, ("other",))],
    }
    shown: dict[str, str | None] = {}
    for who, grants in may.items():
        refusal = await told(error, Principal(name="ada", grants=tuple(grants), credential="token:1"))
        assert refusal.metadata["exit_code"] == "3"
        shown[who] = refusal.metadata.get("stderr")
    assert shown == {"everything": '["a","b"]', "see it": '["a","b"]', "call it": None, "see another": None}


HUGE: list[Exception] = [
    errors.FailedPrecondition("ä" * 100_000, metadata={f"key{n}": "ö" * 50_000 for n in range(100)}),
    InvalidArgument.fields(tuple((f"content.{'f' * 5000}{n}", "€" * 5000) for n in range(300))),
    PeerError(1, "x" * 1_000_000, ["y" * 1_000_000]),
    fault(Category.SERVER, details={"stderr": ["\U0001f600" * 1000] * 100}),
    PeerError(1, "lone \ud800 surrogate", {"\ud800": "\udfff"}),
]


@pytest.mark.parametrize("error", HUGE, ids=["metadata", "violations", "server error", "fault", "surrogates"])
async def test_details_of_any_size_and_shape_still_fit_in_a_header(error: Exception) -> None:
    refusal = await told(error)
    assert refusal.reason
    assert 4 * status.status_of(error).ByteSize() / 3 + 3 * len(refusal.message.encode()) < HEADER_LIMIT


async def test_a_long_message_is_cut_to_768_bytes_at_the_end_of_a_character() -> None:
    assert (await told(errors.FailedPrecondition("x" * 769))).message == "x" * 765 + "…"
    assert (await told(errors.FailedPrecondition("é" * 385))).message == "é" * 382 + "…"
    assert (await told(errors.FailedPrecondition("x" * 768))).message == "x" * 768


async def test_many_violations_are_counted_when_they_are_not_shown() -> None:
    refusal = await told(InvalidArgument.fields(tuple((f"field{n}", "is wrong") for n in range(20))))
    assert len(refusal.violations) == 17
    assert refusal.violations[""] == "and 4 more"


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """What is logged meanwhile."""
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.mark.parametrize("error", [ZeroDivisionError("secret path"), HubError("half made")])
async def test_a_bug_of_the_hub_is_logged_under_the_number_that_the_caller_gets_and_tells_nothing_else(
    error: Exception, logged: list[Any]
) -> None:
    refusal = await told(error)
    incident = refusal.metadata["incident"]
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert refusal.reason == "INTERNAL"
    assert refusal.message == f"internal error, incident {incident}"
    assert [(entry["incident"], entry["exc_info"]) for entry in logged] == [(incident, error)]


async def test_an_error_for_a_caller_who_has_gone_is_given_up_and_no_fault_of_the_hub() -> None:
    """gRPC logs what it cannot send as an error with a traceback, and takes a cancelled RPC as it is."""

    class Left:
        async def abort(self, *_: Any) -> None:
            raise grpc.aio.InternalError('Failed "execute_batch"')

    context: Any = Left()
    with pytest.raises(asyncio.CancelledError):
        await status.abort(context, InvalidArgument("wrong"))
