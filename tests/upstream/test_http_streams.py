"""What a server asks and tells on HTTP's streams, and the way of the answers."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hubbubd.errors import UpstreamError
from hubbubd.upstream.http.streams import event_parser
from hubbubd.upstream.messages import retries
from hubbubd.upstream.messages.retries import ReopenBackoff
from hubbubd.upstream.ports import InboundReply, InboundRequest

from ..raising import raising
from .conftest import CALL, LIMIT_S, Connect, Endpoint, Recorder, Scripted, event, parks, says
from .test_own_stream import streams

SKILLS = {"io.modelcontextprotocol/skills": {}}
APPS = {"extensions": {**SKILLS, "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
"""What the hub declares of skills and MCP Apps."""


FORM = ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}})


def asks_on_the_call(take: Endpoint, *asked: tuple[str, dict[str, Any]]) -> dict[str, Endpoint]:
    """A call on whose stream the server asks these, or a form; its response follows the POSTs of all answers."""
    posted = 0

    async def ask(request: Request) -> Response:
        message = await request.json()
        expected = posted + len(asked or [FORM])

        async def body() -> AsyncIterator[str]:
            for number, (method, params) in enumerate(asked or [FORM]):
                yield event({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": params})
            with anyio.move_on_after(LIMIT_S):
                while posted < expected:
                    await anyio.sleep(0.01)
            yield event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

        return StreamingResponse(body(), media_type="text/event-stream")

    async def answer(request: Request) -> Response:
        nonlocal posted
        posted += 1
        return await take(request)

    return {"tools/call": ask, "answer": answer}


@pytest.mark.parametrize(("status", "reason"), [(202, None), (500, "HTTP 500"), (401, "HTTP 401"), (404, "HTTP 404")])
async def test_the_fate_of_an_answer_is_told_once(
    status: int, reason: str | None, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = asks_on_the_call(says(status))
    async with connect(url=scripted.url) as link:
        await link.request(*CALL, call_id="c")
        await recorder.until(lambda: recorder.sent)
    assert [request.call_id for request in recorder.requests] == ["c"]
    (told,) = recorder.sent
    assert told is None if reason is None else reason in str(told)


async def test_an_answer_still_on_its_way_when_the_link_closes_has_failed(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    arrived = anyio.Event()

    scripted.replaced = asks_on_the_call(parks(arrived))
    async with connect(url=scripted.url) as link:
        await link.request(*CALL)
        await arrived.wait()
    assert len(recorder.sent) == 1
    assert "closed" in str(recorder.sent[0])


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the hub asked its own pace whether a stream may be opened; here it always may."""
    asked: list[float] = []

    async def wait(_: ReopenBackoff) -> None:
        asked.append(anyio.current_time())

    monkeypatch.setattr(ReopenBackoff, "wait", wait)
    return asked


async def get_stream(_: Request) -> Response:
    async def body() -> AsyncIterator[str]:
        yield "retry: 10\n\n"
        params = {"level": "info", "data": "on the GET stream"}
        yield event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})

    return StreamingResponse(body(), media_type="text/event-stream")


