"""Lists of any length: looked at in steps, between which others have their turn."""

import asyncio
import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.core.servers.catalog import CatalogKind, Pages
from hubbubd.errors import UpstreamError
from hubbubd.upstream.protocol.negotiation import HandshakeRevision, StatelessRevision
from hubbubd.upstream.protocol.repair import ResultFindings
from hubbubd.upstream.protocol.results import STEP, check_result, learn_tool_headers
from hubbubd.upstream.protocol.tool_headers import MAX_INCOMPLETE, MAX_MAPPED

from .conftest import Connect, Recorder, Scripted, event
from .test_era import modern

LENGTH = 10 * STEP + 1


def tools(length: int) -> list[dict[str, Any]]:
    return [{"name": f"tool {at}", "inputSchema": {"type": "object"}} for at in range(length)]


def listing(entries: list[dict[str, Any]]) -> Any:
    async def respond(request: Request) -> Response:
        message = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": entries}})

    return respond


async def test_a_long_list_arrives_whole_and_in_order(scripted: Scripted, connect: Connect) -> None:
    scripted.replaced = {"tools/list": listing(tools(LENGTH))}
    async with connect(url=scripted.url) as link:
        found = await link.request("tools/list", None)
    assert [tool["name"] for tool in found["tools"]] == [f"tool {at}" for at in range(LENGTH)]


