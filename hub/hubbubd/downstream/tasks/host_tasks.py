"""Calls that are tasks for their hosts: which calls are tasks, their questions, and their status.

A task of a host is a detached call, so it goes on as its call does: without its host, and over a restart. The id of the
call is the id of the task. The id names the endpoint at which the task was made, and cannot be guessed.
"""

import asyncio
import hashlib
import math
import secrets
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.request_states import MAX_CLAIM_S, PendingRequest, RequestState
from hubbubd.core.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from hubbubd.core.tasks import EXTENSION, Task, TaskRole, TaskStatus
from hubbubd.downstream.calls.denials import is_denial
from hubbubd.downstream.calls.host_call import CallObserver
from hubbubd.downstream.calls.tickets import describe_wait
from hubbubd.downstream.hosts.host import WITH_TASKS, HostRequest, McpHost, TaskMode
from hubbubd.downstream.hosts.timeouts import UNNOTICED_S
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.views.question_policy import METHODS
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import NotFound
from hubbubd.runtime.inbox import WaitingHost


class ResultRenderer(Protocol):
    """Returns a server's result as a host sees it: a result of the request's method, or of `method`."""

    def __call__(self, request: HostRequest, server: str, result: bytes, method: str = "") -> bytes: ...


AWAY_S: Final = 60.0
"""Seconds without a request about a task after which its questions are no longer reserved for its host."""

LONGEST_ID: Final = 256
"""Characters of an id that is looked up. The ids of tasks have 46."""


@dataclass(slots=True, kw_only=True)
class _PresentHost:
    """The host of one task that has not ended. Times are of the steady clock, but for `changed_at`."""

    host: McpHost
    seen_at: float
    changed_at: float = 0.0
    """When the call of the task last changed, in epoch seconds."""
    waiting_requests: int = 0
    """How many open requests of the host wait for the task to change."""
    shown_at: dict[str, float] = field(default_factory=dict[str, float])
    """By question id, when the host was first shown the question."""
    timer: asyncio.TimerHandle | None = None
    """The timer of the next check whether the host is away (`_release_if_away`)."""
    reservation_stack: ExitStack = field(default_factory=ExitStack)
    """The reservation of questions and the listener, until the call has ended."""
    watch_stack: ExitStack = field(default_factory=ExitStack)
    """The watch of `watch_until_ended`."""


