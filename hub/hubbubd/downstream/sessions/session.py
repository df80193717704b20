"""The session of one host whose revision has a handshake (up to 2025-11-25): its requests, and messages to it."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, Final

from hubbubd.core.access import Principal
from hubbubd.core.hosts.host_sessions import record_id
from hubbubd.core.jsonrpc import INVALID_REQUEST
from hubbubd.downstream.endpoint import McpEndpoint
from hubbubd.downstream.hosts.host import HostOutbox, HostRequest, McpHost, MessageSink, Presence
from hubbubd.downstream.hosts.limits import DEFAULTS, HostLimits
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Id, NotificationMessage, Refusal, RequestMessage, ResponseMessage
from hubbubd.downstream.sessions.replay import ReplayStreams
from hubbubd.errors import ResourceExhausted

WAITING_BYTES: Final = 256 * 1024
"""Bytes of messages of no request that wait while the host has no stream open; with more all are dropped."""

MAX_LATE_LISTENERS: Final = 100
"""The most cancelled requests to a host whose late responses are still listened for: the latest."""

Serve = Callable[[HostRequest], Coroutine[Any, Any, bytes]]
"""Serves a request, and returns the response."""


class EndpointSession:
    """The session of one host: its open requests, and the streams over which it gets messages."""

    def __init__(
        self,
        host: McpHost,
        endpoint: McpEndpoint,
        clock: Callable[[], float],
        limits: HostLimits = DEFAULTS,
        *,
        on_use: Callable[["EndpointSession"], None] = lambda _: None,
        id_: str = "",
    ) -> None:
        """`on_use` is called each time the session is used. `id_` is its id over HTTP; behind a bridge it has none."""
        self.id = id_
        self.key = record_id(id_)
        """The id of its record."""
        self.host = host
        self.endpoint = endpoint
        self.outlet = HostOutbox(WAITING_BYTES)
        """Messages of no request: on the host's own stream, or waiting until the host opens it."""
        self.replays = ReplayStreams(limits, self.key)
        self.notifications = endpoint.make_notifications(host, self._send_notification)
        self.ended = False
        self.listening = 0
        """How many connections read the host's own stream."""
        self._clock = clock
        self._limits = limits
        self._on_use = on_use
        self._running_tasks: dict[Id, asyncio.Task[bytes]] = {}
        self._request_ids = (f"hubbub-{secrets.token_hex(6)}-{number}" for number in count(1))
        """Ids of requests to the host. No other process or member uses them in this session (MCP, basic, requests): a
        response to a request of another process must not be taken for one to a request of this process."""
        self._sent_requests: dict[Id, asyncio.Future[ResponseMessage]] = {}
        self._late_listeners = OrderedDict[Id, Callable[[ResponseMessage], None]]()
        """By id of a cancelled request, the listener that gets a response which comes nevertheless."""
        self.used_at = clock()
        host.is_listening = lambda: self.listening > 0
        endpoint.add_host(host)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served, or the host has its own stream open."""
        return bool(self._running_tasks) or self.listening > 0

    @property
    def running(self) -> int:
        """How many requests are being served."""
        return len(self._running_tasks)

    def begin(
        self,
        request: RequestMessage,
        outlet: MessageSink,
        call_key: str | None = None,
        serve: Serve | None = None,
        *,
        hold_s: float | None = None,
        presence: Presence | None = None,
    ) -> asyncio.Task[bytes]:
        """Start to serve a request; the task returns the response. `serve` replaces the endpoint's own method.

        `outlet` gets messages that belong to the request. `hold_s` is for how many seconds the request itself asks to
        be held, `presence` whether the host waits for the response.

        Raises ResourceExhausted, and Refusal for an id that is in use.
        """
        if request.id in self._running_tasks:
            raise Refusal(INVALID_REQUEST, "a request with this id is open; each has an id of its own")
        limit = self._limits.requests_per_session
        if len(self._running_tasks) >= limit:
            raise ResourceExhausted(
                f"{limit} requests of this session are open", reason="TOO_MANY_REQUESTS", metadata={"limit": str(limit)}
            )
        host_request = HostRequest(
            id=request.id,
            method=request.method,
            params=request.params,
            host=self.host,
            send=outlet.send,
            call_key=call_key,
            notifications=self.notifications,
            ask=partial(self._send_request, outlet),
            own_hold_s=hold_s,
            presence=presence or Presence(),
        )
        task = asyncio.get_running_loop().create_task((serve or self.endpoint.serve)(host_request))
        self._running_tasks[request.id] = task
        task.add_done_callback(lambda _: self._on_done(request.id))
        return task

    def receive(self, message: NotificationMessage | ResponseMessage) -> None:
        """Handle a notification or a response of the host; those that fit nothing are ignored."""
        self.touch()
        if isinstance(message, ResponseMessage):
            response = self._sent_requests.pop(message.id, None)
            if response is not None and not response.done():
                response.set_result(message)
            elif (on_late := self._late_listeners.pop(message.id, None)) is not None:
                on_late(message)
        elif message.method == "notifications/cancelled":
            task = self._running_tasks.get(_as_id(message.params.get("requestId")))
            if task is not None:
                task.cancel()

    async def _send_request(
        self,
        outlet: MessageSink,
        method: str,
        params: dict[str, Any],
        on_late: Callable[[ResponseMessage], None] | None = None,
    ) -> ResponseMessage:
        """Send a request of the hub on a stream, and return the host's response.

        If this is cancelled, the host is notified, with the reason; `on_late` gets a response that comes nevertheless.
        """
        id_ = next(self._request_ids)
        response = self._sent_requests[id_] = asyncio.get_running_loop().create_future()
        outlet.send(messages.make_request(id_, method, params))
        try:
            return await response
        except asyncio.CancelledError as exc:
            reason = str(exc.args[0]) if exc.args else "it is not needed any more"
            outlet.send(messages.make_notification("notifications/cancelled", {"requestId": id_, "reason": reason}))
            if on_late is not None:
                self._late_listeners[id_] = on_late
                if len(self._late_listeners) > MAX_LATE_LISTENERS:
                    self._late_listeners.popitem(last=False)
            raise
        finally:
            self._sent_requests.pop(id_, None)

    def listen(self) -> HostOutbox:
        """Open the host's own stream for a new connection, and return it; the stream of an older connection closes.

        It has the messages that wait for the host.
        """
        previous, self.outlet = self.outlet, HostOutbox()
        for message in previous.take_all():
            self.outlet.send(message)
        previous.close()
        self.listening += 1
        return self.outlet

    def end_listening(self, outlet: HostOutbox) -> None:
        """Note that a connection of the host's own stream has ended, for which `listen` has returned `outlet`."""
        self.listening -= 1
        if self.outlet is outlet:
            self.outlet = HostOutbox(WAITING_BYTES)
        self.touch()

    def set_principal(self, principal: Principal) -> None:
        """Set the host's principal. If it has changed, messages that wait for the host to listen are dropped."""
        if principal != self.host.principal:
            self.host.principal = principal
            if not self.listening:
                self.outlet.take_all()  # the principal may no longer be allowed to see them

    def touch(self) -> None:
        """Note that the session is used now."""
        self.used_at = self._clock()
        self._on_use(self)

    def end(self) -> None:
        """End the session, its streams and its notifications, and cancel its open requests."""
        self.ended = True
        self.endpoint.remove_host(self.host)
        self.host.is_listening = lambda: False
        self.notifications.close()
        self.outlet.close()
        for task in self._running_tasks.values():
            task.cancel()
        self.replays.clear()

    def _send_notification(self, message: bytes, *, unless_queued: bool) -> None:
        """Put a message that belongs to no request into the host's own stream."""
        (self.outlet.send_unless_queued if unless_queued else self.outlet.send)(message)

    def _on_done(self, id_: Id) -> None:
        """Forget a request that has ended, and note the use of the session until now."""
        del self._running_tasks[id_]
        self.touch()


def _as_id(value: Any) -> Id:
    """Return a value if it may be the id of a request, else "", which is the id of no request."""
    return value if isinstance(value, str | int | float) else ""
