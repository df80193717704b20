"""Events for one browser, as they happen; nothing is stored."""

import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator

import anyio

from hubbub_client.data.records import EventKind, ServerEvent
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_web.records.feed import BATCH_PAUSE_S, HEARTBEAT_S, json_line
from hubbub_web.records.followed_stream import FollowedStream

MAX_WAITING = 500
"""Events that wait for a slow browser; the oldest beyond that are dropped, and counted."""

MAX_PARAMS_CHARS = 4000
"""Characters of an event's params."""


class EventStream(FollowedStream):
    """One stream of events: `follow` fills it, `lines` drains it."""

    def __init__(self, hub: Hub, server: str | None, kind: EventKind | None) -> None:
        super().__init__()
        self._hub = hub
        self._server = server
        self._kinds: list[EventKind] = [kind] if kind else []
        # Lines to send, and how many were dropped here since there were too many.
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        # Drops reported by the present watch of the hub, and the sum of those before.
        self._lost = self._lost_before = 0
        self._refusal: str | None = None

    async def follow(self) -> None:
        """Buffer events until the hub refuses to send more."""
        events = self._hub.events.watch(
            server=self._server, kinds=self._kinds, on_listening=self._keep_lost_count, on_dropped=self._set_lost
        )
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self._buffer(event)
        except HubbubError as error:
            self._refusal = error.message
            self._wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield events as lines of JSON; after each batch, and at least every HEARTBEAT_S seconds, `{"dropped": N}`.

        When the hub refuses to go on, the last line is `{"refused": MESSAGE}`.
        """
        while not self._closed:
            changed = self._changed
            batch = [*self._waiting]
            self._waiting.clear()
            yield b"".join((*batch, json_line({"dropped": self._dropped + self._lost + self._lost_before})))
            if self._refusal is not None:
                yield json_line({"refused": self._refusal})
                return
            with anyio.move_on_after(HEARTBEAT_S):
                await changed.wait()
                await anyio.sleep(BATCH_PAUSE_S)

    def _buffer(self, event: ServerEvent) -> None:
        """Add an event to the lines to send; drop the oldest if there are too many."""
        fields = event.to_json()
        params = json.dumps(fields["params"])
        if len(params) > MAX_PARAMS_CHARS:
            fields["params"] = {"shortened": params[:MAX_PARAMS_CHARS]}
        if len(self._waiting) == MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(json_line({"event": fields}))
        self._wake()

    def _keep_lost_count(self) -> None:
        """Add what the watch has lost so far to the sum: the next watch counts from zero."""
        self._lost_before += self._lost
        self._lost = 0

    def _set_lost(self, count: int) -> None:
        """Set how many events the present watch has lost."""
        self._lost = count
        self._wake()
