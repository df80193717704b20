"""JSON-RPC over a transport. The only module that holds the SDK's dispatcher, whose lifecycle may change within 2.x.

The server's requests and notifications go through that dispatcher. Responses to the hub's own requests are matched
here, at a fraction of the cost of a stream, two scopes and a span for each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from itertools import count
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import DispatchContext, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from hubbubd import bounds
from hubbubd.upstream.deviations import Deviation, words
from hubbubd.upstream.messages.codec import BadMessage, NotParsed, ReceivedError
from hubbubd.upstream.messages.exchange import CALL, OUTGOING, SIZE, ConnectionClosed, UnusableResponse
from hubbubd.upstream.messages.rate_limit import ServerRateLimit
from hubbubd.upstream.messages.receipts import ReceiptStream
from hubbubd.upstream.messages.streams import ReadStream, WriteStream
from hubbubd.upstream.ports import ProgressUpdate

CANCEL_LIMIT_S: Final = 5.0
"""Seconds to wait while telling a server that a request was cancelled."""

ENDED: Final = ReceivedError(code=CONNECTION_CLOSED, message="the server ended the subscription")
"""The error of a subscription that the server cancels."""

OnProgress = Callable[[ProgressUpdate], None]

OnAcknowledged = Callable[[dict[str, Any]], None]
"""Called once with the filter that the server acknowledged."""


Outcome = dict[str, Any] | ErrorData | None
"""The outcome of a request: a result or an error, or None when the connection ended first."""


class Serve(Protocol):
    """Answers a request of the server. Raises MCPError, and nothing else, for an error answer."""

    async def __call__(self, method: str, params: Mapping[str, Any] | None, withdrawn: anyio.Event) -> dict[str, Any]:
        """Return the result; `withdrawn` is set when the server cancels the request."""
        ...


class Dispatcher:
    """Requests, answers and notifications over the streams of one transport.

    Notifications are handled in order on the receive path, without a task: `notice` and the progress callbacks must not
    block. `unusable` is called with each item that is no message, and how many came in a row.
    """

    def __init__(
        self,
        read: ReadStream,
        write: WriteStream,
        *,
        receipts: bool,
        serve: Serve,
        notice: Callable[[str, dict[str, Any], str | None], None],
        unusable: Callable[[Exception, int], None],
        note: Callable[[str, str | None], None],
        pace: ServerRateLimit,
    ) -> None:
        self.unasked: str | None = None
        """What a response said that answers no request, if there was one."""
        self._note = note
        self._in_order = not receipts
        self._outlet = ReceiptStream(write, receipts)
        self._inlet = _Inlet(
            inner=read,
            has_room=self._outlet.has_room,
            refuse=self._outlet.refuse,
            settle=self._settle,
            repeats=self._repeats,
            end=self._end,
            pace=pace,
        )
        self._serve = serve
        self._notice = notice
        self._unusable = unusable
        self._ids = count(1)
        self._newest = 0
        self._waiting: dict[RequestId, asyncio.Future[Outcome]] = {}
        self._progress: dict[str, tuple[OnProgress, str | None]] = {}
        self._subscriptions: dict[RequestId, OnAcknowledged] = {}
        self._serving: dict[tuple[RequestId, str | None], JSONRPCRequest] = {}
        self._ended = False
        self._dispatcher = JSONRPCDispatcher[TransportContext](
            self._inlet, self._outlet, on_stream_exception=self._on_stream_exception
        )

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Receive until the stream ends; requests that still wait then raise ConnectionClosed."""
        try:
            await self._dispatcher.run(self._on_request, _consumed, self._on_notification, task_status=task_status)
        finally:
            self._end()

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        headers: dict[str, str],
        cancellable: bool = True,
        on_progress: OnProgress | None = None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the raw result. Cancellation is passed on if `cancellable`.

        With `on_acknowledged` the request is a subscription, which the server may end by cancelling it. Raises MCPError
        (the server's own error), ConnectionClosed and UnusableResponse.
        """
        request_id = self._newest = next(self._ids)
        if on_acknowledged is not None:
            self._subscriptions[request_id] = on_acknowledged
        token = f"hub-{request_id}"
        if on_progress is not None:
            given = params or {}
            params = {**given, "_meta": {**(given.get("_meta") or {}), "progressToken": token}}
            self._progress[token] = (on_progress, CALL.get())
        try:
            outcome = await self._exchange(request_id, method, params, headers, cancellable)
        finally:
            self._progress.pop(token, None)
            self._subscriptions.pop(request_id, None)
        match outcome:
            case None:
                raise ConnectionClosed
            case ReceivedError():
                raise MCPError(outcome.code, outcome.message, outcome.data)
            case ErrorData():
                raise UnusableResponse(outcome.message)
            case _:
                return outcome

    async def _exchange(
        self, request_id: int, method: str, params: dict[str, Any] | None, headers: dict[str, str], cancellable: bool
    ) -> Outcome:
        if self._ended:
            return None
        fields = {"params": params} if params else {}  # an explicit null is not JSON-RPC
        message = JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, **fields)
        if (exchange := OUTGOING.get()) is not None:
            exchange.request_id = request_id
        response = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            await self._outlet.send(
                SessionMessage(message, ClientMessageMetadata(headers=headers) if headers else None)
            )
            return await response
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return None
        except anyio.get_cancelled_exc_class():
            # Even if the write was interrupted: it may have been delivered, and unknown ids are ignored.
            if cancellable:
                with anyio.move_on_after(CANCEL_LIMIT_S, shield=True):
                    reason = {"requestId": request_id, "reason": "caller cancelled"}
                    await self._dispatcher.notify("notifications/cancelled", reason)
            raise
        finally:
            del self._waiting[request_id]

    @property
    def under_way(self) -> tuple[RequestId, ...]:
        """The ids of the requests that wait for their response; they count up."""
        return tuple(self._waiting)

    def _settle(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Pass a response to its request; return False for a late one, or one that answers nothing."""
        named = self._only_request() if message.id is None else coerce_request_id(message.id)
        response = self._waiting.get(named) if named is not None else None
        if response is None or response.done():
            if message.id is None or not self._is_late(coerce_request_id(message.id)):
                self.unasked = (
                    f"it answered id {'null' if message.id is None else str(message.id)[:50]}, which nobody asked"
                )
                self._note(Deviation.RESPONSE_UNASKED, words(Deviation.RESPONSE_UNASKED, str(message.id)[:50]))
            return False
        if message.id is None:
            self._note(Deviation.ERROR_WITHOUT_ID, words(Deviation.ERROR_WITHOUT_ID))
        response.set_result(message.result if isinstance(message, JSONRPCResponse) else message.error)
        return True

    def _only_request(self) -> RequestId | None:
        """Return the request that an error without an id is about: over stdio, if one alone is under way."""
        return next(iter(self._waiting)) if self._in_order and len(self._waiting) == 1 else None

    def _is_late(self, named: RequestId) -> bool:
        """Return whether a response is to a request that was sent once."""
        return isinstance(named, int) and 0 < named <= self._newest

    def _end(self) -> None:
        self._ended = True
        for response in self._waiting.values():
            if not response.done():
                response.set_result(None)

    async def notify(self, method: str, params: dict[str, Any] | None, headers: dict[str, str]) -> None:
        """Send a notification; dropped once the connection is gone."""
        await self._dispatcher.notify(method, params, {"headers": headers})

    async def _on_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        # This runs in a copy of the context of the request on whose stream it came, and must not use its exchange.
        OUTGOING.set(None)
        try:
            return await self._serve(method, params, context.cancel_requested)
        finally:
            if context.request_id is not None:
                self._serving.pop((coerce_request_id(context.request_id), CALL.get()), None)
            # The SDK drops the answer to a withdrawn request without writing it.
            answer = OUTGOING.get()
            if answer is not None and context.cancel_requested.is_set():
                answer.settle("the server withdrew its request")

    def _repeats(self, request: JSONRPCRequest, call_id: str | None) -> bool:
        """Return whether this request is being served already: a duplicate delivery, to be answered once.

        The same id with other contents is another request, whatever JSON-RPC says about ids.
        """
        key = coerce_request_id(request.id), call_id
        served = self._serving.setdefault(key, request)
        if served is request:
            return False
        if (served.method, served.params) == (request.method, request.params):
            return True
        self._serving[key] = request
        return False

    def _on_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        received = dict(params or {})
        if method == "notifications/progress":
            waiting = self._progress.get(str(received.get("progressToken")))
            update = _progress_update(received)
            if waiting is not None and update is not None:
                on_progress, call_id = waiting
                on_progress(update)
                self._notice(method, received, call_id)
                return True
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledge(received)
            return True
        if method == "notifications/cancelled":  # for a request of the server's own the dispatcher applies it
            self._end_subscription(received)
        self._notice(method, received, self._inlet.last_call)
        return True

    def _acknowledge(self, params: dict[str, Any]) -> None:
        meta, honoured = params.get("_meta"), params.get("notifications")
        if isinstance(meta, Mapping) and isinstance(honoured, Mapping):
            request_id = self._subscription(cast("Mapping[str, Any]", meta).get(SUBSCRIPTION_ID_META_KEY))
            if request_id is not None:
                self._subscriptions[request_id](dict(cast("Mapping[str, Any]", honoured)))

    def _end_subscription(self, params: dict[str, Any]) -> None:
        request_id = self._subscription(params.get("requestId"))
        if request_id is not None and not (response := self._waiting[request_id]).done():
            response.set_result(ENDED)

    def _subscription(self, named: Any) -> RequestId | None:
        """Return the id of an open subscription, if the server names one."""
        request_id = coerce_request_id(named) if isinstance(named, str | int) else None
        return request_id if request_id in self._subscriptions and request_id in self._waiting else None

    async def _on_stream_exception(self, exc: Exception) -> None:
        self._unusable(exc, self._inlet.unusable_run)


async def _consumed(*_: object) -> None:
    """Never called: the intercept handles every notification."""


def _progress_update(params: dict[str, Any]) -> ProgressUpdate | None:
    progress, message = bounds.real(params.get("progress")), params.get("message")
    if progress is None:
        return None
    return ProgressUpdate(progress, bounds.real(params.get("total")), message if isinstance(message, str) else None)


class _Inlet:
    """The dispatcher's read stream: passes responses to `settle`, everything else on, and calls `end` at the end.

    A response that cannot be parsed becomes an error for the request it answers; a duplicate request (`repeats`) is
    dropped. Backpressure: nothing is read while the server does not read the hub's answers. What the hub did not ask
    for is charged to the server's rate limit.
    """

    def __init__(
        self,
        *,
        inner: ReadStream,
        has_room: Callable[[], Awaitable[None]],
        refuse: Callable[[NotParsed], Awaitable[None]],
        settle: Callable[[JSONRPCResponse | JSONRPCError], bool],
        repeats: Callable[[JSONRPCRequest, str | None], bool],
        end: Callable[[], None],
        pace: ServerRateLimit,
    ) -> None:
        self._inner = inner
        self._has_room = has_room
        self._refuse = refuse
        self._settle = settle
        self._repeats = repeats
        self._end = end
        self._pace = pace
        self.unusable_run = 0

    @property
    def last_context(self) -> Context | None:
        """The context of the sender of the last item, where the transport keeps it (HTTP)."""
        return getattr(self._inner, "last_context", None)

    @property
    def last_call(self) -> str | None:
        """The call on whose stream the last item came."""
        context = self.last_context
        return context.get(CALL) if context is not None else None

    @property
    def _last_size(self) -> int:
        """The last item's size in bytes; without contexts, the transport parses in the receiving task."""
        context = self.last_context
        return SIZE.get() if context is None else context.get(SIZE, 0)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            await self._has_room()
            try:
                item = await self._inner.receive()
            except anyio.EndOfStream:
                self._end()
                raise
            if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self.unusable_run = 0
                if self._settle(item.message):
                    continue
            elif isinstance(item, BadMessage) and item.answers:
                problem = ErrorData(code=PARSE_ERROR, message=f"Failed to parse the response: {item}")
                for answered in item.answers:
                    self._settle(JSONRPCError(jsonrpc="2.0", id=answered, error=problem))
            else:
                self.unusable_run = self.unusable_run + 1 if isinstance(item, Exception) else 0
                if isinstance(item, NotParsed):
                    self.unusable_run = 0
                    await self._refuse(item)
                asked = item.message if isinstance(item, SessionMessage) else None
                if not isinstance(asked, JSONRPCRequest) or not self._repeats(asked, self.last_call):
                    await self._pace.charge(self._last_size)
                    return item
            await self._pace.charge(self._last_size)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None
