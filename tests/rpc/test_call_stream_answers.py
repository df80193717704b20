"""Who makes a call on a stream may answer there what the call is asked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import grpc
import pytest

from hubbub.v1 import call_pb2, inbox_pb2
from hubbubd.core.access import Role
from hubbubd.core.audit import AuditFilter
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind
from hubbubd.rpc.auth.gate import local_principal
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.servicers import call_stream
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

from .call_stream import CallStream, answering, begin, failure, hang_up, skipping, streamed, streams, waiting
from .conftest import LIMIT_S, Caller, Refusal, until
from .test_access import SERVER, World, world
from .test_bad_input import METHODS
from .test_call_stream import under_way
from .test_oversight import Make, make

__all__ = ["make", "world"]

FORM, ROOTS = inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM, inbox_pb2.PENDING_REQUEST_KIND_ROOTS
OPEN, ANSWERED = inbox_pb2.PENDING_REQUEST_STATE_OPEN, inbox_pb2.PENDING_REQUEST_STATE_ANSWERED
SCHEMA = b'{"message":"?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}'


@pytest.fixture
async def stream(api: Caller) -> AsyncIterator[CallStream]:
    """A stream of a caller that may do anything."""
    async with streamed(api.channel, api.metadata) as opened:
        yield opened


async def ask(hub: Hub, id_: str, call_id: str | None = "mine", principal: str = "local", **more: Any) -> None:
    """A server asks for a form because of a call, which must be under way."""
    options: dict[str, Any] = {"kind": RequestKind.ELICITATION_FORM, "request": SCHEMA, "deadline": None, **more}
    request = PendingRequest(
        id=id_,
        server=SERVER,
        origin=Origin.PLAIN,
        created_at=hub.clock.now(),
        cause_source=CauseSource.WIRE,
        principal=principal,
        call_id=call_id,
        **options,
    )
    await hub.inbox.open([request])


async def never(*_: Any, **__: Any) -> PendingRequest:
    """An answer that takes for ever."""
    await anyio.sleep_forever()
    raise AssertionError


async def assigned(stream: CallStream, id_: int) -> inbox_pb2.PendingRequest:
    """What the caller of this call is asked next."""
    step = await stream.next()
    assert (step.id, step.WhichOneof("step")) == (id_, "assigned")
    return step.assigned


async def revoked(stream: CallStream, id_: int) -> inbox_pb2.WorkResponse.Revoked:
    """What the caller of this call is to answer no more."""
    step = await stream.next()
    assert (step.id, step.WhichOneof("step")) == (id_, "revoked")
    return step.revoked


async def ended(stream: CallStream, id_: int) -> call_pb2.StreamCallsResponse.Step:
    """The end of a call or an answer; what is said of others before is passed over."""
    while (step := await stream.next()).id != id_:
        pass
    return step


async def refused(stream: CallStream, id_: int) -> Refusal:
    """Why an answer was not accepted."""
    return failure(await ended(stream, id_), id_)


async def begun(hub: Hub, stream: CallStream, **more: Any) -> None:
    """The call `mine` is under way as number 1, and its caller answers forms."""
    options: dict[str, Any] = {"answers": [FORM], **more}
    await stream.start(1, waiting(call_id="mine"), **options)
    await under_way(hub, 1)


async def test_what_a_call_is_asked_comes_with_it_and_is_answered_there(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await ask(hub, "req_1")
    request = await assigned(stream, 1)
    assert (request.id, request.call_id, bool(request.claim.id)) == ("req_1", "mine", True)
    await stream.say(answering(2, "req_1", request.claim.id))
    over = await revoked(stream, 1)
    assert (over.id, over.state) == ("req_1", ANSWERED)
    assert len(stream.unread) == 1, "one message has both"
    answered = (await ended(stream, 2)).answered.pending_request
    assert (answered.id, answered.state, answered.answered_by) == ("req_1", ANSWERED, "local")
    await stream.cancel(1)
    assert (await stream.failed(1)).reason == "CALL_CANCELLED"


async def test_nothing_else_comes_than_what_the_caller_answers(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await stream.start(2, waiting(call_id="other"))
    await ask(hub, "of_another_call", "other")
    await ask(hub, "of_another_kind", kind=RequestKind.ROOTS, request=b"{}")
    await ask(hub, "its_own")
    assert (await assigned(stream, 1)).id == "its_own"
    await stream.say(hang_up(1), hang_up(2))
    assert {(await ended(stream, number)).id for number in (1, 2)} == {1, 2}


async def test_a_caller_that_attaches_to_its_call_again_is_asked_what_was_open_before(
    hub: Hub, stream: CallStream
) -> None:
    await stream.start(1, waiting(call_id="mine"), detached=True)
    await under_way(hub, 1)
    await ask(hub, "req_1")
    await stream.start(2, waiting(call_id="mine"), detached=True, answers=[FORM])
    assert (await assigned(stream, 2)).id == "req_1"


async def test_they_come_one_at_a_time(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await ask(hub, "first")
    await ask(hub, "second")
    first = await assigned(stream, 1)
    assert (first.id, hub.inbox.get("second").claim) == ("first", None)
    await stream.say(answering(2, "first", first.claim.id))
    steps = [await stream.next() for _ in range(3)]
    assert [step.WhichOneof("step") for step in steps if step.id == 2] == ["answered"]
    assert [step.assigned.id for step in steps if step.HasField("assigned")] == ["second"]


async def test_what_is_left_to_others_does_not_come_again(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await ask(hub, "first")
    await assigned(stream, 1)
    await stream.say(skipping(1, "first"))
    over = await revoked(stream, 1)
    assert (over.id, over.state) == ("first", OPEN)
    assert hub.inbox.get("first").claim is None
    await ask(hub, "second")
    assert (await assigned(stream, 1)).id == "second"
    await stream.say(skipping(9, "second"), skipping(1, "first"))  # of no call, and not assigned: without effect
    await stream.cancel(1)
    await stream.failed(1)


async def test_what_another_program_has_given_back_is_revoked(api: Caller, hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await ask(hub, "req_1")
    request = await assigned(stream, 1)
    release = inbox_pb2.ReleasePendingRequestRequest(id="req_1", claim_id=request.claim.id)
    await api(METHODS["ReleasePendingRequest"], release)
    over = await revoked(stream, 1)
    assert (over.id, over.state) == ("req_1", OPEN)
    await stream.say(answering(2, "req_1", request.claim.id))
    assert (await refused(stream, 2)).reason == "CLAIM_LOST"


@pytest.mark.parametrize("how", ["cancelled", "broken off"])
async def test_a_call_that_ends_gives_back_what_it_was_asked(hub: Hub, stream: CallStream, how: str) -> None:
    await begun(hub, stream)
    await ask(hub, "req_1")
    await assigned(stream, 1)
    assert (hub.watcher_count(), hub.quotas.streams.count("local")) == (1, 1)
    if how == "cancelled":
        await stream.cancel(1)
        await stream.failed(1)
    else:
        stream.rpc.cancel()
    await until(lambda: hub.inbox.get("req_1").claim is None)
    assert (hub.watcher_count(), hub.quotas.streams.count("local")) == (0, 0)


async def test_an_answer_is_refused_as_by_an_rpc_of_its_own(api: Caller, hub: Hub, stream: CallStream) -> None:
    await ask(hub, "req_1", None)
    for number, step in enumerate((answering(1, "none"), answering(2, "req_1", "no-claim-of-mine")), 1):
        await stream.say(step)
        there = failure(await ended(stream, number), number)
        alone = await api.refused(METHODS["AnswerPendingRequest"], step.answer.request)
        assert (there.code, there.reason, there.message) == (alone.code, alone.reason, alone.message)
    await stream.say(answering(3, "req_1"))
    assert (await ended(stream, 3)).HasField("answered")
    await stream.say(answering(3, "req_1"))  # an id is free again
    assert (await refused(stream, 3)).reason == "ALREADY_ANSWERED"
    await stream.say(answering(4, "req_1", max_response_bytes=-1))
    assert set((await refused(stream, 4)).violations) == {"answer.max_response_bytes"}


async def test_an_answer_counts_although_what_it_becomes_is_too_long_for_its_caller(
    hub: Hub, stream: CallStream
) -> None:
    await ask(hub, "req_1", None)
    await stream.say(answering(1, "req_1", max_response_bytes=10))
    told = await refused(stream, 1)
    assert (told.reason, told.metadata["request"]) == ("MESSAGE_TOO_LARGE", "req_1")
    assert "the answer is accepted" in told.message
    assert hub.inbox.get("req_1").answered_by == "local"


async def test_what_is_too_long_for_its_caller_is_left_to_others(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream, max_response_bytes=400)
    await ask(hub, "long", request=SCHEMA.replace(b"?", b"x" * 400))
    await until(lambda: hub.inbox.get("long").claim is None)
    await ask(hub, "short", request=b'{"message":"?","requestedSchema":{"type":"object","properties":{}}}')
    assert (await assigned(stream, 1)).id == "short"


async def _told_late(hub: Hub, happens: Callable[[], Awaitable[None]]) -> list[call_pb2.StreamCallsResponse.Step]:
    """What the caller of a call receives that reads only after all this has happened to it, and it has ended."""
    amend_context(principal=local_principal())
    await hub.calls.start(CallSpec(server=SERVER, method="tools/list", params=b"", call_id="mine"), "local")
    written: list[call_pb2.StreamCallsResponse.Step] = []
    slow, happened, read = anyio.Event(), anyio.Event(), anyio.Event()

    async def serve(request: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        if request.spec.call_id == "mine":
            await slow.wait()
            await happens()
            happened.set()
        return call_pb2.CallMethodResponse()

    async def steps() -> AsyncIterator[call_pb2.StreamCallsRequest]:
        mine = begin(1, waiting(call_id="mine"), answers=[FORM], max_response_bytes=1000)
        yield call_pb2.StreamCallsRequest(steps=[begin(2), mine])
        await happened.wait()
        await anyio.wait_all_tasks_blocked()  # not before: what waits for the store's thread counts as blocked
        read.set()

    async def write(message: bytes) -> None:
        if written:  # the end of the other call, of which the caller reads slowly
            slow.set()
            await read.wait()
        written.extend(call_pb2.StreamCallsResponse.FromString(message).steps)

    with anyio.fail_after(LIMIT_S):
        await streams(hub, serve).run(steps(), write)
    return [step for step in written if step.id == 1]


async def give_back(hub: Hub, id_: str) -> None:
    claim = hub.inbox.get(id_).claim
    await hub.inbox.release(id_, claim.id)


async def test_an_assignment_that_ends_after_a_refused_answer_is_revoked(hub: Hub, stream: CallStream) -> None:
    await begun(hub, stream)
    await ask(hub, "req_1")
    request = await assigned(stream, 1)
    wrong = answering(2, "req_1", request.claim.id)
    wrong.answer.request.accept.content = b"[]"
    await stream.say(wrong)
    await refused(stream, 2)
    await give_back(hub, "req_1")
    assert (await revoked(stream, 1)).id == "req_1"


async def test_what_is_over_before_its_caller_has_read_of_it_is_not_told(hub: Hub) -> None:
    """So a caller that reads nothing takes no memory, whatever its server asks and withdraws."""

    async def happens() -> None:
        for number in range(20):
            await ask(hub, f"req_{number}")
            await give_back(hub, f"req_{number}")
        for number in range(20):
            await ask(hub, f"long_{number}", request=SCHEMA.replace(b"?", b"x" * 1000))

    written = await _told_late(hub, happens)
    told = [(step.WhichOneof("step"), step.assigned.id or step.revoked.id) for step in written]
    assert told == [("completed", "")]


async def test_answers_are_taken_while_there_is_no_room_for_calls(
    hub: Hub, stream: CallStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the calls may be waiting for one."""
    monkeypatch.setattr(call_stream, "MAX_CALLS", 1)
    hub.quotas.streamed_calls.limit = 1
    await begun(hub, stream)
    await stream.start(2)
    assert (await stream.failed(2)).reason == "TOO_MANY_CALLS"
    await ask(hub, "req_1")
    request = await assigned(stream, 1)
    await stream.say(answering(3, "req_1", request.claim.id))
    assert (await ended(stream, 3)).HasField("answered")


