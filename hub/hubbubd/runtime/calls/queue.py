"""One server's call queue at run time: adds waiting, time, parking and causes of requests to `core/calls/queue.py`."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final

from hubbubd.config import ServerConfig
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_states import Call, CallClock, CallState
from hubbubd.core.calls.queue import CallQueue, Slot
from hubbubd.core.inbox.request_states import CauseSource, PendingRequest
from hubbubd.core.servers.server_record import QueueCounts
from hubbubd.errors import Category, Fault, HubError
from hubbubd.frozen import replaced
from hubbubd.telemetry.trace import Trace
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.timing.clock import Clock
from hubbubd.timing.deadline import Deadline
from hubbubd.upstream.ports import Hello, McpLink

MAX_PENDING_IDS = 1000
"""The most pending requests that a call's record names of those that it caused: the newest."""
MAX_CANDIDATES = 50
"""The most candidate calls that a pending request names."""

SENT_SLOTS = (Slot.IN_FLIGHT, Slot.PARKED)
"""The slots of the calls that the server has received and not answered, except of tasks."""

MAX_ASIDE = 1000
"""The most calls of a server that may continue as tasks without occupying a slot."""

ANSWERED_S: Final = 5.0
"""Seconds for which a server may still ask something about a call that it has answered."""
UNANSWERED_S: Final = 60.0
"""The same for a call that the server has not answered: it may not know yet that no caller waits any more."""


class End(StrEnum):
    """Why a call is stopped before its server has replied."""

    CANCELLED = "cancelled"
    """Cancelled on request, or its caller is gone."""
    SERVER_GONE = "server_gone"
    """Its server was disconnected, removed or given up."""
    SHUTTING_DOWN = "shutting_down"
    """The hub stops; the call may be resumed after the restart."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ActiveCall:
    """A call under way. A caller that joins it waits for `admitted`, and then looks whether there is a `refusal`."""

    call: Call
    clock: CallClock
    _: KW_ONLY
    deadline: Deadline = field(default_factory=Deadline)
    slot_assigned: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)  # set once it is stored, or refused
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: HubError | None = None
    """Why the store did not take the call."""
    fault: Fault | None = None
    """Why it was stopped. `fault` and `end` are None before that, and if its deadline has passed."""
    end: End | None = None
    open_questions: int = 0
    waiters: int = 0
    """Callers that wait for its end."""
    is_durable_first: bool = False
    """Whether its record is durable before it is sent, as that of each detached call."""
    was_resent: bool = False
    was_sent: bool = False
    """Whether the server may have received it."""
    is_recorded_as_sent: bool = False
    """Whether the next hub, after a restart, knows that it was sent."""
    last_span: Trace | None = None
    """The span of what was sent last."""
    question: PendingRequest | None = None
    """What people are asked before it is queued; opened in one commit with the call's record."""
    checked_with: tuple[ServerConfig, Hello] | None = None
    """The configuration and handshake with which the call was checked and allowed; None: check it again."""

    def stop(self, fault: Fault, end: End = End.CANCELLED) -> None:
        """Make the call end with a reason; if it was sent, its server gets a cancellation. The first reason counts."""
        if self.fault is None:
            self.fault, self.end = fault, end
            self.deadline.end()


