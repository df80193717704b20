"""Watched resources: one subscription per resource for all its watchers, read again after each change.

A follower only learns that a resource has changed: for followers alone it is not read. Subscriptions are renewed after
a reconnect. 2025-11-25: `resources/subscribe`; 2026-07-28: `subscriptions/listen`. Changes during a read are coalesced
into one further read.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.errors import Category, FailedPrecondition, Fault, HubError, NotFound, PeerError, UpstreamError
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import Calls, CallSpec
from hubbubd.runtime.records import BOOKMARK_S, VersionedCondition, WatcherLimit
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Era, McpLink

PRINCIPAL = "hub"
"""The principal of the calls that a subscription makes."""

READ_PAUSE_S = 0.25
"""Seconds between reads of a resource that changes all the time (rate limit)."""

LISTEN_PAUSE_S = 1.0
"""Seconds until `subscriptions/listen` is repeated after a server has ended it."""

_CONNECTION_LOST = (Category.CONNECTION, Category.TRANSPORT, Category.CANCELLED)


@dataclass(frozen=True, slots=True)
class ResourceUpdate:
    """A resource as read: the MCP result of `resources/read`, or a fault. `at` is seconds since the epoch."""

    server: str
    uri: str
    result: bytes | None
    fault: Fault | None
    at: float


class Subscriptions:
    """The watched resources of all servers."""

    def __init__(self, calls: Calls, clock: Clock, background: Background, watcher_limit: WatcherLimit) -> None:
        self.calls = calls
        self.clock = clock
        self.closed = False
        self._background = background
        self._watcher_limit = watcher_limit
        self._links: dict[str, McpLink | None] = {}
        self._open: dict[tuple[str, str], _Subscription] = {}

    def set_link(self, server: str, link: McpLink | None) -> None:
        """Set a server's current connection (None: it is down), and subscribe its resources again over a new one."""
        if server not in self._links or self._links[server] is not link:
            self._links[server] = link
            for subscription in self._find_by_server(server):
                subscription.note_link_change()

    def forget(self, server: str) -> None:
        """End the watches of a removed server."""
        self._links.pop(server, None)
        for subscription in self._find_by_server(server):
            subscription.fail(NotFound("server", server))

    def handle_update(self, server: str, params: Mapping[str, Any]) -> None:
        """Handle `notifications/resources/updated`, whose uri may be that of a sub-resource of a watched resource."""
        uri = str(params.get("uri"))
        for subscription in self._find_by_server(server):
            if uri == subscription.uri or uri.startswith(subscription.uri.removesuffix("/") + "/"):
                subscription.note_change(uri)

    async def watch(self, server: str, uri: str) -> AsyncGenerator[ResourceUpdate | None]:
        """Yield a resource's newest contents, and None as a keep-alive; the first None says that the watch has begun.

        Raises NotFound, FailedPrecondition (SUBSCRIPTIONS_NOT_OFFERED), UpstreamError, PeerError, ResourceExhausted
        (TOO_MANY_WATCHERS), Unavailable (SHUTTING_DOWN).
        """
        if server not in self._links:
            raise NotFound("server", server)
        self._watcher_limit.enter()
        subscription = self._add_watcher(server, uri)
        subscription.add_reader()
        yielded: ResourceUpdate | None = None
        try:
            yield None
            while True:
                if subscription.failure is not None:
                    raise subscription.failure
                subscription.condition.require_open()
                version = subscription.condition.version
                if subscription.latest is not yielded:
                    yielded = subscription.latest
                    yield yielded
                    continue
                if not await subscription.condition.wait(version, BOOKMARK_S):
                    yield None
        finally:
            subscription.readers -= 1
            subscription.remove_watcher()
            self._watcher_limit.leave()

    @asynccontextmanager
    async def follow_changes(
        self, server: str, uri: str, on_change: Callable[[str], None]
    ) -> AsyncGenerator[anyio.Event]:
        """Call `on_change` at each change of a resource, with the uri that the server named, during the block.

        Entering waits until the server has accepted the subscription, and yields an event that is set if the
        subscription ends early: the server was removed, or has refused it after a reconnect. A reconnect counts as a
        change. Followers are not
        counted as watchers: the caller has to bound their number. Raises NotFound, FailedPrecondition
        (SUBSCRIPTIONS_NOT_OFFERED), UpstreamError, PeerError.
        """
        remote = self.calls.remote
        if remote is not None and remote.has_server(server):
            async with remote.follow_resource(server, uri, PRINCIPAL, on_change) as failed:
                yield failed
            return
        if server not in self._links:
            raise NotFound("server", server)
        subscription = self._add_watcher(server, uri)
        subscription.followers.append(on_change)
        try:
            await subscription.started.wait()
            if subscription.failure is not None:
                raise subscription.failure
            yield subscription.failed
        finally:
            subscription.followers.remove(on_change)
            subscription.remove_watcher()

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        for subscription in self._open.values():
            subscription.condition.close()

    def link(self, server: str) -> McpLink | None:
        """Return a server's current connection; None if it is not connected."""
        return self._links.get(server)

    def _find_by_server(self, server: str) -> list["_Subscription"]:
        """Return the open subscriptions of a server."""
        return [each for (name, _), each in self._open.items() if name == server]

    def _add_watcher(self, server: str, uri: str) -> "_Subscription":
        """Return the subscription of a resource with one watcher more; start one if there is none, or it has failed."""
        subscription = self._open.get((server, uri))
        if subscription is None or subscription.failure is not None:
            subscription = self._open[server, uri] = _Subscription(self, server, uri)
            if self.closed:
                subscription.condition.close()
            self._background.start_soon(self._run, subscription)
        subscription.watchers += 1
        return subscription

    async def _run(self, subscription: "_Subscription") -> None:
        """Run a subscription to its end, then forget it, unless another subscription has taken its place."""
        try:
            await subscription.run()
        finally:
            if self._open.get((subscription.server, subscription.uri)) is subscription:
                del self._open[subscription.server, subscription.uri]


