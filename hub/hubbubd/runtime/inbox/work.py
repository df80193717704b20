"""Work for agents: each open request that workers can answer goes to exactly one of them.

    open, unclaimed ──> candidate of every worker that may have it ──> claimed for one with room ──> over

A worker's claim lives as long as its stream. When the stream ends the request is free again, and goes to another
worker; when the hub ends, the next one finds the claim marked as a worker's and drops it.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field

import anyio

from hubbubd.clock import Clock
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox import MAX_CLAIM_S, Claim, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, HubError, NotFound
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.background import Background
from hubbubd.runtime.inbox.inbox import Inbox
from hubbubd.runtime.records import BOOKMARK_S, Pulse, Table, WatcherLimit

MAX_CAPACITY = 100
"""How many requests one worker may have at once."""

RENEW_S = 60.0
"""How long before it lapses a worker's claim is renewed."""

RETRY_S = 1.0
"""How long a request that the store would not assign waits."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A request is this worker's; its claim has the id that the answer needs."""

    request: PendingRequest


@dataclass(frozen=True, slots=True)
class Over:
    """A request is this worker's no longer."""

    id: str
    state: RequestState


Step = Assigned | Over | None
"""What a worker hears; None says that the hub is alive."""


@dataclass(slots=True, eq=False)
class Worker:
    """One stream of an agent. `standing` tells whether its credential can still be used; `held` has None where the
    claim is being made.
    """

    principal: str
    filter: RequestFilter
    capacity: int
    standing: Callable[[], bool] = lambda: True
    _: KW_ONLY
    held: dict[str, Claim | None] = field(default_factory=dict[str, Claim | None])
    candidates: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    skipped: set[str] = field(default_factory=set[str])
    unheard: deque[Assigned | Over] = field(default_factory=deque[Assigned | Over])
    pulse: Pulse = field(default_factory=Pulse)

    @property
    def room(self) -> bool:
        """Whether it can have another one. What it has not heard of counts, so that what waits for it is bounded."""
        return len(self.held) + len(self.unheard) < self.capacity and self.standing()

    def may_have(self, request: PendingRequest) -> bool:
        """Whether a free request could go to it."""
        return request.id not in self.skipped and self.filter.matches(request)

    def tell(self, step: Assigned | Over) -> None:
        """Puts a step where the stream finds it."""
        self.unheard.append(step)
        self.pulse.beat()


