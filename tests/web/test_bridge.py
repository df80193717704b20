"""The bridge by HTTP: who is let in, what is refused, what every response says, and the stream of news."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from hubbub_web.server import bind

from ..e2e.conftest import LIMIT_S, RunningHub
from .conftest import Bridge, form


@pytest.fixture(scope="module")
async def bridge(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Bridge:
    """A bridge to that hub where somebody is logged in."""
    bridge = await start_shared_bridge(hub)
    await bridge.new_link()
    return bridge


async def ask(hub: RunningHub) -> Any:
    """An open request."""
    before = {request.id for request in await hub.client.inbox.list(states=["open"])}
    given = {"question": form("Well?", {"name": {"type": "string"}}), "count": 1}
    await hub.client.call_tool("dictated", "many", given)
    watch = hub.client.inbox.watch(states=["open"])
    return (await hub.watched(watch, lambda request: request.id not in before))[0]


async def test_a_link_lets_one_browser_in_once(hub: RunningHub, start_bridge: Callable[..., Any]) -> None:
    bridge: Bridge = await start_bridge(hub)
    assert (await bridge.post("me")).status_code == 401
    entered = await bridge.login()
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert (await bridge.post("me")).json() == {"name": None, "fixed": False}
    again = await bridge.post("login", {"link": bridge.link.partition("#login=")[2]})
    assert (again.status_code, again.json()["error"]["reason"]) == (401, "LINK_USED")
    assert (await bridge.post("login", {"link": "guess"})).status_code == 401
    assert (await bridge.post("logout")).status_code == 200
    assert (await bridge.post("me")).status_code == 401


@pytest.mark.parametrize("name", [None, "Ada", "local", " local "])
async def test_nobody_at_the_page_is_the_owner_of_the_machine_whatever_their_name(
    hub: RunningHub, start_bridge: Callable[..., Any], name: str | None
) -> None:
    bridge: Bridge = await start_bridge(hub)
    await bridge.login()
    if name is not None:
        assert (await bridge.post("rename", {"name": name})).json() == {"name": name.strip()}
    for wanted, reason in (
        ({"command": "/no/such/program"}, "COMMAND_NOT_ALLOWED"),
        ({"url": "http://127.0.0.2:9/mcp"}, "HOST_NOT_ALLOWED"),
    ):
        refused = await bridge.post("add_server", {"name": "evil", **wanted})
        assert refused.json()["error"]["reason"] == reason
    assert "evil" not in {server.name for server in await hub.client.servers.list()}


async def test_who_logs_out_hears_nothing_more(hub: RunningHub, start_bridge: Callable[..., Any]) -> None:
    bridge: Bridge = await start_bridge(hub)
    await bridge.login()
    async with stream(bridge, "") as lines:
        await until_token(lines)
        await bridge.post("logout")
        request = await ask(hub)
        with anyio.fail_after(LIMIT_S):
            assert [line async for line in lines if request.id in line] == []
    await request.decline()


async def test_neither_the_cookie_nor_the_token_alone_opens_anything(bridge: Bridge) -> None:
    assert (await bridge.post("me", **{"x-hubbub-token": "guess"})).status_code == 401
    assert (await bridge.post("me", cookie="none=1")).status_code == 401
    assert (await bridge.post("feed", cookie="none=1")).status_code == 401
    assert (await bridge.post("me")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "rebound.example"}, 421),
        ({"host": "127.0.0.1.rebound.example:80"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_what_a_page_of_another_site_could_send_is_refused(
    bridge: Bridge, headers: dict[str, str], status: int
) -> None:
    assert (await bridge.post("me", **headers)).status_code == status


async def test_a_request_without_the_header_of_the_page_is_refused(bridge: Bridge) -> None:
    headers = {"origin": bridge.origin, "content-type": "application/json"}
    assert (await bridge.http.post("/api/me", content=b"{}", headers=headers)).status_code == 403


async def test_a_tunnel_with_another_port_is_let_through(bridge: Bridge) -> None:
    through = {"host": "localhost:9999", "origin": "http://localhost:9999"}
    assert (await bridge.post("me", **through)).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/style.css", "/static/js/app.js", "/static/icon.svg", "/nothing"])
async def test_every_response_is_strict(bridge: Bridge, path: str) -> None:
    for response in (await bridge.http.get(path), await bridge.post("me"), await bridge.http.get("/api/me")):
        policy = response.headers["content-security-policy"]
        for rule in (
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ):
            assert rule in policy.split("; ")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/js/../../sessions.py"])
async def test_only_the_page_is_served(bridge: Bridge, path: str) -> None:
    assert (await bridge.http.get(path)).status_code == 404


async def test_changes_are_made_by_post_alone(bridge: Bridge) -> None:
    for action in ("me", "login", "answer", "feed"):
        assert (await bridge.http.get(f"/api/{action}")).status_code == 405
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        response = await bridge.http.request(method, "/api/me")
        assert response.status_code == 405
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("nothing", {}, 404),
        ("request", {}, 400),
        ("request", {"id": 7}, 400),
        ("request", {"id": "none"}, 404),
        ("request", {"id": "none", "who": "me"}, 400),
        ("request", b"[]", 400),
        ("request", b"{", 400),
        ("request", b"[" * 100_000, 400),
        ("answer", {"id": "none", "answer_id": "a"}, 400),
        ("answer", {"id": "none", "answer_id": "a", "decline": True, "cancel": True}, 400),
        ("rename", {"name": ""}, 400),
        ("rename", {"name": " "}, 400),
        ("rename", {"name": "x\r\ny"}, 400),
        ("rename", {"name": "ada\u202e"}, 400),
        ("rename", {"name": "ö" * 65}, 400),
        ("rename", {"name": "hub"}, 403),
        ("rename", b'{"name": "\\ud800"}', 400),
        ("request", b'{"id": "\\ud800"}', 400),
        ("events", b'{"server": "\\ud800"}', 400),
        ("set_server", {"name": "dictated", "to": "gone"}, 400),
        ("claim", {"id": "none"}, 400),
        ("claim", {"id": "none", "claim_id": "short"}, 400),
        ("claim", {"id": "none", "claim_id": "sixteen-letters\n"}, 400),
        ("me", b" " * 7_000_000, 429),
    ],
)
async def test_what_is_asked_in_a_wrong_way_is_refused_in_words(
    bridge: Bridge, action: str, body: Any, status: int
) -> None:
    response = await bridge.post(action, body)
    assert response.status_code == status
    assert response.json()["error"]["message"]


async def test_neither_the_hubs_token_nor_a_claims_secret_reaches_the_browser(hub: RunningHub, bridge: Bridge) -> None:
    request = await ask(hub)
    assert (await bridge.post("rename", {"name": "Ada"})).status_code == 200
    window = {"id": request.id, "claim_id": "a-window-of-Adas-1"}
    claimed = await bridge.post("claim", window)
    assert (claimed.json()["claim"]["by"], claimed.json()["claim"]["id"]) == ("Ada", None)
    renewed = await bridge.post("claim", window)
    assert renewed.json()["claim"]["expires_at"] >= claimed.json()["claim"]["expires_at"]
    seen = [claimed.text, renewed.text, (await bridge.post("server", {"name": "dictated"})).text]
    async with stream(bridge, "") as lines:
        seen += [json.dumps(await until_token(lines))]
    assert not [text for text in seen if hub.token in text]
    answered = await bridge.post("answer", window | {"answer_id": "a1", "accept": {"name": "x"}})
    assert answered.json()["answered_by"] == "Ada"
    late = await bridge.post("answer", {"id": request.id, "answer_id": "a2", "decline": True})
    assert (late.status_code, late.json()["error"]["metadata"]["answered_by"]) == (409, "Ada")


async def test_two_windows_of_one_browser_are_two_claims_and_one_that_was_given_back_does_not_return(
    hub: RunningHub, bridge: Bridge
) -> None:
    request = await ask(hub)
    await bridge.post("rename", {"name": "Ada"})
    first, second = ({"id": request.id, "claim_id": f"window-number-{n}-of-2"} for n in (1, 2))
    assert (await bridge.post("claim", first)).status_code == 200
    refused = await bridge.post("claim", second)
    assert refused.json()["error"]["metadata"] == {"claimed_by": "Ada", "own": "true"}
    assert (await bridge.post("claim", second | {"take_over": True})).status_code == 200
    assert (await bridge.post("claim", first)).json()["error"]["metadata"]["own"] == "true"
    assert (await bridge.post("release", first)).status_code == 200
    assert (await hub.client.inbox.get(request.id)).claim is not None
    assert (await bridge.post("release", second)).status_code == 200
    late = await bridge.post("claim", second)
    assert (late.status_code, late.json()["error"]["reason"]) == (409, "CLAIM_LOST")
    assert (await hub.client.inbox.get(request.id)).claim is None
    await request.decline()


async def test_a_claim_is_released_when_its_person_takes_another_name(hub: RunningHub, bridge: Bridge) -> None:
    request = await ask(hub)
    assert (await bridge.post("rename", {"name": "Ada"})).status_code == 200
    claimed = await bridge.post("claim", {"id": request.id, "claim_id": "a-window-of-Adas-2"})
    assert claimed.json()["claim"]["by"] == "Ada"
    assert (await bridge.post("rename", {"name": "Grace"})).status_code == 200
    assert (await hub.client.inbox.get(request.id)).claim is None


async def test_an_answer_under_a_claim_that_the_hub_does_not_know_is_given_without_it(
    hub: RunningHub, bridge: Bridge
) -> None:
    request = await ask(hub)
    lost = {"id": request.id, "claim_id": "a-claim-that-lapsed", "answer_id": "a2", "decline": True}
    assert (await bridge.post("answer", lost)).json()["state"] == "answered"


async def test_a_stream_goes_on_from_its_token_and_begins_anew_from_a_strange_one(
    hub: RunningHub, bridge: Bridge
) -> None:
    async with stream(bridge, "") as lines:
        first = await until_token(lines)
    assert first[0] == {"reset": True}
    assert {line["id"] for line in first if line.get("kind") == "server"} == {"dictated"}
    request = await ask(hub)
    token = first[-1]["token"]
    async with stream(bridge, token) as lines:
        news: list[dict[str, Any]] = []
        while not any(line.get("id") == request.id for line in news):
            news += await until_token(lines)
    assert not [line for line in news if "reset" in line or (line.get("kind") == "server" and line["record"] is None)]
    async with stream(bridge, "other-1") as lines:
        assert (await until_token(lines))[0] == {"reset": True}
    await request.decline()


async def test_only_loopback_is_listened_on(hub: RunningHub) -> None:
    refused = await hub.hubbub("web", "--no-browser", "--listen", "0.0.0.0:0")
    assert refused.status == 2
    assert "not on loopback" in refused.error["message"]
    for listen in ("192.0.2.1:80", "example.org:80", "nonsense", "127.0.0.1:70000", "[::]:0", ":0"):
        with pytest.raises(ValueError):
            bind(listen)


@pytest.mark.usefixtures("processes")
async def test_a_package_that_is_not_there_is_named() -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from hubbub_cli import main; main()"
    ran = await anyio.run_process([sys.executable, "-c", program, "web"], check=False)
    assert ran.returncode == 1
    assert ran.stderr == (
        b"error: this command needs the package uvicorn, which is not there: install Hubbub again, "
        b"with all that it needs\n"
    )


@pytest.mark.parametrize("action", ["feed", "events"])
async def test_the_bridge_ends_without_a_complaint_while_a_browser_watches(
    hub: RunningHub, start_bridge: Callable[..., Any], capfd: pytest.CaptureFixture[str], action: str
) -> None:
    bridge: Bridge = await start_bridge(hub)
    await bridge.login()
    async with stream(bridge, "", action) as lines:
        with anyio.fail_after(LIMIT_S):
            await anext(lines)
        capfd.readouterr()  # that another page runs
        bridge.process.send_signal(2)
        with anyio.fail_after(LIMIT_S):
            assert await bridge.process.wait() == 0
    assert capfd.readouterr().err == ""


@asynccontextmanager
async def stream(bridge: Bridge, token: str, action: str = "feed") -> AsyncIterator[Any]:
    """The news from a token on, line by line; with `events` what servers tell."""
    headers = {"origin": bridge.origin, "content-type": "application/json", "x-hubbub-token": bridge.token}
    asked = bridge.http.stream("POST", f"/api/{action}", content=json.dumps({"token": token}), headers=headers)
    async with asked as response:
        assert response.status_code == 200
        yield response.aiter_lines()


async def until_token(lines: Any) -> list[dict[str, Any]]:
    """The lines of a batch."""
    batch: list[dict[str, Any]] = []
    with anyio.fail_after(LIMIT_S):
        while not batch or "token" not in batch[-1]:
            if line := json.loads(await anext(lines)):  # an empty one is a sign of life
                batch.append(line)
    return batch


async def test_connections_that_say_nothing_do_not_keep_anybody_from_the_page(bridge: Bridge) -> None:
    port = int(bridge.origin.rpartition(":")[2])
    async with AsyncExitStack() as opened:
        silent = [await opened.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(250)]
        with anyio.fail_after(LIMIT_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await silent[0].receive()  # it made room
        assert (await bridge.post("me")).status_code == 200
