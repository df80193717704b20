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
    Deferral,
    UnattendedAnswer,
    Verdict,
    judge_error,
    judge_result,
)
from hubbubd.errors import HubError, InvalidArgument
from hubbubd.runtime.servers import ServerEvent, ServerEventKind

log = structlog.get_logger(__name__)

_WITHOUT_PAGE_END: Final = frozenset({Origin.ROUNDS, Origin.TASK_INPUT})
"""Origins of questions whose server does not notify of the end of a page: it ends with its question."""


class QuestionRequests:
    """Asks a host the questions of its call by requests, and withdraws those that other clients have answered."""

    def __init__(
        self, questions: HostQuestions, request: HostRequest, host_call: HostCall | None = None, *, again: bool = False
    ) -> None:
        """`close` must be called at the end.

        While the host asks its person, the request of `host_call` may be held for longer (`count_dialog`). `again`: the
        host may send the request again, and is then asked again the questions that are still open.
        """
        self._questions = questions
        self._request = request
        self._host_call = host_call
        self._may_ask_again = again
        self._request_tasks: dict[str, asyncio.Task[None]] = {}
        self._postponed: dict[str, PendingRequest] = {}
        """By id, questions that the host is asked once its connection is back."""
        self._shown_page_ids: set[str] = set()
        """The ids of questions whose pages the host has shown."""
        self._pages: dict[tuple[str, str], str] = {}
        """By server and the server's own id of a page, the id of the question that has the page."""
        self._listeners = ExitStack()
        self._listeners.enter_context(request.presence.call_on_change(self._on_presence))

    async def close(self) -> None:
        """Stop asking the host, and cancel the requests under way; their questions stay open for other clients."""
        self._listeners.close()
        for asking in self._request_tasks.values():
            asking.cancel()
        if self._request_tasks:
            await asyncio.wait(self._request_tasks.values())
        self._request_tasks.clear()  # else the errors of the tasks keep this object in memory, by way of their frames

    def update(self, question: PendingRequest) -> None:
        """Ask the host a new question, later if it is away; withdraw a question that is closed, or was changed.

        If its server does not notify of the end of a page, the host is notified when the page's question is withdrawn.
        """
        asking = self._request_tasks.get(question.id)
        if asking is None and self._questions.asks(self._request.host, question):
            if self._request.presence.is_connected:
                self._request_tasks[question.id] = asyncio.get_running_loop().create_task(self._ask_host(question))
            else:
                self._postponed[question.id] = question
        elif question.state is not RequestState.OPEN or question.changed is not None:
            self._postponed.pop(question.id, None)
            if asking is not None:
                answered_by = question.answered_by
                is_changed = question.state is RequestState.OPEN
                closing = f"{answered_by} has answered" if answered_by else f"it is {question.state}"
                asking.cancel("somebody has changed what is asked" if is_changed else closing)
            if question.origin in _WITHOUT_PAGE_END:
                self._notify_page_end(question.id)

    def _on_presence(self) -> None:
        """Ask a host whose connection is back the questions that came meanwhile."""
        if self._request.presence.is_connected:
            postponed, self._postponed = self._postponed, {}
            for question in postponed.values():
                self.update(question)
                if question.id in self._request_tasks:
                    self._questions.note_asked(self._request.host, question.id)

    async def _ask_host(self, question: PendingRequest) -> None:
        """Send a question to the host as a request, and accept its answer. Cancelled to withdraw the question."""
        questions, host = self._questions, self._request.host
        assert self._request.ask is not None, "its revision has requests of servers"
        with questions.count_asking(question.id):
            began_at = questions.hub.clock.steady()
            try:
                with self._host_call.count_dialog() if self._host_call else nullcontext():
                    method, params = METHODS[question.kind], questions.render_question(host, question)
                    response = await self._request.ask(method, params, self._make_late_listener(question.id))
                verdict = self._judge_response(question, response, questions.hub.clock.steady() - began_at)
                is_url = question.kind is RequestKind.ELICITATION_URL
                if is_url and not isinstance(verdict, UnattendedAnswer | Deferral):
                    self._shown_page_ids.add(question.id)
                    if question.origin not in _WITHOUT_PAGE_END:
                        self._listen_for_page_end(question)
                await self._accept_verdict(question, verdict)
            except asyncio.CancelledError:
                # A host that may send its request again can be asked again; for any other the question is deferred.
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

    def _judge_response(self, question: PendingRequest, response: ResponseMessage, took_s: float) -> Verdict:
        """Return what a response of the host means; it came `took_s` seconds after the question."""
        policy = self._questions.policy
        if response.result is None:
            return judge_error(policy, question.kind, response.error or {})
        return judge_result(policy, question.kind, payload.loads(question.request), response.result, took_s)

    def _make_late_listener(self, question_id: str) -> Callable[[ResponseMessage], None]:
        """Return a listener that notes in a question a response which comes after the question was withdrawn."""
        questions, host = self._questions, self._request.host  # not `self`: the listener may outlive the request

        def note_late_answer(response: ResponseMessage) -> None:
            """Note a result in a question that is closed; ignore an error response."""
            question = questions.hub.inbox.find(question_id)
            if question is not None and question.state is not RequestState.OPEN and response.result is not None:
                questions.note_late_answer(host, question, response.result)

        return note_late_answer

    async def _accept_verdict(self, question: PendingRequest, verdict: Verdict) -> None:
        """Accept a verdict. If the answer does not fit, defer the question, or refuse it if only the host is asked."""
        questions, host = self._questions, self._request.host
        try:
            await questions.accept_verdict(host, question.id, verdict)
        except InvalidArgument as exc:
            why = f"an answer that does not fit: {exc.message}"[:500]
            if questions.policy.trusts_host(question.kind):
                await questions.accept_verdict(host, question.id, Refuse(INTERNAL_ERROR, f"{host.name}: {why}"))
            else:
                await questions.defer_question(host, question.id, why)

    def _listen_for_page_end(self, question: PendingRequest) -> None:
        """Listen until `close` for the server's notification that a question's page is done with (2025-11-25)."""
        if not self._pages:
            listen = self._questions.hub.events.listen
            self._listeners.callback(listen(ServerEventKind.ELICITATION_COMPLETE, self._on_page_end))
        params: dict[str, Any] = payload.loads(question.request)
        self._pages[question.server, str(params.get("elicitationId"))] = question.id

    def _on_page_end(self, event: ServerEvent) -> None:
        """Notify the host if a server's notification is about a page that the host was asked to show."""
        params: dict[str, Any] = payload.loads(event.params)
        question_id = self._pages.get((event.server, str(params.get("elicitationId"))))
        if question_id is not None:
            self._notify_page_end(question_id)

    def _notify_page_end(self, question_id: str) -> None:
        """Notify the host, once, that a question's page is done with, if the host has shown the page."""
        if question_id in self._shown_page_ids:
            self._shown_page_ids.discard(question_id)
            self._request.send(make_notification("notifications/elicitation/complete", {"elicitationId": question_id}))
