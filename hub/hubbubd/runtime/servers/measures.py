"""Gauges and counters from records and connections, updated as they change, so that a scrape costs O(1) per record.

Scrapes run in another thread: they read plain numbers and dicts that are replaced, never modified.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

import anyio

from hubbub_shared.platform import figures
from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.approvals.votes import approval_outcome, is_approval
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.inbox.request_states import Answer, PendingRequest, RequestEventType, RequestKind, RequestState
from hubbubd.core.servers.connection_states import ConnectionEvent, ConnectionState, ServerConnection
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import Fault
from hubbubd.runtime.records import Ledger, Table
from hubbubd.telemetry import mcp, metrics
from hubbubd.telemetry.meter import Meter, Reading
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Hello

SAMPLE_S = 0.25
"""Seconds between samples of the event loop's lag."""

SAMPLES = 60
"""How many samples the maximum covers: a scrape every 15 s sees the largest since the last one."""

MAX_NAMES = 200
"""The most servers with a series of their own, per process; later ones are only in the totals."""

LOSS_EVENTS = frozenset({ConnectionEvent.CONNECTION_LOST, ConnectionEvent.SESSION_LOST})

OUTCOMES: Mapping[str, str] = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}


class Measures:
    """Metrics that follow servers, calls and pending requests; inactive while the meter is off.

    In a fleet each member's gauges show all records (`Metric.whole`), but the member that has a server counts and times
    what happens there.
    """

    def __init__(
        self,
        *,
        meter: Meter,
        ledger: Ledger,
        clock: Clock,
        servers: Table[ServerRecord],
        calls: Table[Call],
        requests: Table[PendingRequest],
        max_names: int = MAX_NAMES,
    ) -> None:
        self.on = meter.on
        self._meter = meter
        self._ledger = ledger
        self._clock = clock
        self._reconnects = 0
        self._lost_names: set[str] = set()  # of servers that have not reconnected since a loss
        self._servers_by_state = dict.fromkeys(ConnectionState, 0)
        self._unconnected = dict.fromkeys((False, True), 0)
        """How many wanted servers are not connected, by whether the hub has given them up."""
        self._max_names = max_names
        self._names_with_series: set[str] = set()
        self._connected: dict[str, int] = {}
        """1 or 0 by name of the server; replaced, never modified, as scrapes run in another thread."""
        self._queued = 0
        # OrderedDict: a plain dict whose oldest key is deleted repeatedly takes ever longer to find the next one.
        self._open_since = {
            kind: OrderedDict[str, float]() for kind in RequestKind
        }  # creation times by id, oldest first
        self._open_counts = dict.fromkeys(RequestKind, 0)
        self._oldest_at: dict[RequestKind, float | None] = dict.fromkeys(RequestKind)  # when the oldest was created
        self._lags = deque[float](maxlen=SAMPLES)
        self._max_lag_s = 0.0
        self._watcher_backlog = 0
        if not meter.on:
            return
        for server in servers:
            self._count_server(None, server)
        for call in calls:
            self._count_queued(None, call)
        for request in sorted(requests, key=lambda r: r.created_at):
            self._count_open(None, request)
        servers.follow(self._count_server)
        calls.follow(self._count_queued)
        calls.follow_own(self._record_queue_wait)
        requests.follow(self._count_open)
        requests.follow_own(self._count_answer)
        requests.follow_own(self._count_approval)
        self._register_gauges()

    def _register_gauges(self) -> None:
        """Register the callbacks that return gauges and counters at each scrape."""
        watcher_limit, health, meter = self._ledger.watcher_limit, self._ledger.health, self._meter
        meter.observe(
            metrics.SERVERS, lambda: [(n, {"state": state.value}) for state, n in self._servers_by_state.items()]
        )
        meter.observe(
            metrics.SERVERS_AWAY,
            lambda: [(n, {"gave_up": "yes" if gave_up else "no"}) for gave_up, n in self._unconnected.items()],
        )
        meter.observe(metrics.SERVER_CONNECTED, lambda: [(n, {"server": s}) for s, n in self._connected.items()])
        meter.observe_number(metrics.RECONNECTS, lambda: self._reconnects)
        meter.observe_number(metrics.QUEUE_DEPTH, lambda: self._queued)
        meter.observe(metrics.PENDING, lambda: [(n, {"kind": kind.value}) for kind, n in self._open_counts.items()])
        meter.observe(metrics.OLDEST, self._oldest_ages)
        meter.observe_number(metrics.WATCHERS, lambda: watcher_limit.count)
        meter.observe_number(metrics.WATCHERS_LAG, lambda: self._watcher_backlog)
        meter.observe_number(metrics.WATCHERS_DROPPED, lambda: watcher_limit.dropped)
        meter.observe_number(metrics.STORE_AVAILABLE, lambda: int(health.is_writable))
        meter.observe_number(metrics.STORE_UNKNOWN, lambda: self._ledger.unknown_outcomes)
        meter.observe_number(metrics.STORE_RECONNECTS, lambda: self._ledger.store.reconnects)
        meter.observe_number(metrics.LOOP_LAG, lambda: self._max_lag_s)
        meter.observe_number(metrics.MEMORY, figures.resident_bytes)
        meter.observe_number(metrics.CPU, time.process_time)
        meter.observe_number(metrics.OPEN_FDS, figures.count_descriptors)

    async def run(self) -> None:
        """Sample event-loop lag and watcher backlog until cancelled."""
        while True:
            due = anyio.current_time() + SAMPLE_S
            await anyio.sleep(SAMPLE_S)
            self._lags.append(anyio.current_time() - due)
            self._max_lag_s = max(*self._lags, 0.0)
            self._watcher_backlog = self._ledger.backlog()

    # Connections

    def record_transition(
        self,
        config: ServerConfig,
        hello: Hello | None,
        before: ServerConnection,
        event: ConnectionEvent,
        fault: Fault | None,
    ) -> None:
        """Count a reconnect; if a connection ends with this event, record how long it lasted.

        `before` is the connection before the event; `hello` is the server's last handshake.
        """
        if not self.on:
            return
        if event is ConnectionEvent.HANDSHAKE_COMPLETE and config.name in self._lost_names:
            self._reconnects += 1
        if event in LOSS_EVENTS:
            self._lost_names.add(config.name)
        elif event in (ConnectionEvent.HANDSHAKE_COMPLETE, ConnectionEvent.GIVE_UP, ConnectionEvent.DISCONNECT):
            self._lost_names.discard(config.name)
        if before.state is ConnectionState.CONNECTED and before.connected_at is not None and hello is not None:
            attributes = mcp.connection_attributes(config.transport, hello.protocol_version)
            if event in LOSS_EVENTS and fault is not None:  # otherwise the end was requested
                attributes["error.type"] = fault.code
            self._meter.record(metrics.SESSION, max(self._clock.now() - before.connected_at, 0.0), attributes)

    def _count_server(self, before: ServerRecord | None, after: ServerRecord | None) -> None:
        """Keep the numbers of servers by state, and the server's own series, up to date with its change."""
        if before is not None:
            self._servers_by_state[before.connection.state] -= 1
            self._unconnected[before.connection.gave_up] -= _is_unconnected(before)
        if after is not None:
            self._servers_by_state[after.connection.state] += 1
            self._unconnected[after.connection.gave_up] += _is_unconnected(after)
        self._update_connected_series(before, after)

    def _update_connected_series(self, before: ServerRecord | None, after: ServerRecord | None) -> None:
        """Update the series under a server's name: there is one while the server is wanted, for at most `max_names`."""
        server = after or before
        if server is None:
            return
        if after is None or not after.wanted:
            if server.name in self._connected:
                self._connected = {name: up for name, up in self._connected.items() if name != server.name}
            return
        if server.name not in self._names_with_series and len(self._names_with_series) >= self._max_names:
            return
        self._names_with_series.add(server.name)
        up = int(after.connection.state is ConnectionState.CONNECTED)
        if self._connected.get(server.name) != up:
            self._connected = {**self._connected, server.name: up}

    # Calls

    def _record_queue_wait(self, before: Call | None, after: Call | None) -> None:
        """Record how long a call has waited in the queue, once it is sent; not if people were asked to approve it."""
        if after is None or (after.approval is not None and after.approval.request_id):
            return  # it has waited for people, too
        if after.started_at is not None and (before is None or before.started_at is None):
            self._meter.record(metrics.QUEUE_WAIT, max(after.started_at - after.created_at, 0.0))

    def _count_queued(self, before: Call | None, after: Call | None) -> None:
        """Keep the number of queued calls up to date with a change of one call."""
        self._queued += _is_queued(after) - _is_queued(before)

    # Pending requests

    def _count_answer(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Count a request that was answered or has expired, and the time to its answer."""
        if after is None or _is_open(after) or not _is_open(before):
            return
        if after.state is RequestState.EXPIRED:
            self._meter.count(metrics.ANSWERS, {"by": "hub", "outcome": "expired"})
        if after.state is RequestState.ANSWERED and after.answer is not None and after.answered_at is not None:
            by = "agent" if _was_answered_by_agent(after) else "person"
            self._meter.count(metrics.ANSWERS, {"by": by, "outcome": _answer_outcome(after.kind, after.answer)})
            waited_s = max(after.answered_at - after.created_at, 0.0)
            self._meter.record(metrics.TIME_TO_ANSWER, waited_s, {"kind": after.kind.value, "by": by})

    def _count_approval(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Count an approval request by its rule: as "asked" once opened; with its outcome and its wait once closed."""
        if after is None or after.kind is not RequestKind.APPROVAL or (before is not None and not _is_open(before)):
            return
        if before is not None and _is_open(after):
            return
        rule = mcp.bounded_text(payload.loads(after.request)["rule"]["name"])
        if before is None:
            self._meter.count(metrics.APPROVALS, {"rule": rule, "outcome": "asked"})
        if not _is_open(after):
            outcome = approval_outcome(after)
            self._meter.count(metrics.APPROVALS, {"rule": rule, "outcome": outcome})
            waited_s = max((after.closed_at or after.created_at) - after.created_at, 0.0)
            self._meter.record(metrics.APPROVAL_WAIT, waited_s, {"rule": rule, "outcome": outcome})

    def _count_open(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Keep the number of open requests of each kind, and the oldest, up to date with a change of one request."""
        request = after or before
        if request is None or _is_open(before) == _is_open(after):
            return
        open_since = self._open_since[request.kind]
        if _is_open(after):
            open_since[request.id] = request.created_at
        else:
            open_since.pop(request.id, None)
        self._open_counts[request.kind] = len(open_since)
        # Requests are added in order of creation, so the first is the oldest.
        self._oldest_at[request.kind] = next(iter(open_since.values()), None)

    def _oldest_ages(self) -> Iterable[Reading]:
        """Yield for each kind how many seconds its oldest open request has waited; 0 if there is none."""
        now = self._clock.now()
        for kind, created_at in self._oldest_at.items():
            yield (0.0 if created_at is None else max(now - created_at, 0.0), {"kind": kind.value})


def _is_unconnected(server: ServerRecord) -> bool:
    """Return whether a server is wanted, but not connected."""
    return server.wanted and server.connection.state is not ConnectionState.CONNECTED


def _is_queued(call: Call | None) -> bool:
    """Return whether a call is queued; False for None."""
    return call is not None and call.state is CallState.QUEUED


def _is_open(request: PendingRequest | None) -> bool:
    """Return whether a pending request is open; False for None."""
    return request is not None and request.state is RequestState.OPEN


def _was_answered_by_agent(request: PendingRequest) -> bool:
    """Return whether an agent, and not a person, has answered a request."""
    return any(moment.what is RequestEventType.ANSWERED and moment.agent for moment in request.moments)


def _answer_outcome(kind: RequestKind, answer: Answer) -> str:
    """Return an answer's outcome; only elicitations can be declined or cancelled, any request can be refused."""
    if answer.refused or (kind is RequestKind.APPROVAL and not is_approval(answer)):
        return "refused"
    if kind in (RequestKind.ELICITATION_FORM, RequestKind.ELICITATION_URL):
        return OUTCOMES.get(str(payload.loads(answer.payload).get("action")), "accepted")
    return "accepted"
