"""Calls that are tasks for their hosts: which they are, what they wait for, and how far they are.

A task of a host is a detached call, so it goes on as its call does: without its host, and over a restart. The id of the
call is the id of the task. It says at which endpoint the task was made, and nobody can guess it.
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
    """Returns a server's result as a host sees it: that of its request, or of another method."""

    def __call__(self, request: HostRequest, server: str, result: bytes, method: str = "") -> bytes: ...


AWAY_S: Final = 60.0
"""Seconds without a request about a task after which its questions are no longer reserved for its host."""

LONGEST_ID: Final = 256
"""Characters of an id that is looked up. Those of tasks have 46."""


@dataclass(slots=True, kw_only=True)
class _PresentHost:
    """The host of one task, while it is there. Times are of the steady clock, but for `changed_at`."""

    host: McpHost
    seen_at: float
    changed_at: float = 0.0
    """When the call of the task last changed, in epoch seconds."""
    waiting: int = 0
    """How many requests of the host wait for news of the task."""
    shown_at: dict[str, float] = field(default_factory=dict[str, float])
    """When the host was first shown each question, by id."""
    timer: asyncio.TimerHandle | None = None
    """Looks whether the host is away (`_give_back_if_away`)."""
    stack: ExitStack = field(default_factory=ExitStack)
    """The reservation of questions and the listener, until the call has ended."""
    watching: ExitStack = field(default_factory=ExitStack)


