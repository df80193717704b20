"""Calls that this hub makes on behalf of MCP hosts, of servers that other members have."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
import grpc

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import event_pb2
from hubbub_shared.durations import to_duration
from hubbubd import bounds
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.calls.call_states import Call, CallOrigin, CallState
from hubbubd.core.tally import Tally
from hubbubd.errors import Category, FailedPrecondition, Fault, HubError, NotFound, UpstreamError
from hubbubd.rpc import status
from hubbubd.rpc.context import current
from hubbubd.rpc.fleet.changes import cancel_and_wait
from hubbubd.rpc.fleet.forwards.forwarding import ForwardedRpc, Forwarding, find_call_timeout_s
from hubbubd.rpc.fleet.forwards.subjects import is_known_server
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

RECORD_S = 2.0
"""Seconds to wait until this member has the record that another member has written."""

SERVICE = "/hubbub.v1.CallService/"
WATCH_RESOURCE = "/hubbub.v1.EventService/WatchResource"

RETRY_S = 1.0
"""Seconds until a resource is watched again after its member was lost."""


class CallsElsewhere:
    """Implements `runtime.calls.Elsewhere`: has the owners of servers make calls."""

    def __init__(self, hub: Hub, forwarding: Forwarding) -> None:
        self._hub = hub
        self._forwarding = forwarding
        self._awaited_calls = Tally()  # ids of the calls that callers here wait for

    def has_server(self, server: str) -> bool:
        """Return whether another member has the server, and this request may be forwarded to it."""
        return self.may_forward() and not self._hub.ownership.owns(server) and is_known_server(self._hub, server)

    def may_forward(self) -> bool:
        """Return whether the current request may be forwarded: it may not if another member has forwarded it."""
        return not current().is_forwarded

    async def call(self, spec: CallSpec, principal: str, *, detached: bool) -> Call:
        """Have the member that owns the server make a call; return the call at its end, failed or not.

        The call is made here if this member has come to own the server. Raises HubError if no call was made.
        """
        request = pb.CallMethodRequest(spec=_render_spec(spec), detached=detached)
        self._awaited_calls.add(spec.call_id or "")
        try:
            response = await self._forward("CallMethod", spec, principal, request, pb.CallMethodResponse)
        except HubError as exc:
            if self._is_owned_now(exc, spec.server):
                return await self._hub.calls.call(spec, principal, detached=detached)
            call_id = exc.metadata.get("call_id")
            if call_id is None or not isinstance(exc, status.Passed):
                raise  # the call was not made
            ended_call = await self._wait_for_record(call_id, lambda call: call.state.ended)
            return ended_call or _provisional_call(spec, principal, call_id, detached, fault=_parse_fault(exc))
        finally:
            self._awaited_calls.subtract(spec.call_id or "")
        completed = response.call
        return _provisional_call(
            spec, principal, completed.id, detached, result=completed.result, task_id=completed.task_id or None
        )

    async def start(self, spec: CallSpec, principal: str) -> Call:
        """Have the member that owns the server queue a detached call, and return the call. Raises HubError.

        The call is queued here if this member has come to own the server.
        """
        request = pb.StartCallRequest(spec=_render_spec(spec))
        try:
            response = await self._forward("StartCall", spec, principal, request, pb.StartCallResponse)
        except HubError as exc:
            if not self._is_owned_now(exc, spec.server):
                raise
            return await self._hub.calls.start(spec, principal)
        recorded = await self._wait_for_record(response.call.id, lambda call: call.detached)
        return recorded or _provisional_call(spec, principal, response.call.id, detached=True)

    async def cancel(self, call: Call, *, abort: bool) -> Call:
        """Have the member that owns the server cancel a call; return the newest record known here. Raises HubError."""
        request = pb.CancelCallRequest(id=call.id, abort=abort)
        await self._forward("CancelCall", call, call.principal, request, pb.CancelCallResponse)
        return await self._wait_for_record(call.id, lambda call: call.state.ended) or call

    def _is_owned_now(self, error: HubError, server: str) -> bool:
        """Return whether nothing was carried out elsewhere, and this member has the server by now."""
        return error.reason == "OWNER_CHANGING" and self._hub.ownership.owns(server)

    async def end_unless_awaited(self, call: Call) -> None:
        """Abort a call at its server's owner, unless it has ended or a caller waits for it; errors are ignored."""
        if not call.state.ended and not self._awaited_calls[call.id]:
            with suppress(HubError):
                await self.cancel(call, abort=True)

    @asynccontextmanager
    async def follow_resource(
        self, server: str, uri: str, principal: str, on_change: Callable[[str], None]
    ) -> AsyncGenerator[anyio.Event]:
        """Watch a resource at its server's owner during the block.

        Yields an event that is set if the watch fails later. `on_change` gets the URI at each change. Raises
        UpstreamError and HubError if the watch cannot begin.
        """
        body = event_pb2.WatchResourceRequest(server=server, uri=uri).SerializeToString()
        rpc = ForwardedRpc(WATCH_RESOURCE, server, _forwarding_principal(principal, server), body)
        has_failed = anyio.Event()

        async def open_watch() -> AsyncGenerator[bytes, None]:
            return await self._forwarding.open_stream(rpc)

        try:
            updates = await open_watch()
            await _read_update(updates)  # the first shows that the server has accepted the subscription
        except status.Passed as exc:
            raise _as_runtime_error(exc) from None
        follower = asyncio.create_task(self._forward_updates(updates, open_watch, uri, on_change))
        follower.add_done_callback(lambda _: has_failed.set())
        try:
            yield has_failed
        finally:
            await cancel_and_wait(follower)

    async def _forward_updates(
        self,
        updates: AsyncGenerator[bytes, None],
        open_watch: Callable[[], Awaitable[AsyncGenerator[bytes, None]]],
        uri: str,
        on_change: Callable[[str], None],
    ) -> None:
        """Call `on_change` for each update; watch again after an end or UNAVAILABLE, return on any other error."""
        while True:
            try:
                async with aclosing(updates):
                    while await _read_update(updates):
                        on_change(uri)
            except HubError as exc:
                if status.code_of(exc) is not grpc.StatusCode.UNAVAILABLE:
                    return
            updates = await self._watch_again(open_watch)  # its first update stands for those missed meanwhile

    async def _watch_again(
        self, open_watch: Callable[[], Awaitable[AsyncGenerator[bytes, None]]]
    ) -> AsyncGenerator[bytes, None]:
        """Open the watch again, trying every RETRY_S until the owner is reached, and return it. Raises HubError."""
        while True:
            await anyio.sleep(RETRY_S)
            try:
                return await open_watch()
            except HubError as exc:
                if status.code_of(exc) is not grpc.StatusCode.UNAVAILABLE:
                    raise

    async def _forward(
        self, method: str, subject: CallSpec | Call, principal: str, request: Any, response_type: Any
    ) -> Any:
        """Have the server's owner carry out an RPC of CallService, and return its response. Raises HubError."""
        rpc = ForwardedRpc(
            f"{SERVICE}{method}",
            subject.server,
            _forwarding_principal(principal, subject.server, subject.origin),
            request.SerializeToString(),
            find_call_timeout_s(request),
        )
        return response_type.FromString(await self._forwarding.send(rpc))

    async def _wait_for_record(self, call_id: str, holds: Callable[[Call], bool]) -> Call | None:
        """Return the record of a call once a condition holds for it; None if that takes longer than RECORD_S."""
        found = anyio.Event()

        def set_if_holds(call: Call, _live: object) -> None:
            if holds(call):
                found.set()

        with self._hub.calls.listen(call_id, set_if_holds):
            try:
                if holds(call := self._hub.calls.get(call_id)):
                    return call
            except NotFound:
                pass  # the record has not come to this member yet
            with anyio.move_on_after(RECORD_S):
                await found.wait()
                return self._hub.calls.get(call_id)
        return None


