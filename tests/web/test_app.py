"""The page as an app: links of notifications, the offline page, the manifest, and pushes."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from playwright.async_api import Page, expect

from hubbub_frontend.links import Links

from ..clients.test_push import AUTH, PUBLIC, opened
from ..e2e.conftest import LIMIT_S, POLL_S, RunningHub
from ..http_sink import answering
from .conftest import Bridge, Person, ask, form

pytestmark = pytest.mark.usefixtures("settled")

SUBSCRIBES = """
Object.defineProperty(window, "PushManager", { value: window.PushManager ?? class PushManager {} });
window.given = [];
const manager = {
  getSubscription: async () => null,
  subscribe: async (options) => {
    window.given.push(options.applicationServerKey.length);
    return { toJSON: () => (%s) };
  },
};
Object.defineProperty(ServiceWorkerRegistration.prototype, "pushManager", { get: () => manager });
"""
"""A browser whose push service is the test's own."""

CANNOT = "delete window.PushManager;"


@pytest.fixture(scope="module")
async def bridge(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Bridge:
    """The bridge to that hub."""
    return await start_shared_bridge(hub, "--push-host", "127.0.0.1")


async def link_to(hub: RunningHub, bridge: Bridge, message: str) -> tuple[str, str]:
    """A link as a notification has it, to a question with this message; and the question's id."""
    await ask(hub, form(message, {}))
    (request,) = [each for each in await hub.client.inbox.list(states=["open"]) if each.request["message"] == message]
    to = f"request/{request.id}"
    return f"{bridge.origin}/#login={Links(hub.data_dir).create(to, 60, request.id)}&to={to}", request.id


@pytest.mark.parametrize("width", [390, 1280])
async def test_a_link_opens_exactly_its_question(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any], width: int
) -> None:
    await ask(hub, form("Another one?", {}))
    link, id_ = await link_to(hub, bridge, f"By a link, {width} wide?")
    ada: Person = await visit(link, "Ada", viewport={"width": width, "height": 800})
    await expect(ada.page.locator("main")).to_contain_text(f"By a link, {width} wide?")
    assert await ada.page.evaluate("location.hash") == f"#/request/{id_}"
    await ada.page.locator("main").get_by_role("button", name="Accept").click()
    await expect(ada.page.get_by_role("heading", name="You have answered")).to_be_visible()


