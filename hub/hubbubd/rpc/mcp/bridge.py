"""MCP hosts behind the bridge `hubbub mcp`, which carries their messages over one stream.

    bridge ──> reader ──> BridgedHost ──> outlet ──> writer ──> bridge

A bridge that reads slowly holds up only its own host: while much waits to be written, nothing more is read of it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from hubbub.v1 import mcp_pb2 as pb
from hubbubd.config.sections.mcp import DEFAULT
from hubbubd.core.access import Principal
from hubbubd.core.hosts.endpoint_paths import PROFILE, SERVER, EndpointName
from hubbubd.downstream import BridgedHost, BridgedHosts, HostLimits, HostOutbox, McpEndpoint, McpEndpoints, StateTokens
from hubbubd.errors import InvalidArgument, ResourceExhausted, Unavailable
from hubbubd.rpc.context import current, principal
from hubbubd.rpc.messages import requests
from hubbubd.rpc.methods import Write
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import BOOKMARK_S
from hubbubd.store.vault.state_keys import StateKeyRing

FRAME_BYTES = 1024
"""The most bytes of a frame beside its only message."""

MAX_MESSAGES = 1000
"""The most messages in one frame of a bridge."""

PAUSE_READING_BYTES = 4 * 1024 * 1024
"""While more bytes wait to be read by a bridge, the hub reads no further messages of it."""

MAX_UNREAD_MESSAGES = 4
"""How many of the longest messages may wait to be read by a bridge; beyond that its stream is ended."""

MAX_BATCH_BYTES = 64 * 1024
"""The most bytes of messages that share a frame: gRPC costs most per message, so short ones are batched."""

LAST_RESPONSES_S = 1.0
"""Seconds after the hub has stopped for the last requests to get responses, which are refusals by then."""

_SESSION_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")


class BridgeEndpoints:
    """The endpoints, as bridges reach them. `charge` counts a request; it raises HubError beyond a principal's rate."""

    def __init__(
        self, hub: Hub, state_keys: StateKeyRing, charge: Callable[[Principal], None], max_message_bytes: int
    ) -> None:
        self._hub = hub
        self._endpoints = McpEndpoints(hub, StateTokens(state_keys, hub.clock))
        self._hosts = BridgedHosts(
            hub.calls, hub.clock.steady, charge, lambda: HostLimits.from_settings(hub.configuration.settings)
        )
        self._max_message_bytes = max_message_bytes - FRAME_BYTES

    async def serve(self, frames: AsyncIterator[pb.ServeRequest], write: Write) -> None:
        """Carry one host's messages until the host leaves or the stream breaks.

        Raises InvalidArgument, NotFound, ResourceExhausted (WATCHER_TOO_SLOW), Unavailable (SHUTTING_DOWN,
        STORE_UNAVAILABLE).
        """
        first = await anext(frames, None)
        if first is None or not first.HasField("open"):
            raise InvalidArgument.field("open", "must be in the first message")
        if not _SESSION_KEY.fullmatch(first.open.session_key):
            raise InvalidArgument.field("open.session_key", "must be 16 to 64 letters, digits, `_` and `-`")
        endpoint = self._find_endpoint(first.open, principal())
        opened = pb.ServeResponse.Opened(
            max_message_bytes=self._max_message_bytes, questions=self._endpoints.who_answers(endpoint)
        )
        await write(pb.ServeResponse(opened=opened).SerializeToString())
        outlet = HostOutbox(MAX_UNREAD_MESSAGES * (self._max_message_bytes + FRAME_BYTES))
        host = self._hosts.add_stream(principal(), first.open.session_key, endpoint, outlet)
        stream = _BridgeStream(host, outlet, write, self._hub)
        removed = asyncio.create_task(endpoint.wait_until_removed())
        removed.add_done_callback(lambda _: outlet.close())
        try:
            stream.receive_frame(first)
            await stream.run(frames)
            if removed.done():
                raise endpoint.removed_error
        finally:
            removed.cancel()
            # The calls of a host that has left are cancelled now; others may open a stream again for a while.
            self._hosts.end_stream(host, has_left=stream.host_has_left or not current().is_credential_valid())
        if outlet.overrun:
            raise ResourceExhausted("this bridge does not read what the hub says", reason="WATCHER_TOO_SLOW")
        if self._hub.calls.stopped.is_set():
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN")

    def _find_endpoint(self, opening: pb.ServeRequest.Open, caller: Principal) -> McpEndpoint:
        """Return the endpoint that a bridge asks for. Raises InvalidArgument, NotFound."""
        if opening.WhichOneof("endpoint") == "server":
            name = EndpointName(SERVER, requests.identifier(opening.server, "open.server"))
        else:
            name = EndpointName(PROFILE, requests.optional_identifier(opening.profile, "open.profile") or DEFAULT)
        return self._endpoints.find(name, caller)


