"""Questions as results that ask a host for input, and the host's answers in its next request (2026-07-28, MRTR).

request ──> call ──> parked: input_required, with a sealed state ──> request with answers and state ──> the same call

A round has the questions that are open when the server waits; later questions are in the next round. The call goes on
whether or not the host comes back: it is detached before the host is asked. The server's own state never leaves the
hub.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.calls.host_call import HostCall
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.state_tokens import BoundRequest, StateToken, StateTokens, digest
from hubbubd.downstream.views.question_policy import METHODS, judge_result
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.calls import CallSpec

MAX_ROUNDS: Final = 8
"""How often a host is asked for input in one call: clients give up after 10. Then the call waits for people."""

STATE_S: Final = 86_400.0
"""Seconds for which a host may send its answers."""

MAX_ROUND_QUESTIONS: Final = 100
"""The most questions of one round; others are in the next round."""

MAX_ANSWERS: Final = 1000
"""The most answers in one request."""


class CallLost(Exception):
    """The call that a request continues does not exist any more."""


class InputRounds:
    """Runs calls of the hosts of one endpoint in rounds: each asks the host some questions in a result."""

    def __init__(self, questions: HostQuestions, tokens: StateTokens, view_name: str) -> None:
        self._questions = questions
        self._hub = questions.hub
        self._tokens = tokens
        self._view_name = view_name

    async def find_call(self, request: HostRequest) -> tuple[CallSpec, StateToken] | tuple[None, None]:
        """Return the spec that joins the call which a request continues, and the state that the request has sent.

        (None, None) if the request continues no call. Raises Refusal for a state of another principal or request,
        CallLost, and Unavailable.
        """
        state = request.params.get("requestState")
        if state is None:
            return None, None
        await self._tokens.import_cipher()
        token = self._tokens.open(state, self._make_bound_request(request))
        try:
            call = await self._hub.find_call(token.call_id)
        except NotFound:
            raise CallLost from None
        return make_joining_spec(call), token

    async def run_call(self, host_call: HostCall, token: StateToken | None) -> Call | bytes | None:
        """Make or join a call; return it once it has ended, or a result that asks for input. Raises Refusal, HubError.

        None if the request's hold (`HoldTerms`) ends before. `token` is the state that the host has sent to continue a
        call.
        """
        round_number = token.round if token is not None else 0
        is_last = round_number >= MAX_ROUNDS
        # After the last round the host is not asked: it counts as absent, so that people can answer at once.
        waiting_host = self._questions.make_waiting_host(
            host_call.request.host,
            host_call.terms.return_s,
            why_absent=lambda: f"it was asked {MAX_ROUNDS} times in this call" if is_last else "",
        )
        with host_call.report_to_host(), self._hub.inbox.reserved.reserve_for_host(host_call.call_id, waiting_host):
            return await host_call.run_until_hold_ends(self._run_round(host_call, token, round_number))

    async def _run_round(self, host_call: HostCall, token: StateToken | None, round_number: int) -> Call | bytes:
        """Accept the host's answers, then return the call once it has ended, or a result with the next questions."""
        request, observer = host_call.request, host_call.observer
        answers = parse_answers(request) if token is not None else {}
        loop = asyncio.get_running_loop()
        call_task = loop.create_task(self._hub.calls.call(host_call.spec, request.host.principal.name))
        accepting: asyncio.Task[None] | None = None  # the task that accepts the host's answers
        if answers and token is not None:
            accepting = loop.create_task(self._accept_answers(host_call, token, answers))
        is_detached = token is not None
        tasks: set[asyncio.Task[Any]] = {call_task, *([accepting] if accepting else [])}
        for task in tasks:
            task.add_done_callback(observer.signal_news)
        try:
            while True:
                await observer.news
                observer.reset_news()
                if call_task.done():
                    return call_task.result()
                if accepting is not None and accepting.done():
                    tasks.discard(accepting)
                    accepting.result()
                    accepting = None
                if not is_detached and observer.open_questions():
                    # People may be answering, so the call must go on even if the host leaves.
                    await self._hub.calls.start(host_call.spec, request.host.principal.name)
                    is_detached = True
                if accepting is None and round_number < MAX_ROUNDS:
                    open_questions = observer.open_questions()
                    questions = [each for each in open_questions if self._questions.asks(request.host, each)][
                        :MAX_ROUND_QUESTIONS
                    ]
                    if questions:
                        return await self._render_questions(host_call, round_number + 1, questions)
        except asyncio.CancelledError:
            await _cancel_tasks(tasks)
            # No question is open, so no answer would be lost.
            if not host_call.outlives_host and not observer.open_questions():
                self._hub.calls.end_unless_awaited(host_call.call_id)
            raise
        finally:
            await _cancel_tasks(tasks)

    async def _render_questions(self, host_call: HostCall, round_number: int, questions: list[PendingRequest]) -> bytes:
        """Return the result that asks the host these questions in round `round_number`, with a sealed state."""
        request, call = host_call.request, self._hub.calls.get(host_call.call_id)
        input_requests = {
            key: {"method": METHODS[question.kind], "params": self._questions.render_question(request.host, question)}
            for key, question in _key_questions(call, questions).items()
        }
        question_ids = [question.id for question in questions]
        await self._tokens.import_cipher()
        state = self._tokens.seal(
            call.id, round_number, self._make_bound_request(request), ttl_s=STATE_S, asked=question_ids
        )
        return payload.dumps({"resultType": "input_required", "inputRequests": input_requests, "requestState": state})

    async def _accept_answers(self, host_call: HostCall, token: StateToken, answers: Mapping[str, Any]) -> None:
        """Accept a host's answers (by key) to the questions of a round, and report to it which came too late.

        Raises Refusal for an answer that does not fit, and Unavailable.
        """
        host, questions = host_call.request.host, self._questions
        took_s = self._tokens.age_s(token)
        # Only the questions of the round: a later question may have the key of an earlier one.
        round_questions = await questions.find_questions(token.asked)
        call = self._hub.calls.get(token.call_id)
        for key, question in _key_questions(call, round_questions).items():
            if key not in answers:
                continue
            if question.state is not RequestState.OPEN:
                host_call.reporter.report_message(questions.note_late_answer(host, question, answers[key]))
            if not questions.asks(host, question):
                continue
            params = payload.loads(question.request)
            verdict = judge_result(questions.policy, question.kind, params, answers[key], took_s)
            try:
                await questions.accept_verdict(host, question.id, verdict)
            except InvalidArgument as exc:
                raise Refusal(INVALID_PARAMS, f"inputResponses.{key}: {exc.message}") from None

    def _make_bound_request(self, request: HostRequest) -> BoundRequest:
        """Return the parts of a request that a state is bound to."""
        params = request.params
        return BoundRequest(
            principal=request.host.principal.name,
            profile=self._view_name,
            method=request.method,
            name=str(params.get("name", params.get("uri", ""))),
            params=digest(params),
        )


