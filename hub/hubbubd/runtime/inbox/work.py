"""Dispatches open requests to workers (agents): each one to exactly one worker, by capacity (backpressure).

    opened ──> claimed, in the same commit, for a worker with capacity ──> over
    open, unclaimed ──> candidate of every worker that may have it ──> claimed for one with capacity ──> over

A worker's claim, a lease, is renewed as long as its stream lives. When the stream ends the request is free again, and
goes to another worker; after a restart the hub drops all workers' claims.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress

import anyio

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import MAX_CLAIM_S, Claim, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, HubError, NotFound
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.background import Background
from hubbubd.runtime.inbox.inbox import Inbox
from hubbubd.runtime.inbox.workers import Assigned, AssignmentOver, Step, Worker, Workers
from hubbubd.runtime.records import BOOKMARK_S, Table, WatcherLimit
from hubbubd.timing.clock import Clock

MAX_CAPACITY = 100
"""The most requests one worker may hold."""

RENEW_S = 60.0
"""Seconds before a worker's lease expires at which it is renewed; at most a third of it."""

FLEET_CLAIM_S = 30.0
"""Seconds of a worker's lease in a fleet: if a member dies, no other member releases the lease."""

RETRY_S = 1.0
"""Seconds before a request is offered again after the store refused the claim."""


