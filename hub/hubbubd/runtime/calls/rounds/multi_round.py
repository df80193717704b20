"""Multi-round requests (MCP 2026-07-28, MRTR): a result asks for input, and the call is sent again with it.

The SDK's own loop is not used, because the state must survive reconnects and restarts.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio

from hubbubd import payload
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_states import Call
from hubbubd.core.calls.capabilities import can_answer, declared_capabilities, needed_capabilities
from hubbubd.core.inbox.questions import find_problem
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind, RequestState
from hubbubd.core.jsonrpc import MISSING_CAPABILITY
from hubbubd.errors import Category, Fault, NotFound, PeerError, UpstreamError
from hubbubd.runtime.calls.queue import ActiveCall, ServerQueue
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.ownership import Takeover
from hubbubd.runtime.records import Change, Table
from hubbubd.telemetry.trace import trace_of_params
from hubbubd.timing.clock import Clock

Questions = Mapping[str, tuple[RequestKind, dict[str, Any]]]
"""The inputRequests of a result: key to kind and params."""

MAX_ROUNDS = 10
"""The most rounds of a call, as in the SDK (`DEFAULT_INPUT_REQUIRED_MAX_ROUNDS`)."""

STATE_ONLY_FIRST_S, STATE_ONLY_MOST_S = 0.05, 0.25
"""First and longest pause, in seconds, of the exponential backoff (as in the SDK) before a call is sent again for which
the server has not requested any input."""


def request_kind(method: object, params: Mapping[str, Any]) -> RequestKind | None:
    """Return the kind of a server's request, by its method and params; None for one that people do not answer."""
    match method:
        case "elicitation/create":
            return RequestKind.ELICITATION_URL if params.get("mode") == "url" else RequestKind.ELICITATION_FORM
        case "sampling/createMessage":
            return RequestKind.SAMPLING
        case "roots/list":
            return RequestKind.ROOTS
        case _:
            return None


