"""Functions that answer what a call asks, over the stream that carries it (tests/rpc has them with a real hub)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, inbox_pb2
from hubbub_client import connect
from hubbub_client.handlers import CallAnswers, StreamedAnswers

from .call_stream import LIMIT_S, carried, done, said
from .test_call_answers import Asking, assigned, given

READY = call_pb2.StreamCallsResponse.Ready(max_calls=10, max_request_bytes=1024 * 1024, takes_answers=True)


@pytest.fixture
def asking(hub: Any, came: list[Any]) -> list[Any]:
    """What comes on streams of a hub that assigns one request with each call, and completes it once that is settled."""

    async def stream(steps: Any) -> AsyncIterator[Any]:
        call: Any = None
        yield said(ready=READY)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step)
            if step.HasField("start"):
                call = step.start
                if call.answers:
                    yield said(id=call.id, assigned=assigned().assigned)
                    continue
            elif step.HasField("answer"):
                answered = inbox_pb2.AnswerPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id="r"))
                yield said(id=step.answer.id, answered=answered)
            yield said(id=call.id, completed=done(call.request))

    hub.streams["StreamCalls"] = stream
    return came


async def test_an_answer_goes_the_way_its_request_came(hub: Any, asking: list[Any]) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, asking)
            await client.call("s", "m", call_id="mine", on_form=lambda _: {"dish": "soup"})
            await client.call("s", "m")
    start, answer = (getattr(step, step.WhichOneof("step")) for step in asking[:2])
    assert (start.request.spec.call_id, set(start.answers), start.follow) == ("mine", {1}, False)
    assert (answer.request.id, answer.request.claim_id) == ("r", "claim-of-r")
    assert given(answer.request) == {"dish": "soup"}
    assert answer.request.answer_id
    assert [step.WhichOneof("step") for step in asking] == ["start", "answer", "start"], "nothing is left to others"
    assert not hub.requests("Work")
    assert not hub.requests("AnswerPendingRequest")


async def test_what_is_not_answered_is_left_to_others_by_both_ids(hub: Any, asking: list[Any]) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, asking)
            await client.call("s", "m", on_form=lambda _: None)
    start, skip = asking[0].start, asking[1].skip
    assert (skip.id, skip.pending_request_id) == (start.id, "r")


async def test_an_answer_that_is_too_long_for_the_stream_goes_by_an_rpc(hub: Any, asking: list[Any]) -> None:
    def accept(request: Any) -> Any:
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))

    long = {"dish": "x" * 70_000}
    hub.replies["AnswerPendingRequest"] = accept
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as group:
            await carried(client, asking)
            group.start_soon(lambda: client.call("s", "m", on_form=lambda _: long))
            while not hub.requests("AnswerPendingRequest"):
                await anyio.sleep(0)
            assert [step.WhichOneof("step") for step in asking] == ["start"]
            group.cancel_scope.cancel()
    assert given(hub.requests("AnswerPendingRequest")[0]) == long


async def test_an_answer_whose_stream_has_broken_goes_by_an_rpc_as_the_same_answer(hub: Any, asking: list[Any]) -> None:
    """The hub has read it, and may have accepted it."""

    async def breaks(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=READY)
        async for step in (step async for message in steps for step in message.steps):
            asking.append(step)
            if step.HasField("answer"):
                return
            if step.start.answers:
                yield said(id=step.start.id, assigned=assigned().assigned)
            else:
                yield said(id=step.start.id, completed=done(step.start.request))

    hub.streams["StreamCalls"] = breaks
    hub.replies["AnswerPendingRequest"] = lambda request: inbox_pb2.AnswerPendingRequestResponse(
        pending_request=inbox_pb2.PendingRequest(id=request.id)
    )
    async with connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as group:
        with anyio.fail_after(LIMIT_S):
            await carried(client, asking)
            request = inbox_pb2.AnswerPendingRequestRequest(id="r", answer_id="once")
            stream = client.calls._connection._call_streams._stream
            assert stream is not None
            group.start_soon(lambda: client.calls._connection.answer(stream, request))
            while not hub.requests("AnswerPendingRequest"):
                await anyio.sleep(0)
            await client.calls._connection.answer(stream, request)
    assert [each.answer_id for each in hub.requests("AnswerPendingRequest")] == ["once", "once"]
    assert [step.answer.request.answer_id for step in asking if step.HasField("answer")] == ["once"]


async def test_a_hub_that_takes_no_answers_on_the_stream_assigns_them_to_a_worker(hub: Any, came: list[Any]) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        await carried(client, came)
        asking = Asking(hub, assigned())
        with anyio.fail_after(LIMIT_S):
            await client.call("s", "m", on_form=lambda _: True)
    assert len(hub.requests("Work")) == 1
    assert [given(answer) for answer in asking.answers] == [True]
    assert [list(step.start.answers) for step in came] == [[]]


async def test_what_was_assigned_before_its_call_was_made_again_is_over() -> None:
    """The hub assigns it again, and one function at a time is asked."""
    over: list[int] = []

    async def think(_: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            over.append(len(over))

    nobody: Any = None
    streamed = StreamedAnswers(nobody, CallAnswers(nobody, "mine", {"on_form": think}))
    serving = asyncio.create_task(streamed.serve())
    for number in (1, 2):
        streamed.receive_step(nobody, call_pb2.StreamCallsResponse.Step(id=number, assigned=assigned().assigned))
        await anyio.wait_all_tasks_blocked()
    assert over == [0]
    serving.cancel()
    await asyncio.wait([serving])
    assert over == [0, 1]