class _Unclaimed:
    """The ids of the open requests without a claim: all, and by call, since callers look for those of their own."""

    def __init__(self) -> None:
        self._all = set[str]()
        self._by_call: dict[str | None, set[str]] = {}

    def update(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Update the ids after a change of a request."""
        if before is not None:
            self._all.discard(before.id)
            of_call = self._by_call.get(before.call_id)
            if of_call is not None:
                of_call.discard(before.id)
                if not of_call:
                    del self._by_call[before.call_id]
        if after is not None and _is_free(after):
            self._all.add(after.id)
            self._by_call.setdefault(after.call_id, set()).add(after.id)

    def find_candidates(self, criteria: RequestFilter) -> AbstractSet[str]:
        """Return the ids of the unclaimed requests that may match a filter."""
        return self._by_call.get(criteria.call_id, frozenset()) if criteria.call_id else self._all


class Work:
    """All workers, and the requests that each holds: claims them, renews the claims, and releases them."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        table: Table[PendingRequest],
        clock: Clock,
        alarms: Alarms,
        background: Background,
        watcher_limit: WatcherLimit,
        in_fleet: bool = False,
    ) -> None:
        self._claim_s = FLEET_CLAIM_S if in_fleet else MAX_CLAIM_S
        self._inbox = inbox
        self._table = table
        self._clock = clock
        self._alarms = alarms
        self._background = background
        self._watcher_limit = watcher_limit
        self._workers = Workers()
        self._holders: dict[str, Worker] = {}
        self._claim_ids: dict[str, str] = {}
        """By request, the id of the claim of its worker, which may still be in the making."""
        self._unclaimed = _Unclaimed()  # an index: these are few of all requests in the table
        for request in table:
            self._unclaimed.update(None, request)
        self._closed = False
        inbox.claim_for_workers = self._claim_new
        table.follow(self._update_assignments)

    def close(self) -> None:
        """End all streams. A caller that answers questions of its own call still gets them until the call ends."""
        self._closed = True
        for worker in self._workers:
            worker.condition.close()

    @contextmanager
    def join(
        self,
        principal: str,
        criteria: RequestFilter,
        capacity: int,
        is_valid: Callable[[], bool] = lambda: True,
        *,
        on_step: Callable[[Assigned | AssignmentOver], None] | None = None,
    ) -> Generator[Worker]:
        """Yield a worker for the block; it gets nothing once its credential is no longer valid.

        `on_step` gets its steps at once, in place of `steps`; it must not raise. Raises ResourceExhausted
        (TOO_MANY_WATCHERS).
        """
        self._watcher_limit.enter()
        worker = Worker(principal, criteria, capacity, is_valid, on_step=on_step)
        if self._closed:
            worker.condition.close()
        self._workers.add(worker)
        unheld_ids = self._unclaimed.find_candidates(criteria) - self._holders.keys()
        free_requests = [r for r in map(self._find_free, unheld_ids) if r and worker.may_have(r)]
        for request in sorted(free_requests, key=lambda request: request.created_at):
            self._workers.offer(worker, request.id)
        self._assign_candidates(worker)
        try:
            yield worker
        finally:
            self._watcher_limit.leave()
            self._remove_worker(worker)
            worker.on_step = None  # it may refer to the worker: only garbage collection would free such a cycle

    async def steps(self, worker: Worker) -> AsyncGenerator[Step]:
        """Yield the worker's steps, and None as a keep-alive, the first at once. Raises Unavailable (SHUTTING_DOWN)."""
        yield None
        while True:
            while worker.unread:
                step = worker.unread[0]
                yield step  # until it is sent it counts against the capacity
                worker.unread.popleft()
                self._assign_candidates(worker)
            worker.condition.require_open()
            if not await worker.condition.wait(worker.condition.version, BOOKMARK_S):
                yield None

    def skip(self, worker: Worker, request_id: str) -> None:
        """Release a request for other workers; do nothing if this worker does not hold the request."""
        if (claim := worker.held.get(request_id)) is not None:
            self._workers.skip(worker, request_id)
            self._release(request_id, claim)

    # Assigning

    @contextmanager
    def _claim_new(self, requests: Sequence[PendingRequest]) -> Generator[Sequence[PendingRequest]]:
        """Yield new requests, claimed for workers with capacity; the block commits them.

        Assignments of requests that the block could not commit are forgotten, and their workers get others.
        """
        try:
            yield [self._claim_for_worker(request) for request in requests]
        finally:
            for request in requests:
                worker = self._holders.get(request.id)
                if worker is not None and self._table.record(request.id) is None:  # the commit has failed
                    self._forget_assignment(request.id)
                    self._assign_candidates(worker)

    def _claim_for_worker(self, request: PendingRequest) -> PendingRequest:
        """Return a new request, claimed for a worker if one with capacity may have it."""
        worker = self._choose_idlest(self._workers_for(request))
        if worker is None:
            return request
        claim_id, now = _new_claim_id(), self._clock.now()
        try:
            claimed = core.claim(request, claim_id, worker.principal, self._claim_s, now, worker=True)
        except FailedPrecondition:  # its deadline has passed already
            return request
        self._note_assignment(worker, request.id, claim_id)
        return claimed

    def _offer(self, request: PendingRequest) -> None:
        """Make a free request a candidate of its workers, and assign it if one has capacity."""
        workers = self._workers_for(request)
        for worker in workers:
            self._workers.offer(worker, request.id)
        if (worker := self._choose_idlest(workers)) is not None:
            self._begin_assignment(worker, request.id)

    def _workers_for(self, request: PendingRequest) -> list[Worker]:
        """Return the workers that may have a request and still get any."""
        return [worker for worker in self._workers.find_workers(request) if self._is_served(worker)]

    def _is_served(self, worker: Worker) -> bool:
        """Return whether a worker still gets requests: at shutdown streams do not, callers (with `on_step`) do."""
        return worker.on_step is not None or not self._closed

    def _choose_idlest(self, workers: Sequence[Worker]) -> Worker | None:
        """Return the worker with capacity that holds the fewest requests; of equals the one that has waited longest."""
        with_capacity = [worker for worker in workers if worker.has_capacity]
        return min(with_capacity, key=lambda worker: (len(worker.held), worker.order), default=None)

    def _assign_candidates(self, worker: Worker) -> None:
        """Assign candidates to a worker while it has capacity."""
        while self._is_served(worker) and worker in self._workers and worker.has_capacity and worker.candidates:
            self._begin_assignment(worker, next(iter(worker.candidates)))

    def _begin_assignment(self, worker: Worker, request_id: str) -> None:
        """Note a request as assigned to a worker, and commit the claim in the background."""
        claim_id = _new_claim_id()
        self._note_assignment(worker, request_id, claim_id)
        self._background.start_soon(self._assign, worker, request_id, claim_id)

    def _note_assignment(self, worker: Worker, request_id: str, claim_id: str) -> None:
        """Note that a request's claim is being committed for a worker; no other worker is offered it meanwhile."""
        self._workers.remove_candidates(request_id)
        worker.held[request_id] = None
        self._holders[request_id], self._claim_ids[request_id] = worker, claim_id
        self._workers.put_last(worker)

    async def _assign(self, worker: Worker, request_id: str, claim_id: str) -> None:
        """Claim a request for a worker; if that fails, offer the request to all workers again."""
        try:
            await self._inbox.claim(request_id, worker.principal, self._claim_s, claim_id=claim_id, worker=True)
        except HubError:
            await self._retry_assignment(worker, request_id)

    def _announce(self, worker: Worker, request: PendingRequest, claim: Claim) -> None:
        """Send a worker a request whose claim is durable now; release the claim if the worker's stream has ended."""
        if worker not in self._workers:
            self._forget_assignment(request.id)
            self._release(request.id, claim)
            return
        worker.held[request.id] = claim
        self._schedule_renewal(request)
        worker.send(Assigned(request))

    async def _retry_assignment(self, worker: Worker, request_id: str) -> None:
        """Offer a request again whose claim could not be committed, after a pause if the request is still free."""
        # A request that is still free is about to expire, or the store has failed. During the pause it stays assigned,
        # so that the worker does not try a failing store with each of its candidates.
        if self._find_free(request_id) is not None:
            await anyio.sleep(RETRY_S)
        if self._holders.get(request_id) is worker:
            self._forget_assignment(request_id)
            if (request := self._find_free(request_id)) is not None:
                self._offer(request)
            self._assign_candidates(worker)

    def _schedule_renewal(self, request: PendingRequest) -> None:
        """Set the alarm at which a worker's claim is renewed, unless the claim lasts until the request's deadline."""
        claim = request.claim
        if claim is not None and (request.deadline is None or claim.expires_at < request.deadline):
            at = claim.expires_at - min(RENEW_S, self._claim_s / 3)
            self._alarms.set(Due.WORK, request.id, at, lambda: self._renew(request.id, claim))

    async def _renew(self, request_id: str, claim: Claim) -> None:
        """Renew a worker's claim, and set the alarm for the next time."""
        with suppress(FailedPrecondition, NotFound):  # the claim or the request is over: nothing is left to renew
            request = await self._inbox.renew(request_id, claim.id, self._claim_s)
            if self._is_held(request_id, claim):  # otherwise the alarm's name may be in use for another claim
                self._schedule_renewal(request)

    # Revoking

    def _update_assignments(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Offer, announce or revoke a request after a change of its record."""
        request = after if after is not None else before
        if request is None:
            return
        self._unclaimed.update(before, after)
        holder = self._holders.get(request.id)
        held = holder.held.get(request.id) if holder is not None else None
        if after is None or after.state is not RequestState.OPEN:
            self._workers.forget_request(request.id)
            if holder is not None:
                self._end_assignment(holder, request)
        elif after.claim is None:
            if holder is not None and held is None:
                return  # the claim for the worker is being committed
            if holder is not None:
                if _was_given_back(before, self._clock.now()):
                    self._workers.skip(holder, request.id)
                self._end_assignment(holder, request)
            self._offer(after)
        else:
            self._workers.remove_candidates(request.id)
            if holder is not None and held is not None and held.id != after.claim.id:
                self._end_assignment(holder, request)
            elif holder is not None and held is None and after.claim.id == self._claim_ids[request.id]:
                self._announce(holder, after, after.claim)  # else a person was faster, or a worker of another member

    def _end_assignment(self, worker: Worker, request: PendingRequest) -> None:
        """End the assignment of a request: notify the worker if it has got the request, and assign it others."""
        announced = worker.held.get(request.id) is not None
        self._forget_assignment(request.id)
        if worker in self._workers:
            if announced:
                worker.send(AssignmentOver(request.id, request.state))
            self._assign_candidates(worker)

    def _remove_worker(self, worker: Worker) -> None:
        """Remove a worker whose stream has ended, and release its claims."""
        self._workers.remove(worker)
        for request_id, claim in list(worker.held.items()):
            if claim is not None:  # a claim being committed is released once it is
                self._forget_assignment(request_id)
                self._release(request_id, claim)

    def _release(self, request_id: str, claim: Claim) -> None:
        """Release a claim in the background, if it is still valid; a failure of the store is retried."""

        async def release_claim() -> None:
            with suppress(FailedPrecondition, NotFound):  # nothing is left to release
                await self._inbox.release(request_id, claim.id)

        self._alarms.set_after(Due.WORK, request_id, 0, release_claim)

    def _find_free(self, request_id: str) -> PendingRequest | None:
        """Return a request if it is open and unclaimed, else None."""
        request = self._table.record(request_id)
        return request if request is not None and _is_free(request) else None

    def _is_held(self, request_id: str, claim: Claim) -> bool:
        """Return whether a worker holds a request under this claim."""
        holder = self._holders.get(request_id)
        held = holder.held.get(request_id) if holder is not None else None
        return held is not None and held.id == claim.id

    def _forget_assignment(self, request_id: str) -> None:
        """Forget which worker holds a request, and clear the alarm that renews the claim."""
        worker = self._holders.pop(request_id, None)
        if worker is not None:
            worker.held.pop(request_id, None)
            del self._claim_ids[request_id]
        self._alarms.clear(Due.WORK, request_id)


def _new_claim_id() -> str:
    return f"claim_{secrets.token_hex(12)}"


def _is_free(request: PendingRequest) -> bool:
    """Return whether a request is open and unclaimed."""
    return request.state is RequestState.OPEN and request.claim is None


def _was_given_back(before: PendingRequest | None, now: float) -> bool:
    """Return whether a claim was released, not expired: only a release means that the worker skipped the request."""
    return before is not None and before.claim is not None and now < before.claim.expires_at
