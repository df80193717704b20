"""Questions as requests to a host whose revision has them (up to 2025-11-25), on the stream of its own request."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any, Final

import structlog

from hubbubd import payload
from hubbubd.core.inbox.forms import Refuse
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind, RequestState
from hubbubd.core.jsonrpc import INTERNAL_ERROR
from hubbubd.downstream.calls.host_call import HostCall
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.protocol.messages import ResponseMessage, make_notification
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.views.question_policy import (
    METHODS,
    LeftToOthers,
    Unattended,
    Verdict,
    judge_error,
    judge_result,
)
from hubbubd.errors import HubError, InvalidArgument
from hubbubd.runtime.servers import ServerEvent, ServerEventKind

log = structlog.get_logger(__name__)

_OF_RESULTS: Final = frozenset({Origin.ROUNDS, Origin.TASK_INPUT})
"""Origins of questions whose server does not say when a page is done with: it is once the question is closed."""


class QuestionRequests:
    """Asks the host of a call its questions, by requests. Those that others have answered are withdrawn."""

    def __init__(
        self, questions: HostQuestions, request: HostRequest, host_call: HostCall | None = None, *, again: bool = False
    ) -> None:
        """`close` must be called at the end.

        While the host asks its person, the request of `host_call` may be kept open for longer (`count_dialog`).
        `again`: the host may ask again what becomes of the call, and is then asked again what is still open.
        """
        self._questions = questions
        self._request = request
        self._host_call = host_call
        self._may_ask_again = again
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._unasked: dict[str, PendingRequest] = {}
        """What the host is to be asked once it is back."""
        self._visited: set[str] = set()
        """The questions whose pages the host has shown."""
        self._pages: dict[tuple[str, str], str] = {}
        """The ids of questions with a page, by server and the server's own id for it."""
        self._listeners = ExitStack()
        self._listeners.enter_context(request.presence.call_on_change(self._on_presence))

    async def close(self) -> None:
        """Withdraw the questions that are still open, and leave them to others."""
        self._listeners.close()
        for asking in self._asking.values():
            asking.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())
        self._asking.clear()  # the error of a cancelled task refers to its frame, and so to this object

    def update(self, question: PendingRequest) -> None:
        """Ask the host a new question, later if it is away; withdraw a question that is closed, or was changed.

        Where the server does not say when a page is done with, the end of its question does: the host gets a notice.
        """
        asking = self._asking.get(question.id)
        if asking is None and self._questions.asks(self._request.host, question):
            if self._request.presence.is_connected:
                self._asking[question.id] = asyncio.get_running_loop().create_task(self._ask_host(question))
            else:
                self._unasked[question.id] = question
        elif question.state is not RequestState.OPEN or question.changed is not None:
            self._unasked.pop(question.id, None)
            if asking is not None:
                by = question.answered_by
                changed = question.state is RequestState.OPEN
                closed = f"{by} has answered" if by else f"it is {question.state}"
                asking.cancel("somebody has changed what is asked" if changed else closed)
            if question.origin in _OF_RESULTS:
                self._notify_page_done(question.id)

    def _on_presence(self) -> None:
        """Ask a host whose connection is back what it was not asked meanwhile."""
        if self._request.presence.is_connected:
            unasked, self._unasked = self._unasked, {}
            for question in unasked.values():
                self.update(question)
                if question.id in self._asking:
                    self._questions.note_asked(self._request.host, question.id)

    async def _ask_host(self, question: PendingRequest) -> None:
        """Send a question to the host as a request, and accept its answer. Cancelled once others have answered."""
        questions, host = self._questions, self._request.host
        assert self._request.ask is not None, "its revision has requests of servers"
        with questions.count_asking(question.id):
            began_at = questions.hub.clock.steady()
            try:
                with self._host_call.count_dialog() if self._host_call else nullcontext():
                    method, params = METHODS[question.kind], questions.render_question(host, question)
                    response = await self._request.ask(method, params, self._make_late_listener(question.id))
                verdict = self._judge(question, response, questions.hub.clock.steady() - began_at)
                is_url = question.kind is RequestKind.ELICITATION_URL
                if is_url and not isinstance(verdict, Unattended | LeftToOthers):
                    self._visited.add(question.id)
                    if question.origin not in _OF_RESULTS:
                        self._expect_page_done(question)
                await self._accept(question, verdict)
            except asyncio.CancelledError:
                # A host that may ask again is then asked again; any other is not, and leaves the question to others.
                await (
                    questions.release_reservation(question.id)
                    if self._may_ask_again
                    else questions.withdraw_question(host, question.id)
                )
                raise
            except HubError as exc:
                log.warning("an answer of a host was not taken", request=question.id, error=exc.message)
            except Exception:
                log.exception("asking a host failed: internal error", request=question.id)

    def _judge(self, question: PendingRequest, response: ResponseMessage, took_s: float) -> Verdict:
        """Return what the response of the host means, which came after `took_s` seconds."""
        policy = self._questions.policy
        if response.result is None:
            return judge_error(policy, question.kind, response.error or {})
        return judge_result(policy, question.kind, payload.loads(question.request), response.result, took_s)

    def _make_late_listener(self, question_id: str) -> Callable[[ResponseMessage], None]:
        """Return a listener that notes an answer which comes after the question was withdrawn."""
        questions, host = self._questions, self._request.host  # not `self`: the listener may outlive the request

        def note_late_answer(response: ResponseMessage) -> None:
            question = questions.hub.inbox.find(question_id)
            if question is not None and question.state is not RequestState.OPEN and response.result is not None:
                questions.note_late_answer(host, question, response.result)

        return note_late_answer

    async def _accept(self, question: PendingRequest, verdict: Verdict) -> None:
        """Accept a verdict. If the answer does not fit, leave the question to others, if any, else refuse it."""
        questions, host = self._questions, self._request.host
        try:
            await questions.accept_verdict(host, question.id, verdict)
        except InvalidArgument as exc:
            why = f"an answer that does not fit: {exc.message}"[:500]
            if questions.policy.trusts_host(question.kind):
                await questions.accept_verdict(host, question.id, Refuse(INTERNAL_ERROR, f"{host.name}: {why}"))
            else:
                await questions.leave_to_others(host, question.id, why)

    def _expect_page_done(self, question: PendingRequest) -> None:
        """Listen for the server's notification that a question's page is done with (2025-11-25), during the call."""
        if not self._pages:
            listen = self._questions.hub.events.listen
            self._listeners.callback(listen(ServerEventKind.ELICITATION_COMPLETE, self._on_page_done))
        params: dict[str, Any] = payload.loads(question.request)
        self._pages[question.server, str(params.get("elicitationId"))] = question.id

    def _on_page_done(self, event: ServerEvent) -> None:
        """Notify the host if a server says that one of its pages is done with."""
        params: dict[str, Any] = payload.loads(event.params)
        question_id = self._pages.get((event.server, str(params.get("elicitationId"))))
        if question_id is not None:
            self._notify_page_done(question_id)

    def _notify_page_done(self, question_id: str) -> None:
        """Notify the host that a page is done with, if the host has shown it."""
        if question_id in self._visited:
            self._visited.discard(question_id)
            self._request.send(make_notification("notifications/elicitation/complete", {"elicitationId": question_id}))
