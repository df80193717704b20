"""The way of a call and of a question over the API, with real servers."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import grpc
import pytest

from hubbub.v1 import admin_pb2, call_pb2, inbox_pb2, server_pb2
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, Caller, spec_of, until
from .test_bad_input import METHODS


@pytest.fixture
async def asking(api: Caller, peer_scripts: Path) -> AsyncIterator[str]:
    """A server that asks, added over the API."""
    script = str(peer_scripts / "asking_server.py")
    spec = spec_of(name="asking", command=sys.executable, args=[script, "stdio"], protocol="2025-11-25")
    added = await api(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))
    assert added.server.name == "asking"
    assert added.server.transport == server_pb2.TRANSPORT_STDIO
    yield "asking"
    await api(METHODS["RemoveServer"], server_pb2.RemoveServerRequest(name="asking"))


def tool(server: str, name: bytes, arguments: bytes = b"{}", **more: str) -> call_pb2.CallSpec:
    params = b'{"name":"%s","arguments":%s}' % (name, arguments)
    return call_pb2.CallSpec(server=server, method="tools/call", params=params, **more)


async def shown_to(name: str, api: Caller, request_id: str) -> None:
    """Lets somebody watch the inbox until a request is there."""
    method, response = "/hubbub.v1.InboxService/WatchPendingRequests", inbox_pb2.WatchPendingRequestsResponse
    metadata = (*(each for each in api.metadata if each[0] != "hubbub-as"), ("hubbub-as", name))
    watching = api.channel.unary_stream(method, response_deserializer=response.FromString)(b"", metadata=metadata)
    assert (await watching.read()).upsert.id == request_id
    watching.cancel()


async def test_a_question_is_claimed_answered_and_the_call_that_caused_it_completes(
    hub: Hub, api: Caller, asking: str
) -> None:
    api.metadata = (*api.metadata, ("hubbub-as", "ada"))
    ended: list[call_pb2.Call] = []

    async def call() -> None:
        request = call_pb2.CallMethodRequest(spec=tool(asking, b"ask", call_id="mine"))
        ended.append((await api(METHODS["CallMethod"], request)).call)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: bool(hub.inbox.select(RequestFilter())))
        listed = await api(METHODS["ListPendingRequests"], inbox_pb2.ListPendingRequestsRequest())
        (question,) = listed.pending_requests
        assert question.call_id == "mine"
        assert question.kind == inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM

        await shown_to("bob", api, question.id)

        claimed = await api(METHODS["ClaimPendingRequest"], inbox_pb2.ClaimPendingRequestRequest(id=question.id))
        claim_id = claimed.pending_request.claim.id
        shown = await api(METHODS["GetPendingRequest"], inbox_pb2.GetPendingRequestRequest(id=question.id))
        assert claim_id
        assert (shown.pending_request.claim.by, shown.pending_request.claim.id) == ("ada", "")

        mine = inbox_pb2.ClaimPendingRequestRequest(id=question.id, claim_id="my-window_0123456", take_over=True)
        for _ in range(2):  # the response to the first may have got lost
            claimed = await api(METHODS["ClaimPendingRequest"], mine)
            assert claimed.pending_request.claim.id == mine.claim_id
        lost = await api.refused(METHODS["RenewClaim"], inbox_pb2.RenewClaimRequest(id=question.id, claim_id=claim_id))
        assert (lost.reason, lost.metadata["own"]) == ("CLAIM_LOST", "true")
        claim_id = mine.claim_id

        accept = inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":"Ada"}')
        answer = inbox_pb2.AnswerPendingRequestRequest(id=question.id, accept=accept)
        unclaimed = await api.refused(METHODS["AnswerPendingRequest"], answer)
        assert (unclaimed.reason, unclaimed.metadata["own"]) == ("ALREADY_CLAIMED", "true")
        answer.claim_id = claim_id
        answered = await api(METHODS["AnswerPendingRequest"], answer)
        assert answered.pending_request.state == inbox_pb2.PENDING_REQUEST_STATE_ANSWERED
        assert answered.pending_request.answered_by == "ada"
        events = answered.pending_request.events
        assert any((e.type, e.by) == (inbox_pb2.PendingRequest.EVENT_TYPE_SHOWN, "bob") for e in events)

        again = await api.refused(METHODS["AnswerPendingRequest"], answer)
        assert (again.code, again.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_ANSWERED")
        assert again.metadata["answered_by"] == "ada"

    assert ended[0].state == call_pb2.CALL_STATE_COMPLETED
    assert b"accept Ada" in ended[0].result
    assert list(ended[0].pending_request_ids) == [question.id]


async def test_an_answer_that_does_not_fit_the_form_is_refused_by_field_and_the_question_stays_open(
    hub: Hub, api: Caller, asking: str
) -> None:
    await api(METHODS["StartCall"], call_pb2.StartCallRequest(spec=tool(asking, b"ask")))
    await until(lambda: bool(hub.inbox.select(RequestFilter())))
    (question,) = hub.inbox.select(RequestFilter())
    accept = inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":7,"colour":"red"}')
    refusal = await api.refused(
        METHODS["AnswerPendingRequest"], inbox_pb2.AnswerPendingRequestRequest(id=question.id, accept=accept)
    )
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {"content.name", "content.colour"}
    assert hub.inbox.get(question.id).state == "open"


async def test_the_error_of_a_server_ends_the_rpc_with_its_code_and_words(api: Caller, asking: str) -> None:
    spec = call_pb2.CallSpec(server=asking, method="resources/read", params=b'{"uri":"x://nothing"}', call_id="mine")
    refusal = await api.refused(METHODS["CallMethod"], call_pb2.CallMethodRequest(spec=spec))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNKNOWN, "SERVER_ERROR")
    assert int(refusal.metadata["jsonrpc_code"]) < 0
    assert refusal.metadata["call_id"] == "mine"
    shown = await api(METHODS["GetCall"], call_pb2.GetCallRequest(id="mine"))
    assert shown.call.error.code == "SERVER_ERROR"


@pytest.mark.parametrize("detached", [True, False])
async def test_a_caller_that_hangs_up_ends_its_call_unless_it_is_detached(
    hub: Hub, api: Caller, asking: str, detached: bool
) -> None:
    spec = tool(asking, b"sleep", b'{"name":"x"}', call_id="mine")
    request = call_pb2.CallMethodRequest(spec=spec, detached=detached)
    method = api.channel.unary_unary("/hubbub.v1.CallService/CallMethod")
    call = method(request.SerializeToString(), metadata=api.metadata)
    await until(lambda: any(c.state is CallState.IN_PROGRESS for c in hub.calls.select(CallFilter())))
    call.cancel()
    if detached:
        refusal = await api.refused(METHODS["CancelCall"], call_pb2.CancelCallRequest(id="mine"))
        assert refusal.reason == "CALL_IN_PROGRESS"
        ended = await api(METHODS["CancelCall"], call_pb2.CancelCallRequest(id="mine", abort=True))
        assert ended.call.state == call_pb2.CALL_STATE_CANCELLED
    else:
        await until(lambda: hub.calls.get("mine").state is CallState.CANCELLED)


@pytest.mark.parametrize("batches", [False, True])
async def test_a_watch_of_calls_shows_progress_and_log_lines_in_between(
    api: Caller, asking: str, batches: bool
) -> None:
    watch = api.channel.unary_stream(
        "/hubbub.v1.CallService/WatchCalls", response_deserializer=call_pb2.WatchCallsResponse.FromString
    )
    seen: list[call_pb2.WatchCallsResponse] = []
    request = call_pb2.WatchCallsRequest(allow_batches=batches)
    call = watch(request.SerializeToString(), metadata=api.metadata)
    with anyio.fail_after(LIMIT_S):
        assert (await call.read()).HasField("synced")
        await api(METHODS["StartCall"], call_pb2.StartCallRequest(spec=tool(asking, b"count", b'{"steps":2}')))
        while not (seen and seen[-1].upsert.state == call_pb2.CALL_STATE_COMPLETED):
            response = await call.read()
            seen += response.batch or [response]
    call.cancel()
    progress = [(step.progress.progress, step.progress.total) for step in seen if step.HasField("progress")]
    assert (2.0, 2.0) in progress
    assert any(b"logged" in step.log.params for step in seen if step.HasField("log"))


async def test_the_status_counts_what_there_is(api: Caller, asking: str) -> None:
    await api(METHODS["StartCall"], call_pb2.StartCallRequest(spec=tool(asking, b"sleep", b'{"name":"x"}')))
    status = await api(METHODS["GetStatus"], admin_pb2.GetStatusRequest())
    assert sum(count.count for count in status.servers) == 2
    assert sum(count.count for count in status.calls) == 1
    assert status.store.id
    assert status.started_at.seconds > 1_600_000_000
    queue = await api(METHODS["GetQueue"], call_pb2.GetQueueRequest(server=asking))
    assert queue.counts.queued + queue.counts.in_progress == 1
    cleared = await api(METHODS["ClearQueue"], call_pb2.ClearQueueRequest(server=asking))
    assert cleared.cleared in (0, 1)
