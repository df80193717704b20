"""The API over Connect and gRPC-Web: the same answers, refusals and streams as over gRPC."""

import base64
import itertools
import json
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status

from hubbub.v1 import server_pb2
from hubbubd.core.access import Grant, Role
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.rpc.listeners import connect
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime.hub import Hub

from . import test_openapi
from .conftest import LIMIT_S, TOKEN, Caller, gate, until

MAX_BYTES = 1024 * 1024
RIGHT = {"authorization": f"Bearer {TOKEN}"}
SERVER_SERVICE = SERVICES["ServerService"]
GET_SERVER = "/hubbub.v1.ServerService/GetServer"
WATCH_SERVERS = "/hubbub.v1.ServerService/WatchServers"
ORIGIN = "http://localhost:5173"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization",
}
END, END_WEB = 0b10, 0b10000000
"""Flags of the last message of a stream: of Connect, of gRPC-Web."""


class Web:
    """A caller over HTTP, with the right token unless told otherwise."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.AsyncClient(base_url=base, verify=False, trust_env=False, timeout=LIMIT_S)

    async def post(self, path: str, body: Any, kind: str = "json", **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(
            path, content=content, headers=RIGHT | {"content-type": f"application/{kind}"} | headers
        )

    async def refused(self, path: str, body: Any, kind: str = "json", **headers: str) -> tuple[int, str, str, Any]:
        """HTTP status, code, reason, and the whole error."""
        response = await self.post(path, body, kind, **headers)
        error = response.json()
        return response.status_code, error["code"], error["details"][0]["debug"]["reason"], error

    async def stream(
        self, path: str, body: Any, kind: str = "connect+json", **headers: str
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """The messages of a stream with their flags."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = RIGHT | {"content-type": f"application/{kind}"} | headers
        request = self.http.build_request("POST", path, content=envelope(content), headers=headers)
        response = await self.http.send(request, stream=True)
        buffer = b""
        try:
            async for chunk in response.aiter_raw():
                buffer += chunk
                while len(buffer) >= 5 and len(buffer) >= 5 + (length := struct.unpack(">I", buffer[1:5])[0]):
                    yield buffer[0], buffer[5 : 5 + length]
                    buffer = buffer[5 + length :]
        finally:
            await response.aclose()

    async def up_to(self, wanted: Callable[[Any], bool], body: Any) -> list[Any]:
        """The steps of a watch of servers, up to the first that is wanted."""
        seen: list[Any] = []
        async with aclosing(self.stream(WATCH_SERVERS, body)) as steps:
            async for flags, message in steps:
                assert not flags, message
                seen.append(json.loads(message))
                if wanted(seen[-1]):
                    break
        return seen


def envelope(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


def trailers(text: bytes) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.decode().splitlines() if line)


@pytest.fixture
def origins() -> Sequence[str]:
    """Whose pages may call."""
    return ()


@pytest.fixture
async def web(hub: Hub, origins: Sequence[str]) -> AsyncIterator[Web]:
    """A caller of that hub over HTTP."""
    served = connect.serve_connect(
        hub, listen="127.0.0.1:0", gate=gate(hub), origins=lambda: origins, max_message_bytes=MAX_BYTES
    )
    with anyio.fail_after(3 * LIMIT_S):
        async with served as base:
            caller = Web(base)
            async with caller.http:
                yield caller


async def test_a_request_gets_the_answer_that_grpc_gives(web: Web, api: Caller) -> None:
    request = server_pb2.GetServerRequest(name="away")
    methods = SERVER_SERVICE.methods_by_name
    await api(methods["DisconnectServer"], server_pb2.DisconnectServerRequest(name="away"))  # nothing changes any more
    expected = await api(methods["GetServer"], request)
    in_json = await web.post(GET_SERVER, {"name": "away"})
    assert in_json.json() == json_format.MessageToDict(expected)
    binary = await web.post(GET_SERVER, request.SerializeToString(), "proto")
    assert server_pb2.GetServerResponse.FromString(binary.content) == expected
    in_web = (await web.post(GET_SERVER, envelope(request.SerializeToString()), "grpc-web+proto")).content
    length = struct.unpack(">I", in_web[1:5])[0]
    assert server_pb2.GetServerResponse.FromString(in_web[5 : 5 + length]) == expected
    assert in_web[5 + length] == END_WEB
    assert trailers(in_web[10 + length :]) == {"grpc-status": "0"}


