"""Functions that answer what one call asks: its own requests alone, under a claim, and their errors are heard."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbub_client import HubbubError, InvalidArgument, connect, sync

from .conftest import staying

LIMIT_S = 60
KINDS = {"form": "ELICITATION_FORM", "page": "ELICITATION_URL", "sampling": "SAMPLING", "roots": "ROOTS"}
RESPONSE = inbox_pb2.WorkResponse
STARTED = "c"
"""A call that was made before anybody watches it."""

LISTENING = RESPONSE(bookmark=common_pb2.WatchBookmark())


def assigned(id_: str = "r", kind: str = "form") -> Any:
    claim = inbox_pb2.PendingRequest.Claim(id=f"claim-of-{id_}")
    request = inbox_pb2.PendingRequest(id=id_, kind=f"PENDING_REQUEST_KIND_{KINDS[kind]}", state=1, claim=claim)
    return RESPONSE(assigned=request)


class Asking:
    """A call that asks some requests, and ends when all are answered or skipped: as `ends` says, or never."""

    def __init__(self, hub: Any, *steps: Any, ends: bool = True) -> None:
        self.hub = hub
        self.steps = steps
        self.begun, self.done, self.hung_up = anyio.Event(), anyio.Event(), anyio.Event()
        self.ready: list[Any] = []
        self.settled: list[str] = []
        self.answers: list[Any] = []
        self.refuse: Callable[[], Exception] | None = None
        self._ends = ends
        self._settled = anyio.Event()
        hub.streams["Work"] = self._work
        hub.streams["WatchCalls"] = self._watch
        hub.replies["CallMethod"] = self._call
        hub.replies["AnswerPendingRequest"] = self._answer

    async def _work(self, said: Any) -> AsyncIterator[Any]:
        self.ready.append((await anext(said)).ready)
        yield LISTENING
        await self.begun.wait()
        for step in self.steps:
            if step.WhichOneof("event") == "assigned":
                yield step
                await self._until(step.assigned.id, said)
            else:
                yield step
        await anyio.sleep_forever()

    async def _until(self, id_: str, said: Any) -> None:
        """Until a request is answered and skipped: a worker says of each that it needs it no more."""
        skipped = (await anext(said)).skip.id
        assert skipped == id_
        self.settled.append(skipped)
        if len(self.settled) == sum(step.WhichOneof("event") == "assigned" for step in self.steps):
            self.done.set()

    def _answer(self, request: Any) -> Any:
        if self.refuse is not None:
            raise self.refuse()
        self.answers.append(request)
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))

    async def _call(self, request: Any) -> Any:
        self.begun.set()
        try:
            await (self.done.wait() if self._ends else anyio.sleep_forever())
        finally:
            self.hung_up.set()
        ended = call_pb2.Call(id=request.spec.call_id, state=call_pb2.CALL_STATE_COMPLETED, result=b"{}")
        return call_pb2.CallMethodResponse(call=ended)

    async def _watch(self, request: Any) -> AsyncIterator[Any]:
        step, call_id = call_pb2.WatchCallsResponse, request.filter.ids[0]
        waiting = call_pb2.Call(id=call_id, state=call_pb2.CALL_STATE_WAITING_INPUT, pending_request_ids=["r"])
        if call_id == STARTED:
            self.begun.set()
            yield step(upsert=waiting)
        yield step(synced=common_pb2.WatchSynced())
        if call_id != STARTED:
            await self.begun.wait()
            yield step(upsert=waiting)
        await (self.done.wait() if self._ends else anyio.sleep_forever())
        yield step(upsert=call_pb2.Call(id=call_id, state=call_pb2.CALL_STATE_COMPLETED, result=b"{}"))
        await anyio.sleep_forever()


def given(answer: Any) -> Any:
    """What an answer says, in short."""
    match answer.WhichOneof("answer"):
        case "accept":
            return json.loads(answer.accept.content) if answer.accept.content else True
        case "result":
            return {"result": json.loads(answer.result)}
        case "text":
            return answer.text
        case other:
            return other


@pytest.mark.parametrize(
    ("kind", "returned", "said"),
    [
        ("form", {"dish": "soup"}, {"dish": "soup"}),
        ("form", True, True),
        ("form", False, "decline"),
        ("page", True, True),
        ("page", False, "decline"),
        ("sampling", "old pond", "old pond"),
        ("sampling", {"role": "assistant"}, {"result": {"role": "assistant"}}),
        ("roots", {"roots": []}, {"result": {"roots": []}}),
    ],
)
@pytest.mark.parametrize("waits", [True, False], ids=["coroutine", "plain"])
async def test_what_a_function_returns_is_the_answer_under_its_claim(
    hub: Any, kind: str, returned: Any, said: Any, waits: bool
) -> None:
    asking = Asking(hub, assigned(kind=kind))

    async def answer(request: Any) -> Any:
        assert request.id == "r"
        return returned

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await client.call_tool("s", "t", **{f"on_{kind}": answer if waits else lambda _: returned})  # pyright: ignore[reportArgumentType]
    (answered,) = asking.answers
    assert (given(answered), answered.id, answered.claim_id) == (said, "r", "claim-of-r")


async def test_only_what_the_call_itself_asks_and_its_functions_can_answer_is_wanted(hub: Any) -> None:
    asking = Asking(hub, assigned())
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await client.call("s", "m", call_id="mine", on_form=lambda _: True, on_roots=lambda _: None)
    (ready,) = asking.ready
    assert ready.filter.call_id == "mine" == hub.requests("CallMethod")[0].spec.call_id
    assert set(ready.filter.kinds) == {1, 4}
    assert (ready.filter.server, ready.capacity) == ("", 1)


async def test_a_call_without_an_id_gets_one_by_which_its_requests_are_known(hub: Any) -> None:
    asking = Asking(hub, assigned())
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await client.call("s", "m", on_form=lambda _: True)
    (ready,) = asking.ready
    assert len(ready.filter.call_id) == 32
    assert ready.filter.call_id == hub.requests("CallMethod")[0].spec.call_id


async def test_what_a_function_leaves_or_answers_itself_is_answered_once_at_most(hub: Any) -> None:
    asking = Asking(hub, assigned("left"), assigned("own"))

    async def answer(request: Any) -> Any:
        return await request.decline() if request.id == "own" else None

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await client.call("s", "m", on_form=answer)
    assert [(each.id, given(each)) for each in asking.answers] == [("own", "decline")]
    assert asking.settled == ["left", "own"]


def fail(_: Any) -> Any:
    raise LookupError("mine")


@pytest.mark.parametrize("function", ["on_form", "on_pending"])
async def test_what_a_function_raises_comes_out_of_the_call_and_aborts_it(hub: Any, function: str) -> None:
    asking = Asking(hub, assigned(), ends=False)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            with pytest.raises(LookupError, match="mine"):
                await client.call_tool("s", "t", **{function: fail})
            await asking.hung_up.wait()
    assert asking.answers == []


@pytest.mark.parametrize(("kind", "returned"), [("form", 7), ("page", "yes"), ("sampling", True), ("roots", "x")])
async def test_what_is_no_answer_to_its_kind_is_a_mistake_of_the_function(hub: Any, kind: str, returned: Any) -> None:
    asking = Asking(hub, assigned(kind=kind), ends=False)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            with pytest.raises(TypeError, match="cannot return"):
                await client.calls.handle(STARTED, **{f"on_{kind}": lambda _: returned}).result()  # pyright: ignore[reportArgumentType]
    assert asking.answers == []


async def test_an_answer_that_the_form_does_not_take_comes_out_of_the_call(hub: Any, refusal: Any) -> None:
    asking = Asking(hub, assigned(), ends=False)
    asking.refuse = lambda: refusal("INVALID_ARGUMENT", "INVALID", violations=(("content.n", "must be >= 18"),))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            with pytest.raises(InvalidArgument) as caught:
                await client.call("s", "m", on_form=lambda _: {"n": 3})
    assert caught.value.violations == (("content.n", "must be >= 18"),)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("FAILED_PRECONDITION", "ALREADY_ANSWERED"), ("FAILED_PRECONDITION", "CLAIM_LOST"), ("UNAVAILABLE", "NO_STORE")],
)
async def test_an_answer_that_comes_too_late_or_to_a_hub_that_is_away_does_not_end_the_call(
    hub: Any, refusal: Any, code: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    asking = Asking(hub, assigned("first"), assigned("second"))
    asking.refuse = lambda: refusal(code, reason)
    with anyio.fail_after(LIMIT_S), caplog.at_level(logging.ERROR, "hubbub_client"):
        async with connect(data_dir=hub.data_dir) as client:
            assert await client.call("s", "m", on_form=lambda _: True) == {}
    assert asking.settled == ["first", "second"]
    assert ("was not answered" in caplog.text) == (code == "UNAVAILABLE")


@pytest.mark.parametrize("way", ["taken over", "the call ends"])
async def test_a_function_whose_request_is_no_longer_its_own_is_cancelled(hub: Any, way: str) -> None:
    asking = Asking(hub)
    thinking, cancelled = anyio.Event(), anyio.Event()

    async def work(said: Any) -> AsyncIterator[Any]:
        yield LISTENING
        await asking.begun.wait()
        yield assigned()
        await thinking.wait()
        if way == "taken over":
            yield RESPONSE(revoked=RESPONSE.Revoked(id="r", state=1))
            await cancelled.wait()
        asking.done.set()
        await anyio.sleep_forever()

    async def think(_: Any) -> None:
        thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    hub.streams["Work"] = work
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir, silence_s=2 * LIMIT_S) as client:
            assert await client.call("s", "m", on_form=think) == {}
    assert cancelled.is_set()
    assert asking.answers == []


async def test_without_async_a_plain_function_answers_by_what_it_returns_or_by_the_record(hub: Any) -> None:
    asking = Asking(hub, assigned("returned"), assigned("own"))

    def answer(request: sync.SyncPendingRequest) -> Any:
        return {"n": 1} if request.id == "returned" else request.decline()

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            plain.call_tool("s", "t", on_form=answer)

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)
    assert [(each.id, given(each), each.claim_id) for each in asking.answers] == [
        ("returned", {"n": 1}, "claim-of-returned"),
        ("own", "decline", "claim-of-own"),
    ]


@pytest.mark.parametrize("function", ["on_form", "on_pending"])
@pytest.mark.parametrize("way", ["call", "handle"])
async def test_without_async_what_a_function_raises_comes_out_as_it_is(hub: Any, way: str, function: str) -> None:
    asking = Asking(hub, assigned(), ends=False)

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            ways = {
                "call": lambda: plain.call("s", "m", **{function: fail}),
                "handle": lambda: plain.calls.handle(STARTED, **{function: fail}).result(),
            }
            with pytest.raises(LookupError, match="mine"):
                ways[way]()

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)
        if way == "call":
            await asking.hung_up.wait()


async def test_a_started_call_reports_while_its_result_is_waited_for(hub: Any) -> None:
    step = call_pb2.WatchCallsResponse

    hub.streams["WatchCalls"] = staying(
        step(upsert=call_pb2.Call(id="c", state=2, pending_request_ids=["a"], perhaps_pending_request_ids=["b"])),
        step(synced=common_pb2.WatchSynced()),
        step(progress=call_pb2.Progress(progress=0.5)),
        step(upsert=call_pb2.Call(id="c", state=call_pb2.CALL_STATE_CANCELLED, pending_request_ids=["a", "b"])),
    )
    told: list[Any] = []
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            handle = client.calls.handle(
                "c",
                on_progress=lambda progress: told.append(progress.progress),
                on_pending=told.append,
                on_perhaps_pending=lambda id_: told.append(f"perhaps {id_}"),
            )
            with pytest.raises(HubbubError):
                await handle.result()
    assert told == ["a", "perhaps b", 0.5, "b"]
