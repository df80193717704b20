"""Programs that are described by a document at their id: fetched for people alone, bounded, by the rules for hosts."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hubbubd.config.policy.hosts import HostRules
from hubbubd.core.logins.refusals import LoginRefusal
from hubbubd.errors import PermissionDenied
from hubbubd.rpc.login import documents
from hubbubd.rpc.login.documents import FRESH_S, MAX_BYTES, ClientDocuments, Get
from hubbubd.upstream.http import get_json_text

from .log_in import BACK, Browser, Program, opened, query_of
from .mcp_host import Stage

URL = "https://app.example/client.json"
DOCUMENT = {"client_id": URL, "client_name": "App", "redirect_uris": [BACK]}
LOOPBACK = HostRules(["127.0.0.0/8"], [])
INTERNET = HostRules(["public"], [])


class Published:
    """What is at the address of a document, and who has asked for it."""

    def __init__(self) -> None:
        self.document: object = DOCUMENT
        self.asked: list[str] = []

    async def get(self, url: str, rules: HostRules, max_bytes: int) -> bytes:
        rules.check_host("app.example")
        self.asked.append(url)
        return json.dumps(self.document).encode()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    """A document that the hub finds."""
    found = Published()

    def import_get() -> Get:
        return found.get

    monkeypatch.setattr(documents, "_import_get", import_get)
    return found


@pytest.fixture
async def made(tmp_path: Path, published: Published) -> AsyncIterator[Stage]:
    """A hub at which hosts log in."""
    async with opened(tmp_path) as made_:
        yield made_


async def test_a_program_with_a_document_logs_in_without_registration(made: Stage, published: Published) -> None:
    program, browser = Program(made, id=URL), Browser(made)
    await browser.open(program.address())
    assert published.asked == []  # strangers have nothing fetched
    await browser.enter()
    page = await browser.open(program.address())
    assert "app.example" in page.text
    code = query_of((await browser.decide(page)).headers["location"])["code"]
    given = (await program.exchange(code)).json()
    assert (await program.refresh(given["refresh_token"])).status_code == 200
    assert published.asked == [URL]
    (token,) = made.hub.tokens.all()
    assert (token.name, token.login.client_id) == ("app", URL)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, DOCUMENT | {"client_id": "https://app.example/other"}, DOCUMENT | {"redirect_uris": ["https://x/"]}],
)
async def test_a_person_is_told_why_a_document_is_not_taken(
    made: Stage, published: Published, document: object
) -> None:
    published.document = document
    browser = await Browser(made).enter()
    shown = await browser.open(Program(made, id=URL).address())
    assert (shown.status_code, "location" in shown.headers) == (400, False)


async def test_rules_for_hosts_are_those_of_servers(tmp_path: Path, published: Published) -> None:
    async with opened(tmp_path, deny_hosts=("app.example",)) as made:
        shown = await (await Browser(made).enter()).open(Program(made, id=URL).address())
        assert (shown.status_code, published.asked) == (400, [])
        assert "deny_hosts" in shown.text


async def test_a_hub_that_reads_no_documents_does_not_offer_it_and_says_so(made: Stage, published: Published) -> None:
    await made.reload(mcp_login_documents=False)
    metadata = (await made.http.get(f"{made.base}/.well-known/oauth-authorization-server")).json()
    assert "client_id_metadata_document_supported" not in metadata
    page = await (await Browser(made).enter()).open(Program(made, id=URL).address())
    assert page.status_code == 400
    assert "mcp_login_documents" in page.text
    await made.reload(mcp_login_documents=True)
    metadata = (await made.http.get(f"{made.base}/.well-known/oauth-authorization-server")).json()
    assert metadata["client_id_metadata_document_supported"] is True


async def test_a_change_of_the_document_counts_within_a_minute() -> None:
    published, now = Published(), [0.0]
    found = ClientDocuments(lambda: INTERNET, lambda: now[0], published.get)
    assert await found.fetch(URL) == await found.fetch(URL) == DOCUMENT
    assert len(published.asked) == 1
    published.document = DOCUMENT | {"redirect_uris": ["https://app.example/new"]}
    now[0] = FRESH_S
    assert await found.fetch(URL) == published.document


async def test_a_document_that_does_not_come_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(url: str, rules: HostRules, max_bytes: int) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(documents, "FETCH_S", 0.01)
    with pytest.raises(LoginRefusal, match="did not come within"):
        await ClientDocuments(lambda: LOOPBACK, lambda: 0.0, never).fetch(URL)


@asynccontextmanager
async def serving(sent: bytes) -> AsyncGenerator[str]:
    """A server that sends the same bytes to all, and its address."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(sent)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/client.json"
        tasks.cancel_scope.cancel()


def response(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    """A response in HTTP."""
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (response(b"x" * (MAX_BYTES + 1)), "larger than"),
        (response(b"{}", "302 Found", more="location: http://169.254.169.254/\r\n"), "302"),
        (response(b"{}", "404 Not Found"), "404"),
        (response(b"{}", kind="text/html"), "Content-Type"),
        (b"what?\r\n\r\n", "."),
    ],
    ids=["huge", "elsewhere", "not there", "a page", "no HTTP"],
)
async def test_what_is_no_document_is_refused(sent: bytes, why: str) -> None:
    async with serving(sent) as url:
        with pytest.raises(ValueError, match=why):
            await get_json_text(url, LOOPBACK, MAX_BYTES)


async def test_a_document_is_read_where_the_rules_allow_it_and_nowhere_else() -> None:
    async with serving(response(b'{"a":1}', kind="application/json; charset=utf-8")) as url:
        assert await get_json_text(url, LOOPBACK, MAX_BYTES) == b'{"a":1}'
        for place in (url, url.replace("127.0.0.1", "localhost"), "https://10.0.0.1/x", "https://[::1]/x"):
            with pytest.raises(PermissionDenied):
                await get_json_text(place, INTERNET, MAX_BYTES)
