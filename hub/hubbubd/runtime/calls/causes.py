"""Ends the pending requests that an ended call caused, or marks those it may have caused (`request_states.call_over`).

Driven by the records, whatever ended the call: each call recorded as ended updates its requests, and each request that
comes too late finds its call ended. The exchange asks for the `changes` beforehand, to commit them together with the
end; anything else follows here.
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
    """An index of the requests that name each call."""

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
        self._named: dict[str, set[str]] = {}
        inbox.as_its_calls_left_it = self._settled
        requests.follow(self._follow_request)
        requests.act(self._settle_new)
        calls.act(self._follow_call)

    async def take(self, taking: Takeover) -> None:
        """Index the stored requests of these servers; those whose calls have ended are updated on return."""
        own = [request for request in self._requests if taking.owns(request.server)]
        for request in own:
            self._name(request)
        named = {request.id for request in own if not core.over(request) and _names(request)}
        await self._ledger.transact(lambda: (None, self._changes(named)))

    def named(self, call_id: str) -> bool:
        """Return whether a request that is not over names the call.

        One whose answer has just been delivered is over, though the index has it until that is durable.
        """
        requests = map(self._requests.record, self._named.get(call_id, ()))
        return any(request is not None and not core.over(request) for request in requests)

    def changes(self, call_id: str) -> list[Change[Any]]:
        """Return the changes of requests that follow from the recorded end of a call."""
        return self._changes(self._named.get(call_id, ()))

    def _changes(self, request_ids: Iterable[str]) -> list[Change[Any]]:
        return self._inbox.changes(list(request_ids), self._settled)

    def _settled(self, request: PendingRequest) -> PendingRequest:
        """Return the request updated for those of its calls that have ended."""
        for call_id in _names(request):
            call = self._calls.record(call_id)  # every unfinished call has a record
            why = "its call is over" if call is None else core_calls.ending(call)
            if why is not None:
                request = core.call_over(request, call_id, why, self._clock.now())
        return request

    def _name(self, request: PendingRequest) -> None:
        if not core.over(request):
            for call_id in _names(request):
                self._named.setdefault(call_id, set()).add(request.id)

    def _follow_request(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        request = after or before
        assert request is not None
        for call_id in _names(before) if before is not None else ():
            if (there := self._named.get(call_id)) is not None:
                there.discard(request.id)
                if not there:
                    del self._named[call_id]
        if after is not None:
            self._name(after)

    def _settle_new(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        if before is None and after is not None and self._settled(after) is not after:
            self._soon(after.id, {after.id})

    def _follow_call(self, _before: Call | None, after: Call | None) -> None:
        if after is not None and after.state.ended and (request_ids := self._named.get(after.id)):
            self._soon(after.id, set(request_ids))

    def _soon(self, name: str, request_ids: set[str]) -> None:
        async def settle() -> None:
            await self._ledger.transact(lambda: (None, self._changes(request_ids)))

        self._alarms.after(Due.CAUSE, name, 0, settle)


def _names(request: PendingRequest) -> tuple[str, ...]:
    return (request.call_id,) if request.call_id is not None else request.candidate_call_ids