async def _read_update(updates: AsyncGenerator[bytes, None]) -> bool:
    """Wait for the next update of a watched resource and return True; False at the end of the watch."""
    async for raw in updates:
        if event_pb2.WatchResourceResponse.FromString(raw).HasField("update"):
            return True
    return False


def _forwarding_principal(name: str, server: str, origin: CallOrigin | None = None) -> Principal:
    """Return a principal for a forward, with only the grants that calls of this server need.

    The permission of the real caller was checked before.
    """
    grants = Grant(Role.CALLER, (server,)), Grant(Role.OPERATOR, (server,))
    return Principal(name=name, grants=grants, credential="", origin=origin)


def _as_runtime_error(exc: status.Passed) -> Exception:
    """Return the error of another member as the exception class that the runtime catches for it."""
    if "category" in exc.metadata:
        return UpstreamError(_parse_fault(exc))
    if status.code_of(exc) is grpc.StatusCode.FAILED_PRECONDITION:
        return FailedPrecondition(exc.message, reason=exc.reason, metadata=exc.metadata)
    return exc


def _render_spec(spec: CallSpec) -> pb.CallSpec:
    """Return the spec of a call as a message; its origin goes with the principal."""
    return pb.CallSpec(
        server=spec.server,
        method=spec.method,
        params=spec.params,
        call_id=spec.call_id or "",
        timeout=None if spec.timeout_s is None else to_duration(spec.timeout_s),
        max_duration=None if spec.max_s is None else to_duration(spec.max_s),
        as_task=spec.as_task,
    )


def _provisional_call(
    spec: CallSpec,
    principal: str,
    call_id: str,
    detached: bool,
    *,
    result: bytes | None = None,
    task_id: str | None = None,
    fault: Fault | None = None,
) -> Call:
    """Return a call with the fields that its caller needs, before its record is known here.

    Its state is queued; with a `result` completed, with a `fault` failed.
    """
    state = CallState.QUEUED if result is None else CallState.COMPLETED
    return Call(
        id=call_id,
        server=spec.server,
        method=spec.method,
        params=spec.params,
        principal=principal,
        detached=detached,
        timeout_s=spec.timeout_s or 0.0,
        max_s=spec.max_s or 0.0,
        created_at=0.0,  # not known here
        state=state if fault is None else CallState.FAILED,
        result=result,
        fault=fault,
        task_id=task_id,
        as_task=spec.as_task,
    )


def _parse_fault(exc: status.Passed) -> Fault:
    """Return the fault in an error of another member; its category is `server` if the error names no known one."""
    categories = {category.value: category for category in Category}
    category = categories.get(exc.metadata.get("category", ""), Category.SERVER)
    details: dict[str, Any] = dict(exc.metadata)
    code = bounds.parse_whole(details.get("jsonrpc_code", ""), low=-bounds.LARGEST_WHOLE)
    if code is not None:
        details["jsonrpc_code"] = code
    return Fault(code=exc.reason, category=category, message=exc.message, details=details)