class HostTasks:
    """The tasks of hosts at one endpoint."""

    def __init__(self, view: EndpointView, questions: HostQuestions) -> None:
        self.questions = questions
        self.hub = questions.hub
        self._view = view
        self._prefix = f"task_{hashlib.sha256(view.name.encode()).hexdigest()[:8]}_"
        self._present_hosts: dict[str, _PresentHost] = {}
        self._giving_back: set[asyncio.Task[None]] = set()

    def make_id(self, request: HostRequest) -> str:
        """Return an id for the call of a request that may become a task."""
        if request.call_key is None:
            return self._prefix + secrets.token_hex(16)
        return self.derive_id(request.host.principal, request.call_key)

    def derive_id(self, principal: Principal, call_key: str) -> str:
        """Return the id of a call that may become a task: the same one when the host sends the request again."""
        key = payload.dumps([principal.name, call_key])
        return self._prefix + hashlib.sha256(key).hexdigest()[:32]

    async def find_call(self, request: HostRequest) -> Call:
        """Return the call of the task that a request names. Tasks of other principals do not exist.

        Raises Refusal and Unavailable.
        """
        named: object = request.params.get("taskId")
        if not isinstance(named, str) or len(named) > LONGEST_ID:
            raise Refusal(INVALID_PARAMS, f"params.taskId must be a string of at most {LONGEST_ID} characters")
        await self.catch_up_on([named])
        if (call := self.find_task_call(request.host, named)) is not None:
            request.note_call(call.id)
            return call
        raise Refusal(INVALID_PARAMS, "there is no such task: it has ended long ago, or it is not of this endpoint")

    async def catch_up_on(self, task_ids: Iterable[str]) -> None:
        """Wait until this member knows these tasks, also those of another member. Raises Unavailable."""
        if not all(map(self.hub.calls.has_call, (each for each in task_ids if each.startswith(self._prefix)))):
            await self.hub.catch_up()

    def find_task_call(self, host: McpHost, task_id: str) -> Call | None:
        """Return the call of a host's task; None if the host has no such task."""
        call = self.hub.calls.find(task_id)
        return call if call is not None and self._has_task(host, call) else None

    def list_calls(self, host: McpHost, after: tuple[float, str] | None = None) -> Iterator[Call]:
        """Yield a principal's calls that are tasks at this endpoint, oldest first: those after a time and an id."""
        for call in self.hub.calls.newest(CallFilter(), after, oldest_first=True):
            if call.detached and self._has_task(host, call):
                yield call

    def _has_task(self, host: McpHost, call: Call) -> bool:
        """Return whether a call is a task of a host's principal at this endpoint."""
        mine = call.id.startswith(self._prefix) and call.principal == host.principal.name
        return mine and self._view.shows(call.server, host.principal)

    # Questions

    def note_interest(self, host: McpHost, call: Call) -> None:
        """Note that a host has sent a request about a task: the host is there, and the hub polls the server soon."""
        if not call.state.ended:
            self.note_present(host, call.id)
            self.hub.calls.poll_task_soon(call)

    def note_present(self, host: McpHost, call_id: str) -> None:
        """Note that the host of a call that has not ended is there; the call's questions are reserved for it."""
        now = self.hub.clock.steady()
        present = self._present_hosts.get(call_id)
        if present is not None:
            present.host, present.seen_at = host, now
            self._start_timer(call_id, present)
            return
        present = self._present_hosts[call_id] = _PresentHost(host=host, seen_at=now)
        self._start_timer(call_id, present)

        def on_call_event(call: Call, live_event: object) -> None:
            """Note when the record has changed (no live event), and drop what is kept for the host of an ended call."""
            if live_event is None:
                present.changed_at = self.hub.clock.now()
            if call.state.ended:  # not at once: others are still to be notified of the end
                asyncio.get_running_loop().call_soon(self.drop_call, call_id)

        waiting = WaitingHost(
            by=host.principal.name,
            host=host.name,
            why_not=lambda question: self.questions.why_not(present.host, question),
            first=lambda question: (
                self.questions.policy.asks_host_first(question.kind) and self._remaining_s(present) > 0
            ),
            for_s=UNNOTICED_S if host.stateless else MAX_CLAIM_S,  # nothing tells that a stateless host has gone
        )
        present.stack.enter_context(self.hub.inbox.reserved.reserve_for_host(call_id, waiting))
        present.stack.enter_context(self.hub.calls.listen(call_id, on_call_event))

    def _remaining_s(self, present: _PresentHost) -> float:
        """Return the seconds for which a host still counts as there if it makes no further request about the task."""
        return AWAY_S if present.waiting else present.seen_at + AWAY_S - self.hub.clock.steady()

    def _start_timer(self, call_id: str, present: _PresentHost) -> None:
        """Start the timer that releases the questions of a task once its host is away, unless it runs."""
        if present.timer is None:
            present.timer = asyncio.get_running_loop().call_later(
                self._remaining_s(present), self._give_back_if_away, call_id, present
            )

    def _give_back_if_away(self, call_id: str, present: _PresentHost) -> None:
        """Release the questions of a task if its host is away, else look again later."""
        present.timer = None
        if self._remaining_s(present) > 0:
            self._start_timer(call_id, present)
            return
        call = self.hub.calls.find(call_id)
        for question in self._open_questions(call) if call is not None else ():
            giving = asyncio.get_running_loop().create_task(self.questions.release_reservation(question.id))
            self._giving_back.add(giving)
            giving.add_done_callback(self._giving_back.discard)

    @contextmanager
    def keep_present(self, host: McpHost, call_id: str) -> Generator[None]:
        """Count the host of a call as there during the block, so that its questions stay reserved for it."""
        self.note_present(host, call_id)
        present = self._present_hosts[call_id]
        present.waiting += 1
        try:
            yield
        finally:
            present.waiting -= 1
            present.seen_at = self.hub.clock.steady()

    @contextmanager
    def watch(
        self, host: McpHost, task_id: str, notify: Callable[[Task], None], known: Task | None = None
    ) -> Generator[None]:
        """Notify of a task whenever its status has changed during the block.

        `known` is the task as the host knows it; None notifies of it as it is now.
        """
        latest = (known.status, known.status_message) if known is not None else None

        def notify_if_changed(*_changed: object) -> None:
            """Notify of the task if its status is not the latest that the host knows; not of a deleted one."""
            nonlocal latest
            with suppress(NotFound):
                now = self.to_task(host, self.hub.calls.get(task_id))
                if (now.status, now.status_message) != latest:
                    latest = now.status, now.status_message
                    notify(now)

        def on_call_event(_call: Call, live: object) -> None:
            """Look at the status after a change of the call itself; progress and log messages (live) leave it."""
            if live is None:
                notify_if_changed()

        observer = CallObserver(self.hub, task_id, on_question=notify_if_changed)
        with self.hub.calls.listen(task_id, on_call_event), observer.observe(self.hub.calls.find(task_id)):
            notify_if_changed()
            yield

    def watch_until_ended(self, task: Task, notify: Callable[[Task], None], also: AbstractContextManager[None]) -> None:
        """Notify of a task whenever its status has changed, until the task has ended; do nothing if its host is away.

        `also` is entered for that time. An earlier watch of the task ends: it was over an earlier stream.
        """
        if (present := self._present_hosts.get(task.id)) is not None:
            present.watching.close()
            present.watching.enter_context(also)
            present.watching.enter_context(self.watch(present.host, task.id, notify, task))

    def drop_call(self, call_id: str) -> None:
        """Drop what is kept for the host of a call, unless the call goes on: others may have joined it."""
        if self._is_under_way(call_id):
            return
        if (present := self._present_hosts.pop(call_id, None)) is not None:
            if present.timer is not None:
                present.timer.cancel()
            present.watching.close()
            present.stack.close()

    def _is_under_way(self, call_id: str) -> bool:
        """Return whether a call has not ended, or is still to be made."""
        call = self.hub.calls.find(call_id)
        return self.hub.calls.has_call(call_id) if call is None else not call.state.ended

    def find_asked_questions(self, host: McpHost, call: Call) -> list[PendingRequest]:
        """Return the open questions of a task that its host is to be asked, oldest first."""
        return [question for question in self._open_questions(call) if self.questions.asks(host, question)]

    async def find_answerable_questions(
        self, host: McpHost, call: Call, request_ids: Collection[str]
    ) -> list[PendingRequest]:
        """Return the questions of a task among these that its host may answer. Raises Unavailable.

        The inbox is asked, not the call: the call names a question a moment later than the inbox has it.
        """
        found = await self.questions.find_questions(request_ids) if not call.state.ended else []
        return [each for each in found if each.call_id == call.id and self.questions.asks(host, each)]

    def render_questions(self, host: McpHost, call: Call) -> dict[str, Any]:
        """Return the questions that a host is asked in a task, by id, and note that it is shown them now."""
        asked = self.find_asked_questions(host, call)
        if (present := self._present_hosts.get(call.id)) is not None:
            for question in asked:
                present.shown_at.setdefault(question.id, self.hub.clock.steady())
        return {
            question.id: {"method": METHODS[question.kind], "params": self.questions.render_question(host, question)}
            for question in asked
        }

    def shown_for_s(self, call: Call, question: PendingRequest) -> float:
        """Return for how many seconds a host has been shown a question; infinity if since before a restart."""
        present = self._present_hosts.get(call.id)
        since = present.shown_at.get(question.id) if present is not None else None
        return math.inf if since is None else self.hub.clock.steady() - since

    def _open_questions(self, call: Call) -> list[PendingRequest]:
        """Return the questions of a call that wait for an answer."""
        found = map(self.hub.inbox.find, call.pending_ids if not call.state.ended else ())
        return [question for question in found if question is not None and question.state is RequestState.OPEN]

    # How far they are

    def to_task(self, host: McpHost, call: Call) -> Task:
        """Return a call as the task that its host sees."""
        server_task, waiting, asked = (
            self._find_server_task(call),
            self._open_questions(call),
            self.find_asked_questions(host, call),
        )
        at = [call.created_at, call.started_at or 0.0, *(question.created_at for question in waiting)]
        if server_task is not None:
            at.append(server_task.last_updated_at)
        if (present := self._present_hosts.get(call.id)) is not None:
            at.append(present.changed_at)
        return Task(
            id=call.id,
            server=call.server,
            fingerprint=call.fingerprint,
            role=TaskRole.RECEIVER,
            method=call.method,
            created_at=call.created_at,
            last_updated_at=max(at) if call.completed_at is None else call.completed_at,
            status=_task_status(host, call, asked),
            status_message=_status_message(call, [each for each in waiting if each not in asked], server_task),
        )

    def _find_server_task(self, call: Call) -> Task | None:
        """Return the task that the server has made of the call; None if it has made none, or that is deleted."""
        try:
            return self.hub.tasks.get(call.task_id) if call.task_id is not None else None
        except NotFound:
            return None