class RecentCallers:
    """The principals whose calls over one connection have ended a moment ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent_until: dict[str, float] = {}  # by principal, in monotonic seconds

    def forget_all(self) -> None:
        """Forget all principals, as a new connection begins."""
        self._recent_until.clear()

    def note_end(self, principal: str, *, answered: bool) -> None:
        """Note that a call of a principal has ended; the principal stays longer if its server has not `answered` it."""
        now = self._clock.steady()
        self._recent_until = {each: until for each, until in self._recent_until.items() if until > now}
        until = now + (ANSWERED_S if answered else UNANSWERED_S)
        self._recent_until[principal] = max(until, self._recent_until.get(principal, until))

    def is_only_caller(self, principal: str, active_principals: Iterable[str]) -> bool:
        """Return whether a principal made all recent calls and all under way, which are of `active_principals`."""
        now = self._clock.steady()
        recent = (each for each, until in self._recent_until.items() if until > now)
        return all(each == principal for each in (*active_principals, *recent))


class ServerQueue:
    """The unfinished calls of one server."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        record: Callable[[Call, Call], None],
        all_calls: dict[str, ActiveCall],
        tracer: Tracer = OFF,
    ) -> None:
        """`record` gets each changed call, before and after. `all_calls` is the index of all queues' calls by id."""
        self._set_config(config)
        self.tracer = tracer
        self.calls: dict[str, ActiveCall] = {}
        self.ended: Counter[CallState] = Counter()
        self.link: McpLink | None = None
        self.closed = True
        """Whether the server is disconnected by request, or given up; the queue takes no calls then."""
        self.give_up_fault: Fault | None = None
        """Why the hub gave up on the server, when that closed the queue."""
        self._callers = RecentCallers(clock)
        self._clock = clock
        self._record = record
        self._all_calls = all_calls
        self._queue = CallQueue(
            config.max_in_flight, config.max_queued, one_question_at_a_time=config.one_question_at_a_time
        )
        self._link_arrived = asyncio.Event()

    def adopt(self, config: ServerConfig) -> None:
        """Apply changed options; calls already queued keep their deadlines."""
        self._set_config(config)
        limits = config.max_in_flight, config.max_queued
        self._queue.set_limits(*limits, one_question_at_a_time=config.one_question_at_a_time)
        self._assign_slots()

    def _set_config(self, config: ServerConfig) -> None:
        """Set the configuration, and the values of it that each call needs."""
        self.config = config
        self.fingerprint = config.fingerprint  # cached: a hash
        self.limits_tools = config.limits_tools

    def counts(self) -> QueueCounts:
        """Return the number of calls by state."""
        by_state = Counter(active.call.state for active in self.calls.values())
        return QueueCounts(
            queued=by_state[CallState.QUEUED],
            in_progress=by_state[CallState.IN_PROGRESS],
            waiting_input=by_state[CallState.WAITING_INPUT],
            completed=self.ended[CallState.COMPLETED],
            failed=self.ended[CallState.FAILED],
            cancelled=self.ended[CallState.CANCELLED],
        )

    @property
    def is_busy(self) -> bool:
        """Whether a call is on the wire or parked; a synchronous server cannot answer a ping then."""
        return self._queue.count(*SENT_SLOTS) > 0

    # Slots

    def add(self, call: Call) -> ActiveCall:
        """Queue a new call; it gets a slot at once if one is free. Raises ResourceExhausted (QUEUE_FULL)."""
        self._queue.add(call.id, len(call.params))
        active = self.register(call)
        self.set_deadline(active)
        self._assign_slots()
        return active

    def resume(self, call: Call) -> ActiveCall:
        """Add a call from before a restart; no limit of the queue applies.

        A task is set aside, a call never sent waits at the end of the queue, and any other has no slot yet.
        """
        active = self.register(call)
        active.admitted.set()
        active.was_sent = active.is_recorded_as_sent = not (core.was_never_sent(call) or core.is_held(call))
        if core.was_never_sent(call):
            self._queue.add_resumed(call.id, len(call.params))
            self.set_deadline(active)
        if call.task_id is not None:
            if call.state is CallState.WAITING_INPUT:
                self._change_state(active, CallState.IN_PROGRESS)
            self.set_aside(active)
        return active

    def enqueue_approved(self, active: ActiveCall) -> None:
        """Queue a call that has been approved. No limit applies, as people have waited for it."""
        self._queue.add_resumed(active.call.id, len(active.call.params))
        self.set_deadline(active)
        self._change_state(active, CallState.QUEUED)
        self._assign_slots()

    def register(self, call: Call) -> ActiveCall:
        """Add a call to this queue in no slot: it is not sent before it gets one."""
        active = ActiveCall(call, CallClock(call.timeout_s, call.max_s, self._clock.steady()), last_span=call.trace)
        self.calls[call.id] = self._all_calls[call.id] = active
        return active

    def set_aside(self, active: ActiveCall) -> None:
        """Free the slot of a call that has become a task (not beyond MAX_ASIDE); only its total time counts now."""
        if self._queue.count(Slot.ASIDE) < MAX_ASIDE:
            self._queue.set_aside(active.call.id)
        active.clock.drop_timeout(self._clock.steady())
        self.set_deadline(active)
        self._assign_slots()

    def requeue(self, active: ActiveCall) -> None:
        """Queue a call that must be sent again, at the head."""
        self._put_first(active)
        self._change_state(active, CallState.QUEUED)
        self._assign_slots()

    def _put_first(self, active: ActiveCall) -> None:
        """Put a call at the head of those that wait for a slot."""
        active.slot_assigned = asyncio.Event()  # any slot that it had is lost
        self._queue.add_first(active.call.id)

    def remove(self, active: ActiveCall, ended: Call) -> None:
        """Remove a call that has ended, or that the next hub resumes; `ended` is its last state."""
        if active.call.started_at is not None:  # it was sent
            answered = ended.fault is None or ended.fault.category is Category.SERVER  # an error, too
            self._callers.note_end(ended.principal, answered=answered)
        active.call = ended
        self._queue.remove(ended.id)
        del self.calls[ended.id], self._all_calls[ended.id]
        self._assign_slots()

    async def wait_for_slot(self, active: ActiveCall) -> McpLink:
        """Wait for a slot for the call, move it to IN_PROGRESS, and return the link to send it over."""
        while not active.slot_assigned.is_set():  # `set_link` replaces the event if it takes the slot back
            await active.slot_assigned.wait()
        await active.deadline.stop_if_over()
        assert self.link is not None, "turns end with the link"
        active.clock.restart(self._clock.steady())
        self.set_deadline(active)
        self._change_state(active, CallState.IN_PROGRESS)
        return self.link

    def set_link(self, link: McpLink | None) -> None:
        """Set the current link, or None when the connection is down; calls get slots only while there is one."""
        self.link = link
        if link is not None:
            self._callers.forget_all()
            self._link_arrived.set()
            self._link_arrived = asyncio.Event()
        else:
            for active in reversed(self.calls.values()):  # so that the oldest comes first
                if active.slot_assigned.is_set() and active.call.state is CallState.QUEUED:  # it is not sent yet
                    self._put_first(active)
        self._assign_slots()

    async def wait_for_link(self) -> McpLink:
        """Wait for a link and return it."""
        while self.link is None:
            await self._link_arrived.wait()
        return self.link

    def _assign_slots(self) -> None:
        """Give free slots to the waiting calls, if there is a link."""
        while self.link is not None and (call_id := self._queue.start_next()) is not None:
            self.calls[call_id].slot_assigned.set()

    # Deadlines

    def set_deadline(self, active: ActiveCall) -> None:
        """Set the call's deadline to the moment at which its time is used up; to never while its clock is stopped."""
        at = active.clock.deadline()
        active.deadline.move(math.inf if at is None else at)

    def note_progress(self, active: ActiveCall) -> None:
        """Restart the call's timeout, as its server has reported progress, if `progress_resets_timeout` is set."""
        if self.config.progress_resets_timeout:
            active.clock.restart(self._clock.steady())
            self.set_deadline(active)

    # Causes of pending requests

    def find_cause(self, wire_call_id: str | None) -> tuple[ActiveCall | None, CauseSource | None]:
        """Return the call that caused a request (that of its stream, else the only possible one), and how it is known.

        (None, None) if several calls may be the cause, or none.
        """
        if wire_call_id is not None:
            active = self.calls.get(wire_call_id)
            return active, CauseSource.WIRE if active else None
        causes = self._possible_causes()
        return (causes[0], CauseSource.INFERRED) if len(causes) == 1 else (None, None)

    def works_only_for(self, principal: str) -> bool:
        """Return whether all calls that the server works on, or worked on a moment ago, are of a principal."""
        principals = (active.call.principal for active in self._calls_in(*SENT_SLOTS, Slot.ASIDE))
        return self._callers.is_only_caller(principal, principals)

    def _calls_in(self, *slots: Slot) -> list[ActiveCall]:
        """Return the calls in these slots, oldest first."""
        return [active for call_id, active in self.calls.items() if self._queue.slot(call_id) in slots]

    def _possible_causes(self) -> list[ActiveCall]:
        """Return the calls that may have caused a request which does not name its cause, oldest first."""
        # Requests of tasks name their task, so calls on the wire are the likelier cause.
        return self._calls_in(*SENT_SLOTS) or self._calls_in(Slot.ASIDE)

    def possible_cause_ids(self) -> tuple[str, ...]:
        """Return the ids of the calls that may have caused a request, for its record; none if they are too many."""
        causes = self._possible_causes()
        return tuple(active.call.id for active in causes) if len(causes) <= MAX_CANDIDATES else ()

    @contextmanager
    def park_causes(
        self, cause: ActiveCall | None, *pending_ids: str, candidates: Collection[str] = ()
    ) -> Generator[None]:
        """Park the causing call while a request on the wire waits for a person: it has no slot, its clock is stopped.

        If the cause is unknown, all calls that the server knows of are parked, as each may be the cause. The records of
        the calls in `candidates` then name the requests as possibly theirs.
        """
        if cause is not None:
            causes = [cause]
            parking = self.park(cause, *pending_ids)
        else:
            causes = self._calls_in(*SENT_SLOTS, Slot.ASIDE)
            parking = self.hold(causes)
        possible = [self.calls[call_id] for call_id in candidates if call_id in self.calls] if cause is None else []
        try:
            with parking, self._note_candidates(possible, pending_ids):
                yield
        finally:
            for active in causes:
                self._return_slot(active)

    def _return_slot(self, active: ActiveCall) -> None:
        """Give a parked call its slot back once none of its questions is open; a call that is a task needs no slot."""
        slot = self._queue.slot(active.call.id)
        if active.open_questions > 0 or slot not in (Slot.PARKED, Slot.ASIDE):
            return
        if slot is Slot.PARKED:
            self._queue.unpark(active.call.id)
        if active.call.state is CallState.WAITING_INPUT:
            self._change_state(active, CallState.IN_PROGRESS)

    @contextmanager
    def _note_candidates(self, calls: list[ActiveCall], pending_ids: tuple[str, ...]) -> Generator[None]:
        """For the block, record on each of these calls that it may have caused the requests `pending_ids`."""
        for active in calls:
            ids = (*active.call.perhaps_pending_ids, *pending_ids)[-MAX_PENDING_IDS:]
            self.change(active, replaced(active.call, perhaps_pending_ids=ids))
        try:
            yield
        finally:
            for active in calls:
                if active.call.id in self.calls:
                    ids = tuple(each for each in active.call.perhaps_pending_ids if each not in pending_ids)
                    self.change(active, replaced(active.call, perhaps_pending_ids=ids))

    @contextmanager
    def park(self, active: ActiveCall, *pending_ids: str, at_server: bool = True) -> Generator[None]:
        """Free a call's slot and stop its clock for the block. Afterwards it has no slot until it is given one.

        A call that was not sent (not `at_server`) leaves the queue, so that it blocks no other call.
        """
        call = replaced(active.call, pending_ids=(*active.call.pending_ids, *pending_ids)[-MAX_PENDING_IDS:])
        if call.state is CallState.IN_PROGRESS:
            call = core.move(call, CallState.WAITING_INPUT, self._clock.now())
        self.change(active, call)
        if not at_server:
            self._queue.remove(call.id)
        with self.hold([active]):
            yield

    @contextmanager
    def hold(self, calls: list[ActiveCall]) -> Generator[None]:
        """Free the slots of these calls, and let no time count against them, for the block."""
        for active in calls:
            active.open_questions += 1
            if self._queue.slot(active.call.id) is Slot.IN_FLIGHT:
                self._queue.park(active.call.id)
            active.clock.hold(self._clock.steady())
            self.set_deadline(active)
        self._assign_slots()
        try:
            yield
        finally:
            for active in calls:
                active.open_questions -= 1
                active.clock.release(self._clock.steady())
                self.set_deadline(active)

    def _change_state(self, active: ActiveCall, state: CallState) -> None:
        """Move a call to another state, and record that."""
        self.change(active, core.move(active.call, state, self._clock.now()))

    def change(self, active: ActiveCall, call: Call) -> None:
        """Set the newest state of a call, and record it."""
        before, active.call = active.call, call
        self._record(before, call)

    # Ends

    def stop_all(self, fault: Fault, end: End) -> None:
        """Make all calls end, each with this reason unless it has one; return before they have ended."""
        for active in list(self.calls.values()):
            active.stop(fault, end)

    async def wait_idle(self) -> None:
        """Wait until all calls that are unfinished now have ended."""
        for active in list(self.calls.values()):
            await active.ended.wait()

    def waiting_calls(self) -> list[ActiveCall]:
        """Return the calls that wait for a slot, next one first."""
        return [self.calls[call_id] for call_id in self._queue.waiting]

    def timeout_fault(self, active: ActiveCall) -> Fault:
        """Return the fault of a call whose deadline has passed."""
        call = active.call
        if active.clock.has_used_up_max(self._clock.steady()):
            code, option, limit_s = "CALL_MAX_EXCEEDED", "call_max_s", call.max_s
        else:
            code, option, limit_s = "CALL_TIMEOUT", "call_timeout_s", call.timeout_s
        is_queued = call.state is CallState.QUEUED
        phase = "waiting for its turn" if is_queued else "waiting for the server"
        if not is_queued and self.link is not None and (hint := self.link.missing_response_hint()):
            phase = f"{phase}: {hint}"
        return Fault(
            code=code,
            category=Category.TIMEOUT,
            message=f"{call.server} did not finish {call.method} within {limit_s:g} s ({option}), {phase}",
            retryable=True,
            details={"server": call.server, "method": call.method, "limit_s": limit_s, "queued": is_queued},
        )
