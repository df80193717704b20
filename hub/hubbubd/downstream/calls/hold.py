"""A request of a host that is held while people are asked, and what ends that.

    question ──> held, with progress that says where to answer ──> result
                        │ longer than the host waits
                        └──> the call goes on without the request: a ticket, or an error (tickets.py)

A host's own dialog, and rounds with a host that can be asked, come first.
"""

import asyncio
import math
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.downstream.calls.progress import ProgressReporter
from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.downstream.hosts.timeouts import GONE_S, held_s
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.errors import HubError
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

EVERY_S: Final = 10.0
"""Seconds between two words of progress."""

SOON_S: Final = 1.0
"""Seconds in which nothing is said and no hold ends: a host that can be asked is asked in them."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldTerms:
    """When a hold ends: at `until` of the steady clock, or with `dialogs` once the host's own dialog is closed.

    With `whatever` it ends even if nobody is asked. A host that is asked by a result has `return_s` seconds to come
    back: it may have gone, and nothing tells of that.
    """

    until: float
    return_s: float
    dialogs: bool = False
    whatever: bool = False

    @classmethod
    def of(cls, policy: QuestionPolicy, exchange: RequestToHost, now: float, *, told: bool) -> "HoldTerms":
        """Return the terms of a request that came now. `told` is whether its host gets progress."""
        host, given = exchange.host, exchange.hold_s
        if given is None and policy.hold_s != "auto":
            given = policy.hold_s
        hold_s = held_s(host.info.get("name"), host.via, told=told) if given is None else given
        return_s = min(hold_s, GONE_S) if given is None else hold_s
        if policy.on_hold_end == "wait":
            return cls(until=math.inf, return_s=return_s)
        return cls(until=now + hold_s, return_s=return_s, dialogs=given is None)


class Hold:
    """One request of a host, while its call is under way."""

    def __init__(
        self, hub: Hub, exchange: RequestToHost, spec: CallSpec, terms: HoldTerms, progress: ProgressReporter
    ) -> None:
        self.over = False
        """Whether the hold has ended before the call; then the call is detached, and goes on."""
        self._hub = hub
        self._exchange = exchange
        self._spec = spec
        self._terms = terms
        self.progress = progress
        self._waiting: dict[str, PendingRequest] = {}
        self._since = hub.clock.steady()
        self._say_at = self._since + SOON_S
        self._open_dialogs = 0
        self._news = asyncio.Event()
        self._limit = asyncio.timeout(None)
        self._task: asyncio.Task[None] | None = None

    @property
    def return_s(self) -> float:
        """Seconds in which a host that is asked by a result comes back, if it does."""
        return self._terms.return_s

    @property
    def asked(self) -> list[str] | None:
        """The ids of what the call is certain to wait for, the oldest first; None if it waits for no answer."""
        return [request.id for request in self._waiting.values() if self._is_own(request)] if self._waiting else None

    @property
    def keeps(self) -> bool:
        """Whether the call goes on though its host leaves."""
        return self.over or self._terms.whatever

    async def held(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what the work for the request returns; None if the hold ended before. Raises as the work does."""
        if self._terms.whatever:
            self._begin()
        try:
            async with self._limit:
                return await work
        except TimeoutError:
            if not self.over:
                raise
            return None
        finally:
            if self._task is not None:
                self._task.cancel()

    def changed(self, request: PendingRequest) -> None:
        """Take note of a pending request of the call."""
        if request.state is not RequestState.OPEN:
            self._waiting.pop(request.id, None)
        else:
            if not self._waiting:
                self._since = self._hub.clock.steady()
                self._say_at = max(self._say_at, self._since + SOON_S)
            self._waiting[request.id] = request
            self._begin()
        self._news.set()

    @contextmanager
    def dialog(self) -> Generator[None]:
        """Count a dialog of the host's own during the block."""
        self._open_dialogs += 1
        try:
            yield
        finally:
            self._open_dialogs -= 1

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._hold())

    async def _hold(self) -> None:
        """Tell the host what is waited for, and end the hold in time."""
        while True:
            await self._until_end()
            try:
                await self._hub.calls.start(self._spec, self._exchange.host.principal.name)
            except HubError as exc:  # it is held until it can be kept
                log.warning("a call could not be detached from its host", call=self._spec.call_id, error=exc.message)
                await asyncio.sleep(EVERY_S)
                continue
            self.over = True
            self._limit.reschedule(asyncio.get_running_loop().time())
            return

    async def _until_end(self) -> None:
        while (end := self._end()) > (now := self._hub.clock.steady()):
            tells = bool(self._waiting) or self._terms.whatever
            if tells and now >= self._say_at:
                self.progress.say(self._told())
                self._say_at = now + EVERY_S
            next_at = min(end, self._say_at) if tells else end
            self._news.clear()
            try:
                async with asyncio.timeout(None if next_at == math.inf else next_at - now):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _end(self) -> float:
        """Return when the hold ends, as things are."""
        put_off = self._terms.dialogs and self._open_dialogs
        if put_off or not (self._waiting or self._terms.whatever):
            return math.inf
        return max(self._terms.until, self._since + SOON_S)

    def _told(self) -> str:
        if not self._waiting:
            return "the call is under way"
        asked = self.asked
        return f"waiting for an answer: {f'hubbub inbox show {asked[0]}' if asked else 'hubbub inbox list'}"

    def _is_own(self, request: PendingRequest) -> bool:
        """Return whether the call has caused a request for certain: others may be of other principals."""
        return request.call_id == self._spec.call_id and request.certain
