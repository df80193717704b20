"""Lists of any length: looked at in steps, between which others have their turn."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.core.catalog import Kind, Pages
from hubbubd.errors import UpstreamError
from hubbubd.upstream.era import HandshakeRevision, StatelessRevision
from hubbubd.upstream.results import STEP, absorb_tools, check_result
from hubbubd.upstream.tool_headers import MAX_MAPPED

from .conftest import Connect, Scripted

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


async def test_what_is_wrong_far_down_a_list_is_named_by_its_place(scripted: Scripted, connect: Connect) -> None:
    entries = tools(LENGTH)
    entries[-1]["inputSchema"] = "none"
    scripted.replaced = {"tools/list": listing(entries)}
    async with connect(url=scripted.url) as link:
        with pytest.raises(UpstreamError, match=rf"tools\.{LENGTH - 1}\.inputSchema") as caught:
            await link.request("tools/list", None)
    assert caught.value.reason == "INVALID_RESPONSE"


@pytest.mark.parametrize("length", [0, 1, STEP, STEP + 1, LENGTH])
def test_a_list_is_looked_at_in_steps(length: int) -> None:
    steps = max(length - 1, 0) // STEP
    stateless = StatelessRevision("2026-07-28", {})
    page: dict[str, Any] = {"tools": tools(length)}
    checked = len(list(check_result(HandshakeRevision("2025-11-25"), "tools/list", None, page)))
    assert steps <= checked <= length
    page |= {"ttlMs": 0, "cacheScope": "private"}
    assert steps <= len(list(check_result(stateless, "tools/list", None, page))) <= length
    assert len(list(absorb_tools(stateless, page, first=True))) == steps
    pages = Pages("one", Kind.TOOL)
    assert len(list(pages.steps(page))) <= steps
    assert len(pages.entries) == len(page["tools"]) == length


def with_header(at: int) -> dict[str, Any]:
    argument = {"type": "string", "x-mcp-header": f"At-{at}"}
    return {"name": f"tool {at}", "inputSchema": {"type": "object", "properties": {"at": argument}}}


def test_of_tools_headers_only_those_of_the_last_whole_list_are_kept() -> None:
    revision = StatelessRevision("2026-07-28", {})

    def page(names: range, *, first: bool = False, last: bool = False) -> None:
        listing = {"tools": [with_header(at) for at in names], **({} if last else {"nextCursor": "more"})}
        for _ in absorb_tools(revision, listing, first=first):
            pass

    page(range(10), first=True)
    page(range(10, 20), last=True)
    assert len(revision.tool_headers) == 20
    page(range(15, 25), first=True)
    assert revision.tool_headers.of("tool 3"), "the other list is not whole yet"
    page(range(25, 30), last=True)
    assert revision.tool_headers.of("tool 3") is None
    assert len(revision.tool_headers) == 15
    page(range(MAX_MAPPED + 10), first=True, last=True)
    assert len(revision.tool_headers) == MAX_MAPPED