async def test_every_rpc_is_there_but_those_whose_requests_stream_and_none_without_the_token(web: Web) -> None:
    for method in (method for service in SERVICES.values() for method in service.methods):
        path = f"/{method.containing_service.full_name}/{method.name}"
        kind = "grpc-web+proto" if method.server_streaming else "json"
        response = await web.post(path, b"", kind, authorization="")
        if method.client_streaming:
            assert response.status_code == 404
        elif method.server_streaming:
            assert trailers(response.content[5:])["grpc-status"] == "16"
        else:
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("credential", ["Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer"])
async def test_another_credential_is_refused_before_the_request_is_read(web: Web, credential: str) -> None:
    status, code, reason, _ = await web.refused(GET_SERVER, b"not json", authorization=credential)
    assert (status, code, reason) == (401, "unauthenticated", "TOKEN_INVALID")


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}\xe9", f"Bearer\t{TOKEN}", f"Bearer {TOKEN}, Bearer {TOKEN}"])
async def test_a_credential_with_something_around_it_is_refused(web: Web, value: str) -> None:
    headers = [(b"authorization", value.encode("latin-1")), (b"content-type", b"application/json")]
    response = await web.http.post(GET_SERVER, content=b'{"name": "away"}', headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("role", list(Role))
async def test_roles_hold_as_they_do_in_grpc(hub: Hub, web: Web, role: Role) -> None:
    _, secret = await hub.tokens.create("me", [Grant(role, ("aw*",))], by="test", ttl_s=None, may_name_others=False)
    bearer = f"Bearer {secret}"
    assert (await web.post(GET_SERVER, {"name": "away"}, authorization=bearer)).is_success
    hidden = await web.refused(GET_SERVER, {"name": "none"}, authorization=bearer)
    assert hidden[:3] == (404, "not_found", "SERVER_NOT_FOUND")
    operators = "/hubbub.v1.CallService/GetQueue"
    if role in (Role.OPERATOR, Role.ADMIN):
        assert (await web.post(operators, {"server": "away"}, authorization=bearer)).is_success
    else:
        denied = await web.refused(operators, {"server": "away"}, authorization=bearer)
        assert denied[:3] == (403, "permission_denied", "PERMISSION_DENIED")
    whole = await web.refused("/hubbub.v1.AdminService/GetStatus", {}, authorization=bearer)
    assert whole[:3] == (403, "permission_denied", "PERMISSION_DENIED")


async def test_a_watch_and_a_call_end_when_their_token_is_revoked(hub: Hub, web: Web) -> None:
    _, secret = await hub.tokens.create("me", [Grant(Role.ADMIN)], by="test", ttl_s=None, may_name_others=False)
    bearer = f"Bearer {secret}"
    spec = {"spec": {"server": "away", "method": "tools/list", "callId": "waits"}}
    ends: list[Any] = []

    async def call() -> None:
        ends.append((await web.refused("/hubbub.v1.CallService/CallMethod", spec, authorization=bearer))[:3])

    async def watch() -> None:
        steps = web.stream(WATCH_SERVERS, {}, authorization=bearer)
        async with aclosing(steps):
            ends.extend([json.loads(message)["error"]["code"] async for flags, message in steps if flags])

    async with anyio.create_task_group() as both:
        both.start_soon(call)
        both.start_soon(watch)
        await until(lambda: hub.watcher_count() == 1 and bool(hub.calls.select(CallFilter())))
        await hub.tokens.revoke("me")
    assert set(ends) == {(401, "unauthenticated", "CREDENTIAL_ENDED"), "unauthenticated"}
    await until(lambda: hub.calls.get("waits").state is CallState.CANCELLED)


async def test_whether_the_hub_is_well_may_be_asked_without_a_token(web: Web) -> None:
    response = await web.post("/grpc.health.v1.Health/Check", {}, authorization="")
    assert response.json() == {"status": "SERVING"}


async def test_a_caller_may_say_its_name_as_over_grpc(web: Web) -> None:
    status, code, _, error = await web.refused(GET_SERVER, {"name": "away"}, **{"hubbub-as": "x" * 65})
    assert (status, code) == (400, "invalid_argument")
    assert error["message"].startswith("metadata.hubbub-as")
    assert (await web.post(GET_SERVER, {"name": "away"}, **{"hubbub-as": "ada"})).status_code == 200


@pytest.mark.parametrize("sent", ["SsO2cmc=", "SsO2cmc"])
async def test_a_name_in_any_script_comes_in_base64(web: Web, sent: str) -> None:
    me = await web.post("/hubbub.v1.AdminService/GetSelf", {}, **{"hubbub-as-bin": sent})
    assert me.json()["caller"]["name"] == "Jörg"


@pytest.mark.parametrize("sent", ["J?rg", "SsO2cmc=, SsO2cmc=", "A", "/w"])
async def test_what_is_no_name_in_base64_is_refused(web: Web, sent: str) -> None:
    status, code, _, error = await web.refused(GET_SERVER, {"name": "away"}, **{"hubbub-as-bin": sent})
    assert (status, code) == (400, "invalid_argument")
    assert error["message"].startswith("metadata.hubbub-as")


async def test_an_error_has_the_details_that_grpc_gives(web: Web, api: Caller) -> None:
    request = server_pb2.GetServerRequest(name="nobody")
    expected = await api.refused(SERVER_SERVICE.methods_by_name["GetServer"], request)
    status, code, reason, error = await web.refused(GET_SERVER, {"name": "nobody"})
    assert (status, code, reason) == (404, "not_found", expected.reason)
    assert error["message"] == expected.message
    details = list(expected.details.values())
    assert [detail["type"] for detail in error["details"]] == [type(detail).DESCRIPTOR.full_name for detail in details]
    for told, detail in zip(error["details"], details, strict=True):
        assert base64.b64decode(told["value"] + "==") == detail.SerializeToString()
        assert told["debug"] == json_format.MessageToDict(detail)

    refused = await web.post(GET_SERVER, envelope(request.SerializeToString()), "grpc-web+proto")
    about = trailers(refused.content[5:])
    assert about["grpc-status"] == "5"
    told = Status.FromString(base64.b64decode(about["grpc-status-details-bin"] + "=="))
    assert (told.code, told.message) == (5, expected.message)
    assert [detail.value for detail in told.details] == [detail.SerializeToString() for detail in details]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("json", b'{"name": '),
        ("json", b'{"name": 3}'),
        ("json", b"[" * 90_000),
        ("json", b'"\xff"'),
        ("proto", b"\xff\xff\xff"),
    ],
)
async def test_a_request_that_is_none_is_refused(web: Web, kind: str, body: bytes) -> None:
    assert (await web.refused(GET_SERVER, body, kind))[:3] == (400, "invalid_argument", "MALFORMED_REQUEST")


