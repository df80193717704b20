"""What MCP wants of an endpoint, asked by hand of one of the hub's: the rules that the public suite checks, too.

The server behind it is asked the same without the hub, and the results are to be the same.
"""

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from .conftest import LIMIT_S, RunningHub

BEFORE, NOW = "2025-11-25", "2026-07-28"
OWN = "io.modelcontextprotocol/"
ACCEPT = "application/json, text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

HEADER_MISMATCH, UNSUPPORTED_VERSION, INVALID_PARAMS, METHOD_NOT_FOUND = -32020, -32022, -32602, -32601


@dataclass
class Endpoint:
    """One URL of MCP, asked by hand."""

    url: str
    http: httpx2.AsyncClient
    headers: dict[str, str] = field(default_factory=dict[str, str])

    async def send(self, message: Any, method: str = "POST", **headers: str | None) -> httpx2.Response:
        """The response to a message, or to none; a header that is None is left out."""
        chosen = {"accept": ACCEPT, "content-type": "application/json"} | self.headers
        chosen |= {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in chosen.items() if value is not None}
        content = None if message is None else json.dumps(message).encode()
        return await self.http.request(method, self.url, content=content, headers=kept)

    async def now(self, method: str, /, params: Mapping[str, Any] | None = None, **headers: str | None) -> Any:
        """The response to a request of 2026-07-28."""
        asked = {"_meta": {f"{OWN}protocolVersion": NOW, f"{OWN}clientCapabilities": {}}, **(params or {})}
        said = {"mcp_protocol_version": NOW, "mcp_method": method}
        if method in NAMED and NAMED[method] in asked:
            said["mcp_name"] = str(asked[NAMED[method]])
        message = {"jsonrpc": "2.0", "id": "seven", "method": method, "params": asked}
        return await self.send(message, **(said | headers))

    async def before(self, method: str, /, params: Mapping[str, Any] | None = None) -> Any:
        """The response to a request of 2025-11-25, in this endpoint's session."""
        return await self.send({"jsonrpc": "2.0", "id": 7, "method": method, "params": dict(params or {})})

    async def session(self, capabilities: Mapping[str, Any] | None = None) -> "Endpoint":
        """The same with a session of 2025-11-25."""
        able = dict(capabilities or {})
        hello = {"protocolVersion": BEFORE, "capabilities": able, "clientInfo": {"name": "by hand", "version": "1"}}
        opened = await self.before("initialize", hello)
        assert messages(opened)[-1]["result"]["protocolVersion"] == BEFORE
        headers = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": BEFORE}
        begun = Endpoint(self.url, self.http, self.headers | headers)
        told = await begun.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (told.status_code, told.content) == (202, b"")
        return begun


def messages(response: httpx2.Response) -> list[Any]:
    """The messages of a response, which is JSON or a stream of events."""
    if response.headers["content-type"].startswith("application/json"):
        return [response.json()]
    lines = response.text.split("\n")  # and nowhere else: JSON may have U+2028
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:") and line[5:].strip()]


def refused(response: httpx2.Response) -> tuple[int, int]:
    """The status and the code of an error, which has the id of its request."""
    error = response.json()
    assert error["id"] == "seven"
    return response.status_code, error["error"]["code"]


@pytest.fixture(scope="module")
def direct_url(shared_http_peer: Callable[..., Any], peer_scripts: Path) -> str:
    """The URL of the server itself."""
    return f"{shared_http_peer([sys.executable, str(peer_scripts / 'conformance_server.py'), 'http']).url}/mcp"


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, direct_url: str) -> RunningHub:
    """A hub that knows the server twice: as one of each revision."""
    servers = {revision: {"url": direct_url, "protocol": revision, "max_in_flight": 4} for revision in (BEFORE, NOW)}
    hub = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    for name in servers:
        await hub.client.catalog.refresh(name)
    return hub


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as client:
        yield client


@pytest.fixture
def direct(direct_url: str, http: httpx2.AsyncClient) -> Endpoint:
    """The server itself."""
    return Endpoint(direct_url, http)


@pytest.fixture
def endpoint(hub: RunningHub, http: httpx2.AsyncClient) -> Endpoint:
    """The hub's endpoint for the server of 2026-07-28."""
    return Endpoint(f"{hub.ready['mcp']}/s/{NOW}", http, {"authorization": f"Bearer {hub.token}"})


