"""What hosts were told on the streams of their requests, kept for a while, so that a broken stream can be resumed.

    tell ──> kept, by number ──┬──> outlet of the newest connection
    resume after a number ─────┘

A request goes on when its connection breaks; its response waits here. MCP 2025-11-25, basic/transports, resumability.
"""

import asyncio
import re
from collections import OrderedDict
from typing import Final

from hubbubd import bounds
from hubbubd.downstream.host import Outlet
from hubbubd.downstream.limits import Limits

_ID: Final = re.compile(r"(\d{1,15})_(\d{1,15})", re.ASCII)


class Replay:
    """The stream of one request. One connection has it at a time, the newest; it begins with event 1."""

    def __init__(self, kept: "Replays", key: int) -> None:
        self.outlet = Outlet()
        """What the newest connection is to be sent."""
        self.shown = False
        """Whether the host knows of the stream; else it cannot ask for it."""
        self._kept = kept
        self._key = key
        self._count = 0
        self._ended = False

    @property
    def quiet(self) -> bool:
        """Whether nothing was told before the response."""
        return not self._count

    def tell(self, message: bytes) -> None:
        """Put a message into the stream."""
        if not self._ended:
            self._add(message)
            self.outlet.tell(message)

    def follow(self, task: asyncio.Task[bytes]) -> None:
        """End the stream with the response of its request."""
        task.add_done_callback(self._end)

    def event_id(self, number: int) -> str:
        """Return what the host calls an event; 0 is before the first."""
        return f"{self._key}_{number}"

    def resumed(self, after: int) -> tuple[Outlet, int]:
        """Return the outlet for another connection, with what came after an event, and its first event's number."""
        self.outlet.close()
        self.outlet = Outlet()
        found = self._kept.after(self._key, after, self._count)
        for _, message in found:
            self.outlet.tell_last(message)
        if self._ended:
            self.outlet.close()
        return self.outlet, found[0][0] if found else self._count + 1

    def delivered(self) -> None:
        """Note that a connection took all of it: only the last event is kept, in case that it never arrived."""
        if self._ended:
            self._kept.only_last(self._key, self._count)

    def forget(self) -> None:
        """Keep nothing: the host does not know of the stream."""
        self._ended = True
        self._kept.forget(self._key)

    def _add(self, message: bytes) -> None:
        self._count += 1
        self._kept.add(self._key, self._count, message)

    def _end(self, task: asyncio.Task[bytes]) -> None:
        response = None if task.cancelled() or task.exception() is not None else task.result()
        if not self._ended and response is not None and (self.shown or self._count):
            self._add(response)
            self.outlet.tell_last(response)
        self._ended = True
        self.outlet.close()
        self._kept.ended(self._key)


class Replays:
    """All such streams of a session; beyond the limits the oldest events go."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next = 1
        self._streams: dict[int, Replay] = {}
        self._open: set[int] = set()
        self._events = OrderedDict[tuple[int, int], bytes]()
        self._held: dict[int, int] = {}
        """How many events of each stream are kept."""
        self.bytes = 0

    def __len__(self) -> int:
        """Return how many events are kept."""
        return len(self._events)

    def open(self) -> Replay:
        """Return the stream of a new request."""
        replay = self._streams[self._next] = Replay(self, self._next)
        self._open.add(self._next)
        self._next += 1
        return replay

    def find(self, event_id: str) -> tuple[Replay, int] | None:
        """Return the stream of an event with the event's number; None where it is not kept any more, or never was."""
        named = _ID.fullmatch(event_id)
        key, number = (bounds.whole_text(named[1]), bounds.whole_text(named[2])) if named else (None, None)
        replay = self._streams.get(key) if key is not None else None
        return None if number is None or replay is None else (replay, number)

    def clear(self) -> None:
        """Keep nothing any more."""
        for key in list(self._streams):
            self.forget(key)

    # For the streams

    def add(self, key: int, number: int, message: bytes) -> None:
        """Keep an event."""
        if key not in self._streams:
            return
        self._events[key, number] = message
        self._held[key] = self._held.get(key, 0) + 1
        self.bytes += len(message)
        self._bound(1)  # a long one that nobody has taken yet stays until the next one comes

    def after(self, key: int, number: int, last: int) -> list[tuple[int, bytes]]:
        """Return the events of a stream that come after one, as far as they are kept."""
        first = max(number + 1, last - self._limits.kept_events)
        return [(each, self._events[key, each]) for each in range(first, last + 1) if (key, each) in self._events]

    def only_last(self, key: int, last: int) -> None:
        """Forget all but the last event of a stream."""
        for each in range(max(1, last - self._limits.kept_events), last):
            self._drop(key, each)
        self._bound(0)

    def ended(self, key: int) -> None:
        """Note that nothing more comes on a stream."""
        self._open.discard(key)
        self._tidy(key)

    def forget(self, key: int) -> None:
        """Forget a stream."""
        self._open.discard(key)
        for each in [number for stream, number in self._events if stream == key] if key in self._held else ():
            self._drop(key, each)
        self._tidy(key)

    def _bound(self, least: int) -> None:
        limits = self._limits
        while len(self._events) > least and (len(self._events) > limits.kept_events or self.bytes > limits.kept_bytes):
            self._drop(*next(iter(self._events)))

    def _drop(self, key: int, number: int) -> None:
        message = self._events.pop((key, number), None)
        if message is None:
            return
        self.bytes -= len(message)
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
            self._tidy(key)

    def _tidy(self, key: int) -> None:
        if key not in self._open and key not in self._held:
            self._streams.pop(key, None)