async def test_a_request_that_is_too_long_is_refused(web: Web) -> None:
    told = await web.refused(GET_SERVER, {"name": "x" * MAX_BYTES})
    assert told[:3] == (429, "resource_exhausted", "MESSAGE_TOO_LARGE")
    assert (await web.post(GET_SERVER, {"name": "x" * 3 * MAX_BYTES})).json()["code"] == "resource_exhausted"


async def test_base64_is_no_document(web: Web) -> None:
    spec = {"server": "away", "method": "tools/list", "params": base64.b64encode(b"{}").decode()}
    told = await web.refused("/hubbub.v1.CallService/StartCall", {"spec": spec})
    assert told[:2] == (400, "invalid_argument")
    assert told[3]["message"] == "spec.params: must be a JSON object"


async def test_an_unknown_field_is_refused_by_name_in_requests_of_streams_too(web: Web) -> None:
    status, code, reason, error = await web.refused(GET_SERVER, {"nam": "away"})
    assert (status, code, reason) == (400, "invalid_argument", "MALFORMED_REQUEST")
    assert error["message"] == "nam: unknown field; did you mean 'name'?"
    assert error["details"][1]["debug"]["fieldViolations"][0]["field"] == "nam"
    [(flags, message)] = [step async for step in web.stream(WATCH_SERVERS, {"filter": {"nam": "away"}})]
    error = json.loads(message)["error"]
    assert (flags, error["code"]) == (END, "invalid_argument")
    assert error["message"] == "filter.nam: unknown field; did you mean 'names'?"


async def test_a_watch_goes_on_from_its_token(web: Web) -> None:
    away, synced = await web.up_to(lambda step: "synced" in step, {})
    assert away["upsert"]["name"] == "away"
    spec = {"name": "later", "http": {"url": "http://127.0.0.1:9/mcp"}}
    await web.post("/hubbub.v1.ServerService/AddServer", {"spec": spec})
    token = {"resumeToken": synced["resumeToken"]}
    missed = await web.up_to(lambda step: step.get("upsert", {}).get("name") == "later", token)
    assert away["upsert"] not in [step.get("upsert") for step in missed]
    assert await web.up_to(lambda step: "reset" in step, {"resumeToken": "of another hub"})


async def test_a_stream_that_is_refused_says_so_in_its_last_message(web: Web) -> None:
    body = {"filter": {"states": [77]}}
    [(flags, message)] = [step async for step in web.stream("/hubbub.v1.InboxService/WatchPendingRequests", body)]
    error = json.loads(message)["error"]
    assert (flags, error["code"]) == (END, "invalid_argument")
    assert error["details"][1]["debug"]["fieldViolations"][0]["field"].startswith("filter.states")


