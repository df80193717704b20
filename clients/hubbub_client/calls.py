"""`hub.calls`: MCP requests to servers, through the hub."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack, cast

from hubbub.v1 import call_pb2
from hubbub_client import errors
from hubbub_client.errors import FailedPrecondition, HubbubError, NotFound
from hubbub_client.events import CallEvent, Progressed, Removed, Reset, Synced, Upsert, read_call
from hubbub_client.handlers import CallAnswers
from hubbub_client.inbox import Inbox
from hubbub_client.link import Link, Page, pages
from hubbub_client.options import CallCallbacks, CallOptions, Reporter, call_spec
from hubbub_client.reading import enum_numbers, read
from hubbub_client.records import Call, CallState, PendingRequest, Progress, QueueCounts
from hubbub_client.results import ToolResult
from hubbub_client.waits import beside, within
from hubbub_client.watch import follow

# How long a call that has ended waits for the last of its progress.
LAST_NEWS_S = 1.0
TOOL_CALL = "tools/call"

R = TypeVar("R")


class CallHandle(Generic[R]):
    """One call, from its start to its end and for as long as the hub remembers it. Made by `start` and `calls.handle`.

    Every method raises HubbubError; a call that does not exist (any more) is NotFound.
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
        """The call's id, under which any program finds it (`calls.handle`)."""
        return self._id

    @property
    def started(self) -> Call | None:
        """The call as it was when `start` returned; None for a handle of `calls.handle`."""
        return self._started

    async def get(self) -> Call:
        """The call as it is now."""
        return await self._calls.get(self._id)

    async def result(self) -> R:
        """Waits for the end, also over a restart of the hub: a ToolResult for a tool, else the MCP result.

        Meanwhile the call's callbacks are told and asked; what they raise comes out of here. To cancel the wait leaves
        the call alone.
        Raises HubbubError for a call that has failed or was cancelled, the same one that `Calls.call` raises.
        """
        call = await self.wait()
        if call.state != "completed":
            raise errors.from_call(call.id, call.state, call.error)
        return cast("R", ToolResult(call.result) if call.method == TOOL_CALL else call.result)

    async def wait(self) -> Call:
        """As `result`, and gives back the call whatever became of it."""
        last: Call | None = None
        reporter = Reporter(self._callbacks)
        async with (
            _answering(CallAnswers(self._inbox, self._id, self._callbacks)),
            contextlib.aclosing(self._events()) as events,
        ):
            async for event in events:
                await reporter.tell(event)
                last = event.record if isinstance(event, Upsert) else last
        assert last is not None, "the news end with a call that has ended"
        return last

    async def progress(self) -> AsyncGenerator[Progress, None]:
        """How far the call is, each time that its server says so from now on; ends with the call."""
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, Progressed):
                    yield event.progress

    async def pending_requests(self) -> AsyncGenerator[PendingRequest, None]:
        """What the call asks: each open request once, as soon as it is certain that it is this call's.

        Ends with the call. It claims nothing.
        """
        seen: set[str] = set()
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                if not isinstance(event, Upsert) or event.record.ended:
                    continue
                for id_ in event.record.pending_ids:
                    if id_ not in seen and (request := await self._open(id_)) is not None:
                        yield request
                    seen.add(id_)

    async def cancel(self) -> Call:
        """Ends the call wherever it is, and gives it back; one that has ended stays as it is."""
        try:
            return await self._calls.cancel(self._id, abort=True)
        except FailedPrecondition as error:
            if error.reason != "CALL_FINISHED":
                raise
            return await self.get()

    async def _events(self) -> AsyncGenerator[CallEvent, None]:
        """What happens to the call, up to its end. Raises NotFound."""
        known = False
        async with contextlib.aclosing(self._calls.watch(ids=[self._id])) as events:
            async for event in events:
                yield event
                match event:
                    case Upsert(record=call):
                        known = True
                        if call.ended:
                            return
                    case Reset():
                        known = False
                    case Removed(id=self._id):
                        raise NotFound(f"no call {self._id!r}", reason="CALL_NOT_FOUND", metadata={"call": self._id})
                    case Synced() if not known:
                        # Readers are shown a new call at once, watchers when it is on the disk.
                        now, known = await self.get(), True
                        if now.ended:
                            yield Upsert(event.resume_token, now)
                            return
                    case _:
                        pass

    async def _open(self, id_: str) -> PendingRequest | None:
        """A pending request that is still open; None for one that is not, or may not be seen."""
        try:
            found = await self._inbox.get(id_)
        except NotFound:
            return None
        return found if found.state == "open" else None