class MultiRound:
    """The rounds of all calls."""

    def __init__(self, inbox: Inbox, table: Table[Call], clock: Clock) -> None:
        self._inbox = inbox
        self._table = table
        self._clock = clock

    async def ask(
        self, queue: ServerQueue, active: ActiveCall, params: dict[str, Any], result: dict[str, Any]
    ) -> dict[str, Any]:
        """Get the input that a result asks for, queue the call again, and return the params to send.

        Raises UpstreamError: TOO_MANY_ROUNDS, INVALID_RESPONSE, INPUT_REFUSED; and PeerError for a question that the
        caller has not declared to answer.
        """
        state = result.get("requestState")
        rounds = replace(next_round(queue, active), state=state if isinstance(state, str) else None)
        input_requests = result.get("inputRequests")
        answers: dict[str, Any] = {}
        if input_requests:
            questions = parse_questions(input_requests)
            _require_declared(active.call, questions)
            answers = await self._ask_all(queue, active, rounds, questions)
        else:
            await self._commit(active, rounds)
            await anyio.sleep(min(STATE_ONLY_FIRST_S * 2 ** (rounds.count - 1), STATE_ONLY_MOST_S))
        queue.requeue(active)
        return _params_with_answers(params, rounds, answers)

    async def resume(
        self, queue: ServerQueue, active: ActiveCall, params: dict[str, Any], requests: Mapping[str, PendingRequest]
    ) -> dict[str, Any]:
        """Get the input for the round of a call from before a restart, queue the call, and return the params to send.

        Raises UpstreamError (INPUT_REFUSED).
        """
        rounds = active.call.rounds or core.RoundProgress()
        with queue.park(active):
            answers = {**payload.loads(rounds.configured), **await self.wait_for_answers(requests, _require_answer)}
        queue.requeue(active)
        return _params_with_answers(params, rounds, answers)

    async def mark_delivered(self, last_round: core.RoundProgress) -> None:
        """Mark a round's answers as delivered, as the server has replied to the call that carried them.

        That is durable on return, before the reply has any effect.
        """
        await self._inbox.mark_all_delivered([request_id for _, request_id in last_round.questions])

    def stored_requests(self, call: Call) -> dict[str, PendingRequest] | None:
        """Return the requests of a call's last round by key; None if one of them has been deleted."""
        rounds = call.rounds or core.RoundProgress()
        try:
            return {key: self._inbox.get(request_id) for key, request_id in rounds.questions}
        except NotFound:
            return None

    async def withdraw_unresumed(self, takeover: Takeover, under_way: Iterable[Call]) -> None:
        """Withdraw the requests of calls of the servers taken over, except of the calls `under_way`."""
        last_rounds = [call.rounds for call in under_way if call.rounds is not None]
        needed_ids = {request_id for last_round in last_rounds for _, request_id in last_round.questions}
        reason = f"{takeover.event_text}, and its call has ended"
        await self._inbox.abandon_all({Origin.ROUNDS}, reason, takeover.requests, except_ids=needed_ids)

    async def _ask_all(
        self, queue: ServerQueue, active: ActiveCall, rounds: core.RoundProgress, questions: Questions
    ) -> dict[str, Any]:
        """Ask the questions of a round, and return the answers by key; configured roots need no person."""
        configured: dict[str, Any] = {}
        requests: dict[str, PendingRequest] = {}
        for key, (kind, params) in questions.items():
            if has_configured_answer(queue, kind):
                configured[key] = {"roots": list(queue.config.roots)}
            else:
                requests[key] = new_request(queue, active, Origin.ROUNDS, kind, params, now=self._clock.now())
        async with self.park(queue, active, replace(rounds, configured=payload.dumps(configured)), requests):
            return {**configured, **await self.wait_for_answers(requests, _require_answer)}

    @asynccontextmanager
    async def park(
        self, queue: ServerQueue, active: ActiveCall, rounds: core.RoundProgress, requests: Mapping[str, PendingRequest]
    ) -> AsyncGenerator[None]:
        """Park the call for the block, with a round's requests opened in the inbox."""
        rounds = replace(rounds, questions=tuple((key, request.id) for key, request in requests.items()))
        with queue.park(active, *(request.id for request in requests.values())):
            await self._commit(active, rounds, *requests.values())
            yield

    async def _commit(self, active: ActiveCall, rounds: core.RoundProgress, *requests: PendingRequest) -> None:
        """Commit a round of a call together with its requests, and note the round in `active`."""

        def plan_call() -> Sequence[Change[Any]]:
            """Return the change that notes the round in the record of the call."""
            step = partial(core.merge_change, active.call, replace(active.call, rounds=rounds))
            return self._table.plan_step(active.call.id, step)

        try:
            await self._inbox.open(requests, plan_call)
        finally:  # if cancelled, the commit may have held
            active.call = replace(active.call, rounds=self._table.get(active.call.id).rounds)

    async def wait_for_answers(
        self, requests: Mapping[str, PendingRequest], read_answer: Callable[[PendingRequest], Any]
    ) -> dict[str, Any]:
        """Wait until all requests are settled; return what `read_answer` returns for each, by key.

        An error of `read_answer` ends the wait.
        """
        # Requests settled before a restart may be deleted as soon as they are delivered, so read their answers first.
        answers = {key: read_answer(each) for key, each in requests.items() if each.state is not RequestState.OPEN}
        while remaining := {request.id: key for key, request in requests.items() if key not in answers}:
            await self._inbox.wait_any(list(remaining))
            for request in map(self._inbox.get, remaining):
                if request.state is not RequestState.OPEN:
                    answers[remaining[request.id]] = read_answer(request)
        return {key: answers[key] for key in requests}