def make_joining_spec(call: Call) -> CallSpec:
    """Return the spec with which a caller joins an existing call: it has the call's id."""
    return CallSpec(server=call.server, method=call.method, params=call.params, call_id=call.id, as_task=call.as_task)


def parse_answers(request: HostRequest) -> dict[str, Any]:
    """Return a host's answers by key. Raises Refusal."""
    answers: object = request.params.get("inputResponses", {})
    if not isinstance(answers, dict) or len(cast("dict[str, Any]", answers)) > MAX_ANSWERS:
        raise Refusal(INVALID_PARAMS, f"params.inputResponses must be an object of at most {MAX_ANSWERS} answers")
    by_key = cast("dict[str, Any]", answers)
    for key, answer in by_key.items():
        if not isinstance(answer, dict):
            raise Refusal(INVALID_PARAMS, f"params.inputResponses.{key[:100]} must be an object")
    return by_key


def _key_questions(call: Call, questions: list[PendingRequest]) -> dict[str, PendingRequest]:
    """Return questions by the keys that a host sees: the server's own keys if it has given any, else the ids."""
    keys = {question_id: key for key, question_id in call.rounds.questions} if call.rounds else {}
    return {keys.get(question.id, question.id): question for question in questions}


async def _cancel_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, even in a cancelled scope."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        with anyio.CancelScope(shield=True):  # without it a wait in a cancelled scope is cancelled at once
            await asyncio.wait(unfinished)
