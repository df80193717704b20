"""Links of notifications, by HTTP: whom they let in, where they lead, and when they are useless; and subscriptions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub_frontend.links import Links, find_page_url

from ..clients.test_push import GOOD
from ..e2e.conftest import RunningHub
from .conftest import Bridge, ask, form


@pytest.fixture
async def bridge(hub: RunningHub, start_bridge: Callable[..., Any]) -> Bridge:
    """A bridge to that hub where nobody is logged in."""
    return await start_bridge(hub)


async def asked(hub: RunningHub) -> Any:
    """An open request."""
    before = {request.id for request in await hub.client.inbox.list()}
    await ask(hub, form("Well?", {}))
    return next(each for each in await hub.client.inbox.list(states=["open"]) if each.id not in before)


async def used(bridge: Bridge, secret: str) -> tuple[int, Any]:
    response = await bridge.post("login", {"link": secret})
    body = response.json()
    return response.status_code, body.get("to") if response.status_code == 200 else body["error"]["reason"]


async def test_a_link_outlives_the_bridge(hub: RunningHub, start_bridge: Callable[..., Any]) -> None:
    secret = Links(hub.data_dir).create("inbox", 60)
    bridge: Bridge = await start_bridge(hub)
    assert await used(bridge, secret) == (200, "inbox")


async def test_a_link_lets_nobody_in_once_its_question_is_answered(hub: RunningHub, bridge: Bridge) -> None:
    request = await asked(hub)
    secret = Links(hub.data_dir).create(f"request/{request.id}", 60, request.id)
    await request.decline()
    assert await used(bridge, secret) == (401, "LINK_SETTLED")
    gone = Links(hub.data_dir).create("request/none", 60, "none")
    assert await used(bridge, gone) == (401, "LINK_SETTLED")


async def test_a_link_that_has_expired_lets_nobody_in(hub: RunningHub, bridge: Bridge) -> None:
    secret = Links(hub.data_dir).create("inbox", -1)
    assert await used(bridge, secret) == (401, "LINK_EXPIRED")


async def test_a_browser_that_is_in_keeps_its_session_and_uses_the_link_up(hub: RunningHub, bridge: Bridge) -> None:
    await bridge.login()
    secret = Links(hub.data_dir).create("inbox", 60)
    response = await bridge.post("login", {"link": secret})
    assert response.json() == {"token": bridge.token, "to": "inbox"}
    assert "set-cookie" not in response.headers
    assert await used(bridge, secret) == (401, "LINK_USED")


async def test_a_cookie_without_its_token_is_no_session_for_a_link(hub: RunningHub, bridge: Bridge) -> None:
    await bridge.login()
    first, bridge.token = bridge.token, "guess"
    response = await bridge.post("login", {"link": Links(hub.data_dir).create("inbox", 60)})
    assert response.json()["token"] not in (first, "guess")
    assert "set-cookie" in response.headers


async def test_the_page_says_where_it_is_while_it_runs(hub: RunningHub, bridge: Bridge) -> None:
    assert find_page_url(hub.data_dir) == bridge.origin
    bridge.process.terminate()
    await bridge.process.wait()
    assert find_page_url(hub.data_dir) is None


async def test_a_browser_subscribes_and_its_push_service_must_be_known(hub: RunningHub, bridge: Bridge) -> None:
    assert (await bridge.post("push-key")).status_code == 401
    assert (await bridge.post("push-to", {"subscription": GOOD})).status_code == 401
    await bridge.login()
    key = (await bridge.post("push-key")).json()["key"]
    assert len(key) == 87
    assert (Path(hub.data_dir) / "notify" / "push.pem").stat().st_mode & 0o777 == 0o600
    wrong = GOOD | {"endpoint": "http://127.0.0.1:9/x"}
    refused = await bridge.post("push-to", {"subscription": wrong})
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "PUSH_HOST_NOT_ALLOWED")
    for subscription in (None, None):
        assert (await bridge.post("push-to", {"subscription": subscription})).status_code == 200


@pytest.mark.parametrize(
    ("path", "type_"),
    [
        ("/", "text/html"),
        ("/manifest.webmanifest", "application/manifest+json"),
        ("/sw.js", "text/javascript"),
        ("/static/icon-192.png", "image/png"),
        ("/static/offline.html", "text/html"),
    ],
)
async def test_what_makes_the_page_an_app_is_served_to_everybody(bridge: Bridge, path: str, type_: str) -> None:
    response = await bridge.http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].partition(";")[0] == type_
    policy = response.headers["content-security-policy"].split("; ")
    assert {"manifest-src 'self'", "worker-src 'self'", "trusted-types hubbub-worker"} <= set(policy)
