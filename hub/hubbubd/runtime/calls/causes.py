"""Ends the pending requests that an ended call caused, or marks those that it may have caused.

`request_states.after_call_ended` decides which. Whatever ended a call, its record as ended updates its requests here,
and a request that is committed later is updated then. The exchange gets `changes_of_ended` in advance, to commit them
together with the end of the call.
"""

from collections.abc import Iterable
from typing import Any

from hubbubd.core.calls import call_states as core_calls
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.ownership import Takeover
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.timing.clock import Clock


class Causes:
    """An index of the requests that name each call as their cause, or as a candidate for it."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        calls: Table[Call],
        requests: Table[PendingRequest],
        inbox: Inbox,
        clock: Clock,
        alarms: Alarms,
    ) -> None:
        self._ledger = ledger
        self._calls = calls
        self._requests = requests
        self._inbox = inbox
        self._clock = clock
        self._alarms = alarms
        self.request_ids_by_call: dict[str, set[str]] = {}
        """The requests that name a call as their cause, or as a candidate for it; some may be over."""
        inbox.mark_ended_calls = self._mark_ended_calls
        requests.follow(self._update_index)
        requests.follow_own(self._update_new_request)
        calls.follow_own(self._update_requests_of_ended, ids=self.request_ids_by_call)

    async def take_over(self, takeover: Takeover) -> None:
        """Index the stored requests of the servers taken over, and record durably which of their calls have ended."""
        taken_over = [request for request in self._requests if takeover.owns(request.server)]
        for request in taken_over:
            self._add_to_index(request)
        request_ids = {request.id for request in taken_over if not core.is_over(request) and _cause_ids(request)}
        await self._ledger.transact(lambda: (None, self._plan_updates(request_ids)))

    def has_open_request(self, call_id: str) -> bool:
        """Return whether a request that is not over names the call.

        A request whose answer has just been delivered is over, but stays in the index until the delivery is durable.
        """
        for request_id in self.request_ids_by_call.get(call_id, ()):
            request = self._requests.record(request_id)
            if request is not None and not core.is_over(request):
                return True
        return False

    def changes_of_ended(self, call_id: str) -> list[Change[Any]]:
        """Return the changes of the requests that name a call, for the commit of the recorded end of the call."""
        return self._plan_updates(self.request_ids_by_call.get(call_id, ()))

    def _plan_updates(self, request_ids: Iterable[str]) -> list[Change[Any]]:
        """Return the changes of these requests whose calls have ended."""
        return self._inbox.plan_changes(list(request_ids), self._mark_ended_calls)

    def _mark_ended_calls(self, request: PendingRequest) -> PendingRequest:
        """Return the request as its ended calls leave it, withdrawn or with a note; unchanged if none has ended.

        `request_states.after_call_ended` decides which.
        """
        for call_id in _cause_ids(request):
            call = self._calls.record(call_id)  # every unfinished call has a record
            ending = "its call is over" if call is None else core_calls.describe_ending(call)
            if ending is not None:
                request = core.after_call_ended(request, call_id, ending, self._clock.now())
        return request

    def _add_to_index(self, request: PendingRequest) -> None:
        """Index a request by the calls that it names, unless it is over."""
        if not core.is_over(request):
            for call_id in _cause_ids(request):
                self.request_ids_by_call.setdefault(call_id, set()).add(request.id)

    def _update_index(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Keep the index in step with the table."""
        if before is not None:
            for call_id in _cause_ids(before):
                request_ids = self.request_ids_by_call.get(call_id, set())
                request_ids.discard(before.id)
                if not request_ids:
                    self.request_ids_by_call.pop(call_id, None)
        if after is not None:
            self._add_to_index(after)

    def _update_new_request(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Update a new request in the background, if one of its calls ended while the request was being committed."""
        if before is None and after is not None and self._mark_ended_calls(after) is not after:
            self._update_soon(after.id, {after.id})

    def _update_requests_of_ended(self, _before: Call | None, after: Call | None) -> None:
        """Once a call is recorded as ended, update the requests that name it, in the background."""
        if after is not None and after.state.ended:
            self._update_soon(after.id, set(self.request_ids_by_call[after.id]))

    def _update_soon(self, alarm_name: str, request_ids: set[str]) -> None:
        """Record in these requests, in the background, that calls which they name have ended.

        `alarm_name` is the id of the call or the new request that causes the update. A failure of the store is retried
        by the alarm of that name.
        """

        async def update_requests() -> None:
            await self._ledger.transact(lambda: (None, self._plan_updates(request_ids)))

        self._alarms.set_after(Due.CAUSE, alarm_name, 0, update_requests)


def _cause_ids(request: PendingRequest) -> tuple[str, ...]:
    """Return the id of the call that caused a request; if that is not known, the ids of the calls that may have."""
    return (request.call_id,) if request.call_id is not None else request.candidate_call_ids
