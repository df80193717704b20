"""Servers that ask for OAuth: a person lets the hub in, and its calls wait for that."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest

from hubbubd import payload
from hubbubd.core.inbox import forms
from hubbubd.core.inbox.request_states import Delivery, RequestKind, RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import InvalidArgument

from .conftest import LIMIT_S
from .guarded import CALL, Guarded, Start, listening, starts, until, url_of, visit


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A `Guarded` server that listens."""
    async with listening() as server:
        yield server


@pytest.fixture
def start(guarded: Guarded, tmp_path: Path) -> Start:
    """Starts a hub over the same data directory: `start(**server configuration)`."""
    return starts(guarded, tmp_path)


async def test_a_browser_that_comes_back_to_the_hub_answers_the_request_by_itself(
    start: Start, guarded: Guarded
) -> None:
    async with start() as world:
        request = await world.asked()
        assert request.kind is RequestKind.ELICITATION_URL
        assert payload.loads(request.request)["mode"] == "url"
        page = await visit(url_of(request))
        assert "close this window" in page.text
        await world.until_state(ConnectionState.CONNECTED)
        settled = world.hub.inbox.get(request.id)
        assert (settled.state, settled.delivery) == (RequestState.ANSWERED, Delivery.DELIVERED)
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
        await world.until_state(ConnectionState.CONNECTED)
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
        await world.connect()


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
        await world.connect()


@pytest.mark.parametrize("given", [forms.Decline(), forms.Dismiss()])
async def test_an_authorization_that_a_person_refuses_fails_the_attempt_for_good(
    given: forms.ClientAnswer, start: Start
) -> None:
    async with start(retries=3) as world:
        request = await world.answer(await world.asked(), given)
        await world.until_state(ConnectionState.DISCONNECTED)
        assert world.hub.inbox.get(request.id).delivery is Delivery.DELIVERED
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", False)
        assert "ada refused" in fault.message
        assert not world.open()


async def test_an_authorization_that_nobody_gives_in_time_fails_the_attempt(start: Start) -> None:
    async with start(answer_timeout_s=0.3) as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", False)
        assert "not authorized" in fault.message


async def test_the_time_to_connect_does_not_run_while_a_person_is_asked(start: Start) -> None:
    async with start(connect_timeout_s=4) as world:
        await world.asked()
        await anyio.sleep(4.5)  # the time is what is tested
        await world.connect()


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
        await world.connect()
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
        await world.connect()
        calls.start_soon(world.hub.calls.call, CALL, "ada")
        await world.answer(await world.asked(), forms.Decline())
        await until(lambda: world.server.counts.failed == 1)
        assert world.server.connection.state is ConnectionState.CONNECTED
        guarded.needed = {}  # and keeps the rights it had
        calls.start_soon(world.hub.calls.call, CALL, "ada")
        await until(lambda: world.open() or world.server.counts.completed == 1)
        assert not world.open()


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
        assert world.server.connection.state is ConnectionState.CONNECTED
        assert world.open() == [request]
        await world.let_in()
        await until(lambda: world.server.counts.completed == 1)


async def test_a_server_with_a_token_in_its_headers_is_not_asked_for_another(start: Start, guarded: Guarded) -> None:
    async with start(headers={"authorization": "Bearer wrong"}) as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert not guarded.registered


async def test_oauth_that_is_configured_goes_before_a_token_in_the_headers(start: Start) -> None:
    async with start(headers={"authorization": "Bearer wrong"}, oauth={"client_id": "hub"}) as world:
        await world.asked()