class Work:
    """All workers, and which request went to whom."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        table: Table[PendingRequest],
        clock: Clock,
        alarms: Alarms,
        background: Background,
        door: WatcherLimit,
    ) -> None:
        self._inbox = inbox
        self._table = table
        self._clock = clock
        self._alarms = alarms
        self._background = background
        self._door = door
        self._workers: OrderedDict[Worker, None] = OrderedDict()  # the one that was given something last comes last
        self._holders: dict[str, Worker] = {}
        self._closed = False
        table.follow(self._follow)

    def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        for worker in self._workers:
            worker.pulse.close()

    @contextmanager
    def join(
        self, principal: str, chosen: RequestFilter, capacity: int, standing: Callable[[], bool] = lambda: True
    ) -> Generator[Worker]:
        """A worker for as long as the block is open; it is given nothing when it has lost its `standing`.

        Raises ResourceExhausted (TOO_MANY_WATCHERS).
        """
        self._door.enter()
        worker = Worker(principal, chosen, capacity, standing)
        if self._closed:
            worker.pulse.close()
        self._workers[worker] = None
        free = [r for r in self._table if _is_free(r) and r.id not in self._holders and worker.may_have(r)]
        worker.candidates.update((r.id, None) for r in sorted(free, key=lambda r: r.created_at))
        self._hand_out(worker)
        try:
            yield worker
        finally:
            self._door.leave()
            self._leave(worker)

    async def steps(self, worker: Worker) -> AsyncGenerator[Step]:
        """What the worker hears, the first step at once. Raises Unavailable (SHUTTING_DOWN)."""
        yield None
        while True:
            while worker.unheard:
                step = worker.unheard[0]
                yield step
                worker.unheard.popleft()
                self._hand_out(worker)
            worker.pulse.require_open()
            if not await worker.pulse.wait(worker.pulse.beats, BOOKMARK_S):
                yield None

    def skip(self, worker: Worker, request_id: str) -> None:
        """Leaves a request to others; one that is not this worker's stays as it is."""
        if (claim := worker.held.get(request_id)) is not None:
            worker.skipped.add(request_id)
            self._release(request_id, claim)

    # Giving

    def _offer(self, request: PendingRequest) -> None:
        if self._closed:
            return
        able = [worker for worker in self._workers if worker.may_have(request)]
        for worker in able:
            worker.candidates[request.id] = None
        ready = [worker for worker in able if worker.room]
        if ready:
            self._give(min(ready, key=lambda worker: len(worker.held)), request.id)

    def _hand_out(self, worker: Worker) -> None:
        while not self._closed and worker in self._workers and worker.room and worker.candidates:
            self._give(worker, next(iter(worker.candidates)))

    def _give(self, worker: Worker, request_id: str) -> None:
        self._no_candidate(request_id)
        worker.held[request_id] = None
        self._holders[request_id] = worker
        self._workers.move_to_end(worker)
        self._background.start_soon(self._assign, worker, request_id)

    async def _assign(self, worker: Worker, request_id: str) -> None:
        try:
            request = await self._inbox.claim(request_id, worker.principal, MAX_CLAIM_S, worker=True)
        except HubError:
            await self._not_assigned(worker, request_id)
            return
        assert request.claim is not None, "it was claimed"
        if self._holders.get(request_id) is not worker:  # it closed before the claim was told
            return
        if worker not in self._workers:
            self._forget(request_id)
            self._release(request_id, request.claim)
            return
        worker.held[request_id] = request.claim
        self._renew_before(request)
        worker.tell(Assigned(request))

    async def _not_assigned(self, worker: Worker, request_id: str) -> None:
        # One that is still free could not be written, or is about to expire: neither is tried again at once, and
        # meanwhile it keeps the worker's place, so that a store that fails is not asked for each candidate.
        if self._free(request_id) is not None:
            await anyio.sleep(RETRY_S)
        if self._holders.get(request_id) is worker:
            self._forget(request_id)
            if (request := self._free(request_id)) is not None:
                self._offer(request)
            self._hand_out(worker)

    def _renew_before(self, request: PendingRequest) -> None:
        claim = request.claim
        if claim is not None and (request.deadline is None or claim.expires_at < request.deadline):
            self._alarms.set(Due.WORK, request.id, claim.expires_at - RENEW_S, lambda: self._renew(request.id, claim))

    async def _renew(self, request_id: str, claim: Claim) -> None:
        with suppress(FailedPrecondition, NotFound):
            request = await self._inbox.renew(request_id, claim.id, MAX_CLAIM_S)
            if self._is_held(request_id, claim):  # else another's alarm has this name, or nobody's
                self._renew_before(request)

    # Taking back

    def _follow(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        request = after if after is not None else before
        if request is None or (not self._workers and request.id not in self._holders):
            return
        holder = self._holders.get(request.id)
        held = holder.held.get(request.id) if holder is not None else None
        if after is None or after.state is not RequestState.OPEN:
            self._no_candidate(request.id)
            for worker in self._workers:
                worker.skipped.discard(request.id)
            if holder is not None:
                self._over(holder, request)
        elif after.claim is None:
            if holder is not None and held is None:
                return  # about to be claimed for that worker
            if holder is not None:
                if _given_back(before, self._clock.now()):
                    holder.skipped.add(request.id)
                self._over(holder, request)
            self._offer(after)
        else:
            self._no_candidate(request.id)
            if holder is not None and held is not None and held.id != after.claim.id:
                self._over(holder, request)

    def _over(self, worker: Worker, request: PendingRequest) -> None:
        told = worker.held.get(request.id) is not None
        self._forget(request.id)
        if worker in self._workers:
            if told:
                worker.tell(Over(request.id, request.state))
            self._hand_out(worker)

    def _leave(self, worker: Worker) -> None:
        del self._workers[worker]
        for request_id, claim in list(worker.held.items()):
            if claim is not None:  # one that is being made is given back once it has been
                self._forget(request_id)
                self._release(request_id, claim)

    def _release(self, request_id: str, claim: Claim) -> None:
        async def release() -> None:
            with suppress(FailedPrecondition, NotFound):
                await self._inbox.release(request_id, claim.id)

        self._alarms.after(Due.WORK, request_id, 0, release)

    def _free(self, request_id: str) -> PendingRequest | None:
        request = self._table.record(request_id)
        return request if request is not None and _is_free(request) else None

    def _is_held(self, request_id: str, claim: Claim) -> bool:
        holder = self._holders.get(request_id)
        held = holder.held.get(request_id) if holder is not None else None
        return held is not None and held.id == claim.id

    def _no_candidate(self, request_id: str) -> None:
        for worker in self._workers:
            worker.candidates.pop(request_id, None)

    def _forget(self, request_id: str) -> None:
        worker = self._holders.pop(request_id, None)
        if worker is not None:
            worker.held.pop(request_id, None)
        self._alarms.clear(Due.WORK, request_id)


def _is_free(request: PendingRequest) -> bool:
    return request.state is RequestState.OPEN and request.claim is None


def _given_back(before: PendingRequest | None, now: float) -> bool:
    """Whether somebody let go of a claim; one that lapsed says nothing about whether its worker can answer."""
    return before is not None and before.claim is not None and now < before.claim.expires_at
