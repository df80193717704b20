"""What a call on a stream may do is what CallMethod may, for as long as the credential lasts."""

from typing import Any

import anyio
import grpc
import pytest

from hubbub.v1 import call_pb2
from hubbubd.core.access import Role
from hubbubd.core.audit import AuditFilter
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.telemetry.trace import Span, SpanKind, Trace
from hubbubd.telemetry.tracer import Tracer

from .access_world import ELSEWHERE, SERVER, World, world
from .call_stream import CallStream, failure, streamed, waiting
from .conftest import LIMIT_S, Caller, gate, until
from .test_access import DENIED, HIDDEN, OF_A_SERVER, OK, outcome
from .test_bad_input import METHODS
from .test_credential_ends import ENDS, caller
from .test_credential_ends import Caller as Ending
from .test_oversight import Make, make

__all__ = ["caller", "make", "world"]

CALLS = [request for rpc, request, _ in OF_A_SERVER if rpc == "CallMethod"]


async def refused(world: World, caller: Caller) -> grpc.StatusCode | None:
    """With what a stream is refused as a whole; None if it is not."""
    try:
        async with streamed(world.channel, caller.metadata):
            return None
    except grpc.aio.AioRpcError as error:
        return error.code()


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("servers", [(), (SERVER,), (ELSEWHERE,)])
async def test_each_call_needs_what_it_needs_by_an_rpc_of_its_own(
    world: World, role: Role, servers: tuple[str, ...]
) -> None:
    caller = await world.caller(role, *servers)
    expected = [await outcome(caller, "CallMethod", request) for request in CALLS]
    if role in (Role.VIEWER, Role.RESPONDER, Role.APPROVER):
        assert set(expected) == {DENIED}
        assert await refused(world, caller) is grpc.StatusCode.PERMISSION_DENIED
        return
    async with streamed(world.channel, caller.metadata) as stream:
        found = [await attempt(stream, number, request) for number, request in enumerate(CALLS, 1)]
    assert found == expected


async def attempt(stream: CallStream, number: int, request: Any) -> str:
    """As `test_access.outcome`, of a call on a stream."""
    await stream.start(number, request.spec)
    step = await stream.next()
    if step.HasField("completed"):
        return OK
    match failure(step, number).code:
        case grpc.StatusCode.PERMISSION_DENIED:
            return DENIED
        case grpc.StatusCode.NOT_FOUND:
            return HIDDEN
        case _:
            return OK


async def test_without_a_credential_there_is_no_stream(world: World) -> None:
    assert await refused(world, Caller(world.channel, ())) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_refused_call_is_in_the_audit_log_as_an_rpc_of_its_own(world: World) -> None:
    caller = await world.caller(Role.CALLER, SERVER, name="ada")
    async with streamed(world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(method="logging/setLevel"))
        assert (await stream.failed(1)).reason == "PERMISSION_DENIED"
    await until(lambda: bool(world.hub.audit.select(AuditFilter(principal="ada"))))
    (entry,) = world.hub.audit.select(AuditFilter(principal="ada"))
    assert (entry.action, entry.target, entry.outcome) == ("CallMethod", SERVER, "PERMISSION_DENIED")


async def test_a_call_is_of_whom_the_stream_names(world: World) -> None:
    local = Caller(world.channel)
    async with streamed(world.channel, (*local.metadata, ("hubbub-as", "ada"))) as stream:
        await stream.start(1, waiting(call_id="hers"))
        await until(lambda: bool(world.hub.calls.select(CallFilter())))
        assert world.hub.calls.get("hers").principal == "ada"


async def test_who_names_the_call_of_another_is_told_nothing_of_it(world: World) -> None:
    theirs = await world.call("somebody")
    caller = await world.caller(Role.CALLER, SERVER, name="me")
    async with streamed(world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(call_id=theirs), follow=True)
        assert (await stream.failed(1)).reason == "CALL_ID_REUSED"


