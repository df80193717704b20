"""InboxService."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import anyio

from hubbub.v1 import common_pb2
from hubbub.v1 import inbox_pb2 as pb
from hubbubd.core.inbox import PendingRequest
from hubbubd.errors import InvalidArgument
from hubbubd.rpc import convert, pages, requests, watch
from hubbubd.rpc.auth import principal
from hubbubd.rpc.methods import Write
from hubbubd.runtime.broadcast import WatchEvent
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.work import Assigned, Over, Step, Work, Worker


class InboxService:
    """Everything that servers ask."""

    def __init__(self, inbox: Inbox, work: Work) -> None:
        self._inbox = inbox
        self._work = work

    def watch_inbox(self, request: pb.WatchInboxRequest) -> AsyncGenerator[bytes, None]:
        """Snapshot and changes."""
        events = self._inbox.watch(requests.request_filter(request.filter), request.resume_token)
        return watch.responses(self._shown(events), pb.WatchInboxResponse, convert.request)

    async def _shown(
        self, events: AsyncIterator[WatchEvent[PendingRequest]]
    ) -> AsyncGenerator[WatchEvent[PendingRequest]]:
        async with aclosing(cast("AsyncGenerator[WatchEvent[PendingRequest]]", events)) as steps:
            async for event in steps:
                if event.record is not None:
                    self._inbox.shown(event.record, principal.get())
                yield event

    async def list_requests(self, request: pb.ListRequestsRequest) -> pb.ListRequestsResponse:
        """A page of pending requests, newest first."""
        records = self._inbox.select(requests.request_filter(request.filter))
        found, token = pages.page(records, request.page, pages.newest, self._show, request.filter)
        return pb.ListRequestsResponse(requests=found, next_page_token=token)

    async def get_request(self, request: pb.GetRequestRequest) -> pb.GetRequestResponse:
        """One pending request."""
        record = self._inbox.get(requests.identifier(request.id, "id"))
        return pb.GetRequestResponse(request=self._show(record))

    def _show(self, record: PendingRequest) -> pb.PendingRequest:
        self._inbox.shown(record, principal.get())
        return convert.request(record)

    async def claim_request(self, request: pb.ClaimRequestRequest) -> pb.ClaimRequestResponse:
        """Leases a request to the caller."""
        request_id, ttl_s = requests.identifier(request.id, "id"), requests.lease_s(request.ttl_s)
        record = await self._inbox.claim(request_id, principal.get(), ttl_s)
        return pb.ClaimRequestResponse(request=convert.request(record, with_claim_id=True))

    async def renew_claim(self, request: pb.RenewClaimRequest) -> pb.RenewClaimResponse:
        """Prolongs a claim."""
        request_id, claim_id = requests.identifier(request.id, "id"), requests.identifier(request.claim_id, "claim_id")
        record = await self._inbox.renew(request_id, claim_id, requests.lease_s(request.ttl_s))
        return pb.RenewClaimResponse(request=convert.request(record, with_claim_id=True))

    async def release_request(self, request: pb.ReleaseRequestRequest) -> pb.ReleaseRequestResponse:
        """Gives a claim back."""
        request_id, claim_id = requests.identifier(request.id, "id"), requests.identifier(request.claim_id, "claim_id")
        record = await self._inbox.release(request_id, claim_id)
        return pb.ReleaseRequestResponse(request=convert.request(record))

    async def answer_request(self, request: pb.AnswerRequestRequest) -> pb.AnswerRequestResponse:
        """Answers a request, once and durably."""
        record = await self._inbox.answer(
            requests.identifier(request.id, "id"),
            requests.given_answer(request),
            principal.get(),
            answer_id=requests.optional(request.answer_id, "answer_id"),
            claim_id=requests.optional(request.claim_id, "claim_id"),
        )
        return pb.AnswerRequestResponse(request=convert.request(record))

    async def work(self, steps: AsyncIterator[pb.WorkRequest], write: Write) -> None:
        """Hands requests to a worker, for as long as it listens."""
        first = await anext(steps, None)
        if first is None or first.WhichOneof("step") != "ready":
            raise InvalidArgument.field("ready", "the first message must say who is ready for what")
        chosen = replace(requests.request_filter(first.ready.filter), states=frozenset())
        capacity = requests.capacity(first.ready.capacity)
        with self._work.join(principal.get(), chosen, capacity) as worker:
            async with anyio.create_task_group() as both, aclosing(self._work.steps(worker)) as told:
                both.start_soon(self._skips, steps, worker)
                async for step in told:
                    await write(_work_response(step).SerializeToString())

    async def _skips(self, steps: AsyncIterator[pb.WorkRequest], worker: Worker) -> None:
        async for step in steps:
            if step.WhichOneof("step") != "skip":
                raise InvalidArgument.field("step", "after the first message only `skip` is taken")
            self._work.skip(worker, requests.identifier(step.skip.id, "skip.id"))


def _work_response(step: Step) -> pb.WorkResponse:
    match step:
        case Assigned(request):
            return pb.WorkResponse(assigned=convert.request(request, with_claim_id=True))
        case Over(id=request_id, state=state):
            return pb.WorkResponse(over=pb.Over(id=request_id, state=convert.REQUEST_STATES[state]))
        case None:
            return pb.WorkResponse(bookmark=common_pb2.Bookmark())
