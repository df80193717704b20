"""`hub.calls`: MCP requests to servers, through the hub."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack, cast

from hubbub.v1 import call_pb2
from hubbub_client import errors
from hubbub_client.data.conversion import enum_numbers, read
from hubbub_client.data.records import Call, CallState, PendingRequest, Progress, QueueCounts
from hubbub_client.data.results import ToolResult
from hubbub_client.data.watch_events import CallEvent, Progressed, Removed, Reset, Synced, Upsert, read_call
from hubbub_client.errors import FailedPrecondition, HubbubError, NotFound
from hubbub_client.handlers import CallAnswers, StreamedAnswers
from hubbub_client.options import CallCallbacks, CallOptions, Reporter, make_call_spec
from hubbub_client.services.inbox import Inbox
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.transport.call_stream import CallStream, NotSent, Step
from hubbub_client.transport.connection import HubConnection
from hubbub_client.waits import run_beside, within
from hubbub_client.watch import follow_watch

# Seconds to wait for the last progress of a call that has ended.
LAST_UPDATE_WAIT_S = 1.0
TOOL_CALL = "tools/call"

R = TypeVar("R")


class CallHandle(Generic[R]):
    """Follows one call for as long as the hub stores it. Made by `start` and `calls.handle`.

    Every method raises HubbubError; NotFound if the hub has no such call, or no longer.
    """

    def __init__(
        self, calls: "Calls", inbox: Inbox, call_id: str, callbacks: CallCallbacks, started: Call | None = None
    ) -> None:
        self._calls = calls
        self._inbox = inbox
        self._id = call_id
        self._callbacks = callbacks
        self._started = started

    @property
    def id(self) -> str:
        """Return the id by which any program finds the call (`calls.handle`)."""
        return self._id

    @property
    def started(self) -> Call | None:
        """Return the call as it was when `start` returned; None for a handle made by `calls.handle`."""
        return self._started

    async def get(self) -> Call:
        """Return the call as it is now."""
        return await self._calls.get(self._id)

    async def result(self) -> R:
        """Wait for the end and return a ToolResult for a tool, else the MCP result.

        The wait survives a restart of the hub. Meanwhile the call's callbacks run; this method raises what they raise.
        Cancelling the wait does not cancel the call.
        Raises HubbubError if the call failed or was cancelled, the same one as `Calls.call`.
        """
        call = await self.wait()
        if call.state != "completed":
            raise errors.from_call(call.id, call.state, call.error)
        return cast("R", ToolResult(call.result) if call.method == TOOL_CALL else call.result)

    async def wait(self) -> Call:
        """Wait for the end and return the call, in whatever state it ended.

        Meanwhile the call's callbacks run; this method raises what they raise.
        """
        last: Call | None = None
        reporter = Reporter(self._callbacks)
        async with (
            _answer_during_block(CallAnswers(self._inbox, self._id, self._callbacks)),
            contextlib.aclosing(self._events()) as events,
        ):
            async for event in events:
                await reporter.report(event)
                last = event.record if isinstance(event, Upsert) else last
        assert last is not None, "the news end with a call that has ended"
        return last

    async def progress(self) -> AsyncGenerator[Progress, None]:
        """Yield the progress that the server reports from now on; end with the call."""
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, Progressed):
                    yield event.progress

    async def pending_requests(self) -> AsyncGenerator[PendingRequest, None]:
        """Yield each open pending request that this call caused, once the cause is certain; end with the call.

        No request is claimed.
        """
        seen: set[str] = set()
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                if not isinstance(event, Upsert) or event.record.ended:
                    continue
                for id_ in event.record.pending_ids:
                    if id_ not in seen and (request := await self._get_if_open(id_)) is not None:
                        yield request
                    seen.add(id_)

    async def cancel(self) -> Call:
        """Cancel the call in any state and return it; a call that has ended stays as it is."""
        try:
            return await self._calls.cancel(self._id, abort=True)
        except FailedPrecondition as error:
            if error.reason != "CALL_FINISHED":
                raise
            return await self.get()

    async def _events(self) -> AsyncGenerator[CallEvent, None]:
        """Yield the events of the call's watch until the call ends. Raises NotFound if the hub has no such call."""
        is_call_seen = False
        async with contextlib.aclosing(self._calls.watch(ids=[self._id])) as events:
            async for event in events:
                yield event
                match event:
                    case Upsert(record=call):
                        is_call_seen = True
                        if call.ended:
                            return
                    case Reset():
                        is_call_seen = False
                    case Removed(id=self._id):
                        raise NotFound(f"no call {self._id!r}", reason="CALL_NOT_FOUND", metadata={"call": self._id})
                    case Synced() if not is_call_seen:
                        # A new call is readable at once, but watches show it only when it is on disk.
                        current, is_call_seen = await self.get(), True
                        if current.ended:
                            yield Upsert(event.resume_token, current)
                            return
                    case _:
                        pass

    async def _get_if_open(self, id_: str) -> PendingRequest | None:
        """Return a pending request if it is open and visible to this caller, else None."""
        try:
            request = await self._inbox.get(id_)
        except NotFound:
            return None
        return request if request.state == "open" else None


