"""Hosts behind a bridge: all messages of one in order, of either kind of revision, over streams that may break.

    message ──> BridgedHost.receive ──> EndpointSession | McpEndpoint ──> HostOutbox ──> response

The calls of such a host go on when its stream breaks: a bridge that comes back under its session key sends its requests
again, and each joins its call. One that does not come back has them cancelled. A tool that may have been called by a
hub that was killed, which has left no record of it, is not called again.
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
    """All hosts behind bridges. `charge` raises HubError for a request that its principal may not make now."""

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
        self._hosts: dict[tuple[str, str], BridgedHost] = {}
        self._cancelling: set[asyncio.Task[None]] = set()

    def add_stream(self, principal: Principal, key: str, endpoint: McpEndpoint, outlet: HostOutbox) -> "BridgedHost":
        """Add a new stream of a bridge, and end an older one that is still open: the bridge has given that up."""
        name = principal.name, key
        if (before := self._hosts.get(name)) is not None:
            before.outlet.close()
        host = self._hosts[name] = BridgedHost(
            hosts=self, principal=principal, key=key, endpoint=endpoint, outlet=outlet
        )
        return host

    def end_stream(self, host: "BridgedHost", *, left: bool) -> None:
        """End a stream. If its host has `left`, the host's calls are cancelled now.

        Otherwise they are cancelled after RETURN_S, unless the host comes back before. A host whose credential has
        ended counts as one that has left.
        """
        name = host.principal.name, host.key
        if self._hosts.get(name) is host:
            del self._hosts[name]
        host.outlet.close()
        if left or not host.running:
            self.cancel_calls(host.running)
            host.end()
        else:
            # Until then its requests wait for their calls, which go on; a host that comes back waits for them again.
            asyncio.get_running_loop().call_later(RETURN_S, host.end)

    def is_call_known(self, call_ids: Iterable[str]) -> bool:
        """Return whether one of these calls exists."""
        return any(map(self._calls.has_call, call_ids))

    def cancel_calls(self, call_ids: Iterable[str]) -> None:
        """Begin to cancel calls, also those that were sent already, even if others wait for them; does not wait."""
        cancelling = asyncio.get_running_loop().create_task(self._cancel_each(list(call_ids)))
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    def cancel_attached_call(self, call_id: str) -> None:
        """Begin to cancel a call, if it exists and is not detached (a detached call goes on without its host)."""
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
    _lasting: set[asyncio.Task[bytes]] = field(default_factory=set["asyncio.Task[bytes]"])

    @property
    def running(self) -> frozenset[str]:
        """The ids of the calls that its open requests are, or may be."""
        return frozenset(call_id for id_ in self._serving for call_id in self._call_ids(id_))

    def receive(self, raw: bytes, *, again: bool = False) -> None:
        """Handle a message of the host; errors are sent to the host. `again`: the message may have been sent before."""
        try:
            message = messages.parse(raw)
        except Refusal as refusal:
            self.outlet.send(messages.make_error_response(messages.find_refused_id(raw), refusal))
            return
        if isinstance(message, RequestMessage):
            try:
                self.hosts.charge(self.principal)
                # A hub that was killed may have called the tool, and left no record: it is not called a second time.
                if (
                    again
                    and message.method == "tools/call"
                    and not self.hosts.is_call_known(self._call_ids(message.id))
                ):
                    raise Refusal(HUB_FAILED, LOST_TEXT, {"reason": "HUB_RESTARTED"})
                self._begin_request(message)
            except Refusal as refusal:
                self.outlet.send(messages.make_error_response(message.id, refusal))
            except HubError as exc:
                self.outlet.send(messages.make_error_response(message.id, refusal_from_error(exc)))
        elif isinstance(message, NotificationMessage) and message.method == "notifications/cancelled":
            self._cancel_request(message)
        elif self._session is not None:
            self._session.receive(message)

    async def finish(self, within_s: float) -> None:
        """Wait at most `within_s` seconds for the responses to open requests. Requests that last are cancelled."""
        for task in self._lasting:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving.values(), timeout=within_s)

    def end(self) -> None:
        """Close the stream, cancel its open requests, and end its session."""
        self.outlet.close()
        for task in self._serving.values():
            task.cancel()
        if self._session is not None:
            self._session.end()

    def _begin_request(self, request: RequestMessage) -> None:
        """Begin to serve a request; its response goes into the outlet. Raises Refusal and ResourceExhausted."""
        if request.id in self._serving:
            raise Refusal(INVALID_REQUEST, "a request with this id is under way")
        if request.is_stateless:
            task = self._serve_stateless(request)
        else:
            if request.method == "initialize":
                self._begin_session(request)
            if self._session is None:
                raise Refusal(INVALID_REQUEST, "initialize first, or say in params._meta who asks")
            task = self._session.begin(request, self.outlet, self._call_id(request.id))
        self._serving[request.id] = task
        if request.method == LONG_LIVED_METHOD:
            self._lasting.add(task)
        task.add_done_callback(lambda done: self._on_done(request.id, done))

    def _begin_session(self, request: RequestMessage) -> None:
        """Begin the session of a host that sends `initialize`. Raises Refusal."""
        host = introductions.parse_handshake_host(request, self.principal, VIA)
        if self._session is not None:
            raise Refusal(INVALID_REQUEST, "this connection is initialized")
        self._session = EndpointSession(host, self.endpoint, self.hosts.clock, self.hosts.limits())
        self._session.outlet = self.outlet
        host.is_listening = lambda: not self.outlet.closed

    def _serve_stateless(self, request: RequestMessage) -> asyncio.Task[bytes]:
        """Begin to serve a request without a handshake. Raises Refusal."""
        if len(self._serving) >= (most := self.hosts.limits().requests_per_session):
            raise Refusal(INVALID_REQUEST, f"{most} requests of this connection are open")
        host = introductions.parse_stateless_host(request, self.principal, VIA)
        self.hosts.processes.recognise(host, self.endpoint.view.name, self.key)
        host.is_listening = lambda: not self.outlet.closed
        host_request = HostRequest(
            id=request.id,
            method=request.method,
            params=request.params,
            host=host,
            send=self.outlet.send,
            call_key=self._call_id(request.id),
            leaving=asyncio.Event(),  # never set: the bridge sends requests that last again to the next process
        )
        return asyncio.get_running_loop().create_task(self.endpoint.serve(host_request))

    def _on_done(self, id_: Id, task: asyncio.Task[bytes]) -> None:
        """Send the response of a request that has ended; a cancelled request gets none."""
        if self._serving.get(id_) is task:
            del self._serving[id_]
        self._lasting.discard(task)
        if not task.cancelled():
            self.outlet.send(task.result())

    def _cancel_request(self, message: NotificationMessage) -> None:
        """Cancel a request and its call, even if that was made over an earlier stream.

        A call that goes on after the response to its request, with a ticket or as a task, is not cancelled: some hosts
        cancel each request, whatever has become of it (MCP, basic/utilities/cancellation).
        """
        id_ = message.params.get("requestId")
        if not isinstance(id_, str | int | float):
            return
        if (task := self._serving.pop(id_, None)) is not None:
            task.cancel()
            self.hosts.cancel_calls(self._call_ids(id_))
        else:  # made over an earlier stream; a task is not cancelled with the request that made it
            self.hosts.cancel_attached_call(self._call_id(id_))

    def _call_ids(self, id_: Id) -> tuple[str, str]:
        """Return the ids that the call of a request may have: as a call alone, and as a task."""
        return self.endpoint.call_ids(self.principal, self._call_id(id_))

    def _call_id(self, id_: Id) -> str:
        """Return the id of the call that a request is: the same when it is sent again, and of no other principal."""
        request = payload.dumps([self.principal.name, self.key, id_])
        return f"mcp_{hashlib.sha256(request).hexdigest()[:32]}"
