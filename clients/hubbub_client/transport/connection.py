"""The connection to the hub: opens its channel, replaces it when the hub moves, and sends every RPC over it.

A hub of several members has several addresses. One is in use until it fails; then the next is.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from grpc import aio
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType] - not in its stubs

from hubbub.v1 import call_pb2, inbox_pb2
from hubbub_client.errors import (
    Cancelled,
    FailedPrecondition,
    HubbubError,
    InvalidArgument,
    Unauthenticated,
    Unavailable,
    from_rpc,
)
from hubbub_client.transport import trace_context
from hubbub_client.transport.call_stream import CallStream, ClientCallStreams, Kinds, NotSent, OnStep
from hubbub_client.transport.channel import MAX_MESSAGE_BYTES, Channels, Stubs, await_response, is_ready, is_refused
from hubbub_client.transport.discovery import DNS, HubAddress, HubLocation, discover_all
from hubbub_client.waits import within

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from hubbub_client.transport.revisions import SeenRevision

Q = TypeVar("Q")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

# Seconds between look-ups of the address, while a client waits for its hub.
LOOKUP_INTERVAL_S = 0.25
POLL_S = 0.005
# The most repeats of an RPC that the hub has not served.
MAX_RETRIES = 2


class Readable(Protocol[A_co]):
    """An RPC with a stream of responses."""

    def read(self) -> Awaitable[A_co | object]:
        """Return the next response, or EOF."""
        ...

    def cancel(self) -> object:
        """Cancel the RPC."""
        ...


class HubConnection:
    """Connection to one hub, which may move to another address, or have several."""

    def __init__(self, where: HubLocation, name: str | None, connect_timeout_s: float, silence_s: float) -> None:
        """`name`: the author to record; a stream is dead if silent for `silence_s`. Connects to nothing yet."""
        self._where = where
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._silence_s = silence_s
        self._endpoint: HubAddress | None = None  # the address in use; with it come the channel and the stubs
        self._endpoints: Sequence[HubAddress] = ()  # all addresses, as last looked up, in the order to try them
        self._failed_address: str | None = None  # of the last failure
        self._channel: aio.Channel | None = None
        self._stubs: Stubs | None = None
        self._channels = Channels()
        self._call_streams = ClientCallStreams(
            MAX_MESSAGE_BYTES, lambda revision: self._seen_revisions.note_revision(revision)
        )
        self._lock = asyncio.Lock()  # held while connecting
        self._closed = False

    @property
    def address(self) -> str:
        """Return the address at which the hub was last found, empty before that."""
        return self._endpoint.address if self._endpoint else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return all addresses of the hub, as last looked up."""
        return tuple(sorted(each.address for each in self._endpoints))

    @property
    def connected(self) -> bool:
        """Return whether the channel is connected."""
        return is_ready(self._channel)

    @cached_property
    def _seen_revisions(self) -> "SeenRevision":
        """The newest revision that this client has seen."""
        from hubbub_client.transport.revisions import SeenRevision  # imported late: only several addresses need it

        return SeenRevision()

    async def close(self) -> None:
        """Close all channels, which ends every RPC."""
        self._closed = True
        self._call_streams.end(closed_meanwhile_error())
        await self._channels.close()

    async def connected_stubs(self, *, patient: bool = True) -> Stubs:
        """Connect if needed, and return the stubs. Raises Unavailable after `connect_timeout_s` seconds without a hub.

        If not `patient`, raise it at once when no address is known or nobody listens there. Raises FailedPrecondition
        (CLOSED) after `close`.
        """
        connected = is_ready(self._channel)  # asked once: a channel that is lost meanwhile is found out by its RPC
        if not (self._closed or connected):
            with contextlib.suppress(TimeoutError):
                async with within(self._connect_timeout_s), self._lock:
                    connected = await self._connect(patient)
        if self._closed:
            raise closed_error()
        if self._stubs is None or not connected:
            raise await self._explain_unreachable()
        return self._stubs

    async def refresh(self) -> bool:
        """Look up the hub again and use its address; return whether address or token differ. Raises as `discover`."""
        endpoints, previous = discover_all(self._where), self._endpoint
        self._channels.several = len(endpoints) > 1 or endpoints[0].target.startswith(DNS)
        self._endpoints = endpoints
        if len(endpoints) > 1:
            from hubbub_client.transport.addresses import order_to_try

            self._endpoints = order_to_try(endpoints, previous and previous.address, self._failed_address)
        endpoint = self._endpoints[0]
        if previous is not None and previous.key == endpoint.key:
            self._endpoint = endpoint
            return previous.token != endpoint.token
        await self._channels.retain(endpoints)
        self._use_address(endpoint)
        return True

    def _use_address(self, endpoint: HubAddress) -> None:
        """Send further RPCs to this address."""
        self._endpoint, self._channel = endpoint, self._channels.channel_to(endpoint)
        self._stubs = Stubs(self._channel)

    async def call(self, method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Q, A]], request: Q) -> A:
        """Send a unary RPC and return the response. Raises HubbubError."""
        return await self._send_with_retries(request, lambda stubs: self._send_unary(method(stubs), request))

    async def make_call(self, request: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        """Make a call and return the response: over the stream of calls, else by a unary RPC. Raises HubbubError."""

        async def send_call(stubs: Stubs) -> call_pb2.CallMethodResponse:
            """Make the call on the stream. If none takes it, open one for later calls, and send the unary RPC."""
            try:
                return await self._find_stream(stubs, request).call(request)
            except NotSent:
                stubs = await self.connected_stubs()  # again: the wait for the stream may have been long
            key, metadata = self._stream_key(stubs), self._untraced_metadata()
            self._call_streams.open_if_needed(
                key, lambda: stubs.calls.StreamCalls(metadata=metadata), lambda: self._leave_address(stubs)
            )
            return await self._send_unary(stubs.calls.CallMethod, request)

        return await self._send_with_retries(request, send_call)

    async def follow_call(
        self, request: call_pb2.CallMethodRequest, on_step: OnStep, *, follow: bool, answers: Kinds
    ) -> call_pb2.CallMethodResponse:
        """Make a call over the stream of calls. Raises HubbubError, and NotSent.

        `on_step` gets its progress and changes with `follow`, and its pending requests of the kinds in `answers`.
        """

        async def call_over_stream(stubs: Stubs) -> call_pb2.CallMethodResponse:
            """Make the call on the stream. Raises HubbubError, and NotSent without a stream."""
            stream = self._find_stream(stubs, request, with_answers=bool(answers))
            return await stream.call(request, on_step, follow=follow, answers=answers)

        # Looked for here too, outside of the trace's span for an RPC: without a stream no RPC is made.
        self._find_stream(await self.connected_stubs(), request, with_answers=bool(answers))
        return await self._send_with_retries(request, call_over_stream)

    async def answer(
        self, stream: CallStream, request: inbox_pb2.AnswerPendingRequestRequest
    ) -> inbox_pb2.AnswerPendingRequestResponse:
        """Answer on the stream that asked, else by an RPC, under the same `answer_id`. Raises HubbubError."""
        try:
            with trace_context.trace_rpc(request, self.address):
                return await stream.answer(request)
        except (NotSent, Unavailable, Unauthenticated):  # the last one, since the token may have been renewed
            return await self.call(lambda hub: hub.inbox.AnswerPendingRequest, request)

    async def _send_with_retries(self, request: object, send: Callable[[Stubs], Awaitable[A]]) -> A:
        """Send an RPC, and repeat it after a failure if a repeat does no harm. Raises HubbubError."""
        for attempt in count():
            stubs = await self.connected_stubs()
            may_repeat = attempt < max(MAX_RETRIES, len(self._endpoints))
            try:
                with trace_context.trace_rpc(cast("Message", request), self.address):
                    return await send(stubs)
            except HubbubError as error:
                from hubbub_client.transport import retries  # imported late, since few programs see an error

                if isinstance(error, Unauthenticated):
                    may_retry = may_repeat and retries.may_retry_with_new_token(cast("Message", request), error)
                    if may_retry and await self.refresh_if_found():
                        continue
                    raise retries.explain_refusal(error, self._endpoint) from None
                if retries.must_leave_address(error):
                    self._leave_address(stubs)
                if not may_repeat or not retries.may_repeat(
                    cast("Message", request), error, several=self._channels.several
                ):
                    raise
                await asyncio.sleep(retries.retry_pause_s(error))
        raise AssertionError("the last attempt returns or raises")

    def _leave_address(self, stubs: Stubs) -> None:
        """Use the next address from now on, unless there is only one, or another RPC has left this address already."""
        if len(self._endpoints) > 1 and stubs is self._stubs and self._endpoint is not None:
            self._failed_address, self._endpoint, self._channel, self._stubs = self._endpoint.address, None, None, None

    def _find_stream(
        self, stubs: Stubs, request: call_pb2.CallMethodRequest, *, with_answers: bool = False
    ) -> CallStream:
        """Return the stream that takes a call. Raises NotSent."""
        stream = self._call_streams.current(self._stream_key(stubs))
        if stream is None or not stream.can_take(request, with_answers=with_answers):
            raise NotSent
        return stream

    def _stream_key(self, stubs: Stubs) -> object:
        """Return the channel and the credentials: a stream is used only while both stay the same."""
        return (stubs, *self._credentials())

    async def _send_unary(self, method: aio.UnaryUnaryMultiCallable[Q, A], request: Q) -> A:
        """Send an RPC once, with metadata, and return the response. Raises HubbubError."""
        try:
            rpc = method(request, metadata=self._metadata())
            response = await await_response(rpc)
            if self._channels.several:
                self._seen_revisions.note_metadata(await rpc.trailing_metadata())
        except aio.AioRpcError as failure:
            if self._channels.several:
                self._seen_revisions.note_metadata(failure.trailing_metadata())
            raise from_rpc(failure) from None
        except aio.BaseError as failure:
            raise _not_sent_error(failure) from None
        except asyncio.CancelledError:
            self._check_closed()
            raise
        return response

    async def stream(
        self, method: Callable[[Stubs], aio.UnaryStreamMultiCallable[Q, A]], request: Q
    ) -> AsyncGenerator[A, None]:
        """Yield the responses of a streaming RPC until the hub ends it. Raises HubbubError.

        The hub sends bookmarks, so a stream that is silent for `silence_s` seconds is dead: Unavailable. Its channel is
        retired too, even if its socket is still open, and the next RPC looks up the hub again.
        """
        stubs = await self.connected_stubs()
        async with contextlib.aclosing(
            self._read_responses(stubs, method(stubs)(request, metadata=self._metadata()))
        ) as responses:
            async for response in responses:
                yield response

    @contextlib.asynccontextmanager
    async def open_dialogue(
        self, method: Callable[[Stubs], aio.StreamStreamMultiCallable[Q, A]]
    ) -> AsyncGenerator[tuple[Callable[[Q], Awaitable[None]], AsyncGenerator[A, None]], None]:
        """Open a bidirectional RPC for the block; yield a function that sends a request, and the responses."""
        stubs = await self.connected_stubs()
        stream = method(stubs)(metadata=self._metadata())
        write_lock = asyncio.Lock()  # two writes at once would break the stream without the hub's knowledge

        async def send_request(message: Q) -> None:
            """Send a request. Raises HubbubError, also if the stream has ended."""
            try:
                async with write_lock:
                    await stream.write(message)
            except aio.AioRpcError as failure:
                raise from_rpc(failure) from None
            except asyncio.InvalidStateError:  # raised by gRPC for a stream that has ended; a read says why
                raise await _explain_end(stream) from None

        async with contextlib.aclosing(self._read_responses(stubs, stream)) as responses:
            yield send_request, responses

    async def _read_responses(self, stubs: Stubs, stream: "Readable[A]") -> AsyncGenerator[A, None]:
        """Yield the responses of a stream to its end; after `silence_s` without one, retire it. Raises HubbubError."""
        try:
            while True:
                async with within(self._silence_s):
                    response = await stream.read()
                if response is EOF:
                    return
                yield cast("A", response)
        except aio.AioRpcError as failure:
            error = from_rpc(failure)
            from hubbub_client.transport import retries

            if retries.must_leave_address(error):
                self._leave_address(stubs)
            raise error from None
        except aio.BaseError as failure:
            raise _not_sent_error(failure) from None
        except TimeoutError:
            await self._retire_channel(stubs)
            raise Unavailable(f"the hub sent nothing for {self._silence_s:g} s", reason="HUB_SILENT") from None
        except asyncio.CancelledError:
            self._check_closed()
            raise
        finally:
            stream.cancel()

    async def refresh_if_found(self) -> bool:
        """Look up the hub again and return whether its address or token has changed; False if no hub is found."""
        with contextlib.suppress(Unavailable):
            return await self.refresh()
        return False

    def explain_refusal(self, error: HubbubError) -> HubbubError:
        """Return the error, or Unavailable if another hub answers at the address in `client.json`."""
        from hubbub_client.transport import retries

        return retries.explain_refusal(error, self._endpoint)

    def _check_closed(self) -> None:
        """Raise Cancelled if `close` has cancelled the RPC, which does not cancel the task that waits for it."""
        task = asyncio.current_task()
        if self._closed and task is not None and not task.cancelling():
            raise closed_meanwhile_error() from None

    def note_resume_token(self, resume_token: str) -> None:
        """Note the resume token of a response: the next member must not be behind it."""
        if self._channels.several:
            self._seen_revisions.note_token(resume_token)

    async def _retire_channel(self, stubs: Stubs) -> None:
        """Retire a silent channel: it gets no new RPCs, and those under way may finish."""
        if stubs is self._stubs and self._endpoint is not None:
            self._failed_address = self._endpoint.address
            await self._channels.retire(self._endpoint)
            self._endpoint = self._channel = self._stubs = None

    async def _connect(self, patient: bool) -> bool:
        """Look up the hub until it is connected; return False once closed or, unless `patient`, once refused."""
        while not self._closed:
            await (self.refresh_if_found() if patient else self.refresh())  # `refresh` raises without an address
            if len(self._endpoints) > 1:
                connected, refused = await self._try_addresses(patient)
            else:
                connected = await self._wait_for_channel(patient)
                refused = not connected and is_refused(self._channel)
            if connected:
                return True
            if refused and not patient:
                break
        return False

    async def _try_addresses(self, patient: bool) -> tuple[bool, bool]:
        """Use the first address that answers, if any; return whether one did, and whether all refuse the connection."""
        from hubbub_client.transport.addresses import Walk

        walk = Walk(self._endpoints, self._channels.channel_to)
        endpoint = await walk.find_connected(lambda: not self._closed, patient=patient)
        if endpoint is not None and (self._endpoint is None or endpoint.key != self._endpoint.key):
            self._use_address(endpoint)
        return endpoint is not None, walk.refused

    async def _wait_for_channel(self, patient: bool) -> bool:
        """Return whether the channel connects within LOOK_AGAIN_S seconds; unless `patient`, False once refused."""
        # Polled, since a wait for the channel's next state cannot be cancelled.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOOKUP_INTERVAL_S
        while not is_ready(self._channel, connect=True):
            if self._closed or loop.time() >= deadline or (is_refused(self._channel) and not patient):
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _explain_unreachable(self) -> Unavailable:
        """Return the error for a hub that is not found, or does not answer, with the reason."""
        try:
            endpoints = discover_all(self._where)
        except Unavailable as error:
            return error
        from hubbub_client.transport.handshake import unreachable_error  # imported late, since few programs need it

        return await unreachable_error(endpoints, self._connect_timeout_s / 4)

    def _metadata(self) -> list[tuple[str, str | bytes]]:
        """Return the metadata of an RPC: credentials, newest revision, trace."""
        return [*self._untraced_metadata(), *trace_context.metadata()]

    def _untraced_metadata(self) -> list[tuple[str, str | bytes]]:
        """Return the metadata of an RPC but its trace: credentials and, with several addresses, the revision seen."""
        metadata = self._credentials()
        if self._channels.several:
            metadata.append(self._seen_revisions.metadata())  # so that no member shows anything older
        return metadata

    def _credentials(self) -> list[tuple[str, str | bytes]]:
        """Return the metadata that identify the caller: token, and name."""
        metadata: list[tuple[str, str | bytes]] = []
        if self._endpoint and self._endpoint.token:
            metadata.append(("authorization", f"Bearer {self._endpoint.token}"))
        if self._name:
            metadata.append(_name_metadata(self._name))
        return metadata


def closed_error() -> FailedPrecondition:
    """Return the error for a use of the connection after its end."""
    return FailedPrecondition(
        "this connection is closed, because its `with` block has ended; connect again", reason="CLOSED"
    )


def closed_meanwhile_error() -> Cancelled:
    """Return the error for a wait that the end of the connection has ended."""
    return Cancelled("the connection was closed before the hub responded", reason="CLOSED")


def _name_metadata(name: str) -> tuple[str, str | bytes]:
    """Return the metadata entry for a name; the hub refuses one that is not valid text."""
    if name.isascii() and name.isprintable():
        return "hubbub-as", name
    return "hubbub-as-bin", name.encode(errors="surrogatepass")


async def _explain_end(stream: "aio.StreamStreamCall[Q, A]") -> HubbubError:
    """Return why a dialogue has ended: the hub's error, or Unavailable if it ended without one."""
    if not stream.cancelled():  # reading a cancelled stream would cancel this task
        try:
            await stream.read()
        except aio.AioRpcError as failure:
            return from_rpc(failure)
    return Unavailable("the stream to the hub has ended", reason="STREAM_ENDED")


def _not_sent_error(failure: Exception) -> HubbubError:
    """Return the error for a request that gRPC could not send."""
    return InvalidArgument(f"the request cannot be sent: {failure}", reason="REQUEST_UNSENDABLE")