@pytest.mark.parametrize("caller", ["token revoked"], indirect=True)
async def test_a_credential_that_ends_ends_the_stream_and_its_calls_unless_they_are_detached(caller: Ending) -> None:
    hub = caller.world.hub
    async with streamed(caller.world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(call_id="waits"))
        await stream.start(2, waiting(call_id="goes-on"), detached=True)
        await until(lambda: len(hub.calls.select(CallFilter())) == 2)
        await caller.end()
        ended = await stream.broken()
        assert (ended.code, ended.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_ENDED")
    await until(lambda: hub.calls.get("waits").state is CallState.CANCELLED)
    assert not hub.calls.get("goes-on").state.ended


@pytest.mark.parametrize("caller", [end for end in ENDS if end != "token revoked"], indirect=True)
async def test_a_call_is_not_begun_once_the_credential_is_past_its_end(caller: Ending) -> None:
    """Also where nothing has ended the stream yet: the loop was busy, or the machine slept."""
    hub = caller.world.hub
    async with streamed(caller.world.channel, caller.metadata) as stream:
        await stream.start(1, waiting(call_id="before"))
        await until(lambda: len(hub.calls.select(CallFilter())) == 1)
        await caller.end()
        await stream.start(2, waiting(call_id="late"))
        assert (await stream.broken()).reason == "CREDENTIAL_ENDED"
    await until(lambda: hub.calls.get("before").state is CallState.CANCELLED)
    assert [call.id for call in hub.calls.select(CallFilter())] == ["before"]


async def test_each_call_counts_against_the_quota_and_the_rate_of_its_principal(make: Make) -> None:
    async with (
        make(calls_per_principal=2, rpcs_per_s_per_principal=1.0) as world,
        streamed(world.channel, world.local.metadata) as stream,
    ):
        for number in (1, 2):
            await stream.start(number)
        await until(lambda: world.hub.quotas.calls.count("local") == 2)
        refusals: list[str] = []
        with anyio.fail_after(LIMIT_S):
            while "RPC_RATE_EXCEEDED" not in refusals:
                await stream.start(3)
                refusals.append((await stream.failed(3)).reason)
        assert set(refusals) == {"TOO_MANY_CALLS", "RPC_RATE_EXCEEDED"}
        await until(lambda: bool(world.entries(action="CallMethod")))
        (entry,) = world.entries(action="CallMethod")
        assert entry.outcome == "RPC_RATE_EXCEEDED"


async def test_a_call_has_its_own_place_in_a_trace(hub: Hub, api: Caller) -> None:
    traces = {f"c{number}": f"{number:032x}" for number in (1, 2)}
    async with streamed(api.channel, (*api.metadata, ("traceparent", f"00-{9:032x}-{9:016x}-01"))) as stream:
        for number, (call_id, trace_id) in enumerate(traces.items(), 1):
            await stream.start(number, waiting(call_id=call_id), traceparent=f"00-{trace_id}-{1:016x}-01")
        await stream.start(3, waiting(call_id="c3"))
        await until(lambda: len(hub.calls.select(CallFilter())) == 3)
        found = {
            each: (await api(METHODS["GetCall"], call_pb2.GetCallRequest(id=each))).call.trace_id
            for each in ("c1", "c2", "c3")
        }
    assert found == {**traces, "c3": ""}


class Told(Tracer):
    """Keeps the spans that would be exported."""

    on = True

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str | None, Any]] = []

    def begin(self, parent: Trace | None, name: str = "", kind: SpanKind = SpanKind.INTERNAL) -> Trace | None:
        assert parent is not None, "each call comes with its place"
        return Trace(trace_id=parent.trace_id, span_id=f"{7:016x}", parent_id=parent.span_id, own=True)

    def export_span(self, span: Span, end: float, *, attributes: Any = None, **_: Any) -> None:
        self.spans.append((span.name, span.trace.trace_id, span.trace.parent_id, attributes))


async def test_a_call_has_the_span_of_an_rpc_below_its_caller_and_the_stream_has_none(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(hub, "tracer", told)
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0.01) as address,
        grpc.aio.insecure_channel(address) as channel,
        streamed(channel, Caller(channel).metadata) as stream,
    ):
        for number in (1, 2):
            await stream.start(number, call_pb2.CallSpec(), traceparent=f"00-{number:032x}-{number:016x}-01")
            await stream.failed(number)
    ended = {"rpc.response.status_code": "INVALID_ARGUMENT"}
    assert told.spans == [
        ("hubbub.v1.CallService/CallMethod", f"{number:032x}", f"{number:016x}", ended) for number in (1, 2)
    ]
