"""The bridge's connection to the hub: one stream at a time, opened again when it breaks. It imports gRPC."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from hubbub.v1 import mcp_pb2 as pb
from hubbub_bridge.conversation import Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.starting import HubStarter
from hubbub_client.errors import HubbubError, ResourceExhausted, Unauthenticated, Unavailable, Unimplemented
from hubbub_client.transport.connection import HubConnection
from hubbub_client.waits import within

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
# Seconds before the hub is looked for again; twice as long each time.

CONNECT_S = 1.0
"""Seconds in which a hub that listens must let the bridge in."""

SILENCE_S = 15.0
"""Seconds without a message after which a hub is given up; it sends a sign of life each 5 s."""

GIVE_UP_AFTER_S = 20.0
"""Seconds without a hub after which requests fail instead of waiting for it."""

MAX_FRAME_MESSAGES, MAX_FRAME_BYTES = 1000, 64 * 1024
# Messages that wait to be sent go together up to this number and size: gRPC takes its price per message.

MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""While as much waits to be sent, nothing more is read from the host."""

SendFrame = Callable[[pb.ServeRequest], Awaitable[None]]


class Outbox:
    """Queued messages to the hub, for one stream."""

    def __init__(self) -> None:
        self.taken_count = 0
        """The number of messages that the hub may have taken."""
        # Messages to send, each with whether a hub may have taken it before, and their total bytes.
        self._queue: deque[tuple[bytes, bool]] = deque()
        self._queued_bytes = 0
        self._has_messages = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._is_leave_queued = False
        self.is_leave_sent = False
        """Whether the hub was told that the host has left."""

    def queue_message(self, message: bytes, again: bool) -> None:
        """Add a message to the end of the queue; `again`: a hub may have taken it before."""
        self._queue.append((message, again))
        self._queued_bytes += len(message)
        if self._queued_bytes > MAX_UNSENT_BYTES:
            self._has_capacity.clear()
        self._has_messages.set()

    def queue_leave(self) -> None:
        """Have `send_queued` tell the hub, after the queued messages, that the host has left."""
        self._is_leave_queued = True
        self._has_messages.set()

    @property
    def has_capacity(self) -> bool:
        """Whether at most MAX_UNSENT_BYTES wait to be sent, or the stream has ended."""
        return self._has_capacity.is_set()

    def release_waiters(self) -> None:
        """End each `wait_for_capacity`, since the stream has ended."""
        self._has_capacity.set()

    async def wait_for_capacity(self) -> None:
        """Wait until at most MAX_UNSENT_BYTES wait to be sent, or the stream ends."""
        await self._has_capacity.wait()

    async def send_queued(self, send: SendFrame) -> None:
        """Send the queued messages, and those queued later, until the host has left.

        If the hub refuses a message, return without an error: the reader of the stream gets that error, too.
        """
        with contextlib.suppress(HubbubError):
            while not self._is_leave_queued or self._queue:
                await self._has_messages.wait()
                self._has_messages.clear()
                while self._queue:
                    await send(self._next_frame())
            await send(pb.ServeRequest(leave=True))
            self.is_leave_sent = True

    def _next_frame(self) -> pb.ServeRequest:
        """Remove the next messages from the queue, and return them as one frame.

        From now on they count as messages that the hub may have taken (`taken_count`).
        """
        # `again` holds for a whole frame, so a frame ends before a message with another value.
        frame = pb.ServeRequest(again=self._queue[0][1])
        size = 0
        while self._queue and len(frame.messages) < MAX_FRAME_MESSAGES:
            message, again = self._queue[0]
            if again != frame.again or (size and size + len(message) > MAX_FRAME_BYTES):
                break
            self._queue.popleft()
            frame.messages.append(message)
            size += len(message)
        self.taken_count += len(frame.messages)
        self._queued_bytes -= size
        if self._queued_bytes <= MAX_UNSENT_BYTES:
            self._has_capacity.set()
        return frame