def next_round(queue: ServerQueue, active: ActiveCall) -> core.RoundProgress:
    """Return the next round, without questions yet. Raises UpstreamError (TOO_MANY_ROUNDS)."""
    count = active.call.rounds.count if active.call.rounds else 0
    if count >= MAX_ROUNDS:
        raise input_error("TOO_MANY_ROUNDS", f"{queue.config.name} asked for input more than {MAX_ROUNDS} times")
    return core.RoundProgress(count=count + 1, fingerprint=queue.config.fingerprint)


def _require_declared(call: Call, questions: Questions) -> None:
    """Raise PeerError, as a server does, if the caller has declared capabilities and a question needs another one."""
    capabilities = declared_capabilities(call.params)
    if capabilities is None:
        return
    for kind, params in questions.values():
        if not can_answer(capabilities, kind, params):
            message = f"the server asks for {kind}, which the client did not declare"
            raise PeerError(MISSING_CAPABILITY, message, {"requiredCapabilities": needed_capabilities(kind)})


def _params_with_answers(params: dict[str, Any], rounds: core.RoundProgress, answers: dict[str, Any]) -> dict[str, Any]:
    """Return the params with which a call is sent again: its own, the answers, and the state of the server."""
    params_to_send = {**params}
    if answers:
        params_to_send["inputResponses"] = answers
    if rounds.state is not None:
        params_to_send["requestState"] = rounds.state
    return params_to_send


def _require_answer(request: PendingRequest) -> Any:
    """Return the answer to a settled request. Raises UpstreamError (INPUT_REFUSED) without one."""
    if request.answer is None or request.answer.refused:
        raise input_refused_error(f"{request.kind} was refused, so the call was not sent again")
    return payload.loads(request.answer.payload)


def new_request(
    queue: ServerQueue, active: ActiveCall, origin: Origin, kind: RequestKind, params: dict[str, Any], *, now: float
) -> PendingRequest:
    """Return a pending request for input that the result of the call itself has asked for."""
    config, call = queue.config, active.call
    return PendingRequest(
        id=f"req_{secrets.token_hex(8)}",
        server=config.name,
        kind=kind,
        origin=origin,
        request=payload.dumps(params),
        created_at=now,
        deadline=now + config.find_answer_limit_s(durable=True) if config.auto_reject_on_timeout else None,
        call_id=call.id,
        cause_source=CauseSource.WIRE,
        principal=call.principal,
        task_id=call.task_id,
        trace=queue.tracer.begin(trace_of_params(params) or active.last_span, f"ask {kind}"),
    )


def has_configured_answer(queue: ServerQueue, kind: RequestKind) -> bool:
    """Return whether the configuration answers this kind of request."""
    return kind is RequestKind.ROOTS and queue.config.roots != "ask"


def parse_questions(input_requests: object) -> Questions:
    """Return the questions of an inputRequests object by key. Raises UpstreamError (INVALID_RESPONSE)."""
    if not isinstance(input_requests, Mapping):
        raise input_error("INVALID_RESPONSE", "inputRequests is not an object")
    questions: dict[str, tuple[RequestKind, dict[str, Any]]] = {}
    for key, request in cast("Mapping[str, Any]", input_requests).items():
        fields = _as_object(request)
        params = _as_object(fields.get("params"))
        kind = request_kind(fields.get("method"), params)
        if kind is None:
            raise input_error("INVALID_RESPONSE", f"inputRequests.{key} is not a request that a client answers")
        if (problem := find_problem(kind, params)) is not None:
            raise input_error("INVALID_RESPONSE", f"inputRequests.{key}: {problem}")
        questions[key] = (kind, params)
    return questions


def _as_object(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, and an empty one otherwise."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def input_error(code: str, message: str) -> UpstreamError:
    """Return the error of a call that cannot go on because of the input its server asks for."""
    return UpstreamError(Fault(code=code, category=Category.PROTOCOL, message=message))


def input_refused_error(message: str) -> UpstreamError:
    """Return the error of a call whose input was refused."""
    return UpstreamError(Fault(code="INPUT_REFUSED", category=Category.SERVER, message=message))