async def test_a_hub_that_stops_ends_its_streams_with_a_token_that_works(hub: Hub, web: Web) -> None:
    last = (0, b"")
    async with aclosing(web.stream(WATCH_SERVERS, {})) as steps:
        await anext(steps)
        hub.end_watches()
        async for step in steps:
            last = step
    assert last[0] == END
    error = json.loads(last[1])["error"]
    assert (error["code"], error["details"][0]["debug"]["reason"]) == ("unavailable", "SHUTTING_DOWN")
    assert error["details"][0]["debug"]["metadata"]["resume_token"]


class Endless:
    """A servicer whose watch always has more to say."""

    def __init__(self) -> None:
        self.closed = False

    def __getattr__(self, name: str) -> object:
        return None  # no other RPC is called

    async def watch_servers(self, _request: object) -> AsyncGenerator[bytes, None]:
        try:
            for number in itertools.count():
                yield server_pb2.WatchServersResponse(resume_token=f"{number:<10000}").SerializeToString()
        finally:
            self.closed = True


async def test_a_watcher_that_reads_nothing_is_let_go(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    servicer = Endless()
    monkeypatch.setattr(connect, "make_servicers", lambda _hub, _carried: [(SERVER_SERVICE, servicer)])
    monkeypatch.setattr(connect, "STALL_S", 0.2)
    async with connect.serve_connect(hub, listen="127.0.0.1:0", gate=gate(hub)) as base:
        caller = Web(base)
        async with caller.http, aclosing(caller.stream(WATCH_SERVERS, {})) as steps:
            await anext(steps)
            await until(lambda: servicer.closed)


async def test_no_page_of_another_origin_may_call_by_default(web: Web) -> None:
    refused = await web.http.options(GET_SERVER, headers=PREFLIGHT)
    assert not refused.is_success
    answered = await web.post(GET_SERVER, {"name": "away"}, origin=ORIGIN)
    assert not [name for name in (*refused.headers, *answered.headers) if name.startswith("access-control-")]


@pytest.mark.parametrize("origins", [[ORIGIN]])
async def test_pages_of_the_listed_origins_may_call(web: Web) -> None:
    allowed = await web.http.options(GET_SERVER, headers=PREFLIGHT)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    answered = await web.post(GET_SERVER, {"name": "away"}, origin=ORIGIN)
    assert answered.headers["access-control-allow-origin"] == ORIGIN
    assert "grpc-status" in answered.headers["access-control-expose-headers"]
    other = await web.http.options(GET_SERVER, headers=PREFLIGHT | {"origin": f"{ORIGIN}1"})
    assert "access-control-allow-origin" not in other.headers


async def test_a_port_that_is_taken_is_named(hub: Hub, web: Web) -> None:
    taken = f"127.0.0.1:{web.http.base_url.port}"
    with pytest.raises(OSError, match=f"cannot listen on {taken}"):
        async with connect.serve_connect(hub, listen=taken, gate=gate(hub)):
            pass


async def test_json_adds_no_server_that_the_operator_does_not_allow(web: Web) -> None:
    add = "/hubbub.v1.ServerService/AddServer"
    evil: list[dict[str, Any]] = [
        {"name": "x", "stdio": {"command": "/bin/sh", "args": ["-c", "exit"]}},
        {"name": "x", "stdio": {"command": sys.executable, "env": {"LD_PRELOAD": "x"}}},
        {"name": "x", "http": {"url": "http://169.254.169.254/"}},
        {"name": "x", "http": {"url": "http://127.0.0.1/", "headers": {"X": "${HOME}"}}},
    ]
    for spec in evil:
        assert (await web.post(add, {"spec": spec})).status_code == 403
    imported = {"mcpServers": {"x": {"command": "/bin/sh"}}}
    for body in (imported, {"spec": imported}):
        assert (await web.post(add, body)).status_code == 400


async def test_the_description_of_the_api_is_given_to_anybody_and_only_to_read(web: Web) -> None:
    got = await web.http.get("/openapi.json")
    assert (got.status_code, got.headers["content-type"]) == (200, "application/json")
    assert got.json() == test_openapi.DOCUMENT
    assert (await web.http.head("/openapi.json")).status_code == 200
    refused = await web.http.post("/openapi.json", content=b"{}")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_what_is_answered_fits_its_description(web: Web) -> None:
    answered = await web.post(GET_SERVER, {"name": "away"})
    test_openapi.schema("hubbub.v1.GetServerResponse").validate(answered.json())
    for response in (await web.post(GET_SERVER, {"nam": 1}), await web.post(GET_SERVER, {"name": "nobody"})):
        assert not response.is_success
        test_openapi.schema("Error").validate(response.json())
        test_openapi.schema("ErrorInfo").validate(response.json()["details"][0]["debug"])
