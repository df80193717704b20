"""The library against a real gRPC server: errors, restarts, watches that last, calls that report."""

import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, common_pb2, inbox_pb2, server_pb2
from hubbub_client import (
    Bookmark,
    FailedPrecondition,
    HubbubError,
    InvalidArgument,
    NotFound,
    Progress,
    Removed,
    Reset,
    Synced,
    Unauthenticated,
    Unavailable,
    Upsert,
    UpstreamError,
    connect,
    sync,
)
from hubbub_client.hub import Hub
from hubbub_client.transport.connection import HubConnection
from hubbub_client.transport.discovery import HubLocation

from .conftest import staying

LIMIT_S = 60


def _server(name: str) -> Any:
    return server_pb2.WatchServersResponse(resume_token=f"at-{name}", upsert=server_pb2.Server(name=name))


def _ok(request: Any) -> Any:
    return server_pb2.GetServerResponse(server=server_pb2.Server(name=request.name))


async def test_the_token_and_the_name_travel_with_every_call(hub: Any) -> None:
    hub.replies["GetServer"] = _ok
    async with connect(data_dir=hub.data_dir, name="ann") as client:
        assert (await client.servers.get("time")).name == "time"
    _, _, metadata = hub.seen[-1]
    assert metadata["authorization"] == "Bearer secret"
    assert metadata["hubbub-as"] == "ann"


@pytest.mark.parametrize("name", ["Jörg", "山田", "two\nlines"])
async def test_a_name_that_is_not_plain_ascii_travels_as_it_is(hub: Any, name: str) -> None:
    hub.replies["GetServer"] = _ok
    async with connect(data_dir=hub.data_dir, name=name) as client:
        await client.servers.get("time")
    _, _, metadata = hub.seen[-1]
    assert metadata["hubbub-as-bin"].decode() == name
    assert "hubbub-as" not in metadata


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", NotFound),
        ("FAILED_PRECONDITION", FailedPrecondition),
        ("UNAVAILABLE", Unavailable),
        ("UNKNOWN", UpstreamError),
        ("DATA_LOSS", HubbubError),
    ],
)
async def test_a_status_becomes_an_exception_with_its_details(
    hub: Any, refusal: Any, code: str, kind: type[HubbubError]
) -> None:
    def refuse(_: Any) -> Any:
        raise refusal(code, "SOME_REASON", "because", {"who": "ann"}, retry_after_s=1.5)

    hub.replies["GetServer"] = refuse
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(kind) as caught:
            await client.servers.get("x")
    error = caught.value
    assert (error.code.name, error.reason, error.message) == (code, "SOME_REASON", "because")
    assert (error.metadata, error.retry_after_s) == ({"who": "ann"}, 1.5)
    assert error.help_url == "https://help.test/SOME_REASON"


async def test_field_violations_stand_in_the_error_its_message_and_its_metadata(hub: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("INVALID_ARGUMENT", "INVALID", "wrong content", violations=(("content.age", "must be >= 18"),))

    hub.replies["AnswerPendingRequest"] = refuse
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(InvalidArgument) as caught:
            await client.inbox.answer("r", accept={"age": 3})
    assert caught.value.violations == (("content.age", "must be >= 18"),)
    shape = caught.value.to_json()
    assert shape["message"] == "wrong content; content.age: must be >= 18"
    assert shape["metadata"] == {"content.age": "must be >= 18"}


async def test_nobody_there_is_an_error_that_says_where_it_looked(free_port: int) -> None:
    with pytest.raises(Unavailable, match=f"127.0.0.1:{free_port}.*hubbub up -d") as caught:
        async with connect(f"127.0.0.1:{free_port}", "t", connect_timeout_s=0.3):
            pass
    assert caught.value.reason == "HUB_UNREACHABLE"


async def test_many_callers_of_a_dead_hub_wait_no_longer_than_one(hub: Any) -> None:
    refused: list[str] = []
    async with connect(data_dir=hub.data_dir, connect_timeout_s=2) as client:
        await hub.stop()

        async def call() -> None:
            with pytest.raises(Unavailable) as caught:
                await client.servers.get("x")
            refused.append(caught.value.reason)

        with anyio.fail_after(LIMIT_S):
            while client.connected:  # what is sent over a connection that is ending fails in another way
                await anyio.sleep(0)
            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(call)
    assert refused == ["HUB_UNREACHABLE"] * 50


async def test_a_wrong_token_is_refused_and_not_tried_for_ever(hub: Any) -> None:
    async with connect(hub.address, "wrong") as client:
        with pytest.raises(Unauthenticated):
            await client.servers.get("x")
        with anyio.fail_after(LIMIT_S), pytest.raises(Unauthenticated):
            await anext(client.servers.watch())


async def test_a_call_finds_a_hub_that_restarted_elsewhere_with_another_token(hub: Any) -> None:
    hub.replies["GetServer"] = _ok
    async with connect(data_dir=hub.data_dir) as client:
        await client.servers.get("a")
        before = hub.port
        await hub.stop()
        hub.token = "another"
        await hub.start()
        assert hub.port != before
        with anyio.fail_after(LIMIT_S):
            assert (await client.servers.get("b")).name == "b"


async def test_a_new_token_is_read_again_when_the_old_one_is_refused(hub: Any) -> None:
    hub.replies["GetServer"] = _ok
    async with connect(data_dir=hub.data_dir) as client:
        hub.token = "rotated"
        (hub.data_dir / "client.json").write_text(f'{{"address": "{hub.address}", "token": "rotated"}}')
        assert (await client.servers.get("a")).name == "a"


async def test_another_hub_at_the_port_of_a_dead_one_ends_no_watch_and_is_named_to_a_call(hub: Any) -> None:
    hub.streams["WatchServers"] = staying(_server("a"))
    refused = anyio.Event()
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.servers.watch()) as events:
            await anext(events)
            await hub.stop()
            hub.token, own = "of another hub", hub.token
            await hub.start(hub.port, announced=False)

            async def call() -> None:
                with pytest.raises(Unavailable, match=f"{hub.address} .*client.json.* answers another hub") as caught:
                    await client.servers.get("x")
                assert caught.value.reason == "HUB_UNREACHABLE"
                while len(hub.requests("WatchServers")) < 2:
                    await anyio.sleep(0)
                refused.set()

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                group.start_soon(_start_when, refused, hub, own)
                event = await anext(events)
            assert isinstance(event, Upsert)