class _Subscription:
    """The subscription of one resource, which `run` maintains while it has watchers (readers and followers)."""

    def __init__(self, subscriptions: Subscriptions, server: str, uri: str) -> None:
        self.server = server
        self.uri = uri
        self.watchers = 0
        """The number of readers and followers; the subscription ends with the last."""
        self.readers = 0  # for whom the resource is read after each change
        self.followers: list[Callable[[str], None]] = []
        self.started = anyio.Event()
        """Set once the server has accepted the subscription, or the subscription has failed."""
        self.latest: ResourceUpdate | None = None
        self.failure: HubError | PeerError | None = None
        self.failed = anyio.Event()
        self.condition = VersionedCondition()
        self._subscriptions = subscriptions
        self._wake_event = anyio.Event()  # set when connection, resource or the number of readers changes
        self._is_stale = False  # whether the resource has changed since it was read
        self._subscribed_on: McpLink | None = None  # the connection over which to unsubscribe
        self._scope = anyio.CancelScope()

    # Called by others

    def remove_watcher(self) -> None:
        """Remove a watcher; without any left, end the subscription."""
        self.watchers -= 1
        if not self.watchers:
            self._scope.cancel()

    def note_link_change(self) -> None:
        """Wake `run`, since the connection has changed."""
        self._wake_event.set()

    def note_change(self, uri: str) -> None:
        """Notify followers that the resource, or its part at `uri`, has changed; have it read again."""
        for on_change in list(self.followers):
            on_change(uri)
        self._read_again()

    def add_reader(self) -> None:
        """Count one more reader, for whom the resource is read."""
        self.readers += 1
        self._wake_event.set()

    def _note_accepted(self) -> None:
        """Note that the server has accepted the subscription; after a reconnect this is a change of the resource."""
        if self.started.is_set():
            self.note_change(self.uri)
        else:
            self.started.set()
            self._read_again()

    def _read_again(self) -> None:
        """Mark the resource as stale, so that `run` reads it again once it has a reader."""
        self._is_stale = True
        if not self.readers:
            self.latest = None  # the next reader must not get outdated contents
        self._wake_event.set()

    def fail(self, failure: HubError | PeerError) -> None:
        """End all watches of the resource with an error; of several errors the first counts."""
        self.failure = self.failure or failure
        self.failed.set()
        self.started.set()
        self._scope.cancel()
        self.wake_watchers()

    def wake_watchers(self) -> None:
        """Wake the watchers."""
        self.condition.notify_all()

    # The task

    async def run(self) -> None:
        """Keep the resource subscribed until it has no watchers or has failed, then unsubscribe.

        If a new watcher comes meanwhile, subscribe again.
        """
        while self.watchers and self.failure is None:
            with anyio.CancelScope() as self._scope:
                try:
                    await self._stay_subscribed()
                except (HubError, PeerError) as exc:
                    self.fail(exc)
            link, self._subscribed_on = self._subscribed_on, None
            if link is not None and link is self._subscriptions.link(self.server) and not self._subscriptions.closed:
                await self._make_call("resources/unsubscribe")

    async def _stay_subscribed(self) -> None:
        """Subscribe over each new connection, until cancelled. Raises the error of a server that refuses."""
        while True:
            link = self._subscriptions.link(self.server)
            if link is not None:
                await self._serve_link(link)
            while self._subscriptions.link(self.server) is link:
                await self._wait_for_event()

    async def _wait_for_event(self) -> None:
        """Wait until the connection, the resource or the number of readers changes."""
        self._wake_event = anyio.Event()
        await self._wake_event.wait()

    async def _serve_link(self, link: McpLink) -> None:
        """Subscribe over a connection, and read the resource after each change while the connection lasts.

        Raises FailedPrecondition (SUBSCRIPTIONS_NOT_OFFERED), and UpstreamError when the server refuses.
        """
        if link.hello.era is Era.STATELESS:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, link)
                await self._keep_fresh(link)
                tasks.cancel_scope.cancel()
            return
        resources = link.hello.capabilities.get("resources")
        if not isinstance(resources, Mapping) or not resources.get("subscribe"):  # pyright: ignore[reportUnknownMemberType]
            raise self._not_offered_error()
        call = await self._make_call("resources/subscribe")
        if call is None or call.fault is not None:
            if call is None or call.fault is None or call.fault.category in _CONNECTION_LOST:
                return  # the next connection is tried
            raise UpstreamError(call.fault)
        self._subscribed_on = link
        self._note_accepted()
        await self._keep_fresh(link)

    async def _listen(self, link: McpLink) -> None:
        """Keep `subscriptions/listen` open over a connection; each time read the resource, as nothing is replayed."""

        def on_acknowledged(accepted: dict[str, Any]) -> None:
            """Note that the server has accepted the subscription; if it has refused, end all watches."""
            if self.uri in (accepted.get("resourceSubscriptions") or ()):
                self._note_accepted()
            else:
                self.fail(self._not_offered_error())

        try:
            while True:
                await link.listen({"resourceSubscriptions": [self.uri]}, on_acknowledged)
                await anyio.sleep(LISTEN_PAUSE_S)
        except UpstreamError as exc:
            if exc.fault.category not in _CONNECTION_LOST:
                self.fail(exc)
        except PeerError as exc:
            self.fail(exc)

    async def _keep_fresh(self, link: McpLink) -> None:
        """Read the resource after each change, if it has readers, while the connection lasts."""
        while self._subscriptions.link(self.server) is link:
            if not self._is_stale or not self.readers:
                await self._wait_for_event()
                continue
            self._is_stale = False
            call = await self._make_call("resources/read")
            if call is not None:
                self.latest = ResourceUpdate(
                    self.server, self.uri, call.result, call.fault, self._subscriptions.clock.now()
                )
                self.wake_watchers()
            await anyio.sleep(READ_PAUSE_S)

    async def _make_call(self, method: str) -> Call | None:
        """Make a call about the resource, and return the ended call; None if the server is removed or disconnected."""
        spec = CallSpec(server=self.server, method=method, params=payload.dumps({"uri": self.uri}))
        try:
            return await self._subscriptions.calls.call(spec, PRINCIPAL)
        except (FailedPrecondition, NotFound):
            return None

    def _not_offered_error(self) -> FailedPrecondition:
        """Return the error for a resource to which the server offers no subscription."""
        return FailedPrecondition(
            f"{self.server} does not tell of changes of {self.uri}", reason="SUBSCRIPTIONS_NOT_OFFERED"
        )
