"""Authorization servers as people meet them: their spelling, their forgetting, and what they leave out."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response

from hubbubd.core.inbox import forms
from hubbubd.core.servers.connection_states import ConnectionState

from .authorization_servers import Entra, GitHub, Shaped
from .guarded import CALL, World, listening, starts, until, url_of, visit


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path


@asynccontextmanager
async def hub(server: Shaped, data_dir: Path, **options: Any) -> AsyncIterator[World]:
    """A hub before a server that listens."""
    async with starts(server, data_dir)(**options) as world:
        yield world


def serve(server: Shaped) -> AbstractAsyncContextManager[Any]:
    return listening(server)


async def connected(world: World) -> None:
    await world.connect()


@pytest.mark.parametrize(("named", "own"), [("/", ""), ("", "/")])
async def test_an_issuer_may_differ_by_the_slash_of_its_empty_path(named: str, own: str, data_dir: Path) -> None:
    async with serve(server := Shaped()):
        server.elsewhere = server.origin + named
        server.metadata_members = {"issuer": server.origin + own}
        server.iss = server.origin + own
        async with hub(server, data_dir) as world:
            await connected(world)
        server.valid.clear()  # the registration is still that of this issuer
        async with hub(server, data_dir) as world:
            await world.until_state(ConnectionState.CONNECTED)
        assert len(server.registered) == 1


@pytest.mark.parametrize("other", ["https://login.example.com", "{}/other", "{}//", "{}/?"])
async def test_metadata_of_another_issuer_are_refused(other: str, data_dir: Path) -> None:
    async with serve(server := Shaped()):
        server.metadata_members = {"issuer": other.format(server.origin)}
        async with hub(server, data_dir) as world:
            await world.until_state(ConnectionState.DISCONNECTED)
            assert "issuer mismatch" in world.server.connection.fault.message
        assert not server.registered


@pytest.mark.parametrize(
    ("named", "iss"), [("{}", "https://login.example.com"), ("{}", "{}/other"), ("{}", "{}/"), ("{}/", "{}/")]
)
async def test_a_redirect_of_another_issuer_or_another_spelling_is_refused(
    named: str, iss: str, data_dir: Path
) -> None:
    async with serve(server := Shaped()):
        server.elsewhere = named.format(server.origin)
        server.iss = iss.format(server.origin)
        async with hub(server, data_dir) as world:
            await world.let_in()
            await world.until_state(ConnectionState.DISCONNECTED)
            assert "iss mismatch" in world.server.connection.fault.message
        assert not server.grants


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_token_is_asked_for_as_json_and_read_if_it_comes_form_encoded(stubborn: bool, data_dir: Path) -> None:
    oauth = {"client_id": "ours", "client_secret": "hush"}
    async with serve(server := GitHub(stubborn=stubborn)), hub(server, data_dir, oauth=oauth) as world:
        await connected(world)
        await world.hub.calls.call(CALL, "ada")
        assert world.kept["tokens"]["access_token"] == "secret-token-1"
        assert server.accepted == ["application/json"]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_an_error_with_status_200_is_the_reason(stubborn: bool, data_dir: Path) -> None:
    async with serve(server := GitHub(stubborn=stubborn, error="bad_verification_code")):
        async with hub(server, data_dir, oauth={"client_id": "ours"}) as world:
            await world.let_in()
            await world.until_state(ConnectionState.DISCONNECTED)
            message = world.server.connection.fault.message
        assert "Token exchange failed" in message
        assert "bad_verification_code" in message


async def test_a_server_that_registers_nobody_says_how_to_go_on_and_no_page_is_repeated(data_dir: Path) -> None:
    async with serve(server := GitHub()), hub(server, data_dir) as world:
        await world.until_state(ConnectionState.DISCONNECTED)
        message = world.server.connection.fault.message
        assert "register one there by hand" in message
        assert "oauth.client_id" in message
        assert "html" not in message


async def test_entra_takes_the_scopes_of_the_resource_and_no_resource_parameter(data_dir: Path) -> None:
    server = Entra(resource_members={"scopes_supported": ["api://tickets/.default"]})
    async with serve(server):
        server.elsewhere = server.origin + server.tenant
        oauth = {"client_id": "ours", "client_secret": "hush", "resource": False}
        async with hub(server, data_dir, oauth=oauth) as world:
            await connected(world)
        (visited,) = server.visits
        assert visited["scope"] == "api://tickets/.default offline_access"
        assert "resource" not in visited
        assert "resource" not in server.grants[0]
        assert server.grants[0]["client_secret"] == "hush"  # it advertises no other way for a secret


async def test_a_refused_resource_parameter_names_the_option(data_dir: Path) -> None:
    async with serve(server := Entra()):
        server.elsewhere = server.origin + server.tenant
        async with hub(server, data_dir, oauth={"client_id": "ours"}) as world:
            await world.let_in()
            await world.until_state(ConnectionState.DISCONNECTED)
            message = world.server.connection.fault.message
        assert "AADSTS9010010" in message
        assert "oauth.resource" in message


class Undescribed(Shaped):
    """A server of 2025-03-26: it has no metadata of its own, only an authorization server at its origin."""

    async def resource(self, _: Request) -> Response:
        return Response(status_code=404)


async def test_a_configured_resource_is_named_to_a_server_without_metadata_too(data_dir: Path) -> None:
    options = {"oauth": {"resource": "api://tickets"}, "protocol": "2025-03-26"}
    async with serve(server := Undescribed()), hub(server, data_dir, **options) as world:
        assert httpx2.URL(url_of(await world.asked())).params["resource"] == "api://tickets"


async def test_a_secret_is_renewed_as_the_server_takes_it_after_a_restart(data_dir: Path) -> None:
    async with serve(server := Entra()):
        server.elsewhere = server.origin + server.tenant
        oauth = {"client_id": "ours", "client_secret": "hush", "resource": "api://tickets"}
        async with hub(server, data_dir, oauth=oauth) as world:
            await until(world.open)
            server.visits.clear()
            asked = httpx2.URL(url_of(world.open()[0])).params
            assert asked["resource"] == "api://tickets"
            # Entra takes its own resource: the visit goes on as one without.
            bare = httpx2.URL(url_of(world.open()[0])).copy_remove_param("resource")
            assert (await visit(str(bare))).status_code == 200
            await world.until_state(ConnectionState.CONNECTED)
        server.valid.clear()
        async with hub(server, data_dir, oauth=oauth) as world:
            await world.until_state(ConnectionState.CONNECTED)
        renewal = server.grants[-1]
        assert renewal["grant_type"] == "refresh_token"
        assert renewal["client_secret"] == "hush"


async def test_a_forgotten_client_is_registered_again_when_its_token_is_renewed(data_dir: Path) -> None:
    async with serve(server := Shaped()):
        async with hub(server, data_dir) as world:
            await connected(world)
        server.forget()
        async with hub(server, data_dir) as world:
            await connected(world)
            assert world.kept["client"]["client_id"] == "client-2"
        assert [visited["client_id"] for visited in server.visits] == ["client-1", "client-2"]


async def let_in_before(server: Shaped, data_dir: Path) -> None:
    """An earlier hub has registered a client, whose tokens are no good any more."""
    async with hub(server, data_dir) as world:
        await connected(world)
    server.valid.clear()
    server.renewing = False


async def test_a_forgotten_client_is_registered_again_when_its_code_is_refused(data_dir: Path) -> None:
    async with serve(server := Shaped()):
        await let_in_before(server, data_dir)
        async with hub(server, data_dir) as world:
            request = await world.asked()
            server._known.clear()  # before the visit
            asked = httpx2.URL(url_of(request)).params
            await visit(f"{asked['redirect_uri']}?code=c&state={asked['state']}")
            await until(lambda: len(server.registered) == 2)
            await until(lambda: world.open() and world.open()[0].id != request.id)
            await connected(world)
        assert [grant.get("client_id") for grant in server.grants[-2:]] == ["client-1", "client-2"]


@pytest.mark.parametrize("error", ["invalid_client", "unauthorized_client"])
async def test_a_client_that_the_redirect_calls_unknown_is_registered_again(error: str, data_dir: Path) -> None:
    async with serve(server := Shaped()):
        await let_in_before(server, data_dir)
        async with hub(server, data_dir) as world:
            request = await world.asked()
            asked = httpx2.URL(url_of(request)).params
            await visit(f"{asked['redirect_uri']}?error={error}&state={asked['state']}")
            await until(lambda: len(server.registered) == 2)
            await until(lambda: world.open() and world.open()[0].id != request.id)
            await connected(world)
            assert world.kept["client"]["client_id"] == "client-2"


@pytest.mark.parametrize("back", ["code=c", "error=invalid_client&error_description=Client+is+not+approved+yet"])
async def test_a_client_that_is_refused_once_it_is_registered_is_not_registered_again(
    back: str, data_dir: Path
) -> None:
    async with serve(server := Shaped()):
        server.registration_members = {"client_id": "nobody"}
        async with hub(server, data_dir) as world:
            request = await world.asked()
            asked = httpx2.URL(url_of(request)).params
            await visit(f"{asked['redirect_uri']}?{back}&state={asked['state']}")
            await world.until_state(ConnectionState.DISCONNECTED)
            fault = world.server.connection.fault
            assert fault is not None
            said = "invalid_client" if back == "code=c" else "invalid_client Client is not approved yet"
            assert fault.message.endswith(f"refuses the client that the hub has just registered there: {said}")
            assert "client" not in world.kept
            assert not world.open()
        assert len(server.registered) == 1


async def test_a_stored_client_whose_authorization_comes_to_no_end_is_registered_again(data_dir: Path) -> None:
    async with serve(server := Shaped()):
        async with hub(server, data_dir) as world:
            await connected(world)
        server.forget()
        server.quiet = True  # nothing tells that the client is unknown, but the page that a person sees
        async with hub(server, data_dir) as world:
            request = await world.asked()
            await world.answer(request, forms.Dismiss())
            await world.until_state(ConnectionState.DISCONNECTED)
            await world.hub.servers.connect("guarded")
            await connected(world)
            assert world.kept["client"]["client_id"] == "client-2"


async def test_a_log_in_that_was_forgotten_by_command_begins_again(data_dir: Path) -> None:
    async with serve(server := Shaped()), hub(server, data_dir) as world:
        await connected(world)
        await world.hub.servers.log_out("guarded")
        assert world.kept == {}
        await connected(world)
        assert world.kept["client"]["client_id"] == "client-2"
        assert (await world.hub.calls.call(CALL, "ada")).fault is None


async def test_a_client_of_the_configuration_is_never_registered_again(data_dir: Path) -> None:
    async with serve(server := Shaped()):
        server.registered.append({})  # so that it knows some client, and not this one
        async with hub(server, data_dir, oauth={"client_id": "ours"}) as world:
            request = await world.asked()
            asked = httpx2.URL(url_of(request)).params
            await visit(f"{asked['redirect_uri']}?code=c&state={asked['state']}")
            await world.until_state(ConnectionState.DISCONNECTED)
            assert "invalid_client" in world.server.connection.fault.message
        assert len(server.registered) == 1


async def test_a_client_whose_secret_has_run_out_is_registered_again(data_dir: Path) -> None:
    async with serve(server := Shaped()):
        server.registration_members = {"client_secret": "short", "client_secret_expires_at": 1_600_000_000.5}
        async with hub(server, data_dir) as world:
            await connected(world)
        server.valid.clear()
        server.renewing = False
        async with hub(server, data_dir) as world:
            await connected(world)
        assert len(server.registered) == 2


@pytest.mark.parametrize(
    ("methods", "sent"),
    [
        (None, "basic"),
        (["client_secret_post", "client_secret_basic"], "basic"),
        (["none", "client_secret_post"], "post"),
    ],
)
async def test_a_secret_without_a_method_is_sent_as_the_server_takes_it(
    methods: list[str] | None, sent: str, data_dir: Path
) -> None:
    async with serve(server := Shaped()):
        server.metadata_members = {"token_endpoint_auth_methods_supported": methods}
        server.registration_members = {"client_secret": "hush", "client_id_issued_at": 1_700_000_000.25}
        async with hub(server, data_dir) as world:
            await connected(world)
        if sent == "basic":
            assert server.authenticated == [httpx2.BasicAuth("client-1", "hush")._auth_header]
        else:
            assert server.grants[0]["client_secret"] == "hush"


@pytest.mark.parametrize(
    ("catalog", "resource", "configured", "asked"),
    [
        (["openid", "admin", "everything"], None, None, None),
        (["openid", "offline_access"], None, None, None),
        (["openid", "offline_access"], ["read"], None, "read offline_access"),
        (["openid"], ["read"], None, "read"),
        (["openid"], ["read"], "write delete", "write delete"),
        (None, None, "write", "write"),
    ],
)
async def test_scopes_are_those_of_the_configuration_else_of_the_resource_else_none(
    catalog: list[str] | None, resource: list[str] | None, configured: str | None, asked: str | None, data_dir: Path
) -> None:
    async with serve(server := Shaped()):
        server.metadata_members = {"scopes_supported": catalog}
        server.resource_members = {} if resource is None else {"scopes_supported": resource}
        options = {} if configured is None else {"oauth": {"scope": configured}}
        async with hub(server, data_dir, **options) as world:
            await connected(world)
        assert server.visits[0].get("scope") == asked
