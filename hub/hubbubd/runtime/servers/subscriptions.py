"""Resources that somebody watches: subscribed once for all of them, read again after each change, and subscribed again
whenever their server is connected anew (2025: resources/subscribe; 2026-07-28: subscriptions/listen)."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core.calls import Call
from hubbubd.errors import (
    Category,
    FailedPrecondition,
    Fault,
    HubError,
    NotFound,
    PeerError,
    UpstreamError,
)
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import Calls, CallSpec
from hubbubd.runtime.records import BOOKMARK_S, Pulse, WatcherLimit
from hubbubd.upstream.ports import Era, Link

PRINCIPAL = "hub"
"""Who makes the calls that keep a subscription."""

QUIET_S = 0.25
"""How far apart a resource is read that changes all the time."""

LISTEN_AGAIN_S = 1.0
"""How long after a server has ended a subscription the hub asks for it again."""

_CONNECTION_GONE = (Category.CONNECTION, Category.TRANSPORT, Category.CANCELLED)


@dataclass(frozen=True, slots=True)
class ResourceUpdate:
    """A resource as it was read: the MCP result of resources/read, or why there is none."""

    server: str
    uri: str
    result: bytes | None
    fault: Fault | None
    at: float


class Subscriptions:
    """The watched resources of all servers."""

    def __init__(self, calls: Calls, clock: Clock, background: Background, door: WatcherLimit) -> None:
        self.calls = calls
        self.clock = clock
        self.closed = False
        self._background = background
        self._door = door
        self._links: dict[str, Link | None] = {}
        self._open: dict[tuple[str, str], _Subscription] = {}

    def follow(self, server: str, link: Link | None) -> None:
        """Notes how a server is connected now."""
        if server not in self._links or self._links[server] is not link:
            self._links[server] = link
            for subscription in self._of(server):
                subscription.stir()

    def forget(self, server: str) -> None:
        """Ends the watches of a server that is gone."""
        self._links.pop(server, None)
        for subscription in self._of(server):
            subscription.fail(NotFound("server", server))

    def notice(self, server: str, params: Mapping[str, Any]) -> None:
        """Takes notifications/resources/updated; its uri may name a part of the resource that is watched."""
        uri = str(params.get("uri"))
        for subscription in self._of(server):
            if uri == subscription.uri or uri.startswith(subscription.uri.removesuffix("/") + "/"):
                subscription.read_again()

    async def watch(self, server: str, uri: str) -> AsyncGenerator[ResourceUpdate | None]:
        """The newest contents, and None as a sign of life; the first one says that the watch has begun.

        Raises NotFound, FailedPrecondition (SUBSCRIPTIONS_NOT_OFFERED), UpstreamError, PeerError,
        ResourceExhausted (TOO_MANY_WATCHERS), Unavailable (SHUTTING_DOWN).
        """
        if server not in self._links:
            raise NotFound("server", server)
        self._door.enter()
        subscription = self._enter(server, uri)
        seen: ResourceUpdate | None = None
        try:
            yield None
            while True:
                if subscription.failure is not None:
                    raise subscription.failure
                subscription.pulse.require_open()
                beats = subscription.pulse.beats
                if subscription.latest is not seen:
                    seen = subscription.latest
                    yield seen
                    continue
                if not await subscription.pulse.wait(beats, BOOKMARK_S):
                    yield None
        finally:
            subscription.leave()
            self._door.leave()

    def close(self) -> None:
        """Ends all watches."""
        self.closed = True
        for subscription in self._open.values():
            subscription.pulse.close()

    def link(self, server: str) -> Link | None:
        """How a server is connected now."""
        return self._links.get(server)

    def _of(self, server: str) -> list["_Subscription"]:
        return [each for (name, _), each in self._open.items() if name == server]

    def _enter(self, server: str, uri: str) -> "_Subscription":
        subscription = self._open.get((server, uri))
        if subscription is None or subscription.failure is not None:
            subscription = self._open[server, uri] = _Subscription(self, server, uri)
            if self.closed:
                subscription.pulse.close()
            self._background.start_soon(self._run, subscription)
        subscription.watchers += 1
        return subscription

    async def _run(self, subscription: "_Subscription") -> None:
        try:
            await subscription.run()
        finally:
            if self._open.get((subscription.server, subscription.uri)) is subscription:
                del self._open[subscription.server, subscription.uri]


class _Subscription:
    """One resource, kept subscribed by `run` while somebody watches it."""

    def __init__(self, room: Subscriptions, server: str, uri: str) -> None:
        self.server = server
        self.uri = uri
        self.watchers = 0
        self.latest: ResourceUpdate | None = None
        self.failure: HubError | PeerError | None = None
        self.pulse = Pulse()
        self._room = room
        self._stirred = anyio.Event()
        self._stale = False
        self._subscribed_on: Link | None = None
        self._scope = anyio.CancelScope()

    # What others tell it

    def leave(self) -> None:
        """One watcher less; after the last one the server is told."""
        self.watchers -= 1
        if not self.watchers:
            self._scope.cancel()

    def stir(self) -> None:
        """The connection has changed."""
        self._stirred.set()

    def read_again(self) -> None:
        """The resource has changed; many changes while it is being read are one."""
        self._stale = True
        self._stirred.set()

    def fail(self, failure: HubError | PeerError) -> None:
        """Ends all watches of it."""
        self.failure = self.failure or failure
        self._scope.cancel()
        self.tell()

    def tell(self) -> None:
        """Wakes the watchers."""
        self.pulse.beat()

    # What it does

    async def run(self) -> None:
        """Returns when nobody watches it any more, or it has failed."""
        while self.watchers and self.failure is None:
            with anyio.CancelScope() as self._scope:
                try:
                    await self._keep()
                except (HubError, PeerError) as exc:
                    self.fail(exc)
            link, self._subscribed_on = self._subscribed_on, None
            if link is not None and link is self._room.link(self.server) and not self._room.closed:
                await self._call("resources/unsubscribe")

    async def _keep(self) -> None:
        while True:
            link = self._room.link(self.server)
            if link is not None:
                await self._hold(link)
            while self._room.link(self.server) is link:
                await self._rest()

    async def _rest(self) -> None:
        self._stirred = anyio.Event()
        await self._stirred.wait()

    async def _hold(self, link: Link) -> None:
        """Subscribes over a connection, and reads the resource as often as it changes while the connection lasts."""
        if link.hello.era is Era.STATELESS:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, link)
                await self._keep_fresh(link)
                tasks.cancel_scope.cancel()
            return
        resources = link.hello.capabilities.get("resources")
        if not isinstance(resources, Mapping) or not resources.get("subscribe"):  # pyright: ignore[reportUnknownMemberType]
            raise self._not_offered()
        call = await self._call("resources/subscribe")
        if call is None or call.fault is not None:
            if call is None or call.fault is None or call.fault.category in _CONNECTION_GONE:
                return
            raise UpstreamError(call.fault)
        self._subscribed_on = link
        self._stale = True
        await self._keep_fresh(link)

    async def _listen(self, link: Link) -> None:
        """Listens for as long as the connection lasts; what changed while nobody listened is read again."""

        def acknowledged(honoured: dict[str, Any]) -> None:
            if self.uri in (honoured.get("resourceSubscriptions") or ()):
                self.read_again()
            else:
                self.fail(self._not_offered())

        try:
            while True:
                await link.listen({"resourceSubscriptions": [self.uri]}, acknowledged)
                await anyio.sleep(LISTEN_AGAIN_S)
        except UpstreamError as exc:
            if exc.fault.category not in _CONNECTION_GONE:
                self.fail(exc)
        except PeerError as exc:
            self.fail(exc)

    async def _keep_fresh(self, link: Link) -> None:
        while self._room.link(self.server) is link:
            if not self._stale:
                await self._rest()
                continue
            self._stale = False
            call = await self._call("resources/read")
            if call is not None:
                self.latest = ResourceUpdate(self.server, self.uri, call.result, call.fault, self._room.clock.now())
                self.tell()
            await anyio.sleep(QUIET_S)

    async def _call(self, method: str) -> Call | None:
        """The ended call; None when the server is meant to be without a connection."""
        spec = CallSpec(server=self.server, method=method, params=payload.dumps({"uri": self.uri}))
        try:
            return await self._room.calls.call(spec, PRINCIPAL)
        except (FailedPrecondition, NotFound):
            return None

    def _not_offered(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"{self.server} does not tell of changes of {self.uri}", reason="SUBSCRIPTIONS_NOT_OFFERED"
        )
