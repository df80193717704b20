"""Waits for the first lists of servers that have just started, so that a host does not get a part of them."""

from typing import Final

import anyio

from hubbubd.core.access import Principal
from hubbubd.core.servers.catalog import CatalogKind, Freshness
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream.views.view import EndpointView
from hubbubd.runtime.hub import Hub

MAX_WAIT_S: Final = 2.0
"""Seconds that hosts wait for a server's list: few ask again before a notification of a change, some never do."""
RECHECK_S: Final = 0.1
"""Seconds between checks: a failed attempt to connect, or a removed server, is no change of a list."""


class FirstLists:
    """Waits for lists before hosts of an endpoint get them. One list delays all its hosts for MAX_WAIT_S together."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self._hub = hub
        self._view = view
        self._waiting_since: dict[tuple[str, CatalogKind], float] = {}
        """By server and kind, when hosts began to wait for the list (steady clock)."""

    async def wait(self, kind: CatalogKind, principal: Principal) -> None:
        """Wait until no server of the view is about to list this kind for the first time, MAX_WAIT_S at most.

        It does not wait for a server whose list is known, even if out of date, or that cannot be reached.
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
        """Return for how many seconds to wait for first lists of this kind; 0 if none is about to come."""
        now, remaining_s = self._hub.clock.steady(), 0.0
        for server in self._view.servers(principal):
            if self._is_first_list_coming(server, kind):
                remaining_s = max(remaining_s, self._waiting_since.setdefault((server, kind), now) + MAX_WAIT_S - now)
            else:
                self._waiting_since.pop((server, kind), None)
        return remaining_s

    def _is_first_list_coming(self, server: str, kind: CatalogKind) -> bool:
        """Return whether a server connects for the first time, or is connected, and has not listed this kind yet."""
        list_record = self._hub.catalog.record(server, kind)
        if list_record is not None and list_record.freshness is not Freshness.UNKNOWN:
            return False
        record = self._hub.servers.find(server)
        if record is None:
            return False
        if record.connection.state is ConnectionState.CONNECTED:
            return list_record is not None  # a connected server without a record does not have this kind
        is_first_attempt = record.capabilities is None and record.connection.attempt == 0
        return record.connection.state is ConnectionState.CONNECTING and is_first_attempt
