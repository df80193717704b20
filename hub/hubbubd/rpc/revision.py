"""Read your writes across members: a caller sends the revision that it has seen, and gets nothing older.

The metadata `hubbub-revision` is sent in both directions: the id of the store, a space, and the number. A dash means
that the caller has seen nothing yet. A caller that sends it gets the newest revision at the end of each unary RPC, and
in each message of a stream of calls; the resume tokens of watches have it anyway. Other callers get neither.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

import anyio
import grpc

from hubbub.v1 import call_pb2
from hubbubd import bounds
from hubbubd.errors import HubError, InvalidArgument, Unavailable
from hubbubd.rpc import status
from hubbubd.rpc.auth.permissions import RULES, RpcReach
from hubbubd.rpc.context import amend_context, current
from hubbubd.rpc.interceptors import CALL_STREAM_RPC
from hubbubd.rpc.methods import behaviour_name
from hubbubd.store import Store

METADATA_KEY: Final = "hubbub-revision"
NONE_SEEN: Final = "-"
BEHIND_S: Final = 2.0
"""Seconds for which an RPC waits until this member has the revision that its caller has seen."""
RETRY_AFTER_S: Final = 0.5
"""Seconds after which a caller may try a member again that was behind."""

Metadata = tuple[tuple[str, str | bytes], ...]


class Revisions(grpc.aio.ServerInterceptor):
    """Delays RPCs of callers that have seen newer revisions than this member has, and sends callers the newest one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the RPC's handler.

        If the caller's metadata has the revision that it has seen, the handler waits for that revision first.
        """
        handler = await continuation(handler_call_details)
        for key, value in handler_call_details.invocation_metadata:
            if key == METADATA_KEY and handler is not None:
                path = handler_call_details.method
                rule = RULES.get(path)
                # A client without a credential may not make the hub wait.
                is_gated = rule is not None and rule.reach is not RpcReach.OPEN
                return self._wrap_handler(handler, str(value), path == CALL_STREAM_RPC) if is_gated else handler
        return handler

    def _wrap_handler(self, handler: Any, seen_revisions: str, carries_calls: bool) -> Any:
        """Return a handler that waits for the revision that the caller has seen, and sends the newest as metadata.

        On a stream that `carries_calls`, each message has the newest revision, too.
        """
        kind = behaviour_name(handler)
        behaviour = getattr(handler, kind)

        async def serve_when_seen(request: Any, context: status.Context) -> Any:
            """Wait for the revision that the caller has seen, serve the RPC, and send the newest one at its end."""
            revision_context = _RevisionContext(context, self._store, carries_calls=carries_calls)
            # Other members that carry out a part of the RPC note their revisions by this.
            amend_context(note_revision=revision_context.note_revision)
            try:
                await self._wait_until_seen(seen_revisions)
            except HubError as exc:
                await status.abort(cast("status.Context", revision_context), exc)
            response = await behaviour(request, revision_context)
            context.set_trailing_metadata(revision_context.final_metadata)
            return response

        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(serve_when_seen, handler.request_deserializer, handler.response_serializer)

    async def _wait_until_seen(self, seen_revisions: str) -> None:
        """Wait until this member has the revision that the caller has seen, for BEHIND_S at most.

        A caller that has seen nothing, or the revision of another store, is not kept waiting. Raises InvalidArgument,
        and Unavailable (BEHIND) if the revision does not come in time.
        """
        if seen_revisions == NONE_SEEN:
            return
        history, _, number = seen_revisions.partition(" ")
        revision = bounds.parse_whole(number)
        if revision is None:
            raise InvalidArgument.field(
                f"metadata.{METADATA_KEY}", "must be a dash, or the id of a store, a space and a number"
            )
        if history != self._store.id:  # it says nothing of this store
            return
        await wait_for_revision(self._store, revision, BEHIND_S)
        if self._store.revision < revision:
            raise Unavailable(
                f"this member has revision {self._store.revision}, its caller has seen {revision}; nothing was done",
                reason="BEHIND",
                metadata={"revision": str(self._store.revision)},
                retry_after_s=RETRY_AFTER_S,
            )


def format_revision(store: Store, noted_revision: int = 0) -> str:
    """Return the value of `hubbub-revision` for a store: the newer of its revision and the one that was noted."""
    return f"{store.id} {max(store.revision, noted_revision)}"


async def wait_for_revision(store: Store, revision: int, wait_s: float) -> None:
    """Wait until a store has a revision, `wait_s` seconds at most; return in either case."""
    if store.revision >= revision or wait_s <= 0:
        return
    arrived = anyio.Event()
    stop_listening = store.listen(lambda commit: arrived.set() if commit.revision >= revision else None)
    try:
        with anyio.move_on_after(wait_s):
            await arrived.wait()
    finally:
        stop_listening()


async def wait_for_trailing_revision(
    store: Store, trailing_metadata: Iterable[tuple[str, str | bytes]] | None, remaining_s: float | None
) -> None:
    """Wait until this member has the revision in another member's trailing metadata; at most BEHIND_S, `remaining_s`.

    The response names that revision to the caller even if it does not arrive here in time, so that the caller's next
    RPC waits for it at any member. Metadata without a revision of this store is ignored.
    """
    for key, value in trailing_metadata or ():
        history, _, number = str(value).partition(" ")
        revision = bounds.parse_whole(number) if key == METADATA_KEY and history == store.id else None
        if revision is not None:
            current().note_revision(revision)
            await wait_for_revision(store, revision, BEHIND_S if remaining_s is None else min(BEHIND_S, remaining_s))


class _RevisionContext:
    """The context of an RPC; it sends the caller the newest revision, with errors too."""

    def __init__(self, context: status.Context, store: Store, *, carries_calls: bool) -> None:
        self._context = context
        self._store = store
        self._carries_calls = carries_calls
        self._noted_revision = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def note_revision(self, revision: int) -> None:
        """Note a revision of another member, which this member may not have yet, for the trailing metadata."""
        self._noted_revision = max(self._noted_revision, revision)

    def _format_newest(self) -> str:
        return format_revision(self._store, self._noted_revision)

    @property
    def final_metadata(self) -> Metadata:
        """The trailing metadata: the newest revision."""
        return ((METADATA_KEY, self._format_newest()),)

    async def write(self, response: bytes) -> None:
        """Send one response of a stream; on a stream of calls the newest revision goes with it."""
        if self._carries_calls:  # serialized messages one after the other are read as one
            response += call_pb2.StreamCallsResponse(revision=self._format_newest()).SerializeToString()
        await self._context.write(response)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> None:
        """End the RPC with a status, and the newest revision."""
        await self._context.abort(code, details, (*trailing_metadata, *self.final_metadata))
