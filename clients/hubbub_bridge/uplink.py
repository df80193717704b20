"""The bridge's way to the hub: one stream at a time, opened again when it breaks. It imports gRPC."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from hubbub.v1 import mcp_pb2 as pb
from hubbub_bridge.conversation import Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.starting import StartedHub
from hubbub_client.errors import HubbubError, ResourceExhausted, Unauthenticated, Unavailable, Unimplemented
from hubbub_client.transport.connection import HubConnection
from hubbub_client.waits import within

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
# Seconds before the hub is looked for again; twice as long each time.

CONNECT_S = 1.0
"""Seconds in which a hub that listens must let the bridge in."""

SILENCE_S = 15.0
"""Seconds after which a hub that says nothing is given up; it shows each 5 s that it lives."""

GIVE_UP_AFTER_S = 20.0
"""Seconds without a hub after which requests fail instead of waiting for it."""

MAX_FRAME_MESSAGES, MAX_FRAME_BYTES = 1000, 64 * 1024
# Messages that wait to be sent go together up to this number and size: gRPC takes its price per message.

MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""While as much waits to be sent, nothing more is read from the host."""

SendFrame = Callable[[pb.ServeRequest], Awaitable[None]]


class Outbox:
    """Messages on their way to the hub, over one stream."""

    def __init__(self) -> None:
        self.reached = 0
        """The number of messages that the hub may have taken."""
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self._has_messages = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._leaving = False
        self.told_hub_of_end = False
        """Whether the hub was told that the host has left."""

    def queue_message(self, message: bytes, again: bool) -> None:
        """Put a message behind the others; `again`: a hub may have taken it before."""
        self._waiting.append((message, again))
        self._bytes += len(message)
        if self._bytes > MAX_UNSENT_BYTES:
            self._has_capacity.clear()
        self._has_messages.set()

    def leave(self) -> None:
        """Tell the hub, after what waits, that the host has left."""
        self._leaving = True
        self._has_messages.set()

    @property
    def has_capacity(self) -> bool:
        """Whether not too much waits to be sent."""
        return self._has_capacity.is_set()

    def abandon(self) -> None:
        """Let nobody wait for room: the stream has ended."""
        self._has_capacity.set()

    async def wait_for_capacity(self) -> None:
        """Wait until not too much waits to be sent."""
        await self._has_capacity.wait()

    async def write(self, send: SendFrame) -> None:
        """Send what comes, until the host has left. What the hub does not take, a read of the stream explains."""
        with contextlib.suppress(HubbubError):
            while not self._leaving or self._waiting:
                await self._has_messages.wait()
                self._has_messages.clear()
                while self._waiting:
                    await send(self._take_frame())
            await send(pb.ServeRequest(leave=True))
            self.told_hub_of_end = True

    def _take_frame(self) -> pb.ServeRequest:
        """Take the next messages, as one frame."""
        frame = pb.ServeRequest(again=self._waiting[0][1])
        size = 0
        while self._waiting and len(frame.messages) < MAX_FRAME_MESSAGES:
            message, again = self._waiting[0]
            if again != frame.again or (size and size + len(message) > MAX_FRAME_BYTES):
                break
            self._waiting.popleft()
            frame.messages.append(message)
            size += len(message)
        self.reached += len(frame.messages)
        self._bytes -= size
        if self._bytes <= MAX_UNSENT_BYTES:
            self._has_capacity.set()
        return frame


