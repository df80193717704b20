"""Lists of any length: looked at in steps, between which others have their turn."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.core.catalog import Kind, Pages
from hubbubd.errors import UpstreamError
from hubbubd.upstream.era import HandshakeRevision, StatelessRevision
from hubbubd.upstream.results import STEP, absorb_tools, check_result

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
    assert len(list(check_result(HandshakeRevision("2025-11-25"), "tools/list", None, page))) == steps
    page |= {"ttlMs": 0, "cacheScope": "private"}
    assert len(list(check_result(stateless, "tools/list", None, page))) == steps
    assert len(list(absorb_tools(stateless, page))) == steps
    pages = Pages("one", Kind.TOOL)
    assert len(list(pages.steps(page))) <= steps
    assert len(pages.entries) == len(page["tools"]) == length
