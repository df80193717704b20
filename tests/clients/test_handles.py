"""Calls with handles: started here, followed from anywhere, to their end."""

import inspect
import json
from collections.abc import AsyncIterator
from typing import Any, Unpack

import anyio
import pytest

import hubbub_client
from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbub_client import CallOptions, HubbubError, NotFound, ToolResult, connect, errors, sync
from hubbub_client.services.calls import Calls
from hubbubd.rpc import status

from .conftest import staying

LIMIT_S = 60
STEP = call_pb2.WatchCallsResponse
SYNCED = STEP(resume_token="synced", synced=common_pb2.WatchSynced())
COMPLETED, FAILED = call_pb2.CALL_STATE_COMPLETED, call_pb2.CALL_STATE_FAILED
TEXT = b'{"content": [{"type": "text", "text": "soup"}]}'


def call(state: Any = call_pb2.CALL_STATE_IN_PROGRESS, method: str = "tools/call", **values: Any) -> Any:
    return STEP(resume_token="1", upsert=call_pb2.Call(id="c", server="s", method=method, state=state, **values))


def shows(hub: Any, *steps: Any) -> None:
    """Has every watch of calls show these steps, and then nothing."""

    hub.streams["WatchCalls"] = staying(*steps)


def starts(hub: Any) -> None:
    hub.replies["StartCall"] = lambda request: call_pb2.StartCallResponse(
        call=call_pb2.Call(id=request.spec.call_id or "c", state=call_pb2.CALL_STATE_QUEUED)
    )


async def test_a_tool_that_is_started_gives_its_result_when_it_has_ended(hub: Any) -> None:
    starts(hub)
    shows(hub, call(), SYNCED, call(COMPLETED, result=TEXT))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            handle = await client.start_tool("s", "lunch", {"dish": "soup"})
            assert (handle.id, handle.started and handle.started.state) == ("c", "queued")
            result = await handle.result()
    assert (result.text, result.is_error) == ("soup", False)
    (asked,) = hub.requests("StartCall")
    assert (asked.spec.method, json.loads(asked.spec.params)) == (
        "tools/call",
        {"name": "lunch", "arguments": {"dish": "soup"}},
    )
    (watched,) = hub.requests("WatchCalls")
    assert list(watched.filter.ids) == ["c"]


async def test_a_result_is_waited_for_over_a_restart_of_the_hub(hub: Any) -> None:
    begun = anyio.Event()

    async def script(request: Any) -> AsyncIterator[Any]:
        if not request.resume_token:
            yield call()
            yield SYNCED
            begun.set()
            await anyio.sleep_forever()
        yield call(COMPLETED, result=TEXT)
        await anyio.sleep_forever()

    hub.streams["WatchCalls"] = script
    said: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as tasks:

            async def wait() -> None:
                said.append((await client.calls.handle("c").result()).text)

            tasks.start_soon(wait)
            await begun.wait()
            await hub.stop()
            hub.token = "another"
            await hub.start()
    assert said == ["soup"]


async def test_a_call_that_failed_raises_what_it_would_have_raised_where_it_was_waited_for(hub: Any) -> None:
    fault = common_pb2.Fault(
        code="CALL_TIMEOUT",
        category=common_pb2.FAULT_CATEGORY_TIMEOUT,
        message="too slow",
        retryable=True,
        help_url="errors/call_timeout.html",
        details=b'{"server": "s", "elapsed_s": 1.5, "error": null}',
    )
    shows(hub, call(FAILED, error=fault), SYNCED)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert (await client.calls.handle("c").wait()).state == "failed"
            with pytest.raises(hubbub_client.DeadlineExceeded, match="too slow") as caught:
                await client.calls.handle("c").result()
    error = caught.value
    assert (error.reason, error.help_url) == ("CALL_TIMEOUT", "errors/call_timeout.html")
    assert error.metadata == {
        "category": "timeout",
        "retryable": "true",
        "server": "s",
        "elapsed_s": "1.5",
        "call_id": "c",
    }


def test_a_fault_has_the_status_here_that_the_hub_gives_it() -> None:
    assert {each.value: code for each, code in status.FAULT_CODES.items()} == errors.FAULT_CATEGORIES
    assert errors.FAULT_CODES == status.REASON_CODES