async def test_a_used_link_still_leads_to_its_question_where_somebody_is_logged_in(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    link, id_ = await link_to(hub, bridge, "Twice by a link?")
    ada: Person = await visit(link, "Ada")
    await ada.go("inbox")
    await expect(ada.page.get_by_role("heading", name="Inbox")).to_be_visible()
    await ada.page.goto(link)
    await expect(ada.page.locator("main")).to_contain_text("Twice by a link?")
    again = await ada.context.new_page()
    await again.goto(link)
    await expect(again.locator("main")).to_contain_text("Twice by a link?")
    assert await again.evaluate("location.hash") == f"#/request/{id_}"


async def test_a_link_that_is_useless_says_why_and_what_to_do(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    secret = Links(hub.data_dir).create("inbox", -1)

    async def refused(person: Person) -> None:
        main = person.page.locator("main")
        await expect(main).to_contain_text("This link has expired.")
        await expect(main).to_contain_text("hubbub web")

    ada: Person = await visit(f"{bridge.origin}/#login={secret}&to=inbox", refused)
    assert secret not in await ada.page.evaluate("location.href")


async def test_the_page_can_be_installed(ada: Person) -> None:
    await ada.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    session = await ada.context.new_cdp_session(ada.page)
    manifest = await session.send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert (await session.send("Page.getInstallabilityErrors"))["installabilityErrors"] in (
        [],
        [{"errorId": "in-incognito", "errorArguments": []}],  # as all contexts of a test are
    )


async def test_while_the_bridge_is_away_a_page_says_what_to_do_and_nothing_secret_is_kept(
    hub: RunningHub, start_bridge: Callable[..., Any], visit: Callable[..., Any], free_port: int
) -> None:
    bridge: Bridge = await start_bridge(hub, "--listen", f"127.0.0.1:{free_port}")
    link, _ = await link_to(hub, bridge, "Kept nowhere?")
    ada: Person = await visit(link, "Ada")
    await _controlled(ada.page)
    kept = await ada.page.evaluate(
        """async () => {
            const paths = [];
            for (const name of await caches.keys())
                for (const each of await (await caches.open(name)).keys()) paths.push(new URL(each.url).pathname);
            return paths.sort();
        }"""
    )
    assert kept == ["/static/icon.svg", "/static/offline.html", "/static/style.css"]
    bridge.process.terminate()
    await bridge.process.wait()
    await ada.page.goto(bridge.origin)
    await expect(ada.page.get_by_role("heading", name="The page cannot be reached")).to_be_visible()
    assert await ada.page.evaluate("getComputedStyle(document.body).margin") == "0px"
    again: Bridge = await start_bridge(hub, "--listen", f"127.0.0.1:{free_port}")
    await ada.page.get_by_role("link", name="Try again").click()
    await expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()
    assert again.origin == bridge.origin


async def _controlled(page: Page) -> None:
    """Waits for the service worker to serve this page."""
    with anyio.fail_after(LIMIT_S):
        await page.evaluate(
            """() => navigator.serviceWorker.controller
                || new Promise((done) => navigator.serviceWorker.addEventListener('controllerchange', done))"""
        )


async def _settings(ada: Person) -> Any:
    await ada.page.locator("#person").click()
    return ada.page.get_by_label("Notify me while this page is closed")


async def test_pushes_are_offered_only_where_a_browser_can(bridge: Bridge, visit: Callable[..., Any]) -> None:
    cannot: Person = await visit(await bridge.new_link(), "Ada", script=CANNOT)
    await expect(await _settings(cannot)).to_have_count(0)
    can: Person = await visit(await bridge.new_link(), "Bob", script=SUBSCRIBES % "{}")
    await expect(await _settings(can)).to_be_visible()


async def test_who_does_not_allow_notifications_is_told_so(bridge: Bridge, visit: Callable[..., Any]) -> None:
    script = f"{SUBSCRIBES % '{}'} Notification.requestPermission = async () => 'denied';"
    ada: Person = await visit(await bridge.new_link(), "Ada", script=script)
    choice = await _settings(ada)
    await choice.click()
    await expect(ada.page.locator("dialog [role=alert]").last).to_contain_text("does not allow notifications")
    await expect(choice).not_to_be_checked()


async def test_a_browser_gets_a_push_of_what_waits_until_it_logs_out(
    hub: RunningHub, bridge: Bridge, visit: Callable[..., Any]
) -> None:
    async with answering([], then=201, path="/send/secret") as (endpoint, came):
        keys = {"p256dh": _text(PUBLIC), "auth": _text(AUTH)}
        script = SUBSCRIBES % json.dumps({"endpoint": endpoint, "keys": keys})
        ada: Person = await visit(await bridge.new_link(), "Ada", script=script, permissions=["notifications"])
        choice = await _settings(ada)
        await choice.click()
        await expect(choice).to_be_checked()
        await ada.page.get_by_role("button", name="Close").click()
        await ask(hub, form("By push?", {}))
        (request,) = await hub.client.inbox.list(states=["open"])
        with anyio.fail_after(LIMIT_S):
            while not came:
                await anyio.sleep(POLL_S)
        assert await ada.page.evaluate("window.given") == [65]
        said = json.loads(opened(came[0][1]))
        assert (said["title"], said["to"]) == ("dictated asks", f"request/{request.id}")
        assert "By push?" not in str(said)
        assert "login" not in str(said)
        await _settings(ada)
        await ada.page.get_by_role("button", name="Log out").click()
        await expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()
        assert await ada.page.evaluate("localStorage.getItem('hubbub-push')") == "no"


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


SHOWN = """(message) => new Promise((done) => {
    self.registration.showNotification = async (title, { tag, data }) => done([title, tag, data.to]);
    self.dispatchEvent(new PushEvent("push", { data: message }));
})"""
"""What the worker shows of a push."""


async def test_a_push_shows_a_notification_that_leads_to_a_place_of_the_page_alone(ada: Person) -> None:
    await _controlled(ada.page)
    (worker,) = ada.context.service_workers
    said = {"id": "n1", "title": "dictated asks", "body": "It waits.", "to": "request/req_1"}
    with anyio.fail_after(LIMIT_S):
        assert await worker.evaluate(SHOWN, json.dumps(said)) == ["dictated asks", "n1", "request/req_1"]
        elsewhere = json.dumps(said | {"to": "https://evil.example"})
        assert await worker.evaluate(SHOWN, elsewhere) == ["dictated asks", "n1", "inbox"]
        assert await worker.evaluate(SHOWN, "not json") == ["Hubbub", "hubbub", "inbox"]
