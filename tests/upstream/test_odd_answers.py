"""Answers and progress that no call can use: the call hears of it at once, and nothing of it goes any further."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from hubbubd.errors import UpstreamError
from hubbubd.upstream.ports import ProgressUpdate

from .conftest import CALL, Connect, Recorder, Scripted, event


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
    updates: list[ProgressUpdate | None] = []
    async with connect(url=scripted.url) as link:
        await link.request(*CALL, on_progress=updates.append)
    assert len(updates) == (1 if number[-1] == "9" else 0)
    for update in updates:
        assert math.isfinite(update.progress)
        assert update.total is None or math.isfinite(update.total)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (lambda own: own, "c"),
        (lambda own: str(own), "c"),
        (lambda own: own + 1, "noted"),
        (lambda own: own - 1, "noted"),
        (lambda own: 0, "noted"),
        (lambda own: "x" * 1000, "noted"),
        (lambda own: True, None),
        (lambda own: None, None),
        (lambda own: [own], None),
    ],
)
async def test_a_notification_that_names_a_request_under_way_is_a_sign_of_work_on_its_call(
    named: Callable[[int], object], told: str | None, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    async def respond(request: Request) -> Response:
        message = await request.json()
        params = {"_meta": {"requestId": named(message["id"])}, "msg": {"type": "task_started"}}
        result = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
        events = event({"jsonrpc": "2.0", "method": "codex/event", "params": params}) + event(result)
        return Response(events, media_type="text/event-stream")

    scripted.replaced = {"tools/call": respond}
    updates: list[ProgressUpdate | None] = []
    async with connect(url=scripted.url) as link:
        await link.request(*CALL, call_id="c", on_progress=updates.append)
    assert [(method, call_id) for method, _, call_id in recorder.notifications] == [("codex/event", "c")]
    assert updates == ([None] if told == "c" else [])
    assert [kind for kind in recorder.notes if kind == "names_no_request"] == (
        ["names_no_request"] if told == "noted" else []
    )
    assert all(len(note) < 200 for note in recorder.notes.values())