class Calls:
    """CallService. Every method raises HubbubError; a call that does not exist is NotFound."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox = Inbox(link)

    async def call(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Call:
        """Sends a request and waits for its end: the completed call, with its result.

        A cancelled wait aborts the call, and so does what a callback raises, which comes out of here.
        Raises HubbubError, UpstreamError where the server answered with an error.
        """
        spec = call_spec(server, method, params, options)
        reporter, answers = Reporter(options), CallAnswers(self._inbox, spec.call_id, options)
        async with _answering(answers):
            return await (self._reported(spec, reporter) if reporter.wanted else self._call(spec))

    async def start(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> CallHandle[Any]:
        """Queues a call and returns at once; the hub goes on with it, whatever becomes of this program.

        The callbacks are told and asked while somebody waits for the handle's `result`.
        """
        request = call_pb2.StartCallRequest(spec=call_spec(server, method, params, options))
        answer = await self._link.call(lambda hub: hub.calls.StartCall, request)
        call = read(Call, answer.call)
        return CallHandle(self, self._inbox, call.id, options, call)

    def handle(self, id: str, **callbacks: Unpack[CallCallbacks]) -> CallHandle[Any]:  # noqa: A002 - the field's name
        """The handle of any call, which need not exist yet. The callbacks as in `start`."""
        return CallHandle(self, self._inbox, id, callbacks)

    async def _reported(self, spec: call_pb2.CallSpec, reporter: Reporter) -> Call:
        outcome: Call | HubbubError | None = None
        following, ended = asyncio.Event(), asyncio.Event()
        # What a callback raises, or the watch for it, aborts the call.
        async with beside(self._report(spec.call_id, reporter, following, ended)):
            await following.wait()
            try:
                outcome = await self._call(spec)
            except HubbubError as error:
                outcome = error
            else:
                with contextlib.suppress(TimeoutError):
                    async with within(LAST_NEWS_S):
                        await ended.wait()
        if isinstance(outcome, Call):
            return outcome
        raise outcome or AssertionError("the block ends with an outcome or raises")

    async def list(
        self, *, server: str | None = None, states: Collection[CallState] = (), limit: int | None = None
    ) -> Sequence[Call]:
        """Calls, newest first; every condition given must hold."""
        condition = _filter(server, states, ())

        async def page(which: Page) -> tuple[Sequence[Call], str]:
            request = call_pb2.ListCallsRequest(filter=condition, **which)
            answer = await self._link.call(lambda hub: hub.calls.ListCalls, request)
            return [read(Call, each) for each in answer.calls], answer.next_page_token

        return await pages(page, limit)

    async def get(self, id: str) -> Call:  # noqa: A002 - the field's name
        """One call."""
        answer = await self._link.call(lambda hub: hub.calls.GetCall, call_pb2.GetCallRequest(id=id))
        return read(Call, answer.call)

    async def cancel(self, id: str, *, abort: bool = False) -> Call:  # noqa: A002
        """Cancels a call that is queued or waits for input; one on the wire only with `abort`."""
        request = call_pb2.CancelCallRequest(id=id, abort=abort)
        answer = await self._link.call(lambda hub: hub.calls.CancelCall, request)
        return read(Call, answer.call)

    async def queue(self, server: str) -> QueueCounts:
        """How many calls of a server are in each state."""
        answer = await self._link.call(lambda hub: hub.calls.GetQueue, call_pb2.GetQueueRequest(server=server))
        return read(QueueCounts, answer.counts)

    async def clear_queue(self, server: str) -> QueueCounts:
        """Cancels all queued calls of a server; the counts afterwards."""
        request = call_pb2.ClearQueueRequest(server=server)
        answer = await self._link.call(lambda hub: hub.calls.ClearQueue, request)
        return read(QueueCounts, answer.counts)

    def watch(
        self,
        *,
        server: str | None = None,
        states: Collection[CallState] = (),
        ids: Collection[str] = (),
        resume_token: str | None = None,
    ) -> AsyncGenerator[CallEvent, None]:
        """Snapshot and changes of calls, with progress and log lines in between (these are seen live only)."""
        condition = _filter(server, states, ids)
        return follow(
            self._link,
            lambda hub: hub.calls.WatchCalls,
            lambda token: call_pb2.WatchCallsRequest(filter=condition, resume_token=token),
            read_call,
            resume_token,
        )

    async def _call(self, spec: call_pb2.CallSpec) -> Call:
        answer = await self._link.call(lambda hub: hub.calls.CallMethod, call_pb2.CallMethodRequest(spec=spec))
        return read(Call, answer.call)

    async def _report(self, call_id: str, reporter: Reporter, following: asyncio.Event, ended: asyncio.Event) -> None:
        """Tells what happens to a call until it has ended; `following` when nothing can be missed any more."""
        async with contextlib.aclosing(self.watch(ids=[call_id])) as events:
            async for event in events:
                await reporter.tell(event)
                if isinstance(event, Synced):
                    following.set()
                elif isinstance(event, Upsert) and event.record.ended:
                    ended.set()


@contextlib.asynccontextmanager
async def _answering(answers: CallAnswers) -> AsyncGenerator[None]:
    """Has a call's callbacks answer what it asks while the block goes on; what they raise ends the block."""
    if not answers.wanted:
        yield
        return
    listening = asyncio.Event()
    async with beside(answers.serve(listening.set)):
        await listening.wait()
        yield


def _filter(server: str | None, states: Collection[CallState], ids: Collection[str]) -> call_pb2.CallFilter:
    return call_pb2.CallFilter(server=server or "", states=enum_numbers(call_pb2.CallState.DESCRIPTOR, states), ids=ids)
