"""CallService."""

from collections.abc import AsyncGenerator

from google.protobuf.message import Message

from hubbub.v1 import call_pb2 as pb
from hubbubd.errors import UpstreamError
from hubbubd.rpc import convert, pages, requests, watch
from hubbubd.rpc.auth import principal
from hubbubd.runtime.calls import Calls, LogEvent, ProgressEvent


class CallService:
    """What frontends send to servers."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def call_method(self, request: pb.CallMethodRequest) -> pb.CallMethodResponse:
        """Sends a request and waits for its end; one that fails ends the RPC with the call's own fault."""
        call = await self._calls.call(requests.call_spec(request.spec), principal.get().name, detached=request.detached)
        if call.fault is not None:
            failure = UpstreamError(call.fault)
            failure.metadata["call_id"] = call.id
            raise failure
        return pb.CallMethodResponse(call=convert.call(call))

    async def start_call(self, request: pb.StartCallRequest) -> pb.StartCallResponse:
        """Queues a detached call."""
        call = await self._calls.start(requests.call_spec(request.spec), principal.get().name)
        return pb.StartCallResponse(call=convert.call(call))

    def watch_calls(self, request: pb.WatchCallsRequest) -> AsyncGenerator[bytes, None]:
        """Snapshot and changes, with progress and log lines in between."""
        events = self._calls.watch(requests.call_filter(request.filter), request.resume_token)
        return watch.responses(events, pb.WatchCallsResponse, convert.call, _live)

    async def get_call(self, request: pb.GetCallRequest) -> pb.GetCallResponse:
        """One call."""
        return pb.GetCallResponse(call=convert.call(self._calls.get(requests.identifier(request.id, "id"))))

    async def list_calls(self, request: pb.ListCallsRequest) -> pb.ListCallsResponse:
        """A page of calls, newest first."""
        records = self._calls.select(requests.call_filter(request.filter))
        found, token = pages.page(records, request.page, pages.newest, convert.call, request.filter)
        return pb.ListCallsResponse(calls=found, next_page_token=token)

    async def cancel_call(self, request: pb.CancelCallRequest) -> pb.CancelCallResponse:
        """Ends a call."""
        call = await self._calls.cancel(requests.identifier(request.id, "id"), abort=request.abort)
        return pb.CancelCallResponse(call=convert.call(call))

    async def get_queue(self, request: pb.GetQueueRequest) -> pb.GetQueueResponse:
        """A server's calls in numbers."""
        counts = self._calls.counts(requests.identifier(request.server, "server"))
        return pb.GetQueueResponse(counts=convert.counts(counts))

    async def clear_queue(self, request: pb.ClearQueueRequest) -> pb.ClearQueueResponse:
        """Cancels a server's queued calls."""
        server = requests.identifier(request.server, "server")
        cleared = await self._calls.clear(server)
        return pb.ClearQueueResponse(cleared=cleared, counts=convert.counts(self._calls.counts(server)))


def _live(event: object) -> dict[str, Message]:
    match event:
        case ProgressEvent():
            return {"progress": convert.progress(event)}
        case LogEvent():
            return {"log": convert.call_log(event)}
        case _:
            raise TypeError(f"a call has no live event {type(event).__name__}")