async def _start_when(refused: anyio.Event, hub: Any, token: str) -> None:
    await refused.wait()
    await hub.stop()
    hub.token = token
    await hub.start()


async def test_a_watch_goes_on_from_its_token_after_a_restart_on_another_port(hub: Any) -> None:
    async def script(request: Any) -> AsyncIterator[Any]:
        if not request.resume_token:
            yield _server("a")
            yield server_pb2.WatchServersResponse(resume_token="synced", synced=common_pb2.WatchSynced())
        else:
            yield _server("b")
        await anyio.sleep_forever()

    hub.streams["WatchServers"] = script
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.servers.watch()) as events:
            assert [type(await anext(events)) for _ in range(2)] == [Upsert, Synced]
            await hub.stop()
            hub.token = "another"
            await hub.start()
            event = await anext(events)
            assert isinstance(event, Upsert)
            assert (event.record.name, event.resume_token) == ("b", "at-b")
    assert [request.resume_token for request in hub.requests("WatchServers")] == ["", "synced"]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED", "INTERNAL"])
async def test_a_watch_that_the_hub_closes_is_opened_anew(hub: Any, refusal: Any, code: str) -> None:
    async def script(request: Any) -> AsyncIterator[Any]:
        yield _server("b" if request.resume_token else "a")
        raise refusal(code, "WATCHER_TOO_SLOW")

    hub.streams["WatchServers"] = script
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.servers.watch()) as events:
            assert [(await anext(events)).resume_token for _ in range(3)] == ["at-a", "at-b", "at-b"]


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "PERMISSION_DENIED", "UNIMPLEMENTED"])
async def test_a_watch_that_can_never_work_raises(hub: Any, refusal: Any, code: str) -> None:
    async def script(_: Any) -> AsyncIterator[Any]:
        raise refusal(code, "NEVER")
        yield

    hub.streams["WatchServers"] = script
    async with connect(data_dir=hub.data_dir) as client:
        with anyio.fail_after(LIMIT_S), pytest.raises(HubbubError) as caught:
            await anext(client.servers.watch())
    assert caught.value.code.name == code


async def test_a_watch_without_heartbeat_is_taken_for_dead(hub: Any) -> None:
    async def script(request: Any) -> AsyncIterator[Any]:
        yield _server("b" if request.resume_token else "a")
        await anyio.sleep_forever()

    hub.streams["WatchServers"] = script
    with anyio.fail_after(LIMIT_S):
        async with (
            connect(data_dir=hub.data_dir, silence_s=0.2) as client,
            contextlib.aclosing(client.servers.watch()) as events,
        ):
            assert [(await anext(events)).resume_token for _ in range(2)] == ["at-a", "at-b"]


async def test_every_kind_of_step_is_told_apart(hub: Any) -> None:
    async def script(_: Any) -> AsyncIterator[Any]:
        step = inbox_pb2.WatchPendingRequestsResponse
        yield step(resume_token="1", reset=common_pb2.WatchReset(reason=common_pb2.RESET_REASON_MALFORMED))
        yield step(resume_token="2", upsert=inbox_pb2.PendingRequest(id="r"))
        yield step(resume_token="2")
        yield step(resume_token="3", synced=common_pb2.WatchSynced())
        yield step(resume_token="4", removed=common_pb2.WatchRemoved(id="r"))
        yield step(resume_token="5", bookmark=common_pb2.WatchBookmark())
        await anyio.sleep_forever()

    hub.streams["WatchPendingRequests"] = script
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.inbox.watch()) as events:
            seen = [await anext(events) for _ in range(5)]
    assert [type(event) for event in seen] == [Reset, Upsert, Synced, Removed, Bookmark]
    assert [event.resume_token for event in seen] == ["1", "2", "3", "4", "5"]


