"""A link to real servers, over each transport."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.errors import PeerError, UpstreamError
from hubbubd.upstream.ports import Era, InboundReply, InboundRequest, McpLink, ProgressUpdate, ReplyError

from ..raising import raising
from .conftest import LIMIT_S, Connect, Recorder

Options = dict[str, Any]


@pytest.fixture(scope="module")
def listening(shared_http_peer: Any, peer_scripts: Path) -> Callable[[str], Any]:
    """The asking server over a transport, one process for all tests: what it keeps is the names of cancelled calls."""
    return cache(
        lambda transport: shared_http_peer([sys.executable, str(peer_scripts / "asking_server.py"), transport])
    )


@pytest.fixture(params=["stdio", "http", "sse"])
def asking(request: pytest.FixtureRequest, stdio: Callable[..., Options]) -> Options:
    """How to reach the asking server with the handshake."""
    if request.param == "stdio":
        return {**stdio("asking_server.py", "stdio"), "protocol": "2025-11-25"}
    peer = request.getfixturevalue("listening")(request.param)
    path = "mcp" if request.param == "http" else "sse"
    return {"url": f"{peer.url}/{path}", "transport": request.param, "protocol": "2025-11-25"}


async def call(link: McpLink, tool: str, call_id: str | None = None, /, **arguments: Any) -> str:
    result = await link.request("tools/call", {"name": tool, "arguments": arguments}, call_id=call_id)
    return result["content"][0]["text"]


async def test_a_question_in_the_middle_of_a_call_gets_its_answer(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    async with connect(**asking) as link:
        assert link.hello.era is Era.HANDSHAKE
        assert link.hello.server_info["name"] == "asking"
        assert link.hello.instructions == "Ask away"
        assert await call(link, "ask", "call-1", message="Name?") == "accept Ada"
        await recorder.until(lambda: recorder.sent)
    (request,) = recorder.requests
    assert request.method == "elicitation/create"
    assert request.params["message"] == "Name?"
    assert request.call_id == ("call-1" if asking.get("transport") == "http" else None)
    assert recorder.sent == [None]


async def test_concurrent_calls_over_http_are_each_the_cause_of_their_own_question(
    listening: Callable[[str], Any], connect: Connect, recorder: Recorder
) -> None:
    async with (
        connect(url=f"{listening('http').url}/mcp", protocol="2025-11-25") as link,
        anyio.create_task_group() as tasks,
    ):
        for number in range(5):
            tasks.start_soon(call, link, "ask", f"call-{number}")
    assert {request.call_id for request in recorder.requests} == {f"call-{number}" for number in range(5)}


async def test_progress_comes_in_order_and_to_its_call_alone(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    updates: list[ProgressUpdate | None] = []
    params = {"name": "count", "arguments": {"steps": 20}}
    async with connect(**asking) as link:
        await link.request("tools/call", params, call_id="c", on_progress=updates.append)
        assert updates == [ProgressUpdate(step, 20.0, f"step {step}") for step in range(1, 21)]
        await recorder.until(lambda: len(recorder.notifications) >= 40)
    told = [told for told in recorder.notifications if told[0] == "notifications/progress"]
    assert [(params["progress"], call_id) for _, params, call_id in told] == [(step, "c") for step in range(1, 21)]
    logged = [told for told in recorder.notifications if told[0] == "notifications/message"]
    assert [params["data"] for _, params, _ in logged] == [f"logged {step}" for step in range(1, 21)]
    expected = "c" if asking.get("transport") == "http" else None
    assert {call_id for _, _, call_id in logged} == {expected}
    assert len(recorder.notifications) == 40


async def test_a_cancelled_call_is_cancelled_at_the_server(asking: Options, connect: Connect) -> None:
    async with connect(**asking) as link:
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: call(link, "sleep", name="first"))
                while "first" not in (await call(link, "sleeping_calls")).split(","):
                    await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()
            while "first" not in (await call(link, "cancelled_calls")).split(","):
                await anyio.sleep(0.02)


async def test_an_error_for_the_server_is_delivered_as_one(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    async def refuse(_: InboundRequest) -> InboundReply:
        raise ReplyError(-1, "not today", {"why": "Sunday"}, on_sent=recorder.tell)

    recorder.answer = refuse
    async with connect(**asking) as link:
        with pytest.raises(PeerError, match="not today") as caught:  # the server passes it back
            await call(link, "ask")
        assert (caught.value.code, caught.value.data) == (-1, {"why": "Sunday"})
        await recorder.until(lambda: recorder.sent)
    assert recorder.sent == [None]


async def test_an_exception_while_serving_is_an_internal_error_and_costs_nothing_else(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    async def break_down(_: InboundRequest) -> InboundReply:
        raise ZeroDivisionError("secret detail")

    recorder.answer = break_down
    async with connect(**asking) as link:
        with pytest.raises(PeerError) as caught:  # the server passes it back
            await call(link, "ask")
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32603, "Internal error", None)
        assert await call(link, "count", steps=1) == "done"


async def test_a_question_the_server_takes_back_is_withdrawn(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    withdrawn: list[bool] = []

    async def wait(request: InboundRequest) -> InboundReply:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.append(request.withdrawn())
        raise AssertionError

    recorder.answer = wait
    async with connect(**asking) as link:
        assert await call(link, "impatient") == "gave up"
        while not withdrawn:  # over HTTP it may come on another stream than the result
            await link.probe()
        assert withdrawn == [True]


async def test_a_question_open_when_the_link_closes_is_not_withdrawn_by_the_server(
    asking: Options, connect: Connect, recorder: Recorder
) -> None:
    withdrawn: list[bool] = []
    lost: list[str] = []

    async def wait(request: InboundRequest) -> InboundReply:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.append(request.withdrawn())
        raise AssertionError

    async def caught(link: McpLink) -> None:
        try:
            await call(link, "ask")
        except UpstreamError as exc:
            lost.append(exc.reason)

    recorder.answer = wait
    async with anyio.create_task_group() as tasks, connect(**asking) as link:
        tasks.start_soon(caught, link)
        await recorder.until(lambda: recorder.requests)
    assert lost == ["CONNECTION_LOST"]
    assert withdrawn == [False]


async def test_the_handshake_is_not_for_callers(asking: Options, connect: Connect) -> None:
    async with connect(**asking) as link:
        with raising(UpstreamError, "METHOD_NOT_IN_REVISION"):
            await link.request("initialize", {})


async def test_what_goes_wrong_in_the_users_part_comes_out_as_it_is(asking: Options, connect: Connect) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(**asking):
            _ = 1 / 0


async def test_large_integers_and_nulls_arrive_unchanged(asking: Options, connect: Connect, recorder: Recorder) -> None:
    content = {"name": "Ada", "big": 2**70}

    async def answer(_: InboundRequest) -> InboundReply:
        return InboundReply(result={"action": "accept", "content": content})

    recorder.answer = answer
    async with connect(**asking) as link:
        assert await call(link, "ask") == "accept Ada"