async def test_what_is_wrong_far_down_a_list_is_left_out_and_named_by_its_place(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = {"tools/list": listing([*tools(LENGTH), {"title": "nameless"}, *tools(1)])}
    async with connect(url=scripted.url) as link:
        found = await link.request("tools/list", None)
    assert len(found["tools"]) == LENGTH + 1
    assert f"no. {LENGTH + 1}" in recorder.notes["entry_left_out/tools/list"]


@pytest.mark.parametrize("entry", [7, {}, {"name": "x", "inputSchema": "none"}, {"name": "x", "icons": [7] * 4000}])
def test_a_list_with_nothing_right_in_it_is_looked_at_in_steps(entry: Any) -> None:
    page: dict[str, Any] = {"tools": [copy.deepcopy(entry) for _ in range(LENGTH if entry in (7, {}) else 20)]}
    length = len(page["tools"])
    assert (
        len(list(check_result(HandshakeRevision("2025-11-25"), "tools/list", None, page, ResultFindings()))) >= length
    )


@pytest.mark.parametrize("length", [0, 1, STEP, STEP + 1, LENGTH])
def test_a_list_is_looked_at_in_steps(length: int) -> None:
    steps = max(length - 1, 0) // STEP
    stateless = StatelessRevision("2026-07-28", {})
    page: dict[str, Any] = {"tools": tools(length)}
    checked = len(list(check_result(HandshakeRevision("2025-11-25"), "tools/list", None, page, ResultFindings())))
    assert steps <= checked <= length
    page |= {"ttlMs": 0, "cacheScope": "private"}
    assert steps <= len(list(check_result(stateless, "tools/list", None, page, ResultFindings()))) <= length
    assert len(list(learn_tool_headers(stateless, page, None, ResultFindings()))) == steps
    pages = Pages("one", CatalogKind.TOOL)
    assert len(list(pages.add_in_steps(page))) <= steps
    assert len(pages.entries) == len(page["tools"]) == length


def with_header(at: int) -> dict[str, Any]:
    argument = {"type": "string", "x-mcp-header": f"At-{at}"}
    return {"name": f"tool {at}", "inputSchema": {"type": "object", "properties": {"at": argument}}}


def page(revision: StatelessRevision, names: range, cursor: str | None, more: str | None) -> None:
    for _ in learn_tool_headers(
        revision, {"tools": [with_header(at) for at in names], "nextCursor": more}, cursor, ResultFindings()
    ):
        pass


def test_of_tools_headers_only_those_of_the_last_whole_list_are_kept() -> None:
    revision = StatelessRevision("2026-07-28", {})
    page(revision, range(10), None, "more")
    page(revision, range(10, 20), "more", None)
    assert len(revision.tool_headers) == 20
    page(revision, range(15, 25), None, "more")
    assert revision.tool_headers.find_header_names("tool 3"), "the other list is not whole yet"
    page(revision, range(25, 30), "more", None)
    assert revision.tool_headers.find_header_names("tool 3") is None
    assert len(revision.tool_headers) == 15
    page(revision, range(MAX_MAPPED + 10), None, None)
    assert len(revision.tool_headers) == MAX_MAPPED


def test_two_who_list_the_tools_at_once_make_no_headers_forgotten() -> None:
    revision = StatelessRevision("2026-07-28", {})
    for cursor, more, names in ((None, "2", range(10)), ("2", "3", range(10, 20)), ("3", None, range(20, 30))):
        page(revision, names, cursor, more)
        page(revision, names, cursor, more)
    assert all(revision.tool_headers.find_header_names(f"tool {at}") for at in range(30))


@pytest.mark.parametrize("cursor", ["3", "of nobody"])
def test_who_asks_for_a_page_alone_makes_no_headers_forgotten(cursor: str) -> None:
    revision = StatelessRevision("2026-07-28", {})
    page(revision, range(10), None, None)
    page(revision, range(0), cursor, None)
    page(revision, range(10, 20), cursor, None)
    assert len(revision.tool_headers) == 20


def test_lists_that_are_begun_and_never_ended_do_not_add_up() -> None:
    revision = StatelessRevision("2026-07-28", {})
    for at in range(50):
        page(revision, range(10 * at, 10 * at + 10), None, f"more {at}")
        page(revision, range(1000 + at, 1001 + at), None, "again")
    assert len(revision.tool_headers) <= 10 * MAX_INCOMPLETE
    for at in range(MAX_MAPPED // 1000 + 5):
        page(revision, range(1000 * at, 1000 * at + 1000), "unheard of", None)
    assert len(revision.tool_headers) <= MAX_MAPPED + 10 * MAX_INCOMPLETE


@pytest.mark.parametrize("cursors", [[None, "2"], [None, None, "2", "2"], ["2"], [None, "2", "2"]])
async def test_a_tool_is_called_with_its_headers_whatever_pages_were_asked_for(
    scripted: Scripted, connect: Connect, cursors: list[str | None]
) -> None:
    async def listed(request: Request) -> Response:
        message = await request.json()
        last = message["params"].get("cursor") == "2"
        found = {"tools": [with_header(int(last))], **({} if last else {"nextCursor": "2"}), "ttlMs": 0}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {**found, "cacheScope": "private"}})

    modern(scripted)
    scripted.replaced["tools/list"] = listed
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "tool 0", "arguments": {}})
        for cursor in cursors:
            await link.request("tools/list", {"cursor": cursor} if cursor else None)
        for at in range(2):
            await link.request("tools/call", {"name": f"tool {at}", "arguments": {"at": "here"}})
            assert scripted.headers[-1][f"mcp-param-at-{at}"] == "here"


class Turns:
    """Which turn of the event loop it is."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._next)


@pytest.mark.parametrize("check", ["link.check_result", "link.learn_tool_headers", "server_requests.check"])
async def test_between_the_steps_of_each_check_others_have_their_turn(
    check: str, scripted: Scripted, connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, seen = Turns(), list[int]()

    def steps(*_args: object) -> Iterator[None]:
        for _ in range(5):
            seen.append(turns.count)
            yield

    async def asks(request: Request) -> Response:
        message = await request.json()
        form: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        asked = event({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": form})
        return Response(asked, media_type="text/event-stream", headers={"x-id": str(message["id"])})

    if check != "server_requests.check":
        modern(scripted)
    async with connect(url=scripted.url) as link:
        monkeypatch.setattr(f"hubbubd.upstream.links.{check}", steps)
        if check == "server_requests.check":
            scripted.replaced["tools/call"] = asks
            with suppress(UpstreamError):
                await link.request("tools/call", {"name": "any"})
            await recorder.until(lambda: recorder.requests)
        else:
            await link.request("tools/list", None)
    assert len(set(seen)) == len(seen) == 5
