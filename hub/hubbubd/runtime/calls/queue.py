"""One server's call queue at run time: slots, deadlines, parking, and which call caused what the server asks.

The order is that of `core/calls/queue.py`; this adds waiting and time.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

from hubbubd.config import ServerConfig
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_states import Call, CallClock, CallState
from hubbubd.core.calls.queue import CallQueue
from hubbubd.core.inbox.request_states import CauseSource
from hubbubd.core.servers.server_record import QueueCounts
from hubbubd.errors import Category, Fault, HubError
from hubbubd.frozen import replaced
from hubbubd.runtime.calls.callers import Callers
from hubbubd.telemetry.trace import Trace
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.timing.clock import Clock
from hubbubd.timing.deadline import Deadline
from hubbubd.upstream.ports import McpLink

PENDING_IDS = 1000
"""How many of the pending requests it caused a call's record names: the newest."""

MAX_CANDIDATES = 50
"""How many candidate calls a pending request names at most."""

MAX_ASIDE = 1000
"""How many of a server's calls may continue as tasks without occupying a slot."""


class End(StrEnum):
    """Why a call is stopped before its server has replied."""

    CANCELLED = "cancelled"
    """Cancelled on request, or its caller is gone."""
    SERVER_GONE = "server_gone"
    """Its server was disconnected, removed or given up."""
    SHUTTING_DOWN = "shutting_down"
    """The hub stops; the call may be resumed after the restart."""


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call under way, valid once `admitted` is set without a `refusal`.

    `fault` and `end` say why its work was ended; without them its deadline has passed. `place` is the span of
    what was sent last. With `kept` its record is durable before it is sent, as that of a detached one. `known_as_sent`
    says that, after a restart, the call is known to have been sent.
    """

    call: Call
    clock: CallClock
    _: KW_ONLY
    deadline: Deadline = field(default_factory=Deadline)
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: HubError | None = None
    fault: Fault | None = None
    end: End | None = None
    pending: int = 0
    waiters: int = 0
    kept: bool = False
    resent: bool = False
    known_as_sent: bool = False
    place: Trace | None = None

    def stop(self, fault: Fault, end: End = End.CANCELLED) -> None:
        """End the call with a reason; on the wire it is cancelled at the server. The first reason counts."""
        if self.fault is None:
            self.fault, self.end = fault, end
            self.deadline.end()


class ServerQueue:
    """The unfinished calls of one server. `record` is called with the state before and after each change of a call."""

    def __init__(
        self, config: ServerConfig, clock: Clock, record: Callable[[Call, Call], None], tracer: Tracer = OFF
    ) -> None:
        self._take(config)
        self.tracer = tracer
        self.calls: dict[str, ActiveCall] = {}
        self.ended: Counter[CallState] = Counter()
        self.link: McpLink | None = None
        self._callers = Callers(clock)
        self.closed = True
        """Whether the server is disconnected by request, or given up."""
        self.given_up: Fault | None = None
        """Why the hub gave up on the server, when that closed the queue."""
        self._clock = clock
        self._record = record
        self._queue = CallQueue(
            config.max_in_flight, config.max_queued, one_question_at_a_time=config.one_question_at_a_time
        )
        self._attached = asyncio.Event()

    def adopt(self, config: ServerConfig) -> None:
        """Apply changed options; calls already queued keep their deadlines."""
        self._take(config)
        self._queue.adopt(config.max_in_flight, config.max_queued, one_question_at_a_time=config.one_question_at_a_time)
        self._next_turns()

    def _take(self, config: ServerConfig) -> None:
        self.config = config
        self.fingerprint = config.fingerprint  # cached: a hash

    def counts(self) -> QueueCounts:
        """Return the number of calls by state."""
        now = Counter(active.call.state for active in self.calls.values())
        return QueueCounts(
            queued=now[CallState.QUEUED],
            in_progress=now[CallState.IN_PROGRESS],
            waiting_input=now[CallState.WAITING_INPUT],
            completed=self.ended[CallState.COMPLETED],
            failed=self.ended[CallState.FAILED],
            cancelled=self.ended[CallState.CANCELLED],
        )

    @property
    def busy(self) -> bool:
        """Whether a call is on the wire or parked; a synchronous server cannot answer a ping then."""
        return bool(self._queue.sent)

    # Slots

    def enter(self, call: Call) -> ActiveCall:
        """Queue a new call. Raises ResourceExhausted (QUEUE_FULL)."""
        self._queue.add(call.id, len(call.params))
        active = ActiveCall(call, CallClock(call.timeout_s, call.max_s, self._clock.steady()), place=call.trace)
        self.calls[call.id] = active
        self.time(active)
        self._next_turns()
        return active

    def resume(self, call: Call) -> ActiveCall:
        """Take in a call from before a restart: as a task, at the end of the queue if never sent, and parked otherwise.

        No limit applies, as it was admitted before.
        """
        active = ActiveCall(call, CallClock(call.timeout_s, call.max_s, self._clock.steady()), place=call.trace)
        active.admitted.set()
        active.known_as_sent = not core.never_sent(call)
        self.calls[call.id] = active
        if core.never_sent(call):
            self._queue.add_again(call.id, len(call.params))
            self.time(active)
        if call.task_id is not None:
            if call.state is CallState.WAITING_INPUT:
                self.to(active, core.move(call, CallState.IN_PROGRESS, self._clock.now()))
            self.set_aside(active)
        return active

    def set_aside(self, active: ActiveCall) -> None:
        """Free the slot of a call that has become a task; from now on only its total time counts.

        Beyond MAX_ASIDE such calls keep their slots, which bounds their number.
        """
        if len(self._queue.aside) < MAX_ASIDE:
            self._queue.set_aside(active.call.id)
        active.clock.without_timeout(self._clock.steady())
        self.time(active)
        self._next_turns()

    def enter_again(self, active: ActiveCall) -> None:
        """Queue a call that must be sent again, at the head."""
        self._put_first(active)
        self.to(active, core.move(active.call, CallState.QUEUED, self._clock.now()))
        self._next_turns()

    def _put_first(self, active: ActiveCall) -> None:
        active.turn = asyncio.Event()
        self._queue.add_first(active.call.id)

    def leave(self, active: ActiveCall, ended: Call) -> None:
        """Remove a call that has ended."""
        if active.call.started_at is not None:
            answered = ended.fault is None or ended.fault.category is Category.SERVER
            self._callers.left(ended.principal, answered=answered)
        active.call = ended
        self._queue.remove(ended.id)
        del self.calls[ended.id]
        self._next_turns()

    async def turn(self, active: ActiveCall) -> McpLink:
        """Wait for the call's turn, move it to IN_PROGRESS, and return the link to send it over."""
        while not active.turn.is_set():  # `attach` replaces the event of a turn that the link's end took back
            await active.turn.wait()
        await active.deadline.check()
        assert self.link is not None, "turns end with the link"
        active.clock.restart(self._clock.steady())
        self.time(active)
        self.to(active, core.move(active.call, CallState.IN_PROGRESS, self._clock.now()))
        return self.link

    def attach(self, link: McpLink | None) -> None:
        """Set the current link, or None when the connection is down; calls get turns only while there is one."""
        self.link = link
        if link is not None:
            self._callers.begin()
            self._attached.set()
            self._attached = asyncio.Event()
        if link is None:
            for active in reversed(self.calls.values()):
                if active.turn.is_set() and active.call.state is CallState.QUEUED:  # has a turn, but is not sent yet
                    self._put_first(active)
        self._next_turns()

    async def connected(self) -> McpLink:
        """Wait for a link and return it."""
        while self.link is None:
            await self._attached.wait()
        return self.link

    def _next_turns(self) -> None:
        while self.link is not None and (call_id := self._queue.next()) is not None:
            self.calls[call_id].turn.set()

    # Deadlines

    def time(self, active: ActiveCall) -> None:
        """Set the call's deadline from its clock."""
        at = active.clock.deadline()
        active.deadline.move(math.inf if at is None else at)

    def progressed(self, active: ActiveCall) -> None:
        """Restart the call's timeout after a progress notification, if so configured."""
        if self.config.progress_resets_timeout:
            active.clock.restart(self._clock.steady())
            self.time(active)

    # Causes of pending requests

    def cause(self, wire_call_id: str | None) -> tuple[ActiveCall | None, CauseSource | None]:
        """Return the call that caused a request: that of the stream it came on, else the only candidate."""
        if wire_call_id is not None:
            active = self.calls.get(wire_call_id)
            return active, CauseSource.WIRE if active else None
        candidates = self.candidates()
        return (candidates[0], CauseSource.INFERRED) if len(candidates) == 1 else (None, None)

    def alone(self, principal: str) -> bool:
        """Return whether the server is at work for nobody else: now, or a moment ago."""
        known = self._queue.sent | self._queue.aside
        return self._callers.alone(principal, (self.calls[call_id].call.principal for call_id in known))

    def candidates(self) -> list[ActiveCall]:
        """Return the calls that may have caused a request which does not name its cause, oldest first."""
        # Requests of tasks name their task, so calls on the wire are the likelier cause.
        sent = self._queue.sent or self._queue.aside
        return [active for call_id, active in self.calls.items() if call_id in sent]

    def candidate_ids(self) -> tuple[str, ...]:
        """Return the candidates' ids for a record; none if they are too many to be useful."""
        found = tuple(active.call.id for active in self.candidates())
        return found if len(found) <= MAX_CANDIDATES else ()

    @contextmanager
    def asked(self, active: ActiveCall | None, *pending_ids: str, candidates: Collection[str] = ()) -> Generator[None]:
        """Park the causing call while a request on the wire waits for a person.

        With an unknown cause it may be any call the server knows of: none of them occupies a slot or loses time. The
        `candidates` record that they may be what the request waits for.
        """
        known = self._queue.sent | self._queue.aside
        calls = [active] if active is not None else [self.calls[call_id] for call_id in known]
        perhaps = [self.calls[call_id] for call_id in candidates if call_id in self.calls] if active is None else []
        try:
            held = self._paused(calls) if active is None else self.parked(active, *pending_ids)
            with held, self._perhaps(perhaps, pending_ids):
                yield
        finally:
            for each in calls:
                if each.pending == 0 and each.call.id in self._queue.parked | self._queue.aside:
                    if each.call.id in self._queue.parked:
                        self._queue.unpark(each.call.id)
                    if each.call.state is CallState.WAITING_INPUT:
                        self.to(each, core.move(each.call, CallState.IN_PROGRESS, self._clock.now()))

    @contextmanager
    def _perhaps(self, calls: list[ActiveCall], pending_ids: tuple[str, ...]) -> Generator[None]:
        """Record on each of the calls, for the block, that it may be the cause."""
        for active in calls:
            ids = (*active.call.perhaps_pending_ids, *pending_ids)[-PENDING_IDS:]
            self.to(active, replaced(active.call, perhaps_pending_ids=ids))
        try:
            yield
        finally:
            for active in calls:
                if active.call.id in self.calls:
                    ids = tuple(each for each in active.call.perhaps_pending_ids if each not in pending_ids)
                    self.to(active, replaced(active.call, perhaps_pending_ids=ids))

    @contextmanager
    def parked(self, active: ActiveCall, *pending_ids: str) -> Generator[None]:
        """Free a call's slot and hold its clock for the block; afterwards it has no slot yet."""
        call = replaced(active.call, pending_ids=(*active.call.pending_ids, *pending_ids)[-PENDING_IDS:])
        if call.state is CallState.IN_PROGRESS:
            call = core.move(call, CallState.WAITING_INPUT, self._clock.now())
        self.to(active, call)
        with self._paused([active]):
            yield

    @contextmanager
    def _paused(self, calls: list[ActiveCall]) -> Generator[None]:
        for active in calls:
            active.pending += 1
            if active.call.id in self._queue.in_flight:
                self._queue.park(active.call.id)
            active.clock.hold(self._clock.steady())
            self.time(active)
        self._next_turns()
        try:
            yield
        finally:
            for active in calls:
                active.pending -= 1
                active.clock.release(self._clock.steady())
                self.time(active)

    def to(self, active: ActiveCall, call: Call) -> None:
        """Move a call to its next state, and record it."""
        before, active.call = active.call, call
        self._record(before, call)

    # Ends

    def stop_all(self, fault: Fault, end: End) -> None:
        """End all calls with a reason."""
        for active in list(self.calls.values()):
            active.stop(fault, end)

    async def wait_idle(self) -> None:
        """Wait until all current calls have ended."""
        for active in list(self.calls.values()):
            await active.ended.wait()

    def queued(self) -> list[ActiveCall]:
        """Return the calls that wait for a turn, next one first."""
        return [self.calls[call_id] for call_id in self._queue.queued]

    def out_of_time(self, active: ActiveCall) -> Fault:
        """Return the fault of a call whose deadline has passed."""
        total = active.clock.out_of_total(self._clock.steady())
        call = active.call
        waited = call.state is CallState.QUEUED
        limit_s = call.max_s if total else call.timeout_s
        where = "waiting for its turn" if waited else "waiting for the server"
        if not waited and self.link is not None and (hint := self.link.hint()):
            where = f"{where}: {hint}"
        option = "call_max_s" if total else "call_timeout_s"
        return Fault(
            code="CALL_MAX_EXCEEDED" if total else "CALL_TIMEOUT",
            category=Category.TIMEOUT,
            message=f"{call.server} did not finish {call.method} within {limit_s:g} s ({option}), {where}",
            retryable=True,
            details={"server": call.server, "method": call.method, "limit_s": limit_s, "queued": waited},
        )
