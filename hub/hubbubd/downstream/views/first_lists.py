"""Waits for the first lists of servers that have just started, so that a host does not get a part of them."""

from typing import Final

import anyio

from hubbubd.core.access import Principal
from hubbubd.core.servers.catalog import CatalogKind, Freshness
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream.views.view import EndpointView
from hubbubd.runtime.hub import Hub

MAX_WAIT_S: Final = 2.0
"""Seconds that hosts wait for a server's list: few ask again before they get notice of a change, and some never do."""
RECHECK_S: Final = 0.1
"""Seconds after which hosts look again: no change of a list tells of a failed attempt, nor of a removed server."""


class FirstLists:
    """The lists that an endpoint's hosts wait for. One list holds up its hosts for MAX_WAIT_S at most, all told."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self._hub = hub
        self._view = view
        self._since: dict[tuple[str, CatalogKind], float] = {}

    async def wait(self, kind: CatalogKind, principal: Principal) -> None:
        """Wait until no server of the view is about to list this kind for the first time, MAX_WAIT_S at most.

        A server whose list is known, even if that is out of date, is not waited for, nor one that cannot be reached.
        """
        if not self._remaining_s(kind, principal):
            return
        changed = anyio.Event()

        def on_change(_server: str, _kind: CatalogKind, _announced: bool) -> None:
            changed.set()

        stop = self._hub.catalog.listen(on_change)
        try:
            while (remaining_s := self._remaining_s(kind, principal)) > 0:
                changed = anyio.Event()
                with anyio.move_on_after(min(remaining_s, RECHECK_S)):
                    await changed.wait()
        finally:
            stop()

    def _remaining_s(self, kind: CatalogKind, principal: Principal) -> float:
        """Return for how many seconds there is still something to wait for; 0 if there is nothing."""
        now, remaining_s = self._hub.clock.steady(), 0.0
        for server in self._view.servers(principal):
            if self._is_first_list_coming(server, kind):
                remaining_s = max(remaining_s, self._since.setdefault((server, kind), now) + MAX_WAIT_S - now)
            else:
                self._since.pop((server, kind), None)
        return remaining_s

    def _is_first_list_coming(self, server: str, kind: CatalogKind) -> bool:
        """Return whether a server connects, or is connected, and has not listed this kind yet."""
        list_record = self._hub.catalog.record(server, kind)
        if list_record is not None and list_record.freshness is not Freshness.UNKNOWN:
            return False
        record = self._hub.servers.find(server)
        if record is None:
            return False
        if record.connection.state is ConnectionState.CONNECTED:
            return list_record is not None  # without a record it does not have this kind
        is_first_attempt = record.capabilities is None and record.connection.attempt == 0
        return record.connection.state is ConnectionState.CONNECTING and is_first_attempt
