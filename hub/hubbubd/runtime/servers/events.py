"""What servers tell: notifications and log lines, to whoever watches at that moment; and what the hub says of itself.

Nothing is stored. The JSON of an event is made when the first watcher wants it, so what nobody watches costs next to
nothing; log lines alone are kept for a while, the last ones of each server.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.errors import NotFound
from hubbubd.runtime.records import BOOKMARK_S, Pulse, WatcherLimit


class ServerEventKind(StrEnum):
    """What kind of thing was told."""

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
"""What makes up a server's log."""

WATCHER_EVENTS = 1024
WATCHER_BYTES = 16 * 1024 * 1024
"""What may wait for one watcher; the oldest events go first, and are counted."""

LOG_LINES = 500
LOG_BYTES = 1024 * 1024
"""What is kept of one server's log."""

OF_HUB = ""
"""Stands for the server in what the hub says of itself; shown to those who may see all servers."""

KINDS: Mapping[str, ServerEventKind] = MappingProxyType(
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
    """Events for which every condition given holds."""

    server: str = ""
    kinds: frozenset[ServerEventKind] = frozenset()
    scope: Scope = EVERYTHING

    def wants(self, server: str, kind: ServerEventKind) -> bool:
        """Whether an event of this server and kind is in."""
        return (
            (not self.server or server == self.server)
            and (not self.kinds or kind in self.kinds)
            and self.scope.has_server(server)
        )


@dataclass(slots=True, eq=False, kw_only=True)
class ServerEvent:
    """One thing that a server told, or the hub (`OF_HUB`).

    `params` is MCP JSON; `encoded` is for the layer above, as in a watch event.
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
    """One step of a watch: an event, or without one a sign of life. `dropped` is how many were lost so far."""

    event: ServerEvent | None
    dropped: int = 0


class _Buffer:
    """The newest events, bounded in number and bytes."""

    def __init__(self, count: int, size: int) -> None:
        self.events: deque[ServerEvent] = deque()
        self.dropped = 0
        self._count = count
        self._room = size

    def push(self, event: ServerEvent) -> None:
        self.events.append(event)
        self._room -= len(event.params)
        while len(self.events) > self._count or self._room < 0:
            self.pop()
            self.dropped += 1

    def pop(self) -> ServerEvent:
        event = self.events.popleft()
        self._room += len(event.params)
        return event


class _Watcher:
    def __init__(self, chosen: EventFilter) -> None:
        self.filter = chosen
        self.buffer = _Buffer(WATCHER_EVENTS, WATCHER_BYTES)
        self.pulse = Pulse()


class EventFeed:
    """The events of all servers."""

    def __init__(self, clock: Clock, door: WatcherLimit) -> None:
        self._clock = clock
        self._door = door
        self._watchers: set[_Watcher] = set()
        self._logs: dict[str, _Buffer] = {}
        self._closed = False

    # Telling

    def tell(self, server: str, method: str, params: Mapping[str, Any], call_id: str | None = None) -> None:
        """Shows a notification to those who watch."""
        kind = KINDS.get(method, ServerEventKind.OTHER)
        if kind is ServerEventKind.LOG or self._watchers:
            self._publish(server, kind, method, params, call_id)

    def stderr(self, server: str, line: str) -> None:
        """Shows a line that a stdio server wrote to its standard error."""
        self._publish(server, ServerEventKind.STDERR, "", {"line": line}, None)

    def throttled(self, server: str, line: str) -> None:
        """Shows that the hub has begun to slow a server down."""
        self._publish(server, ServerEventKind.THROTTLED, "", {"line": line}, None)

    def reloaded(self, about: Mapping[str, Any]) -> None:
        """Shows what a reload of the configuration has changed."""
        self._publish(OF_HUB, ServerEventKind.CONFIG_RELOADED, "", about, None)

    def config_problem(self, problem: str) -> None:
        """Shows why the configuration was not taken over, or not all of it."""
        self._publish(OF_HUB, ServerEventKind.CONFIG_PROBLEM, "", {"problem": problem}, None)

    def _publish(
        self, server: str, kind: ServerEventKind, method: str, params: Mapping[str, Any], call_id: str | None
    ) -> None:
        log = self._logs.get(server) if kind in LOGGED else None
        watchers = [watcher for watcher in self._watchers if watcher.filter.wants(server, kind)]
        if log is None and not watchers:
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
            watcher.pulse.beat()

    # Servers that come and go

    def open(self, server: str) -> None:
        """Begins the log of a server, unless it has one."""
        self._logs.setdefault(server, _Buffer(LOG_LINES, LOG_BYTES))

    def forget(self, server: str) -> None:
        """Drops the log of a server that is gone."""
        self._logs.pop(server, None)

    # Watching

    def watch(self, chosen: EventFilter) -> AsyncGenerator[EventStep]:
        """Events from now on; the first step says that it has begun.

        Raises NotFound, ResourceExhausted (TOO_MANY_WATCHERS), Unavailable (SHUTTING_DOWN).
        """
        if chosen.server:
            self._log(chosen.server)
        return self._follow(chosen, ())

    def tail(self, server: str, lines: int, *, follow: bool) -> AsyncGenerator[EventStep]:
        """The last lines of a server's log, oldest first, and with `follow` those to come. Raises as `watch`."""
        kept = self._log(server).events
        last = list(islice(kept, max(len(kept) - lines, 0), None))
        return self._follow(EventFilter(server, LOGGED), last) if follow else _each(last)

    def close(self) -> None:
        """Ends all watches."""
        self._closed = True
        for watcher in self._watchers:
            watcher.pulse.close()

    def _log(self, server: str) -> _Buffer:
        if server not in self._logs:
            raise NotFound("server", server)
        return self._logs[server]

    async def _follow(self, chosen: EventFilter, first: Iterable[ServerEvent]) -> AsyncGenerator[EventStep]:
        self._door.enter()
        watcher = _Watcher(chosen)
        if self._closed:
            watcher.pulse.close()
        self._watchers.add(watcher)
        try:
            for event in first:
                yield EventStep(event)
            yield EventStep(None)
            while True:
                buffer = watcher.buffer
                while buffer.events:
                    yield EventStep(buffer.pop(), buffer.dropped)
                watcher.pulse.require_open()
                if not await watcher.pulse.wait(watcher.pulse.beats, BOOKMARK_S):
                    yield EventStep(None, buffer.dropped)
        finally:
            self._watchers.discard(watcher)
            self._door.leave()


async def _each(events: Iterable[ServerEvent]) -> AsyncGenerator[EventStep]:
    for event in events:
        yield EventStep(event)
