"""The library without async keeps the promises of the other one."""

import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import anyio
import anyio.from_thread
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

import hubbub_client
from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbub_client import sync
from hubbub_client.data import catalog, records
from hubbub_client.data.watch_events import Upsert
from hubbub_client.errors import FailedPrecondition, HubbubError
from hubbub_client.threads import wrappers
from hubbub_client.threads.portal import Portal, open_portal

LIMIT_S = 60
POLL_S = 0.02
# What serves until it is cancelled has no form that waits.
ENDLESS = {"Hub": {"serve", "on_form", "on_page", "on_sampling", "on_roots", "on_approval"}, "Inbox": {"work"}}
OPEN = inbox_pb2.PendingRequest(
    id="r1",
    server="s",
    kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
    state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
)


def methods(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")} - late(of)


def late(of: type) -> set[str]:
    """The parts of a hub that are made when they are used."""
    return {name for name, it in vars(of).items() if isinstance(it, cached_property)}


PARTS = [(hubbub_client.Hub, sync.SyncHub)] + [
    (getattr(inspect.getmodule(it), it.__name__.removeprefix("Sync"), None) or _of, it)
    for it in vars(sync).values()
    if inspect.isclass(it) and issubclass(it, wrappers.Facade) and it not in (wrappers.Facade, sync.SyncHub)
    for _of in [getattr(sync, it.__name__.removeprefix("Sync"))]
]


@pytest.mark.parametrize(("theirs", "ours"), PARTS, ids=lambda each: each.__name__)
def test_each_method_of_the_library_is_there(theirs: type, ours: type) -> None:
    missing = methods(theirs) - methods(ours) - ENDLESS.get(theirs.__name__, set())
    assert missing == set()


RECORDS = [
    it for it in (vars(records) | vars(catalog)).values() if inspect.isclass(it) and issubclass(it, records.Record)
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.__name__)
def test_no_method_of_a_record_has_to_be_awaited(record: type) -> None:
    waiting = {name for name, it in vars(record).items() if inspect.iscoroutinefunction(it)}
    if not waiting:
        return
    ours = next(it for it in vars(wrappers).values() if inspect.isclass(it) and issubclass(it, record) and it != record)
    for name in waiting:
        assert name in vars(ours), f"{record.__name__}.{name}"
        assert not inspect.iscoroutinefunction(vars(ours)[name])
    assert {each.name for each in fields(record)} <= {each.name for each in fields(ours)}


def scripted(hub: Any) -> list[str]:
    """Has the hub list, watch and answer one request; the answers given."""
    given: list[str] = []

    def answer(request: Any) -> Any:
        given.append(request.WhichOneof("answer"))
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=OPEN)

    async def watch(_: Any) -> AsyncIterator[Any]:
        yield inbox_pb2.WatchPendingRequestsResponse(upsert=OPEN)
        yield inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced())

    def claim(request: Any) -> Any:
        given.append(type(request).__name__)
        return answer_of(request)

    def answer_of(_: Any) -> Any:
        claimed = inbox_pb2.PendingRequest()
        claimed.CopyFrom(OPEN)
        claimed.claim.id = "c"
        return inbox_pb2.ClaimPendingRequestResponse(pending_request=claimed)

    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[OPEN])
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=OPEN)
    hub.replies["AnswerPendingRequest"] = answer
    hub.replies["ClaimPendingRequest"] = claim
    hub.replies["ReleasePendingRequest"] = lambda _: inbox_pb2.ReleasePendingRequestResponse(pending_request=OPEN)
    hub.streams["WatchPendingRequests"] = watch
    return given


async def test_records_answer_by_their_own_methods_wherever_they_come_from(hub: Any) -> None:
    given = scripted(hub)

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            watched = next(event.record for event in plain.inbox.watch() if isinstance(event, Upsert))
            for request in (plain.inbox.list()[0], plain.inbox.get("r1"), watched):
                assert isinstance(request, sync.SyncPendingRequest)
                assert replace(request, server="t").accept({"a": 1}).id == "r1"
            plain.inbox.get("r1").decline().cancel().reply_text("x").reply({}).reject("no")
            claimed = plain.inbox.claim("r1")
            assert claimed.claim
            plain.inbox.release("r1", str(claimed.claim.id))
            assert "_runner" not in plain.inbox.get("r1").to_json()

    await anyio.to_thread.run_sync(script)
    assert given == ["accept"] * 3 + ["decline", "cancel", "text", "result", "reject", "ClaimPendingRequestRequest"]


def takes_a_call(hub: Any, *, ends: bool = True) -> None:
    """Has the hub take a call that asks one request, and end it or not."""

    async def call(request: Any) -> Any:
        while not (ends and hub.requests("AnswerPendingRequest")):  # it ends with the answer
            await anyio.sleep(POLL_S)
        return call_pb2.CallMethodResponse(
            call=call_pb2.Call(id=request.spec.call_id, state=call_pb2.CALL_STATE_COMPLETED)
        )

    async def watch(request: Any) -> AsyncIterator[Any]:
        yield call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced())
        waiting = call_pb2.CALL_STATE_WAITING_INPUT
        asking = call_pb2.Call(id=request.filter.ids[0], state=waiting, pending_request_ids=["r1"])
        yield call_pb2.WatchCallsResponse(upsert=asking)
        await anyio.sleep_forever()

    hub.replies["CallMethod"] = call
    hub.streams["WatchCalls"] = watch


