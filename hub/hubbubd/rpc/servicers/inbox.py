"""InboxService: pending requests, claims, answers, workers."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import anyio

from hubbub.v1 import common_pb2
from hubbub.v1 import inbox_pb2 as pb
from hubbubd.core.access import Permission
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.errors import InvalidArgument
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import current, principal
from hubbubd.rpc.messages import api_records, pages, requests, watch
from hubbubd.rpc.methods import Write
from hubbubd.runtime.inbox import Assigned, AssignmentOver, Inbox, Step, Work, Worker


class InboxService:
    """Implements hubbub.v1.InboxService."""

    def __init__(self, inbox: Inbox, work: Work) -> None:
        self._inbox = inbox
        self._work = work

    def watch_pending_requests(self, request: pb.WatchPendingRequestsRequest) -> AsyncGenerator[bytes, None]:
        """Stream pending requests: snapshot, then changes; notes who was shown which."""
        events = self._inbox.watch(
            requests.request_filter(request.filter, access.visible_scope()), request.resume_token
        )
        return watch.serialize_events(
            events,
            pb.WatchPendingRequestsResponse,
            api_records.request,
            on_shown=partial(self._inbox.note_view, principal=principal().name),
            batches=request.allow_batches,
        )

    async def list_pending_requests(self, request: pb.ListPendingRequestsRequest) -> pb.ListPendingRequestsResponse:
        """Return a page of pending requests, newest first."""
        scope = access.visible_scope()
        request_filter = requests.request_filter(request.filter, scope)
        page, token = pages.page_ordered(
            lambda after: self._inbox.newest(request_filter, pages.age_position(after), pages.is_oldest_first(request)),
            request,
            pages.newest_position,
            self._render_and_note_view,
            list_filter=request.filter,
            scope=scope,
        )
        return pb.ListPendingRequestsResponse(pending_requests=page, next_page_token=token)

    async def get_pending_request(self, request: pb.GetPendingRequestRequest) -> pb.GetPendingRequestResponse:
        """Return a pending request, and note that the caller has seen it."""
        record = access.check_request(self._inbox.get(requests.identifier(request.id, "id")))
        return pb.GetPendingRequestResponse(pending_request=self._render_and_note_view(record))

    def _render_and_note_view(self, record: PendingRequest) -> pb.PendingRequest:
        """Return a record as a message, and note that the caller has seen it."""
        self._inbox.note_view(record, principal().name)
        return api_records.request(record)

    async def claim_pending_request(self, request: pb.ClaimPendingRequestRequest) -> pb.ClaimPendingRequestResponse:
        """Lease a request to the caller. Only the holder of a claim gets its id back."""
        request_id = requests.identifier(request.id, "id")
        ttl_s = requests.lease_s(request.ttl)
        claim_id = requests.claim_id(request.claim_id)
        answerable, by = self._get_answerable(request_id), principal().name
        record = await self._inbox.claim(answerable.id, by, ttl_s, claim_id=claim_id, take_over=request.take_over)
        return pb.ClaimPendingRequestResponse(pending_request=api_records.request(record, with_claim_id=True))

    async def renew_claim(self, request: pb.RenewClaimRequest) -> pb.RenewClaimResponse:
        """Extend the caller's claim, and return the request with it."""
        claim_id = requests.identifier(request.claim_id, "claim_id")
        ttl_s = requests.lease_s(request.ttl)
        record = await self._inbox.renew(self._get_answerable(request.id, claim_id).id, claim_id, ttl_s)
        return pb.RenewClaimResponse(pending_request=api_records.request(record, with_claim_id=True))

    async def release_pending_request(
        self, request: pb.ReleasePendingRequestRequest
    ) -> pb.ReleasePendingRequestResponse:
        """Release the caller's claim, and return the request."""
        claim_id = requests.identifier(request.claim_id, "claim_id")
        record = await self._inbox.release(self._get_answerable(request.id, claim_id).id, claim_id)
        return pb.ReleasePendingRequestResponse(pending_request=api_records.request(record))

    async def answer_pending_request(self, request: pb.AnswerPendingRequestRequest) -> pb.AnswerPendingRequestResponse:
        """Answer a request; durable when this returns."""
        caller = principal()
        answer = requests.parse_answer(request, caller.groups)
        answer_id = requests.optional_identifier(request.answer_id, "answer_id")
        claim_id = requests.optional_identifier(request.claim_id, "claim_id")
        answerable = self._get_answerable(request.id, claim_id)
        record = await self._inbox.answer(answerable.id, answer, caller.name, answer_id=answer_id, claim_id=claim_id)
        return pb.AnswerPendingRequestResponse(pending_request=api_records.request(record))

    async def work(self, steps: AsyncIterator[pb.WorkRequest], write: Write) -> None:
        """Assign requests to the caller, as a worker, for as long as the stream lives. Raises InvalidArgument."""
        first = await anext(steps, None)
        if first is None or first.WhichOneof("step") != "ready":
            raise InvalidArgument.field("ready", "the first message must say who is ready for what")
        # Only open requests are assigned, whatever states the filter names.
        request_filter = replace(
            requests.request_filter(first.ready.filter, access.answerable_scope()), states=frozenset()
        )
        capacity = requests.worker_capacity(first.ready.capacity)
        with self._work.join(principal().name, request_filter, capacity, current().is_credential_valid) as worker:
            async with anyio.create_task_group() as tasks, aclosing(self._work.steps(worker)) as assignments:
                tasks.start_soon(self._read_skips, steps, worker)
                async for step in assignments:
                    await write(_work_response(step).SerializeToString())

    def _get_answerable(self, request_id: str, claim_id: str | None = None) -> PendingRequest:
        """Return the request if the caller may answer it and owns the claim. Raises NotFound and PermissionDenied."""
        record = access.check_request(self._inbox.get(requests.identifier(request_id, "id")), Permission.ANSWER)
        if claim_id is not None:
            access.check_claim(record, claim_id)
        return record

    async def _read_skips(self, steps: AsyncIterator[pb.WorkRequest], worker: Worker) -> None:
        """Read the skips of a worker, and carry them out, until the stream ends. Raises InvalidArgument."""
        async for step in steps:
            if step.WhichOneof("step") != "skip":
                raise InvalidArgument.field("step", "after the first message only `skip` is taken")
            self._work.skip(worker, requests.identifier(step.skip.id, "skip.id"))


def _work_response(step: Step) -> pb.WorkResponse:
    """Return the message for a step of a worker: an assignment, its end, or a sign of life for None."""
    match step:
        case Assigned(request):
            return pb.WorkResponse(assigned=api_records.request(request, with_claim_id=True))
        case AssignmentOver(id=request_id, state=state):
            return pb.WorkResponse(
                revoked=pb.WorkResponse.Revoked(id=request_id, state=api_records.REQUEST_STATES[state])
            )
        case None:
            return pb.WorkResponse(bookmark=common_pb2.WatchBookmark())
