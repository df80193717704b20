"""The sending side: RPCs about servers of other members go to their owners, once.

not reached, NOT_OWNER, MOVED, OWNER_CHANGING   nothing was carried out: sent again, for as long as a takeover may take
the owner's port closes before they were taken  the same
the owner has lost the server since             OWNER_LOST, at once
any other end of the connection                 OWNER_LOST: it may have been carried out, and is never sent again
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import anyio
import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbubd import bounds
from hubbubd.core.access import Principal
from hubbubd.errors import HubError, NotFound, Unavailable
from hubbubd.rpc import revision, status
from hubbubd.rpc.auth.permissions import RULES, ExecutingMember
from hubbubd.rpc.context import current, principal
from hubbubd.rpc.fleet.changes import OwnershipChanges
from hubbubd.rpc.fleet.forwards.caller_context import make_opening
from hubbubd.rpc.fleet.forwards.open_forwards import OpenForwards
from hubbubd.rpc.fleet.forwards.subjects import find_server
from hubbubd.rpc.fleet.live import LiveElsewhere
from hubbubd.rpc.fleet.merged_events import MergedEvents
from hubbubd.rpc.fleet.peers import Peers, Unreached, read_response, translate_cancellation
from hubbubd.rpc.methods import EOF, Serve, Stream, Unary
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import NOT_STARTED_REASONS, Owner, owner_changing_error
from hubbubd.telemetry.metrics import FORWARD, FORWARD_FAILURES
from hubbubd.telemetry.trace import CURRENT_TRACE, Attributes, Span, SpanKind, Trace

if TYPE_CHECKING:
    from hubbub.fleet.v1.fleet_pb2_grpc import FleetServiceAsyncStub

T = TypeVar("T")

log = structlog.get_logger(__name__)

OWNER_CHANGE_S = 2.0
TAKEOVER_LEASES = 3.0
"""An RPC that was not carried out is sent again for OWNER_CHANGE_S and the time of so many leases, but no longer than
its caller waits, or its call may take: a takeover needs one lease, a look and a connection."""

LOOK_S = 0.1
"""Seconds until an RPC is sent again to the same owner, each time twice as long."""

REPORT_MARGIN_S = 0.05
"""Seconds by which a forward ends before its caller gives up, so that the caller still gets the error."""

NOT_REACHED = "NOT_REACHED"
"""The reason, in metrics, of a forward that has found no connection; nothing was sent."""

SPAN = "hubbub.fleet.v1.FleetService/Forward"

_CALL = "/hubbub.v1.CallService/CallMethod"

_NOT_OWNER = frozenset({"NOT_OWNER", *NOT_STARTED_REASONS})

# The receiver does not take this member for one, or knows no such RPC: it may be of another version.
_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED})


@dataclass(frozen=True, slots=True)
class ForwardedRpc:
    """An RPC to forward: its path, the server that it is about, its caller and its serialized request."""

    path: str
    server: str
    caller: Principal
    body: bytes
    call_limit_s: float | None = None
    """The timeout in seconds that a call sets itself; None for other RPCs, and without one."""

    def make_opening(self, trace: Trace | None) -> pb.Opening:
        """Return the opening, which goes ahead of the request: the RPC, its server, its caller, and the trace."""
        return make_opening(self.path, self.server, self.caller, trace)


class NotOwner(Unreached):
    """Another member has the server, or none has it; nothing was carried out."""

    reason = "NOT_OWNER"
    why = "which says that it does not have it"


class ForwardNotTaken(NotOwner):
    """A member's port closed, and no handler had taken the RPC; nothing was carried out."""

    reason = "NOT_TAKEN"
    why = "which has just ended"


