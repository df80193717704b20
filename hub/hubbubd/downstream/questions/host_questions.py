"""Questions of servers in a host's calls: whether the host is asked, and what becomes of its answers.

A question is in the inbox before anybody is asked. The host is one of the clients that may answer it. It is asked by
requests of the hub where its revision has them (`question_requests.py`), else by results that ask for input
(`input_rounds.py`).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from hubbubd import payload
from hubbubd.config.sections.mcp import PEOPLE
from hubbubd.core.calls.capabilities import can_answer
from hubbubd.core.inbox.asked_hosts import MAX_HOSTS, AskedHost
from hubbubd.core.inbox.forms import Approve, ClientAnswer, Deny
from hubbubd.core.inbox.host_notes import with_host_decision
from hubbubd.core.inbox.request_states import (
    MAX_CLAIM_S,
    Origin,
    PendingRequest,
    RequestEventType,
    RequestKind,
    RequestState,
    with_event,
)
from hubbubd.downstream.hosts.host import McpHost
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.questions import approval_forms
from hubbubd.downstream.views.question_policy import (
    ELICITATIONS,
    NAMES,
    Deferral,
    QuestionPolicy,
    UnattendedAnswer,
    Verdict,
)
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import FailedPrecondition, HubError, PermissionDenied
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import WaitingHost

UNATTENDED_S: Final = 1800.0
"""Seconds for which a host is not asked again after an answer without a person: a person may come back."""

MAX_DEFERRED: Final = 10_000
"""The most questions that are remembered as deferred by their host: the latest."""

_HUB_MEMBERS: Final = ("task", "_meta")
"""Members of a question that concern its server and the hub alone."""


class HostQuestions:
    """The questions of all calls at one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self.hub = hub
        self._view = view
        self._request_counts = Counter[str]()
        """By question id, how many requests ask its host: two once a bridge has come back on a new stream."""
        self._deferred: OrderedDict[str, None] = OrderedDict()

    @property
    def policy(self) -> QuestionPolicy:
        """The policy of the endpoint on whom it asks, as configured now."""
        return self._view.policy

    def asks(self, host: McpHost, question: PendingRequest) -> bool:
        """Return whether a host is to be asked a question.

        The question must be open, the host must not have deferred it, and `why_not` must name no obstacle.
        """
        return (
            question.state is RequestState.OPEN
            and question.id not in self._deferred
            and not self.why_not(host, question)
        )

    def why_not(self, host: McpHost, question: PendingRequest) -> str:
        """Return a text for people on why a host is not asked a question; "" if it is asked."""
        if question.server == PEOPLE:
            return "a host asks people, and only in the inbox"
        if question.origin is Origin.AUTHORIZATION:
            return "the hub itself asks, and only in the inbox"
        if why := self.why_not_kind(host, question.kind, payload.loads(question.request)):
            return why
        if question.kind is RequestKind.APPROVAL and (why := approval_forms.why_not(question, host.principal)):
            return why
        if not question.is_cause_certain:
            return "it is not certain that its call is the cause: the server is at work for others, too"
        return ""

    def why_not_kind(self, host: McpHost, kind: RequestKind, params: Mapping[str, Any]) -> str:
        """Return why a host is not asked questions of a kind with such params; "" if it is asked."""
        name = NAMES[kind]
        if self.policy.who_answers(kind) == "inbox":
            return f'the profile has questions.{name} = "inbox"'
        if not can_answer(host.capabilities, kind, params):
            return f"it did not declare that it can answer this ({name})"
        if self._is_unattended(host, kind):
            return f"nobody was there when it was asked before ({name})"
        return ""

    def make_waiting_host(
        self, host: McpHost, for_s: float = MAX_CLAIM_S, *, why_absent: Callable[[], str] = lambda: ""
    ) -> WaitingHost:
        """Return how the inbox knows a host that waits for a call; it reserves questions `for_s` seconds for the host.

        `why_absent` returns why the host cannot be asked any question now; "" if it can.
        """
        return WaitingHost(
            principal=host.principal.name,
            host=host.name,
            reason_not_asked=lambda question: self.why_not(host, question) or why_absent(),
            is_asked_first=lambda question: self.policy.asks_host_first(question.kind),
            claim_s=for_s,
        )

    def note_host_decision(self, host: McpHost, question: PendingRequest) -> None:
        """Note in an open question whether a host is asked, or why not: once per host, for MAX_HOSTS hosts at most."""
        is_open = question.state is RequestState.OPEN
        if is_open and len(question.hosts) < MAX_HOSTS and all(each.host != host.name for each in question.hosts):
            decision = AskedHost(host=host.name, at=self.hub.clock.now(), why_not=self.why_not(host, question))
            self.hub.inbox.change_later(question.id, lambda current: with_host_decision(current, decision))

    def note_asked(self, host: McpHost, question_id: str) -> None:
        """Note in a question that a host is asked now which was not asked before."""
        decision = AskedHost(host=host.name, at=self.hub.clock.now())
        self.hub.inbox.change_later(question_id, lambda current: with_host_decision(current, decision))

    @contextmanager
    def count_asking(self, question_id: str) -> Generator[None]:
        """Count one more request that asks a host a question, during the block."""
        self._request_counts[question_id] += 1
        try:
            yield
        finally:
            self._request_counts[question_id] -= 1
            if not self._request_counts[question_id]:
                del self._request_counts[question_id]

    async def withdraw_question(self, host: McpHost, question_id: str) -> None:
        """Mark a question as deferred by its host, unless another request asks the host, too.

        To be called within `count_asking`, where the caller's own request is counted.
        """
        if self._request_counts[question_id] == 1:
            await self.defer_question(host, question_id)

    async def find_questions(self, question_ids: Collection[str]) -> list[PendingRequest]:
        """Return the questions with these ids that are in the inbox, of any member. Raises Unavailable."""
        questions = self._find_in_inbox(question_ids)
        if len(questions) == len(question_ids):
            return questions
        await self.hub.catch_up()
        return self._find_in_inbox(question_ids)

    def _find_in_inbox(self, question_ids: Collection[str]) -> list[PendingRequest]:
        """Return the questions with these ids that this member knows by now."""
        return [question for question in map(self.hub.inbox.find, question_ids) if question is not None]

    def render_question(self, host: McpHost, question: PendingRequest) -> dict[str, Any]:
        """Return the params of the request by which a host is asked a question."""
        params: dict[str, Any] = payload.loads(question.request)
        if question.kind is RequestKind.APPROVAL:
            return approval_forms.render_form(params, question.server)
        visible = {name: value for name, value in params.items() if name not in _HUB_MEMBERS}
        if self.policy.names_server and question.kind in ELICITATIONS:
            visible["message"] = f"{question.server} asks: {params.get('message', '')}"
        if question.kind is RequestKind.SAMPLING:
            visible = revisions.render_sampling(visible, host.revision)
        if question.kind is RequestKind.ELICITATION_URL:
            visible.pop("elicitationId", None)
            # Two servers may use the same id, so the hub sets its own. From 2026-07-28 on there is no such id.
            if not host.stateless:
                visible["elicitationId"] = question.id
        return visible

    async def accept_verdict(self, host: McpHost, question_id: str, verdict: Verdict) -> bool:
        """Apply the verdict on a host's response to a question; return whether that became the accepted answer.

        A verdict that is no answer defers the question. While another client has claimed the question, this
        waits until the claim ends. Raises InvalidArgument for an answer that does not fit the question.
        """
        question = self.hub.inbox.get(question_id)
        if isinstance(verdict, Approve | Deny):
            if why := self.why_not(host, question):
                verdict = Deferral(why[:200])
            else:
                verdict = replace(verdict, groups=host.principal.groups)
        if not isinstance(verdict, UnattendedAnswer | Deferral):
            return await self._answer(host, question_id, verdict)
        if isinstance(verdict, UnattendedAnswer):
            host.unattended[question.kind] = self.hub.clock.steady()
        await self.defer_question(host, question_id, verdict.action)
        return False

    def note_late_answer(self, host: McpHost, question: PendingRequest, result: Mapping[str, Any]) -> str | None:
        """Note in a closed question that a host answered too late; return a text about that for the host.

        None, and no note, if the host repeats the accepted answer.
        """
        if (question.answer_id, question.answered_by) == (make_answer_id(question.id), host.principal.name):
            return None
        closing = f"{question.answered_by} had answered" if question.answered_by else f"it was {question.state}"
        action = str(result.get("action", "a result"))[:20]
        at, by, via = self.hub.clock.now(), host.principal.name, f"{host.name}: {action}, after {closing}"
        event = RequestEventType.NOT_COUNTED
        self.hub.inbox.change_later(question.id, lambda current: with_event(current, event, at, by, via=via))
        return f"not counted, as {closing}: hubbub inbox show {question.id}"

    async def defer_question(self, host: McpHost, question_id: str, action: str | None = None) -> None:
        """Leave a question to other clients: do not ask its host again, and release its reservation.

        `action`, what the host did instead of an answer, is noted in the question.
        """
        self._deferred[question_id] = None
        if len(self._deferred) > MAX_DEFERRED:
            self._deferred.popitem(last=False)
        with suppress(HubError):
            if action is not None:
                await self.hub.inbox.note_uncounted_answer(question_id, host.principal.name, f"{host.name}: {action}")
        await self.release_reservation(question_id)

    async def release_reservation(self, question_id: str) -> None:
        """Release the claim that reserves a question for its host, so that other clients may answer."""
        with suppress(HubError):
            claim_id = self.hub.inbox.reserved.reserved_claim_id(self.hub.inbox.get(question_id))
            if claim_id is not None:
                await self.hub.inbox.release(question_id, claim_id)

    async def _answer(self, host: McpHost, question_id: str, answer: ClientAnswer) -> bool:
        """Answer a question for a host, once no other client has claimed it; return whether the answer was accepted.

        If the host may not answer it, it is deferred. Raises InvalidArgument if the answer does not fit.
        """
        changed = asyncio.Event()
        inbox = self.hub.inbox
        with inbox.listen(question_id, lambda _request, _live: changed.set()):
            while True:
                changed.clear()
                claim_id = inbox.reserved.reserved_claim_id(inbox.get(question_id))
                try:
                    await inbox.answer(
                        question_id,
                        answer,
                        host.principal.name,
                        answer_id=make_answer_id(question_id),
                        claim_id=claim_id,
                        via=host.name,
                    )
                    return True
                except PermissionDenied as exc:
                    await self.defer_question(host, question_id, exc.message[:200])
                    return False
                except FailedPrecondition as exc:
                    if exc.reason == "ARGUMENTS_CHANGED":
                        await self.defer_question(
                            host, question_id, "an approval of arguments that were changed meanwhile"
                        )
                    if exc.reason not in ("ALREADY_CLAIMED", "CLAIM_LOST"):
                        return False
                await changed.wait()

    def _is_unattended(self, host: McpHost, kind: RequestKind) -> bool:
        """Return whether the host has answered a question of this kind without a person in the last UNATTENDED_S."""
        answered_at = host.unattended.get(kind)
        return answered_at is not None and self.hub.clock.steady() - answered_at < UNATTENDED_S


def make_answer_id(question_id: str) -> str:
    """Return the idempotency key of the host's answer to a question."""
    return f"host_{question_id}"
