"""Codes and tokens of the log-in: given once, for one endpoint, and ended from both sides."""

import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.audit import AuditFilter
from hubbubd.errors import PermissionDenied
from hubbubd.rpc.context import Peer
from hubbubd.rpc.interceptors import Oversight

from ..raising import raising
from .conftest import TOKEN
from .log_in import HELLO, Browser, Program, entered, first_key, host_with, made, program, status
from .mcp_host import Stage, request

__all__ = ["entered", "made", "program"]  # the fixtures


# Codes


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"code": "hbx_wrong"}, "invalid_grant"),
        ({"code": None}, "invalid_request"),
        ({"code_verifier": "wrong"}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"redirect_uri": "http://127.0.0.1:5556/callback"}, "invalid_grant"),
        ({"redirect_uri": None}, "invalid_grant"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": None}, "invalid_request"),
        ({"client_id": None}, "invalid_request"),
        ({"client_id": "unknown"}, "invalid_client"),
    ],
    ids=first_key,
)
async def test_a_wrong_exchange_is_refused_and_leaves_the_code_good(
    program: Program, entered: Browser, form: dict[str, str | None], error: str
) -> None:
    code = await program.code(entered)
    refused = await program.exchange(code, **form)
    assert (refused.json()["error"], bool(refused.json()["error_description"])) == (error, True)
    assert refused.headers["cache-control"] == "no-store"
    assert (await program.exchange(code)).status_code == 200


async def test_a_code_is_of_one_program_and_one_endpoint(made: Stage, program: Program, entered: Browser) -> None:
    code = await program.code(entered)
    other = await Program(made, verifier=program.verifier).register()
    assert (await other.exchange(code)).json()["error"] == "invalid_grant"
    elsewhere = await program.exchange(code, resource=f"{made.base}/mcp/p/small")
    assert elsewhere.json()["error"] == "invalid_target"


async def test_a_code_used_twice_ends_what_it_was_exchanged_for(
    made: Stage, program: Program, entered: Browser
) -> None:
    code = await program.code(entered)
    given = (await program.exchange(code)).json()
    assert (await program.exchange(code, code_verifier="seen only the address")).json()["error"] == "invalid_grant"
    assert await status(made, given["access_token"]) == 200
    assert (await program.exchange(code)).json()["error"] == "invalid_grant"
    assert await status(made, given["access_token"]) == 401
    assert (await program.refresh(given["refresh_token"])).json()["error"] == "invalid_grant"


# Tokens


async def test_what_a_host_gets_is_a_token_like_any_other(made: Stage, program: Program, entered: Browser) -> None:
    given = await program.log_in(entered, days="90", resource=f"{made.base}/mcp/p/small")
    assert (given["token_type"], given["expires_in"], given["scope"]) == ("Bearer", 3600, "mcp")
    (token,) = made.hub.tokens.all()
    assert (token.name, token.created_by, token.grants) == ("tester", "ada", (Grant(Role.CALLER, ("one",)),))
    assert token.expires_at == pytest.approx(made.hub.clock.now() + 90 * 86_400, abs=3600)
    assert (token.login.client_name, token.login.redirect_host) == ("Tester", "127.0.0.1")
    assert (token.login.granted_by, token.login.endpoint) == ("ada", "/mcp/p/small")
    actions = {entry.action for entry in made.hub.audit.select(AuditFilter(principal="ada"))}
    assert {"EnterLoginCode", "AllowLogin", "ExchangeLogin"} <= actions


async def test_names_of_programs_are_told_apart_and_are_nobodys_else(made: Stage, program: Program) -> None:
    await program.log_in(await Browser(made).enter())
    given = await program.log_in(await Browser(made).enter())
    await (await Program(made).register(client_name="Ada:Hub/*")).log_in(await Browser(made).enter())
    await (await Program(made).register(client_name="名前")).log_in(await Browser(made).enter())
    assert {token.name for token in made.hub.tokens.all()} == {"tester", "tester-2", "ada-hub", "host"}
    caller = await made.hub.tokens.principal(given["access_token"])
    assert caller.name == "login:ada/tester-2"


async def test_a_token_is_good_at_its_own_endpoint_only(made: Stage, program: Program, entered: Browser) -> None:
    given = await program.log_in(entered, resource=f"{made.base}/mcp/p/small")
    token = given["access_token"]
    assert [await status(made, token, path) for path in ("/mcp/p/small", "/mcp/p/small/")] == [200, 200]
    for path in ("/mcp", "/mcp/s/one", "/mcp/p/other"):
        refused = await host_with(made, token, path).post(HELLO)
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (401, "TOKEN_FOR_ENDPOINT")