@pytest.fixture
async def session(endpoint: Endpoint) -> Endpoint:
    """A session at the hub's endpoint for the server of 2025-11-25."""
    return await Endpoint(endpoint.url.replace(NOW, BEFORE), endpoint.http, endpoint.headers).session()


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp_name": f"=?base64?{base64.b64encode(b'echo').decode()}?="},
        {"MCP_NAME": "echo", "mcp_name": None},
    ],
)
async def test_a_header_may_be_written_in_several_ways(endpoint: Endpoint, headers: dict[str, str | None]) -> None:
    response = await endpoint.now("tools/call", {"name": "echo", "arguments": {"text": "a"}}, **headers)
    assert response.json()["result"]["content"] == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {f"{OWN}protocolVersion": NOW},
        {f"{OWN}clientCapabilities": {}},
        {f"{OWN}protocolVersion": NOW, f"{OWN}clientCapabilities": []},
    ],
)
async def test_a_request_says_its_revision_and_its_hosts_capabilities(endpoint: Endpoint, meta: Any) -> None:
    assert refused(await endpoint.now("tools/list", {"_meta": meta})) == (400, INVALID_PARAMS)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_revision_without_sessions_has_nothing_but_requests(endpoint: Endpoint, method: str) -> None:
    response = await endpoint.send(None, method, mcp_protocol_version=NOW)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_a_session_lasts_until_its_host_ends_it(session: Endpoint) -> None:
    id_ = session.headers["mcp-session-id"]
    assert id_.isascii()
    assert id_.isprintable()
    assert " " not in id_
    assert (await session.before("ping")).json()["result"] == {}
    assert (await session.send(None, "DELETE")).is_success
    assert (await session.before("ping")).status_code == 404
    without = await session.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, mcp_session_id=None)
    assert without.status_code == 400


async def test_requests_of_a_session_are_served_at_once_each_on_its_own_stream(session: Endpoint) -> None:
    found: dict[int, list[Any]] = {}

    async def call(number: int) -> None:
        params = {"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": number}}
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        found[number] = messages(await session.send(request))

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as calls:
            for number in (1, 2, 3):
                calls.start_soon(call, number)
    for number, told in found.items():
        *progress, response = told
        assert [each["params"]["progressToken"] for each in progress] == [number] * 3
        assert [each["params"]["progress"] for each in progress] == [0, 50, 100]
        assert response["id"] == number


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://static-text"}),
    ("resources/read", {"uri": "test://static-binary"}),
    ("resources/read", {"uri": "test://template/123/data"}),
    ("prompts/get", {"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}}),
    ("prompts/get", {"name": "test_prompt_with_image"}),
    ("prompts/get", {"name": "test_prompt_with_embedded_resource", "arguments": {"resourceUri": "test://any"}}),
    *[
        ("tools/call", {"name": f"test_{name}", "arguments": {}})
        for name in (
            "simple_text",
            "image_content",
            "audio_content",
            "embedded_resource",
            "multiple_content_types",
            "error_handling",
        )
    ],
]


def of_server(response: httpx2.Response) -> Any:
    """What a server decides of a result: all but for how long it may be kept, and who says so."""
    result = messages(response)[-1]["result"]
    return {name: value for name, value in result.items() if name not in ("ttlMs", "cacheScope", "_meta")}


@pytest.mark.parametrize(("method", "params"), REQUESTS)
async def test_a_host_gets_the_servers_own_result(
    endpoint: Endpoint, session: Endpoint, direct: Endpoint, method: str, params: dict[str, Any]
) -> None:
    assert of_server(await endpoint.now(method, params)) == of_server(await direct.now(method, params))
    itself = await direct.session()
    assert of_server(await session.before(method, params)) == of_server(await itself.before(method, params))


@pytest.mark.parametrize(("method", "params"), [each for each in REQUESTS if "/list" in each[0] or "read" in each[0]])
async def test_what_a_host_may_keep_says_for_how_long(endpoint: Endpoint, method: str, params: dict[str, Any]) -> None:
    result = (await endpoint.now(method, params)).json()["result"]
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("private", "public")