class Uplink:
    """Keeps one conversation with the hub going. `host_reads` returns once the host has read what it was told."""

    def __init__(
        self, endpoint: BridgeOptions, conversation: Conversation, host_reads: Callable[[], Awaitable[None]]
    ) -> None:
        self._link = _make_connection(endpoint)
        self._open = _make_opening(endpoint)
        self._conversation = conversation
        self._wait_for_host = host_reads
        self._own_hub = StartedHub(endpoint.where.data_dir) if endpoint.start else None
        self._outbox: Outbox | None = None
        self._look_soon = asyncio.Event()
        self._refusal: HubbubError | None = None
        self._pause_s = MIN_PAUSE_S
        self._away_since = asyncio.get_running_loop().time()

    @property
    def connected(self) -> bool:
        """Whether there is a stream that the hub has accepted."""
        return self._outbox is not None

    def look_now(self) -> None:
        """Look for the hub now, since the host has asked something; where it refuses the bridge, say so now."""
        self._look_soon.set()
        if self._refusal is not None:
            self._give_up(self._refusal)

    @property
    def has_capacity(self) -> bool:
        """Whether not too much waits to be sent."""
        return self._outbox is None or self._outbox.has_capacity

    async def wait_for_capacity(self) -> None:
        """Wait while too much waits to be sent."""
        if self._outbox is not None:
            await self._outbox.wait_for_capacity()

    async def run(self) -> None:
        """Keep the conversation going until cancelled, or until the host has left."""
        try:
            while True:
                try:
                    await self._link.moved()  # a hub that has started again may have another token
                    is_over = await self._stream()
                except HubbubError as error:
                    await self._wait_after(self._link.explain_refusal(error))
                else:
                    if is_over:
                        return
                    await self._wait_after(Unavailable("the hub ended the connection", reason="STREAM_ENDED"))
        finally:
            await self._link.close()

    def leave(self) -> None:
        """Tell the hub that the host has left, which ends `run`. Without a hub there is nobody to tell."""
        if self._outbox is not None:
            self._outbox.leave()

    async def _stream(self) -> bool:
        """Carry messages over one stream until it ends; True if it ended because the host has left."""
        async with self._link.dialogue(lambda hub: hub.mcp.Serve) as (send, responses):
            await send(pb.ServeRequest(open=self._open))
            opening = await anext(responses, None)
            if opening is None or not opening.HasField("opened"):
                return False
            outbox = self._outbox = Outbox()
            writing = asyncio.create_task(outbox.write(send))
            self._pause_s, self._refusal = MIN_PAUSE_S, None
            try:
                self._conversation.connected(outbox.queue_message, opening.opened.max_message_bytes)
                await self._read(responses, outbox)
                return outbox.told_hub_of_end
            finally:
                writing.cancel()
                outbox.abandon()
                self._outbox = None
                self._away_since = asyncio.get_running_loop().time()
                self._look_soon.clear()
                self._conversation.disconnected(outbox.reached)

    async def _read(self, responses: AsyncGenerator[pb.ServeResponse, None], outbox: Outbox) -> None:
        async for response in responses:
            if response.HasField("taken"):
                outbox.reached = response.taken
            for message in response.messages:
                self._conversation.from_hub(message, draining=response.draining)
            await self._wait_for_host()

    async def _wait_after(self, error: HubbubError) -> None:
        """Say what is wrong where that is due, and wait before the next attempt."""
        lasting = not isinstance(error, (Unavailable, ResourceExhausted))
        away_s = asyncio.get_running_loop().time() - self._away_since
        self._refusal = error if lasting else None
        if lasting or away_s >= GIVE_UP_AFTER_S:
            self._give_up(error)
        if self._own_hub is not None and error.reason == "HUB_UNREACHABLE":
            self._own_hub.start_hub()
        pause_s = self._pause_s if away_s >= GIVE_UP_AFTER_S else min(self._pause_s, GIVE_UP_AFTER_S - away_s)
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with within(MAX_PAUSE_S if lasting else pause_s):
                # A refusal is not asked for again at once, however often the host asks: a hub limits wrong tokens.
                await (asyncio.Event() if lasting else self._look_soon).wait()
        self._look_soon.clear()

    def _give_up(self, error: HubbubError) -> None:
        self._conversation.answer_from_cache()
        self._conversation.fail_requests(advise(error))


async def questions(endpoint: BridgeOptions) -> dict[str, str]:
    """Return who is asked what servers ask at an endpoint, by kind. Raises HubbubError."""
    connection = _make_connection(endpoint)
    try:
        async with connection.dialogue(lambda hub: hub.mcp.Serve) as (send, responses):
            await send(pb.ServeRequest(open=_make_opening(endpoint), leave=True))
            opening = await anext(responses, None)
            return dict(opening.opened.questions) if opening is not None else {}
    finally:
        await connection.close()


def _make_connection(endpoint: BridgeOptions) -> HubConnection:
    return HubConnection(endpoint.where, endpoint.name, CONNECT_S, SILENCE_S)


def _make_opening(endpoint: BridgeOptions) -> pb.ServeRequest.Open:
    return pb.ServeRequest.Open(
        session_key=endpoint.session_key, bridge_version=endpoint.version, **endpoint.endpoint_params
    )


def advise(error: HubbubError) -> str:
    """Return what is wrong, and what to do about it, for the person at the host."""
    match error:
        case Unauthenticated():
            return (
                f"the hub does not accept the token: {error.message}; look at HUBBUB_TOKEN in the host's "
                "configuration, or start the hub as the same user and leave it out"
            )
        case Unimplemented():
            return "this hub is older than `hubbub mcp`: update the hub, and start it again"
        case Unavailable(reason="HUB_UNREACHABLE"):
            return f"the hub is not running: {error.message}. Start it with `hubbub up -d` or `hubbub service start`"
        case _:
            return error.message