def refuse_task(request: HostRequest) -> None:
    """Raise Refusal if a request wants to make a task of one of the hub's own tools."""
    if request.task_mode is TaskMode.REQUESTED:
        raise Refusal(METHOD_NOT_FOUND, f"{request.params['name']} cannot be called as a task")


def add_task_capabilities(capabilities: Mapping[str, Any], host: McpHost) -> dict[str, Any]:
    """Return the capabilities of an endpoint, with tasks as a host's revision has them if there are tools."""
    own = {name: value for name, value in capabilities.items() if name != "tasks"}
    if "tools" in own and host.stateless:
        own["extensions"] = {**(own.get("extensions") or {}), EXTENSION: {}}
    elif "tools" in own and host.revision == WITH_TASKS:
        own["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return own


def _task_status(host: McpHost, call: Call, asked: list[PendingRequest]) -> TaskStatus:
    """Return the status of a task as a host sees it; `asked` are the open questions that this host is to answer."""
    match call.state:
        case CallState.COMPLETED:
            # Up to 2025-11-25 a tool's error is one of its task; from 2026-07-28 on only one of the protocol is.
            return TaskStatus.FAILED if not host.stateless and _is_tool_error(call) else TaskStatus.COMPLETED
        case CallState.FAILED:
            # Such a host gets a result that tells the model that the call was denied.
            is_denied = call.fault is not None and is_denial(call.fault)
            return TaskStatus.COMPLETED if host.stateless and is_denied else TaskStatus.FAILED
        case CallState.CANCELLED:
            return TaskStatus.CANCELLED
        case _:
            return TaskStatus.INPUT_REQUIRED if asked else TaskStatus.WORKING


def _status_message(call: Call, others: list[PendingRequest], server_task: Task | None) -> str | None:
    """Return why a task has failed, or which answers of people it waits for (`others`); else what its server says.

    None if nothing of that is known.
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
