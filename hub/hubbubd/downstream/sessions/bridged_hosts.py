"""Hosts behind a bridge: the messages of each in order, of either kind of revision, over streams that may break.

    message ──> BridgedHost.receive ──> EndpointSession | McpEndpoint ──> HostOutbox ──> response

The calls of such a host go on when its stream breaks: a bridge that comes back under its session key sends its requests
again, and each request joins its call. If the bridge does not come back, its calls are cancelled. A hub that was killed
may have called a tool and left no record of that: such a tool is not called again.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_REQUEST
from hubbubd.downstream.calls.call_results import refusal_from_error
from hubbubd.downstream.endpoint import McpEndpoint
from hubbubd.downstream.hosts import introductions
from hubbubd.downstream.hosts.host import HostOutbox, HostRequest
from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.hosts.processes import HostProcesses
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Id, NotificationMessage, Refusal, RequestMessage
from hubbubd.downstream.sessions.session import EndpointSession
from hubbubd.errors import HubError
from hubbubd.runtime.calls import Calls

VIA: Final = "stdio"

RETURN_S: Final = 30.0
"""Seconds in which a bridge whose stream broke may come back before its calls are cancelled: it tries every 5 s."""

LONG_LIVED_METHOD: Final = "subscriptions/listen"
"""The method whose requests last until the host leaves, whichever process of the hub serves them."""

LOST_TEXT: Final = "the hub was restarted in this call: the server may have carried it out, so it is not sent again"


class BridgedHosts:
    """All hosts behind bridges. `charge` counts a request of a principal, and raises HubError beyond its quota."""

    def __init__(
        self,
        calls: Calls,
        clock: Callable[[], float],
        charge: Callable[[Principal], None] = lambda _: None,
        limits: Callable[[], HostLimits] = HostLimits,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self.charge = charge
        self.processes = HostProcesses(has_bridges=True)
        self._calls = calls
        self._hosts: dict[tuple[str, str], BridgedHost] = {}  # by principal and session key, the open stream
        self._cancelling: set[asyncio.Task[None]] = set()

    def add_stream(self, principal: Principal, key: str, endpoint: McpEndpoint, outlet: HostOutbox) -> "BridgedHost":
        """Add a new stream of a bridge, and close an older one that is open: the bridge reads it no more."""
        host_key = principal.name, key
        if (previous := self._hosts.get(host_key)) is not None:
            previous.outlet.close()
        host = self._hosts[host_key] = BridgedHost(
            hosts=self, principal=principal, key=key, endpoint=endpoint, outlet=outlet
        )
        return host

    def end_stream(self, host: "BridgedHost", *, has_left: bool) -> None:
        """End a stream. If its host has left, or its credential has ended (`has_left`), its calls are cancelled now.

        Otherwise they are cancelled after RETURN_S, unless the host has come back by then.
        """
        host_key = host.principal.name, host.key
        if self._hosts.get(host_key) is host:
            del self._hosts[host_key]
        host.outlet.close()
        if has_left or not host.running_call_ids:
            self.cancel_calls(host.running_call_ids)
            host.end()
        else:
            # Until then the requests wait for their calls, which go on; a host that comes back joins these calls.
            asyncio.get_running_loop().call_later(RETURN_S, host.end)

    def is_call_known(self, call_ids: Iterable[str]) -> bool:
        """Return whether one of these calls exists."""
        return any(map(self._calls.has_call, call_ids))

    def cancel_calls(self, call_ids: Iterable[str]) -> None:
        """Start to cancel calls, also those already sent, even if other clients wait for them; does not wait."""
        cancelling = asyncio.get_running_loop().create_task(self._cancel_each(list(call_ids)))
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    def cancel_attached_call(self, call_id: str) -> None:
        """Start to cancel a call, if it exists and is not detached (a detached call goes on without its host)."""
        if self._calls.has_call(call_id) and not self._calls.get(call_id).detached:
            self.cancel_calls([call_id])

    async def _cancel_each(self, call_ids: Iterable[str]) -> None:
        """Cancel calls; those that have ended are skipped."""
        for call_id in call_ids:
            with suppress(HubError):  # it has ended, or was never made
                await self._calls.cancel(call_id, abort=True)


@dataclass(slots=True, eq=False, kw_only=True)
class BridgedHost:
    """One stream of a bridge."""

    hosts: BridgedHosts
    principal: Principal
    key: str
    endpoint: McpEndpoint
    outlet: HostOutbox
    _session: EndpointSession | None = None
    _serving: dict[Id, asyncio.Task[bytes]] = field(default_factory=dict[Id, "asyncio.Task[bytes]"])
    """By request id, the task that serves the request."""
    _long_lived: set[asyncio.Task[bytes]] = field(default_factory=set["asyncio.Task[bytes]"])

    @property
    def running_call_ids(self) -> frozenset[str]:
        """The ids that the calls of its open requests have or may have."""
        return frozenset(call_id for id_ in self._serving for call_id in self._call_ids(id_))

    def receive(self, raw: bytes, *, again: bool = False) -> None:
        """Handle a message of the host; errors are sent to it. `again`: the bridge may have sent the message before."""
        try:
            message = messages.parse(raw)
        except Refusal as refusal:
            self.outlet.send(messages.make_error_response(messages.find_refused_id(raw), refusal))
            return
        if isinstance(message, RequestMessage):
            try:
                self.hosts.charge(self.principal)
                # A hub that was killed may have called the tool and left no record: it is not called a second time.
                if (
                    again
                    and message.method == "tools/call"
                    and not self.hosts.is_call_known(self._call_ids(message.id))
                ):
                    raise Refusal(HUB_FAILED, LOST_TEXT, {"reason": "HUB_RESTARTED"})
                self._start_request(message)
            except Refusal as refusal:
                self.outlet.send(messages.make_error_response(message.id, refusal))
            except HubError as exc:
                self.outlet.send(messages.make_error_response(message.id, refusal_from_error(exc)))
        elif isinstance(message, NotificationMessage) and message.method == "notifications/cancelled":
            self._cancel_request(message)
        elif self._session is not None:
            self._session.receive(message)

    async def finish(self, within_s: float) -> None:
        """Cancel the open LONG_LIVED_METHOD requests; wait at most `within_s` seconds for the others' responses."""
        for task in self._long_lived:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving.values(), timeout=within_s)

    def end(self) -> None:
        """Close the stream, cancel its open requests, and end its session. Calls are not cancelled here."""
        self.outlet.close()
        for task in self._serving.values():
            task.cancel()
        if self._session is not None:
            self._session.end()

    def _start_request(self, request: RequestMessage) -> None:
        """Start to serve a request, whose response goes into the outlet. Raises Refusal and ResourceExhausted."""
        if request.id in self._serving:
            raise Refusal(INVALID_REQUEST, "a request with this id is under way")
        if request.is_stateless:
            task = self._start_stateless(request)
        else:
            if request.method == "initialize":
                self._start_session(request)
            if self._session is None:
                raise Refusal(INVALID_REQUEST, "initialize first, or say in params._meta who asks")
            task = self._session.begin(request, self.outlet, self._call_key(request.id))
        self._serving[request.id] = task
        if request.method == LONG_LIVED_METHOD:
            self._long_lived.add(task)
        task.add_done_callback(lambda done: self._on_done(request.id, done))

    def _start_session(self, request: RequestMessage) -> None:
        """Start the session of a host that sends `initialize`. Raises Refusal, also for a second session."""
        host = introductions.parse_handshake_host(request, self.principal, VIA)
        if self._session is not None:
            raise Refusal(INVALID_REQUEST, "this connection is initialized")
        self._session = EndpointSession(host, self.endpoint, self.hosts.clock, self.hosts.limits())
        self._session.outlet = self.outlet
        host.is_listening = lambda: not self.outlet.closed

    def _start_stateless(self, request: RequestMessage) -> asyncio.Task[bytes]:
        """Start to serve a request without a handshake; the task returns the response. Raises Refusal."""
        if len(self._serving) >= (limit := self.hosts.limits().requests_per_session):
            raise Refusal(INVALID_REQUEST, f"{limit} requests of this connection are open")
        host = introductions.parse_stateless_host(request, self.principal, VIA)
        self.hosts.processes.recognise(host, self.endpoint.view.name, self.key)
        host.is_listening = lambda: not self.outlet.closed
        host_request = HostRequest(
            id=request.id,
            method=request.method,
            params=request.params,
            host=host,
            send=self.outlet.send,
            call_key=self._call_key(request.id),
            leaving=asyncio.Event(),  # never set: the bridge sends lasting requests again to the next process
        )
        return asyncio.get_running_loop().create_task(self.endpoint.serve(host_request))

    def _on_done(self, id_: Id, task: asyncio.Task[bytes]) -> None:
        """Forget a request that has ended, and send its response; a cancelled request gets none."""
        if self._serving.get(id_) is task:
            del self._serving[id_]
        self._long_lived.discard(task)
        if not task.cancelled():
            self.outlet.send(task.result())

    def _cancel_request(self, message: NotificationMessage) -> None:
        """Cancel the request that a notification names, and its call, even if an earlier stream carried the request.

        A call that goes on after the response to its request, with a ticket or as a task, is not cancelled: some hosts
        cancel every request, even after its response (MCP, basic/utilities/cancellation).
        """
        id_ = message.params.get("requestId")
        if not isinstance(id_, str | int | float):
            return
        if (task := self._serving.pop(id_, None)) is not None:
            task.cancel()
            self.hosts.cancel_calls(self._call_ids(id_))
        else:  # of an earlier stream, or answered; a task is not cancelled with the request that made it
            self.hosts.cancel_attached_call(self._call_key(id_))

    def _call_ids(self, id_: Id) -> tuple[str, str]:
        """Return the ids that the call of a request may have: as a plain call, and as a task."""
        return self.endpoint.call_ids(self.principal, self._call_key(id_))

    def _call_key(self, id_: Id) -> str:
        """Return the key of a request's call: the same if the request is sent again, another for other principals."""
        request = payload.dumps([self.principal.name, self.key, id_])
        return f"mcp_{hashlib.sha256(request).hexdigest()[:32]}"