class HostTasks:
    """The tasks of hosts at one endpoint."""

    def __init__(self, view: EndpointView, questions: HostQuestions) -> None:
        self.questions = questions
        self.hub = questions.hub
        self._view = view
        self._prefix = f"task_{hashlib.sha256(view.name.encode()).hexdigest()[:8]}_"
        self._present_hosts: dict[str, _PresentHost] = {}  # by the id of the call
        self._releases: set[asyncio.Task[None]] = set()  # referenced here until they are done

    def make_id(self, request: HostRequest) -> str:
        """Return an id for the call of a request that may become a task: derived from its key, else a random one."""
        if request.call_key is None:
            return self._prefix + secrets.token_hex(16)
        return self.derive_id(request.host.principal, request.call_key)

    def derive_id(self, principal: Principal, call_key: str) -> str:
        """Return the id of a call that may become a task: the same one when the host sends the request again."""
        key = payload.dumps([principal.name, call_key])
        return self._prefix + hashlib.sha256(key).hexdigest()[:32]

    async def find_call(self, request: HostRequest) -> Call:
        """Return the call of the task that a request names, and note the call in the request.

        Raises Refusal, also for a task of another principal or endpoint, and Unavailable.
        """
        task_id: object = request.params.get("taskId")
        if not isinstance(task_id, str) or len(task_id) > LONGEST_ID:
            raise Refusal(INVALID_PARAMS, f"params.taskId must be a string of at most {LONGEST_ID} characters")
        await self.catch_up_on([task_id])
        if (call := self.find_task_call(request.host, task_id)) is not None:
            request.note_call(call.id)
            return call
        raise Refusal(INVALID_PARAMS, "there is no such task: it has ended long ago, or it is not of this endpoint")

    async def catch_up_on(self, task_ids: Iterable[str]) -> None:
        """Wait until this member knows these tasks, also if another member has made them. Raises Unavailable."""
        if not all(map(self.hub.calls.has_call, (each for each in task_ids if each.startswith(self._prefix)))):
            await self.hub.catch_up()

    def find_task_call(self, host: McpHost, task_id: str) -> Call | None:
        """Return the call of a host's task; None if the host has no such task."""
        call = self.hub.calls.find(task_id)
        return call if call is not None and self._has_task(host, call) else None

    def list_calls(self, host: McpHost, after: tuple[float, str] | None = None) -> Iterator[Call]:
        """Yield the tasks of a host's principal here, as calls, oldest first; `after`: a creation time and call id."""
        for call in self.hub.calls.newest(CallFilter(), after, oldest_first=True):
            if call.detached and self._has_task(host, call):
                yield call

    def _has_task(self, host: McpHost, call: Call) -> bool:
        """Return whether a call is a task of a host's principal at this endpoint."""
        is_own = call.id.startswith(self._prefix) and call.principal == host.principal.name
        return is_own and self._view.shows(call.server, host.principal)

    # Questions

    def note_interest(self, host: McpHost, call: Call) -> None:
        """Note that a host asks about a task: count the host as there, and poll the server's own task soon."""
        if not call.state.ended:
            self.note_present(host, call.id)
            self.hub.calls.poll_task_soon(call)

    def note_present(self, host: McpHost, call_id: str) -> None:
        """Count the host of a call that has not ended as there for AWAY_S, and reserve the call's questions for it."""
        now = self.hub.clock.steady()
        present = self._present_hosts.get(call_id)
        if present is not None:
            present.host, present.seen_at = host, now
            self._start_timer(call_id, present)
            return
        present = self._present_hosts[call_id] = _PresentHost(host=host, seen_at=now)
        self._start_timer(call_id, present)

        def on_call_event(call: Call, live_event: object) -> None:
            """Note the time of a change of the record (no live event), and drop the host's state once the call ends."""
            if live_event is None:
                present.changed_at = self.hub.clock.now()
            if call.state.ended:  # not at once: the other listeners are still to be notified of the end
                asyncio.get_running_loop().call_soon(self.drop_call, call_id)

        waiting_host = WaitingHost(
            principal=host.principal.name,
            host=host.name,
            reason_not_asked=lambda question: self.questions.why_not(present.host, question),
            is_asked_first=lambda question: (
                self.questions.policy.asks_host_first(question.kind) and self._remaining_s(present) > 0
            ),
            claim_s=UNNOTICED_S if host.stateless else MAX_CLAIM_S,  # nothing tells that a stateless host has gone
        )
        present.reservation_stack.enter_context(self.hub.inbox.reserved.reserve_for_host(call_id, waiting_host))
        present.reservation_stack.enter_context(self.hub.calls.listen(call_id, on_call_event))

    def _remaining_s(self, present: _PresentHost) -> float:
        """Return the seconds for which a host still counts as there without a further request about the task."""
        return AWAY_S if present.waiting_requests else present.seen_at + AWAY_S - self.hub.clock.steady()

    def _start_timer(self, call_id: str, present: _PresentHost) -> None:
        """Start the timer that releases the questions of a task once its host is away, unless the timer runs."""
        if present.timer is None:
            present.timer = asyncio.get_running_loop().call_later(
                self._remaining_s(present), self._release_if_away, call_id, present
            )

    def _release_if_away(self, call_id: str, present: _PresentHost) -> None:
        """Release the reservations of a task's questions if its host is away, else start the timer again."""
        present.timer = None
        if self._remaining_s(present) > 0:
            self._start_timer(call_id, present)
            return
        call = self.hub.calls.find(call_id)
        for question in self._open_questions(call) if call is not None else ():
            release = asyncio.get_running_loop().create_task(self.questions.release_reservation(question.id))
            self._releases.add(release)
            release.add_done_callback(self._releases.discard)

    @contextmanager
    def keep_present(self, host: McpHost, call_id: str) -> Generator[None]:
        """Count the host of a call as there during the block, so that the call's questions stay reserved for it."""
        self.note_present(host, call_id)
        present = self._present_hosts[call_id]
        present.waiting_requests += 1
        try:
            yield
        finally:
            present.waiting_requests -= 1
            present.seen_at = self.hub.clock.steady()

    @contextmanager
    def watch(
        self, host: McpHost, task_id: str, notify: Callable[[Task], None], known_task: Task | None = None
    ) -> Generator[None]:
        """Call `notify` with a task whenever its status has changed during the block.

        `known_task` is the task as the host knows it; with None, `notify` is called at once with the task as it is now.
        """
        known_status = (known_task.status, known_task.status_message) if known_task is not None else None

        def notify_if_changed(*_changed: object) -> None:
            """Notify of the task if its status is not the last one that the host knows; never of a deleted task."""
            nonlocal known_status
            with suppress(NotFound):
                task = self.to_task(host, self.hub.calls.get(task_id))
                if (task.status, task.status_message) != known_status:
                    known_status = task.status, task.status_message
                    notify(task)

        def on_call_event(_call: Call, live_event: object) -> None:
            """Check the status after a change of the call; a live event (progress, log message) changes no status."""
            if live_event is None:
                notify_if_changed()

        observer = CallObserver(self.hub, task_id, on_question=notify_if_changed)
        with self.hub.calls.listen(task_id, on_call_event), observer.observe(self.hub.calls.find(task_id)):
            notify_if_changed()
            yield

    def watch_until_ended(
        self, task: Task, notify: Callable[[Task], None], context: AbstractContextManager[None]
    ) -> None:
        """Call `notify` with each later status of a task until the task has ended; do nothing if its host is away.

        `context` is a context that is entered for that time. An earlier watch of the task, on an earlier stream, ends.
        """
        if (present := self._present_hosts.get(task.id)) is not None:
            present.watch_stack.close()
            present.watch_stack.enter_context(context)
            present.watch_stack.enter_context(self.watch(present.host, task.id, notify, task))

    def drop_call(self, call_id: str) -> None:
        """Drop what is stored for the host of a call, unless the call goes on: another request may have joined it."""
        if self._is_under_way(call_id):
            return
        if (present := self._present_hosts.pop(call_id, None)) is not None:
            if present.timer is not None:
                present.timer.cancel()
            present.watch_stack.close()
            present.reservation_stack.close()

    def _is_under_way(self, call_id: str) -> bool:
        """Return whether a call has not ended, or is still to be made."""
        call = self.hub.calls.find(call_id)
        return self.hub.calls.has_call(call_id) if call is None else not call.state.ended

    def find_questions_for_host(self, host: McpHost, call: Call) -> list[PendingRequest]:
        """Return the open questions of a task that its host is to be asked, oldest first."""
        return [question for question in self._open_questions(call) if self.questions.asks(host, question)]

    async def find_answerable_questions(
        self, host: McpHost, call: Call, request_ids: Collection[str]
    ) -> list[PendingRequest]:
        """Return those of these questions that belong to a task and that its host may answer. Raises Unavailable.

        They are looked up in the inbox, not in the call: the call names a question a moment later than the inbox.
        """
        questions = await self.questions.find_questions(request_ids) if not call.state.ended else []
        return [each for each in questions if each.call_id == call.id and self.questions.asks(host, each)]

    def render_questions(self, host: McpHost, call: Call) -> dict[str, Any]:
        """Return by id the requests that ask a host a task's questions, and note when the host was first shown each."""
        for_host = self.find_questions_for_host(host, call)
        if (present := self._present_hosts.get(call.id)) is not None:
            for question in for_host:
                present.shown_at.setdefault(question.id, self.hub.clock.steady())
        return {
            question.id: {"method": METHODS[question.kind], "params": self.questions.render_question(host, question)}
            for question in for_host
        }

    def shown_for_s(self, call: Call, question: PendingRequest) -> float:
        """Return for how many seconds a host has been shown a question; infinity if that is not known here."""
        present = self._present_hosts.get(call.id)
        shown_at = present.shown_at.get(question.id) if present is not None else None
        return math.inf if shown_at is None else self.hub.clock.steady() - shown_at

    def _open_questions(self, call: Call) -> list[PendingRequest]:
        """Return the questions of a call that wait for an answer."""
        questions = map(self.hub.inbox.find, call.pending_ids if not call.state.ended else ())
        return [question for question in questions if question is not None and question.state is RequestState.OPEN]

    # How far they are

    def to_task(self, host: McpHost, call: Call) -> Task:
        """Return a call as the task that its host sees."""
        server_task, open_questions, for_host = (
            self._find_server_task(call),
            self._open_questions(call),
            self.find_questions_for_host(host, call),
        )
        times = [call.created_at, call.started_at or 0.0, *(question.created_at for question in open_questions)]
        if server_task is not None:
            times.append(server_task.last_updated_at)
        if (present := self._present_hosts.get(call.id)) is not None:
            times.append(present.changed_at)
        return Task(
            id=call.id,
            server=call.server,
            fingerprint=call.fingerprint,
            role=TaskRole.RECEIVER,
            method=call.method,
            created_at=call.created_at,
            last_updated_at=max(times) if call.completed_at is None else call.completed_at,
            status=_task_status(host, call, for_host),
            status_message=_status_message(
                call, [each for each in open_questions if each not in for_host], server_task
            ),
        )

    def _find_server_task(self, call: Call) -> Task | None:
        """Return the task that the server has made of the call; None if there is none, or if it was deleted."""
        try:
            return self.hub.tasks.get(call.task_id) if call.task_id is not None else None
        except NotFound:
            return None


