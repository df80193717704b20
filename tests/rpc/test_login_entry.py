"""The page for a code, over HTTP: what lets a browser in, what does not, and what others try."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.audit import AuditFilter
from hubbubd.rpc.login import person
from hubbubd.rpc.login.person import LoginPersons
from hubbubd.rpc.mcp.transport import HostHttpRequest
from hubbubd.runtime.hub import Hub

BASE = "http://127.0.0.1:8701"
NEXT = "/oauth/authorize?client_id=x&state=%20y"
OWN = {"origin": BASE, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
ADA = Principal(name="ada", grants=(Grant(Role.CALLER),), credential="local")


class Browser:
    """A browser at the hub's pages; `/oauth/authorize` says who is there."""

    def __init__(self, hub: Hub, base: str, address: str) -> None:
        self.hub, self.base = hub, base
        self.persons = LoginPersons(hub, secure=base.startswith("https"))
        transport = httpx2.ASGITransport(app=self._serve, client=(address, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=base, trust_env=False)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HostHttpRequest.of(scope, receive, send)
        if scope["path"] == "/oauth/enter":
            await self.persons.serve(request, self.base)
            return
        found = await self.persons.find(request)
        await request.answer(200, found[0].name.encode() if found else b"nobody")

    async def code(self, principal: Principal = ADA) -> str:
        """A new code."""
        self.hub.visitors.address = self.base
        return (await self.hub.visitors.create_code(principal))[0]

    async def type(self, code: str, then: str = NEXT, **headers: str) -> httpx2.Response:
        """Fill the form in and send it."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        body = urlencode({"next": then, "code": code})
        return await self.http.post("/oauth/enter", content=body, headers={**OWN, "origin": self.base, **named})

    async def who(self) -> str:
        """Who is at this window, as the hub knows."""
        return (await self.http.get("/oauth/authorize")).text


@asynccontextmanager
async def opened(hub: Hub, base: str = BASE, address: str = "127.0.0.1") -> AsyncGenerator[Browser]:
    window = Browser(hub, base, address)
    async with window.http:
        yield window


@pytest.fixture
async def window(hub: Hub) -> AsyncIterator[Browser]:
    async with opened(hub) as window:
        yield window


def outcomes(hub: Hub) -> list[tuple[str, str]]:
    """What the audit log says of codes that were typed: who, and the outcome."""
    return [(entry.principal, entry.outcome) for entry in hub.audit.select(AuditFilter(action=person.ACTION))]


async def test_who_types_a_code_is_known_and_goes_on_to_the_question(window: Browser) -> None:
    code = await window.code()
    shown = await window.http.get("/oauth/enter", params={"next": NEXT})
    assert shown.status_code == 200
    assert 'name="next" value="/oauth/authorize?client_id=x&amp;state=%20y"' in shown.text
    assert await window.who() == "nobody"
    entered = await window.type(code.lower().replace("-", " "))
    assert (entered.status_code, entered.headers["location"]) == (303, NEXT)
    assert await window.who() == "ada"
    assert outcomes(window.hub) == [("ada", "OK")]


async def test_a_link_uses_nothing_up_until_its_button_is_pressed(window: Browser) -> None:
    code = await window.code()
    for _ in range(3):  # a preview of a chat, a scanner of mails
        shown = await window.http.get("/oauth/enter", params={"code": code})
        assert f'value="{code}"' in shown.text
    assert await window.who() == "nobody"
    entered = await window.type(code, then="")
    assert entered.status_code == 200
    assert "You are ada here" in entered.text
    assert await window.who() == "ada"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("ABCD-EFGH", "The hub knows no such code"),
        ("ABCD-EFG", "This is no code"),
        ("", "This is no code"),
        ("<script>", "This is no code"),
    ],
)
async def test_a_wrong_code_is_asked_for_again(window: Browser, typed: str, says: str) -> None:
    refused = await window.type(typed)
    assert refused.status_code == 400
    assert says in refused.text
    assert NEXT.replace("&", "&amp;") in refused.text
    assert "<script" not in refused.text
    assert await window.who() == "nobody"


async def test_a_used_code_and_one_whose_credential_has_ended_say_so(window: Browser) -> None:
    code = await window.code()
    assert (await window.type(code)).status_code == 303
    assert "was used already" in (await window.type(code)).text
    _, secret = await window.hub.tokens.create("eve", ADA.grants, by="test", ttl_s=None, may_name_others=False)
    eve = await window.hub.tokens.principal(secret)
    assert eve is not None
    code = await window.code(eve)
    await window.hub.tokens.revoke("eve")
    assert "has ended" in (await window.type(code)).text
    assert outcomes(window.hub).count(("ada", "LOGIN_CODE_USED")) == 1
    assert outcomes(window.hub).count(("eve", "LOGIN_CODE_ENDED")) == 1


@pytest.mark.parametrize(
    "then",
    [
        "https://evil.example/",
        "//evil.example/oauth/authorize?x",
        "/oauth/authorize",
        "/oauth/authorize?a\r\nset-cookie: x=y",
        "/oauth/authorize?é",
        "/oauth/authorize/../enter?x",
        "/oauth/authorize?" + "x" * 7000,
    ],
)
async def test_nobody_is_sent_anywhere_else(window: Browser, then: str) -> None:
    code = await window.code()
    assert "evil" not in (await window.http.get(f"/oauth/enter?next={quote(then)}")).text
    entered = await window.type(code, then=then)
    assert "location" not in entered.headers
    assert "You are ada here" in entered.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_form_of_another_site_does_nothing(window: Browser, headers: dict[str, str]) -> None:
    code = await window.code()
    refused = await window.type(code, **headers)
    assert refused.status_code == 403
    assert "does not come from the hub" in refused.text
    assert "set-cookie" not in refused.headers
    assert (await window.type(code)).status_code == 303


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"code": "x"}', "application/json", 400),
        (b"code=%ff", "application/x-www-form-urlencoded", 400),
        (b"code=a&code=b", "application/x-www-form-urlencoded", 400),
        (b"code=" + b"x" * 40_000, "application/x-www-form-urlencoded", 413),
    ],
)
async def test_what_is_no_form_is_refused_with_a_page(window: Browser, content: bytes, kind: str, status: int) -> None:
    refused = await window.http.post("/oauth/enter", content=content, headers={**OWN, "content-type": kind})
    assert refused.status_code == status
    assert "<h1>" in refused.text


async def test_other_methods_are_refused(window: Browser) -> None:
    refused = await window.http.delete("/oauth/enter")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")


async def test_guesses_are_limited_by_address_and_the_right_code_stays_good(hub: Hub) -> None:
    async with opened(hub) as window, opened(hub, address="10.0.0.9") as elsewhere:
        elsewhere.persons = window.persons
        code = await window.code()
        answers = [(await window.type("ABCD-EFGH")).status_code for _ in range(15)]
        assert answers[:10] == [400] * 10
        assert 429 in answers
        late = await window.type(code)
        assert late.status_code == 429
        assert int(late.headers["retry-after"]) <= 2
        assert "your code is still good" in late.text
        assert code in late.text
        assert (await elsewhere.type(code)).status_code == 303


async def test_an_address_space_counts_as_one_guesser(hub: Hub) -> None:
    async with opened(hub, address="2001:db8::1") as one, opened(hub, address="2001:db8::2") as two:
        two.persons = one.persons
        codes = [(await each.type("ABCD-EFGH")).status_code for _ in range(8) for each in (one, two)]
        assert 429 in codes


async def test_guesses_from_everywhere_are_limited_together(hub: Hub) -> None:
    async with opened(hub) as window:
        refused: list[int] = []
        for number in range(150):
            async with opened(hub, address=f"10.0.{number // 250}.{number % 250}") as guesser:
                guesser.persons = window.persons
                refused.append((await guesser.type("ABCD-EFGH")).status_code)
        assert refused[:100] == [400] * 100
        assert 429 in refused[100:]


async def test_the_cookie_is_the_hubs_own(hub: Hub) -> None:
    async with opened(hub) as plain, opened(hub, "https://hub.example") as secure:
        set_plain = (await plain.type(await plain.code())).headers["set-cookie"]
        set_secure = (await secure.type(await secure.code())).headers["set-cookie"]
    assert set_plain.startswith("hubbub-login-8701=")
    assert set_plain.endswith("; HttpOnly; SameSite=Lax; Path=/")
    assert set_secure.startswith("__Host-hubbub-login=")
    assert set_secure.endswith("; HttpOnly; SameSite=Lax; Path=/; Secure")


async def test_a_page_is_not_stored_framed_or_told_to_others(window: Browser) -> None:
    for response in (await window.http.get("/oauth/enter"), await window.type("x")):
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert "access-control-allow-origin" not in response.headers


async def test_behind_a_proxy_the_public_name_and_the_own_one_are_the_hubs(hub: Hub) -> None:
    async with opened(hub, "https://hub.example") as window:
        code = await window.code()
        direct = {"host": "127.0.0.1:8701", "origin": "http://127.0.0.1:8701"}
        window.http.base_url = httpx2.URL("http://127.0.0.1:8701")
        assert (await window.type("ABCD-EFGH", **direct)).status_code == 400
        assert (await window.type(code, host="127.0.0.1:8701", origin="https://hub.example")).status_code == 303