async def test_a_watched_request_can_be_answered_in_place(hub: Any) -> None:
    hub.streams["WatchPendingRequests"] = staying(
        inbox_pb2.WatchPendingRequestsResponse(upsert=inbox_pb2.PendingRequest(id="r"))
    )
    hub.replies["AnswerPendingRequest"] = lambda request: inbox_pb2.AnswerPendingRequestResponse(
        pending_request=inbox_pb2.PendingRequest(id=request.id, state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    )
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.inbox.watch()) as events:
            event = await anext(events)
            assert isinstance(event, Upsert)
            answered = await event.record.accept({"n": 1}, answer_id="once", claim_id="c")
            await answered.accept()
            await answered.reject("never")
    assert answered.state == "answered"
    first, second, third = hub.requests("AnswerPendingRequest")
    assert (first.accept.content, first.answer_id, first.claim_id) == (b'{"n":1}', "once", "c")
    assert (second.WhichOneof("answer"), second.accept.content) == ("accept", b"")
    assert third.reject.message == "never"


@pytest.mark.parametrize("answers", [{}, {"accept": {}, "decline": True}, {"text": "", "cancel": True}])
async def test_not_exactly_one_answer_is_a_mistake_of_the_caller(hub: Any, answers: dict[str, Any]) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(ValueError, match="exactly one answer"):
            await client.inbox.answer("r", **answers)
    assert not hub.seen


def _progressing(hub: Any, state: Any = call_pb2.CALL_STATE_COMPLETED) -> anyio.Event:
    """A call that reports once, asks once and then ends; the event opens when the watch has said so."""
    step, told = call_pb2.WatchCallsResponse, anyio.Event()

    async def script(request: Any) -> AsyncIterator[Any]:
        (call_id,) = request.filter.ids
        yield step(resume_token="1", synced=common_pb2.WatchSynced())
        yield step(resume_token="1", progress=call_pb2.Progress(call_id=call_id, progress=1, total=2, message="half"))
        yield step(resume_token="2", upsert=call_pb2.Call(id=call_id, pending_request_ids=["r1"]))
        told.set()
        yield step(resume_token="3", upsert=call_pb2.Call(id=call_id, pending_request_ids=["r1"], state=state))
        await anyio.sleep_forever()

    hub.streams["WatchCalls"] = script
    return told


async def test_a_call_reports_its_progress_and_what_it_asks(hub: Any) -> None:
    told = _progressing(hub)

    async def reply(request: Any) -> Any:
        await told.wait()
        call = call_pb2.Call(id=request.spec.call_id, result=b'{"content":[]}', state=call_pb2.CALL_STATE_COMPLETED)
        return call_pb2.CallMethodResponse(call=call)

    hub.replies["CallMethod"] = reply
    seen: list[Progress] = []
    asked: list[str] = []

    async def on_progress(progress: Progress) -> None:
        seen.append(progress)

    async def on_pending(id_: str) -> None:
        asked.append(id_)

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            result = await client.call("s", "tools/call", {}, on_progress=on_progress, on_pending=on_pending)
    assert result == {"content": []}
    assert [(it.progress, it.total, it.message) for it in seen] == [(1, 2, "half")]
    assert asked == ["r1"]


PARTS = 13
# What only a program with an event loop can use: it serves until it is cancelled.
ENDLESS = {"Inbox.work", "Hub.serve"}


def test_the_facade_without_async_has_every_part_and_every_method_of_the_library() -> None:
    link = HubConnection(HubLocation(), None, 1, 1)
    hub = Hub(link)
    facade = sync.SyncHub(None, hub)  # pyright: ignore[reportArgumentType] - nothing is called
    parts = {
        name: part
        for name, part in inspect.getmembers(hub)
        if not name.startswith("_") and type(part).__module__.startswith("hubbub_client.")
    }
    assert len(parts) == PARTS
    pairs = [(hub, facade), *((part, getattr(facade, name, None)) for name, part in parts.items())]
    missing = {
        f"{type(part).__name__}.{name}"
        for part, plain in pairs
        for name, method in inspect.getmembers(type(part))
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        if not name.startswith("_") and not hasattr(plain, name)
    }
    assert missing == ENDLESS


def test_the_text_of_an_error_ends_with_its_reason_once() -> None:
    error = NotFound("no server 'x'", reason="SERVER_NOT_FOUND")
    assert (str(error), error.message) == ("no server 'x' (SERVER_NOT_FOUND)", "no server 'x'")
    assert str(NotFound("SERVER_NOT_FOUND: x", reason="SERVER_NOT_FOUND")) == "SERVER_NOT_FOUND: x"