async def test_the_api_takes_a_token_of_a_log_in_for_nothing_but_who_it_is(
    made: Stage, program: Program, entered: Browser
) -> None:
    given = await program.log_in(entered, resource=f"{made.base}/mcp/p/small")
    shown, oversight = (
        [("authorization", f"Bearer {given['access_token']}")],
        Oversight(made.hub.audit, made.hub.quotas),
    )
    peer = Peer(local=True)
    assert await made.gate.admit("/hubbub.v1.AdminService/GetSelf", shown, oversight, peer) is not None
    for path in ("CallService/CallMethod", "CallService/StreamCalls", "InboxService/WatchPendingRequests"):
        with raising(PermissionDenied, "TOKEN_FOR_ENDPOINT"):
            await made.gate.admit(f"/hubbub.v1.{path}", shown, oversight, peer)
    for name in ("login:ada/tester", "LOGIN:ada/tester"):
        owner = [("authorization", f"Bearer {TOKEN}"), ("hubbub-as", name)]
        with pytest.raises(PermissionDenied, match="may not call as"):
            await made.gate.admit("/hubbub.v1.AdminService/GetSelf", owner, oversight, peer)


async def test_when_its_token_is_revoked_a_host_hears_so_and_its_session_ends(
    made: Stage, program: Program, entered: Browser
) -> None:
    given = await program.log_in(entered)
    host = await host_with(made, given["access_token"]).begin()
    async with host.stream("GET", accept="text/event-stream") as events:
        await made.hub.tokens.revoke("tester")
        assert await events.rest() == []
    refused = await host.post(request(1, "tools/list"))
    assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (401, "TOKEN_INVALID")
    assert (await program.refresh(given["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_log_in_ends_with_the_credential_of_who_has_granted_it(made: Stage, program: Program) -> None:
    made_for, _ = await made.hub.tokens.create(
        "carol", [Grant(Role.CALLER)], by="test", ttl_s=600, may_name_others=False
    )
    carol = Principal(
        name="carol", grants=made_for.grants, credential=made_for.credential, expires_at=made_for.expires_at
    )
    given = await program.log_in(await Browser(made).enter(carol))
    waiting = await program.code(await Browser(made).enter(carol))
    assert next(token for token in made.hub.tokens.all() if token.login).expires_at == made_for.expires_at
    assert await status(made, given["access_token"]) == 200
    await made.hub.tokens.revoke("carol")
    assert await status(made, given["access_token"]) == 401
    assert (await program.exchange(waiting)).json()["error"] == "invalid_grant"
    assert made.hub.tokens.all() == []


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_a_host_ends_its_log_in_by_either_token(
    made: Stage, program: Program, entered: Browser, which: str
) -> None:
    given = await program.log_in(entered)
    for token in ("hbt_000000000000_x", "unknown"):
        assert (await program.post("revoke", token=token)).status_code == 200
    assert await status(made, given["access_token"]) == 200
    other = await Program(made).register()
    assert (await other.post("revoke", token=given[which])).status_code == 200
    assert await status(made, given["access_token"]) == 200
    assert (await program.post("revoke", token=given[which])).status_code == 200
    assert await status(made, given["access_token"]) == 401


# Refresh


async def test_a_refresh_gives_both_tokens_anew_and_the_session_goes_on(
    made: Stage, program: Program, entered: Browser
) -> None:
    first = await program.log_in(entered)
    host = await host_with(made, first["access_token"]).begin()
    second = (await program.refresh(first["refresh_token"])).json()
    assert second["access_token"] != first["access_token"]
    assert second["refresh_token"] != first["refresh_token"]
    for token in (first, second):
        host.headers["authorization"] = f"Bearer {token['access_token']}"
        assert (await host.post(request(1, "tools/list"))).status_code == 200


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"refresh_token": "hbr_wrong"}, "invalid_grant"),
        ({"client_id": "unknown"}, "invalid_client"),
        ({"resource": "/mcp/p/small"}, "invalid_target"),
    ],
    ids=["token", "program", "endpoint"],
)
async def test_a_wrong_refresh_is_refused_and_leaves_the_log_in_as_it_is(
    made: Stage, program: Program, entered: Browser, form: dict[str, str], error: str
) -> None:
    given = await program.log_in(entered)
    wrong = form if "resource" not in form else {"resource": f"{made.base}{form['resource']}"}
    assert (await program.refresh(given["refresh_token"], **wrong)).json()["error"] == error
    made_up = f"{given['refresh_token'][:17]}{'0' * 22}_{'A' * 43}"
    assert (await program.refresh(made_up)).json()["error"] == "invalid_grant"
    assert (await program.refresh(given["refresh_token"])).status_code == 200