class _BridgeStream:
    """One stream of a bridge."""

    def __init__(self, host: BridgedHost, outlet: HostOutbox, write: Write, hub: Hub) -> None:
        self.host_has_left = False
        self.received_count = 0
        self._host = host
        self._outlet = outlet
        self._write = write
        self._hub = hub
        self._calls = hub.calls
        self._outlet_drained = asyncio.Event()

    async def run(self, frames: AsyncIterator[pb.ServeRequest]) -> None:
        """Carry messages until one side ends the stream. Raises InvalidArgument and Unavailable."""
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read_frames(frames))
            stopper = tasks.create_task(self._end_with_hub(reader))
            await self._write_messages()
            reader.cancel()
            stopper.cancel()

    def receive_frame(self, frame: pb.ServeRequest) -> None:
        """Pass the messages of a frame to the host's endpoint; note whether the host leaves. Raises InvalidArgument."""
        if len(frame.messages) > MAX_MESSAGES:
            problem = f"has {len(frame.messages)} entries; at most {MAX_MESSAGES} are taken"
            raise InvalidArgument.field("messages", problem)
        for message in frame.messages:
            self._host.receive(message, again=frame.again)
        self.received_count += len(frame.messages)
        self.host_has_left = frame.leave

    async def _read_frames(self, frames: AsyncIterator[pb.ServeRequest]) -> None:
        """Receive frames until the host leaves or its credential ends. Raises InvalidArgument, Unavailable."""
        async for frame in frames:
            if frame.HasField("open"):
                raise InvalidArgument.field("open", "may only be in the first message")
            if not current().is_credential_valid():
                break  # the gate ends the stream, and says why
            if frame.again:  # sent before to another member, whose calls this one may not know yet
                await self._hub.catch_up()
            self.receive_frame(frame)
            if self.host_has_left:
                break
            while self._outlet.unread_bytes > PAUSE_READING_BYTES and not self._outlet.closed:
                self._outlet_drained.clear()
                await self._outlet_drained.wait()
        self._outlet.close()

    async def _end_with_hub(self, reader: asyncio.Task[None]) -> None:
        """Once the hub has stopped, read no more, and end the stream when all received requests have responses.

        Without a response, a bridge must assume that the request may have been carried out.
        """
        await self._calls.stopped.wait()
        reader.cancel()
        await self._host.finish(LAST_RESPONSES_S)
        self._outlet.close()

    async def _write_messages(self) -> None:
        """Write the outlet's messages until it is closed; when there are none for a while, an empty frame."""
        while True:
            await self._outlet.wait_for_news(BOOKMARK_S)
            messages = self._outlet.take_all()
            if self._outlet.closed and not messages:
                if self._calls.stopped.is_set():
                    await self._write(pb.ServeResponse(taken=self.received_count).SerializeToString())
                return
            for frame in _pack_frames(messages, draining=self._calls.draining) if messages else [b""]:
                await self._write(frame)
            self._outlet_drained.set()


def _pack_frames(messages: list[bytes], *, draining: bool) -> list[bytes]:
    """Return messages as serialized frames: short ones share a frame of MAX_BATCH_BYTES at most."""
    frames: list[bytes] = []
    batch: list[bytes] = []
    size = 0
    for message in messages:
        if batch and size + len(message) > MAX_BATCH_BYTES:
            frames.append(pb.ServeResponse(messages=batch, draining=draining).SerializeToString())
            batch, size = [], 0
        batch.append(message)
        size += len(message)
    return [*frames, pb.ServeResponse(messages=batch, draining=draining).SerializeToString()]
