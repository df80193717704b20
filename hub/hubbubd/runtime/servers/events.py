"""Live events, for present watchers: notifications and stderr lines of servers, and events of the hub itself.

Nothing is stored or replayed. An event's JSON is built for its first watcher, so unwatched events cost a set lookup.
Only the last log lines of each server stay in memory. Watchers have bounded buffers that drop the oldest events.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any

from hubbubd import payload
from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.errors import NotFound
from hubbubd.runtime.records import BOOKMARK_S, VersionedCondition, WatcherLimit
from hubbubd.timing.clock import Clock


class ServerEventKind(StrEnum):
    """Kind of an event."""

    PROGRESS = "progress"
    LOG = "log"
    STDERR = "stderr"
    RESOURCE_UPDATED = "resource_updated"
    LIST_CHANGED = "list_changed"
    CANCELLED = "cancelled"
    ELICITATION_COMPLETE = "elicitation_complete"
    TASK_STATUS = "task_status"
    OTHER = "other"
    THROTTLED = "throttled"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_PROBLEM = "config_problem"


LOGGED = frozenset({ServerEventKind.LOG, ServerEventKind.STDERR, ServerEventKind.THROTTLED})
"""The kinds that make up a server's log."""

WATCHER_EVENTS = 1024
WATCHER_BYTES = 16 * 1024 * 1024
"""Bounds of a watcher's buffer; the oldest events are dropped and counted."""

LOG_LINES = 500
LOG_BYTES = 1024 * 1024
"""Bounds of the log of a server that is kept in memory."""

OF_HUB = ""
"""The server name of events of the hub itself; visible to those who may see all servers."""

