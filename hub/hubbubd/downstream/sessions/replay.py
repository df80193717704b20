"""Messages on the streams of requests, stored for a while, so that a broken stream can be resumed.

    send ──> stored, by number ──┬──> outlet of the newest connection
    resume after a number ─────┘

A request goes on when its connection breaks; its response waits here. MCP 2025-11-25, basic/transports, resumability.

An event's id names the request of its stream, and the request's call. So a host can also resume a stream of an earlier
process, or of another member of a fleet. A made-up id discloses nothing, as only a call's principal gets its result.

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

_EVENT_ID: Final = re.compile(r"([A-Za-z0-9_-]{1,2000})\.(\d{1,15})", re.ASCII)
_MAX_KEY: Final = 100
_SESSION_CHARS: Final = 12
"""Characters of a session's key that an event's id repeats."""


@dataclass(frozen=True, slots=True)
class LostStream:
    """A stream that this process does not have: its name, the number of the last event that the host has got of it, the
    id of its request, and the key of the request's call ("" if it became none)."""

    name: str
    last_event: int
    request_id: Id
    call_key: str


class ReplayStream:
    """The stream of one request, with events numbered from 1. The newest connection reads it, and no other."""

    def __init__(self, streams: "ReplayStreams", key: int, name: str, count: int = 0) -> None:
        """`key` is its key in `streams`, `count` how many events it had in an earlier process."""
        self.name = name
        """The first part of the ids of its events."""
        self.outlet = HostOutbox()
        """Messages for the newest connection."""
        self.presence = Presence()
        self.is_known_to_host = False
        """Whether the host was sent an id of the stream, without which it cannot resume it."""
        self._streams = streams
        self._key = key
        self._first = self._count = count
        self._ended = False

    @property
    def is_unused(self) -> bool:
        """Whether nothing was sent on the stream, apart from the response."""
        return self._count == self._first

    def send(self, message: bytes) -> None:
        """Store a message as the next event, and send it; dropped once the stream has ended."""
        if not self._ended:
            self._add(message)
            self.outlet.send(message)

    def end_with(self, task: asyncio.Task[bytes]) -> None:
        """End the stream with the response once the task that serves its request is done."""
        task.add_done_callback(self._end)

    def event_id(self, number: int) -> str:
        """Return the id of an event as hosts see it; number 0 stands for the time before the first event."""
        return f"{self.name}.{number}"

    def reopen(self, after_number: int) -> tuple[HostOutbox, int]:
        """Return a new outlet for another connection, and the number of its first event.

        The outlet has the events after number `after_number`, as far as they are stored; the older outlet is closed.
        """
        self.outlet.close()
        self.outlet = HostOutbox()
        events = self._streams.events_after(self._key, after_number, self._count)
        for _, message in events:
            self.outlet.send_always(message)
        if self._ended:
            self.outlet.close()
        first_number = events[0][0] if events else self._count + 1
        return self.outlet, first_number

    def note_delivered(self) -> None:
        """Note that a connection was sent all events: of an ended stream only the last one stays: it may be lost."""
        if self._ended:
            self._streams.keep_only_last(self._key, self._count)

    def forget(self) -> None:
        """End the stream, and drop it with its events: the host does not know of it."""
        self._ended = True
        self._streams.forget(self._key)

    def _add(self, message: bytes) -> None:
        """Store the next event."""
        self._count += 1
        self._streams.add(self._key, self._count, message)

    def _end(self, task: asyncio.Task[bytes]) -> None:
        """Add the task's response, unless the task failed or the host cannot know of the stream; end the stream."""
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
        self._session = session[:_SESSION_CHARS]
        self._process_key = secrets.token_urlsafe(9)
        self._next_key = 1
        self._keys: dict[str, int] = {}
        """Keys by the names of the streams: a stream may go on under its name of an earlier process."""
        self._streams: dict[int, ReplayStream] = {}
        self._open_keys: set[int] = set()
        self._events = OrderedDict[tuple[int, int], bytes]()
        self._stored_counts: dict[int, int] = {}
        """By key, how many events of a stream are stored."""
        self.stored_bytes = 0
        """The bytes of all stored events."""

    def __len__(self) -> int:
        """Return how many events are stored."""
        return len(self._events)

    def open(self, request_id: Id, call_key: str | None = None) -> ReplayStream:
        """Make the stream of a new request, and return it; `call_key` is the key of the request's call, if any."""
        parts = [self._session, self._process_key, self._next_key, request_id, call_key or ""]
        return self._add_stream(base64.urlsafe_b64encode(payload.dumps(parts)).rstrip(b"=").decode(), 0)

    def reopen_lost(self, lost: LostStream) -> ReplayStream:
        """Make the stream of a request that goes on here; its events are numbered after the last one the host has."""
        return self._add_stream(lost.name, lost.last_event)

    def _add_stream(self, name: str, count: int) -> ReplayStream:
        """Make a stream under a name, and return it; `count` is how many events it had before."""
        replay = self._streams[self._next_key] = ReplayStream(self, self._next_key, name, count)
        self._keys[name] = self._next_key
        self._open_keys.add(self._next_key)
        self._next_key += 1
        return replay

    def find(self, event_id: str) -> tuple[ReplayStream, int] | None:
        """Return the stream of an event and the event's number; None for a stream that is not stored (any more)."""
        parts = _EVENT_ID.fullmatch(event_id)
        key = self._keys.get(parts[1]) if parts is not None else None
        if parts is None or key is None:
            return None
        number = bounds.parse_whole(parts[2])
        return None if number is None else (self._streams[key], number)

    def parse_lost_stream(self, event_id: str) -> LostStream | None:
        """Return the stream that an event's id names, if another process made that stream in this session; else None.

        Its stored messages are lost to this process.
        """
        if (match_ := _EVENT_ID.fullmatch(event_id)) is None:
            return None
        try:
            parts = payload.loads(base64.b64decode(match_[1] + "==", altchars=b"-_"))
        except ValueError:
            return None
        match parts:  # as made by `open`; the integer is the stream's key in its own process
            case [self._session, str() as process_key, int(), str() | int() | float() as id_, str() as key] if (
                process_key != self._process_key and len(str(id_)) <= MAX_ID and len(key) <= _MAX_KEY
            ):
                return LostStream(match_[1], bounds.parse_whole(match_[2]) or 0, id_, key)
            case _:
                return None

    def clear(self) -> None:
        """Drop all streams and events."""
        for key in list(self._streams):
            self.forget(key)

    # For the streams

    def add(self, key: int, number: int, message: bytes) -> None:
        """Store an event of a stream, unless the stream is forgotten; beyond the limits drop the oldest of all."""
        if key not in self._streams:
            return
        self._events[key, number] = message
        self._stored_counts[key] = self._stored_counts.get(key, 0) + 1
        self.stored_bytes += len(message)
        self._enforce_limits(1)  # the newest stays, however long, until the next one comes

    def events_after(self, key: int, number: int, last: int) -> list[tuple[int, bytes]]:
        """Return number and message of a stream's stored events after `number`; `last` is the number of the newest."""
        first = max(number + 1, last - self._limits.replay_events)
        return [(each, self._events[key, each]) for each in range(first, last + 1) if (key, each) in self._events]

    def keep_only_last(self, key: int, last: int) -> None:
        """Drop all stored events of a stream but number `last`, its last one."""
        for each in range(max(1, last - self._limits.replay_events), last):
            self._drop(key, each)
        self._enforce_limits(0)

    def note_ended(self, key: int) -> None:
        """Note that a stream has ended: it is removed once none of its events is stored."""
        self._open_keys.discard(key)
        self._remove_if_done(key)

    def forget(self, key: int) -> None:
        """Drop a stream and its events."""
        self._open_keys.discard(key)
        if key in self._stored_counts:
            for number in [number for stream, number in self._events if stream == key]:
                self._drop(key, number)
        self._remove_if_done(key)

    def _enforce_limits(self, protected: int) -> None:
        """Drop the oldest events of all streams beyond the limits, but not the newest `protected` ones."""
        limits = self._limits
        while len(self._events) > protected and (
            len(self._events) > limits.replay_events or self.stored_bytes > limits.replay_bytes
        ):
            self._drop(*next(iter(self._events)))

    def _drop(self, key: int, number: int) -> None:
        """Drop an event, if it is stored, and its stream with the last one if the stream has ended."""
        message = self._events.pop((key, number), None)
        if message is None:
            return
        self.stored_bytes -= len(message)
        self._stored_counts[key] -= 1
        if not self._stored_counts[key]:
            del self._stored_counts[key]
            self._remove_if_done(key)

    def _remove_if_done(self, key: int) -> None:
        """Remove a stream, if it has ended and none of its events is stored."""
        if (
            key not in self._open_keys
            and key not in self._stored_counts
            and (replay := self._streams.pop(key, None)) is not None
        ):
            self._keys.pop(replay.name, None)
