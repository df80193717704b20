"""Questions as requests to a host whose revision has them (up to 2025-11-25), on the stream of its own request."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from hubbubd import payload
from hubbubd.core.inbox import PendingRequest, RequestKind, RequestState
from hubbubd.downstream.host import Exchange
from hubbubd.downstream.messages import notification
from hubbubd.downstream.policy import METHODS, Left, judge, judge_error
from hubbubd.downstream.questions import Questions
from hubbubd.errors import HubError, InvalidArgument

log = structlog.get_logger(__name__)


class Requests:
    """The questions of one call that its host is asked. The host is told of those that others have answered."""

    def __init__(self, questions: Questions, exchange: Exchange, *, again: bool = False) -> None:
        """`again`: the host may ask again what becomes of the call, and is then asked again what is still open."""
        self._questions = questions
        self._exchange = exchange
        self._again = again
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._visited: set[str] = set()

    def changed(self, request: PendingRequest) -> None:
        """Ask what is new, and take back what is settled."""
        asking = self._asking.get(request.id)
        if asking is None and self._questions.asks(self._exchange.host, request):
            self._asking[request.id] = asyncio.get_running_loop().create_task(self._ask(request))
        elif request.state is not RequestState.OPEN:
            if asking is not None and request.id not in self._answering:
                asking.cancel()
            self._complete(request)

    @asynccontextmanager
    async def asked(self) -> AsyncGenerator[None]:
        """Take back at the end of the block what is still open, and leave it to others."""
        try:
            yield
        finally:
            for asking in self._asking.values():
                asking.cancel()
            if self._asking:
                await asyncio.wait(self._asking.values())

    async def _ask(self, request: PendingRequest) -> None:
        questions, host = self._questions, self._exchange.host
        assert self._exchange.ask is not None, "its revision has requests of servers"
        clock, policy = questions.hub.clock, questions.policy
        begun = clock.steady()
        try:
            response = await self._exchange.ask(METHODS[request.kind], questions.shown(host, request))
            took_s = clock.steady() - begun
            if response.result is None:
                verdict = judge_error(policy, request.kind, response.error or {})
            else:
                params = payload.loads(request.request)
                verdict = judge(policy, request.kind, params, response.result, took_s)
            self._answering.add(request.id)
            if request.kind is RequestKind.ELICITATION_URL and not isinstance(verdict, Left):
                self._visited.add(request.id)
            try:
                await questions.take(host, request.id, verdict)
            except InvalidArgument as exc:
                await questions.leave(host, request.id, f"an answer that does not fit: {exc.message}"[:500])
        except asyncio.CancelledError:
            await (questions.give_back(request.id) if self._again else questions.leave(host, request.id))
            raise
        except HubError as exc:
            log.warning("an answer of a host was not taken", request=request.id, error=exc.message)
        except Exception:
            log.exception("asking a host failed: internal error", request=request.id)

    def _complete(self, request: PendingRequest) -> None:
        """Tell the host that a page is done with."""
        if request.id in self._visited:
            self._visited.discard(request.id)
            params = {"elicitationId": request.id}
            self._exchange.tell(notification("notifications/elicitation/complete", params))