async def test_one_answer_more_than_there_is_room_for_is_refused(
    hub: Hub, stream: CallStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "MAX_CALLS", 1)
    monkeypatch.setattr(hub.inbox, "answer", never)
    await ask(hub, "req_1", None)
    await stream.say(answering(1, "req_1"), answering(2, "req_1"))
    assert (await refused(stream, 2)).reason == "TOO_MANY_CALLS"


async def test_a_caller_beyond_its_rate_takes_nothing_from_others(make: Make) -> None:
    async with (
        make(rpcs_per_s_per_principal=1.0) as world,
        streamed(world.channel, world.local.metadata) as stream,
    ):
        await stream.start(1, waiting(call_id="mine"), detached=True)
        await under_way(world.hub, 1)
        await ask(world.hub, "req_1")
        number = 1
        while True:
            number += 1
            await stream.start(number)
            await stream.cancel(number)
            if failure(await ended(stream, number), number).reason == "RPC_RATE_EXCEEDED":
                break
        await stream.start(number + 1, waiting(call_id="mine"), detached=True, answers=[FORM])
        assert failure(await ended(stream, number + 1), number + 1).reason == "RPC_RATE_EXCEEDED"
        assert not world.hub.inbox.get("req_1").moments


async def test_what_a_call_had_yet_to_be_told_when_it_ended_is_not_told(hub: Hub) -> None:
    written = await _told_late(hub, lambda: ask(hub, "req_1"))
    assert [step.WhichOneof("step") for step in written] == ["completed"]


