"""A server's app behind the hub: real processes, in both kinds of revisions on either side."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .conftest import LIMIT_S, RunningHub
from .test_mcp_endpoint import BEFORE, NOW, OWN, Endpoint, messages

APPS = {"extensions": {f"{OWN}ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
MOST = 1024 * 1024
"""The largest message that the hub takes of the servers; their huge page is larger."""
CSP = {"ui": {"csp": {"connectDomains": ["https://api.example.com"]}}}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> RunningHub:
    """A hub that knows the server twice: as one of each revision."""
    command = {"command": sys.executable, "args": [str(peer_scripts / "app_server.py"), str(2 * MOST)]}
    options = {**command, "max_message_bytes": MOST}
    servers = {"before": {**options, "protocol": BEFORE}, "now": {**options, "protocol": NOW}}
    hub = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    for name in servers:
        await hub.client.catalog.refresh(name)
    return hub


class AppHost:
    """A host of either kind of revisions, which shows pages or does not."""

    def __init__(self, hub: RunningHub, http: httpx2.AsyncClient, revision: str, capabilities: dict[str, Any]) -> None:
        self._endpoint = Endpoint(hub.ready["mcp"], http, {"authorization": f"Bearer {hub.token}"})
        self._revision, self._capabilities = revision, capabilities
        self._session: Endpoint | None = None

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The response to a request."""
        if self._revision == NOW:
            meta = {f"{OWN}protocolVersion": NOW, f"{OWN}clientCapabilities": self._capabilities}
            return messages(await self._endpoint.now(method, {"_meta": meta, **params}))[-1]
        if self._session is None:
            self._session = await self._endpoint.session(self._capabilities)
        return messages(await self._session.before(method, params))[-1]

    async def text(self, name: str, **arguments: Any) -> str:
        """What a tool says."""
        return (await self.ask("tools/call", name=name, arguments=arguments))["result"]["content"][0]["text"]


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as client:
        yield client


@pytest.mark.parametrize("revision", [BEFORE, NOW])
async def test_an_app_works_through_the_hub(hub: RunningHub, http: httpx2.AsyncClient, revision: str) -> None:
    host, plain = AppHost(hub, http, revision, APPS), AppHost(hub, http, revision, {})
    tools = {each["name"]: each for each in (await host.ask("tools/list"))["result"]["tools"]}
    assert {"before__set_zone", "now__set_zone"} <= set(tools)
    assert not any(each["name"].endswith("set_zone") for each in (await plain.ask("tools/list"))["result"]["tools"])
    assert "several servers" in (await host.ask("tools/call", name="set_zone", arguments={}))["error"]["message"]
    for server in ("before", "now"):
        page = tools[f"{server}__get_time"]["_meta"]["ui"]["resourceUri"]
        assert page == f"ui://{server}+clock/page.html"
        (content,) = (await host.ask("resources/read", uri=page))["result"]["contents"]
        assert (content["uri"], content["text"], content["_meta"]) == (page, "<!doctype html>12:00", CSP)
        # Only in the newer revision a server hears of each host; in the older, of the hub.
        assert await host.text(f"{server}__get_time") == "12:00, on a page"
        assert (await plain.text(f"{server}__get_time") == "12:00") is (server == "now")


async def test_a_page_calls_its_server_and_the_record_says_so(hub: RunningHub, http: httpx2.AsyncClient) -> None:
    host = AppHost(hub, http, BEFORE, APPS)
    await host.ask("resources/read", uri="ui://now+clock/page.html")
    assert await host.text("set_zone", zone="UTC") == "it is UTC"
    (made,) = [call for call in await hub.client.calls.list(server="now") if call.params.get("name") == "set_zone"]
    shown = (await hub.hubbub("calls", "show", made.id)).record
    assert (shown["server"], shown["origin"]["app"]) == ("now", True)


@pytest.mark.parametrize("server", ["before", "now"])
async def test_a_page_that_is_too_large_is_refused_in_words_and_disturbs_nothing(
    hub: RunningHub, http: httpx2.AsyncClient, server: str
) -> None:
    host = AppHost(hub, http, NOW, APPS)
    refused = (await host.ask("resources/read", uri=f"ui://{server}+clock/huge.html"))["error"]
    assert "max_message_bytes" in refused["message"]
    assert await host.text(f"{server}__huge") == "huge"
