"""Messages on the streams of requests, stored for a while, so that a broken stream can be resumed.

    send ──> stored, by number ──┬──> outlet of the newest connection
    resume after a number ─────┘

A request goes on when its connection breaks; its response waits here. MCP 2025-11-25, basic/transports, resumability.

An event's id says which request its stream is of, and which call that is. So a stream of an earlier process, or of
another member of a fleet, is answered as well. Who makes an id up learns nothing by it: a call is its principal's own.

    event id = base64url(["session", "process", stream, request id, "call key"]) "." number
"""

import asyncio
import base64
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from hubbubd import bounds, payload
from hubbubd.downstream.hosts.host import HostOutbox, Presence
from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.protocol.messages import MAX_ID, Id

_ID: Final = re.compile(r"([A-Za-z0-9_-]{1,2000})\.(\d{1,15})", re.ASCII)
_MAX_KEY: Final = 100
_SHORT: Final = 12
"""Characters of a session's key that an event's id has."""


@dataclass(frozen=True, slots=True)
class LostStream:
    """A stream that this process does not have: its name, the event that the host has of it, its request, and the key
    of the call that this was, if any."""

    stream: str
    event: int
    request_id: Id
    call_key: str


class ReplayStream:
    """The stream of one request. One connection has it at a time, the newest; it begins with event 1."""

    def __init__(self, streams: "ReplayStreams", key: int, name: str, count: int = 0) -> None:
        """`count` is how many events it had before."""
        self.name = name
        """What the ids of its events begin with."""
        self.outlet = HostOutbox()
        """What the newest connection is to be sent."""
        self.presence = Presence()
        self.is_known_to_host = False
        """Whether the host knows of the stream; else it cannot ask for it."""
        self._streams = streams
        self._key = key
        self._first = self._count = count
        self._ended = False

    @property
    def is_unused(self) -> bool:
        """Whether nothing was sent on the stream, apart from the response."""
        return self._count == self._first

    def send(self, message: bytes) -> None:
        """Put a message into the stream."""
        if not self._ended:
            self._add(message)
            self.outlet.send(message)

    def end_with(self, task: asyncio.Task[bytes]) -> None:
        """End the stream once the task of its request is done, with the response."""
        task.add_done_callback(self._end)

    def event_id(self, number: int) -> str:
        """Return the id of an event, as the host gets it; number 0 is before the first event."""
        return f"{self.name}.{number}"

    def reopen(self, after: int) -> tuple[HostOutbox, int]:
        """Return a new outlet for another connection, and the number of its first event.

        The outlet has the events after number `after`, as far as they are kept; the older outlet is closed.
        """
        self.outlet.close()
        self.outlet = HostOutbox()
        events = self._streams.events_after(self._key, after, self._count)
        for _, message in events:
            self.outlet.send_always(message)
        if self._ended:
            self.outlet.close()
        first_number = events[0][0] if events else self._count + 1
        return self.outlet, first_number

    def note_delivered(self) -> None:
        """Note that a connection was sent all events: only the last one is kept, in case that it did not arrive."""
        if self._ended:
            self._streams.keep_only_last(self._key, self._count)

    def forget(self) -> None:
        """Drop the stream and its events: the host does not know of it."""
        self._ended = True
        self._streams.forget(self._key)

    def _add(self, message: bytes) -> None:
        """Store the next event."""
        self._count += 1
        self._streams.add(self._key, self._count, message)

    def _end(self, task: asyncio.Task[bytes]) -> None:
        """End the stream with the response of its task, if the host knows of the stream; a failed task has none."""
        response = None if task.cancelled() or task.exception() is not None else task.result()
        if not self._ended and response is not None and (self.is_known_to_host or not self.is_unused):
            self._add(response)
            self.outlet.send_always(response)
        self._ended = True
        self.outlet.close()
        self._streams.note_ended(self._key)