KINDS_BY_METHOD: Mapping[str, ServerEventKind] = MappingProxyType(
    {
        "notifications/progress": ServerEventKind.PROGRESS,
        "notifications/message": ServerEventKind.LOG,
        "notifications/resources/updated": ServerEventKind.RESOURCE_UPDATED,
        "notifications/tools/list_changed": ServerEventKind.LIST_CHANGED,
        "notifications/resources/list_changed": ServerEventKind.LIST_CHANGED,
        "notifications/prompts/list_changed": ServerEventKind.LIST_CHANGED,
        "notifications/cancelled": ServerEventKind.CANCELLED,
        "notifications/elicitation/complete": ServerEventKind.ELICITATION_COMPLETE,
        "notifications/tasks": ServerEventKind.TASK_STATUS,
        "notifications/tasks/status": ServerEventKind.TASK_STATUS,
    }
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Events that meet every condition that is set."""

    server: str = ""
    kinds: frozenset[ServerEventKind] = frozenset()
    scope: Scope = EVERYTHING

    def matches(self, server: str, kind: ServerEventKind) -> bool:
        """Return whether events of this server and kind match."""
        return (
            (not self.server or server == self.server)
            and (not self.kinds or kind in self.kinds)
            and self.scope.has_server(server)
        )


@dataclass(slots=True, eq=False, kw_only=True)
class ServerEvent:
    """An event of a server, or of the hub (`OF_HUB`). `at` is seconds since the epoch.

    `params` is MCP JSON. `encoded` is a cache for the layer above, which encodes an event once for all watchers.
    """

    server: str
    kind: ServerEventKind
    method: str
    params: bytes
    call_id: str | None
    at: float
    encoded: object = None


@dataclass(frozen=True, slots=True)
class EventStep:
    """One step of a watch: an event, or without one a keep-alive. `dropped` counts the events lost so far."""

    event: ServerEvent | None
    dropped: int = 0


class _Buffer:
    """A ring buffer of events, bounded in number and bytes."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.events: deque[ServerEvent] = deque()
        self.dropped = 0
        self._max_events = max_events
        self._free_bytes = max_bytes

    def push(self, event: ServerEvent) -> None:
        """Add an event; the oldest ones are dropped, and counted, while a bound is exceeded."""
        self.events.append(event)
        self._free_bytes -= len(event.params)
        while len(self.events) > self._max_events or self._free_bytes < 0:
            self.pop()
            self.dropped += 1

    def pop(self) -> ServerEvent:
        """Remove and return the oldest event."""
        event = self.events.popleft()
        self._free_bytes += len(event.params)
        return event


class _EventWatcher:
    """A watcher: which events it wants, those that it has not read yet, and a condition that signals more."""

    def __init__(self, chosen: EventFilter) -> None:
        self.filter = chosen
        self.buffer = _Buffer(WATCHER_EVENTS, WATCHER_BYTES)
        self.condition = VersionedCondition()


class EventFeed:
    """The live events of all servers."""

    def __init__(self, clock: Clock, watcher_limit: WatcherLimit) -> None:
        self._clock = clock
        self._watcher_limit = watcher_limit
        self._watchers: set[_EventWatcher] = set()
        self._listeners: dict[ServerEventKind, list[Callable[[ServerEvent], None]]] = {}
        self._logs: dict[str, _Buffer] = {}  # by server
        self._closed = False

    # Publishing

    def publish(self, server: str, method: str, params: Mapping[str, Any], call_id: str | None = None) -> None:
        """Give a server's notification to its log, watchers and listeners, if any of them wants it."""
        kind = KINDS_BY_METHOD.get(method, ServerEventKind.OTHER)
        if kind is ServerEventKind.LOG or self._watchers or kind in self._listeners:
            self._publish(server, kind, method, params, call_id)

    def publish_stderr(self, server: str, line: str) -> None:
        """Publish a line that a stdio server wrote to stderr."""
        self._publish(server, ServerEventKind.STDERR, "", {"line": line}, None)

    def publish_throttling(self, server: str, line: str) -> None:
        """Publish that the hub has begun to throttle a server (rate limit)."""
        self._publish(server, ServerEventKind.THROTTLED, "", {"line": line}, None)

    def publish_reload(self, changes: Mapping[str, Any]) -> None:
        """Publish what a reload of the configuration changed."""
        self._publish(OF_HUB, ServerEventKind.CONFIG_RELOADED, "", changes, None)

    def publish_config_problem(self, problem: str) -> None:
        """Publish why the configuration was rejected, or only partly applied."""
        self._publish(OF_HUB, ServerEventKind.CONFIG_PROBLEM, "", {"problem": problem}, None)

    def _publish(
        self, server: str, kind: ServerEventKind, method: str, params: Mapping[str, Any], call_id: str | None
    ) -> None:
        """Make an event, and give it to the server's log, watchers and listeners; do nothing if none wants it."""
        log = self._logs.get(server) if kind in LOGGED else None
        watchers = [watcher for watcher in self._watchers if watcher.filter.matches(server, kind)]
        listeners = tuple(self._listeners.get(kind, ()))
        if log is None and not watchers and not listeners:
            return
        event = ServerEvent(
            server=server,
            kind=kind,
            method=method,
            params=payload.dumps(params),
            call_id=call_id,
            at=self._clock.now(),
        )
        if log is not None:
            log.push(event)
        for watcher in watchers:
            watcher.buffer.push(event)
            watcher.condition.notify_all()
        for on_event in listeners:
            on_event(event)

    # Servers that come and go

    def open_log(self, server: str) -> None:
        """Start a server's log, unless it has one."""
        self._logs.setdefault(server, _Buffer(LOG_LINES, LOG_BYTES))

    def forget_log(self, server: str) -> None:
        """Drop the log of a removed server."""
        self._logs.pop(server, None)

    # Watching

    def watch(self, chosen: EventFilter) -> AsyncGenerator[EventStep]:
        """Yield events from now on; the first step has no event, and says that the watch has begun.

        Raises NotFound, ResourceExhausted (TOO_MANY_WATCHERS), Unavailable (SHUTTING_DOWN).
        """
        if chosen.server:
            self._require_log(chosen.server)
        return self._watch_from(chosen, ())

    def listen(self, kind: ServerEventKind, on_event: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call `on_event` with each event of a kind, without a buffer, until the returned function is called."""
        listeners = self._listeners.setdefault(kind, [])
        listeners.append(on_event)

        def stop_listening() -> None:
            """Remove the listener; raises ValueError if it was removed before."""
            listeners.remove(on_event)
            if not listeners:
                self._listeners.pop(kind, None)

        return stop_listening

    def tail(self, server: str, lines: int, *, follow: bool) -> AsyncGenerator[EventStep]:
        """Yield the last lines of a server's log, oldest first, and with `follow` new ones. Raises as `watch`."""
        events = self._require_log(server).events
        last = list(islice(events, max(len(events) - lines, 0), None))
        return self._watch_from(EventFilter(server, LOGGED), last) if follow else _yield_steps(last)

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        for watcher in self._watchers:
            watcher.condition.close()

    def _require_log(self, server: str) -> _Buffer:
        """Return a server's log. Raises NotFound."""
        if server not in self._logs:
            raise NotFound("server", server)
        return self._logs[server]

    async def _watch_from(self, chosen: EventFilter, first: Iterable[ServerEvent]) -> AsyncGenerator[EventStep]:
        """Yield steps: with the `first` events, then one without an event, then with new events. Raises as `watch`."""
        self._watcher_limit.enter()
        watcher = _EventWatcher(chosen)
        if self._closed:
            watcher.condition.close()
        self._watchers.add(watcher)
        try:
            for event in first:
                yield EventStep(event)
            yield EventStep(None)
            while True:
                buffer = watcher.buffer
                while buffer.events:
                    yield EventStep(buffer.pop(), buffer.dropped)
                watcher.condition.require_open()
                if not await watcher.condition.wait(watcher.condition.version, BOOKMARK_S):
                    yield EventStep(None, buffer.dropped)
        finally:
            self._watchers.discard(watcher)
            self._watcher_limit.leave()


async def _yield_steps(events: Iterable[ServerEvent]) -> AsyncGenerator[EventStep]:
    """Yield a step for each event, and end."""
    for event in events:
        yield EventStep(event)
