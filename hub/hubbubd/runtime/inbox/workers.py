"""The workers, and which of them may have which open request.

A change of a request looks at the workers for its call and at those for any call, not at those for other calls.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain, count

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import Claim, PendingRequest, RequestState
from hubbubd.runtime.records import VersionedCondition


@dataclass(frozen=True, slots=True)
class Assigned:
    """The request is assigned to this worker; the answer needs its claim's id."""

    request: PendingRequest


@dataclass(frozen=True, slots=True)
class AssignmentOver:
    """The request is no longer assigned to this worker."""

    id: str
    state: RequestState


Step = Assigned | AssignmentOver | None
"""A step of a worker's stream; None is a keep-alive."""


@dataclass(slots=True, eq=False)
class Worker:
    """One stream of an agent, or one call whose caller answers.

    `is_valid` returns whether the worker's credential is valid. `held` are its requests with their claims, None while
    a claim is being committed. `on_step` gets each step; without it steps wait in `unread` for the stream.
    """

    principal: str
    filter: RequestFilter
    capacity: int
    is_valid: Callable[[], bool] = lambda: True
    _: KW_ONLY
    on_step: Callable[[Assigned | AssignmentOver], None] | None = None
    held: dict[str, Claim | None] = field(default_factory=dict[str, Claim | None])
    candidates: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    skipped: set[str] = field(default_factory=set[str])
    unread: deque[Assigned | AssignmentOver] = field(default_factory=deque[Assigned | AssignmentOver])
    condition: VersionedCondition = field(default_factory=VersionedCondition)
    order: int = 0
    """Number of its last assignment, or of its joining, counted over all workers: the lowest waits longest."""

    @property
    def has_capacity(self) -> bool:
        """Whether the worker can take another request. Unread steps count, so that the buffer of steps is bounded."""
        return len(self.held) + len(self.unread) < self.capacity and self.is_valid()

    def may_have(self, request: PendingRequest) -> bool:
        """Return whether the worker may get a free request: its filter matches, and it has not skipped the request."""
        return request.id not in self.skipped and self.filter.matches(request)

    def send(self, step: Assigned | AssignmentOver) -> None:
        """Pass a step on at once, or put it into the stream's buffer."""
        if self.on_step is not None:
            self.on_step(step)
            return
        self.unread.append(step)
        self.condition.notify_all()


class Workers:
    """All workers; and, by request, the workers that are candidates for it or have skipped it."""

    def __init__(self) -> None:
        self._by_call: dict[str, dict[Worker, None]] = {}
        """By call id, the workers that want only requests of the call; by "", those that want requests of any call."""
        self._by_request: dict[str, set[Worker]] = {}
        """By request, the workers that are candidates for it or have skipped it."""
        self._orders = count(1)

    def __iter__(self) -> Iterator[Worker]:
        return chain.from_iterable(self._by_call.values())

    def __contains__(self, worker: Worker) -> bool:
        return worker in self._by_call.get(worker.filter.call_id, ())

    def add(self, worker: Worker) -> None:
        """Add a worker; it comes after the present ones that hold the same number of requests."""
        self._by_call.setdefault(worker.filter.call_id, {})[worker] = None
        self.put_last(worker)

    def remove(self, worker: Worker) -> None:
        """Remove a worker, and forget for which requests it is a candidate and which it has skipped."""
        workers = self._by_call[worker.filter.call_id]
        del workers[worker]
        if not workers:
            del self._by_call[worker.filter.call_id]
        for request_id in {*worker.candidates, *worker.skipped}:
            self._forget_worker(worker, request_id)

    def find_workers(self, request: PendingRequest) -> list[Worker]:
        """Return the workers that may have a request: of those for any call, and of those for the request's call."""
        workers = list(self._by_call.get("", ()))
        if request.call_id:
            workers += self._by_call.get(request.call_id, ())
        return [worker for worker in workers if worker.may_have(request)]

    def offer(self, worker: Worker, request_id: str) -> None:
        """Make a worker a candidate for a request, which is the last of the requests that it is a candidate for."""
        worker.candidates[request_id] = None
        self._by_request.setdefault(request_id, set()).add(worker)

    def put_last(self, worker: Worker) -> None:
        """Put a worker after all others that hold the same number of requests."""
        worker.order = next(self._orders)

    def skip(self, worker: Worker, request_id: str) -> None:
        """Note that a worker has skipped a request, so that it never gets the request again."""
        worker.skipped.add(request_id)
        self._by_request.setdefault(request_id, set()).add(worker)

    def remove_candidates(self, request_id: str) -> None:
        """Remove a request from the candidates of all workers; it stays noted which workers have skipped it."""
        for worker in list(self._by_request.get(request_id, ())):
            worker.candidates.pop(request_id, None)
            if request_id not in worker.skipped:
                self._forget_worker(worker, request_id)

    def forget_request(self, request_id: str) -> None:
        """Forget a request that is no longer open."""
        for worker in self._by_request.pop(request_id, ()):
            worker.candidates.pop(request_id, None)
            worker.skipped.discard(request_id)

    def _forget_worker(self, worker: Worker, request_id: str) -> None:
        """Forget that a worker is a candidate for a request, or has skipped it, in the index by request."""
        workers = self._by_request[request_id]
        workers.discard(worker)
        if not workers:
            del self._by_request[request_id]
