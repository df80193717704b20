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
    """Stand in for the callbacks of a host that is gone: without a circle of references its memory is free at once."""


class ListChanges:
    """Notifies a host that lists of a view have changed: `notify` gets the method, once per QUIET_S at most.

    A transparent view passes on what its server says, even if its list is the same; of others the entries must differ.
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
        """`apps` says whether the host shows pages of apps: it sees what is for pages alone, too."""
        self._view = view
        self._apps = apps
        self._get_principal = get_principal
        self._notify = notify
        self._kinds = {method: [kind for kind in CatalogKind if SOURCES[kind].change == method] for method in methods}
        self._seen = dict[CatalogKind, Sequence[bytes]]()
        self._settling = set[asyncio.Task[None]]()
        self._call_when_settled([kind for kinds in self._kinds.values() for kind in kinds], self._note_entries)
        self._announced: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._notified_at: dict[str, float] = {}
        self._stop = hub.catalog.listen(self._on_change)

    def close(self) -> None:
        """Stop to notify."""
        self._stop()
        self._stop = self._notify = do_nothing
        for timer in self._timers.values():
            timer.cancel()
        for task in self._settling:
            task.cancel()

    def _on_change(self, server: str, kind: CatalogKind, announced: bool) -> None:
        """Plan to compare the lists that the host sees, after a change of one server's list.

        `announced` says that the server itself has sent a notification of the change.
        """
        method, transparent = SOURCES[kind].change, self._view.transparent
        if method not in self._kinds or (transparent and server not in self._view.servers(self._get_principal())):
            return
        if announced and transparent:
            self._announced.add(method)
        self._schedule_comparison(method)

    def _schedule_comparison(self, method: str) -> None:
        """Plan to compare the lists that `method` is about, and to notify the host if they differ.

        The comparison is QUIET_S after the last notification at the earliest. Does nothing if one is planned.
        """
        if method not in self._timers:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._notified_at.get(method, 0.0) + QUIET_S)
            compare = partial(self._call_when_settled, self._kinds[method], partial(self._notify_if_changed, method))
            self._timers[method] = loop.call_at(at, compare)

    def _call_when_settled(self, kinds: Collection[CatalogKind], then: Callable[[], None]) -> None:
        """Call `then` once the lists of these kinds are ready; at once if they are."""
        if all(map(self._view.is_settled, kinds)):
            then()
            return
        task = asyncio.get_running_loop().create_task(self._settle_and_call(kinds, then))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_and_call(self, kinds: Collection[CatalogKind], then: Callable[[], None]) -> None:
        """Wait until the lists of these kinds are ready, then call `then`."""
        for kind in kinds:
            await self._view.settle(kind)
        then()

    def _note_entries(self) -> None:
        """Note what the lists have before the first notification."""
        for kinds in self._kinds.values():
            for kind in kinds:
                self._seen.setdefault(kind, self._view.entries(kind, self._get_principal(), apps=self._apps))

    def _notify_if_changed(self, method: str) -> None:
        """Send a notification of changed lists, if they differ from the last ones, or the server has announced it."""
        del self._timers[method]
        now = {kind: self._view.entries(kind, self._get_principal(), apps=self._apps) for kind in self._kinds[method]}
        differs = any(self._seen.get(kind) != entries for kind, entries in now.items())
        self._seen.update(now)
        if differs or method in self._announced:
            self._announced.discard(method)
            self._notified_at[method] = asyncio.get_running_loop().time()
            self._notify(method)


class WatchedResources:
    """The resources of whose changes one host is notified, by the URI that it knows them by."""

    def __init__(
        self, hub: Hub, view: EndpointView, get_principal: GetPrincipal, notify: Callable[[str], None]
    ) -> None:
        self._hub = hub
        self._view = view
        self._get_principal = get_principal
        self._notify = notify
        self._watched: dict[str, _WatchedResource] = {}

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource; return once its server has accepted that. Raises Refusal, HubError and PeerError."""
        begun = self.begin_watch(uri)
        watched = self._watched[uri]
        watched.waiting += 1
        try:
            await asyncio.shield(begun)  # others may wait for the same
        finally:
            watched.waiting -= 1
            if not begun.done() and not watched.waiting and self._watched.get(uri) is watched:
                self.unwatch(uri)  # this request was cancelled, and no other waits for the resource

    def begin_watch(self, uri: str) -> asyncio.Future[None]:
        """Begin to subscribe to a resource, unless that has begun. Raises Refusal if too many are watched.

        The future is done once the server has accepted the subscription; it gets the error if that fails.
        """
        if uri not in self._watched:
            if not can_watch_more(self._watched, uri):
                most = f"{MAX_WATCHED} resources may be watched, and their URIs have {MAX_WATCHED_BYTES} bytes together"
                raise Refusal(INVALID_PARAMS, f"{most}; give up others first")
            loop = asyncio.get_running_loop()
            begun: asyncio.Future[None] = loop.create_future()
            begun.add_done_callback(lambda done: done.cancelled() or done.exception())  # read: nobody may wait
            self._watched[uri] = watched = _WatchedResource(loop.create_task(self._follow_resource(uri, begun)), begun)
            watched.task.add_done_callback(lambda _: self._drop_ended(uri, watched))
        return self._watched[uri].begun

    def is_watched(self, uri: str) -> bool:
        """Return whether a resource is watched, or will be."""
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
        """Drop a resource whose task has ended, unless it is watched again."""
        if self._watched.get(uri) is watched:
            del self._watched[uri]

    async def _follow_resource(self, uri: str, begun: asyncio.Future[None]) -> None:
        """Subscribe to a resource at its server, and notify of its changes until that ends; complete `begun`."""
        target = ServerTarget("", "")  # until it is found

        def on_change(changed: str) -> None:
            """Notify the host of a change, by the URI that it knows, if its principal may still call the server."""
            if target.server in self._view.servers(self._get_principal()):
                self._notify(respell_for_host(target.server, target.name, uri, changed))

        try:
            await settle_lookup(self._view, CatalogKind.RESOURCE)
            target = self._view.find_target(CatalogKind.RESOURCE, uri, self._get_principal())
            async with self._hub.subscriptions.follow_changes(target.server, target.name, on_change) as failed:
                begun.set_result(None)
                await failed.wait()
        except asyncio.CancelledError:
            if not begun.done():
                begun.set_exception(Refusal(HUB_FAILED, "the subscription was given up meanwhile"))
            raise
        except Exception as exc:  # noqa: BLE001 - raised where `begun` is awaited
            if not begun.done():
                begun.set_exception(exc)


@dataclass(slots=True, eq=False)
class _WatchedResource:
    """A resource that is watched, or will be once `begun` is done. `waiting` is how many requests wait for that."""

    task: asyncio.Task[None]
    begun: asyncio.Future[None]
    waiting: int = 0