class Uplink:
    """Connects one conversation to the hub. `wait_for_host` returns once the host has read what was sent to it."""

    def __init__(
        self, endpoint: BridgeOptions, conversation: Conversation, wait_for_host: Callable[[], Awaitable[None]]
    ) -> None:
        self._connection = _make_connection(endpoint)
        self._open_message = _make_open_message(endpoint)
        self._conversation = conversation
        self._wait_for_host = wait_for_host
        # None: the bridge starts no hub.
        self._hub_starter = HubStarter(endpoint.where.data_dir) if endpoint.start else None
        self._outbox: Outbox | None = None
        # Ends the pause before the next attempt to connect, once it is set.
        self._retry_requested = asyncio.Event()
        # Why the hub refuses the bridge, if that is not likely to pass by itself.
        self._refusal: HubbubError | None = None
        self._pause_s = MIN_PAUSE_S
        # Since when there is no hub, by the clock of the loop.
        self._away_since_s = asyncio.get_running_loop().time()

    @property
    def connected(self) -> bool:
        """Whether there is a stream that the hub has accepted."""
        return self._outbox is not None

    def retry_now(self) -> None:
        """End the pause before the next attempt to connect, since the host has sent a request.

        After a refusal by the hub the pause goes on, and the waiting requests are answered without the hub.
        """
        self._retry_requested.set()
        if self._refusal is not None:
            self._answer_without_hub(self._refusal)

    @property
    def has_capacity(self) -> bool:
        """Whether at most MAX_UNSENT_BYTES wait to be sent, or there is no stream."""
        return self._outbox is None or self._outbox.has_capacity

    async def wait_for_capacity(self) -> None:
        """Wait until at most MAX_UNSENT_BYTES wait to be sent, or there is no stream."""
        if self._outbox is not None:
            await self._outbox.wait_for_capacity()

    async def run(self) -> None:
        """Connect the conversation to the hub, again and again, until cancelled or until the host has left."""
        try:
            while True:
                try:
                    await self._connection.refresh_if_found()  # a hub that was started again may have a new token
                    has_host_left = await self._run_stream()
                except HubbubError as error:
                    await self._wait_before_retry(self._connection.explain_refusal(error))
                else:
                    if has_host_left:
                        return
                    await self._wait_before_retry(Unavailable("the hub ended the connection", reason="STREAM_ENDED"))
        finally:
            await self._connection.close()

    def leave(self) -> None:
        """Queue a message that tells the hub that the host has left, which ends `run`. Do nothing without a hub."""
        if self._outbox is not None:
            self._outbox.queue_leave()

    async def _run_stream(self) -> bool:
        """Carry messages over one stream until the stream ends; return True if it ended because the host has left.

        If the hub ends the stream without an error, return False. Raises HubbubError otherwise.
        """
        async with self._connection.open_dialogue(lambda hub: hub.mcp.Serve) as (send, responses):
            await send(pb.ServeRequest(open=self._open_message))
            opening = await anext(responses, None)
            if opening is None or not opening.HasField("opened"):
                return False
            outbox = self._outbox = Outbox()
            write_task = asyncio.create_task(outbox.send_queued(send))
            self._pause_s, self._refusal = MIN_PAUSE_S, None
            try:
                self._conversation.on_connected(outbox.queue_message, opening.opened.max_message_bytes)
                await self._pass_messages(responses, outbox)
                return outbox.is_leave_sent
            finally:
                write_task.cancel()
                outbox.release_waiters()
                self._outbox = None
                self._away_since_s = asyncio.get_running_loop().time()
                self._retry_requested.clear()
                self._conversation.on_disconnected(outbox.taken_count)

    async def _pass_messages(self, responses: AsyncGenerator[pb.ServeResponse, None], outbox: Outbox) -> None:
        """Pass the messages of the hub to the conversation until the stream ends."""
        async for response in responses:
            if response.HasField("taken"):  # the hub shuts down, and says how many messages it has taken
                outbox.taken_count = response.taken
            for message in response.messages:
                self._conversation.handle_hub_message(message, draining=response.draining)
            await self._wait_for_host()  # a host that reads slowly slows the hub, so that no messages pile up here

    async def _wait_before_retry(self, error: HubbubError) -> None:
        """Wait before the next attempt to connect; `error` says why the last one failed.

        Before the wait, answer the host without the hub, if the hub refuses the bridge or is away for GIVE_UP_AFTER_S.
        Also start a hub, if none is there and the bridge is to start one.
        """
        is_lasting = not isinstance(error, (Unavailable, ResourceExhausted))  # these two may pass by themselves
        away_s = asyncio.get_running_loop().time() - self._away_since_s
        self._refusal = error if is_lasting else None
        if is_lasting or away_s >= GIVE_UP_AFTER_S:
            self._answer_without_hub(error)
        if self._hub_starter is not None and error.reason == "HUB_UNREACHABLE":
            self._hub_starter.start_hub()
        # The pause ends with GIVE_UP_AFTER_S at the latest, since requests fail only after an attempt to connect.
        pause_s = self._pause_s if away_s >= GIVE_UP_AFTER_S else min(self._pause_s, GIVE_UP_AFTER_S - away_s)
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with within(MAX_PAUSE_S if is_lasting else pause_s):
                # After a refusal, a request of the host does not end the pause: a hub limits wrong tokens. So this
                # waits for an event that nobody sets.
                await (asyncio.Event() if is_lasting else self._retry_requested).wait()
        self._retry_requested.clear()

    def _answer_without_hub(self, error: HubbubError) -> None:
        """Answer waiting requests of the host from the cache, and refuse the rest with an explanation."""
        self._conversation.answer_from_cache()
        self._conversation.fail_requests(explain_error(error))


async def fetch_question_routes(endpoint: BridgeOptions) -> dict[str, str]:
    """Return where the hub sends each kind of question of an endpoint: `host`, `inbox`, `both` or `host-first`.

    Return {} if the hub ends the stream without a message. Raises HubbubError.
    """
    connection = _make_connection(endpoint)
    try:
        async with connection.open_dialogue(lambda hub: hub.mcp.Serve) as (send, responses):
            await send(pb.ServeRequest(open=_make_open_message(endpoint), leave=True))
            opening = await anext(responses, None)
            return dict(opening.opened.questions) if opening is not None else {}
    finally:
        await connection.close()


def _make_connection(endpoint: BridgeOptions) -> HubConnection:
    """Return a connection to the hub of an endpoint, not open yet."""
    return HubConnection(endpoint.where, endpoint.name, CONNECT_S, SILENCE_S)


def _make_open_message(endpoint: BridgeOptions) -> pb.ServeRequest.Open:
    """Return the first message of a stream, which names the bridge and its endpoint."""
    return pb.ServeRequest.Open(
        session_key=endpoint.session_key, bridge_version=endpoint.version, **endpoint.endpoint_params
    )


def explain_error(error: HubbubError) -> str:
    """Return in words what is wrong and what to do about it, for the person at the host."""
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
