"""One server's call queue at run time: slots, deadlines, parking, and which call caused what the server asks.

The order is that of `core/queue.py`; this adds waiting and time.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum

import anyio

from hubbubd.clock import Clock
from hubbubd.config import ServerConfig
from hubbubd.core import calls as core
from hubbubd.core.calls import Call, CallClock, CallState
from hubbubd.core.inbox import CauseSource
from hubbubd.core.queue import CallQueue
from hubbubd.core.server import QueueCounts
from hubbubd.errors import Category, Fault, HubError
from hubbubd.telemetry.trace import Trace
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.upstream.ports import Link

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

    `verdict` and `end` say why its scope was cancelled; without them its deadline has passed. `place` is the span of
    what was sent last. `known_as_sent` says that, after a restart, the call is known to have been sent.
    """

    call: Call
    clock: CallClock
    _: KW_ONLY
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    turn: anyio.Event = field(default_factory=anyio.Event)
    admitted: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    refusal: HubError | None = None
    verdict: Fault | None = None
    end: End | None = None
    questions: int = 0
    waiters: int = 0
    resent: bool = False
    known_as_sent: bool = False
    place: Trace | None = None

    def stop(self, fault: Fault, end: End = End.CANCELLED) -> None:
        """End the call with a reason; on the wire it is cancelled at the server. The first reason counts."""
        if self.verdict is None:
            self.verdict, self.end = fault, end
            self.scope.cancel()


