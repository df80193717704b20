"""The inbox: the pending requests of all servers, each answered exactly once.

Every change is a transaction with optimistic concurrency (`Ledger.transact`) over the functions of `core/inbox/`. The
`Settler` of an origin adds what else the settlement of a request changes, in the same commit.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain
from typing import Any

import anyio

from hubbubd import payload
from hubbubd.core.approvals import votes
from hubbubd.core.inbox import forms
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import (
    Answer,
    Origin,
    PendingRequest,
    RequestEventType,
    RequestKind,
    RequestState,
)
from hubbubd.core.inbox.request_views import RequestViews
from hubbubd.core.tally import Tally
from hubbubd.errors import HubError, InvalidArgument
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.inbox.commits import commit_requests, is_final, retry_until_final, too_many_open_error
from hubbubd.runtime.inbox.deadlines import Deadlines
from hubbubd.runtime.inbox.reservations import Reservations, quota_principal
from hubbubd.runtime.inbox.viewers import Viewers
from hubbubd.runtime.oversight import Quota
from hubbubd.runtime.ownership import Ownership, Takeover
from hubbubd.runtime.records import Change, Ledger, RecordReader, Table
from hubbubd.telemetry.trace import CURRENT_RPC
from hubbubd.timing.clock import Clock

Settler = Callable[[PendingRequest], Sequence[Change[Any]]]
"""Returns further changes when a request is answered or expires, for the same commit. Must not have side effects."""

AnswerFilter = Callable[[PendingRequest, forms.ClientAnswer, str], forms.ClientAnswer]
"""Returns an answer without the parts that must not be stored or shown. Raises InvalidArgument."""

ClaimNewRequests = Callable[[Sequence[PendingRequest]], AbstractContextManager[Sequence[PendingRequest]]]
"""Yields new requests, claimed for workers that may have them; the block commits them, or fails."""


class Inbox(RecordReader[PendingRequest]):
    """The pending requests of all servers. Only this class changes them."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        table: Table[PendingRequest],
        views: Table[RequestViews],
        clock: Clock,
        alarms: Alarms,
        timeout_message: Callable[[str], str],
        max_open_per_server: int,
        max_open_bytes: Callable[[str], int],
        claims: Quota,
        ownership: Ownership,
    ) -> None:
        super().__init__(table)
        self._ledger = ledger
        self._clock = clock
        self._alarms = alarms
        self.max_open_per_server = max_open_per_server
        self._max_open_bytes = max_open_bytes
        self._claims = claims
        self._claims_being_made: dict[str, set[str]] = {}  # by principal, the ids of the requests
        self._settlers: dict[Origin, Settler] = {}
        self._answer_filters: dict[Origin, AnswerFilter] = {}
        self._waits: dict[str, set[anyio.Event]] = {}  # by request, set once it is no longer open
        self._open_ids: dict[str, set[str]] = {}  # by server; so are the tallies below
        self._open_bytes = Tally()
        self._opening_ids: set[str] = set()  # requests whose first commit is under way
        self._opening_counts = Tally()
        self._opening_bytes = Tally()
        self._viewers = Viewers(ledger, views, clock)
        self.reserved = Reservations(clock)
        self.mark_ended_calls: Callable[[PendingRequest], PendingRequest] = lambda request: request
        """Returns a request as changed by the ends of its calls; `Causes` sets this."""
        self.claim_for_workers: ClaimNewRequests = nullcontext
        table.follow(self._update_counts)
        self.deadlines = Deadlines(
            ledger,
            table,
            clock,
            alarms,
            ownership=ownership,
            timeout_message=timeout_message,
            change=self._change,
        )

    def recover(self) -> None:
        """Count the stored requests that are open, and load which principals were shown them."""
        self._viewers.recover({request.id for request in self._table if request.state is RequestState.OPEN})
        self._table.for_each(lambda request: self._update_counts(None, request))

    async def take_over(self, takeover: Takeover) -> None:
        """Act on the requests of the servers taken over; withdraw durably those whose connection is closed.

        Raises Unavailable.
        """
        self._table.for_each(lambda request: self._start_acting_on(request, takeover))
        reason = f"{takeover.event_text}, and the connection it came on is gone"
        await self.abandon_all({Origin.PLAIN, Origin.AUTHORIZATION}, reason, takeover.requests)

    def _start_acting_on(self, request: PendingRequest, takeover: Takeover) -> None:
        """Set the alarm of a request that is taken over, and drop a worker's claim if the worker's hub has ended."""
        if takeover.owns(request.server):
            self.deadlines.set_alarm(None, request)
            if takeover.is_only_hub:
                self.change_later(request.id, core.without_worker_claim)

    def stop_acting(self, server: str) -> None:
        """Clear the alarms of a server's open requests: this hub does not act on them any more."""
        for request_id in self._open_ids.get(server, ()):
            self.deadlines.clear_alarm(request_id)

    def set_settler(self, origin: Origin, settler: Settler) -> None:
        """Add the settler's changes to each commit that answers or expires a request of this origin."""
        self._settlers[origin] = settler

    def set_answer_filter(self, origin: Origin, answer_filter: AnswerFilter) -> None:
        """Filter the answers to requests of this origin before they are stored, to keep secrets out of them."""
        self._answer_filters[origin] = answer_filter

    # Reading

    def note_view(self, request: PendingRequest, principal: str) -> None:
        """Note in memory that a principal was shown a request; stored with the request's next change."""
        if request.state is RequestState.OPEN:
            self._viewers.note_view(request, principal)

    def store_views(self) -> None:
        """Store which principals were shown which requests, at shutdown."""
        self._viewers.store(set(chain.from_iterable(self._open_ids.values())))

    # For callers

    async def claim(
        self,
        request_id: str,
        by: str,
        ttl_s: float,
        *,
        claim_id: str | None = None,
        take_over: bool = False,
        worker: bool = False,
    ) -> PendingRequest:
        """Claim a request for `ttl_s` seconds, under `claim_id` or a new id. `request_states.claim` has the rules.

        `worker` says that a worker claims it. Raises NotFound, FailedPrecondition, ResourceExhausted (TOO_MANY_CLAIMS).
        """
        new_id = claim_id or f"claim_{secrets.token_hex(12)}"

        def claim_within_quota(request: PendingRequest) -> PendingRequest:
            """Return the request as claimed. Raises ResourceExhausted, and as `request_states.claim`."""
            # The quota does not apply to workers, which have a capacity, nor to renewing one's own claim.
            if not worker and quota_principal(request) != by:
                others_being_made = set(self._claims_being_made.get(by, ())) - {request_id}
                self._claims.require(by, len(others_being_made))
            now = self._clock.now()
            return core.claim(request, new_id, by, ttl_s, now, worker=worker, take_over=take_over)

        if worker:
            return await self._change(request_id, claim_within_quota)
        self._claims_being_made.setdefault(by, set()).add(request_id)
        try:
            return await self._change(request_id, claim_within_quota)
        finally:
            self._stop_counting_claim(by, request_id)

    def _stop_counting_claim(self, by: str, request_id: str) -> None:
        """Remove a claim from those being made: the record has it now, or its commit has failed."""
        being_made = self._claims_being_made.get(by, set())
        being_made.discard(request_id)
        if not being_made:
            self._claims_being_made.pop(by, None)

    async def renew(self, request_id: str, claim_id: str, ttl_s: float) -> PendingRequest:
        """Extend a claim's lease. Raises NotFound and FailedPrecondition."""
        return await self._change(request_id, lambda r: core.renew(r, claim_id, ttl_s, self._clock.now()))

    async def release(self, request_id: str, claim_id: str) -> PendingRequest:
        """End a claim, so that the request is free again. Raises NotFound and FailedPrecondition."""
        return await self._change(request_id, lambda r: core.release(r, claim_id, self._clock.now()))

    async def answer(
        self,
        request_id: str,
        answer_input: forms.ClientAnswer,
        by: str,
        *,
        answer_id: str | None,
        claim_id: str | None,
        via: str | None = None,
    ) -> PendingRequest:
        """Answer a request; on return the answer is durable and the only one. `answer_id` is its idempotency key.

        `via` names the program that the answer came through. Raises NotFound, InvalidArgument with violations (the
        request stays open), and FailedPrecondition.
        """
        request = self.get(request_id)
        if isinstance(answer_input, forms.Approve) and request.kind is not RequestKind.APPROVAL:
            raise InvalidArgument.field("approve", f"does not answer a request of kind {request.kind}")
        if isinstance(answer_input, forms.Deny) and request.kind is RequestKind.APPROVAL:
            votes.require_denier(request, by, answer_input.groups)
        answer = Answer(payload=b"{}")  # not stored: a closed request refuses it, and an approval is stored as a vote
        if request.state is RequestState.OPEN and not isinstance(answer_input, forms.Approve):
            # Only for an open request: a closed one is reported as closed even if the answer is invalid.
            if (answer_filter := self._answer_filters.get(request.origin)) is not None:
                answer_input = answer_filter(request, answer_input, by)
            answer = forms.build_answer(request.kind, payload.loads(request.request), answer_input)

        def apply_answer(r: PendingRequest) -> PendingRequest:
            """Return the request as answered, or with one more vote for its approval."""
            now, ids = self._clock.now(), {"answer_id": answer_id, "claim_id": claim_id}
            if isinstance(answer_input, forms.Approve):
                return votes.approve(r, answer_input, by, now, **ids, trace=trace, via=via)
            return core.answer(r, answer, by, now, **ids, trace=trace, via=via)

        rpc = CURRENT_RPC.get()
        trace = rpc.span.trace if rpc is not None else None
        if rpc is not None and request.trace is not None:
            rpc.links.append(request.trace)
        if answer_id is None:
            return await self._change(request_id, apply_answer)
        final = partial(is_final, self._ledger, self._table, request_id, lambda: self.deadlines.expire_due(request_id))
        return await retry_until_final(lambda: self._change(request_id, apply_answer), final)

    async def note_uncounted_answer(self, request_id: str, by: str, via: str) -> None:
        """Note a host's answer that does not count, as no person gave it or it was late; `via` has host and answer."""
        event_type = RequestEventType.NOT_COUNTED
        await self._change(request_id, lambda r: core.with_event(r, event_type, self._clock.now(), by, via=via))

    # For the hub's other parts

    def require_capacity(self, server: str, count: int, size_bytes: int) -> None:
        """Raise ResourceExhausted if a server may not open `count` more requests of `size_bytes` bytes in all."""
        if len(self._open_ids.get(server, ())) + self._opening_counts[server] + count > self.max_open_per_server:
            raise too_many_open_error(
                server, self.max_open_per_server, f"{server} has {self.max_open_per_server} open requests"
            )
        limit = self._max_open_bytes(server)
        taken = self._open_bytes[server] + self._opening_bytes[server]
        if taken + size_bytes > limit:
            usage = f"{server} asks {size_bytes} bytes, and its open requests take {taken} of {limit} bytes"
            raise too_many_open_error(server, limit, usage)

    async def open(
        self, requests: Sequence[PendingRequest], plan_more: Callable[[], Sequence[Change[Any]]] = tuple
    ) -> None:
        """Add requests, claimed if workers wait for them, in one commit with the changes of `plan_more`.

        Raises ResourceExhausted and Unavailable.
        """
        counts = Counter(request.server for request in requests)
        sizes_bytes: Counter[str] = Counter()
        for request in requests:
            sizes_bytes[request.server] += len(request.request)
        for server, count in counts.items():
            self.require_capacity(server, count, sizes_bytes[server])
        for request in requests:
            self._opening_ids.add(request.id)
            self._opening_counts.add(request.server)
            self._opening_bytes.add(request.server, len(request.request))
        try:
            with self.claim_for_workers(self.reserved.reserve(requests)) as new_requests:
                await commit_requests(self._ledger, self._table, new_requests, plan_more, self._clock.now)
        finally:
            for request in requests:
                self._release_opening_capacity(request)

    def _release_opening_capacity(self, request: PendingRequest) -> None:
        """Stop counting a request as being opened: the table has it now, or its commit has failed."""
        if request.id in self._opening_ids:
            self._opening_ids.discard(request.id)
            self._opening_counts.subtract(request.server)
            self._opening_bytes.subtract(request.server, len(request.request))

    async def wait(self, request_id: str) -> PendingRequest:
        """Wait until the request is no longer open, and return it. Raises NotFound."""
        await self.wait_any([request_id])
        return self.get(request_id)

    async def wait_any(self, request_ids: Sequence[str]) -> None:
        """Wait until one of the requests is no longer open. Raises NotFound."""
        if any(self.get(request_id).state is not RequestState.OPEN for request_id in request_ids):
            return
        settled = anyio.Event()
        for request_id in request_ids:
            self._waits.setdefault(request_id, set()).add(settled)
        try:
            await settled.wait()
        finally:
            for request_id in request_ids:
                events = self._waits.get(request_id, set())
                events.discard(settled)
                if not events:
                    self._waits.pop(request_id, None)

    def abandon(self, request_id: str, reason: str) -> None:
        """Withdraw an open request, or mark its answer as not delivered, since no caller can use an answer any more.

        Returns at once; the change is retried until the store accepts it.
        """

        async def withdraw_request() -> None:
            await self._ledger.transact(lambda: (None, self.plan_withdrawals([request_id], reason)))

        self._alarms.set_after(Due.ABANDON, request_id, 0, withdraw_request)

    def request_ids(self, owns: Callable[[str], bool]) -> frozenset[str]:
        """Return the ids of the requests of the servers for which `owns` is true."""
        return frozenset(request.id for request in self._table if owns(request.server))

    async def abandon_all(
        self, origins: set[Origin], reason: str, request_ids: Collection[str], except_ids: Collection[str] = ()
    ) -> None:
        """Abandon those of the requests that have one of the origins, except `except_ids`; durable on return.

        Raises Unavailable.
        """

        def plan_withdrawal() -> tuple[None, Sequence[Change[Any]]]:
            """Plan the withdrawals, from the requests as they are at the commit."""
            requests = filter(None, map(self._table.record, request_ids))
            ids = [request.id for request in requests if request.origin in origins and request.id not in except_ids]
            return None, self.plan_withdrawals(ids, reason)

        await self._ledger.transact(plan_withdrawal)

    def plan_withdrawals(self, request_ids: Iterable[str], reason: str) -> list[Change[Any]]:
        """Return changes that withdraw those requests that are open, and mark waiting answers as not delivered."""
        now = self._clock.now()
        return self.plan_changes(
            request_ids, lambda r: core.as_not_delivered(core.withdraw(r, reason, now), reason, now)
        )

    def plan_changes(
        self, request_ids: Iterable[str], step: Callable[[PendingRequest], PendingRequest]
    ) -> list[Change[Any]]:
        """Return the changes that `step` makes to those of the requests that exist."""
        changes: list[Change[Any]] = []
        for before in filter(None, map(self._table.record, request_ids)):
            with_views = self._viewers.with_views(before) if before.state is RequestState.OPEN else before
            if (after := step(with_views)) is not with_views:
                changes.append(self._table.change(before.id, after))
        return changes

    def is_too_late(self, request: PendingRequest) -> bool:
        """Return whether the call that caused a request has ended. Call this before delivery, which may end it."""
        return self.mark_ended_calls(request).cause_ended is not None

    def mark_delivered(self, request_id: str, *, late: bool = False) -> None:
        """Mark an answer as delivered, write-behind; `late` if `is_too_late` was true before."""
        self.change_later(
            request_id, lambda r: core.as_delivered(self.mark_ended_calls(r), self._clock.now(), late=late)
        )

    async def mark_all_delivered(
        self, request_ids: Iterable[str], plan_more: Callable[[], Sequence[Change[Any]]] = tuple
    ) -> None:
        """Mark answers as delivered, in one commit with `plan_more`; durable on return, or once the store recovers."""
        ids, now = list(request_ids), self._clock.now()
        for request_id in ids:
            self.change_later(request_id, lambda request: core.as_delivered(request, now))
        with suppress(HubError):
            await self._ledger.transact(
                lambda: (None, [*plan_more(), *(change for id_ in ids for change in self._table.waiting_changes(id_))])
            )

    def mark_not_delivered(self, request_id: str, reason: str) -> None:
        """Mark an answer as not delivered, write-behind."""
        self.change_later(request_id, lambda r: core.as_not_delivered(r, reason, self._clock.now()))

    def change_later(self, request_id: str, step: Callable[[PendingRequest], PendingRequest]) -> None:
        """Change a request, write-behind, if it exists."""
        self._ledger.change_later(self._table, request_id, lambda request: None if request is None else step(request))

    async def _change(self, request_id: str, step: Callable[[PendingRequest], PendingRequest]) -> PendingRequest:
        """Commit a change of a request, with the changes of its settler if it closes. Raises NotFound and as `step`."""

        def plan_change() -> tuple[PendingRequest, Sequence[Change[Any]]]:
            """Plan the step, with the changes of the settler of its origin if the step closes the request."""
            before = self.get(request_id)
            with_views = self._viewers.with_views(before)
            after = step(with_views)
            if after is with_views:
                return before, ()
            is_settled_now = after.state is not RequestState.OPEN and before.state is RequestState.OPEN
            settler = self._settlers.get(after.origin)
            settler_changes = settler(after) if is_settled_now and settler is not None else ()
            return after, [*settler_changes, self._table.change(request_id, after)]

        self._clock.detect_jump()
        return await self._ledger.transact(plan_change)

    def _update_counts(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Update the counts after a change of a request, and wake callers of `wait` if it is no longer open."""
        self._update_claim_count(before, after)
        if after is not None and after.state is RequestState.OPEN:
            self._count_open(after)
            return
        request = before if after is None else after
        assert request is not None
        self._viewers.forget(request.id)
        if after is not None and before is not None and before.state is RequestState.OPEN:
            self._uncount_open(after)
            for settled in self._waits.pop(after.id, ()):
                settled.set()

    def _update_claim_count(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Count the claim of a request against the quota of the principal that has the claim now."""
        claimer_before, claimer = quota_principal(before), quota_principal(after)
        if claimer_before == claimer:
            return
        if claimer_before is not None:
            self._claims.subtract(claimer_before)
        if claimer is not None:
            self._claims.add(claimer)
            if after is not None:
                self._stop_counting_claim(claimer, after.id)

    def _count_open(self, request: PendingRequest) -> None:
        """Count a request, and its bytes, as open against the capacity for its server, no longer as being opened."""
        open_ids = self._open_ids.setdefault(request.server, set())
        if request.id not in open_ids:
            open_ids.add(request.id)
            self._open_bytes.add(request.server, len(request.request))
            self._release_opening_capacity(request)

    def _uncount_open(self, request: PendingRequest) -> None:
        """Stop counting a request that is closed."""
        open_ids = self._open_ids[request.server]
        open_ids.discard(request.id)
        self._open_bytes.subtract(request.server, len(request.request))
        if not open_ids:
            del self._open_ids[request.server]
