"""The receiving side: carries out what other members forward. It forwards nothing itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import grpc

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbub_shared import __version__
from hubbubd.errors import FailedPrecondition, HubError, InvalidArgument, Unauthenticated, Unavailable
from hubbubd.rpc import revision, status
from hubbubd.rpc.auth.permissions import RULES, ExecutingMember
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.fleet.changes import OwnershipChanges
from hubbubd.rpc.fleet.forwards.caller_context import adopt_caller
from hubbubd.rpc.fleet.live_events import stream_live_events
from hubbubd.rpc.messages import values
from hubbubd.rpc.methods import Rpc
from hubbubd.runtime.calls import LiveCalls
from hubbubd.runtime.ownership import Ownership
from hubbubd.store import Store

SERVICE = pb.DESCRIPTOR.services_by_name["FleetService"]

URI_PREFIX = "hubbub:member:"
"""The start of the URI name in a member's certificate; the member's name follows."""


class _Lost(Unavailable):
    """This member has lost the server while it served an RPC about it."""


class FleetService:
    """Implements hubbub.fleet.v1.FleetService with the servicers of the API, without their middleware."""

    def __init__(
        self,
        rpcs: Mapping[str, Rpc],
        calls: LiveCalls,
        ownership: Ownership,
        changes: OwnershipChanges,
        store: Store,
        *,
        name: str,
        term: int,
        clock_ahead_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`rpcs` are all of the API, by path; `name` and `term` (its number) are this member's.

        `clock_ahead_s` returns by how much the database's clock is ahead of this machine's.
        """
        self._clock_ahead_s = clock_ahead_s
        self._rpcs = {
            path: rpc for path, rpc in rpcs.items() if RULES[path].executed_by is not ExecutingMember.RECEIVER
        }
        self._live_calls = calls
        self._ownership = ownership
        self._changes = changes
        self._store = store
        self._name = name
        self._term = term

    def make_handler(self) -> grpc.GenericRpcHandler:
        """Return the gRPC handler of the service, through which other members forward RPCs and say hello."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "Forward": unary(self._forward, pb.ForwardRequest.FromString, pb.ForwardResponse.SerializeToString),
            "ForwardStream": stream(
                self._forward_stream,
                pb.ForwardStreamRequest.FromString,
                pb.ForwardStreamResponse.SerializeToString,
            ),
            "Live": stream(self._live, pb.LiveRequest.FromString, pb.LiveResponse.SerializeToString),
            "Hello": unary(self._hello, pb.HelloRequest.FromString, pb.HelloResponse.SerializeToString),
        }
        return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)

    async def _forward(self, request: pb.ForwardRequest, context: status.Context) -> pb.ForwardResponse:
        """Carry out an RPC with one response that another member forwards."""
        try:
            rpc = self._open_rpc(request.opening, context)
        except HubError as exc:
            await status.abort(context, exc)
        try:
            response = await rpc.serve(rpc.parse(request.request))
            outcome = pb.ForwardResponse(response=response.SerializeToString())
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            outcome = pb.ForwardResponse(failed=status.status_of(exc).SerializeToString())
        except asyncio.CancelledError:
            # UNAVAILABLE: the RPC was taken. gRPC itself may end it with CANCELLED, which means that it was not.
            await status.abort(context, _Lost(f"{self._name} has broken it off", reason="OWNER_LOST"))
        # With this revision the caller's own member waits for what was committed, before it responds to the caller.
        context.set_trailing_metadata(((revision.METADATA_KEY, revision.format_revision(self._store)),))
        return outcome

    async def _forward_stream(self, request: pb.ForwardStreamRequest, context: status.Context) -> None:
        """Carry out an RPC with many responses that another member forwards."""
        # Streams only read, so the sender may start a stream again whose handler was cancelled.
        try:
            rpc = self._open_rpc(request.opening, context)
        except HubError as exc:
            await status.abort(context, exc)
        try:
            # Ahead of the first response: gRPC would send it again with the status of a stream that ends in between.
            await context.send_initial_metadata(())
            async with (
                self._while_owned(request.opening.server),
                aclosing(rpc.serve(rpc.parse(request.request))) as steps,
            ):
                async for response in steps:
                    await context.write(pb.ForwardStreamResponse(response=response))
        except grpc.aio.InternalError:
            return  # the other member has disconnected while a response was being written
        except _Lost as exc:
            # Not as a response: one may still be on its way, and gRPC takes no other before its end.
            await status.abort(context, exc)
        except Exception as exc:  # noqa: BLE001
            await context.write(pb.ForwardStreamResponse(failed=status.status_of(exc).SerializeToString()))

    @asynccontextmanager
    async def _while_owned(self, server: str) -> AsyncGenerator[None]:
        """Cancel the block once this member has lost the server; never for an empty name. Raises _Lost (OWNER_LOST)."""
        if not server:
            yield
            return
        lost = asyncio.create_task(self._changes.wait_until(lambda: not self._ownership.owns(server), server))
        with anyio.CancelScope() as scope:
            lost.add_done_callback(lambda done: None if done.cancelled() else scope.cancel())
            try:
                yield
            finally:
                lost.cancel()
        if scope.cancelled_caught:
            raise _Lost(
                f"{self._name} does not have {server} any more",
                reason="OWNER_LOST",
                metadata={"server": server, "member": self._name},
            )

    async def _live(self, _request: pb.LiveRequest, context: status.Context) -> None:
        """Stream progress and log messages of this member's calls to another member."""
        try:
            _check_member(context)
        except HubError as exc:
            await status.abort(context, exc)
        with suppress(grpc.aio.InternalError):  # the other member disconnected while an event was being written
            async with aclosing(stream_live_events(self._live_calls, self._ownership)) as events:
                async for event in events:
                    await context.write(event)

    async def _hello(self, _request: pb.HelloRequest, context: status.Context) -> pb.HelloResponse:
        """Return this member's name, term, version and clock offset to another member."""
        try:
            _check_member(context)
        except HubError as exc:
            await status.abort(context, exc)
        offset = values.duration(self._clock_ahead_s())
        return pb.HelloResponse(member=self._name, life=self._term, version=__version__, clock_offset=offset)

    def _open_rpc(self, opening: pb.Opening, context: status.Context) -> Rpc:
        """Return the RPC that an opening names, and make the caller in the opening the caller of the current RPC.

        Raises Unauthenticated, InvalidArgument, and FailedPrecondition (NOT_OWNER).
        """
        _check_member(context)
        rpc = self._rpcs.get(opening.method)
        if rpc is None:
            raise InvalidArgument.field("opening.method", f"{opening.method} is not forwarded")
        if opening.server or RULES[opening.method].executed_by is ExecutingMember.OWNER:
            self._check_owner(opening.server)
        adopt_caller(opening)
        amend_context(address=context.peer(), remaining=context.time_remaining)
        return rpc

    def _check_owner(self, server: str) -> None:
        """Raise FailedPrecondition (NOT_OWNER) unless this member has the server."""
        if self._ownership.owns(server):
            return
        owner = self._ownership.owner(server)
        owner_metadata = {"owner": owner.member, "life": str(owner.term)} if owner is not None else {}
        raise FailedPrecondition(
            f"{self._name} does not have the server {server}",
            reason="NOT_OWNER",
            metadata={"server": server, "member": self._name, **owner_metadata},
        )


def _check_member(context: status.Context) -> None:
    """Raise Unauthenticated for a peer whose certificate is not a member's; TLS has verified its signature."""
    names = context.auth_context().get("peer_uri", ())  # pyright: ignore
    if not any(bytes(name).startswith(URI_PREFIX.encode()) for name in names):
        raise Unauthenticated(
            f"only members may connect here: the certificate needs the URI name {URI_PREFIX}NAME", reason="NAME_INVALID"
        )