class Forwarding:
    """Wraps RPCs so that the owner of a server carries them out; `wrap` is the innermost `methods.Middleware`."""

    def __init__(self, hub: Hub, peers: Peers, changes: OwnershipChanges, live: LiveElsewhere) -> None:
        self._hub = hub
        self._live = live
        self._ownership = hub.ownership
        self._peers = peers
        self._changes = changes
        self._open_forwards = OpenForwards(hub.ownership, peers.answers)

    def wrap(self, method: MethodDescriptor, serve: Serve) -> Serve:
        """Return the RPC as a member of a fleet serves it: here, at the owner of the server, or at all members.

        A member may get a record late that another member has made. So after NOT_FOUND of a single record this member
        first reads all changes of the database; a stream gets the record when it comes.
        """
        path = f"/{method.containing_service.full_name}/{method.name}"
        match RULES[path].executed_by:
            case ExecutingMember.RECEIVER if method.client_streaming or method.server_streaming:
                return serve
            case ExecutingMember.RECEIVER:
                return self._wrap_not_found(serve)
            case ExecutingMember.OWNER if method.server_streaming:
                return self._wrap_stream_at_owner(path, serve)
            case ExecutingMember.OWNER:
                return self._wrap_not_found(self._wrap_unary_at_owner(method, path, serve))
            case ExecutingMember.OWNERS:
                return self._wrap_merged(path, serve)

    def _wrap_not_found(self, serve: Unary) -> Unary:
        """Wrap an RPC: after NotFound it is served again, once this member has all records of the database."""

        async def recheck(request: Message) -> Message:
            """Serve the RPC; after NotFound once more, unless this member was up to date about the record."""
            try:
                return await serve(request)
            except NotFound as exc:
                # The metadata of NotFound is one entry: the kind of record, and its id.
                [(noun, name)] = exc.metadata.items()
                if await self._hub.is_record_current(noun, name):
                    raise
            return await serve(request)

        return recheck

    def _wrap_unary_at_owner(self, method: MethodDescriptor, path: str, serve: Unary) -> Unary:
        """Wrap an RPC with one response: it is served here, or by the member that has its server."""
        parse: Callable[[bytes], Message] = GetMessageClass(method.output_type).FromString

        async def serve_at_owner(request: Message) -> Message:
            """Serve the RPC here if this member has the server, or the request names none; else at the owner."""
            server = find_server(self._hub, path, request)
            if server is None or self._ownership.owns(server):
                try:
                    return await serve(request)
                except HubError as exc:
                    if server is None or exc.reason not in _NOT_OWNER:  # else the server is moving to another member
                        raise
            rpc = ForwardedRpc(path, server, principal(), request.SerializeToString(), find_call_timeout_s(request))

            async def send_and_parse(owner: Owner) -> Message:
                return parse(await self._send_to_owner(rpc, owner))

            with self._delay_drain(path):
                return await self._run_at_owner(server, send_and_parse, lambda: serve(request), rpc.call_limit_s)

        return serve_at_owner

    async def _run_at_owner(
        self,
        server: str,
        send: Callable[[Owner], Awaitable[T]],
        serve_here: Callable[[], Awaitable[T]],
        call_limit_s: float | None = None,
    ) -> T:
        """Send an RPC to the owner of a server, or serve it here once this member is the owner. Raises HubError."""
        steady = self._hub.clock.steady
        give_up_at, pause_s = steady() + self._longest_change_s(call_limit_s), LOOK_S
        while True:
            remaining_s = give_up_at - steady()
            if (owner := self._ownership.owner(server)) is not None:
                try:
                    return await send(owner)
                except Unreached as exc:
                    member, why = owner.member, exc.why
                    if not isinstance(exc, NotOwner):  # else `_measure_forward` has counted the failure
                        self._hub.meter.count(FORWARD_FAILURES, {"reason": NOT_REACHED})
            elif self._ownership.owns(server):
                return await serve_here()
            else:
                member = why = ""  # no member has the server at the moment
            if remaining_s <= 0:
                raise owner_changing_error(server, member, why)
            with anyio.move_on_after(min(pause_s, remaining_s)):
                await self._wait_for_other_owner(server, owner)
            pause_s *= 2

    def _longest_change_s(self, call_limit_s: float | None) -> float:
        """Return the seconds to wait for another owner: the time of a takeover, but no longer than the caller waits."""
        fleet = self._hub.fleet
        takeover_s = 0.0 if fleet is None else TAKEOVER_LEASES * fleet.membership.lease_ttl_s
        limits_s = [each for each in (call_limit_s, _remaining_s()) if each is not None]
        return min(OWNER_CHANGE_S + takeover_s, *limits_s, math.inf)

    async def _wait_for_other_owner(self, server: str, former: Owner | None) -> None:
        """Wait until a server has another owner than `former`, which may be this member; meanwhile it may have none."""
        while not self._ownership.owns(server) and self._ownership.owner(server) in (None, former):
            changed = self._changes.next_change(server)
            with anyio.move_on_after(LOOK_S):  # the address of an owner may come later than the change
                await changed.wait()

    async def send(self, rpc: ForwardedRpc) -> bytes:
        """Have the owner of a server carry out a unary RPC, and return the response. Raises HubError."""

        async def raise_changing() -> NoReturn:
            # The server has just come to this member. The caller tries again, and the RPC is then served here.
            raise owner_changing_error(rpc.server)

        with self._delay_drain(rpc.path):
            return await self._run_at_owner(
                rpc.server, lambda owner: self._send_to_owner(rpc, owner), raise_changing, rpc.call_limit_s
            )

    async def open_stream(self, rpc: ForwardedRpc) -> AsyncGenerator[bytes, None]:
        """Return the responses of an RPC at the owner of a server, once the first has come. Raises HubError."""

        async def raise_changing() -> NoReturn:
            raise owner_changing_error(rpc.server)

        return await self._open_stream(rpc, raise_changing)

    async def _send_to_owner(self, rpc: ForwardedRpc, owner: Owner) -> bytes:
        """Have the owner carry out a unary RPC, and return the response. Raises HubError and Unreached."""
        await self._live.wait_until_listening(owner)
        stub = await self._peers.reach(owner)
        with self._measure_forward(rpc.server, owner) as trace, _translate_rpc_errors(rpc.server, owner):
            request = pb.ForwardRequest(opening=rpc.make_opening(trace), request=rpc.body)
            async with translate_cancellation():
                forward = stub.Forward(request, timeout=_remaining_s())
                with self._open_forwards.cancel_when_lost(rpc.server, owner, forward, rpc.call_limit_s):
                    response, metadata = await forward, await forward.trailing_metadata()
        # The caller may next read what this RPC has written, so this member waits for that record, but only while the
        # caller waits. After CallMethod there is no wait: the response has the result already.
        await revision.wait_for_trailing_revision(
            self._hub.store, metadata, 0.0 if rpc.path == _CALL else _remaining_s()
        )
        match response.WhichOneof("outcome"):
            case "failed":
                raise _parse_failure(response.failed)
            case "response":
                return response.response
            case _:
                raise _owner_lost_error(rpc.server, owner, "it speaks of an outcome that this version does not know")

    def _wrap_stream_at_owner(self, path: str, serve: Stream) -> Stream:
        """Wrap an RPC with many responses: it is served here, or by the member that has its server."""

        async def serve_at_owner(request: Message) -> AsyncGenerator[bytes, None]:
            """Yield the responses of this member if it has the server, or the request names none; else of the owner."""

            async def serve_here() -> AsyncGenerator[bytes, None]:
                return serve(request)

            server = find_server(self._hub, path, request)
            if server is None or self._ownership.owns(server):
                responses = serve(request)
            else:
                rpc = ForwardedRpc(path, server, principal(), request.SerializeToString())
                responses = await self._open_stream(rpc, serve_here)
            async with aclosing(responses):
                async for response in responses:
                    yield response

        return serve_at_owner

    async def _open_stream(
        self, rpc: ForwardedRpc, serve_here: Callable[[], Awaitable[AsyncGenerator[bytes, None]]]
    ) -> AsyncGenerator[bytes, None]:
        """Return the responses of an RPC at the server's owner, or of `serve_here` once this member is the owner."""

        async def open_at(owner: Owner) -> AsyncGenerator[bytes, None]:
            """Return the responses at the owner, once the first has come: until then another owner may be tried."""
            responses = self.read_responses(await self._peers.reach(owner), rpc, owner)
            try:
                first = await anext(responses)
            except StopAsyncIteration:
                return _chain_responses(None, responses)
            return _chain_responses(first, responses)

        return await self._run_at_owner(rpc.server, open_at, serve_here)

    def _wrap_merged(self, path: str, serve: Stream) -> Stream:
        """Wrap an RPC with many responses: without a server in its filter all members serve it, as one stream."""
        serve_one = self._wrap_stream_at_owner(path, serve)

        async def serve_at_all(request: Any) -> AsyncGenerator[bytes, None]:
            """Yield one member's events if the request's filter names a server, else those of all members."""
            events = serve_one(request) if request.filter.server else self._read_all_events(path, request, serve)
            async with aclosing(events) as responses:
                async for response in responses:
                    yield response

        return serve_at_all

    def _read_all_events(self, path: str, request: Message, serve: Stream) -> AsyncGenerator[bytes, None]:
        """Return the events of this member and of all others, as one stream."""

        rpc = ForwardedRpc(path, "", principal(), request.SerializeToString())

        async def open_at(owner: Owner) -> AsyncGenerator[bytes, None]:
            return self.read_responses(await self._peers.reach(owner), rpc, owner)

        return MergedEvents(self._ownership, self._changes).merge(serve(request), open_at)

    async def read_responses(
        self, stub: "FleetServiceAsyncStub", rpc: ForwardedRpc, owner: Owner
    ) -> AsyncGenerator[bytes, None]:
        """Yield the responses of an RPC at another member. Raises HubError, and NotOwner before the first."""
        request = pb.ForwardStreamRequest(opening=rpc.make_opening(CURRENT_TRACE.get()), request=rpc.body)
        stream = stub.ForwardStream(request, timeout=_remaining_s())
        has_response = False
        try:
            with (
                _translate_rpc_errors(rpc.server, owner),
                self._open_forwards.cancel_when_lost(rpc.server, owner, stream),
            ):
                while (step := await read_response(stream)) is not EOF:
                    if step.HasField("failed"):
                        raise _parse_failure(step.failed, nothing_done=not has_response)
                    has_response = True
                    if step.HasField("response"):  # other kinds, of a newer version, are ignored
                        yield step.response
        except NotOwner:
            if has_response:
                raise _owner_lost_error(rpc.server, owner, "it has ended the stream") from None
            raise
        finally:
            stream.cancel()

    def _delay_drain(self, path: str) -> AbstractContextManager[None]:
        """Delay this member's drain at shutdown, during the block, if the RPC is a call that its caller waits for."""
        return self._hub.calls.drain_delays.hold() if path == _CALL else nullcontext()

    @contextmanager
    def _measure_forward(self, server: str, owner: Owner) -> Generator[Trace | None]:
        """Export the span and duration of a forward; yield the trace to send with the forward.

        That is the trace of the span; without tracing the caller's trace, or None if the caller has none.
        """
        tracer, meter, parent = self._hub.tracer, self._hub.meter, CURRENT_TRACE.get()
        if not (tracer.on or meter.on):
            yield parent
            return
        trace, began_at, start = tracer.begin(parent, SPAN, SpanKind.CLIENT), self._hub.clock.steady(), tracer.now()
        error: str | None = grpc.StatusCode.CANCELLED.name
        try:
            yield trace
            error = None
        except (HubError, NotOwner) as exc:
            error = exc.reason
            raise
        finally:
            meter.record(FORWARD, self._hub.clock.steady() - began_at, {"error.type": error} if error else {})
            if error:
                meter.count(FORWARD_FAILURES, {"reason": error})
            if trace is not None:
                fields: Attributes = {"rpc.system.name": "grpc", "rpc.method": SPAN, "server.address": owner.forward}
                fields |= {"hubbub.member": owner.member, "hubbub.server": server}
                span = Span(name=SPAN, kind=SpanKind.CLIENT, trace=trace, start=start, attributes=fields)
                tracer.export_span(span, tracer.now(), error=error)


