"""`hub.inbox`: the pending requests of all servers, and their answers."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hubbub.v1 import inbox_pb2
from hubbub_client import payload
from hubbub_client.data import conversion, watch_events
from hubbub_client.data.approvals import ApproveOptions
from hubbub_client.data.conversion import enum_numbers
from hubbub_client.data.records import AnsweringInbox, PendingRequest, RequestKind, RequestState
from hubbub_client.data.watch_events import Upsert, WatchEvent
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_client.watch import follow_watch
from hubbub_client.worker import OnError, Worker
from hubbub_shared.durations import to_duration


class Inbox(HubService):
    """InboxService. Every method raises HubbubError; NotFound if the pending request does not exist."""

    async def list(
        self,
        *,
        server: str | None = None,
        kinds: Collection[RequestKind] = (),
        states: Collection[RequestState] = (),
        call_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        """Return the pending requests that match all given conditions, newest first."""
        condition = _request_filter(server, kinds, states, call_id)

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[PendingRequest], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = inbox_pb2.ListPendingRequestsRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.inbox.ListPendingRequests, request)
            return [self._read_request(each) for each in response.pending_requests], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def get(self, id: str) -> PendingRequest:  # noqa: A002 - the field's name
        """Return one pending request."""
        response = await self._connection.call(
            lambda hub: hub.inbox.GetPendingRequest, inbox_pb2.GetPendingRequestRequest(id=id)
        )
        return self._read_request(response.pending_request)

    async def claim(
        self,
        id: str,  # noqa: A002
        ttl_s: float = 60,
        *,
        claim_id: str | None = None,
        take_over: bool = False,
    ) -> PendingRequest:
        """Claim an open pending request for `ttl_s` seconds, and return it with the claim, whose id answers need.

        With a `claim_id` of your own (16 to 64 letters, digits, `_` and `-`) this is safe to repeat: the claim with the
        id is renewed. `take_over` also takes a claim that the same name holds in another window or program.
        Raises FailedPrecondition, for example ALREADY_CLAIMED (its metadata name the holder, with `own` if that is the
        caller).
        """
        request = inbox_pb2.ClaimPendingRequestRequest(
            id=id, ttl=to_duration(ttl_s), claim_id=claim_id or "", take_over=take_over
        )
        response = await self._connection.call(lambda hub: hub.inbox.ClaimPendingRequest, request)
        return self._read_request(response.pending_request)

    async def renew(self, id: str, claim_id: str, ttl_s: float = 60) -> PendingRequest:  # noqa: A002
        """Renew a claim to `ttl_s` seconds from now, and return the pending request."""
        request = inbox_pb2.RenewClaimRequest(id=id, claim_id=claim_id, ttl=to_duration(ttl_s))
        response = await self._connection.call(lambda hub: hub.inbox.RenewClaim, request)
        return self._read_request(response.pending_request)

    async def release(self, id: str, claim_id: str) -> PendingRequest:  # noqa: A002
        """Release a claim and return the pending request."""
        request = inbox_pb2.ReleasePendingRequestRequest(id=id, claim_id=claim_id)
        response = await self._connection.call(lambda hub: hub.inbox.ReleasePendingRequest, request)
        return self._read_request(response.pending_request)

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
        approve: ApproveOptions | bool = False,
        deny: str | None = None,
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> PendingRequest:
        """Answer a pending request and return it; the answer is then durable and the only one.

        Give exactly one answer. accept: the content of a form, or True for its defaults; decline, cancel: the other
        results of an elicitation; text: the assistant message of a sampling; result: the MCP result, for any kind;
        reject: an error message, for a sampling or a roots request; approve, deny: as the methods of these names.
        `answer_id` makes the answer safe to repeat; by default each has its own, under which the library itself repeats
        it when the connection is lost.
        Raises InvalidArgument (the request stays open) and FailedPrecondition, for example ALREADY_ANSWERED;
        ValueError unless exactly one answer is given.
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
        if approve is not False:
            answers["approve"] = _approve_message({} if approve is True else approve)
        if deny is not None:
            answers["deny"] = inbox_pb2.AnswerPendingRequestRequest.Deny(reason=deny)
        if len(answers) != 1:
            raise ValueError(f"exactly one answer is needed, not {len(answers)}")
        request = inbox_pb2.AnswerPendingRequestRequest(
            id=id, claim_id=claim_id or "", answer_id=answer_id or secrets.token_hex(16), **answers
        )
        response = await self._send_answer(request)
        return self._read_request(response.pending_request)

    async def approve(
        self,
        id: str,  # noqa: A002
        *,
        arguments: Mapping[str, Any] | None = None,
        remember_s: float = 0.0,
        same_arguments: bool = False,
        suggestions: Sequence[int] = (),
        comment: str = "",
        digest: str = "",
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> PendingRequest:
        """Approve a call that waits for it, and return the pending request; open still, if more people have to.

        `arguments` are sent in place of those shown. The approval also holds for later calls of `remember_s` seconds,
        one of the times that the rule allows; with `same_arguments` only for calls like this one. `suggestions` are
        the indices of the accepted suggestions of the caller's host. `digest` is the `arguments_digest` of
        the record that was shown; without it, nobody may have changed the arguments meanwhile.
        Raises FailedPrecondition (ARGUMENTS_CHANGED, ALREADY_APPROVED), PermissionDenied (NOT_AN_APPROVER), and else as
        `answer`.
        """
        approval: ApproveOptions = {
            "remember_s": remember_s,
            "same_arguments": same_arguments,
            "suggestions": suggestions,
            "comment": comment,
            "digest": digest,
        }
        if arguments is not None:
            approval["arguments"] = arguments
        return await self.answer(id, approve=approval, claim_id=claim_id, answer_id=answer_id)

    async def deny(
        self,
        id: str,  # noqa: A002
        reason: str = "",
        *,
        claim_id: str | None = None,
        answer_id: str | None = None,
    ) -> PendingRequest:
        """Deny a call that waits for approval, with the reason that its caller gets; return the pending request.

        Raises FailedPrecondition, for example ALREADY_ANSWERED, and else as `answer`.
        """
        return await self.answer(id, deny=reason, claim_id=claim_id, answer_id=answer_id)

    async def _send_answer(
        self, request: inbox_pb2.AnswerPendingRequestRequest
    ) -> inbox_pb2.AnswerPendingRequestResponse:
        """Send an answer by an RPC, and return the response. Raises HubbubError."""
        return await self._connection.call(lambda hub: hub.inbox.AnswerPendingRequest, request)

    def watch(
        self,
        *,
        server: str | None = None,
        kinds: Collection[RequestKind] = (),
        states: Collection[RequestState] = (),
        call_id: str | None = None,
        resume_token: str | None = None,
    ) -> AsyncGenerator[WatchEvent[PendingRequest], None]:
        """Watch the pending requests that match all given conditions: a snapshot, then changes."""
        condition = _request_filter(server, kinds, states, call_id)
        return follow_watch(
            self._connection,
            lambda hub: hub.inbox.WatchPendingRequests,
            inbox_pb2.WatchPendingRequestsRequest(filter=condition),
            self._parse_event,
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
        """Answer pending requests as one of the hub's workers, until cancelled; each goes to exactly one worker.

        `handle` gets each request with a claim of this worker, up to `capacity` at once (at most 100), and answers it
        through its record. A request that `handle` leaves unanswered goes to other workers. `handle` is cancelled if
        the claim is lost. Its exceptions go to `on_error`, else to the log; an exception in `on_error` ends the work.
        `on_listening` is called repeatedly while requests can come. Raises HubbubError as `watch`.
        """
        worker = Worker(
            self._connection,
            read=self._read_request,
            handle=handle,
            condition=_request_filter(server, kinds, (), call_id),
            capacity=capacity,
            on_error=on_error,
            on_listening=on_listening,
        )
        await worker.run()

    def _parse_event(self, step: inbox_pb2.WatchPendingRequestsResponse) -> WatchEvent[PendingRequest] | None:
        """Return the event of a watch's step, its record bound to this inbox; None for a type that newer hubs send."""
        event = watch_events.read(PendingRequest, step)
        return replace(event, record=self._bind_to_inbox(event.record)) if isinstance(event, Upsert) else event

    def _read_request(self, message: inbox_pb2.PendingRequest) -> PendingRequest:
        """Return the record of a message, bound to this inbox."""
        return self._bind_to_inbox(conversion.read(PendingRequest, message))

    def _bind_to_inbox(self, request: PendingRequest) -> PendingRequest:
        """Return a record whose methods answer through this inbox."""
        inbox: AnsweringInbox = self
        return replace(request, _inbox=inbox)


def _approve_message(options: ApproveOptions) -> inbox_pb2.AnswerPendingRequestRequest.Approve:
    """Return an approval as a message of the API; missing options are empty."""
    arguments, remember_s = options.get("arguments"), options.get("remember_s", 0.0)
    return inbox_pb2.AnswerPendingRequestRequest.Approve(
        arguments=b"" if arguments is None else payload.dumps(arguments),
        remember=to_duration(remember_s) if remember_s else None,
        same_arguments=options.get("same_arguments", False),
        suggestions=options.get("suggestions", ()),
        comment=options.get("comment", ""),
        digest=options.get("digest", ""),
    )


def _request_filter(
    server: str | None, kinds: Collection[RequestKind], states: Collection[RequestState], call_id: str | None
) -> inbox_pb2.PendingRequestFilter:
    """Return a filter for pending requests that match all given conditions; None and empty ones match all."""
    return inbox_pb2.PendingRequestFilter(
        server=server or "",
        kinds=enum_numbers(inbox_pb2.PendingRequestKind.DESCRIPTOR, kinds),
        states=enum_numbers(inbox_pb2.PendingRequestState.DESCRIPTOR, states),
        call_id=call_id or "",
    )
