"""The connection to the hub: opens its channel, replaces it when the hub moves, and sends every RPC over it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar, cast

from grpc import aio
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType] - not in its stubs

from hubbub.v1 import call_pb2
from hubbub_client import tracing
from hubbub_client.call_stream import CallStream, CallStreams, Hear, NotSent
from hubbub_client.channel import MAX_MESSAGE_BYTES, Stubs, is_ready, is_refused, open_channel
from hubbub_client.discovery import Endpoint, Where, discover
from hubbub_client.errors import (
    Cancelled,
    ConnectionLost,
    FailedPrecondition,
    HubbubError,
    InvalidArgument,
    Unauthenticated,
    Unavailable,
    from_rpc,
)
from hubbub_client.waits import within

if TYPE_CHECKING:
    from google.protobuf.message import Message

Q = TypeVar("Q")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

PAGE_SIZE = 200
# How often a client that waits for its hub looks up the address again.
LOOK_AGAIN_S = 0.25
POLL_S = 0.005
# How often an RPC that the hub has not served is sent again.
MAX_RETRIES = 2
# Bound of replaced channels that stay open for RPCs under way.
MAX_RETIRED = 4


class Readable(Protocol[A_co]):
    """An RPC with a stream of responses."""

    def read(self) -> Awaitable[A_co | object]:
        """Return the next response, or EOF."""
        ...

    def cancel(self) -> object:
        """Cancel the RPC."""
        ...


class Link:
    """Connection to one hub, which may move to another address."""

    def __init__(
        self,
        where: Where,
        name: str | None,
        connect_timeout_s: float,
        silence_s: float,
    ) -> None:
        self._where = where
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._silence_s = silence_s
        self._endpoint: Endpoint | None = None
        self._channel: aio.Channel | None = None
        self._stubs: Stubs | None = None
        self._retired: deque[aio.Channel] = deque()
        self._calls = CallStreams(MAX_MESSAGE_BYTES)
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def address(self) -> str:
        """Return the address at which the hub was last found, empty before that."""
        return self._endpoint.address if self._endpoint else ""

    @property
    def connected(self) -> bool:
        """Return whether the channel is connected."""
        return is_ready(self._channel)

    async def close(self) -> None:
        """Close all channels, which ends every RPC."""
        self._closed = True
        self._calls.end(closed_meanwhile())
        for channel in (self._channel, *self._retired):
            if channel is not None:
                await channel.close()

    async def ready(self, *, patient: bool = True) -> Stubs:
        """Return the stubs, connected. Raises Unavailable after `connect_timeout_s` seconds without a hub.

        If not `patient`, raise it at once when no address is known or nobody listens there. Raises FailedPrecondition
        (CLOSED) after `close`.
        """
        connected = is_ready(self._channel)  # asked once: a channel that is lost meanwhile is found out by its RPC
        if not (self._closed or connected):
            with contextlib.suppress(TimeoutError):
                async with within(self._connect_timeout_s), self._lock:
                    connected = await self._connect(patient)
        if self._closed:
            raise closed()
        if self._stubs is None or not connected:
            raise await self._unreachable()
        return self._stubs

    async def refresh(self) -> bool:
        """Look up the hub again and return whether its address or token has changed. Raises as `discover`."""
        endpoint = discover(self._where)
        before = self._endpoint
        if before is not None and (before.address, before.tls) == (endpoint.address, endpoint.tls):
            self._endpoint = endpoint
            return before.token != endpoint.token
        await self._retire()
        self._endpoint = endpoint
        self._channel = open_channel(endpoint)
        self._stubs = Stubs(self._channel)
        return True

    async def call(self, method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Q, A]], request: Q) -> A:
        """Send a unary RPC and return the response. Raises HubbubError."""
        return await self._tried(request, lambda stubs: self._sent(method(stubs), request))

    async def make_call(self, request: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        """As `call` of CallMethod, over the stream of calls once there is one."""

        async def make(stubs: Stubs) -> call_pb2.CallMethodResponse:
            try:
                return await self._carried(stubs, request, None)
            except NotSent:
                stubs = await self.ready()  # it may have been a while
            self._calls.want(self._stream_key(stubs), lambda: stubs.calls.StreamCalls(metadata=self._credentials()))
            return await self._sent(stubs.calls.CallMethod, request)

        return await self._tried(request, make)

    async def follow_call(self, request: call_pb2.CallMethodRequest, hear: Hear) -> call_pb2.CallMethodResponse:
        """As `make_call`, and hear what happens meanwhile. Raises NotSent if there is no stream for it."""
        self._stream(await self.ready(), request)  # not within the RPC's span: there may be none
        return await self._tried(request, lambda stubs: self._carried(stubs, request, hear))

    async def _tried(self, request: object, send: Callable[[Stubs], Awaitable[A]]) -> A:
        for may_retry in (*[True] * MAX_RETRIES, False):
            stubs = await self.ready()
            try:
                with tracing.rpc(cast("Message", request), self.address):
                    return await send(stubs)
            except Unauthenticated:
                if not (may_retry and await self.moved()):
                    raise
            except ConnectionLost as lost:
                if not may_retry or (lost.sent and not _only_reads(cast("Message", request))):
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _carried(
        self, stubs: Stubs, request: call_pb2.CallMethodRequest, hear: Hear | None
    ) -> call_pb2.CallMethodResponse:
        return await self._stream(stubs, request).call(request, hear)

    def _stream(self, stubs: Stubs, request: call_pb2.CallMethodRequest) -> CallStream:
        """Return the stream that takes a call. Raises NotSent."""
        stream = self._calls.current(self._stream_key(stubs))
        if stream is None or not stream.takes(request):
            raise NotSent
        return stream

    def _stream_key(self, stubs: Stubs) -> object:
        """Return what a stream is good for: one channel, and the credentials that it was opened with."""
        return (stubs, *self._credentials())

    async def _sent(self, method: aio.UnaryUnaryMultiCallable[Q, A], request: Q) -> A:
        try:
            return await _response(method(request, metadata=self._metadata()))
        except aio.AioRpcError as failure:
            raise from_rpc(failure) from None
        except aio.BaseError as failure:
            raise _unsendable(failure) from None
        except asyncio.CancelledError:
            self._check_closed()
            raise

    async def stream(
        self, method: Callable[[Stubs], aio.UnaryStreamMultiCallable[Q, A]], request: Q
    ) -> AsyncGenerator[A, None]:
        """Yield the responses of a streaming RPC until the hub ends it. Raises HubbubError.

        The hub sends bookmarks, so a stream that is silent for `silence_s` seconds is dead: Unavailable. Its channel is
        retired too, even if its socket is still open, and the next RPC looks up the hub again.
        """
        stubs = await self.ready()
        async with contextlib.aclosing(
            self._responses(stubs, method(stubs)(request, metadata=self._metadata()))
        ) as responses:
            async for response in responses:
                yield response

    @contextlib.asynccontextmanager
    async def dialogue(
        self, method: Callable[[Stubs], aio.StreamStreamMultiCallable[Q, A]]
    ) -> AsyncGenerator[tuple[Callable[[Q], Awaitable[None]], AsyncGenerator[A, None]], None]:
        """Open a bidirectional RPC for the block: a function that sends a request, and the responses as `stream`."""
        stubs = await self.ready()
        stream = method(stubs)(metadata=self._metadata())
        one_at_a_time = asyncio.Lock()  # two writes at once would break the stream without the hub's knowledge

        async def say(message: Q) -> None:
            try:
                async with one_at_a_time:
                    await stream.write(message)
            except aio.AioRpcError as failure:
                raise from_rpc(failure) from None
            except asyncio.InvalidStateError:  # raised by gRPC for a stream that has ended; a read says why
                raise await _why_ended(stream) from None

        async with contextlib.aclosing(self._responses(stubs, stream)) as responses:
            yield say, responses

    async def _responses(self, stubs: Stubs, stream: "Readable[A]") -> AsyncGenerator[A, None]:
        try:
            while True:
                async with within(self._silence_s):
                    response = await stream.read()
                if response is EOF:
                    return
                yield cast("A", response)
        except aio.AioRpcError as failure:
            raise from_rpc(failure) from None
        except aio.BaseError as failure:
            raise _unsendable(failure) from None
        except TimeoutError:
            if stubs is self._stubs:
                await self._retire()
            raise Unavailable(f"the hub sent nothing for {self._silence_s:g} s", reason="HUB_SILENT") from None
        except asyncio.CancelledError:
            self._check_closed()
            raise
        finally:
            stream.cancel()

    async def moved(self) -> bool:
        """As `refresh`, but return False if no hub is found."""
        with contextlib.suppress(Unavailable):
            return await self.refresh()
        return False

    def _check_closed(self) -> None:
        """Raise Cancelled if `close` has cancelled the RPC, which does not cancel the task that waits for it."""
        task = asyncio.current_task()
        if self._closed and task is not None and not task.cancelling():
            raise closed_meanwhile() from None

    async def _retire(self) -> None:
        """Keep new RPCs off the channel; those under way may finish."""
        if self._channel is not None:
            self._retired.append(self._channel)
            self._channel = self._stubs = self._endpoint = None
        if len(self._retired) > MAX_RETIRED:
            await self._retired.popleft().close()

    async def _connect(self, patient: bool) -> bool:
        """Look up the hub until it is connected and return True; if not `patient`, False once it is refused."""
        while not self._closed:
            await (self.moved() if patient else self.refresh())
            if await self._opened(patient):
                return True
            if not patient and is_refused(self._channel):
                break
        return False

    async def _opened(self, patient: bool) -> bool:
        """Return whether the channel connects within LOOK_AGAIN_S seconds."""
        # Polled, since a wait for the channel's next state cannot be cancelled.
        clock = asyncio.get_running_loop()
        last = clock.time() + LOOK_AGAIN_S
        while not is_ready(self._channel, connect=True):
            if self._closed or clock.time() >= last or (is_refused(self._channel) and not patient):
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _unreachable(self) -> Unavailable:
        try:
            endpoint = discover(self._where)
        except Unavailable as nowhere:
            return nowhere
        from hubbub_client.handshake import problem  # imported late, since few programs need it

        what = await problem(endpoint, self._connect_timeout_s / 4)
        return Unavailable(
            f"no connection to the hub at {endpoint.address} ({endpoint.source}): {what}"
            if what
            else f"no hub answers at {endpoint.address} ({endpoint.source}); `hubbub up -d` starts one",
            reason="HANDSHAKE_FAILED" if what else "HUB_UNREACHABLE",
            metadata={"address": endpoint.address},
        )

    def _metadata(self) -> list[tuple[str, str | bytes]]:
        return [*self._credentials(), *tracing.metadata()]

    def _credentials(self) -> list[tuple[str, str | bytes]]:
        metadata: list[tuple[str, str | bytes]] = []
        if self._endpoint and self._endpoint.token:
            metadata.append(("authorization", f"Bearer {self._endpoint.token}"))
        if self._name:
            metadata.append(_named(self._name))
        return metadata


def _only_reads(request: "Message") -> bool:
    """Return whether an RPC changes nothing at the hub, so that it may be sent again: AIP-131, AIP-132."""
    return request.DESCRIPTOR.name.startswith(("Get", "List"))


def closed() -> FailedPrecondition:
    """Return the error for a use of the connection after its end."""
    return FailedPrecondition(
        "this connection is closed, because its `with` block has ended; connect again", reason="CLOSED"
    )


def closed_meanwhile() -> Cancelled:
    """Return the error for a wait that the end of the connection has ended."""
    return Cancelled("the connection was closed before the hub responded", reason="CLOSED")


def _named(name: str) -> tuple[str, str | bytes]:
    """Return the metadata entry for a name; the hub refuses one that is not valid text."""
    if name.isascii() and name.isprintable():
        return "hubbub-as", name
    return "hubbub-as-bin", name.encode(errors="surrogatepass")


async def _why_ended(stream: "aio.StreamStreamCall[Q, A]") -> HubbubError:
    """Return why a dialogue has ended: the hub's error, or Unavailable if it ended without one."""
    if not stream.cancelled():  # reading a cancelled stream would cancel this task
        try:
            await stream.read()
        except aio.AioRpcError as failure:
            return from_rpc(failure)
    return Unavailable("the stream to the hub has ended", reason="STREAM_ENDED")


async def _response(call: aio.UnaryUnaryCall[Q, A]) -> A:
    """Return the response. gRPC loses track of who cancelled a wait, which cancel scopes must know, so wait in a task.

    Done callbacks of gRPC would not do: a request that its core refuses has none.
    """
    waiting = asyncio.ensure_future(_outcome(call))
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait((waiting,))
    finally:
        call.cancel()  # does nothing if it is done
    return waiting.result()


async def _outcome(call: aio.UnaryUnaryCall[Q, A]) -> A:
    return await call


def _unsendable(failure: Exception) -> HubbubError:
    return InvalidArgument(f"the request cannot be sent: {failure}", reason="REQUEST_UNSENDABLE")


class Page(TypedDict):
    """Fields of every list request that choose the page."""

    page_size: int
    page_token: str


async def pages(fetch: Callable[[Page], Awaitable[tuple[Sequence[A], str]]], limit: int | None = None) -> list[A]:
    """Fetch a list page by page and return at most `limit` records of it."""
    found: list[A] = []
    token = ""
    while limit is None or len(found) < limit:
        size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(found))
        records, token = await fetch(Page(page_size=size, page_token=token))
        found += records
        if not token:
            break
    return found