async def test_a_callback_is_a_plain_function_that_may_use_the_hub(hub: Any) -> None:
    given = scripted(hub)
    takes_a_call(hub)

    def script() -> str:
        with sync.connect(data_dir=hub.data_dir) as plain:
            return plain.calls.call("s", "m", on_pending=lambda id_: plain.inbox.get(id_).accept() and None).state

    assert await anyio.to_thread.run_sync(script) == "completed"
    assert given == ["accept"]


async def test_a_coroutine_that_would_wait_for_itself_is_refused(hub: Any) -> None:
    takes_a_call(hub, ends=False)
    scripted(hub)

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:

            async def ask(id_: str) -> None:
                plain.inbox.get(id_)

            with pytest.raises(FailedPrecondition, match="wait for itself"):
                plain.calls.call("s", "m", on_pending=ask)

    await anyio.to_thread.run_sync(script)


async def test_a_hub_that_is_closed_says_so(hub: Any) -> None:
    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            pass
        with pytest.raises(HubbubError, match="closed"):
            plain.servers.list()

    await anyio.to_thread.run_sync(script)


INTERRUPTED = """
import signal, sys, threading
from hubbub_client import sync
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
def interrupt():
    # Seen from the main thread, as one that comes just before it begins to wait: it does not end the wait.
    if sys.stdin.readline():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt).start()
with sync.connect(data_dir=sys.argv[1]) as hub:
    try:
        hub.call_tool("s", "slow")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.stdin.readline()
"""
FORKED = """
import os, sys
from hubbub_client import errors, sync
with sync.connect(data_dir=sys.argv[1]) as hub:
    child = os.fork()
    if not child:
        try:
            hub.inbox.get("r1")
        except errors.HubbubError as error:
            print(error.reason, flush=True)
    else:
        os.waitpid(child, 0)
        print(hub.inbox.get("r1").id, flush=True)
"""


def hanging(hub: Any) -> tuple[anyio.Event, anyio.Event]:
    """Has calls never end; set once one has begun, and once it is aborted."""
    begun, aborted = anyio.Event(), anyio.Event()

    async def call(_: Any) -> Any:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            aborted.set()

    hub.replies["CallMethod"] = call
    return begun, aborted


@pytest.mark.parametrize("heard", ["while it waits", "just before it waits"])
@pytest.mark.usefixtures("processes")
async def test_an_interrupted_call_is_aborted_at_once(hub: Any, heard: str) -> None:
    begun, aborted = hanging(hub)
    with anyio.fail_after(LIMIT_S):
        async with await anyio.open_process([sys.executable, "-c", INTERRUPTED, str(hub.data_dir)]) as script:
            assert script.stdout is not None
            assert script.stdin is not None
            await begun.wait()
            if heard == "while it waits":
                os.kill(script.pid, signal.SIGINT)
            else:
                await script.stdin.send(b"\n")
            said = BufferedByteReceiveStream(script.stdout)
            assert await said.receive_until(b"\n", 100) == b"interrupted"
            await aborted.wait()  # while the `with` block goes on
            await script.stdin.aclose()
            assert await script.wait() == 0


async def test_an_interrupt_while_the_work_is_handed_over_aborts_it_too(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, aborted = hanging(hub)
    hand_over = Portal.start

    def interrupted(portal: Any, *args: Any, **kwargs: Any) -> Any:
        """The signal comes when the hub has the call, and before the caller has anything to wait for."""
        hand_over(portal, *args, **kwargs)
        anyio.from_thread.run(begun.wait)
        raise KeyboardInterrupt

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            monkeypatch.setattr(Portal, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                plain.call_tool("s", "slow")
            monkeypatch.undo()
            anyio.from_thread.run(aborted.wait)

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)


async def test_an_interrupted_watch_ends_at_the_hub(hub: Any) -> None:
    watching, ended = anyio.Event(), anyio.Event()

    async def watch(_: Any) -> AsyncIterator[Any]:
        try:
            yield inbox_pb2.WatchPendingRequestsResponse(upsert=OPEN)
            watching.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    hub.streams["WatchPendingRequests"] = watch
    hand_over = Portal.start

    def interrupted(portal: Any, *args: Any, **kwargs: Any) -> Any:
        hand_over(portal, *args, **kwargs)
        anyio.from_thread.run(watching.wait)
        patched.undo()
        raise KeyboardInterrupt

    patched = pytest.MonkeyPatch()

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            events = plain.inbox.watch()
            next(events)
            patched.setattr(Portal, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(events)
            anyio.from_thread.run(ended.wait)

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)


@pytest.mark.usefixtures("processes")
async def test_a_forked_process_is_told_that_it_has_no_connection(hub: Any) -> None:
    scripted(hub)
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process([sys.executable, "-c", FORKED, str(hub.data_dir)], check=False)
    assert ran.stdout.split() == [b"FORKED", b"r1"], ran.stderr


def test_what_grpc_tells_a_loop_that_has_ended_disturbs_no_other() -> None:
    with open_portal() as portal:
        ended = portal.loop
    ended.call_soon_threadsafe(print, "late")  # raised an error in the loop that gRPC told it from
    with pytest.raises(RuntimeError):
        ended.call_soon(print)
