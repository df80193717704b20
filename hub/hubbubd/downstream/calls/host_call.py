"""One request of a host as a call of the hub: its notifications to the host, and how long the request is held.

    question ──> held, with progress that says where to answer ──> result
                        │ longer than the host waits
                        └──> the call goes on without the request: a ticket, or an error (tickets.py)

A host's own dialog, and rounds with a host that can be asked, come first.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar, cast

import structlog

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.host_notes import with_caller_left
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.calls.tickets import describe_wait
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.hosts.timeouts import UNNOTICED_S, find_hold_s
from hubbubd.downstream.protocol.messages import MAX_ID, Refusal, make_notification
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.errors import HubError
from hubbubd.runtime.calls import CallSpec, LogEvent, ProgressEvent
from hubbubd.runtime.hub import Hub

REPORT_EVERY_S: Final = 10.0
"""Seconds between two messages of progress from the hub itself."""

QUIET_S: Final = 1.0
"""Seconds after a question in which nothing is reported and no hold ends: a host that can be asked is asked first."""

RETURN_S: Final = 5.0
"""Seconds in which a host may resume a broken connection before it counts as departed: clients try after one."""

PROGRESS_STEP: Final = 1e-6
"""By how much a message of the hub itself raises the progress: far less than a server's own progress grows."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class CallReporter:
    """Notifies a host of the progress and the log messages of a call, as far as the host wants them.

    The progress that a host is sent only grows (MCP, basic/utilities/progress).
    """

    def __init__(self, request: HostRequest) -> None:
        """Raises Refusal for a wrong progress token, as each notification repeats the token."""
        meta: dict[str, Any] = request.params.get("_meta") or {}
        token = meta.get("progressToken")
        if token is not None and not (isinstance(token, str | int | float) and len(str(token)) <= MAX_ID):
            problem = f"params._meta.progressToken must be a string or a number of at most {MAX_ID} characters"
            raise Refusal(INVALID_PARAMS, problem)
        self.reports_progress = token is not None
        self._request = request
        self._token = token
        self._latest_progress = -1.0

    def on_event(self, call: Call, event: object) -> None:
        """Pass on a live event of the call to the host; `event` None is a change of the record, which is not sent."""
        if isinstance(event, ProgressEvent) and event.progress > self._latest_progress:
            self._send_progress(event.progress, event.total, event.message)
        elif isinstance(event, LogEvent):
            params = cast("dict[str, Any]", payload.loads(event.params))
            if self._request.wants_log(call.server, params.get("level")):
                self._request.send(make_notification("notifications/message", params))

    def report_message(self, message: str | None) -> None:
        """Send a message of the hub itself as progress, which must grow; None sends nothing."""
        if message is None:
            return
        # The step is lost in rounding where the progress is large.
        raised = max(self._latest_progress + PROGRESS_STEP, math.nextafter(self._latest_progress, math.inf))
        self._send_progress(0.0 if self._latest_progress < 0 else raised, None, message)

    def _send_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a notification of progress, if the host has asked for that."""
        if not self.reports_progress:
            return
        self._latest_progress = progress
        params = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        present = {name: value for name, value in params.items() if value is not None}
        self._request.send(make_notification("notifications/progress", present))


class CallObserver:
    """Observes one call, and its questions: the pending requests that the call has caused.

    `on_question` gets each question whenever it has changed, `on_candidate` also those that the call may have caused,
    and `on_live` each live event of the call: progress or a log message.
    """

    def __init__(
        self,
        hub: Hub,
        call_id: str,
        *,
        on_question: Callable[[PendingRequest], None] | None = None,
        on_candidate: Callable[[PendingRequest], None] | None = None,
        on_live: Callable[[Call, object], None] | None = None,
    ) -> None:
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once something has changed since `reset_news`."""
        self.on_question = on_question
        self.on_candidate = on_candidate
        self._hub = hub
        self._call_id = call_id
        self._on_live = on_live
        self._questions: dict[str, PendingRequest | None] = {}
        """By id, in the order of the call. None: the call is parked a moment before its question is in the inbox."""
        self._candidate_ids: set[str] = set()
        self._stack = ExitStack()

    @contextmanager
    def observe(self, call: Call | None) -> Generator[None]:
        """Call the listeners with each change during the block, and first with the call as it is now, unless None."""
        try:
            with self._stack:
                self._stack.enter_context(self._hub.calls.listen(self._call_id, self._on_call))
                if call is not None:
                    self._on_call(call, None)
                yield
        finally:  # listeners and observer refer to each other: only a garbage collection would free them
            self.on_question = self.on_candidate = self._on_live = None

    def open_questions(self) -> list[PendingRequest]:
        """Return the questions that wait for an answer, oldest first."""
        stored = [question for question in self._questions.values() if question is not None]
        return [question for question in stored if question.state is RequestState.OPEN]

    def reset_news(self) -> None:
        """Replace `news`, if it is done, by a future that the next change completes."""
        if self.news.done():
            self.news = asyncio.get_running_loop().create_future()

    def _on_call(self, call: Call, event: object) -> None:
        """Pass on a live event; after a change of the call (`event` None) listen to the questions it now names."""
        if event is not None:
            if self._on_live is not None:
                self._on_live(call, event)
            return
        self.signal_news()
        for question_id in call.pending_ids:
            if question_id not in self._questions:
                self._questions[question_id] = None
                self._listen_to_question(question_id, self._on_question)
        if self.on_candidate is not None:
            for question_id in call.perhaps_pending_ids:
                if question_id not in self._candidate_ids:
                    self._candidate_ids.add(question_id)
                    self._listen_to_question(question_id, self.on_candidate)

    def _listen_to_question(self, question_id: str, listener: Callable[[PendingRequest], None]) -> None:
        """Call a listener with a question as it is now, if it is in the inbox, and whenever it changes."""
        inbox = self._hub.inbox
        self._stack.enter_context(inbox.listen(question_id, lambda question, _event: listener(question)))
        if (question := inbox.find(question_id)) is not None:
            listener(question)

    def _on_question(self, question: PendingRequest) -> None:
        """Note a question of the call as it is now, and pass it on to the listeners."""
        self._questions[question.id] = question
        self.signal_news()
        if self.on_question is not None:
            self.on_question(question)
        if self.on_candidate is not None:
            self.on_candidate(question)

    def signal_news(self, _: object = None) -> None:
        """Complete `news`: something has changed."""
        if not self.news.done():
            self.news.set_result(None)


