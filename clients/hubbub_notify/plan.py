"""Decides when people are notified of which pending requests. Pure: the caller passes the time, seconds since 1970.

A pending request is due when it has been open for `after_s`, unless somebody holds a claim: then it is being answered.
What is due waits for the end of quiet hours, for the pause after the last notification, and for the limit per hour.
Then all of it goes into one notification.
"""

from collections import deque
from collections.abc import Iterable

from hubbub_client.data.records import PendingRequest
from hubbub_notify.rules import Rules

GATHER_S = 1.0
"""How long the first request that is due waits for others, seconds, to notify of them together."""

HOUR_S = 3600.0


def count_history_s(rules: Rules) -> float:
    """Return for how many seconds before now notifications count against the limits."""
    return max(HOUR_S, rules.digest_s)


class Plan:
    """Pending requests that people may be notified of. `notice_times` are those of earlier notifications, ascending."""

    def __init__(self, rules: Rules, notice_times: Iterable[float] = ()) -> None:
        self._rules = rules
        self._quiet_hours = rules.quiet_hours
        self._notice_times = deque(notice_times, maxlen=rules.per_hour)
        # Open requests that people are still to be notified of, by id.
        self._unnotified: dict[str, PendingRequest] = {}
        # Open requests that people were notified of, by id; None for one that was marked before it was added.
        self._notified: dict[str, PendingRequest | None] = {}

    def is_wanted(self, id_: str) -> bool:
        """Return whether a pending request is open and the rules apply to it, even if people were notified of it."""
        return id_ in self._unnotified or id_ in self._notified

    def update(self, request: PendingRequest) -> None:
        """Add or replace a pending request; remove a request that is not open, or that the rules do not apply to."""
        if request.state != "open" or not self._rules.applies_to(request):
            self.remove(request.id)
        elif request.id in self._notified:
            self._notified[request.id] = request
        else:
            self._unnotified[request.id] = request

    def remove(self, id_: str) -> None:
        """Forget a pending request that is not open any more."""
        self._unnotified.pop(id_, None)
        self._notified.pop(id_, None)

    def mark_notified(self, ids: Iterable[str]) -> None:
        """Record that people were notified of these requests. This alone does not count against the limits."""
        for id_ in ids:
            self._notified[id_] = self._unnotified.pop(id_, None) or self._notified.get(id_)

    def requeue_if_claimed(self, id_: str) -> bool:
        """If a request is claimed, and so being answered, queue it again, and return True; else return False.

        People are notified of a request that was queued again, if the claim ends without an answer.
        """
        request = self._notified.get(id_) or self._unnotified.get(id_)
        if request is None or request.claim is None:
            return False
        self._notified.pop(id_, None)
        self._unnotified[id_] = request
        return True

    def pop_due(self, now: float, gather_s: float = GATHER_S) -> tuple[PendingRequest, ...]:
        """Return the requests that people are to be notified of now, oldest first, and mark them as notified.

        Return an empty tuple if nothing is due. The first request that is due waits `gather_s` seconds for others.
        """
        next_at = self.find_next_time(gather_s)
        if next_at is None or next_at > now:
            return ()
        due = [request for request in self._list_unclaimed() if self._find_due_time(request) <= now]
        due.sort(key=lambda request: request.created_at)
        self.mark_notified(request.id for request in due)
        self._notice_times.append(now)
        return tuple(due)

    def find_next_time(self, gather_s: float = GATHER_S) -> float | None:
        """Return when `pop_due` next has requests if nothing changes, in seconds since 1970; None if no request waits.

        That is the first due time, delayed by the pause between notices, the limit per hour, and quiet hours.
        """
        first_due = min((self._find_due_time(request) for request in self._list_unclaimed()), default=None)
        if first_due is None:
            return None
        next_at = first_due + gather_s
        if self._notice_times:
            next_at = max(next_at, self._notice_times[-1] + self._rules.digest_s)
        if len(self._notice_times) == self._rules.per_hour:
            next_at = max(next_at, self._notice_times[0] + HOUR_S)
        return self._quiet_hours.find_first_audible(next_at) if self._quiet_hours is not None else next_at

    def _list_unclaimed(self) -> list[PendingRequest]:
        """Return the requests that people were not notified of yet, and that nobody claims."""
        return [each for each in self._unnotified.values() if each.claim is None]

    def _find_due_time(self, request: PendingRequest) -> float:
        """Return when a pending request is due if nobody claims it, in seconds since 1970."""
        return request.created_at.timestamp() + self._rules.after_s
