"""Who is let in."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hubbub.v1 import admin_pb2, server_pb2
from hubbubd.rpc.listeners.grpc_server import SERVICES

from .conftest import TOKEN, Caller, refusing

GET_STATUS = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods_by_name["GetStatus"]
WATCH = server_pb2.DESCRIPTOR.services_by_name["ServerService"].methods_by_name["WatchServers"]
METHODS = [method for service in SERVICES.values() for method in service.methods]

RIGHT = ("authorization", f"Bearer {TOKEN}")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
async def test_nothing_is_done_without_the_token(api: Caller, method: MethodDescriptor) -> None:
    api.metadata = ()
    refusal = await api.refused(method, b"")
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer wrong")],
        [("authorization", f"Bearer {TOKEN}x")],
        [("authorization", f"Bearer {TOKEN[:-1]}")],
        [("authorization", f"Bearer {TOKEN.upper()}")],
        [("authorization", f"Bearer {TOKEN} {TOKEN}")],
        [("authorization", TOKEN)],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", f"Bearer{TOKEN}")],
        [("authorization", "Bearer " + "x" * 4000)],
        [("authorization", f"Bearer {TOKEN},Bearer {TOKEN}")],
        [("authorization", f"Bearer bearer {TOKEN}")],
        [("authorization", f'Bearer "{TOKEN}"')],
        [("authorization", f"Bearer {TOKEN}=")],
        [("authorization", "Bearer hbt_")],
        [("authorization", f"Bearer hbt_{'0' * 12}_{'x' * 43}")],
        [("authorization", "Bearer a.b.c")],
        [("authorization", ""), RIGHT],
        [RIGHT, RIGHT],
        [("authorization", "Bearer wrong"), RIGHT],
        [RIGHT, ("authorization", "Bearer wrong")],
    ],
    ids=range(23),
)
async def test_a_credential_that_is_not_exactly_the_token_is_refused(
    api: Caller, metadata: list[tuple[str, str]]
) -> None:
    api.metadata = tuple(metadata)
    for method in (GET_STATUS, WATCH):
        refusal = await api.refused(method, b"")
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_may_be_written_in_any_case(api: Caller, scheme: str) -> None:
    api.metadata = (("authorization", f"{scheme} {TOKEN}"),)
    assert (await api(GET_STATUS, admin_pb2.GetStatusRequest())).pid


@pytest.mark.parametrize("second", [("hubbub-as", "bob"), ("hubbub-as-bin", b"bob"), ("hubbub-as-bin", b"ada")])
async def test_two_names_are_refused(api: Caller, second: tuple[str, Any]) -> None:
    api.metadata = (RIGHT, ("hubbub-as", "ada"), second)
    assert (await api.refused(GET_STATUS, b"")).code is grpc.StatusCode.INVALID_ARGUMENT


async def test_anybody_may_ask_whether_the_hub_is_healthy(api: Caller) -> None:
    health = health_pb2_grpc.HealthStub(api.channel)
    for service in ("", *(service.full_name for service in SERVICES.values())):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_api_describes_itself_to_those_with_the_token(api: Caller) -> None:
    reflection = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    answers = [answer async for answer in reflection.ServerReflectionInfo(iter(asked), metadata=api.metadata)]
    names = {service.name for service in answers[0].list_services_response.service}
    assert names == {service.full_name for service in SERVICES.values()} | {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_the_api_does_not_describe_itself_to_others(api: Caller) -> None:
    reflection = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with refusing("TOKEN_MISSING"):
        _ = [answer async for answer in reflection.ServerReflectionInfo(iter(asked))]


async def test_an_unknown_method_is_not_even_said_to_be_unknown_without_the_token(api: Caller) -> None:
    nothing = api.channel.unary_unary("/hubbub.v1.InboxService/Nothing")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await nothing(b"")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await nothing(b"", metadata=api.metadata)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("key", ["authorization-bin", "x-authorization", "proxy-authorization", "cookie", "token"])
async def test_a_token_in_another_place_is_none(api: Caller, key: str) -> None:
    value = f"Bearer {TOKEN}".encode() if key.endswith("-bin") else f"Bearer {TOKEN}"
    api.metadata = ((key, value),)  # type: ignore[assignment] - binary metadata are bytes
    assert (await api.refused(GET_STATUS, b"")).reason == "TOKEN_MISSING"
