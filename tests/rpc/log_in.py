"""A program that logs in at the hub, and the browser of the person who lets it."""

import base64
import hashlib
import html
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.rpc.context import LOCAL

from .mcp_host import OLD, Host, Stage, request, stage

BACK = "http://127.0.0.1:5555/callback"
OWNER = Principal(name="ada", grants=(Grant(Role.ADMIN),), credential=LOCAL)


HELLO = request(0, "initialize", protocolVersion=OLD, capabilities={}, clientInfo={"name": "raw", "version": "1"})


def opened(directory: Path, **settings: Any) -> AbstractAsyncContextManager[Stage]:
    """A hub at which hosts log in, also for the profile `small`, which has the server `one`."""
    return stage(directory, mcp_profiles={"small": ProfileSettings(servers=("one",))}, **settings)


def first_key(value: Any) -> str:
    """The name of a case: what it changes, or what comes of it."""
    return value if isinstance(value, str) else next(iter(value))


def query_of(url: str) -> dict[str, str]:
    """The parameters of an address."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


@dataclass
class Browser:
    """A browser, in which a person may have entered."""

    stage: Stage
    cookies: dict[str, str] = field(default_factory=dict[str, str])

    async def enter(self, who: Principal = OWNER) -> "Browser":
        """The same browser once a person has typed a code."""
        code, _ = await self.stage.hub.visitors.create_code(who)
        response = await self.submit("/oauth/enter", code=code)
        assert response.status_code == 200, response.text
        return self

    async def open(self, address: str, **headers: str) -> httpx2.Response:
        """What is shown at an address."""
        return await self._send("GET", address, headers)

    async def submit(self, path: str, **fields: str) -> httpx2.Response:
        """What comes after a form of one of the hub's own pages."""
        form = {"content-type": "application/x-www-form-urlencoded", "origin": self.stage.base}
        return await self._send("POST", path, form, urlencode(fields).encode())

    async def decide(self, page: httpx2.Response, decision: str = "allow", days: str = "30") -> httpx2.Response:
        """What comes after a decision on a page of consent."""
        return await self.submit("/oauth/authorize", request=statement(page), decision=decision, days=days)

    async def _send(self, method: str, address: str, headers: dict[str, str], content: bytes = b"") -> httpx2.Response:
        own = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        url = address if "://" in address else f"{self.stage.base}{address}"
        response = await self.stage.http.request(method, url, content=content, headers=headers | own)
        self.stage.http.cookies.clear()  # each browser has its own
        if kept := response.headers.get("set-cookie"):
            name, _, value = kept.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response


def statement(page: httpx2.Response) -> str:
    """What a page of consent has to send back."""
    assert page.status_code == 200, page.text
    found = re.search(r'name="request" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


@dataclass
class Program:
    """A program that knows the address of an endpoint."""

    stage: Stage
    id: str = ""
    secret: str | None = None
    redirect_uri: str = BACK
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    async def register(self, **members: Any) -> "Program":
        """The same program once it has registered."""
        wanted = {"client_name": "Tester", "redirect_uris": [self.redirect_uri], "token_endpoint_auth_method": "none"}
        response = await self.stage.http.post(f"{self.stage.base}/oauth/register", json=wanted | members)
        assert response.status_code == 201, response.text
        self.id, self.secret = response.json()["client_id"], response.json().get("client_secret")
        return self

    def address(self, **params: str | None) -> str:
        """Where it sends the browser."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        usual: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": "s t&a=te",
            "resource": f"{self.stage.base}/mcp",
        }
        sent = {name: value for name, value in (usual | params).items() if value is not None}
        return f"{self.stage.base}/oauth/authorize?{urlencode(sent)}"

    async def code(self, browser: Browser, days: str = "30", **params: str | None) -> str:
        """The code that it gets once the person has said yes."""
        answer = await browser.decide(await browser.open(self.address(**params)), days=days)
        assert answer.status_code == 303, answer.text
        return query_of(answer.headers["location"])["code"]

    async def exchange(self, given: str, /, **form: str | None) -> httpx2.Response:
        """The response to the exchange of a code."""
        usual: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": given,
            "code_verifier": self.verifier,
            "redirect_uri": self.redirect_uri,
        }
        return await self.post("token", **(usual | form))

    async def refresh(self, token: str, **form: str | None) -> httpx2.Response:
        """The response to a refresh."""
        return await self.post("token", **({"grant_type": "refresh_token", "refresh_token": token} | form))

    async def post(self, where: str, **form: str | None) -> httpx2.Response:
        """The response to a form."""
        usual: dict[str, str | None] = {"client_id": self.id, "client_secret": self.secret}
        sent = {name: value for name, value in (usual | form).items() if value is not None}
        return await self.stage.http.post(f"{self.stage.base}/oauth/{where}", data=sent)

    async def log_in(self, browser: Browser, days: str = "30", **params: str | None) -> dict[str, Any]:
        """The tokens of a new log-in."""
        response = await self.exchange(await self.code(browser, days, **params))
        assert response.status_code == 200, response.text
        return response.json()


def host_with(stage: Stage, token: str, path: str = "/mcp") -> Host:
    """A host with a token."""
    return stage.host(path, authorization=f"Bearer {token}")


async def status(made: Stage, token: str, path: str = "/mcp") -> int:
    """What the endpoint says to a token."""
    return (await host_with(made, token, path).post(HELLO)).status_code


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub at which hosts log in."""
    async with opened(tmp_path) as made_:
        yield made_


@pytest.fixture
async def entered(made: Stage) -> Browser:
    """The browser of somebody who may do everything."""
    return await Browser(made).enter()


@pytest.fixture
async def program(made: Stage) -> Program:
    """A program that has registered."""
    return await Program(made).register()
