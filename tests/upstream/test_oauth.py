"""Servers that ask for OAuth: a person lets the hub in, and the hub keeps what it was given to itself."""

import json
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from hubbubd import payload
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core import forms
from hubbubd.core.connection import State
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox import Delivery, RequestKind, RequestState
from hubbubd.errors import InvalidArgument
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite import SqliteStore
from hubbubd.store.vault import NAME, TokenFile
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.oauth_replies import REPLY_BYTES

from .conftest import LIMIT_S, served
from .guarded import Guarded, World, until, url_of, visit

CALL = CallSpec(server="guarded", method="tools/call", params=b'{"name": "any", "arguments": {}}')


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A `Guarded` server that listens."""
    server = Guarded()
    async with served(Starlette(routes=server.routes())) as server.origin:
        yield server


Start = Callable[..., Any]


@pytest.fixture
def start(guarded: Guarded, tmp_path: Path) -> Start:
    """Starts a hub over the same data directory: `start(**server configuration)`."""

    @asynccontextmanager
    async def run(**options: Any) -> AsyncIterator[World]:
        config = ServerConfig.model_validate({"name": "guarded", "url": guarded.url, "retries": 0, **options})
        settings = HubSettings(data_dir=tmp_path, allow_hosts=("127.0.0.1",))
        store = await SqliteStore.open(tmp_path / "hubbub.db")
        connector = McpConnector(TokenFile.open(tmp_path))
        try:
            async with Hub.open(store, connector, {"guarded": config}, settings) as hub:
                yield World(hub, tmp_path)
        finally:
            await store.close()

    return run


async def test_a_browser_that_comes_back_to_the_hub_answers_the_request_by_itself(
    start: Start, guarded: Guarded
) -> None:
    async with start() as world:
        request = await world.asked()
        assert request.kind is RequestKind.ELICITATION_URL
        assert payload.loads(request.request)["mode"] == "url"
        page = await visit(url_of(request))
        assert "close this window" in page.text
        await world.until_state(State.CONNECTED)
        settled = world.hub.inbox.get(request.id)
        assert (settled.state, settled.delivery) == (RequestState.ANSWERED, Delivery.DELIVERED)
        assert settled.answer is not None
        assert payload.loads(settled.answer.payload) == {"action": "accept"}
        await world.hub.calls.call(CALL, "ada")
    assert guarded.registered[0]["application_type"] == "native"
    assert [grant["grant_type"] for grant in guarded.grants] == ["authorization_code"]
    assert guarded.grants[0]["resource"] == guarded.url


async def test_nobody_listens_for_a_browser_once_the_authorization_is_over(start: Start) -> None:
    async with start() as world:
        request = await world.asked()
        back = (await visit(url_of(request), follow=False)).headers["location"]
        assert (await visit(back)).status_code == 200
        await world.until_state(State.CONNECTED)
        with pytest.raises(httpx2.ConnectError):
            await visit(back)


@pytest.mark.parametrize("sent", [b"GET http://[ HTTP/1.1", b"POST /callback HTTP/1.1", b"\xff\xfe", b"x" * 20_000])
async def test_what_is_no_visit_of_a_browser_is_turned_away(sent: bytes, start: Start) -> None:
    async with start() as world:
        request = await world.asked()
        port = urlsplit(parse_qs(urlsplit(url_of(request)).query)["redirect_uri"][0]).port
        assert port is not None
        async with await anyio.connect_tcp("127.0.0.1", port) as visitor:
            await visitor.send(sent + b"\r\n\r\n")
            reply = b""
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    reply += await visitor.receive()
        assert not reply or reply.startswith(b"HTTP/1.1 400 ")
        await world.let_in()
        await world.until_state(State.CONNECTED)


async def test_a_redirect_url_that_somebody_pastes_answers_the_request(start: Start) -> None:
    async with start() as world:
        request = await world.asked()
        back = (await visit(url_of(request), follow=False)).headers["location"]
        await world.answer(request, forms.Accept({"redirect_url": back}))
        await world.until_state(State.CONNECTED)
        settled = world.hub.inbox.get(request.id)
        assert settled.answered_by == "ada"
        assert b"code" not in (settled.answer.payload if settled.answer else b"")


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"redirect_url": 1},
        {"name": "Ada"},
        {"redirect_url": "http://127.0.0.1/callback?code=c&state=another"},
        {"redirect_url": "http://127.0.0.1/callback?code=c"},
        {"redirect_url": "http://[/callback?code=c"},
    ],
)
async def test_an_acceptance_without_the_right_redirect_url_is_refused_and_the_request_stays_open(
    content: dict[str, Any] | None, start: Start
) -> None:
    async with start() as world:
        request = await world.asked()
        with pytest.raises(InvalidArgument) as caught:
            await world.answer(request, forms.Accept(content))
        assert caught.value.violations
        assert world.hub.inbox.get(request.id).state is RequestState.OPEN


async def test_a_visit_with_another_state_changes_nothing(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        request = await world.asked()
        back = parse_qs(urlsplit(url_of(request)).query)["redirect_uri"][0]
        assert (await visit(f"{back}?code=stolen&state=guessed")).status_code == 400
        assert (await visit(f"{back}?code=stolen")).status_code == 400
        assert world.hub.inbox.get(request.id).state is RequestState.OPEN
        assert not guarded.grants
        await world.let_in()
        await world.until_state(State.CONNECTED)


@pytest.mark.parametrize("given", [forms.Decline(), forms.Dismiss()])
async def test_an_authorization_that_a_person_refuses_fails_the_attempt_for_good(
    given: forms.Given, start: Start
) -> None:
    async with start(retries=3) as world:
        request = await world.answer(await world.asked(), given)
        await world.until_state(State.DISCONNECTED)
        assert world.hub.inbox.get(request.id).delivery is Delivery.DELIVERED
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", False)
        assert "ada refused" in fault.message
        assert not world.open()


async def test_an_authorization_that_nobody_gives_in_time_fails_the_attempt(start: Start) -> None:
    async with start(answer_timeout_s=0.3) as world:
        await world.until_state(State.DISCONNECTED)
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", False)
        assert "not authorized" in fault.message


async def test_what_an_authorization_server_refuses_is_said(start: Start) -> None:
    async with start() as world:
        request = await world.asked()
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url_of(request)).query).items()}
        refusal = urlencode({"error": "access_denied", "error_description": "not today", "state": asked["state"]})
        await visit(f"{asked['redirect_uri']}?{refusal}")
        await world.until_state(State.DISCONNECTED)
        assert "access_denied not today" in world.server.connection.fault.message


async def test_the_time_to_connect_does_not_run_while_a_person_is_asked(start: Start) -> None:
    async with start(connect_timeout_s=4) as world:
        await world.asked()
        await anyio.sleep(4.5)  # the time is what is tested
        await world.let_in()
        await world.until_state(State.CONNECTED)


async def test_a_disconnect_takes_the_request_back(start: Start) -> None:
    async with start() as world:
        request = await world.asked()
        await world.hub.servers.disconnect("guarded")
        await until(lambda: world.hub.inbox.get(request.id).state is RequestState.WITHDRAWN)


async def test_tokens_are_in_a_file_of_the_owner_and_nowhere_else(start: Start, tmp_path: Path) -> None:
    async with start() as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        await world.hub.calls.call(CALL, "ada")
        shown = repr((world.server, world.hub.inbox.select(RequestFilter())))
    file = tmp_path / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret-token-1" in file.read_text()
    assert "secret-" not in shown
    for other in set(tmp_path.iterdir()) - {file}:
        assert b"secret-" not in other.read_bytes(), other
        assert b"code-0" not in other.read_bytes(), other


async def test_a_hub_that_was_let_in_once_is_let_in_after_a_restart(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
    async with start() as world:
        await world.until_state(State.CONNECTED)
        assert not world.open()
    assert len(guarded.grants) == 1


async def test_a_token_that_is_not_taken_any_more_is_renewed_without_a_person(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        guarded.valid.clear()
        await world.hub.calls.call(CALL, "ada")
        assert not world.open()
        assert world.kept["tokens"]["access_token"] == "secret-token-2"
    assert guarded.grants[1]["grant_type"] == "refresh_token"
    assert guarded.grants[1]["refresh_token"] == "secret-renewal-1"


async def test_a_refusal_that_comes_after_the_token_was_renewed_renews_it_no_second_time(
    start: Start, guarded: Guarded
) -> None:
    async with start(max_in_flight=2) as world, anyio.create_task_group() as calls:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        guarded.valid.clear()
        guarded.late = renewed = anyio.Event()
        for _ in range(2):
            calls.start_soon(world.hub.calls.call, CALL, "ada")
        await until(lambda: world.kept["tokens"]["access_token"] == "secret-token-2")
        renewed.set()
    assert [grant["grant_type"] for grant in guarded.grants] == ["authorization_code", "refresh_token"]


async def test_a_token_that_expired_while_the_hub_was_down_is_renewed_where_it_came_from(
    start: Start, guarded: Guarded, tmp_path: Path
) -> None:
    async with start() as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
    kept = json.loads((tmp_path / NAME).read_bytes())
    kept["guarded"]["expires_at"] = 1.0
    (tmp_path / NAME).write_text(json.dumps(kept))
    async with start() as world:
        await world.until_state(State.CONNECTED)
    assert [grant["grant_type"] for grant in guarded.grants] == ["authorization_code", "refresh_token"]
    assert guarded.script.headers[-1]["authorization"] == "Bearer secret-token-2"


async def test_calls_wait_for_a_person_together_and_lose_no_time(start: Start, guarded: Guarded) -> None:
    guarded.renewing = False
    async with start(max_in_flight=3, call_timeout_s=4) as world, anyio.create_task_group() as calls:
        await world.let_in()
        await until(lambda: ("POST", "tools/list") in guarded.script.seen)
        guarded.valid.clear()
        for _ in range(3):
            calls.start_soon(world.hub.calls.call, CALL, "ada")
        request = await world.asked()
        assert request.call_id
        await until(lambda: world.server.counts.waiting_input == 3)
        await anyio.sleep(4.5)  # longer than call_timeout_s, which is what is tested
        assert len(world.open()) == 1
        await world.let_in()
        await until(lambda: world.server.counts.completed == 3)


async def test_a_call_that_needs_more_rights_asks_for_them_and_keeps_those_it_had(
    start: Start, guarded: Guarded
) -> None:
    guarded.needed = {"tools/call": "write"}
    async with start() as world, anyio.create_task_group() as calls:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        calls.start_soon(world.hub.calls.call, CALL, "ada")
        request = await world.asked()
        assert parse_qs(urlsplit(url_of(request)).query)["scope"] == ["read write"]
        await world.let_in()
        await until(lambda: world.server.counts.completed == 1)


async def test_a_call_whose_authorization_is_refused_fails_and_the_connection_stays(
    start: Start, guarded: Guarded
) -> None:
    guarded.needed = {"tools/call": "write"}
    async with start() as world, anyio.create_task_group() as calls:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        calls.start_soon(world.hub.calls.call, CALL, "ada")
        await world.answer(await world.asked(), forms.Decline())
        await until(lambda: world.server.counts.failed == 1)
        assert world.server.connection.state is State.CONNECTED


async def test_a_connection_lives_on_while_its_pings_are_refused(start: Start, guarded: Guarded) -> None:
    guarded.renewing = False
    async with start(ping_interval_s=0.1, ping_timeout_s=LIMIT_S) as world, anyio.create_task_group() as calls:
        await world.let_in()
        await until(lambda: ("POST", "tools/list") in guarded.script.seen)
        guarded.valid.clear()
        guarded.refused = 0
        await until(lambda: guarded.refused > 5)
        assert not world.open()
        calls.start_soon(world.hub.calls.call, CALL, "ada")
        request = await world.asked()
        guarded.refused = 0
        await until(lambda: guarded.refused > 5)
        assert world.server.connection.state is State.CONNECTED
        assert world.open() == [request]
        await world.let_in()
        await until(lambda: world.server.counts.completed == 1)


async def test_the_tokens_of_a_server_go_with_it(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        assert world.kept
    async with start(url=f"{guarded.origin}/mcp?another") as world:
        await world.asked()
        assert "tokens" not in world.kept


async def test_the_tokens_of_a_server_that_is_removed_are_deleted(
    start: Start, guarded: Guarded, tmp_path: Path
) -> None:
    async with start(headers={"authorization": "Bearer wrong"}) as world:
        await world.hub.servers.add(ServerConfig(name="another", transport="http", url=guarded.url))
        await world.let_in()
        await until(lambda: world.hub.servers.get("another").connection.state is State.CONNECTED)
        assert b"secret-" in (tmp_path / NAME).read_bytes()
        await world.hub.servers.remove("another")
        assert b"secret-" not in (tmp_path / NAME).read_bytes()


async def test_an_authorization_server_that_cannot_be_reached_is_named_and_tried_again(
    start: Start, guarded: Guarded, free_port: int
) -> None:
    guarded.elsewhere = f"http://127.0.0.1:{free_port}/"
    async with start() as world:
        await world.until_state(State.DISCONNECTED)
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", True)
        assert "127.0.0.1 could not be asked" in fault.message


@pytest.mark.parametrize("elsewhere", ["http://login.example.com/", "http://169.254.169.254/"])
async def test_the_hub_goes_nowhere_without_tls_because_a_server_says_so(
    elsewhere: str, start: Start, guarded: Guarded
) -> None:
    guarded.elsewhere = elsewhere
    async with start() as world:
        await world.until_state(State.DISCONNECTED)
        assert "is not https" in world.server.connection.fault.message


async def test_what_an_authorization_server_sends_by_mistake_is_not_repeated(
    start: Start, guarded: Guarded, capfd: pytest.CaptureFixture[str]
) -> None:
    guarded.granted = {"refresh_token": "secret-renewal", "token_type": "bearer"}
    async with start() as world:
        await world.let_in()
        await world.until_state(State.DISCONNECTED)
        fault = world.server.connection.fault
        assert fault.code == "AUTHENTICATION_FAILED"
        assert "access_token" in fault.message
        assert "secret-" not in repr(fault)
    assert "secret-" not in "".join(capfd.readouterr())


async def test_a_reply_of_an_authorization_server_that_is_too_long_is_no_token(start: Start, guarded: Guarded) -> None:
    guarded.granted = {"access_token": "x" * REPLY_BYTES, "token_type": "bearer"}
    async with start() as world:
        await world.let_in()
        await world.until_state(State.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
        assert "tokens" not in world.kept


async def test_a_reply_of_an_authorization_server_is_not_decoded(start: Start, guarded: Guarded) -> None:
    guarded.coding = "gzip"
    async with start() as world:
        await world.until_state(State.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert guarded.registered == []


async def test_a_client_that_the_operator_registered_is_used_as_it_is(
    start: Start, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "hush")
    oauth = {"client_id": "ours", "client_secret": "${CLIENT_SECRET}", "issuer": guarded.origin}
    async with start(oauth=oauth) as world:
        await world.let_in()
        await world.until_state(State.CONNECTED)
        assert "hush" not in json.dumps(world.kept)
    assert not guarded.registered
    assert httpx2.BasicAuth("ours", "hush")._auth_header == guarded.authenticated[0]


async def test_client_credentials_need_no_person(start: Start, guarded: Guarded) -> None:
    oauth = {"grant": "client_credentials", "client_id": "us", "client_secret": "hush", "issuer": guarded.origin}
    async with start(oauth=oauth) as world:
        await world.until_state(State.CONNECTED)
    assert guarded.grants[0]["grant_type"] == "client_credentials"


async def test_client_credentials_go_to_their_own_issuer_only(start: Start, guarded: Guarded) -> None:
    oauth = {
        "grant": "client_credentials",
        "client_id": "us",
        "client_secret": "hush",
        "issuer": "https://login.example.com",
    }
    async with start(oauth=oauth) as world:
        await world.until_state(State.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert not guarded.grants


async def test_a_server_with_a_token_in_its_headers_is_not_asked_for_another(start: Start, guarded: Guarded) -> None:
    async with start(headers={"authorization": "Bearer wrong"}) as world:
        await world.until_state(State.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert not guarded.registered
