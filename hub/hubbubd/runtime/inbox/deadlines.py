"""Deadlines of open requests, and the ends of their claims, by alarms.

When the clock is set, both move by as much: a person who had an hour left still has it. Time during which the computer
sleeps counts.
"""

from collections.abc import Awaitable, Callable

from hubbubd import bounds
from hubbubd.core.approvals.votes import deny_after_deadline
from hubbubd.core.inbox import forms
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind, RequestState
from hubbubd.frozen import replaced
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.ownership import Ownership
from hubbubd.runtime.records import Ledger, Table
from hubbubd.timing.clock import Clock

Step = Callable[[PendingRequest], PendingRequest]


class Deadlines:
    """The alarms at which requests expire and claims lapse."""

    def __init__(
        self,
        ledger: Ledger,
        table: Table[PendingRequest],
        clock: Clock,
        alarms: Alarms,
        *,
        ownership: Ownership,
        timeout_message: Callable[[str], str],
        change: Callable[[str, Step], Awaitable[PendingRequest]],
    ) -> None:
        """`timeout_message` returns the text for a server that gets no answer; `change` commits a step of a request."""
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._alarms = alarms
        self._ownership = ownership
        self._timeout_message = timeout_message
        self._change = change
        table.follow_own(self.set_alarm)
        clock.on_jump(self.postpone)

    def set_alarm(self, _before: PendingRequest | None, request: PendingRequest | None) -> None:
        """Set the alarm for a request's deadline or the end of its claim; clear the alarm if it has neither."""
        if request is not None:
            self._alarms.set(Due.REQUEST, request.id, core.due_at(request), lambda: self.expire_due(request.id))

    def clear_alarm(self, request_id: str) -> None:
        """Clear the alarm of a request."""
        self._alarms.clear(Due.REQUEST, request_id)

    def postpone(self, by_s: float) -> None:
        """Move the deadlines of open requests, and the ends of claims on them, by so many seconds; write-behind.

        Only for requests of servers that are this hub's own. Called after the clock was set by that much.
        """

        def postpone_stored(request: PendingRequest | None) -> PendingRequest | None:
            """Return the stored request with its times moved; None if it was deleted meanwhile."""
            return None if request is None else _postpone(request, by_s)

        if by_s:
            for request in list(self._table):
                if core.due_at(request) is not None and self._ownership.owns(request.server):
                    self._ledger.change_later(self._table, request.id, postpone_stored)

    async def expire_due(self, request_id: str) -> None:
        """Let a request expire if its deadline has passed, else let its claim lapse if that is over. Raises HubError.

        An approval that expires is denied; any other request gets the default answer of its kind.
        """
        self._clock.detect_jump()  # if the clock was set, the deadline moves first
        now = self._clock.now()
        request = self._table.record(request_id)
        if request is None:
            return
        if core.is_overdue(request, now):
            if request.kind is RequestKind.APPROVAL:
                answer, message = deny_after_deadline(request)
            else:
                message = self._timeout_message(request.server)
                answer = forms.default_answer(request.kind, message)
            await self._change(
                request_id, lambda r: core.expire(r, answer, message, now) if core.is_overdue(r, now) else r
            )
        else:
            await self._change(request_id, lambda r: core.without_expired_claim(r, now))


def _postpone(request: PendingRequest, by_s: float) -> PendingRequest:
    """Return the request with its deadline and the end of its claim moved; only an open one has these."""
    if request.state is not RequestState.OPEN:
        return request
    deadline = None if request.deadline is None else bounds.clamp_moment(request.deadline + by_s)
    claim = request.claim
    if claim is not None:
        claim = replaced(claim, expires_at=bounds.clamp_moment(claim.expires_at + by_s))
    return replaced(request, deadline=deadline, claim=claim)
