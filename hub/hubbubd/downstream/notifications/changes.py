"""Notifications to one host that lists and resources have changed."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hubbubd.core.access import Principal
from hubbubd.core.hosts.host_sessions import MAX_WATCHED, MAX_WATCHED_BYTES, can_watch_more
from hubbubd.core.hosts.host_uris import respell_for_host
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.core.servers.catalog import SOURCES, CatalogKind
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.views.view import EndpointView, ServerTarget, settle_lookup
from hubbubd.runtime.hub import Hub

QUIET_S: Final = 0.25
"""Seconds between two notifications about one list."""

GetPrincipal = Callable[[], Principal]
"""Returns the principal of a host, with what it may do now."""


def do_nothing(*_: object, **__: object) -> None:
    """Replace the callbacks of a closed object: without a cycle of references its memory is freed at once."""


class ListChanges:
    """Notifies a host that lists of a view have changed: `notify` gets the method, once per QUIET_S at most.

    The entries that the host sees must differ; of a transparent view a notification of its server is enough.
    """

    def __init__(
        self,
        hub: Hub,
        view: EndpointView,
        get_principal: GetPrincipal,
        methods: Collection[str],
        notify: Callable[[str], None],
        *,
        apps: bool = False,
    ) -> None:
        """`methods` are the notifications to send. `apps`: the host shows pages of apps, and sees their tools, too."""
        self._view = view
        self._apps = apps
        self._get_principal = get_principal
        self._notify = notify
        # By notification, the kinds whose lists it is about.
        self._kinds = {
            method: [kind for kind in CatalogKind if SOURCES[kind].change_notification == method] for method in methods
        }
        self._last_entries = dict[CatalogKind, Sequence[bytes]]()
        self._settle_tasks = set[asyncio.Task[None]]()
        self._call_when_settled([kind for kinds in self._kinds.values() for kind in kinds], self._store_first_entries)
        self._announced: set[str] = set()  # methods that a server has sent since the last comparison
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._notified_at: dict[str, float] = {}  # by method, when the host was last notified (time of the loop)
        self._stop_listening = hub.catalog.listen(self._on_change)

    def close(self) -> None:
        """Stop to notify."""
        self._stop_listening()
        self._stop_listening = self._notify = do_nothing
        for timer in self._timers.values():
            timer.cancel()
        for task in self._settle_tasks:
            task.cancel()

    def _on_change(self, server: str, kind: CatalogKind, announced: bool) -> None:
        """Schedule a comparison of the lists that the host sees, after a change of one server's list.

        `announced`: the server itself has sent a notification of the change.
        """
        method, transparent = SOURCES[kind].change_notification, self._view.transparent
        if method not in self._kinds or (transparent and server not in self._view.servers(self._get_principal())):
            return
        if announced and transparent:
            self._announced.add(method)
        self._schedule_comparison(method)

    def _schedule_comparison(self, method: str) -> None:
        """Schedule a comparison of the lists that `method` is about; it notifies the host if they differ.

        It runs QUIET_S after the last notification at the earliest. Does nothing if one is scheduled.
        """
        if method not in self._timers:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._notified_at.get(method, 0.0) + QUIET_S)
            compare = partial(self._call_when_settled, self._kinds[method], partial(self._notify_if_changed, method))
            self._timers[method] = loop.call_at(at, compare)

    def _call_when_settled(self, kinds: Collection[CatalogKind], callback: Callable[[], None]) -> None:
        """Call `callback` once the lists of these kinds are ready; at once if they are."""
        if all(map(self._view.is_settled, kinds)):
            callback()
            return
        task = asyncio.get_running_loop().create_task(self._settle_and_call(kinds, callback))
        self._settle_tasks.add(task)
        task.add_done_callback(self._settle_tasks.discard)

    async def _settle_and_call(self, kinds: Collection[CatalogKind], callback: Callable[[], None]) -> None:
        """Wait until the lists of these kinds are ready, then call `callback`."""
        for kind in kinds:
            await self._view.settle(kind)
        callback()

    def _store_first_entries(self) -> None:
        """Store the entries that the lists have before the first notification, to compare later ones with them."""
        for kinds in self._kinds.values():
            for kind in kinds:
                self._last_entries.setdefault(kind, self._view.entries(kind, self._get_principal(), apps=self._apps))

    def _notify_if_changed(self, method: str) -> None:
        """Notify the host if the lists differ from the stored ones, or if the server has announced the change."""
        del self._timers[method]
        now = {kind: self._view.entries(kind, self._get_principal(), apps=self._apps) for kind in self._kinds[method]}
        differs = any(self._last_entries.get(kind) != entries for kind, entries in now.items())
        self._last_entries.update(now)
        if differs or method in self._announced:
            self._announced.discard(method)
            self._notified_at[method] = asyncio.get_running_loop().time()
            self._notify(method)


class WatchedResources:
    """The resources that one host is subscribed to, by the host's URI; `notify` gets the URI of a changed resource."""

    def __init__(
        self, hub: Hub, view: EndpointView, get_principal: GetPrincipal, notify: Callable[[str], None]
    ) -> None:
        self._hub = hub
        self._view = view
        self._get_principal = get_principal
        self._notify = notify
        self._watched: dict[str, _WatchedResource] = {}

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource; return once its server has accepted. Raises Refusal, HubError and PeerError."""
        accepted = self.start_watch(uri)
        watched = self._watched[uri]
        watched.waiting_requests += 1
        try:
            await asyncio.shield(accepted)  # other requests may wait for it, too
        finally:
            watched.waiting_requests -= 1
            if not accepted.done() and not watched.waiting_requests and self._watched.get(uri) is watched:
                self.unwatch(uri)  # this request was cancelled, and no other waits for the resource

    def start_watch(self, uri: str) -> asyncio.Future[None]:
        """Start to subscribe to a resource, unless that has started. Raises Refusal if too many are watched.

        Returns a future that is done once the server has accepted the subscription, and gets the error if that fails.
        """
        if uri not in self._watched:
            if not can_watch_more(self._watched, uri):
                limits = (
                    f"{MAX_WATCHED} resources may be watched, and their URIs have {MAX_WATCHED_BYTES} bytes together"
                )
                raise Refusal(INVALID_PARAMS, f"{limits}; give up others first")
            loop = asyncio.get_running_loop()
            accepted: asyncio.Future[None] = loop.create_future()
            # An error that is never read would be logged.
            accepted.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._watched[uri] = watched = _WatchedResource(
                loop.create_task(self._follow_resource(uri, accepted)), accepted
            )
            watched.task.add_done_callback(lambda _: self._drop_ended(uri, watched))
        return self._watched[uri].accepted

    def is_watched(self, uri: str) -> bool:
        """Return whether a resource is watched, or its subscription has started."""
        return uri in self._watched

    def unwatch(self, uri: str) -> None:
        """Stop to watch a resource."""
        watched = self._watched.pop(uri, None)
        if watched is not None:
            watched.task.cancel()

    def close(self) -> None:
        """Stop to watch all resources."""
        self._notify = do_nothing
        for uri in list(self._watched):
            self.unwatch(uri)

    def _drop_ended(self, uri: str, watched: "_WatchedResource") -> None:
        """Drop a resource whose task has ended, unless a new watch has replaced it."""
        if self._watched.get(uri) is watched:
            del self._watched[uri]

    async def _follow_resource(self, uri: str, accepted: asyncio.Future[None]) -> None:
        """Subscribe to a resource at its server, and notify the host of its changes until the subscription ends.

        Completes `accepted` once the server has accepted, or with the error.
        """
        target = ServerTarget("", "")  # until it is found

        def on_change(changed: str) -> None:
            """Notify the host of a change, by the URI that it knows, if its principal may still call the server."""
            if target.server in self._view.servers(self._get_principal()):
                self._notify(respell_for_host(target.server, target.name, uri, changed))

        try:
            await settle_lookup(self._view, CatalogKind.RESOURCE)
            target = self._view.find_target(CatalogKind.RESOURCE, uri, self._get_principal())
            async with self._hub.subscriptions.follow_changes(target.server, target.name, on_change) as failed:
                accepted.set_result(None)
                await failed.wait()
        except asyncio.CancelledError:
            if not accepted.done():
                accepted.set_exception(Refusal(HUB_FAILED, "the subscription was given up meanwhile"))
            raise
        except Exception as exc:  # noqa: BLE001 - raised where `accepted` is awaited
            if not accepted.done():
                accepted.set_exception(exc)


@dataclass(slots=True, eq=False)
class _WatchedResource:
    """A resource that is watched once `accepted` is done; `waiting_requests` is how many requests wait for that."""

    task: asyncio.Task[None]
    accepted: asyncio.Future[None]
    waiting_requests: int = 0
