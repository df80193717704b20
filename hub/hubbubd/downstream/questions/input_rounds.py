"""Questions as results that ask a host for input, and what it sends back (2026-07-28, MRTR).

request ──> call ──> parked: input_required, with a sealed state ──> request with answers and state ──> the same call

The call goes on whether or not the host comes back: it is detached before the host hears of a question. The server's
own state never leaves the hub.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.calls.hold import Hold
from hubbubd.downstream.calls.observer import CallObserver
from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.state_tokens import BoundRequest, StateToken, StateTokens, digest
from hubbubd.downstream.views.question_policy import METHODS, judge
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.calls import CallSpec

MAX_ROUNDS: Final = 8
"""How often a host is asked for input in one call; clients give up after 10. Then it waits for the inbox."""

STATE_S: Final = 86_400.0
"""Seconds for which a host may come back with its answers."""

MAX_ASKED: Final = 100
"""The most questions of one round; others are of the next."""

MAX_ANSWERS: Final = 1000
"""The most answers in one request."""


class InputRounds:
    """The rounds of the calls of one endpoint's hosts."""

    def __init__(self, questions: HostQuestions, handles: StateTokens, view: str) -> None:
        self.questions = questions
        self._hub = questions.hub
        self._handles = handles
        self._view = view

    async def attached(self, exchange: RequestToHost) -> "tuple[CallSpec, StateToken] | None":
        """Return the call that a request goes on with, by its state; None for a request without one.

        Raises Refusal for a state of others or of another request, CallLost if there is no such call any more, and
        Unavailable.
        """
        state = exchange.params.get("requestState")
        if state is None:
            return None
        await self._handles.ready()
        handle = self._handles.open(state, self._bound(exchange))
        try:
            call = await self._hub.find_call(handle.call_id)
        except NotFound:
            raise CallLost from None
        return spec_of(call), handle

    async def result(
        self, exchange: RequestToHost, spec: CallSpec, handle: StateToken | None, holding: Hold
    ) -> Call | bytes:
        """Make or join a call; return it once it has ended, or a result that asks for input. Raises as `Calls.call`."""
        assert spec.call_id is not None, "a host's call has an id"
        answers = given_answers(exchange) if handle is not None else {}
        following = CallObserver(self._hub, spec.call_id, waits=self.questions.noting(exchange.host, holding.changed))
        host = exchange.host
        count = handle.round if handle is not None else 0

        def but(_request: PendingRequest) -> str:
            return f"it was asked {MAX_ROUNDS} times in this call" if count >= MAX_ROUNDS else ""

        waiting = self.questions.waiting(lambda: host, holding.return_s, but=but)
        with following.following(), self._hub.inbox.reserved.for_host(spec.call_id, waiting):
            attached = _Attached(self, exchange, spec, following, handle)
            return await attached.run(answers, holding)

    async def ask(self, exchange: RequestToHost, call_id: str, count: int, asked: list[PendingRequest]) -> bytes:
        """Return a result that asks for input."""
        call = self._hub.calls.get(call_id)
        requests = {
            key: {"method": METHODS[request.kind], "params": self.questions.shown(exchange.host, request)}
            for key, request in keyed(call, asked).items()
        }
        ids = [request.id for request in asked]
        await self._handles.ready()
        state = self._handles.seal(call_id, count, self._bound(exchange), ttl_s=STATE_S, asked=ids)
        return payload.dumps({"resultType": "input_required", "inputRequests": requests, "requestState": state})

    async def give(
        self, exchange: RequestToHost, handle: StateToken, answers: Mapping[str, Any], say: Callable[[str | None], None]
    ) -> None:
        """Take a host's answers to the questions of a round, and `say` which of them came too late.

        Raises Refusal for what does not fit, and Unavailable.
        """
        questions = self.questions
        took_s = self._handles.age_s(handle)
        asked = await questions.found(handle.asked)  # no others: one that came later may have the key of an earlier one
        call = self._hub.calls.get(handle.call_id)
        for key, request in keyed(call, asked).items():
            if key not in answers:
                continue
            if request.state is not RequestState.OPEN:
                say(questions.late(exchange.host, request, answers[key]))
            if not questions.asks(exchange.host, request):
                continue
            params = payload.loads(request.request)
            verdict = judge(questions.policy, request.kind, params, answers[key], took_s)
            try:
                await questions.take(exchange.host, request.id, verdict)
            except InvalidArgument as exc:
                raise Refusal(INVALID_PARAMS, f"inputResponses.{key}: {exc.message}") from None

    def _bound(self, exchange: RequestToHost) -> BoundRequest:
        """Return the request that a state is for."""
        params = exchange.params
        return BoundRequest(
            principal=exchange.host.principal.name,
            profile=self._view,
            method=exchange.method,
            name=str(params.get("name", params.get("uri", ""))),
            params=digest(params),
        )


