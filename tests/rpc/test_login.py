"""The hub's own log-in, as programs and browsers see it: what is given, to whom, and how it ends."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.audit import AuditFilter

from .log_in import BACK, HELLO, Browser, Program, entered, first_key, made, program, query_of, statement, status
from .mcp_host import Stage, stage

__all__ = ["entered", "made", "program"]  # the fixtures


# What hosts read first


@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/small", "/mcp/s/one", "/mcp/"])
async def test_a_host_is_led_from_the_refusal_to_the_log_in(made: Stage, path: str) -> None:
    refused = await made.host(path, x="y").post(HELLO)
    where = f"{made.base}/.well-known/oauth-protected-resource{path}"
    assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{where}"'
    assert "tokens create NAME --role caller" in refused.text
    assert "log in" in refused.text
    about = (await made.http.get(where)).json()
    assert (about["resource"], about["authorization_servers"]) == (f"{made.base}{path}", [made.base])
    for place in ("oauth-authorization-server", f"oauth-authorization-server{path}", "openid-configuration"):
        metadata = (await made.http.get(f"{made.base}/.well-known/{place}")).json()
        assert metadata["issuer"] == made.base
        assert metadata["code_challenge_methods_supported"] == ["S256"]
        assert all(metadata[name].startswith(f"{made.base}/oauth/") for name in metadata if name.endswith("_endpoint"))


async def test_behind_a_proxy_all_addresses_are_those_that_hosts_know(tmp_path: Path) -> None:
    public = "https://hub.example.com"
    async with stage(tmp_path, mcp_public_url=f"{public}/mcp") as made:
        for host in ("hub.example.com", made.base.removeprefix("http://")):
            about = await made.http.get("/.well-known/oauth-protected-resource/mcp", headers={"host": host})
            assert about.json()["resource"] == f"{public}/mcp"
            metadata = await made.http.get("/.well-known/oauth-authorization-server", headers={"host": host})
            assert metadata.json()["token_endpoint"] == f"{public}/oauth/token"
        assert (await made.http.get("/mcp", headers={"host": "evil.example"})).status_code == 421
        assert made.hub.visitors.address == public


async def test_a_page_reads_metadata_and_gets_tokens_as_it_uses_the_endpoint(made: Stage) -> None:
    page = {"origin": "http://localhost:6274"}
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"):
        told = await made.http.get(f"{made.base}{path}", headers=page)
        assert told.headers["access-control-allow-origin"] == page["origin"]
    asks = page | {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    allowed = await made.http.request("OPTIONS", f"{made.base}/oauth/token", headers=asks)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, page["origin"])
    foreign = await made.http.post(f"{made.base}/oauth/token", headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403


async def test_a_reload_turns_the_log_in_off_and_what_was_given_stays_good(
    made: Stage, program: Program, entered: Browser
) -> None:
    given = await program.log_in(entered)
    await made.reload(mcp_login=False)
    assert (await made.http.get(f"{made.base}/.well-known/oauth-authorization-server")).status_code == 404
    assert (await program.refresh(given["refresh_token"])).status_code == 404
    assert await status(made, given["access_token"]) == 200
    assert made.hub.visitors.address is None
    await made.reload(mcp_login=True)
    assert (await program.refresh(given["refresh_token"])).status_code == 200


# Registration


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://x.example/"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://evil.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://x.example/#a"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"https://x.example/{number}" for number in range(11)]}, "invalid_redirect_uri"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
        ({"grant_types": ["implicit"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
    ],
)
async def test_a_program_that_cannot_be_registered_hears_why(made: Stage, members: dict[str, Any], error: str) -> None:
    wanted = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none"} | members
    refused = await made.http.post(f"{made.base}/oauth/register", json=wanted)
    assert (refused.status_code, refused.json()["error"]) == (400, error)
    assert refused.json()["error_description"]


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b" " * 20_000, "application/json", 413),
    ],
)
async def test_a_registration_that_is_none_is_refused(made: Stage, content: bytes, kind: str, code: int) -> None:
    where, headers = f"{made.base}/oauth/register", {"content-type": kind}
    refused = await made.http.post(where, content=content, headers=headers)
    assert refused.status_code == code
    assert "error" in refused.json()


async def test_many_registrations_take_no_room_and_lock_nobody_out(made: Stage, program: Program) -> None:
    before = made.hub.store.revision
    many = [Program(made) for _ in range(100)]
    async with asyncio.TaskGroup() as registering:
        for each in many:
            registering.create_task(each.register())
    assert len({each.id for each in many}) == 100
    assert made.hub.store.revision == before
    answers = Counter[int]()
    while not answers[429]:
        wanted = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
        answers[(await made.http.post(f"{made.base}/oauth/register", json=wanted)).status_code] += 1
    assert answers.keys() == {201, 429}
    assert await program.log_in(await Browser(made).enter())


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_program_with_a_secret_has_to_show_it(made: Stage, entered: Browser, method: str) -> None:
    program = await Program(made).register(token_endpoint_auth_method=method)
    assert program.secret is not None
    code = await program.code(entered)
    for wrong in ("wrong", None):
        refused = await program.exchange(code, client_secret=wrong)
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
    if method == "client_secret_post":
        assert (await program.exchange(code)).status_code == 200
        return
    form = {"grant_type": "authorization_code", "code": code, "code_verifier": program.verifier, "redirect_uri": BACK}
    shown = (quote(program.id, safe=""), quote(program.secret, safe=""))
    assert (await made.http.post(f"{made.base}/oauth/token", data=form, auth=shown)).status_code == 200


# The request to log in


@pytest.mark.parametrize(
    "params",
    [
        {"client_id": None},
        {"client_id": "unknown"},
        {"client_id": "hbc_e30.AAAA"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": f"{BACK}/more"},
        {"redirect_uri": "http://localhost:5555/callback"},
        {"state": "x" * 7000},
    ],
    ids=first_key,
)
async def test_the_browser_is_sent_nowhere_unless_program_and_address_are_good(
    program: Program, entered: Browser, params: dict[str, str | None]
) -> None:
    shown = await entered.open(program.address(**params))
    assert (shown.status_code, shown.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "location" not in shown.headers


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"resource": "http://127.0.0.1:1/mcp"}, "invalid_target"),
        ({"prompt": "none"}, "consent_required"),
        ({"request": "eyJ"}, "request_not_supported"),
    ],
    ids=first_key,
)
async def test_a_wrong_request_goes_back_to_its_program_with_who_says_so(
    made: Stage, program: Program, entered: Browser, params: dict[str, str | None], error: str
) -> None:
    answer = await entered.open(program.address(**params))
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{BACK}?")
    told = query_of(answer.headers["location"])
    assert (told["error"], told["state"], told["iss"]) == (error, "s t&a=te", made.base)
    assert told["error_description"]


@pytest.mark.parametrize("path", ["/mcp/p/none", "/mcp/s/none"])
async def test_an_endpoint_that_is_not_there_is_told_only_to_who_has_entered(
    made: Stage, program: Program, entered: Browser, path: str
) -> None:
    address = program.address(resource=f"{made.base}{path}")
    assert (await Browser(made).open(address)).headers["location"].startswith("/oauth/enter?next=")
    assert query_of((await entered.open(address)).headers["location"])["error"] == "invalid_target"


async def test_a_parameter_twice_is_refused(program: Program, entered: Browser) -> None:
    shown = await entered.open(f"{program.address()}&redirect_uri={quote(BACK)}")
    assert shown.status_code == 400


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
async def test_the_port_of_a_program_on_the_same_machine_is_free(made: Stage, entered: Browser, name: str) -> None:
    program = await Program(made, redirect_uri=f"http://{name}/cb").register()
    answer = await entered.decide(await entered.open(program.address(redirect_uri=f"http://{name}:40123/cb")))
    assert answer.headers["location"].startswith(f"http://{name}:40123/cb?code=")


async def test_who_has_not_entered_does_so_first_and_comes_back(made: Stage, program: Program) -> None:
    stranger = Browser(made)
    address = program.address()
    sent = await stranger.open(address)
    assert sent.status_code == 303
    assert query_of(sent.headers["location"])["next"] == address.removeprefix(made.base)
    await stranger.enter()
    assert statement(await stranger.open(address))


# The decision


async def test_a_page_of_consent_names_who_asks_and_what_for(made: Stage, entered: Browser) -> None:
    program = await Program(made).register(client_name="<b>Robot</b>\n2")
    page = await entered.open(program.address(resource=f"{made.base}/mcp/p/small"))
    assert "&lt;b&gt;Robot&lt;/b&gt; 2" in page.text
    assert "profile small" in re.sub("<[^>]*>", "", page.text)
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


async def test_no_is_told_to_the_program_and_to_the_audit_log(made: Stage, program: Program, entered: Browser) -> None:
    answer = await entered.decide(await entered.open(program.address()), "deny")
    told = query_of(answer.headers["location"])
    assert (told["error"], told["iss"], told["state"]) == ("access_denied", made.base, "s t&a=te")
    (entry,) = made.hub.audit.select(AuditFilter(action="DenyLogin"))
    assert (entry.principal, entry.target) == ("ada", "Tester")


async def test_a_decision_counts_only_from_the_page_and_the_browser_that_were_asked(
    made: Stage, program: Program, entered: Browser
) -> None:
    page = await entered.open(program.address())
    other = await Browser(made).enter()  # the same person
    assert (await other.decide(page)).status_code == 403
    assert (await Browser(made).decide(page)).status_code == 403
    foreign = {"origin": "https://evil.example", "content-type": "application/x-www-form-urlencoded"}
    forged = await made.http.post(f"{made.base}/oauth/authorize", content=b"decision=allow", headers=foreign)
    assert forged.status_code == 403
    for changed in ("", "x", statement(page)[:-1], f"A{statement(page)}"):
        sent = await entered.submit("/oauth/authorize", request=changed, decision="allow", days="30")
        assert sent.status_code == 400
    assert made.hub.tokens.all() == []


async def test_a_time_that_nobody_was_offered_is_refused(program: Program, entered: Browser) -> None:
    assert (await entered.decide(await entered.open(program.address()), days="3000")).status_code == 400


async def test_a_host_gets_no_more_than_the_person_may_call(made: Stage, program: Program) -> None:
    grants = (Grant(Role.CALLER, ("t*",)), Grant(Role.VIEWER))
    person = await Browser(made).enter(Principal(name="bob", grants=grants, credential="local"))
    await program.log_in(person)
    (token,) = made.hub.tokens.all()
    assert token.grants == (Grant(Role.CALLER, ("t*",)),)
    small = await Browser(made).enter(Principal(name="bob", grants=grants, credential="local"))
    shown = await small.open(program.address(resource=f"{made.base}/mcp/p/small"))
    assert (shown.status_code, "none that bob may call" in shown.text) == (400, True)