class ServerQueue:
    """The unfinished calls of one server. `record` is called with every new state of a call."""

    def __init__(
        self, config: ServerConfig, clock: Clock, record: Callable[[Call], None], tracer: Tracer = OFF
    ) -> None:
        self._take(config)
        self.tracer = tracer
        self.lives: dict[str, ActiveCall] = {}
        self.ended: Counter[CallState] = Counter()
        self.link: Link | None = None
        self.closed = True
        """Whether the server is disconnected by request, or given up."""
        self.given_up: Fault | None = None
        """Why the hub gave up on the server, when that closed the queue."""
        self._clock = clock
        self._record = record
        self._queue = CallQueue(
            config.max_in_flight, config.max_queued, one_question_at_a_time=config.one_question_at_a_time
        )
        self._attached = anyio.Event()

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
        now = Counter(live.call.state for live in self.lives.values())
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
        live = ActiveCall(call, CallClock(call.timeout_s, call.max_s, self._clock.steady()), place=call.trace)
        self.lives[call.id] = live
        self.time(live)
        self._next_turns()
        return live

    def resume(self, call: Call) -> ActiveCall:
        """Take in a call from before a restart: as a task, at the end of the queue if never sent, and parked otherwise.

        No limit applies, as it was admitted before.
        """
        live = ActiveCall(call, CallClock(call.timeout_s, call.max_s, self._clock.steady()), place=call.trace)
        live.admitted.set()
        live.known_as_sent = not core.never_sent(call)
        self.lives[call.id] = live
        if core.never_sent(call):
            self._queue.add_again(call.id, len(call.params))
            self.time(live)
        if call.task_id is not None:
            if call.state is CallState.WAITING_INPUT:
                self.to(live, core.move(call, CallState.IN_PROGRESS, self._clock.now()))
            self.set_aside(live)
        return live

    def set_aside(self, live: ActiveCall) -> None:
        """Free the slot of a call that has become a task; from now on only its total time counts.

        Beyond MAX_ASIDE such calls keep their slots, which bounds their number.
        """
        if len(self._queue.aside) < MAX_ASIDE:
            self._queue.set_aside(live.call.id)
        live.clock.without_timeout(self._clock.steady())
        self.time(live)
        self._next_turns()

    def enter_again(self, live: ActiveCall) -> None:
        """Queue a call that must be sent again, at the head."""
        self._put_first(live)
        self.to(live, core.move(live.call, CallState.QUEUED, self._clock.now()))
        self._next_turns()

    def _put_first(self, live: ActiveCall) -> None:
        live.turn = anyio.Event()
        self._queue.add_first(live.call.id)

    def leave(self, live: ActiveCall, ended: Call) -> None:
        """Remove a call that has ended."""
        live.call = ended
        self._queue.remove(ended.id)
        del self.lives[ended.id]
        self._next_turns()

    async def turn(self, live: ActiveCall) -> Link:
        """Wait for the call's turn, move it to IN_PROGRESS, and return the link to send it over."""
        while not live.turn.is_set():  # `attach` replaces the event of a turn that the link's end took back
            await live.turn.wait()
        assert self.link is not None, "turns end with the link"
        live.clock.restart(self._clock.steady())
        self.time(live)
        self.to(live, core.move(live.call, CallState.IN_PROGRESS, self._clock.now()))
        return self.link

    def attach(self, link: Link | None) -> None:
        """Set the current link, or None when the connection is down; calls get turns only while there is one."""
        self.link = link
        if link is not None:
            self._attached.set()
            self._attached = anyio.Event()
        if link is None:
            for live in reversed(self.lives.values()):
                if live.turn.is_set() and live.call.state is CallState.QUEUED:  # has a turn, but is not sent yet
                    self._put_first(live)
        self._next_turns()

    async def connected(self) -> Link:
        """Wait for a link and return it."""
        while self.link is None:
            await self._attached.wait()
        return self.link

    def _next_turns(self) -> None:
        while self.link is not None and (call_id := self._queue.next()) is not None:
            self.lives[call_id].turn.set()

    # Deadlines

    def time(self, live: ActiveCall) -> None:
        """Set the deadline of the call's scope from its clock."""
        deadline = live.clock.deadline()
        left_s = math.inf if deadline is None else max(deadline - self._clock.steady(), 0.0)
        live.scope.deadline = anyio.current_time() + left_s

    def progressed(self, live: ActiveCall) -> None:
        """Restart the call's timeout after a progress notification, if so configured."""
        if self.config.progress_resets_timeout:
            live.clock.restart(self._clock.steady())
            self.time(live)

    # Causes of pending requests

    def cause(self, wire_call_id: str | None) -> tuple[ActiveCall | None, CauseSource | None]:
        """Return the call that caused a request: that of the stream it came on, else the only candidate."""
        if wire_call_id is not None:
            live = self.lives.get(wire_call_id)
            return live, CauseSource.WIRE if live else None
        candidates = self.candidates()
        return (candidates[0], CauseSource.INFERRED) if len(candidates) == 1 else (None, None)

    def candidates(self) -> list[ActiveCall]:
        """Return the calls that may have caused a request which does not name its cause, oldest first."""
        # Requests of tasks name their task, so calls on the wire are the likelier cause.
        sent = self._queue.sent or self._queue.aside
        return [live for call_id, live in self.lives.items() if call_id in sent]

    def candidate_ids(self) -> tuple[str, ...]:
        """Return the candidates' ids for a record; none if they are too many to be useful."""
        found = tuple(live.call.id for live in self.candidates())
        return found if len(found) <= MAX_CANDIDATES else ()

    @contextmanager
    def asked(self, live: ActiveCall | None, *pending_ids: str, candidates: Collection[str] = ()) -> Generator[None]:
        """Park the causing call while a request on the wire waits for a person.

        With an unknown cause it may be any call the server knows of: none of them occupies a slot or loses time. The
        `candidates` record that they may be what the request waits for.
        """
        known = self._queue.sent | self._queue.aside
        lives = [live] if live is not None else [self.lives[call_id] for call_id in known]
        perhaps = [self.lives[call_id] for call_id in candidates if call_id in self.lives] if live is None else []
        try:
            held = self._paused(lives) if live is None else self.parked(live, *pending_ids)
            with held, self._perhaps(perhaps, pending_ids):
                yield
        finally:
            for each in lives:
                if each.questions == 0 and each.call.id in self._queue.parked | self._queue.aside:
                    if each.call.id in self._queue.parked:
                        self._queue.unpark(each.call.id)
                    if each.call.state is CallState.WAITING_INPUT:
                        self.to(each, core.move(each.call, CallState.IN_PROGRESS, self._clock.now()))

    @contextmanager
    def _perhaps(self, lives: list[ActiveCall], pending_ids: tuple[str, ...]) -> Generator[None]:
        """Record on each of the calls, for the block, that it may be the cause."""
        for live in lives:
            ids = (*live.call.perhaps_pending_ids, *pending_ids)[-PENDING_IDS:]
            self.to(live, replace(live.call, perhaps_pending_ids=ids))
        try:
            yield
        finally:
            for live in lives:
                if live.call.id in self.lives:
                    ids = tuple(each for each in live.call.perhaps_pending_ids if each not in pending_ids)
                    self.to(live, replace(live.call, perhaps_pending_ids=ids))

    @contextmanager
    def parked(self, live: ActiveCall, *pending_ids: str) -> Generator[None]:
        """Free a call's slot and hold its clock for the block; afterwards it has no slot yet."""
        call = replace(live.call, pending_ids=(*live.call.pending_ids, *pending_ids)[-PENDING_IDS:])
        if call.state is CallState.IN_PROGRESS:
            call = core.move(call, CallState.WAITING_INPUT, self._clock.now())
        self.to(live, call)
        with self._paused([live]):
            yield

    @contextmanager
    def _paused(self, lives: list[ActiveCall]) -> Generator[None]:
        for live in lives:
            live.questions += 1
            if live.call.id in self._queue.in_flight:
                self._queue.park(live.call.id)
            live.clock.hold(self._clock.steady())
            self.time(live)
        self._next_turns()
        try:
            yield
        finally:
            for live in lives:
                live.questions -= 1
                live.clock.release(self._clock.steady())
                self.time(live)

    def to(self, live: ActiveCall, call: Call) -> None:
        """Move a call to its next state, and record it."""
        live.call = call
        self._record(call)

    # Ends

    def stop_all(self, fault: Fault, end: End) -> None:
        """End all calls with a reason."""
        for live in list(self.lives.values()):
            live.stop(fault, end)

    async def wait_idle(self) -> None:
        """Wait until all current calls have ended."""
        for live in list(self.lives.values()):
            await live.ended.wait()

    def queued(self) -> list[ActiveCall]:
        """Return the calls that wait for a turn, next one first."""
        return [self.lives[call_id] for call_id in self._queue.queued]

    def out_of_time(self, live: ActiveCall) -> Fault:
        """Return the fault of a call whose deadline has passed."""
        total = live.clock.out_of_total(self._clock.steady())
        waited = live.call.state is CallState.QUEUED
        limit_s = live.call.max_s if total else live.call.timeout_s
        where = "waiting for its turn" if waited else "waiting for the server"
        option = "call_max_s" if total else "call_timeout_s"
        return Fault(
            code="CALL_MAX_EXCEEDED" if total else "CALL_TIMEOUT",
            category=Category.TIMEOUT,
            message=f"{live.call.server} did not finish {live.call.method} within {limit_s:g} s ({option}), {where}",
            retryable=True,
            details={"server": live.call.server, "method": live.call.method, "limit_s": limit_s, "queued": waited},
        )
