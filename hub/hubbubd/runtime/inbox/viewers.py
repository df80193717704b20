"""Which principals were shown which open requests, and when: in memory, and stored with a request's next change."""

from collections.abc import Collection

from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest, RequestEventType
from hubbubd.core.inbox.request_views import RequestViews
from hubbubd.runtime.records import Ledger, Table
from hubbubd.timing.clock import Clock

RECORD_ID = "open"
"""Id of the only record of views."""


class Viewers:
    """The principals that were shown each open request, and when each saw it first."""

    def __init__(self, ledger: Ledger, table: Table[RequestViews], clock: Clock) -> None:
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._shown_at: dict[str, dict[str, float]] = {}
        """By request and principal, when the request was shown first; seconds since the epoch."""

    def recover(self, open_ids: Collection[str]) -> None:
        """Load the stored views of the requests that are still open."""
        stored = self._table.record(RECORD_ID) or RequestViews()
        self._shown_at = {id_: dict(shown_at) for id_, shown_at in stored.at.items() if id_ in open_ids}

    def note_view(self, request: PendingRequest, principal: str) -> None:
        """Note when a principal was first shown a request; at most `core.FULL_HISTORY_EVENTS` are noted per request."""
        if not core.was_shown_to(request, principal):
            shown_at = self._shown_at.setdefault(request.id, {})
            if len(shown_at) < core.FULL_HISTORY_EVENTS:
                shown_at.setdefault(principal, self._clock.now())

    def forget(self, request_id: str) -> None:
        """Forget a request that is closed, or deleted."""
        self._shown_at.pop(request_id, None)

    def with_views(self, request: PendingRequest) -> PendingRequest:
        """Return the request with an event SHOWN for each principal whose view of it is noted here.

        No second event is added for a principal who has one in the request's history. Views are stored in the request
        only with its next change, so that its watchers do not see a change for each view.
        """
        for principal, at in self._shown_at.get(request.id, {}).items():
            if not core.was_shown_to(request, principal):
                request = core.with_event(request, RequestEventType.SHOWN, at, principal)
        return request

    def store(self, open_ids: Collection[str]) -> None:
        """Store the views that were noted, at shutdown.

        They have a record of their own, so that watchers see no change of the requests.
        """

        def add_views(stored: RequestViews | None) -> RequestViews | None:
            """Return the stored views of open requests, with those that were noted here."""
            before = stored.at if stored is not None else {}
            views: dict[str, dict[str, float]] = {}
            for request_id in (*before, *self._shown_at):
                if request_id in open_ids:
                    views[request_id] = {**before.get(request_id, {}), **self._shown_at.get(request_id, {})}
            after = RequestViews(at=views)
            return stored if after == (stored or RequestViews()) else after

        self._ledger.change_later(self._table, RECORD_ID, add_views)
