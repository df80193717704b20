"""Notifications of a session that belong to no request: changed lists and resources, log messages."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from hubbubd import payload
from hubbubd.core.hosts.host_sessions import HostSession
from hubbubd.core.servers.catalog import SOURCES, CatalogKind
from hubbubd.core.servers.log_levels import DEFAULT_LEVEL, is_visible_at
from hubbubd.downstream.notifications.changes import GetPrincipal, ListChanges, WatchedResources, do_nothing
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import HubError
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import Step
from hubbubd.runtime.servers import ServerEvent, ServerEventKind

LEVEL_S: Final = 2.0
"""Seconds that a request waits at most until a server was sent the level of log messages."""


class SendToSession(Protocol):
    """Sends a message to the host of a session; with `unless_queued` only if no equal one waits to be read."""

    def __call__(self, message: bytes, *, unless_queued: bool) -> None: ...


StoreChange = Callable[[Step[HostSession]], Awaitable[None]]
"""Applies a step to a session's record, and returns once that is durable."""


async def _store_nothing(_: Step[HostSession]) -> None:
    """Stand in for `SessionNotifications.store_change` where a session ends with its process."""


class SessionNotifications:
    """What belongs to no request of a session: list changes, watched resources, log messages."""

    def __init__(
        self, hub: Hub, view: EndpointView, get_principal: GetPrincipal, send: SendToSession, *, apps: bool = False
    ) -> None:
        """`apps`: the host shows pages of apps, and so sees entries that are for pages alone, too."""
        self.level: str | None = None
        """The least level of log messages that the host wants; None if it has not set one."""
        self.resources = WatchedResources(hub, view, get_principal, self._notify_updated)
        self.store_change: StoreChange = _store_nothing
        """Stores a change of the level or of the watched resources in the session's record, for the next process."""
        self._hub = hub
        self._view = view
        self._get_principal = get_principal
        self._send = send
        self._changes = ListChanges(
            hub,
            view,
            get_principal,
            _find_change_methods(view.introduction(get_principal()).capabilities),
            self._notify_list_changed,
            apps=apps,
        )
        self._stop_logs = hub.events.listen(ServerEventKind.LOG, self._on_log)
        self._stop_catalog = hub.catalog.listen(self._on_catalog_change)
        self._servers_with_level: set[str] = set()
        self._closed = False

    async def set_level(self, level: str) -> None:
        """Request log messages of this level and above; return once the servers were sent it, or after LEVEL_S."""
        self.level = level
        self._request_level(level)
        await asyncio.gather(
            *(self._hub.log_levels.wait_until_sent(server, LEVEL_S) for server in self._servers_with_level)
        )

    def resume(self, level: str | None, resources: Collection[str]) -> None:
        """Request what the host had requested in an earlier process; its resources count as changed since then."""
        if level is not None:
            self.level = level
            self._request_level(level)
        for uri in resources:
            self._start_watch(uri)

    def apply_record_change(self, before: HostSession, after: HostSession) -> None:
        """Request what was added to the session's record, perhaps by another member, and stop what was removed."""
        if after.level is not None and after.level not in (before.level, self.level):
            self.level = after.level
            self._request_level(after.level)
        for uri in set(before.resources) - set(after.resources):
            self.resources.unwatch(uri)
        for uri in set(after.resources) - set(before.resources):
            if not self.resources.is_watched(uri):
                self._start_watch(uri)

    def _start_watch(self, uri: str) -> None:
        """Start to watch a resource; once its server has accepted, notify the host that the resource has changed."""

        def on_accepted(done: asyncio.Future[None]) -> None:
            """Notify the host, unless the subscription has failed."""
            if not done.cancelled() and done.exception() is None:
                self._notify_updated(uri)

        with suppress(HubError, Refusal):  # the resource is not there any more
            self.resources.start_watch(uri).add_done_callback(on_accepted)

    def wants_log(self, server: str, level: object) -> bool:
        """Return whether the host wants a log message of this level from a server."""
        least_level = self.level
        if least_level is None and self._hub.log_levels.sent_level(server) is not None:
            least_level = DEFAULT_LEVEL  # another host has raised the server's level: this one gets the usual messages
        return least_level is None or is_visible_at(level, least_level)

    def send(self, message: bytes) -> None:
        """Send the host a message that belongs to none of its requests."""
        self._send(message, unless_queued=False)

    def close(self) -> None:
        """Stop notifying, end the subscriptions, and withdraw the levels that servers were sent."""
        if self._closed:
            return
        self._closed = True
        self._stop_logs()
        self._stop_catalog()
        self._stop_logs = self._stop_catalog = self._send = do_nothing
        self.store_change = _store_nothing
        self._changes.close()
        self.resources.close()
        for server in self._servers_with_level:
            self._hub.log_levels.set_wanted(server, self, None)

    def _request_level(self, level: str) -> None:
        """Request a level of the servers that the host sees now, and withdraw it from all others."""
        visible = set(self._view.servers(self._get_principal()))
        for server in self._servers_with_level - visible:
            self._hub.log_levels.set_wanted(server, self, None)
        for server in visible:
            self._hub.log_levels.set_wanted(server, self, level)
        self._servers_with_level = visible

    def _on_catalog_change(self, server: str, kind: CatalogKind, announced: bool) -> None:
        """Request the level of new servers, too: each changes the lists of all kinds, so one kind is enough."""
        if kind is CatalogKind.TOOL and self.level is not None:
            self._request_level(self.level)

    def _notify_list_changed(self, method: str) -> None:
        """Notify the host that a list has changed, unless such a notification waits to be read."""
        self._send(messages.make_notification(method), unless_queued=True)

    def _notify_updated(self, uri: str) -> None:
        """Notify the host that a resource has changed, unless such a notification waits to be read."""
        self._send(messages.make_notification("notifications/resources/updated", {"uri": uri}), unless_queued=True)

    def _on_log(self, event: ServerEvent) -> None:
        """Pass on a log message that belongs to no call."""
        if event.call_id is not None or event.server not in self._view.servers(self._get_principal()):
            return
        params = cast("dict[str, Any]", payload.loads(event.params))
        if self.wants_log(event.server, params.get("level")):
            self._send(messages.make_notification(event.method, params), unless_queued=False)


def _find_change_methods(capabilities: dict[str, Any]) -> set[str]:
    """Return the notifications of changed lists that an endpoint with these capabilities sends."""
    return {
        source.change_notification for source in SOURCES.values() if announces_changes(capabilities, source.capability)
    }


def announces_changes(capabilities: dict[str, Any], capability: str) -> bool:
    """Return whether capabilities declare this one with `listChanged`."""
    declared: object = capabilities.get(capability)
    return isinstance(declared, dict) and cast("dict[str, Any]", declared).get("listChanged") is True
