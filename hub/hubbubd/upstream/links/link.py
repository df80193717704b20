"""An open connection: sends requests, receives what the server sends, and knows why it ended."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeGuard

import anyio.lowlevel
import structlog
from anyio.abc import TaskStatus
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, LOG_LEVEL_META_KEY

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, Fault, FaultCode, PeerError, UpstreamError
from hubbubd.telemetry.trace import Span
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream import faults
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.links.instrumentation import LinkInstrumentation
from hubbubd.upstream.links.server_requests import ServerRequests
from hubbubd.upstream.links.session_loss import SessionLossDetector, may_be_retried, may_concern_session
from hubbubd.upstream.messages.dispatcher import Dispatcher, OnAcknowledged, OnProgress
from hubbubd.upstream.messages.exchange import (
    CALL,
    OUTGOING,
    SPAN_SCOPE,
    ConnectionClosed,
    OutgoingMessage,
    UnusableResponse,
)
from hubbubd.upstream.messages.rate_limit import ServerRateLimit
from hubbubd.upstream.messages.streams import LinkCallbacks, Transport, TransportStreams
from hubbubd.upstream.ports import Era, Hello, Inbound
from hubbubd.upstream.protocol.negotiation import Negotiation, Revision, StatelessRevision
from hubbubd.upstream.protocol.results import (
    ResultNotes,
    check_notification,
    check_result,
    is_in_other_revision_only,
    learn_tool_headers,
    repair_notification,
)
from hubbubd.upstream.protocol.schema_check import Mismatch

MAX_UNUSABLE: Final = 10
"""Consecutive invalid messages after which the connection is given up."""

MAX_TOOL_PAGES: Final = 100
"""Pages of `tools/list` that are read to learn which arguments are repeated as headers."""

REASON_LIMIT_S: Final = 5.0
"""Seconds a failed request waits for the reason why its connection ended."""

_UNREACHABLE: Final = (Category.CONNECTION, Category.TIMEOUT)  # of faults of requests that did not reach the server

log = structlog.get_logger(__name__)


class ServerLink:
    """Implements `ports.McpLink`. `hold_open` keeps the connection until `close` is called.

    The SDK's contexts are entered and left in `hold_open` alone: their failures do not reach the users of the link.
    """

    def __init__(
        self,
        config: ServerConfig,
        inbound: Inbound,
        transport: Transport,
        deadlines: PausableDeadlines,
        instrumentation: LinkInstrumentation,
    ) -> None:
        self._config = config
        self._inbound = inbound
        self._transport = transport
        self._deadlines = deadlines
        self._instrumentation = instrumentation
        self._server_requests = ServerRequests(config, inbound, lambda: self._revision)
        self._result_notes = ResultNotes(inbound.note)
        self._streams: TransportStreams | None = None
        self._dispatcher: Dispatcher | None = None
        self._hello: Hello | None = None  # once `connect` has succeeded
        self.log_level: str | None = None
        self._revision: Revision | None = None  # once it is negotiated
        self._session_loss = SessionLossDetector()
        self._tool_listing_lock = anyio.Lock()
        self._tools_listed = False
        self._fault: Fault | None = None  # why the connection is lost
        self._ready = anyio.Event()  # the transport is open, or could not be opened
        self._lost = anyio.Event()
        self._hold_scope = anyio.CancelScope(shield=True)  # of `hold_open`; shielded: only `close` may cancel it
        self._receive_scope = anyio.CancelScope()
        self._closing = anyio.Event()  # `close` was called
        self._closed = anyio.Event()  # the transport is closed

    async def hold_open(self) -> None:
        """Open the transport and hold it open until `close`. Never raises."""
        # What arrives over this connection does not belong to the context that opened it.
        CALL.set(None)
        OUTGOING.set(None)
        SPAN_SCOPE.set(None)
        try:
            with self._hold_scope:
                async with (
                    self._transport(LinkCallbacks(self._mark_lost, self._check_session, self._inbound.note)) as streams,
                    anyio.create_task_group() as tasks,
                ):
                    self._streams = streams
                    self._dispatcher = Dispatcher(
                        streams.read,
                        streams.write,
                        reports_delivery=streams.reports_delivery,
                        serve=self._server_requests.serve,
                        on_notification=self._on_notification,
                        note=self._inbound.note,
                        on_unusable=self._on_unusable,
                        rate_limit=ServerRateLimit(
                            self._config.max_messages_per_s, self._config.max_bytes_per_s, self._inbound.on_throttled
                        ),
                    )
                    await tasks.start(self._receive, self._dispatcher, streams)
                    self._ready.set()
                    await self._closing.wait()
                    tasks.cancel_scope.cancel()
        except Exception as exc:  # noqa: BLE001 - whatever a transport raises is why the connection ended
            self._mark_lost(faults.fault_from_exception(exc))
        finally:
            self._server_requests.close()
            self._closed.set()

    async def connect(self, last_era: Era | None) -> None:
        """Wait for the transport, negotiate the revision (`last_era` as in `Negotiation`). Raises UpstreamError."""
        await self._ready.wait()
        if self._fault is not None:
            raise UpstreamError(self._fault)
        assert self._streams is not None
        negotiation = Negotiation(
            config=self._config,
            send=self._send_for_negotiation,
            last_era=last_era,
            limit=self._deadlines.limit,
            side_output=self._streams.side_output,
        )
        hello, self._revision = await negotiation.run()
        self._result_notes.note_introduction(negotiation.findings)
        self._instrumentation.version = hello.protocol_version
        if hello.era is Era.HANDSHAKE:
            await self.notify("notifications/initialized", None)
        self._hello = replace(hello, pid=self._streams.pid)

    async def close(self) -> None:
        """End the connection and wait until its transport is closed."""
        self._closing.set()
        if not self._ready.is_set():
            self._hold_scope.cancel()  # the transport is still being opened, and nobody looks at `_closing` yet
        self._mark_lost(faults.fault("CONNECTION_LOST", "it was closed"))
        with anyio.CancelScope(shield=True):
            await self._closed.wait()

    async def wait_lost(self) -> Fault:
        """Wait until the connection has ended, and return why."""
        await self._lost.wait()
        assert self._fault is not None
        return self._fault

    def stderr_tail(self) -> tuple[str, ...]:
        """Return the last lines that a stdio server wrote to stderr; empty for others."""
        return self._streams.stderr_tail() if self._streams is not None else ()

    def stray_tail(self) -> tuple[str, ...]:
        """Return the last lines on the stdout of a stdio server that are no messages; empty for others."""
        return self._streams.stray_tail() if self._streams is not None else ()

    def missing_response_hint(self) -> str | None:
        """Return what may explain why a response is missing, as the end of a sentence; None if nothing does."""
        return self._dispatcher.unexpected_response if self._dispatcher is not None else None

    async def _receive(
        self, dispatcher: Dispatcher, streams: TransportStreams, *, task_status: TaskStatus[None]
    ) -> None:
        """Receive until the stream ends or the link is lost; then mark the link as lost, if it is not yet."""
        with self._receive_scope:
            await dispatcher.run(task_status=task_status)
        if self._fault is None:
            self._mark_lost(await streams.explain_end())

    def _mark_lost(self, fault: Fault) -> None:
        """Store why the connection ended, and fail the pending requests; ignored if a reason is stored already."""
        if self._fault is None:
            if fault.code == FaultCode.SESSION_LOST and self._streams is not None and self._streams.ignores_cookie():
                self._inbound.note(Deviation.COOKIE_IGNORED, describe_deviation(Deviation.COOKIE_IGNORED), lasting=True)
            self._fault = fault
            self._lost.set()
            self._ready.set()
            self._receive_scope.cancel()  # fails the requests that wait for a response

    @property
    def hello(self) -> Hello:
        """The server's introduction, once `connect` has returned."""
        assert self._hello is not None, "connected"
        return self._hello

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        call_id: str | None = None,
        on_progress: OnProgress | None = None,
        span: Span | None = None,
    ) -> dict[str, Any]:
        """Send a request, of the call `call_id` if any; return its checked result. Raises PeerError, UpstreamError."""
        if span is None and not self._instrumentation.on:
            return await self._send_checked(method, params, call_id, on_progress)
        return await self._instrumentation.send_instrumented(
            method, params, span, lambda sent_params: self._send_checked(method, sent_params, call_id, on_progress)
        )

    async def _send_checked(
        self, method: str, params: dict[str, Any] | None, call_id: str | None, on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Send a request of this revision, check its result; list tools and retry if tool headers are refused."""
        revision = self._revision
        assert revision is not None, "connected"
        if method == "initialize":
            raise faults.error("METHOD_NOT_IN_REVISION", "the hub itself makes the handshake", method=method)
        if is_in_other_revision_only(revision.version, method):
            raise faults.error("METHOD_NOT_IN_REVISION", f"{revision.version} has no {method}", method=method)
        needs_tool_headers = method == "tools/call" and self._needs_tool_headers(revision)
        if needs_tool_headers:
            await self._learn_tool_headers()
        leveled_params = self._with_log_level(params)
        try:
            result = await self._send(method, *revision.fit_params(method, leveled_params), call_id, on_progress)
        except PeerError as refusal:
            if not needs_tool_headers or refusal.code != HEADER_MISMATCH:
                raise
            self._tools_listed = False
            await self._learn_tool_headers()
            result = await self._send(method, *revision.fit_params(method, leveled_params), call_id, on_progress)
        await self._check_result(revision, method, params, result)
        return result

    def _with_log_level(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the params with `log_level` in their `_meta`, if it is set and they name no level."""
        if self.log_level is None:
            return params
        return {**(params or {}), "_meta": {LOG_LEVEL_META_KEY: self.log_level, **((params or {}).get("_meta") or {})}}

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Send a notification; dropped once the connection is gone."""
        assert self._revision is not None, "connected"
        if self._dispatcher is not None:
            await self._dispatcher.notify(method, *self._revision.fit_params(method, params))

    async def listen(self, notifications: dict[str, Any], on_acknowledged: OnAcknowledged) -> None:
        """Subscribe to notifications until the (stateless) server ends that. Raises PeerError and UpstreamError."""
        assert self._revision is not None, "connected"
        method = "subscriptions/listen"
        if self._revision.era is Era.HANDSHAKE:
            raise faults.error("METHOD_NOT_IN_REVISION", "this server tells of changes unasked", method=method)
        fitted = self._revision.fit_params(method, {"notifications": notifications})
        await self._send(method, *fitted, on_acknowledged=on_acknowledged)

    async def probe(self, *, by_list: bool = False) -> None:
        """Check that the server responds: to ping, server/discover or (`by_list`) tools/list. Raises UpstreamError."""
        assert self._revision is not None, "connected"
        method = "ping" if self._revision.era is Era.HANDSHAKE else "server/discover"
        await self._probe_session("tools/list" if by_list else method)

    async def _probe_session(self, method: str, other_refusal: Exception | None = None) -> None:
        """Send a request to which any response is a sign of life: an error, a refusal, a page of HTML.

        Raises UpstreamError if none comes, or if a refused ping may mean that the session is over; if it is, the link
        is marked as lost.
        """
        assert self._revision is not None, "connected"
        try:
            # Not cancellable: any answer counts, so there is nothing to cancel at the server.
            await self._send(method, *self._revision.fit_params(method, None), cancellable=False, may_authorize=False)
        except (PeerError, UpstreamError) as exc:
            pending_ids = self._dispatcher.pending_ids if self._dispatcher is not None else ()
            has_session = method == "ping" and self._has_session
            if has_session and self._session_loss.is_over(exc, other_refusal, pending_ids):
                note = f"it refuses {'calls and pings' if other_refusal else 'pings, which it answered before'}: {exc}"
                lost = faults.fault("SESSION_LOST", note[: faults.BODY_EXCERPT])
                self._mark_lost(lost)
                raise UpstreamError(lost) from None
            if isinstance(exc, PeerError):
                return
            if not faults.is_sign_of_life(exc.fault) or self._session_loss.may_be_over(exc):
                raise
            if exc.fault.code != FaultCode.AUTHENTICATION_FAILED:
                self._inbound.note(Deviation.PING_ANSWERED_ODDLY, describe_deviation(Deviation.PING_ANSWERED_ODDLY))

    async def _check_session(self, other_refusal: Exception | None = None) -> None:
        """Ping the server after another refusal, REASON_LIMIT_S at most; if its session is over, mark the link lost."""
        with suppress(PeerError, UpstreamError), anyio.move_on_after(REASON_LIMIT_S):
            await self._probe_session("ping", other_refusal)

    @property
    def _has_session(self) -> bool:
        """Whether the server may have a session that it can lose: after a handshake over HTTP (`reports_delivery`)."""
        handshake = self._revision is not None and self._revision.era is Era.HANDSHAKE
        return handshake and self._streams is not None and self._streams.reports_delivery and self._hello is not None

    async def _send_for_negotiation(
        self, method: str, params: dict[str, Any] | None, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Send a request of the negotiation, which is never cancelled at the server."""
        return await self._instrumentation.send_instrumented(
            method, params, None, lambda sent_params: self._send(method, sent_params, headers, cancellable=False)
        )

    async def _send(
        self,
        method: str,
        params: dict[str, Any] | None,
        headers: dict[str, str],
        call_id: str | None = None,
        on_progress: OnProgress | None = None,
        *,
        cancellable: bool = True,
        may_authorize: bool = True,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result. Raises PeerError and UpstreamError."""
        assert self._dispatcher is not None, "connected"
        outgoing = OutgoingMessage(awaits_result=True, may_authorize=may_authorize, method=method)
        if (scope := SPAN_SCOPE.get()) is not None:
            scope.outgoing = outgoing
        call_token, outgoing_token = CALL.set(call_id), OUTGOING.set(outgoing)
        try:
            result = await self._dispatcher.request(
                method,
                params,
                headers=headers,
                cancellable=cancellable,
                on_progress=on_progress,
                on_acknowledged=on_acknowledged,
            )
            if self._has_session:
                self._session_loss.note_result(method)
            return result
        except MCPError as exc:
            failure = PeerError(exc.error.code, exc.error.message, exc.error.data)
        except (ConnectionClosed, UnusableResponse) as exc:
            failure = exc
        finally:
            CALL.reset(call_token)
            OUTGOING.reset(outgoing_token)
        raise await self._explain_failure(failure, outgoing, method)

    async def _explain_failure(
        self, failure: PeerError | ConnectionClosed | UnusableResponse, outgoing: OutgoingMessage, method: str
    ) -> PeerError | UpstreamError:
        """Return the error of a failed request; if the session may be the reason, it is checked first."""
        if self._has_session and may_concern_session(failure, outgoing):
            self._session_loss.note_refusal(outgoing.request_id)
            if method != "ping":
                await self._check_session(UpstreamError(outgoing.fault) if outgoing.fault is not None else failure)
                lost = self._fault is not None and self._fault.code == FaultCode.SESSION_LOST
                if lost and self._fault is not None and may_be_retried(outgoing):
                    return self._request_error(self._fault, method, is_unreachable=False)
        if outgoing.fault is not None:
            fault = outgoing.fault
            if not outgoing.was_sent:
                fault = replace(fault, details={**fault.details, "sent": False})
            return self._request_error(fault, method, is_unreachable=fault.category in _UNREACHABLE)
        match failure:
            case PeerError():
                return failure
            case UnusableResponse():
                fault = faults.fault("INVALID_RESPONSE", str(failure)[: faults.BODY_EXCERPT])
                return self._request_error(fault, method, is_unreachable=False)
            case ConnectionClosed():
                with anyio.move_on_after(REASON_LIMIT_S):
                    await self._lost.wait()
                fault = self._fault or faults.fault("CONNECTION_LOST")
                return self._request_error(fault, method, is_unreachable=True)

    def _request_error(self, fault: Fault, method: str, *, is_unreachable: bool) -> UpstreamError:
        """Return the error of a request. If the server is unreachable, a connection that was made counts as lost."""
        details = {**fault.details, "method": method}
        if is_unreachable and self._hello is not None and fault.code != FaultCode.CONNECTION_LOST:
            return faults.error("CONNECTION_LOST", fault.message, **{"cause": fault.code, **details})
        return UpstreamError(replace(fault, details=details))

    def _needs_tool_headers(self, revision: Revision) -> TypeGuard[StatelessRevision]:
        """Return whether this revision and this transport repeat arguments of tools as headers."""
        return isinstance(revision, StatelessRevision) and self._config.transport == "http"

    async def _learn_tool_headers(self) -> None:
        """List the tools once per connection, to learn which arguments must be repeated as headers."""
        if self._tools_listed:
            return
        async with self._tool_listing_lock:
            if not self._tools_listed:  # another call may have listed them while this one waited for the lock
                cursor: str | None = None
                for _ in range(MAX_TOOL_PAGES):
                    try:
                        page = await self.request("tools/list", {"cursor": cursor} if cursor else None)
                    except PeerError:
                        break  # calls are sent without such headers
                    cursor = page.get("nextCursor")
                    if not cursor:
                        break
                self._tools_listed = True
        await anyio.lowlevel.checkpoint_if_cancelled()  # a call that was cancelled meanwhile is not sent

    async def _check_result(
        self, revision: Revision, method: str, params: dict[str, Any] | None, result: dict[str, Any]
    ) -> None:
        """Check a result, repaired in place where that does no harm, and note what deviates. Raises UpstreamError."""
        findings = self._result_notes.findings_for(method, params)
        try:
            for _ in check_result(revision, method, params, result, findings):
                await wait_for_turn()
        except Mismatch as exc:
            raise faults.error("INVALID_RESPONSE", str(exc), method=method) from None
        if method == "tools/list" and self._needs_tool_headers(revision):
            for _ in learn_tool_headers(revision, result, (params or {}).get("cursor") or None, findings):
                await wait_for_turn()
        self._result_notes.note_result(method, result, findings)

    def _on_notification(self, method: str, params: dict[str, Any], call_id: str | None) -> None:
        """Check a notification, and pass it on to the runtime; one that cannot be repaired is dropped."""
        # Progress needs no validation: the dispatcher has parsed what matters.
        if self._revision is not None and method != "notifications/progress":
            try:
                check_notification(self._revision.version, method, params)
            except KeyError:
                pass  # of an extension or another revision: left to the runtime
            except Mismatch:
                if not repair_notification(self._revision.version, method, params):
                    log.debug("malformed notification dropped", server=self._config.name, method=method)
                    return
                self._inbound.note(
                    Deviation.NOTIFICATION_MENDED, describe_deviation(Deviation.NOTIFICATION_MENDED, method)
                )
        self._inbound.on_notification(method, params, call_id)

    def _on_unusable(self, problem: Exception, in_a_row: int) -> None:
        """Log a message that cannot be used; after MAX_UNUSABLE in a row, give up the connection."""
        first = str(problem).partition("\n")[0]  # further lines repeat what was sent
        log.debug("invalid message received", server=self._config.name, problem=first)
        if in_a_row >= MAX_UNUSABLE:
            note = f"{in_a_row} messages in a row could not be read, the last: {str(problem).partition(':')[0]}"
            self._mark_lost(faults.fault("INVALID_RESPONSE", note))