class CallLost(Exception):
    """The call that a request goes on with is gone."""


class _Attached:
    """One request of a host, attached to a call."""

    def __init__(
        self,
        rounds: InputRounds,
        exchange: RequestToHost,
        spec: CallSpec,
        following: CallObserver,
        handle: StateToken | None,
    ) -> None:
        self._rounds = rounds
        self._exchange = exchange
        self._spec = spec
        self._following = following
        self._handle = handle
        self._count = handle.round if handle is not None else 0
        self._detached = handle is not None

    async def run(self, answers: Mapping[str, Any], holding: Hold) -> Call | bytes:
        """Give the answers, wait, and ask."""
        calls, principal = self._rounds.questions.hub.calls, self._exchange.host.principal.name
        loop = asyncio.get_running_loop()
        call = loop.create_task(calls.call(self._spec, principal))
        giving = None
        if answers and self._handle is not None:
            giving = loop.create_task(self._rounds.give(self._exchange, self._handle, answers, holding.progress.say))
        tasks: set[asyncio.Task[Any]] = {call, *([giving] if giving else [])}
        try:
            while True:
                await asyncio.wait({*tasks, self._following.news}, return_when=asyncio.FIRST_COMPLETED)
                self._following.seen()
                if call.done():
                    return call.result()
                if giving is not None and giving.done():
                    tasks.discard(giving)
                    giving = giving.result()
                await self._detach()
                if giving is None and (asked := self._asked()):
                    return await self._rounds.ask(self._exchange, self._spec.call_id or "", self._count + 1, asked)
        except asyncio.CancelledError:
            await _cancelled(tasks)
            if (
                not holding.keeps and not self._following.open()
            ):  # nobody is being asked, so nobody's answer would be lost
                calls.give_up(self._spec.call_id or "")
            raise
        finally:
            await _cancelled(tasks)

    async def _detach(self) -> None:
        """Keep the call whatever becomes of the host, once people are asked."""
        if not self._detached and self._following.open():
            await self._rounds.questions.hub.calls.start(self._spec, self._exchange.host.principal.name)
            self._detached = True

    def _asked(self) -> list[PendingRequest]:
        """Return the questions of a round: those that are open now. What the server asks later is another round."""
        if self._count >= MAX_ROUNDS:
            return []
        host, questions = self._exchange.host, self._rounds.questions
        return [request for request in self._following.open() if questions.asks(host, request)][:MAX_ASKED]


def spec_of(call: Call) -> CallSpec:
    """Return the spec that joins a call."""
    return CallSpec(server=call.server, method=call.method, params=call.params, call_id=call.id, as_task=call.as_task)


def keyed(call: Call, asked: list[PendingRequest]) -> dict[str, PendingRequest]:
    """Return questions by the keys under which a host is asked: the server's own where it has some."""
    keys = {request_id: key for key, request_id in call.rounds.questions} if call.rounds else {}
    return {keys.get(request.id, request.id): request for request in asked}


def given_answers(exchange: RequestToHost) -> dict[str, Any]:
    """Return a host's answers by key. Raises Refusal."""
    given: object = exchange.params.get("inputResponses", {})
    if not isinstance(given, dict) or len(cast("dict[str, Any]", given)) > MAX_ANSWERS:
        raise Refusal(INVALID_PARAMS, f"params.inputResponses must be an object of at most {MAX_ANSWERS} answers")
    responses = cast("dict[str, Any]", given)
    for key, response in responses.items():
        if not isinstance(response, dict):
            raise Refusal(INVALID_PARAMS, f"params.inputResponses.{key[:100]} must be an object")
    return responses


async def _cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    """End tasks, whatever they are at."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