@pytest.mark.parametrize(
    "steps",
    [
        [SYNCED],
        [call(), SYNCED, STEP(removed=common_pb2.WatchRemoved(id="c"))],
        [call(), SYNCED, STEP(reset=common_pb2.WatchReset()), SYNCED],
    ],
    ids=["never was", "removed", "forgotten by another hub"],
)
@pytest.mark.parametrize("way", ["result", "progress", "pending_requests"])
async def test_a_call_that_is_not_there_is_not_found(hub: Any, refusal: Any, steps: list[Any], way: str) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("NOT_FOUND", "CALL_NOT_FOUND", metadata={"call": "c"})

    hub.replies["GetCall"] = refuse
    shows(hub, *steps)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            handle = client.calls.handle("c")

            async def follow() -> None:
                if way == "result":
                    await handle.result()
                async for _ in handle.progress() if way == "progress" else handle.pending_requests():
                    pass

            with pytest.raises(NotFound) as caught:
                await follow()
    assert (caught.value.reason, caught.value.metadata) == ("CALL_NOT_FOUND", {"call": "c"})


@pytest.mark.parametrize("later", [[], [call(COMPLETED, result=TEXT)]], ids=["ended before", "ends later"])
async def test_a_call_that_watchers_are_not_told_of_yet_is_waited_for(hub: Any, later: list[Any]) -> None:
    state = call_pb2.CALL_STATE_IN_PROGRESS if later else COMPLETED
    now = call_pb2.Call(id="c", method="tools/call", state=state, result=TEXT)
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=now)
    shows(hub, SYNCED, *later)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert (await client.calls.handle("c").result()).text == "soup"


async def test_that_another_call_is_gone_says_nothing_of_this_one(hub: Any) -> None:
    # A watch that resumes gets all that has left, since the hub does not know any more what it had shown.
    shows(hub, call(), SYNCED, STEP(removed=common_pb2.WatchRemoved(id="other")), call(COMPLETED, result=TEXT))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert (await client.calls.handle("c").result()).text == "soup"


async def test_progress_ends_with_the_call(hub: Any) -> None:
    steps = [STEP(progress=call_pb2.Progress(call_id="c", progress=n, total=2)) for n in (1, 2)]
    shows(hub, call(), SYNCED, *steps, call(COMPLETED, result=TEXT))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert [each.progress async for each in client.calls.handle("c").progress()] == [1, 2]


async def test_what_a_call_asks_is_what_it_asks_for_certain_each_once_while_it_is_open(hub: Any, refusal: Any) -> None:
    def get(request: Any) -> Any:
        if request.id == "hidden":
            raise refusal("NOT_FOUND", "REQUEST_NOT_FOUND")
        state = "ANSWERED" if request.id == "over" else "OPEN"
        found = inbox_pb2.PendingRequest(id=request.id, state=f"PENDING_REQUEST_STATE_{state}")
        return inbox_pb2.GetPendingRequestResponse(pending_request=found)

    hub.replies["GetPendingRequest"] = get
    shows(
        hub,
        call(pending_request_ids=["over", "hidden"], perhaps_pending_request_ids=["stranger"]),
        SYNCED,
        call(pending_request_ids=["over", "hidden", "a"]),
        call(pending_request_ids=["over", "hidden", "a", "b"]),
        call(COMPLETED, pending_request_ids=["over", "hidden", "a", "b", "late"]),
    )
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert [each.id async for each in client.calls.handle("c").pending_requests()] == ["a", "b"]
    assert [each.id for each in hub.requests("GetPendingRequest")] == ["over", "hidden", "a", "b"]


async def test_to_cancel_a_call_twice_is_to_cancel_it(hub: Any, refusal: Any) -> None:
    cancelled = call_pb2.Call(id="c", state=call_pb2.CALL_STATE_CANCELLED)

    def cancel(request: Any) -> Any:
        if len(hub.requests("CancelCall")) > 1:
            raise refusal("FAILED_PRECONDITION", "CALL_FINISHED")
        return call_pb2.CancelCallResponse(call=cancelled)

    hub.replies["CancelCall"] = cancel
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=cancelled)
    async with connect(data_dir=hub.data_dir) as client:
        handle = client.calls.handle("c")
        assert [(await handle.cancel()).state, (await handle.cancel()).state] == ["cancelled", "cancelled"]
    assert [request.abort for request in hub.requests("CancelCall")] == [True, True]


