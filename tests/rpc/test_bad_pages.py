"""Pages and servers that are asked for wrongly: a clear status with details, nothing changed, the hub alive."""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import server_pb2

from .conftest import Caller, spec_of
from .test_bad_input import INVALID, METHODS, PAGED, spec, unharmed

__all__ = ["unharmed"]


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_page_has_a_size_between_0_and_1000(shared_api: Caller, rpc: str, size: int) -> None:
    refusal = await shared_api.refused(METHODS[rpc], paged(rpc, page_size=size))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["page_size"])


@pytest.mark.parametrize("token", ["x", "????", "W10", "bnVsbA", "ä", "WyJ4IiwwLCJ4Il0", "A" * 5000])
@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_page_token_that_is_none_is_refused(shared_api: Caller, rpc: str, token: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], paged(rpc, page_token=token))
    assert (refusal.code, refusal.reason, list(refusal.violations)) == (INVALID, "PAGE_TOKEN_INVALID", ["page_token"])


@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_an_order_that_there_is_not_is_refused(shared_api: Caller, rpc: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], paged(rpc, order=9))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["order"])


def paged(rpc: str, **page: Any) -> Message:
    return GetMessageClass(METHODS[rpc].input_type)(**page)


async def test_a_command_that_the_operator_did_not_allow_is_not_started(shared_api: Caller) -> None:
    request = server_pb2.AddServerRequest(spec=spec_of(name="new", command="sh"))
    refusal = await shared_api.refused(METHODS["AddServer"], request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED")


async def test_a_name_that_is_taken_is_refused(shared_api: Caller) -> None:
    refusal = await shared_api.refused(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec(name="away")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "SERVER_EXISTS")


async def test_a_server_of_a_file_is_not_changed_over_the_api(shared_api: Caller) -> None:
    for rpc, request in (
        ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(name="away"))),
        ("RemoveServer", server_pb2.RemoveServerRequest(name="away")),
    ):
        refusal = await shared_api.refused(METHODS[rpc], request)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SERVER_READ_ONLY")
