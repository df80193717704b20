"""Questions as requests to a host whose revision has them (up to 2025-11-25), on the stream of its own request."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, nullcontext
from typing import Any, Final

import structlog

from hubbubd import payload
from hubbubd.core.inbox.forms import Refuse
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind, RequestState
from hubbubd.core.jsonrpc import INTERNAL_ERROR
from hubbubd.downstream.calls.hold import Hold
from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.downstream.protocol.messages import ResponseMessage, notification
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.views.question_policy import METHODS, LeftToOthers, Unattended, Verdict, judge, judge_error
from hubbubd.errors import HubError, InvalidArgument
from hubbubd.runtime.servers import ServerEvent, ServerEventKind

log = structlog.get_logger(__name__)


_OF_RESULTS: Final = frozenset({Origin.ROUNDS, Origin.TASK_INPUT})
"""Questions whose server is not there to say when a page is done with: it is when the call goes on."""


class QuestionRequests:
    """The questions of one call that its host is asked. The host is told of those that others have answered."""

    def __init__(
        self, questions: HostQuestions, exchange: RequestToHost, holding: Hold | None = None, *, again: bool = False
    ) -> None:
        """`again`: the host may ask again what becomes of the call, and is then asked again what is still open."""
        self._questions = questions
        self._exchange = exchange
        self._holding = holding
        self._again = again
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._unasked: dict[str, PendingRequest] = {}
        """What the host is to be asked once it is back."""
        self._visited: set[str] = set()
        self._until_then = ExitStack()
        self._pages: dict[tuple[str, str], str] = {}
        """The requests of pages, by server and the server's own id for it."""

    def changed(self, request: PendingRequest) -> None:
        """Ask what is new, and take back what is settled."""
        asking = self._asking.get(request.id)
        if asking is None and self._questions.asks(self._exchange.host, request):
            if self._exchange.presence.here:
                self._asking[request.id] = asyncio.get_running_loop().create_task(self._ask(request))
            else:
                self._unasked[request.id] = request
        elif request.state is not RequestState.OPEN:
            self._unasked.pop(request.id, None)
            if asking is not None:
                asking.cancel(
                    f"{request.answered_by} has answered" if request.answered_by else f"it is {request.state}"
                )
            if request.origin in _OF_RESULTS:
                self._complete(request.id)

    def _late(self, request_id: str) -> Callable[[ResponseMessage], None]:
        """Return what notes an answer that the host gives though the question was taken back."""
        questions, host = self._questions, self._exchange.host  # not its request: this may be the last to know of that

        def heard(response: ResponseMessage) -> None:
            request = questions.hub.inbox.find(request_id)
            if request is not None and request.state is not RequestState.OPEN and response.result is not None:
                questions.late(host, request, response.result)

        return heard

    def absent(self, _request: PendingRequest) -> str:
        """Return why the host is not asked anything now; "" if it is."""
        return "" if self._exchange.presence.here else "it has hung up"

    def _presence_changed(self) -> None:
        """Ask a host that is back what it was not asked meanwhile."""
        if self._exchange.presence.here:
            unasked, self._unasked = self._unasked, {}
            for request in unasked.values():
                self.changed(request)
                if request.id in self._asking:
                    self._questions.note_asked(self._exchange.host, request.id)

    @asynccontextmanager
    async def asked(self) -> AsyncGenerator[None]:
        """Take back at the end of the block what is still open, and leave it to others."""
        try:
            with self._until_then, self._exchange.presence.listened(self._presence_changed):
                yield
        finally:
            for asking in self._asking.values():
                asking.cancel()
            if self._asking:
                await asyncio.wait(self._asking.values())

    async def _ask(self, request: PendingRequest) -> None:
        with self._questions.asking(request.id):
            await self._ask_host(request)

    async def _ask_host(self, request: PendingRequest) -> None:
        questions, host = self._questions, self._exchange.host
        assert self._exchange.ask is not None, "its revision has requests of servers"
        clock, policy = questions.hub.clock, questions.policy
        begun = clock.steady()
        try:
            with self._holding.dialog() if self._holding else nullcontext():
                response = await self._exchange.ask(
                    METHODS[request.kind], questions.shown(host, request), self._late(request.id)
                )
            took_s = clock.steady() - begun
            if response.result is None:
                verdict = judge_error(policy, request.kind, response.error or {})
            else:
                params = payload.loads(request.request)
                verdict = judge(policy, request.kind, params, response.result, took_s)
            if request.kind is RequestKind.ELICITATION_URL and not isinstance(verdict, Unattended | LeftToOthers):
                self._visited.add(request.id)
                if request.origin not in _OF_RESULTS:
                    self._expect(request, payload.loads(request.request))
            await self._take(request, verdict)
        except asyncio.CancelledError:
            await (questions.give_back(request.id) if self._again else questions.withdrawn(host, request.id))
            raise
        except HubError as exc:
            log.warning("an answer of a host was not taken", request=request.id, error=exc.message)
        except Exception:
            log.exception("asking a host failed: internal error", request=request.id)

    async def _take(self, request: PendingRequest, verdict: Verdict) -> None:
        """Take an answer; one that cannot be taken leaves the question to others, or ends it where there are none."""
        questions, host = self._questions, self._exchange.host
        try:
            await questions.take(host, request.id, verdict)
        except InvalidArgument as exc:
            wrong = f"an answer that does not fit: {exc.message}"[:500]
            if questions.policy.of(request.kind) == "host":
                await questions.take(host, request.id, Refuse(INTERNAL_ERROR, f"{host.name}: {wrong}"))
            else:
                await questions.leave(host, request.id, wrong)

    def _expect(self, request: PendingRequest, params: dict[str, Any]) -> None:
        """Listen to what the server of 2025-11-25 says of a page, until the end of the call."""
        if not self._pages:
            listen = self._questions.hub.events.listen
            self._until_then.callback(listen(ServerEventKind.ELICITATION_COMPLETE, self._heard))
        self._pages[request.server, str(params.get("elicitationId"))] = request.id

    def _heard(self, event: ServerEvent) -> None:
        params: dict[str, Any] = payload.loads(event.params)
        request_id = self._pages.get((event.server, str(params.get("elicitationId"))))
        if request_id is not None:
            self._complete(request_id)

    def _complete(self, request_id: str) -> None:
        """Tell the host that a page is done with, if it has shown it."""
        if request_id in self._visited:
            self._visited.discard(request_id)
            params = {"elicitationId": request_id}
            self._exchange.tell(notification("notifications/elicitation/complete", params))
