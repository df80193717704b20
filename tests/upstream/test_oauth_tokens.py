"""Tokens of servers that ask for OAuth: how they are kept and renewed, and the authorization servers they come from."""

import gc
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hubbubd.core.filters import RequestFilter
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.store.vault.file import NAME
from hubbubd.upstream.http.oauth import replies
from hubbubd.upstream.http.oauth.replies import REPLY_BYTES

from .guarded import CALL, Guarded, Start, listening, starts, until


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A `Guarded` server that listens."""
    async with listening() as server:
        yield server


@pytest.fixture
def start(guarded: Guarded, tmp_path: Path) -> Start:
    """Starts a hub over the same data directory: `start(**server configuration)`."""
    return starts(guarded, tmp_path)


async def test_tokens_are_in_a_file_of_the_owner_and_nowhere_else(start: Start, tmp_path: Path) -> None:
    async with start() as world:
        await world.connect()
        await world.hub.calls.call(CALL, "ada")
        shown = repr((world.server, world.hub.inbox.select(RequestFilter())))
    file = tmp_path / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret-token-1" in file.read_text()
    assert "secret-" not in shown
    for other in set(tmp_path.iterdir()) - {file}:
        assert b"secret-" not in other.read_bytes(), other
        assert b"code-0" not in other.read_bytes(), other


async def test_a_connection_with_a_token_keeps_no_garbage_for_good(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        await world.connect()
        permanent = gc.get_freeze_count()
        await world.hub.servers.disconnect("guarded")
        await world.hub.servers.connect("guarded")
        await world.until_state(ConnectionState.CONNECTED)
        assert gc.get_freeze_count() <= permanent


async def test_a_refusal_that_comes_after_the_token_was_renewed_renews_it_no_second_time(
    start: Start, guarded: Guarded
) -> None:
    async with start(max_in_flight=2) as world, anyio.create_task_group() as calls:
        await world.connect()
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
        await world.connect()
    kept = json.loads((tmp_path / NAME).read_bytes())
    kept["guarded"]["expires_at"] = 1.0
    (tmp_path / NAME).write_text(json.dumps(kept))
    async with start() as world:
        await world.until_state(ConnectionState.CONNECTED)
    assert [grant["grant_type"] for grant in guarded.grants] == ["authorization_code", "refresh_token"]
    assert guarded.script.headers[-1]["authorization"] == "Bearer secret-token-2"


async def test_the_tokens_of_a_server_go_with_it(start: Start, guarded: Guarded) -> None:
    async with start() as world:
        await world.connect()
        assert world.kept
    async with start(url=f"{guarded.origin}/mcp?another") as world:
        await world.asked()
        assert "tokens" not in world.kept


async def test_an_authorization_server_that_cannot_be_reached_is_named_and_tried_again(
    start: Start, guarded: Guarded, free_port: int
) -> None:
    guarded.elsewhere = f"http://127.0.0.1:{free_port}/"
    async with start() as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", True)
        assert "127.0.0.1 could not be asked" in fault.message


async def test_an_authorization_server_that_never_answers_is_named_and_tried_again(
    start: Start, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "REPLY_LIMIT_S", 1.0)
    guarded.silent = True
    async with start() as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        fault = world.server.connection.fault
        assert (fault.code, fault.retryable) == ("AUTHENTICATION_FAILED", True)
        assert "127.0.0.1 could not be asked" in fault.message


@pytest.mark.parametrize("elsewhere", ["http://login.example.com/", "http://169.254.169.254/"])
async def test_the_hub_goes_nowhere_without_tls_because_a_server_says_so(
    elsewhere: str, start: Start, guarded: Guarded
) -> None:
    guarded.elsewhere = elsewhere
    async with start() as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        assert "is not https" in world.server.connection.fault.message


async def test_what_an_authorization_server_sends_by_mistake_is_not_repeated(
    start: Start, guarded: Guarded, capfd: pytest.CaptureFixture[str]
) -> None:
    guarded.granted = {"refresh_token": "secret-renewal", "token_type": "bearer"}
    async with start() as world:
        await world.let_in()
        await world.until_state(ConnectionState.DISCONNECTED)
        fault = world.server.connection.fault
        assert fault.code == "AUTHENTICATION_FAILED"
        assert "access_token" in fault.message
        assert "secret-" not in repr(fault)
    assert "secret-" not in "".join(capfd.readouterr())


async def test_a_reply_of_an_authorization_server_that_is_too_long_is_no_token(start: Start, guarded: Guarded) -> None:
    guarded.granted = {"access_token": "x" * REPLY_BYTES, "token_type": "bearer"}
    async with start() as world:
        await world.let_in()
        await world.until_state(ConnectionState.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
        assert "tokens" not in world.kept


async def test_a_reply_of_an_authorization_server_is_not_decoded(start: Start, guarded: Guarded) -> None:
    guarded.coding = "gzip"
    async with start() as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert guarded.registered == []


async def test_client_credentials_need_no_person(start: Start, guarded: Guarded) -> None:
    oauth = {"grant": "client_credentials", "client_id": "us", "client_secret": "hush", "issuer": guarded.origin}
    async with start(oauth=oauth) as world:
        await world.until_state(ConnectionState.CONNECTED)
    assert guarded.grants[0]["grant_type"] == "client_credentials"


async def test_client_credentials_go_to_their_own_issuer_only(start: Start, guarded: Guarded) -> None:
    oauth = {
        "grant": "client_credentials",
        "client_id": "us",
        "client_secret": "hush",
        "issuer": "https://login.example.com",
    }
    async with start(oauth=oauth) as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        assert world.server.connection.fault.code == "AUTHENTICATION_FAILED"
    assert not guarded.grants