class Attendance:
    """Counts the hosts that wait for each call. The questions of a call note since when none does."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._host_counts = Counter[str]()

    def add_host(self, call_id: str, call: Call | None) -> None:
        """Note that one more host waits for a call; `call` is None for one that is still to be made."""
        self._host_counts[call_id] += 1
        if self._host_counts[call_id] == 1:
            self._note_left_at(call_id, call, None)

    def remove_host(self, call_id: str, *, has_left: bool) -> None:
        """Note that one host less waits for a call; `has_left`: it left before it was told how the call goes on."""
        self._host_counts[call_id] -= 1
        if not self._host_counts[call_id]:
            del self._host_counts[call_id]
            if has_left and not self._hub.calls.draining:  # at a shutdown hosts come back to the next hub
                self._note_left_at(call_id, self._hub.calls.find(call_id), self._hub.clock.now())

    def _note_left_at(self, call_id: str, call: Call | None, left_at: float | None) -> None:
        """Note in the call's questions, those to come included, when its last host left; None while a host waits."""
        inbox = self._hub.inbox
        inbox.reserved.note_departure(call_id, left_at)
        if call is None:
            return
        for question in map(inbox.find, call.pending_ids):
            if question is not None and with_caller_left(question, left_at) is not question:
                inbox.change_later(question.id, lambda current: with_caller_left(current, left_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldTerms:
    """When the hold of a request (the time for which it is kept open) ends: at `until` (steady clock).

    It ends only while people are asked, unless `ends_without_question`; with `waits_for_dialogs` it does not end while
    a dialog of the host is open. A host that is asked by a result has `return_s` seconds to come with its answer.
    """

    until: float
    return_s: float
    waits_for_dialogs: bool = False
    ends_without_question: bool = False

    @classmethod
    def for_request(cls, policy: QuestionPolicy, request: HostRequest, now: float, *, progress: bool) -> "HoldTerms":
        """Return the terms of a request that arrives `now` (steady clock); `progress`: its host is sent progress."""
        host, chosen_s = request.host, request.hold_s
        if chosen_s is None and policy.hold_s != "auto":
            chosen_s = policy.hold_s
        hold_s = find_hold_s(host.info.get("name"), host.via, gets_progress=progress) if chosen_s is None else chosen_s
        return_s = min(hold_s, UNNOTICED_S) if chosen_s is None else hold_s
        if policy.on_hold_end == "wait":
            return cls(until=math.inf, return_s=return_s)
        return cls(until=now + hold_s, return_s=return_s, waits_for_dialogs=chosen_s is None)


class HostCallState(Enum):
    """How far a request of a host is that has become a call."""

    RUNNING = "its server is at work, as far as the hub knows"
    ASKED = "its server waits for an answer"
    TICKETED = "the host has waited for as long as it does; the call goes on without the request"
    DEPARTED = "the host has gone, and does not know how the call goes on"


class HostCall:
    """One request of a host, while its call is under way."""

    def __init__(self, questions: HostQuestions, attendance: Attendance, request: HostRequest, spec: CallSpec) -> None:
        """`spec` must have an id. Raises Refusal for a wrong progress token."""
        assert spec.call_id is not None, "a host's call has an id"
        self.request = request
        self.spec = spec
        self.call_id: str = spec.call_id
        self.state = HostCallState.RUNNING
        self.reporter = CallReporter(request)
        self.observer = CallObserver(
            questions.hub, self.call_id, on_candidate=self._on_candidate, on_live=self.reporter.on_event
        )
        self._questions = questions
        self._hub = questions.hub
        self._attendance = attendance
        self._is_counted = False  # whether the host is counted as waiting for the call
        self._departure_timer: asyncio.TimerHandle | None = None
        self._began_at = self._hub.clock.steady()
        self._terms: HoldTerms | None = None
        self._awaited: dict[str, PendingRequest] = {}
        """By id, what the call waits for, or may wait for, oldest first."""
        self._waiting_since = self._began_at  # when the call last began to wait
        self._next_report_at = self._began_at + QUIET_S  # when the next report to the host is due
        self._open_dialogs = 0
        self._question_changed = asyncio.Event()
        self._hold_timeout = asyncio.timeout(None)  # ends the work for the request once `_hold_task` has set its time
        self._hold_task: asyncio.Task[None] | None = None

    @property
    def terms(self) -> HoldTerms:
        """When the request's hold ends. Made at the first use, as most calls have no question."""
        if self._terms is None:
            progress = self.reporter.reports_progress
            self._terms = HoldTerms.for_request(self._questions.policy, self.request, self._began_at, progress=progress)
        return self._terms

    def end_hold_within(self, wait_s: float | None) -> None:
        """End the hold at the latest `wait_s` seconds after its begin, even if nobody is asked; None: no limit."""
        until = self.terms.until if wait_s is None else min(self.terms.until, self._began_at + wait_s)
        self._terms = replace(self.terms, until=until, ends_without_question=True)

    @property
    def awaited_questions(self) -> list[PendingRequest] | None:
        """The questions that the call is certain to wait for, oldest first; None if it waits for no answer at all."""
        if not self._awaited:
            return None
        # A question whose cause is not certain may be another principal's: this host must not learn of it.
        return [each for each in self._awaited.values() if each.call_id == self.call_id and each.is_cause_certain]

    @property
    def outlives_host(self) -> bool:
        """Whether the call goes on when its host leaves: the host was promised that it can fetch the result later."""
        return self.state is HostCallState.TICKETED or (self._terms is not None and self._terms.ends_without_question)

    @contextmanager
    def report_to_host(self) -> Generator[None]:
        """Notify the host of what the call does during the block, and count it among the hosts that wait for the call.

        A cancelled block means that the host has left.
        """
        with self.request.presence.call_on_change(self._on_presence):
            call = self._hub.calls.find(self.call_id)
            self._count_host(call)
            try:
                with self.observer.observe(call):
                    yield
            except asyncio.CancelledError:
                self._note_departure()
                raise
            finally:
                self._uncount_host(has_left=False)

    async def run_until_hold_ends(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run `work` and return its result; None if the hold of the request ends first. Raises what `work` raises."""
        if self._terms is not None and self._terms.ends_without_question:  # else it starts with the first question
            self._start_hold_task()
        try:
            async with self._hold_timeout:
                return await work
        except TimeoutError:
            if self.state is not HostCallState.TICKETED:  # a timeout of the work itself, not of the hold
                raise
            return None
        finally:
            if self._hold_task is not None:
                self._hold_task.cancel()
                self._hold_task = None  # else its error keeps this object in memory, by way of its frame

    @contextmanager
    def count_dialog(self) -> Generator[None]:
        """Count a dialog of the host as open during the block; the request may be held for as long as it is open."""
        self._open_dialogs += 1
        try:
            yield
        finally:
            self._open_dialogs -= 1

    # Whether the host is there

    def _on_presence(self) -> None:
        """Count a host whose connection is back as waiting; one whose connection broke departs after RETURN_S."""
        if self.request.presence.is_connected:
            self._count_host(self._hub.calls.find(self.call_id))
        else:
            self._cancel_departure()
            self._departure_timer = asyncio.get_running_loop().call_later(RETURN_S, self._note_departure)

    def _count_host(self, call: Call | None) -> None:
        """Note that the host is there, and count it once among the hosts that wait for the call."""
        self._cancel_departure()
        if self.state is HostCallState.DEPARTED:
            self.state = HostCallState.ASKED if self._awaited else HostCallState.RUNNING
        if not self._is_counted:
            self._is_counted = True
            self._attendance.add_host(self.call_id, call)

    def _note_departure(self) -> None:
        """Note that the host has left. A ticketed call keeps its state, since it goes on without its host."""
        if self.state is not HostCallState.TICKETED:
            self.state = HostCallState.DEPARTED
        self._uncount_host(has_left=True)

    def _uncount_host(self, *, has_left: bool) -> None:
        """Count the host no longer as waiting, if it is counted; `has_left` as in `Attendance.remove_host`."""
        self._cancel_departure()
        if self._is_counted:
            self._is_counted = False
            self._attendance.remove_host(self.call_id, has_left=has_left)

    def _cancel_departure(self) -> None:
        """Cancel the timer that would count the host as departed after RETURN_S."""
        if self._departure_timer is not None:
            self._departure_timer.cancel()
            self._departure_timer = None

    # How long the request is held

    def _on_candidate(self, question: PendingRequest) -> None:
        """Note whether a question that the call has caused, or may have caused, is open: the hold depends on that."""
        self._questions.note_host_decision(self.request.host, question)
        if question.state is RequestState.OPEN:
            if not self._awaited:
                self._waiting_since = self._hub.clock.steady()
                self._next_report_at = max(self._next_report_at, self._waiting_since + QUIET_S)
            self._awaited[question.id] = question
            self._start_hold_task()
        else:
            self._awaited.pop(question.id, None)
        if self.state in (HostCallState.RUNNING, HostCallState.ASKED):
            self.state = HostCallState.ASKED if self._awaited else HostCallState.RUNNING
        self._question_changed.set()

    def _start_hold_task(self) -> None:
        """Start the task that reports to the host and ends the hold in time, unless the task runs."""
        if self._hold_task is None:
            self._hold_task = asyncio.get_running_loop().create_task(self._end_hold_in_time())

    async def _end_hold_in_time(self) -> None:
        """Report to the host what the call waits for; at the end of the hold detach the call, so that it goes on."""
        while True:
            await self._report_until_hold_ends()
            try:
                await self._hub.calls.start(self.spec, self.request.host.principal.name)
            except HubError as exc:  # the request is held until its call can be made durable
                log.warning("a call could not be detached from its host", call=self.call_id, error=exc.message)
                await asyncio.sleep(REPORT_EVERY_S)
                continue
            self.state = HostCallState.TICKETED
            self._hold_timeout.reschedule(asyncio.get_running_loop().time())
            return

    async def _report_until_hold_ends(self) -> None:
        """Wait until the hold ends; every REPORT_EVERY_S seconds report to the host what the call waits for."""
        while (end := self._find_hold_end()) > (now := self._hub.clock.steady()):
            reports = bool(self._awaited) or self.terms.ends_without_question  # a host that fetches a result waits, too
            if reports and now >= self._next_report_at:
                self.reporter.report_message(self._describe_wait())
                self._next_report_at = now + REPORT_EVERY_S
            wake_at = min(end, self._next_report_at) if reports else end
            self._question_changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wake_at == math.inf else wake_at - now):
                    await self._question_changed.wait()

    def _find_hold_end(self) -> float:
        """Return when the hold ends (steady clock); infinity while nobody is asked, or while a dialog delays it."""
        waits_for_dialog = self.terms.waits_for_dialogs and self._open_dialogs > 0
        if waits_for_dialog or not (self._awaited or self.terms.ends_without_question):
            return math.inf
        return max(self.terms.until, self._waiting_since + QUIET_S)

    def _describe_wait(self) -> str:
        """Return in a few words what the call waits for."""
        questions = self.awaited_questions
        return "the call is under way" if questions is None else describe_wait(questions)