def refuse_task(request: HostRequest) -> None:
    """Raise Refusal if a request wants to make a task of one of the hub's own tools."""
    if request.task_mode is TaskMode.REQUESTED:
        raise Refusal(METHOD_NOT_FOUND, f"{request.params['name']} cannot be called as a task")


def add_task_capabilities(capabilities: Mapping[str, Any], host: McpHost) -> dict[str, Any]:
    """Return the capabilities of an endpoint; if it has tools, with tasks in the form of the host's revision."""
    adjusted = {name: value for name, value in capabilities.items() if name != "tasks"}
    if "tools" in adjusted and host.stateless:
        adjusted["extensions"] = {**(adjusted.get("extensions") or {}), EXTENSION: {}}
    elif "tools" in adjusted and host.revision == WITH_TASKS:
        adjusted["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return adjusted


def _task_status(host: McpHost, call: Call, for_host: list[PendingRequest]) -> TaskStatus:
    """Return the status of a task as a host sees it; `for_host` are the open questions that this host is to answer."""
    match call.state:
        case CallState.COMPLETED:
            # Up to 2025-11-25 a tool's error is one of its task; from 2026-07-28 on only one of the protocol is.
            return TaskStatus.FAILED if not host.stateless and _is_tool_error(call) else TaskStatus.COMPLETED
        case CallState.FAILED:
            # A stateless host gets a result that tells the model that the call was denied.
            is_denied = call.fault is not None and is_denial(call.fault)
            return TaskStatus.COMPLETED if host.stateless and is_denied else TaskStatus.FAILED
        case CallState.CANCELLED:
            return TaskStatus.CANCELLED
        case _:
            return TaskStatus.INPUT_REQUIRED if for_host else TaskStatus.WORKING


def _status_message(call: Call, others: list[PendingRequest], server_task: Task | None) -> str | None:
    """Return why a task has failed, or the description of `others`: open questions that its host is not asked.

    Without these, return the message of the server's own task; None if there is none.
    """
    if call.fault is not None:
        return call.fault.message
    if call.state.ended:
        return None
    if others:
        return describe_wait([question for question in others if question.is_cause_certain])
    return server_task.status_message if server_task is not None else None


def _is_tool_error(call: Call) -> bool:
    """Return whether the result of a call is an error of the tool."""
    raw = call.result or b"{}"
    return b'"isError":true' in raw and cast("dict[str, Any]", payload.loads(raw)).get("isError") is True
