"""Answers and progress that no call can use: the call hears of it at once, and nothing of it goes any further."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from hubbubd.errors import UpstreamError
from hubbubd.upstream.ports import ProgressUpdate

from .conftest import CALL, Connect, Scripted, event


async def test_an_answer_over_stdio_that_cannot_be_read_ends_its_call_at_once(
    connect: Connect, stdio: Callable[..., dict[str, Any]]
) -> None:
    taken, said = 0, ""
    async with connect(**stdio("odd.py", "answers")) as link:
        for _ in range(8):  # as many answers as the server knows, wherever it begins
            try:
                await link.request("tools/call", {"name": "odd", "arguments": {}})
                taken += 1
            except UpstreamError as error:
                said += f"{error.reason}: {error.message}\n"
    assert taken == 1
    assert said.count("INVALID_RESPONSE: ") == 7
    for word, times in (("NaN", 2), ("recursion", 1), ("byte order mark", 1), ("UTF-8", 1), ("array", 1)):
        assert said.count(word) == times, said


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, '"x"', "null", "true"])
async def test_progress_past_any_number_is_told_within_bounds_or_not_at_all(
    number: str, scripted: Scripted, connect: Connect
) -> None:
    async def respond(request: Request) -> Response:
        message = await request.json()
        told = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": "NUMBER", "total": "NUMBER"}
        odd = event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        result = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
        return Response(odd.replace('"NUMBER"', number) + event(result), media_type="text/event-stream")

    scripted.replaced = {"tools/call": respond}
    updates: list[ProgressUpdate] = []
    async with connect(url=scripted.url) as link:
        await link.request(*CALL, on_progress=updates.append)
    assert len(updates) == (1 if number[-1] == "9" else 0)
    for update in updates:
        assert math.isfinite(update.progress)
        assert update.total is None or math.isfinite(update.total)
