"""CallService: calls of MCP methods."""

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

from google.protobuf.message import Message

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import inbox_pb2
from hubbubd.core.access import Permission
from hubbubd.core.calls.call_states import Call
from hubbubd.errors import UpstreamError
from hubbubd.rpc.auth import access
from hubbubd.rpc.auth.permissions import permission_to_send
from hubbubd.rpc.context import principal
from hubbubd.rpc.messages import api_records, pages, requests, watch
from hubbubd.rpc.methods import RpcSettings, Unary, Write
from hubbubd.rpc.servicers.call_stream import CallStreamServer
from hubbubd.runtime.calls import Calls, CallSpec, LogEvent, ProgressEvent
from hubbubd.runtime.inbox import Work

CALL_METHOD = pb.DESCRIPTOR.services_by_name["CallService"].methods_by_name["CallMethod"]
ANSWER_METHOD = inbox_pb2.DESCRIPTOR.services_by_name["InboxService"].methods_by_name["AnswerPendingRequest"]


class CallService:
    """Implements hubbub.v1.CallService."""

    def __init__(self, calls: Calls, work: Work, answer: Unary, settings: RpcSettings) -> None:
        """`answer` is AnswerPendingRequest, as InboxService has it."""
        self._calls = calls
        self._streams = CallStreamServer(
            calls=calls,
            work=work,
            serve=settings.wrap(CALL_METHOD, self.call_method),
            answer=settings.wrap(ANSWER_METHOD, answer),
            hold=settings.hold,
            max_request_bytes=settings.max_message_bytes,
        )

    async def call_method(self, request: pb.CallMethodRequest) -> pb.CallMethodResponse:
        """Make a call, wait for its end, and return it. Raises UpstreamError with the fault of a call that failed."""
        call = await self._calls.call(_parse_spec(request.spec), principal().name, detached=request.detached)
        if call.fault is not None:
            failure = UpstreamError(call.fault)
            failure.metadata["call_id"] = call.id
            raise failure
        return pb.CallMethodResponse(call=_render_call(call))

    async def stream_calls(self, steps: AsyncIterator[pb.StreamCallsRequest], write: Write) -> None:
        """Make the calls of a stream, each like a CallMethod of its own, and send how each ends."""
        await self._streams.run(steps, write)

    async def start_call(self, request: pb.StartCallRequest) -> pb.StartCallResponse:
        """Queue a detached call; durable when this returns."""
        call = await self._calls.start(_parse_spec(request.spec), principal().name)
        return pb.StartCallResponse(call=_render_call(call))

    def watch_calls(self, request: pb.WatchCallsRequest) -> AsyncGenerator[bytes, None]:
        """Stream calls: snapshot, then changes, with progress and log messages in between."""
        events = self._calls.watch(requests.call_filter(request.filter, access.visible_scope()), request.resume_token)
        return watch.serialize_events(
            events,
            pb.WatchCallsResponse,
            partial(api_records.call, seen=access.visible_scope()),
            _live_event_fields,
            batches=request.allow_batches,
        )

    async def get_call(self, request: pb.GetCallRequest) -> pb.GetCallResponse:
        """Return a call that the caller may see."""
        call = access.check_call(self._calls.get(requests.identifier(request.id, "id")))
        return pb.GetCallResponse(call=_render_call(call))

    async def list_calls(self, request: pb.ListCallsRequest) -> pb.ListCallsResponse:
        """Return a page of calls, newest first."""
        scope = access.visible_scope()
        call_filter = requests.call_filter(request.filter, scope)
        calls, token = pages.page_ordered(
            lambda after: self._calls.newest(call_filter, pages.age_position(after), pages.is_oldest_first(request)),
            request,
            pages.newest_position,
            _render_call,
            list_filter=request.filter,
            scope=scope,
        )
        return pb.ListCallsResponse(calls=calls, next_page_token=token)

    async def cancel_call(self, request: pb.CancelCallRequest) -> pb.CancelCallResponse:
        """Cancel a call that is queued or waits for input, with `abort` also a call in progress; return the call."""
        visible_call = access.check_call(self._calls.get(requests.identifier(request.id, "id")), Permission.OPERATE)
        call = await self._calls.cancel(visible_call.id, abort=request.abort)
        return pb.CancelCallResponse(call=_render_call(call))

    async def get_queue(self, request: pb.GetQueueRequest) -> pb.GetQueueResponse:
        """Return the numbers of a server's calls by state."""
        server = access.check_server(requests.identifier(request.server, "server"), Permission.OPERATE)
        counts = self._calls.counts(server)
        return pb.GetQueueResponse(counts=api_records.counts(counts))

    async def clear_queue(self, request: pb.ClearQueueRequest) -> pb.ClearQueueResponse:
        """Cancel all queued calls of a server; return how many, and the numbers of its calls afterwards."""
        server = access.check_server(requests.identifier(request.server, "server"), Permission.OPERATE)
        cleared = await self._calls.clear_queue(server)
        return pb.ClearQueueResponse(cleared=cleared, counts=api_records.counts(self._calls.counts(server)))


def _render_call(record: Call) -> pb.Call:
    """Return a call as a message, as far as the caller may see it."""
    return api_records.call(record, access.visible_scope())


def _parse_spec(message: pb.CallSpec) -> CallSpec:
    """Return the spec of a call that the caller may make. Raises InvalidArgument, NotFound, PermissionDenied."""
    spec = requests.parse_call_spec(message, principal().call_origin(message.server))
    access.check_server(spec.server, permission_to_send(spec.method))
    return spec


def _live_event_fields(event: object) -> dict[str, Message]:
    """Return the field of a watch response that has a live event, by its name. Raises TypeError."""
    match event:
        case ProgressEvent():
            return {"progress": api_records.progress(event)}
        case LogEvent():
            return {"log": api_records.call_log(event)}
        case _:
            raise TypeError(f"a call has no live event {type(event).__name__}")
