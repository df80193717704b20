"""Who may use the MCP endpoint, from where, and what becomes of that when a credential ends."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.core.access import Role
from hubbubd.core.audit import AuditFilter, AuditKind
from hubbubd.errors import Unauthenticated
from hubbubd.rpc.mcp.admission import Admission
from hubbubd.rpc.mcp.transport import HostHttpRequest, HttpRefusal

from ..runtime.peer import never
from .conftest import LIMIT_S, until
from .mcp_host import NEW, OLD, ONE, RIGHT, Host, Stage, request, stage, tool

HELLO = request(0, "initialize", protocolVersion=OLD, capabilities={})
METADATA = "/.well-known/oauth-protected-resource"
PAGE = "https://page.example"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub whose hosts may also come from a page and by a name."""
    async with stage(tmp_path, mcp_origins=(PAGE,), mcp_hosts=("hub.example",)) as made_:
        yield made_


@pytest.fixture
async def without_login(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub at which nobody can log in."""
    async with stage(tmp_path, mcp_login=False) as made_:
        yield made_


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"x": "y"}, ""),
        ({"authorization": "Bearer wrong"}, 'error="invalid_token", '),
        ({"authorization": "Basic YTpi"}, 'error="invalid_token", '),
    ],
    ids=["none", "a wrong one", "another scheme"],
)
@pytest.mark.parametrize("path", [ONE, "/mcp/s/nowhere"])
async def test_without_a_credential_a_host_hears_of_no_log_in_that_is_not_there(
    without_login: Stage, headers: dict[str, str], error: str, path: str
) -> None:
    for method in ("POST", "GET", "DELETE"):
        refused = await without_login.host(path, **headers).send(method, HELLO if method == "POST" else None)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == f"Bearer {error}".rstrip(" ,")
    if not error:
        refused = await without_login.host(path, **headers).post(HELLO)
        assert "hubbub tokens create NAME --role caller" in refused.text
    assert (await without_login.http.get(f"{without_login.base}{METADATA}{path}")).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/register",
        "/authorize",
        "/token",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/oauth/register",
        "/oauth/authorize?client_id=x",
        "/oauth/token",
        "/oauth/revoke",
        "/oauth/enter",
        "/mcpx",
    ],
)
async def test_where_hosts_look_for_a_log_in_there_is_nothing(without_login: Stage, path: str) -> None:
    for method in ("GET", "POST"):
        assert (await without_login.http.request(method, f"{without_login.base}{path}")).status_code == 404


async def test_with_an_identity_provider_a_host_is_told_where_it_says_which() -> None:
    admission = Admission(gate=None, oversight=None, issuer="https://login.example.com")  # type: ignore[arg-type]
    for exc, error in (
        (Unauthenticated("", reason="TOKEN_MISSING"), ""),
        (Unauthenticated(""), 'error="invalid_token", '),
    ):
        ((_, told),) = admission.refusal_headers(received(), exc)
        assert told.decode() == f'Bearer {error}resource_metadata="http://127.0.0.1:7881{METADATA}{ONE}"'


async def test_the_metadata_name_the_identity_provider_and_what_its_tokens_are_for() -> None:
    admission = Admission(
        gate=None,  # type: ignore[arg-type]
        oversight=None,  # type: ignore[arg-type]
        issuer="https://login.example.com",
        audience="https://hub.example/mcp",
        secure=True,
    )
    told = admission.resource_metadata(received(f"{METADATA}/mcp"))
    assert b'"authorization_servers":["https://login.example.com"]' in told
    assert b'"resource":"https://hub.example/mcp"' in told


@pytest.mark.parametrize("query", ["access_token=right-token", "a=b&token=", "access_token"])
async def test_a_token_in_the_url_is_refused_beside_a_good_one(made: Stage, query: str) -> None:
    refused = await made.host(f"{ONE}?{query}").post(HELLO)
    assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (401, "TOKEN_IN_URL")


def received(path: str = ONE, server: str = "127.0.0.1", **headers: str) -> HostHttpRequest:
    """A request with these headers at an address of the hub."""
    shown = [(key.encode(), value.encode()) for key, value in {"host": "127.0.0.1:7881", **headers}.items()]
    scope: Any = {"type": "http", "path": path, "headers": shown, "server": (server, 7881)}
    return HostHttpRequest.of(scope, None, None)  # type: ignore[arg-type]


LOCAL = ("127.0.0.1:7881", "127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:7881", "[::1]", "127.8.8.8:1")
ELSEWHERE = ("evil.example", "127.0.0.1.evil.example:7881", "localhost.evil.example", "10.0.0.1:7881", "[fe80::1]")
MALFORMED = ("", "localhost:x", "localhost:99999", "a@localhost", "localhost/", "[::1", "local host", "::1")


@pytest.mark.parametrize("host", [*LOCAL, "hub.example", "HUB.example:443", "[2001:db8::1]:7881"])
def test_hosts_by_which_the_hub_is_reached_on_its_own_machine(host: str) -> None:
    named(("hub.example", "[2001:db8::1]")).check_host_and_origin(received(host=host))


@pytest.mark.parametrize("host", [*ELSEWHERE, *MALFORMED])
@pytest.mark.parametrize("secure", [False, True])
def test_other_hosts_are_misdirected_on_its_own_machine(host: str, secure: bool) -> None:
    with pytest.raises(HttpRefusal) as refused:
        named(("hub.example",), secure=secure).check_host_and_origin(received(host=host))
    assert refused.value.status == 421


def test_off_loopback_the_names_that_are_given_are_the_only_ones() -> None:
    for host in ("hub.example", "10.0.0.1:7881"):
        named(("hub.example",), secure=True).check_host_and_origin(received(server="10.0.0.1", host=host))
    for host in ("evil.example", "localhost:7881"):
        with pytest.raises(HttpRefusal):
            named(("hub.example",), secure=True).check_host_and_origin(received(server="10.0.0.1", host=host))
    named((), secure=True).check_host_and_origin(received(server="10.0.0.1", host="whatever.example"))


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:8", PAGE])
def test_pages_that_may_use_the_hub_may_read_what_it_says(origin: str) -> None:
    request_ = received(origin=origin)
    named(()).check_host_and_origin(request_)
    assert (b"access-control-allow-origin", origin.encode()) in request_.extra_headers


@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://localhost.evil.example", f"{PAGE}:444", "file://localhost", ""]
)
def test_other_pages_may_not(origin: str) -> None:
    with pytest.raises(HttpRefusal) as refused:
        named(()).check_host_and_origin(received(origin=origin))
    assert refused.value.status == 403


def named(hosts: tuple[str, ...], *, secure: bool = False) -> Admission:
    """What is checked of where a request comes from."""
    none: Any = None
    return Admission(gate=none, oversight=none, hosts=lambda: hosts, origins=lambda: (PAGE,), secure=secure)


async def test_where_a_request_comes_from_is_checked_before_its_credential(made: Stage) -> None:
    for path in (ONE, f"{METADATA}/mcp"):
        for headers in (RIGHT, {"authorization": "Bearer wrong"}):
            assert (await Host(made.http, path, headers | {"host": "evil.example"}).send("GET")).status_code == 421
            assert (
                await Host(made.http, path, headers | {"origin": "https://evil.example"}).send("GET")
            ).status_code == 403
    assert (await made.host().send("OPTIONS", origin="https://evil.example")).status_code == 403


async def test_a_page_can_ask_beforehand_and_reads_the_session(made: Stage) -> None:
    asked = "authorization, content-type, mcp-protocol-version, mcp-param-region"
    first = await made.host(ONE, x="y").send(
        "OPTIONS",
        origin=PAGE,
        access_control_request_method="POST",
        access_control_request_headers=asked,
        access_control_request_private_network="true",
    )
    assert first.status_code == 204
    allowed = first.headers["access-control-allow-headers"].split(", ")
    assert set(asked.split(", ")) <= set(allowed)
    assert first.headers["access-control-allow-private-network"] == "true"
    assert "DELETE" in first.headers["access-control-allow-methods"]
    for refused in (await made.host(ONE, x="y").post(HELLO, origin=PAGE), await made.host().post(HELLO, origin=PAGE)):
        assert refused.headers["access-control-allow-origin"] == PAGE
        assert "mcp-session-id" in refused.headers["access-control-expose-headers"]


async def test_what_a_principal_may_not_call_does_not_exist(made: Stage) -> None:
    viewer = await made.named("viewer", Role.VIEWER)
    of_two = await made.named("of-two", Role.CALLER, servers=("two",))
    for host in (viewer, of_two):
        for path in (ONE, "/mcp/s/nowhere"):
            host.path = path
            refused = await host.post(HELLO)
            assert refused.status_code in (403, 404)
            assert (
                refused.json()["error"]["message"].replace("nowhere", "one")
                == ((await Host(host.http, ONE, host.headers).post(HELLO)).json()["error"]["message"])
            )
    of_two.path = "/mcp/s/two"
    assert (await of_two.post(HELLO)).status_code == 200


async def test_a_session_is_no_right_and_of_no_use_to_others(made: Stage) -> None:
    owner, other = await made.named("owner"), await made.named("other")
    session = await owner.begin()
    id_ = session.headers["mcp-session-id"]
    for method in ("POST", "GET", "DELETE"):
        body = tool(1) if method == "POST" else None
        assert (await made.host(ONE, mcp_session_id=id_).send(method, body)).status_code == 401
        assert (await other.send(method, body, mcp_session_id=id_)).status_code == 404
        assert (await Host(made.http, "/mcp/s/two", session.headers).send(method, body)).status_code == 404
        assert (await owner.send(method, body, mcp_session_id="no-such-session")).status_code == 404
        if method != "GET":
            assert (await owner.send(method, body)).status_code == 400
    assert (await session.post(request(1, "ping"))).json()["result"] == {}


@pytest.mark.parametrize("new", [False, True], ids=[OLD, NEW])
async def test_a_credential_that_ends_ends_requests_and_streams_at_once(made: Stage, new: bool) -> None:
    made.peers["one"].behaviour = never
    host = await made.named("leaving")
    session = host if new else await host.begin()
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await (host.new(tool(1)) if new else session.post(tool(1))))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await made.arrived()
        if not new:
            tasks.start_soon(lost_connection, session, made)
            await made.arrived(2)
            async with session.stream("GET") as own:
                await made.hub.tokens.revoke("leaving")
                assert await own.next() is None
        else:
            await made.hub.tokens.revoke("leaving")
    assert answers[0].status_code == 401
    assert answers[0].json()["error"]["data"]["reason"] == "CREDENTIAL_ENDED"
    await until(lambda: all(each.cancelled for each in made.peers["one"].sent))
    assert (await session.post(tool(2))).status_code == 401


async def lost_connection(session: Host, made: Stage) -> None:
    """A request whose host goes away while it is served."""
    with anyio.move_on_after(LIMIT_S) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.post, tool(2))
            await made.arrived(2)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught


async def test_refusals_are_in_the_audit_log_as_those_of_rpcs_are(made: Stage) -> None:
    await made.host(ONE, authorization="Bearer wrong").post(HELLO)
    viewer = await made.named("viewer", Role.VIEWER)
    await viewer.post(HELLO)
    refused = [entry for entry in made.hub.audit.select(AuditFilter()) if entry.kind is AuditKind.REFUSAL]
    assert sorted((entry.principal, entry.outcome) for entry in refused) == [
        ("", "TOKEN_INVALID"),
        ("viewer", "PERMISSION_DENIED"),
    ]


async def test_the_rate_of_a_principal_counts_messages_of_hosts(tmp_path: Path) -> None:
    async with stage(tmp_path, rpcs_per_s_per_principal=1) as slow:
        host = slow.host()
        seen = [(await host.send("GET")).status_code for _ in range(12)]
    assert seen.count(429) >= 1
