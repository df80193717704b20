"""Apps of published servers in the official host, in a browser: behind a hub all is as it is without one."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import FrameLocator, expect

from ..e2e.conftest import BIN, RunningHub
from .apps import AppHost
from .conftest import AppServers, token_of

OpenHost = Callable[[], Awaitable[AppHost]]
PROFILE = "debug__"


@asynccontextmanager
async def connected(
    host: AppHost, hub: RunningHub, servers: AppServers, place: str, revision: str
) -> AsyncGenerator[tuple[dict[str, Any], str]]:
    """Connect the host to a place; yield what that says of itself, and what stands before its tools' names."""
    match place:
        case "server":
            yield await host.connect(servers.debug_url), ""
        case "profile":
            yield await host.connect(hub.ready["mcp"], token_of(hub), revision), PROFILE
        case "one server":
            yield await host.connect(f"{hub.ready['mcp']}/s/debug", token_of(hub), revision), ""
        case _:
            command = [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir), "mcp"]
            async with host.over_stdio(command) as about:
                yield about, PROFILE


async def press(app: FrameLocator, button: str) -> None:
    await app.get_by_role("button", name=button, exact=True).click()


@pytest.mark.parametrize(
    ("place", "revision"),
    [
        ("server", "2025-11-25"),
        ("profile", "2025-11-25"),
        ("profile", "2026-07-28"),
        ("one server", "2026-07-28"),
        ("bridge", "2025-11-25"),
    ],
)
async def test_an_app_works(
    open_host: OpenHost, hub: RunningHub, app_servers: AppServers, place: str, revision: str
) -> None:
    host = await open_host()
    async with connected(host, hub, app_servers, place, revision) as (about, prefix):
        assert about["revision"] == revision
        assert about["forModel"].count(f"{prefix}debug-tool") == 1
        assert f"{prefix}debug-refresh" not in about["forModel"]
        app = await host.open(f"{prefix}debug-tool")
        log = app.locator("#event-log")
        await expect(log).to_contain_text("Debug text content")
        await press(app, "Call debug-refresh")
        await expect(log).to_contain_text("Server timestamp")
        await press(app, "Send Text")
        await press(app, "warning")
        await press(app, "Update (Text)")
        await press(app, "Open Link")
        await press(app, "400x300")
        await expect(log).to_contain_text("open-link-result")
        assert await host.heard("link") == [{"url": "https://modelcontextprotocol.io/"}]
        [message], [context], [logged] = [await host.heard(kind) for kind in ("message", "context", "log")]
        assert message["content"] == [{"type": "text", "text": "Hello from debug app!"}]
        assert context["content"] == [{"type": "text", "text": "Current app state info"}]
        assert logged == {"level": "warning", "data": "Debug log data"}
        assert {"width": 400, "height": 300} in await host.heard("size")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_of_two_apps_with_the_same_uri_each_calls_its_own_server(
    open_host: OpenHost, hub: RunningHub, revision: str
) -> None:
    called: list[str] = []
    for name in ("clock", "watch"):
        host = await open_host()
        await host.connect(hub.ready["mcp"], token_of(hub), revision)
        app = await host.open(f"{name}__get-time")
        shown = app.locator("#server-time")
        await expect(shown).not_to_have_text("Loading...")
        before = {call.id for call in await hub.client.calls.list()}
        first = await shown.inner_text()
        await press(app, "Get Server Time")
        await expect(shown).not_to_have_text(first)
        await expect(shown).to_contain_text("Z")
        [call] = [call for call in await hub.client.calls.list() if call.id not in before]
        called.append(call.server)
        await host.page.close()
    assert called == ["clock", "watch"]


async def test_an_app_reads_resources_by_its_own_and_by_the_shown_uri(open_host: OpenHost, hub: RunningHub) -> None:
    host = await open_host()
    await host.connect(hub.ready["mcp"], token_of(hub))
    await host.open("debug__debug-tool")
    listed = await host.ask_as_app("resources/list")
    assert "ui://debug+debug-tool/mcp-app.html" in [each["uri"] for each in listed["result"]["resources"]]
    pages = [
        (await host.ask_as_app("resources/read", uri=uri))["result"]["contents"][0]["text"]
        for uri in ("ui://debug-tool/mcp-app.html", "ui://debug+debug-tool/mcp-app.html")
    ]
    assert pages[0] == pages[1] != ""


async def test_a_host_without_apps_does_not_see_tools_that_are_for_apps_alone(
    open_host: OpenHost, hub: RunningHub
) -> None:
    host = await open_host()
    about = await host.connect(hub.ready["mcp"], token_of(hub), apps=False)
    assert {"debug__debug-tool", "clock__get-time"} <= {*about["tools"]}
    assert not {"debug__debug-refresh", "debug__debug-log"} & {*about["tools"]}
    refused = await host.request("tools/call", name="debug-refresh", arguments={})
    assert "debug-refresh" in refused["error"]
