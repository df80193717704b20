"""One server's request queue at work: turns, clocks, parking, and what the server's questions mean for them."""

import math
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import anyio

from hubbubd.clock import Clock
from hubbubd.config import ServerConfig
from hubbubd.core import calls as core
from hubbubd.core.calls import Call, CallClock, CallState
from hubbubd.core.inbox import CauseSource
from hubbubd.core.queue import CallQueue
from hubbubd.core.server import QueueCounts
from hubbubd.errors import Category, Fault
from hubbubd.upstream.ports import Link


@dataclass(slots=True, eq=False)
class Live:
    """A call under way. `verdict` is why its scope was cancelled; without one it ran out of time."""

    call: Call
    clock: CallClock
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    turn: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    verdict: Fault | None = None
    questions: int = 0
    waiters: int = 0
    resent: bool = False


class Lane:
    """The calls of one server that have not ended. `record` is told of every new state of a call."""

    def __init__(self, config: ServerConfig, clock: Clock, record: Callable[[Call], None]) -> None:
        self.config = config
        self.lives: dict[str, Live] = {}
        self.ended: Counter[CallState] = Counter()
        self.link: Link | None = None
        self.closed = True
        """Whether the server is meant to be, and stays, without a connection."""
        self._clock = clock
        self._record = record
        self._queue = CallQueue(config.max_in_flight, config.max_queued)

    def counts(self) -> QueueCounts:
        """How many calls are in each state."""
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
        """Whether a call is on the wire; a synchronous server cannot answer a ping then."""
        return bool(self._queue.sent)

    # Turns

    def enter(self, call: Call) -> Live:
        """Queues a new call. Raises ResourceExhausted (QUEUE_FULL)."""
        self._queue.add(call.id)
        live = Live(call, CallClock(call.timeout_s, call.max_s, self._clock.now()))
        self.lives[call.id] = live
        self.time(live)
        self._next_turns()
        return live

    def enter_again(self, live: Live) -> None:
        """Queues a call that must be sent once more, at the head."""
        live.turn = anyio.Event()
        self._queue.add_first(live.call.id)
        self.to(live, core.move(live.call, CallState.QUEUED, self._clock.now()))
        self._next_turns()

    def leave(self, live: Live) -> None:
        """Forgets a call that has ended, or that was not admitted after all."""
        self._queue.remove(live.call.id)
        self.lives.pop(live.call.id, None)
        if live.call.state.ended:
            self.ended[live.call.state] += 1
        self._next_turns()

    def sending(self, live: Live) -> None:
        """Notes that a call whose turn has come goes out now."""
        now = self._clock.now()
        live.clock.restart(now)
        self.time(live)
        self.to(live, core.move(live.call, CallState.IN_PROGRESS, now))

    def attach(self, link: Link | None) -> None:
        """The connection is up with this link, or down with None; calls get their turns while it is up."""
        self.link = link
        self._next_turns()

    def _next_turns(self) -> None:
        while self.link is not None and (call_id := self._queue.next()) is not None:
            self.lives[call_id].turn.set()

    # Clocks

    def time(self, live: Live) -> None:
        """Lets the call's scope end when its clock says so."""
        deadline = live.clock.deadline()
        left_s = math.inf if deadline is None else max(deadline - self._clock.now(), 0.0)
        live.scope.deadline = anyio.current_time() + left_s

    def progressed(self, live: Live) -> None:
        """Notes a sign of progress from the server."""
        if self.config.progress_resets_timeout:
            live.clock.restart(self._clock.now())
            self.time(live)

    # Questions

    def cause(self, wire_call_id: str | None) -> tuple[Live | None, CauseSource | None]:
        """The call that caused a question: the one on whose stream it came, else the only one it can be."""
        if wire_call_id is not None:
            live = self.lives.get(wire_call_id)
            return live, CauseSource.WIRE if live else None
        sent = self._queue.sent
        if len(sent) != 1:
            return None, None
        return self.lives[next(iter(sent))], CauseSource.INFERRED

    @contextmanager
    def asked(self, live: Live | None, pending_id: str) -> Generator[None]:
        """While the block is open, a question on the wire waits for a person: its call is parked.

        When the cause is unknown, it may be any of those in flight, so all their clocks stop.
        """
        if live is None:
            with self._held([self.lives[call_id] for call_id in self._queue.in_flight]):
                yield
            return
        with self.parked(live, pending_id):
            yield
        if not live.questions and live.call.state is CallState.WAITING_INPUT:
            self._queue.unpark(live.call.id)
            self.to(live, core.move(live.call, CallState.IN_PROGRESS, self._clock.now()))

    @contextmanager
    def parked(self, live: Live, *pending_ids: str) -> Generator[None]:
        """While the block is open, a call has no slot and its clock stands; afterwards it has no slot yet."""
        call = replace(live.call, pending_ids=(*live.call.pending_ids, *pending_ids))
        live.questions += 1
        if call.state is CallState.IN_PROGRESS:
            self._queue.park(call.id)
            call = core.move(call, CallState.WAITING_INPUT, self._clock.now())
        self.to(live, call)
        self._next_turns()
        try:
            with self._held([live]):
                yield
        finally:
            live.questions -= 1

    @contextmanager
    def _held(self, lives: list[Live]) -> Generator[None]:
        for live in lives:
            live.clock.hold(self._clock.now())
            self.time(live)
        try:
            yield
        finally:
            for live in lives:
                live.clock.release(self._clock.now())
                self.time(live)

    def to(self, live: Live, call: Call) -> None:
        """Puts a call into its next state."""
        live.call = call
        self._record(call)

    # Ends

    def stop(self, live: Live, fault: Fault) -> None:
        """Ends a call with a reason; what is on the wire is cancelled at the server."""
        if live.verdict is None:
            live.verdict = fault
            live.scope.cancel()

    def stop_all(self, fault: Fault) -> None:
        """Ends all calls with a reason."""
        for live in list(self.lives.values()):
            self.stop(live, fault)

    def queued(self) -> list[Live]:
        """Those that wait for their first turn or for another one, next one first."""
        return [self.lives[call_id] for call_id in self._queue.queued]

    def out_of_time(self, live: Live) -> Fault:
        """Why a call whose scope ended by itself has failed."""
        total = live.clock.out_of_total(self._clock.now())
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
