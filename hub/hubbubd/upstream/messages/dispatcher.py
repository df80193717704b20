"""JSON-RPC over a transport. The only module that holds the SDK's dispatcher, whose lifecycle may change within 2.x.

The server's requests and notifications go through that dispatcher. Responses to the hub's own requests are matched
here, at a fraction of the cost of a stream, two scopes and a span for each.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from itertools import count
from typing import Any, Final, Protocol, cast

import anyio
from anyio.abc import ObjectReceiveStream, TaskStatus
from mcp.shared.dispatcher import DispatchContext, as_request_id, coerce_request_id
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
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.messages.codec import BadMessage, NotParsed, ReceivedError
from hubbubd.upstream.messages.exchange import CALL, OUTGOING, SIZE, ConnectionClosed, UnusableResponse
from hubbubd.upstream.messages.rate_limit import ServerRateLimit
from hubbubd.upstream.messages.receipts import ReceiptStream
from hubbubd.upstream.messages.streams import ReadStream, SettlingStream, WriteStream
from hubbubd.upstream.ports import ProgressUpdate

CANCEL_LIMIT_S: Final = 5.0
"""Seconds to wait while telling a server that a request was cancelled."""

SUBSCRIPTION_ENDED: Final = ReceivedError(code=CONNECTION_CLOSED, message="the server ended the subscription")
"""The error of a subscription that the server cancels."""

OnProgress = Callable[[ProgressUpdate | None], None]
"""Called with the progress of a request; with None for another notification that names it, also a sign of work."""

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

    Notifications are handled in order on the receive path, without a task: `on_notification` and the progress callbacks
    must not block. `on_unusable` is called with each item that is no message, and how many came in a row.
    """

    def __init__(
        self,
        read: ReadStream,
        write: WriteStream,
        *,
        reports_delivery: bool,
        serve: Serve,
        on_notification: Callable[[str, dict[str, Any], str | None], None],
        on_unusable: Callable[[Exception, int], None],
        note: Callable[[str, str | None], None],
        rate_limit: ServerRateLimit,
    ) -> None:
        self.unexpected_response: str | None = None
        """A sentence about the last response that answered no request, if there was one."""
        self._note = note
        self._is_stdio = not reports_delivery
        self._write = write
        self._write_stream = ReceiptStream(write, reports_delivery)
        self._receive_stream = _ReceiveStream(
            inner=read,
            answers=self._write_stream,
            settle_request=self._settle_request,
            is_awaited=self._is_awaited,
            is_duplicate=self._is_duplicate,
            on_end=self._fail_pending,
            rate_limit=rate_limit,
        )
        self._serve = serve
        self._on_server_notification = on_notification
        self._on_unusable = on_unusable
        self._ids = count(1)
        self._last_id = 0
        self._pending: dict[RequestId, asyncio.Future[Outcome]] = {}
        self._progress_callbacks: dict[str, tuple[OnProgress, str | None]] = {}
        self._subscriptions: dict[RequestId, OnAcknowledged] = {}
        self._requests_in_service: dict[
            tuple[RequestId, str | None], JSONRPCRequest
        ] = {}  # by its id, and the call of its stream
        self._ended = False
        self._dispatcher = JSONRPCDispatcher[TransportContext](
            self._receive_stream, self._write_stream, on_stream_exception=self._on_stream_exception
        )

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Receive until the stream ends; requests that still wait then raise ConnectionClosed."""
        try:
            await self._dispatcher.run(
                self._on_request, _ignore_notification, self._on_notification, task_status=task_status
            )
        finally:
            self._fail_pending()

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
        """Send a request and return the raw result. If `cancellable`, notify the server when the caller is cancelled.

        With `on_acknowledged` the request is a subscription, which the server may end by cancelling it. Raises MCPError
        (the server's own error), ConnectionClosed and UnusableResponse.
        """
        request_id = self._last_id = next(self._ids)
        if on_acknowledged is not None:
            self._subscriptions[request_id] = on_acknowledged
        token = f"hub-{request_id}"
        if on_progress is not None:
            params = params or {}
            params = {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": token}}
            self._progress_callbacks[token] = (on_progress, CALL.get())
        try:
            outcome = await self._send_and_wait(request_id, method, params, headers, cancellable)
        finally:
            self._progress_callbacks.pop(token, None)
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

    async def _send_and_wait(
        self, request_id: int, method: str, params: dict[str, Any] | None, headers: dict[str, str], cancellable: bool
    ) -> Outcome:
        """Send a request and return the outcome: None once the connection has ended without a response.

        If `cancellable`, the server is notified when the caller is cancelled.
        """
        if self._ended:
            return None
        fields = {"params": params} if params else {}  # an explicit null is not JSON-RPC
        message = JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, **fields)
        if (outgoing := OUTGOING.get()) is not None:
            outgoing.request_id = request_id
        future = self._pending[request_id] = asyncio.get_running_loop().create_future()
        try:
            await self._write.send(SessionMessage(message, ClientMessageMetadata(headers=headers) if headers else None))
            return await future
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
            del self._pending[request_id]

    @property
    def pending_ids(self) -> tuple[RequestId, ...]:
        """The ids of the requests that wait for their response; each is greater than those of earlier requests."""
        return tuple(self._pending)

    def _settle_request(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Pass a response to its request; return False for a late response, or one that answers no request.

        A response to an id that was never sent, and an error without an id, are noted for operators.
        """
        response_id = self._only_pending_id() if message.id is None else coerce_request_id(message.id)
        future = self._pending.get(response_id) if response_id is not None else None
        if future is None or future.done():
            if message.id is None or not self._was_sent(coerce_request_id(message.id)):
                answered_id = "null" if message.id is None else str(message.id)[:50]
                self.unexpected_response = f"it answered id {answered_id}, which nobody asked"
                self._note(
                    Deviation.RESPONSE_UNASKED, describe_deviation(Deviation.RESPONSE_UNASKED, str(message.id)[:50])
                )
            return False
        if message.id is None:
            self._note(Deviation.ERROR_WITHOUT_ID, describe_deviation(Deviation.ERROR_WITHOUT_ID))
        future.set_result(message.result if isinstance(message, JSONRPCResponse) else message.error)
        return True

    def _is_awaited(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Return whether a request waits for a response that names it."""
        future = None if message.id is None else self._pending.get(coerce_request_id(message.id))
        return future is not None and not future.done()

    def _only_pending_id(self) -> RequestId | None:
        """Return the request that an error without an id is about: over stdio, the only pending one, else None."""
        return next(iter(self._pending)) if self._is_stdio and len(self._pending) == 1 else None

    def _was_sent(self, response_id: RequestId) -> bool:
        """Return whether a request with this id was ever sent."""
        return isinstance(response_id, int) and 0 < response_id <= self._last_id

    def _fail_pending(self) -> None:
        """End all requests that wait for a response: none comes any more."""
        self._ended = True
        for future in self._pending.values():
            if not future.done():
                future.set_result(None)

    async def notify(self, method: str, params: dict[str, Any] | None, headers: dict[str, str]) -> None:
        """Send a notification; dropped once the connection is gone."""
        await self._dispatcher.notify(method, params, {"headers": headers})

    async def _on_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Serve a request of the server, and note the outcome of its answer."""
        # This runs in a copy of the context of the request on whose stream it came, and must not use its exchange.
        OUTGOING.set(None)
        try:
            return await self._serve(method, params, context.cancel_requested)
        finally:
            if context.request_id is not None:
                self._requests_in_service.pop((coerce_request_id(context.request_id), CALL.get()), None)
            # The SDK drops the answer to a withdrawn request without writing it.
            answer = OUTGOING.get()
            if answer is not None and context.cancel_requested.is_set():
                answer.settle("the server withdrew its request")

    def _is_duplicate(self, request: JSONRPCRequest, call_id: str | None) -> bool:
        """Return whether this request is being served already: a duplicate delivery, to be answered once.

        A new request is noted as being served. The same id with other contents is another request, against JSON-RPC.
        """
        key = coerce_request_id(request.id), call_id
        earlier = self._requests_in_service.setdefault(key, request)
        if earlier is request:
            return False
        if (earlier.method, earlier.params) == (request.method, request.params):
            return True
        self._requests_in_service[key] = request
        return False

    def _on_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Handle a notification: progress goes to its call, all else to the runtime. Returns True: it is handled."""
        fields = dict(params or {})
        if method == "notifications/progress":
            callback_and_call = self._progress_callbacks.get(str(fields.get("progressToken")))
            update = _progress_update(fields)
            if callback_and_call is not None and update is not None:
                on_progress, call_id = callback_and_call
                on_progress(update)
                self._on_server_notification(method, fields, call_id)
                return True
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledge_subscription(fields)
            return True
        if method == "notifications/cancelled":  # for a request of the server's own the dispatcher applies it
            self._end_subscription(fields)
        self._on_server_notification(method, fields, self._find_call_id(fields))
        return True

    def _find_call_id(self, params: dict[str, Any]) -> str | None:
        """Return the id of the call of a notification: that of its stream, or of the request that `_meta` names.

        Agents that report without MCP's progress name the request (codex: `requestId`), whose `on_progress` gets None.
        """
        stream_call_id = self._receive_stream.last_call_id
        meta = params.get("_meta")
        named_id = (
            as_request_id(cast("Mapping[str, Any]", meta).get("requestId")) if isinstance(meta, Mapping) else None
        )
        if named_id is None:
            return stream_call_id
        request_id = coerce_request_id(named_id)
        callback_and_call = self._progress_callbacks.get(f"hub-{request_id}")
        call_id = callback_and_call[1] if callback_and_call is not None else None
        if stream_call_id not in (None, call_id) or not self._was_sent(request_id):
            self._note(Deviation.NAMES_NO_REQUEST, describe_deviation(Deviation.NAMES_NO_REQUEST, str(named_id)[:50]))
        elif callback_and_call is not None:
            callback_and_call[0](None)
            return call_id
        return stream_call_id

    def _acknowledge_subscription(self, params: dict[str, Any]) -> None:
        """Report to a subscription which part of its filter the server honours."""
        meta, notifications = params.get("_meta"), params.get("notifications")
        if isinstance(meta, Mapping) and isinstance(notifications, Mapping):
            request_id = self._open_subscription_id(cast("Mapping[str, Any]", meta).get(SUBSCRIPTION_ID_META_KEY))
            if request_id is not None:
                self._subscriptions[request_id](dict(cast("Mapping[str, Any]", notifications)))

    def _end_subscription(self, params: dict[str, Any]) -> None:
        """End an open subscription that the server cancels."""
        request_id = self._open_subscription_id(params.get("requestId"))
        if request_id is not None and not (future := self._pending[request_id]).done():
            future.set_result(SUBSCRIPTION_ENDED)

    def _open_subscription_id(self, response_id: Any) -> RequestId | None:
        """Return the id that the server names, if it is that of an open subscription; else None."""
        request_id = coerce_request_id(response_id) if isinstance(response_id, str | int) else None
        return request_id if request_id in self._subscriptions and request_id in self._pending else None

    async def _on_stream_exception(self, exc: Exception) -> None:
        """Report an item of the read stream that is no message."""
        self._on_unusable(exc, self._receive_stream.unusable_run)


async def _ignore_notification(*_: object) -> None:
    """Never called: `Dispatcher._on_notification` has handled every notification before."""


def _progress_update(params: dict[str, Any]) -> ProgressUpdate | None:
    """Return a notification's progress; None without a valid number."""
    progress, message = bounds.clamp_real(params.get("progress")), params.get("message")
    if progress is None:
        return None
    return ProgressUpdate(
        progress, bounds.clamp_real(params.get("total")), message if isinstance(message, str) else None
    )


class _ReceiveStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The read stream of the SDK's dispatcher: responses go to `settle_request`, all else to the dispatcher.

    A response that cannot be parsed becomes an error for the request it answers; a duplicate request is dropped.
    Backpressure: nothing is read while the server does not read the hub's answers. What the hub did not ask for is
    charged to the server's rate limit. `on_end` is called at the end of the stream.
    """

    def __init__(
        self,
        *,
        inner: ReadStream,
        answers: ReceiptStream,
        settle_request: Callable[[JSONRPCResponse | JSONRPCError], bool],
        is_awaited: Callable[[JSONRPCResponse | JSONRPCError], bool],
        is_duplicate: Callable[[JSONRPCRequest, str | None], bool],
        on_end: Callable[[], None],
        rate_limit: ServerRateLimit,
    ) -> None:
        self._inner = inner
        self._answers = answers
        self._settle_request = settle_request
        self._is_awaited = is_awaited
        self._is_duplicate = is_duplicate
        self._fail_pending = on_end
        self._rate_limit = rate_limit
        self.unusable_run = 0  # how many unusable items were received in a row
        if isinstance(inner, SettlingStream):
            inner.settle = self._settle_at_once

    @property
    def last_context(self) -> Context | None:
        """The context of the sender of the last item, where the transport keeps it (HTTP)."""
        return getattr(self._inner, "last_context", None)

    @property
    def last_call_id(self) -> str | None:
        """The call on whose stream the last item came."""
        context = self.last_context
        return context.get(CALL) if context is not None else None

    @property
    def _last_size(self) -> int:
        """The last item's size in bytes; without contexts, the transport parses in the receiving task."""
        context = self.last_context
        return SIZE.get() if context is None else context.get(SIZE, 0)

    def _settle_at_once(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Pass a response to its request without the reader; return False if the reader has to handle it.

        The reader would do the same, after one more turn of the event loop and a copy of the context.
        """
        if self._answers.is_full or not self._is_awaited(message):
            return False
        self.unusable_run = 0
        return self._settle_request(message)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next item for the dispatcher: a request, a notification, or what is no message."""
        while True:
            if self._answers.is_full:
                await self._answers.wait_for_capacity()
            try:
                item = await self._inner.receive()
            except anyio.EndOfStream:
                self._fail_pending()
                raise
            if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self.unusable_run = 0
                if self._settle_request(item.message):
                    continue
            elif isinstance(item, BadMessage) and item.answered_ids:
                problem = ErrorData(code=PARSE_ERROR, message=f"Failed to parse the response: {item}")
                for answered_id in item.answered_ids:
                    self._settle_request(JSONRPCError(jsonrpc="2.0", id=answered_id, error=problem))
            else:
                if isinstance(item, NotParsed):
                    self.unusable_run = 0
                    await self._answers.refuse(item)
                elif isinstance(item, Exception):
                    self.unusable_run += 1
                else:
                    self.unusable_run = 0
                request = item.message if isinstance(item, SessionMessage) else None
                if not isinstance(request, JSONRPCRequest) or not self._is_duplicate(request, self.last_call_id):
                    await self._rate_limit.charge(self._last_size)
                    return item
            await self._rate_limit.charge(self._last_size)

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