@contextmanager
def _translate_rpc_errors(server: str, owner: Owner) -> Generator[None]:
    """Replace gRPC's error of a forward by a HubError, or by NotOwner if nothing was carried out."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        rpc_error_status = cast("Status | None", rpc_status.from_call(cast("Any", exc)))  # pyright: ignore[reportUnknownMemberType]
        reason = status.error_info(rpc_error_status).reason if rpc_error_status is not None else ""
        if exc.code() in _REFUSED and reason not in _NOT_OWNER:
            log.warning("forward refused", member=owner.member, error=exc.details())
        if exc.code() in _REFUSED or reason in _NOT_OWNER:
            raise NotOwner from None
        if not reason and _is_untaken(exc):
            log.debug("forward not taken", member=owner.member, server=server, error=exc.details())
            raise ForwardNotTaken from None
        if rpc_error_status is not None and reason:
            raise status.error_of_status(rpc_error_status) from None
        if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise status.wait_over_error() from None
        log.info("forward lost", member=owner.member, server=server, code=exc.code().name, error=exc.details())
        raise _owner_lost_error(server, owner, f"its connection ended with {exc.code().name}") from None


def _is_untaken(exc: grpc.aio.AioRpcError) -> bool:
    """Return whether gRPC itself has ended an RPC that no handler had taken, so that nothing was carried out.

    When there is no connection any more, nothing was sent; only the text says so. What has arrived at a server that is
    stopped, and was not taken, ends with CANCELLED (https://github.com/grpc/grpc/issues/41785). What was taken ends
    with UNAVAILABLE then, and the receiving side sees to it that it never ends with CANCELLED.
    """
    no_connection = (exc.details() or "").startswith("failed to connect to all addresses")
    return exc.code() is grpc.StatusCode.CANCELLED or (exc.code() is grpc.StatusCode.UNAVAILABLE and no_connection)


def _parse_failure(failed: bytes, *, nothing_done: bool = True) -> Exception:
    """Return the error that the owner sent; with `nothing_done` it may be NotOwner, so that another member is tried."""
    error = status.error_of_status(Status.FromString(failed))
    return NotOwner() if nothing_done and error.reason in _NOT_OWNER else error


def find_call_timeout_s(request: Any) -> float | None:
    """Return the timeout that a request sets for its call, in seconds; None for a request that sets none."""
    if "spec" not in request.DESCRIPTOR.fields_by_name or "timeout" not in request.spec.DESCRIPTOR.fields_by_name:
        return None
    if not request.spec.HasField("timeout"):
        return None
    timeout = request.spec.timeout
    return bounds.clamp_seconds(timeout.seconds + timeout.nanos / 1e9)


def _remaining_s() -> float | None:
    """Return the seconds until a forward has to end, just before its caller gives up; None without a limit."""
    remaining = current().remaining()
    return None if remaining is None else max(remaining - REPORT_MARGIN_S, 0.0)


async def _chain_responses(first: bytes | None, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the first response, if there is one, and then the others."""
    async with aclosing(others):
        if first is not None:
            yield first
        async for each in others:
            yield each


def _owner_lost_error(server: str, owner: Owner, why: str) -> Unavailable:
    """Return the error for an RPC that its owner has accepted, and whose outcome is not known."""
    return Unavailable(
        f"{owner.member}, which has {server}, gave no answer: {why}; what was asked may have been carried out",
        reason="OWNER_LOST",
        metadata={"server": server, "member": owner.member},
    )
