"""A server that asks for OAuth with its authorization server, a hub in front of it, and a browser."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from hubbubd import payload
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox import forms
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import NAME, TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import LIMIT_S, Scripted, served

POLL_S = 0.02
CALL = CallSpec(server="guarded", method="tools/call", params=b'{"name": "any", "arguments": {}}')


@dataclass
class Guarded:
    """An MCP server with an authorization server beside it. `valid` are the tokens it takes, with their scopes."""

    script: Scripted = field(default_factory=Scripted)
    valid: dict[str, str] = field(default_factory=dict)
    needed: dict[str, str] = field(default_factory=dict)
    """The scope that a method needs."""
    renewing: bool = True
    refused: int = 0
    late: anyio.Event | None = None
    """When the next refusal may be sent; those after it are sent at once."""
    elsewhere: str = ""
    """Where its authorization server is said to be."""
    silent: bool = False
    """Whether it never says its metadata."""
    coding: str = ""
    """How its metadata are compressed."""
    granted: dict[str, str] | None = None
    """What is granted in place of a token."""
    origin: str = ""
    registered: list[dict[str, Any]] = field(default_factory=list)
    grants: list[dict[str, str]] = field(default_factory=list)
    authenticated: list[str | None] = field(default_factory=list)
    _scopes: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def routes(self) -> list[Route]:
        return [
            Route("/mcp", self.mcp, methods=["GET", "POST", "DELETE"]),
            Route("/.well-known/oauth-protected-resource/mcp", self.resource),
            Route("/.well-known/oauth-authorization-server", self.metadata),
            Route("/register", self.register, methods=["POST"]),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
        ]

    async def mcp(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        about = f'resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        if token not in self.valid:
            self.refused += 1
            late, self.late = self.late, None
            if late is not None:
                await late.wait()
            return Response("who are you?", 401, {"www-authenticate": f'Bearer {about}, scope="read"'})
        method = json.loads(await request.body() or b"{}").get("method")
        scope = self.needed.get(method)
        if scope is not None and scope not in self.valid[token].split():
            challenge = f'Bearer error="insufficient_scope", scope="{scope}", {about}'
            return Response("not you", 403, {"www-authenticate": challenge})
        return await self.script.serve(request)

    async def resource(self, _: Request) -> Response:
        about = JSONResponse({"resource": self.url, "authorization_servers": [self.elsewhere or self.origin]})
        return self._coded(about)

    async def metadata(self, _: Request) -> Response:
        if self.silent:
            await anyio.sleep_forever()
        here = {name: f"{self.origin}/{path}" for name, path in ENDPOINTS.items()}
        return self._coded(JSONResponse({"issuer": self.origin, "code_challenge_methods_supported": ["S256"], **here}))

    def _coded(self, response: Response) -> Response:
        if not self.coding:
            return response
        return Response(gzip.compress(response.body), 200, {"content-encoding": self.coding}, "application/json")

    async def register(self, request: Request) -> Response:
        client = await request.json()
        self.registered.append(client)
        return JSONResponse({**client, "client_id": f"client-{len(self.registered)}"}, 201)

    async def authorize(self, request: Request) -> Response:
        asked = request.query_params
        code = f"code-{len(self._scopes)}"
        self._scopes[code] = asked.get("scope", "")
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def token(self, request: Request) -> Response:
        grant = {name: str(value) for name, value in (await request.form()).items()}
        self.grants.append(grant)
        self.authenticated.append(request.headers.get("authorization"))
        if grant["grant_type"] == "refresh_token" and not self.renewing:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if self.granted is not None:
            return JSONResponse(self.granted)
        scope = self._scopes.get(grant.get("code", ""), "read")
        token = f"secret-token-{len(self.grants)}"
        self.valid[token] = scope
        return JSONResponse(
            {
                "access_token": token,
                "token_type": "bearer",
                "expires_in": 3600,
                "scope": scope,
                "refresh_token": f"secret-renewal-{len(self.grants)}",
            }
        )


ENDPOINTS = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}


class World:
    """A hub with the guarded server, and a browser."""

    def __init__(self, hub: Hub, data_dir: Path) -> None:
        self.hub = hub
        self.data_dir = data_dir

    @property
    def server(self) -> Any:
        return self.hub.servers.get("guarded")

    @property
    def kept(self) -> dict[str, Any]:
        """What the token file has of the server."""
        return json.loads((self.data_dir / NAME).read_bytes()).get("guarded", {})

    def open(self) -> list[PendingRequest]:
        return self.hub.inbox.select(RequestFilter(states=frozenset({RequestState.OPEN})))

    async def asked(self) -> PendingRequest:
        """The one open request, once it is there."""
        await until(self.open)
        (request,) = self.open()
        return request

    async def until_state(self, state: ConnectionState) -> None:
        await until(lambda: self.server.connection.state is state)

    async def answer(self, request: PendingRequest, given: forms.ClientAnswer) -> PendingRequest:
        return await self.hub.inbox.answer(request.id, given, "ada", answer_id=None, claim_id=None)

    async def let_in(self) -> PendingRequest:
        """Opens the URL of the open request, as it then is."""
        request = await self.asked()
        assert (await visit(url_of(request))).status_code == 200
        return self.hub.inbox.get(request.id)

    async def connect(self) -> None:
        """Opens that URL, and returns once the server is connected."""
        await self.let_in()
        await self.until_state(ConnectionState.CONNECTED)


Start = Callable[..., AbstractAsyncContextManager[World]]


@asynccontextmanager
async def listening(server: Guarded | None = None) -> AsyncIterator[Guarded]:
    """Serves a `Guarded` server until the end of the block."""
    server = server or Guarded()
    async with served(Starlette(routes=server.routes())) as server.origin:
        yield server


def starts(guarded: Guarded, directory: Path) -> Start:
    """What starts a hub over this data directory: `start(**server configuration)`."""

    @asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[World]:
        config = ServerConfig.model_validate({"name": "guarded", "url": guarded.url, "retries": 0, **options})
        settings = HubSettings(data_dir=directory, allow_hosts=("127.0.0.1",))
        store = await SqliteStore.open(directory / "hubbub.db")
        connector = McpConnector(TokenFile.open(directory))
        try:
            async with Hub.open(store, connector, {"guarded": config}, settings) as hub:
                yield World(hub, directory)
        finally:
            await store.close()

    return start


def url_of(request: PendingRequest) -> str:
    return payload.loads(request.request)["url"]


async def visit(url: str, *, follow: bool = True) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=False, trust_env=False, follow_redirects=follow, timeout=LIMIT_S) as browser:
        return await browser.get(url)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(LIMIT_S):
        while not condition():
            await anyio.sleep(POLL_S)