class ReplayStreams:
    """The streams of a session's requests; beyond the limits the oldest events are dropped."""

    def __init__(self, limits: HostLimits, session: str = "") -> None:
        self._limits = limits
        self._session = session[:_SHORT]
        self._process_key = secrets.token_urlsafe(9)
        self._next = 1
        self._named: dict[str, int] = {}
        """The streams by what hosts call them: one may go on under the name that it had in an earlier process."""
        self._streams: dict[int, ReplayStream] = {}
        self._open: set[int] = set()
        self._events = OrderedDict[tuple[int, int], bytes]()
        self._kept: dict[int, int] = {}
        """How many events of each stream are kept."""
        self.bytes = 0
        """The bytes of all events that are kept."""

    def __len__(self) -> int:
        """Return how many events are kept."""
        return len(self._events)

    def open(self, request_id: Id, call_key: str | None = None) -> ReplayStream:
        """Return the stream of a new request; `call_key` is the key of the call that the request may become."""
        named = [self._session, self._process_key, self._next, request_id, call_key or ""]
        return self._add_stream(base64.urlsafe_b64encode(payload.dumps(named)).rstrip(b"=").decode(), 0)

    def reopen_lost(self, lost: LostStream) -> ReplayStream:
        """Make the stream of a request that goes on here; its events are numbered after the one that the host has."""
        return self._add_stream(lost.stream, lost.event)

    def _add_stream(self, name: str, count: int) -> ReplayStream:
        """Make a stream under a name, and return it; `count` is how many events it had before."""
        replay = self._streams[self._next] = ReplayStream(self, self._next, name, count)
        self._named[name] = self._next
        self._open.add(self._next)
        self._next += 1
        return replay

    def find(self, event_id: str) -> tuple[ReplayStream, int] | None:
        """Return the stream of an event with the event's number; None where it is not kept any more, or never was."""
        parts = _ID.fullmatch(event_id)
        key = self._named.get(parts[1]) if parts is not None else None
        if parts is None or key is None:
            return None
        number = bounds.parse_whole(parts[2])
        return None if number is None else (self._streams[key], number)

    def parse_lost(self, event_id: str) -> LostStream | None:
        """Return the stream of an event of this session, of an earlier process or another member; None for others."""
        if (named := _ID.fullmatch(event_id)) is None:
            return None
        try:
            parts = payload.loads(base64.b64decode(named[1] + "==", altchars=b"-_"))
        except ValueError:
            return None
        match parts:
            case [self._session, str() as process_key, int(), str() | int() | float() as id_, str() as key] if (
                process_key != self._process_key and len(str(id_)) <= MAX_ID and len(key) <= _MAX_KEY
            ):
                return LostStream(named[1], bounds.parse_whole(named[2]) or 0, id_, key)
            case _:
                return None

    def clear(self) -> None:
        """Drop all streams and events."""
        for key in list(self._streams):
            self.forget(key)

    # For the streams

    def add(self, key: int, number: int, message: bytes) -> None:
        """Store an event of a stream; the oldest events of all streams are dropped beyond the limits."""
        if key not in self._streams:  # it was forgotten
            return
        self._events[key, number] = message
        self._kept[key] = self._kept.get(key, 0) + 1
        self.bytes += len(message)
        self._enforce_limits(1)  # not this one: however long, it stays until the next one comes

    def events_after(self, key: int, number: int, last: int) -> list[tuple[int, bytes]]:
        """Return the numbers and messages of a stream's events after `number`, as far as kept; `last` is the newest."""
        first = max(number + 1, last - self._limits.replay_events)
        return [(each, self._events[key, each]) for each in range(first, last + 1) if (key, each) in self._events]

    def keep_only_last(self, key: int, last: int) -> None:
        """Drop all but the last event of a stream, which is number `last`."""
        for each in range(max(1, last - self._limits.replay_events), last):
            self._drop(key, each)
        self._enforce_limits(0)

    def note_ended(self, key: int) -> None:
        """Note that nothing more comes on a stream."""
        self._open.discard(key)
        self._remove_if_done(key)

    def forget(self, key: int) -> None:
        """Drop a stream and its events."""
        self._open.discard(key)
        if key in self._kept:
            for number in [number for stream, number in self._events if stream == key]:
                self._drop(key, number)
        self._remove_if_done(key)

    def _enforce_limits(self, least: int) -> None:
        """Drop the oldest events of all streams beyond the limits, but not the last `least` ones."""
        limits = self._limits
        while len(self._events) > least and (
            len(self._events) > limits.replay_events or self.bytes > limits.replay_bytes
        ):
            self._drop(*next(iter(self._events)))

    def _drop(self, key: int, number: int) -> None:
        """Drop an event."""
        message = self._events.pop((key, number), None)
        if message is None:
            return
        self.bytes -= len(message)
        self._kept[key] -= 1
        if not self._kept[key]:
            del self._kept[key]
            self._remove_if_done(key)

    def _remove_if_done(self, key: int) -> None:
        """Remove a stream that has ended, and has no event left."""
        if key not in self._open and key not in self._kept and (replay := self._streams.pop(key, None)) is not None:
            self._named.pop(replay.name, None)