class Calls:
    """CallService. Every method raises HubbubError; NotFound if the call does not exist."""

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self._inbox = Inbox(connection)

    async def call(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Call:
        """Send a request, wait for its end, and return the completed call with its result.

        Cancelling the wait aborts the call. So does an exception in a callback, which this method raises.
        Raises HubbubError; UpstreamError if the server responded with an error.
        """
        spec = make_call_spec(server, method, params, options)
        reporter, answers = Reporter(options), CallAnswers(self._inbox, spec.call_id, options)
        if not (reporter.has_callbacks or answers.has_callbacks):
            return await self._call(spec)
        try:
            return await self._call_on_stream(spec, reporter, answers)
        except NotSent:  # no stream takes the call: RPCs of their own carry what is asked, and the answers
            async with _answer_during_block(answers):
                return await (self._call_with_reports(spec, reporter) if reporter.has_callbacks else self._call(spec))

    async def start(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> CallHandle[Any]:
        """Queue a call and return its handle at once; the call goes on even if this program ends.

        The callbacks run only while the handle's `result` or `wait` is awaited.
        """
        request = call_pb2.StartCallRequest(spec=make_call_spec(server, method, params, options))
        response = await self._connection.call(lambda hub: hub.calls.StartCall, request)
        call = read(Call, response.call)
        return CallHandle(self, self._inbox, call.id, options, call)

    def handle(self, id: str, **callbacks: Unpack[CallCallbacks]) -> CallHandle[ToolResult | dict[str, Any]]:  # noqa: A002 - the field's name
        """Return a handle of any call, even one that does not exist yet.

        The callbacks run only while the handle's `result` or `wait` is awaited.
        """
        return CallHandle(self, self._inbox, id, callbacks)

    async def _call_with_reports(self, spec: call_pb2.CallSpec, reporter: Reporter) -> Call:
        """Make a call and report its progress and pending requests: over the stream of calls, else by a watch."""
        try:
            return await self._call_on_stream(spec, reporter, CallAnswers(self._inbox, spec.call_id, {}))
        except NotSent:
            return await self._call_with_watch(spec, reporter)

    async def _call_on_stream(self, spec: call_pb2.CallSpec, reporter: Reporter, answers: CallAnswers) -> Call:
        """Make a call on the stream of calls, which also carries its progress and pending requests. Raises NotSent."""
        updates, streamed_answers = _CallUpdates(reporter), StreamedAnswers(self._connection, answers)
        outcome: Call | HubbubError | NotSent | None = None

        def on_step(stream: CallStream, step: Step) -> None:
            """Pass a step to the updates and to the answers; each ignores the steps for the other."""
            updates.receive_step(step)
            streamed_answers.receive_step(stream, step)

        async with (
            run_beside(updates.report()) if reporter.has_callbacks else contextlib.nullcontext(),
            run_beside(streamed_answers.serve()) if answers.has_callbacks else contextlib.nullcontext(),
        ):
            try:
                request = call_pb2.CallMethodRequest(spec=spec)
                response = await self._connection.follow_call(
                    request, on_step, follow=reporter.has_callbacks, answers=answers.kinds
                )
            except (HubbubError, NotSent) as error:
                outcome = error
            else:
                outcome = read(Call, response.call)
                if reporter.has_callbacks:
                    with contextlib.suppress(TimeoutError):
                        async with within(LAST_UPDATE_WAIT_S):
                            await updates.report_end(outcome)
        # An error of the call is raised only here: what a callback has raised comes first.
        if isinstance(outcome, Call):
            return outcome
        raise outcome or AssertionError("the block ends with an outcome or raises")

    async def _call_with_watch(self, spec: call_pb2.CallSpec, reporter: Reporter) -> Call:
        """Make a call by an RPC of its own, and report its progress and pending requests from a watch beside it."""
        outcome: Call | HubbubError | None = None
        watch_started, end_reported = asyncio.Event(), asyncio.Event()
        # An exception in a callback, or in the watch that feeds it, aborts the call.
        async with run_beside(self._report_events(spec.call_id, reporter, watch_started, end_reported)):
            await watch_started.wait()
            try:
                outcome = await self._call(spec)
            except HubbubError as error:
                outcome = error
            else:
                with contextlib.suppress(TimeoutError):
                    async with within(LAST_UPDATE_WAIT_S):
                        await end_reported.wait()
        if isinstance(outcome, Call):
            return outcome
        raise outcome or AssertionError("the block ends with an outcome or raises")

    async def list(
        self, *, server: str | None = None, states: Collection[CallState] = (), limit: int | None = None
    ) -> Sequence[Call]:
        """Return the calls that match all given conditions, newest first."""
        condition = _call_filter(server, states, ())

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[Call], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = call_pb2.ListCallsRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.calls.ListCalls, request)
            return [read(Call, each) for each in response.calls], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def get(self, id: str) -> Call:  # noqa: A002 - the field's name
        """Return one call."""
        response = await self._connection.call(lambda hub: hub.calls.GetCall, call_pb2.GetCallRequest(id=id))
        return read(Call, response.call)

    async def cancel(self, id: str, *, abort: bool = False) -> Call:  # noqa: A002
        """Cancel a call that is queued or waits for input, with `abort` also one in progress; return the call."""
        request = call_pb2.CancelCallRequest(id=id, abort=abort)
        response = await self._connection.call(lambda hub: hub.calls.CancelCall, request)
        return read(Call, response.call)

    async def queue(self, server: str) -> QueueCounts:
        """Return the number of a server's calls in each state."""
        response = await self._connection.call(lambda hub: hub.calls.GetQueue, call_pb2.GetQueueRequest(server=server))
        return read(QueueCounts, response.counts)

    async def clear_queue(self, server: str) -> QueueCounts:
        """Cancel all queued calls of a server and return the counts afterwards."""
        request = call_pb2.ClearQueueRequest(server=server)
        response = await self._connection.call(lambda hub: hub.calls.ClearQueue, request)
        return read(QueueCounts, response.counts)

    def watch(
        self,
        *,
        server: str | None = None,
        states: Collection[CallState] = (),
        ids: Collection[str] = (),
        resume_token: str | None = None,
    ) -> AsyncGenerator[CallEvent, None]:
        """Watch calls: a snapshot, then changes, with progress and log lines in between (these live only)."""
        condition = _call_filter(server, states, ids)
        return follow_watch(
            self._connection,
            lambda hub: hub.calls.WatchCalls,
            call_pb2.WatchCallsRequest(filter=condition),
            read_call,
            resume_token,
        )

    async def _call(self, spec: call_pb2.CallSpec) -> Call:
        """Make a call without callbacks."""
        response = await self._connection.make_call(call_pb2.CallMethodRequest(spec=spec))
        return read(Call, response.call)

    async def _report_events(
        self, call_id: str, reporter: Reporter, watch_started: asyncio.Event, end_reported: asyncio.Event
    ) -> None:
        """Report the events of a call until cancelled.

        Set `watch_started` once no event can be missed, and `end_reported` once the end of the call is reported.
        """
        async with contextlib.aclosing(self.watch(ids=[call_id])) as events:
            async for event in events:
                await reporter.report(event)
                if isinstance(event, Synced):
                    watch_started.set()
                elif isinstance(event, Upsert) and event.record.ended:
                    end_reported.set()


class _CallUpdates:
    """The events of a call that its callbacks did not get yet; a newer event replaces an older one of its kind."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._unreported: dict[str, CallEvent] = {}
        self._has_updates = asyncio.Event()
        self._end_reported = asyncio.Event()

    def receive_step(self, step: call_pb2.StreamCallsResponse.Step) -> None:
        """Queue the progress or the change in a step of the call's stream; ignore other steps."""
        # The events get "" for a resume token: a call's stream has none.
        if step.HasField("progress"):
            self._enqueue("progress", Progressed("", read(Progress, step.progress)))
        elif step.HasField("changed"):
            self._enqueue("changed", Upsert("", read(Call, step.changed)))

    async def report_end(self, call: Call) -> None:
        """Report the call as it ended, after all queued events, and wait until that is done."""
        self._enqueue("ended", Upsert("", call))
        await self._end_reported.wait()

    def _enqueue(self, kind: str, event: CallEvent) -> None:
        """Queue an event, in place of an older one of its kind, and wake `report`."""
        self._unreported.pop(kind, None)
        self._unreported[kind] = event
        self._has_updates.set()

    async def report(self) -> None:
        """Call the callbacks for queued events until the end of the call is reported. Raises what a callback raises."""
        while not self._end_reported.is_set():
            await self._has_updates.wait()
            self._has_updates.clear()
            while self._unreported:
                kind = next(iter(self._unreported))
                await self._reporter.report(self._unreported.pop(kind))
                if kind == "ended":
                    self._end_reported.set()


@contextlib.asynccontextmanager
async def _answer_during_block(answers: CallAnswers) -> AsyncGenerator[None]:
    """Answer the call's pending requests by its callbacks during the block; an exception in one ends the block."""
    if not answers.has_callbacks:
        yield
        return
    listening = asyncio.Event()
    async with run_beside(answers.serve(listening.set)):
        await listening.wait()
        yield


def _call_filter(server: str | None, states: Collection[CallState], ids: Collection[str]) -> call_pb2.CallFilter:
    """Return a filter for calls that match all given conditions; None and empty ones match all."""
    return call_pb2.CallFilter(server=server or "", states=enum_numbers(call_pb2.CallState.DESCRIPTOR, states), ids=ids)
