"""`hub.inbox`: everything that servers ask, and the answers."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hubbub.v1 import inbox_pb2
from hubbub_client import events, numbers, payload, reading
from hubbub_client.events import Upsert, WatchEvent
from hubbub_client.link import Link, Page, pages
from hubbub_client.reading import enum_numbers
from hubbub_client.records import Answering, PendingRequest, RequestKind, RequestState
from hubbub_client.watch import follow
from hubbub_client.work import OnError, Worker


class Inbox:
    """InboxService. Every method raises HubbubError; a request that does not exist is NotFound."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(
        self,
        *,
        server: str | None = None,
        kinds: Collection[RequestKind] = (),
        states: Collection[RequestState] = (),
        call_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        """Pending requests, newest first; every condition given must hold."""
        condition = _filter(server, kinds, states, call_id)

        async def page(which: Page) -> tuple[Sequence[PendingRequest], str]:
            request = inbox_pb2.ListPendingRequestsRequest(filter=condition, **which)
            answer = await self._link.call(lambda hub: hub.inbox.ListPendingRequests, request)
            return [self._read(each) for each in answer.pending_requests], answer.next_page_token

        return await pages(page, limit)

    async def get(self, id: str) -> PendingRequest:  # noqa: A002 - the field's name
        """One pending request."""
        answer = await self._link.call(
            lambda hub: hub.inbox.GetPendingRequest, inbox_pb2.GetPendingRequestRequest(id=id)
        )
        return self._read(answer.pending_request)

    async def claim(
        self,
        id: str,  # noqa: A002
        ttl_s: float = 60,
        *,
        claim_id: str | None = None,
        take_over: bool = False,
    ) -> PendingRequest:
        """Leases an open request for `ttl_s` seconds; the record's claim has the id that answers need.

        With a `claim_id` of one's own (16 to 64 letters, digits, `_` and `-`) it may be repeated: the claim that has
        this id is prolonged. `take_over` also gets what the same name holds already, in another window or program.
        Raises FailedPrecondition, for example ALREADY_CLAIMED (its metadata say by whom, and `own` when by oneself).
        """
        request = inbox_pb2.ClaimPendingRequestRequest(
            id=id, ttl=numbers.duration(ttl_s), claim_id=claim_id or "", take_over=take_over
        )
        answer = await self._link.call(lambda hub: hub.inbox.ClaimPendingRequest, request)
        return self._read(answer.pending_request)

    async def renew(self, id: str, claim_id: str, ttl_s: float = 60) -> PendingRequest:  # noqa: A002
        """Prolongs a claim to `ttl_s` seconds from now."""
        request = inbox_pb2.RenewClaimRequest(id=id, claim_id=claim_id, ttl=numbers.duration(ttl_s))
        answer = await self._link.call(lambda hub: hub.inbox.RenewClaim, request)
        return self._read(answer.pending_request)

    async def release(self, id: str, claim_id: str) -> PendingRequest:  # noqa: A002
        """Gives a claim back."""
        request = inbox_pb2.ReleasePendingRequestRequest(id=id, claim_id=claim_id)
        answer = await self._link.call(lambda hub: hub.inbox.ReleasePendingRequest, request)
        return self._read(answer.pending_request)

    async def answer(
        self,
        id: str,  # noqa: A002
        *,
        accept: Mapping[str, Any] | bool = False,
        decline: bool = False,
        cancel: bool = False,
        text: str | None = None,
        result: Mapping[str, Any] | None = None,
        reject: str | None = None,
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> PendingRequest:
        """Gives exactly one answer; when this returns, it is durable and the only one.

        accept: the content of a form, or True for its defaults; decline, cancel: the other results of an
        elicitation; text: a sampling's assistant message; result: the whole MCP result, for any kind; reject:
        refuses a sampling or a roots request with this message. `answer_id` makes a repeated answer safe.
        Raises InvalidArgument (the request stays open) and FailedPrecondition, for example ALREADY_ANSWERED;
        ValueError when not exactly one answer is given.
        """
        answers: dict[str, Any] = {}
        if accept is not False:
            answers["accept"] = inbox_pb2.AnswerPendingRequestRequest.Accept(
                content=b"" if accept is True else payload.dumps(accept)
            )
        if decline:
            answers["decline"] = inbox_pb2.AnswerPendingRequestRequest.Decline()
        if cancel:
            answers["cancel"] = inbox_pb2.AnswerPendingRequestRequest.Cancel()
        if text is not None:
            answers["text"] = text
        if result is not None:
            answers["result"] = payload.dumps(result)
        if reject is not None:
            answers["reject"] = inbox_pb2.AnswerPendingRequestRequest.Reject(message=reject)
        if len(answers) != 1:
            raise ValueError(f"exactly one answer is needed, not {len(answers)}")
        request = inbox_pb2.AnswerPendingRequestRequest(
            id=id, claim_id=claim_id or "", answer_id=answer_id or "", **answers
        )
        response = await self._link.call(lambda hub: hub.inbox.AnswerPendingRequest, request)
        return self._read(response.pending_request)

    def watch(
        self,
        *,
        server: str | None = None,
        kinds: Collection[RequestKind] = (),
        states: Collection[RequestState] = (),
        call_id: str | None = None,
        resume_token: str | None = None,
    ) -> AsyncGenerator[WatchEvent[PendingRequest], None]:
        """Snapshot and changes of pending requests; every condition given must hold."""
        condition = _filter(server, kinds, states, call_id)
        return follow(
            self._link,
            lambda hub: hub.inbox.WatchPendingRequests,
            lambda token: inbox_pb2.WatchPendingRequestsRequest(filter=condition, resume_token=token),
            self._event,
            resume_token,
        )

    async def work(
        self,
        handle: Callable[[PendingRequest], Awaitable[object]],
        *,
        server: str | None = None,
        kinds: Collection[RequestKind] = (),
        call_id: str | None = None,
        capacity: int = 1,
        on_error: OnError | None = None,
        on_listening: Callable[[], None] | None = None,
    ) -> None:
        """Answers requests as one of the hub's workers, until cancelled: each goes to exactly one of them.

        `handle` gets a request that is claimed for this worker, up to `capacity` at once (at most 100), and answers
        it through its record. One that it leaves unanswered goes to others; it is cancelled when the request is no
        longer this worker's. What it raises goes to `on_error`, else to the log; what that raises ends the work.
        `on_listening` is called, again and again, while requests can come. Raises HubbubError as `watch` does.
        """
        worker = Worker(
            self._link,
            read=self._read,
            handle=handle,
            condition=_filter(server, kinds, (), call_id),
            capacity=capacity,
            on_error=on_error,
            on_listening=on_listening,
        )
        await worker.run()

    def _event(self, step: inbox_pb2.WatchPendingRequestsResponse) -> WatchEvent[PendingRequest] | None:
        event = events.read(PendingRequest, step)
        return replace(event, record=self._own(event.record)) if isinstance(event, Upsert) else event

    def _read(self, message: inbox_pb2.PendingRequest) -> PendingRequest:
        return self._own(reading.read(PendingRequest, message))

    def _own(self, request: PendingRequest) -> PendingRequest:
        """The record, which is answered through this inbox."""
        here: Answering = self
        return replace(request, _inbox=here)


def _filter(
    server: str | None, kinds: Collection[RequestKind], states: Collection[RequestState], call_id: str | None
) -> inbox_pb2.PendingRequestFilter:
    return inbox_pb2.PendingRequestFilter(
        server=server or "",
        kinds=enum_numbers(inbox_pb2.PendingRequestKind.DESCRIPTOR, kinds),
        states=enum_numbers(inbox_pb2.PendingRequestState.DESCRIPTOR, states),
        call_id=call_id or "",
    )