async def test_a_call_that_may_not_be_cancelled_says_why(hub: Any, refusal: Any) -> None:
    def cancel(_: Any) -> Any:
        raise refusal("FAILED_PRECONDITION", "SOMETHING_ELSE")

    hub.replies["CancelCall"] = cancel
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(HubbubError) as caught:
            await client.calls.handle("c").cancel()
    assert caught.value.reason == "SOMETHING_ELSE"


MAKING = ("call_tool", "call", "start_tool", "start")
OPTIONS: CallOptions = {"timeout_s": 1.5, "max_s": 7, "call_id": "mine", "as_task": True, "log_level": "info"}


WAYS: dict[str, tuple[Any, ...]] = {
    "call_tool": ("tool",),
    "start_tool": ("tool",),
    "call": ("tools/call", {"_meta": {"x": 1}}),
    "start": ("tools/call", {"_meta": {"x": 1}}),
    "get_prompt": ("prompt",),
    "read_resource": ("file:///x",),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_make_a_call_takes_each_option(hub: Any, way: str) -> None:
    starts(hub)
    hub.replies["CallMethod"] = lambda _: call_pb2.CallMethodResponse(call=call_pb2.Call(id="mine", state=COMPLETED))
    async with connect(data_dir=hub.data_dir) as client:
        await getattr(client, way)("s", *WAYS[way], **OPTIONS)
    (_, request, _) = hub.seen[-1]
    spec = request.spec
    assert (spec.timeout.ToMilliseconds(), spec.max_duration.seconds) == (1500, 7)
    assert (spec.call_id, spec.as_task) == ("mine", True)
    meta = {"x": 1} if way in ("call", "start") else {}
    assert json.loads(spec.params)["_meta"] == meta | {"io.modelcontextprotocol/logLevel": "info"}


@pytest.mark.parametrize("of", [hubbub_client.Hub, Calls])
def test_there_is_one_set_of_options(of: type) -> None:
    ways = [method for name, method in vars(of).items() if name in MAKING]
    assert len(ways) >= 2
    for way in ways:
        options = inspect.signature(way).parameters["options"]
        assert (options.kind, options.annotation) == (inspect.Parameter.VAR_KEYWORD, Unpack[CallOptions])


@pytest.mark.parametrize(
    ("raw", "text", "structured", "is_error"),
    [
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
            "a\nb",
            None,
            0,
        ),
        ({"content": [], "structuredContent": {"n": 1}, "isError": False}, "", {"n": 1}, False),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "no", None, True),
        ({"content": [7, {"type": "text", "text": 7}, {"text": "x"}]}, "", None, False),
        ({"content": "x"}, "", None, False),
        (["no", "object"], "", None, False),
        (None, "", None, False),
    ],
)
def test_a_tool_result_has_its_text_and_its_structure_whatever_the_server_sent(
    raw: Any, text: str, structured: Any, is_error: bool
) -> None:
    result = ToolResult(raw)
    assert (result.text, result.structured, result.is_error, result.raw) == (text, structured, is_error, raw)
    assert all(isinstance(block, dict) for block in result.content)


async def test_a_script_without_async_has_the_same_handle(hub: Any) -> None:
    starts(hub)
    shows(hub, call(), SYNCED, STEP(progress=call_pb2.Progress(progress=1)), call(COMPLETED, result=TEXT))
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=call_pb2.Call(id="c", state=COMPLETED))

    def script() -> list[Any]:
        with sync.connect(data_dir=hub.data_dir) as plain:
            handle = plain.start_tool("s", "lunch", call_id="c")
            assert isinstance(handle, sync.SyncCallHandle)
            assert [each.progress for each in handle.progress()] == [1]
            assert list(handle.pending_requests()) == []
            again = plain.calls.handle("c")
            assert (again.id, again.started, again.get().state) == ("c", None, "completed")
            return [handle.result().text, again.wait().state, plain.start("s", "tools/call").result().text]

    with anyio.fail_after(LIMIT_S):
        assert await anyio.to_thread.run_sync(script) == ["soup", "completed", "soup"]
