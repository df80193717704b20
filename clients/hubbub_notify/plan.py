"""Decides when people are told of which pending requests. Pure: the caller passes the time, seconds since 1970.

A pending request is due when it has been open for `after_s`, unless somebody holds a claim: then it is being answered.
What is due waits for the end of quiet hours, for the pause after the last notification, and for the limit per hour.
Then all of it goes into one notification.
"""

from collections import deque
from collections.abc import Iterable

from hubbub_client.data.records import PendingRequest
from hubbub_notify.rules import Rules

GATHER_S = 1.0
"""How long the first that is due waits for others, seconds: requests of one moment are told together."""

HOUR_S = 3600.0


def remembered_s(rules: Rules) -> float:
    """Return how long ago a notification can have been that still counts, seconds."""
    return max(HOUR_S, rules.digest_s)


class Plan:
    """Pending requests that people are still to be told of. `sent` are times of earlier notifications, ascending."""

    def __init__(self, rules: Rules, sent: Iterable[float] = ()) -> None:
        self._rules = rules
        self._quiet = rules.silence
        self._sent = deque(sent, maxlen=rules.per_hour)
        self._open: dict[str, PendingRequest] = {}
        self._told: dict[str, PendingRequest | None] = {}

    def has(self, id_: str) -> bool:
        """Return whether a pending request is open and fits, also if people were told of it."""
        return id_ in self._open or id_ in self._told

    def see(self, request: PendingRequest) -> None:
        """Take a pending request as it is now."""
        if request.state != "open" or not self._rules.fits(request):
            self.gone(request.id)
        else:
            (self._told if request.id in self._told else self._open)[request.id] = request

    def gone(self, id_: str) -> None:
        """Forget a pending request that is not open any more."""
        self._open.pop(id_, None)
        self._told.pop(id_, None)

    def told(self, ids: Iterable[str]) -> None:
        """Remember that people were told of these, whenever that was."""
        for id_ in ids:
            self._told[id_] = self._open.pop(id_, None) or self._told.get(id_)

    def hold(self, id_: str) -> bool:
        """Return whether somebody holds a claim; one that was told then waits again, until the claim is given up."""
        request = self._told.get(id_) or self._open.get(id_)
        if request is None or request.claim is None:
            return False
        self._told.pop(id_, None)
        self._open[id_] = request
        return True

    def tell(self, now: float, gather_s: float = GATHER_S) -> tuple[PendingRequest, ...]:
        """Return what people are to be told of now, oldest first, and count it as told; empty if nothing is due.

        The first that is due waits for others for `gather_s` seconds.
        """
        moment = self.moment(gather_s)
        if moment is None or moment > now:
            return ()
        ready = sorted((each for each in self._waiting() if self._due(each) <= now), key=lambda each: each.created_at)
        self.told(each.id for each in ready)
        self._sent.append(now)
        return tuple(ready)

    def moment(self, gather_s: float = GATHER_S) -> float | None:
        """Return when `tell` will have something, if nothing changes; None if nothing waits."""
        first = min((self._due(each) for each in self._waiting()), default=None)
        if first is None:
            return None
        moment = first + gather_s
        if self._sent:
            moment = max(moment, self._sent[-1] + self._rules.digest_s)
        if len(self._sent) == self._rules.per_hour:
            moment = max(moment, self._sent[0] + HOUR_S)
        return self._quiet.over(moment) if self._quiet is not None else moment

    def _waiting(self) -> list[PendingRequest]:
        return [each for each in self._open.values() if each.claim is None]

    def _due(self, request: PendingRequest) -> float:
        return request.created_at.timestamp() + self._rules.after_s
