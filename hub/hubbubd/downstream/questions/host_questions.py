"""What servers ask in the course of a host's calls: who is asked, and what the host's answers become.

A question is in the inbox before anybody is asked. The host is one of those who may answer it: by requests of the hub
where its revision has them (`requests.py`), else by results that ask for input (`rounds.py`).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.calls.capabilities import KEY as CAPABILITIES
from hubbubd.core.calls.capabilities import serves
from hubbubd.core.inbox.asked_hosts import HOSTS, AskedHost
from hubbubd.core.inbox.forms import Given
from hubbubd.core.inbox.request_states import (
    MAX_CLAIM_S,
    Origin,
    PendingRequest,
    RequestEventType,
    RequestKind,
    RequestState,
    host_noted,
    noted,
)
from hubbubd.downstream.hosts.host import McpHost, RequestToHost
from hubbubd.downstream.protocol import content_blocks
from hubbubd.downstream.views.question_policy import (
    ELICITATIONS,
    NAMES,
    LeftToOthers,
    QuestionPolicy,
    Unattended,
    Verdict,
)
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import FailedPrecondition, HubError, InvalidArgument
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import WaitingHost

SILENT_S: Final = 1800.0
"""Seconds for which it is remembered that nobody is at a host: somebody may have come back."""

MAX_LEFT: Final = 10_000
"""Questions of which it is remembered that their host has left them to others: the latest."""

_OF_ONE_CONNECTION: Final = ("task", "_meta")
"""Members of a question that are between the server and the hub."""


class HostQuestions:
    """The questions of all calls at one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self.hub = hub
        self._view = view
        self._asking = Counter[str]()
        """By question, the requests of its host that wait for an answer: two, once a bridge has come back."""
        self._left: OrderedDict[str, None] = OrderedDict()

    @property
    def policy(self) -> QuestionPolicy:
        """Who is asked, as it is configured now."""
        return self._view.policy

    def stamped(self, exchange: RequestToHost, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params of a call with what its host can answer, where that matters to the server."""
        able = self.policy.declared(exchange.host.capabilities)
        if able is None:
            return dict(params)
        return {**params, "_meta": {**(params.get("_meta") or {}), CAPABILITIES: able}}

    def asks(self, host: McpHost, request: PendingRequest) -> bool:
        """Return whether a host is to be asked: it caused the question, it can answer it, and somebody is there."""
        return request.state is RequestState.OPEN and request.id not in self._left and not self.why_not(host, request)

    def why_not(self, host: McpHost, request: PendingRequest) -> str:
        """Return why a host is not asked a question, for people; "" if it is."""
        if request.origin is Origin.AUTHORIZATION:
            return "the hub itself asks, and only in the inbox"
        if why := self.outlook(host, request.kind, payload.loads(request.request)):
            return why
        if not request.certain:
            return "it is not certain that its call is the cause: the server is at work for others, too"
        return ""

    def outlook(self, host: McpHost, kind: RequestKind, params: Mapping[str, Any]) -> str:
        """Return why a host is not asked what is of a kind, whatever its cause; "" if it is."""
        name = NAMES[kind]
        if self.policy.of(kind) == "inbox":
            return f'the profile has questions.{name} = "inbox"'
        if not serves(host.capabilities, kind, params):
            return f"it did not declare that it can answer this ({name})"
        if self._is_silent(host, kind):
            return f"nobody was there when it was asked before ({name})"
        return ""

    def waiting(
        self,
        who: Callable[[], McpHost],
        for_s: float = MAX_CLAIM_S,
        *,
        but: Callable[[PendingRequest], str] = lambda _: "",
        first: Callable[[], bool] = lambda: True,
    ) -> WaitingHost:
        """Return the host that is `who` now as one that waits for a call; `for_s` as there.

        `but` returns a further reason for not asking it, and `first` whether it can be asked before all others now.
        """
        return WaitingHost(
            by=who().principal.name,
            host=who().name,
            why_not=lambda request: self.why_not(who(), request) or but(request),
            first=lambda request: self.policy.reserves(request.kind) and first(),
            for_s=for_s,
        )

    def noting(
        self, host: McpHost, tell: Callable[[PendingRequest], None] = lambda _: None
    ) -> Callable[[PendingRequest], None]:
        """Return a function that does `note`, and passes on what it is given."""

        def heard(request: PendingRequest) -> None:
            self.note(host, request)
            tell(request)

        return heard

    def note(self, host: McpHost, request: PendingRequest) -> None:
        """Note what is decided about a host that waits for a call only since its question was opened."""
        open_ = request.state is RequestState.OPEN
        if open_ and len(request.hosts) < HOSTS and all(each.host != host.name for each in request.hosts):
            decided = AskedHost(host=host.name, at=self.hub.clock.now(), why_not=self.why_not(host, request))
            self.hub.inbox.note(request.id, lambda there: host_noted(there, decided))

    def note_asked(self, host: McpHost, request_id: str) -> None:
        """Note that a host is asked now that was not before."""
        asked = AskedHost(host=host.name, at=self.hub.clock.now())
        self.hub.inbox.note(request_id, lambda there: host_noted(there, asked))

    @contextmanager
    def asking(self, request_id: str) -> Generator[None]:
        """Note that a host is asked during the block."""
        self._asking[request_id] += 1
        try:
            yield
        finally:
            self._asking[request_id] -= 1
            if not self._asking[request_id]:
                del self._asking[request_id]

    async def withdrawn(self, host: McpHost, request_id: str) -> None:
        """Leave a question to others, unless its host was asked anew over another stream. Within `asking`."""
        if self._asking[request_id] == 1:
            await self.leave(host, request_id)

    async def found(self, request_ids: Collection[str]) -> list[PendingRequest]:
        """Return what is in the inbox of these, also if another member has just put it there. Raises Unavailable."""
        found = self._found(request_ids)
        if len(found) == len(request_ids):
            return found
        await self.hub.catch_up()
        return self._found(request_ids)

    def _found(self, request_ids: Collection[str]) -> list[PendingRequest]:
        return [request for request in map(self.hub.inbox.find, request_ids) if request is not None]

    def shown(self, host: McpHost, request: PendingRequest) -> dict[str, Any]:
        """Return the params with which a host is asked."""
        params: dict[str, Any] = payload.loads(request.request)
        shown = {name: value for name, value in params.items() if name not in _OF_ONE_CONNECTION}
        if self.policy.named and request.kind in ELICITATIONS:
            shown["message"] = f"{request.server} asks: {params.get('message', '')}"
        if request.kind is RequestKind.SAMPLING:
            shown = content_blocks.of_sampling(shown, host.revision)
        if request.kind is RequestKind.ELICITATION_URL:
            shown.pop("elicitationId", None)
            if not host.stateless:  # its own, as those of two servers may be equal
                shown["elicitationId"] = request.id
        return shown

    async def take(self, host: McpHost, request_id: str, verdict: Verdict) -> bool:
        """Take what a host answered; return whether it is the answer. Raises InvalidArgument for one that does not fit.

        While somebody else has claimed the question, this waits for what becomes of the claim.
        """
        if not isinstance(verdict, Unattended | LeftToOthers):
            return await self._answer(host, request_id, verdict)
        request = self.hub.inbox.get(request_id)
        if isinstance(verdict, Unattended):
            host.silent[request.kind] = self.hub.clock.steady()
        await self.leave(host, request_id, verdict.what)
        return False

    def late(self, host: McpHost, request: PendingRequest, result: Mapping[str, Any]) -> str | None:
        """Note what a host answered once a question was closed; return what became of that, for the host.

        None for the answer that the host has given before.
        """
        if (request.answer_id, request.answered_by) == (own_id(request.id), host.principal.name):
            return None
        closed = f"{request.answered_by} had answered" if request.answered_by else f"it was {request.state}"
        did = str(result.get("action", "a result"))[:20]
        at, by, via = self.hub.clock.now(), host.principal.name, f"{host.name}: {did}, after {closed}"
        what = RequestEventType.NOT_COUNTED
        self.hub.inbox.note(request.id, lambda there: noted(there, what, at, by, via=via))
        return f"not counted, as {closed}: hubbub inbox show {request.id}"

    async def leave(self, host: McpHost, request_id: str, what: str | None = None) -> None:
        """Leave a question to others, with a note of what the host did."""
        self._left[request_id] = None
        if len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)
        with suppress(HubError):
            if what is not None:
                await self.hub.inbox.not_counted(request_id, host.principal.name, f"{host.name}: {what}")
        await self.give_back(request_id)

    async def give_back(self, request_id: str) -> None:
        """Let others answer a question that was the host's before it is anybody's."""
        with suppress(HubError):
            claim_id = self.hub.inbox.reserved.claim_of(self.hub.inbox.get(request_id))
            if claim_id is not None:
                await self.hub.inbox.release(request_id, claim_id)

    async def _answer(self, host: McpHost, request_id: str, given: Given) -> bool:
        changed = asyncio.Event()
        inbox = self.hub.inbox
        with inbox.listen(request_id, lambda _request, _live: changed.set()):
            while True:
                changed.clear()
                claim_id = inbox.reserved.claim_of(inbox.get(request_id))
                try:
                    await inbox.answer(
                        request_id,
                        given,
                        host.principal.name,
                        answer_id=own_id(request_id),
                        claim_id=claim_id,
                        via=host.name,
                    )
                    return True
                except InvalidArgument:
                    raise
                except FailedPrecondition as exc:
                    if exc.reason not in ("ALREADY_CLAIMED", "CLAIM_LOST"):
                        return False
                await changed.wait()

    def _is_silent(self, host: McpHost, kind: RequestKind) -> bool:
        """Return whether nobody is at the process of a host, as it has shown a while ago."""
        since = host.silent.get(kind)
        return since is not None and self.hub.clock.steady() - since < SILENT_S


def own_id(request_id: str) -> str:
    """Return the idempotency key of a host's answer to a question."""
    return f"host_{request_id}"