async def test_a_get_stream_that_ends_regularly_comes_back(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = {"GET": get_stream}
    async with connect(url=scripted.url):
        await recorder.until(lambda: len(recorder.notifications) >= 3)
    assert {call_id for _, _, call_id in recorder.notifications} == {None}


async def test_a_server_that_sends_only_what_is_no_message_is_given_up(scripted: Scripted, connect: Connect) -> None:
    scripted.replaced = {"GET": says(200, "data: garbage\n\n" * 10, "text/event-stream")}
    async with connect(url=scripted.url) as link:
        assert (await link.wait_lost()).code == "INVALID_RESPONSE"


async def test_what_a_server_asks_in_a_wrong_shape_never_reaches_a_person(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = asks_on_the_call(
        says(202),
        ("elicitation/create", {"message": 5}),
        ("elicitation/create", {"message": "?", "mode": "telepathy"}),
        ("sampling/createMessage", {"messages": "none"}),
        ("tasks/get", {}),
        ("no/such", {}),
        ("ping", {}),
    )
    async with connect(url=scripted.url) as link:
        await link.request(*CALL)
    codes = {answer["id"]: answer.get("error", {}).get("code") for answer in scripted.answers}
    assert codes == {"q0": -32602, "q1": -32602, "q2": -32602, "q3": -32602, "q4": -32601, "q5": None}
    assert recorder.requests == []


async def test_task_requests_reach_the_hub_only_where_they_are_declared(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    async def answer(request: InboundRequest) -> InboundReply:
        return InboundReply(result={"tasks": []})

    recorder.answer = answer
    scripted.replaced = asks_on_the_call(says(202), ("tasks/list", {}))
    async with connect(url=scripted.url) as link:
        await link.request(*CALL)
    async with connect(url=scripted.url, receiver_tasks=False, sampling=False, apps=False) as link:
        await link.request(*CALL)
    first, second = scripted.answers
    assert (first["result"], second["error"]["code"]) == ({"tasks": []}, -32601)
    everything = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
    requests = {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}
    declared = [sent["params"]["capabilities"] for sent in scripted.messages if sent.get("method") == "initialize"]
    assert declared == [
        {**everything, **APPS, "tasks": {"list": {}, "cancel": {}, "requests": requests}},
        {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}, "extensions": SKILLS},
    ]


async def test_what_a_link_brings_that_was_opened_in_the_course_of_a_call_is_not_of_that_call(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = {**asks_on_the_call(says(202)), "GET": get_stream}

    async def open_another(request: InboundRequest) -> InboundReply:
        before = len(recorder.notifications)
        async with connect(url=scripted.url):
            await recorder.until(lambda: len(recorder.notifications) > before + 2)
        return await recorder.accept(request)

    recorder.answer = open_another
    async with connect(url=scripted.url) as link:
        await link.request(*CALL, call_id="c")
        await recorder.until(lambda: recorder.requests)
    assert [request.call_id for request in recorder.requests] == ["c"]
    assert {call_id for _, _, call_id in recorder.notifications} == {None}


async def test_the_response_to_another_request_is_not_taken_for_this_ones(scripted: Scripted, connect: Connect) -> None:
    async def misdirected(request: Request) -> Response:
        message = await request.json()
        result = {"content": [{"type": "text", "text": "somebody else's"}]}
        return Response(
            event({"jsonrpc": "2.0", "id": message["id"] + 1, "result": result}), media_type="text/event-stream"
        )

    scripted.replaced = {"tools/call": misdirected}
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "INVALID_RESPONSE", match="a response to request"):
            await link.request(*CALL)
        await link.probe()


async def test_a_connection_whose_first_notification_does_not_arrive_is_lost(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"notifications/initialized": says(503)}
    async with connect(url=scripted.url) as link:
        assert (await link.wait_lost()).details["status"] == 503
    assert scripted.seen.count(("POST", "notifications/initialized")) == 3


async def test_an_answer_that_a_gateway_did_not_pass_on_goes_out_again(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    refusals = iter([502, 503])

    async def gateway(_: Request) -> Response:
        return Response(status_code=next(refusals, 202))

    scripted.replaced = asks_on_the_call(gateway)
    async with connect(url=scripted.url) as link:
        await link.request(*CALL)
        await recorder.until(lambda: recorder.sent)
    assert recorder.sent == [None]
    assert scripted.seen.count(("POST", None)) == 3


async def test_no_stream_is_opened_without_a_pause_of_the_hubs_own_whatever_the_server_names(
    scripted: Scripted, connect: Connect, recorder: Recorder, paced: list[float]
) -> None:
    async def ends_at_once(request: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            yield "id: 1\nretry: 0\ndata:\n\n"

        return StreamingResponse(body(), media_type="text/event-stream")

    scripted.replaced = {"GET": ends_at_once, "tools/call": ends_at_once}

    async with connect(url=scripted.url) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(link.request, *CALL)
        while streams(scripted) <= 5:
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert 5 < streams(scripted) <= len(paced)


@pytest.mark.parametrize("retry", ["999999999999", "9" * 400], ids=["years", "no float"])
async def test_a_server_cannot_send_the_hub_away_from_its_stream_for_good(
    retry: str, scripted: Scripted, connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_parser, "LONGEST_RETRY_MS", 10)
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.01)

    async def ends(request: Request) -> Response:
        told = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        return Response(f"retry: {retry}\n\n{told}", media_type="text/event-stream")

    scripted.replaced = {"GET": ends}
    async with connect(url=scripted.url) as link:
        await recorder.until(lambda: len(recorder.notifications) >= 3)
        assert await link.request(*CALL)


async def test_a_call_whose_stream_ends_with_a_long_retry_is_asked_for_in_time(
    scripted: Scripted, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_parser, "LONGEST_RETRY_MS", 10)
    asked: list[Any] = []

    async def begins(request: Request) -> Response:
        asked.append((await request.json())["id"])
        return Response("id: 1\nretry: 999999999999\ndata:\n\n", media_type="text/event-stream")

    async def goes_on(request: Request) -> Response:
        if "last-event-id" not in request.headers:
            return Response(status_code=405)
        told = event({"jsonrpc": "2.0", "id": asked[0], "result": {"content": []}})
        return Response(told, media_type="text/event-stream")

    scripted.replaced = {"GET": goes_on, "tools/call": begins}
    async with connect(url=scripted.url) as link:
        assert (await link.request(*CALL))["content"] == []