@pytest.mark.parametrize(
    ("spec", "answers", "field"),
    [
        (waiting(), [FORM], "start.request.spec.call_id"),
        (waiting(call_id="mine"), [99], "start.answers"),
    ],
)
async def test_what_a_caller_wants_to_answer_is_checked(
    stream: CallStream, spec: call_pb2.CallSpec, answers: list[int], field: str
) -> None:
    await stream.start(1, spec, answers=answers)
    told = await stream.failed(1)
    assert (told.code, set(told.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, {field})


async def test_a_caller_answers_what_its_own_calls_are_asked_and_nothing_else(world: World) -> None:
    caller = await world.caller(Role.CALLER, SERVER, name="ada")
    async with streamed(world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(call_id="mine"), answers=[FORM])
        await under_way(world.hub, 1)
        await ask(world.hub, "hers", principal="ada")
        await ask(world.hub, "not_hers", principal="bob")
        request = await assigned(stream, 1)
        assert request.id == "hers"
        await stream.say(answering(2, "not_hers"))
        assert (await refused(stream, 2)).code is grpc.StatusCode.NOT_FOUND
        await stream.say(answering(3, "hers", request.claim.id))
        assert (await ended(stream, 3)).answered.pending_request.answered_by == "ada"
    entries = [entry for entry in world.hub.audit.select(AuditFilter(principal="ada")) if entry.target == "hers"]
    assert [(entry.action, entry.outcome) for entry in entries] == [("AnswerPendingRequest", "OK")]


async def test_who_may_see_what_a_call_is_asked_but_not_answer_it_is_not_asked(world: World) -> None:
    theirs = await world.call("somebody")
    await ask(world.hub, "req_1", theirs, "somebody")
    caller = await world.caller(Role.OPERATOR, SERVER, name="me")
    async with streamed(world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(call_id=theirs, method="logging/setLevel"), answers=[FORM])
        assert (await stream.failed(1)).reason == "CALL_ID_REUSED"
    await anyio.wait_all_tasks_blocked()
    assert not world.hub.inbox.get("req_1").moments


async def test_an_answer_that_its_caller_waits_for_no_longer_has_failed(
    hub: Hub, stream: CallStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was accepted, the caller then finds out by the same `answer_id`."""
    await ask(hub, "req_1", None)
    monkeypatch.setattr(hub.inbox, "answer", never)
    await stream.say(answering(1, "req_1"))
    await stream.cancel(1)
    assert (await refused(stream, 1)).reason == "CALL_CANCELLED"
