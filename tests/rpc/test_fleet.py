"""RPCs about servers of other members: carried out at the owner, once, with the same outcome."""

import asyncio
from dataclasses import replace
from typing import Any

import anyio
import grpc
import httpx2
import pytest
from google.protobuf.message import Message

from hubbub.v1 import call_pb2, catalog_pb2, event_pb2, server_pb2, task_pb2
from hubbubd.core.access import Grant, Role
from hubbubd.core.audit import AuditFilter
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.errors import PeerError
from hubbubd.rpc import revision
from hubbubd.rpc.auth.permissions import RULES, ExecutingMember
from hubbubd.rpc.fleet.forwards import forwarding, subjects
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime import wiring
from hubbubd.runtime.calls import registry
from hubbubd.runtime.ownership import Takeover
from hubbubd.telemetry import metrics
from hubbubd.telemetry.trace import SpanKind

from ..runtime.conftest import PEER
from ..runtime.peer import Outcome, Sent, at_once, never
from ..runtime.test_measures import Seen
from .call_stream import begin, streamed
from .conftest import LIMIT_S, TOKEN, Caller, explain, gate, spec_of, until
from .fleet import Fleet, Member, Two, made, one, owner, two

__all__ = ["made", "owner", "two"]  # the fixtures

RPCS = {method.name: method for service in SERVICES.values() for method in service.methods}
CALL = RPCS["CallMethod"]
AUTHORIZED = (("authorization", f"Bearer {TOKEN}"),)


def spec(**given: Any) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(**{"server": "one", "method": "tools/call", "params": b'{"name":"echo"}', **given})


def call(**given: Any) -> call_pb2.CallMethodRequest:
    return call_pb2.CallMethodRequest(spec=spec(**given))


async def known(ingress: Member, call_id: str, state: CallState | None = None) -> None:
    """Until the ingress knows of a call."""

    def there() -> bool:
        return ingress.hub.calls.has_call(call_id) and (state is None or ingress.hub.calls.get(call_id).state is state)

    await until(there)


def told(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """The servers for which a module makes this refusal from now on."""
    servers: list[str] = []
    make = getattr(module, name)

    def refusal(server: str) -> Any:
        servers.append(server)
        return make(server)

    monkeypatch.setattr(module, name, refusal)
    return servers


async def token(member: Member, name: str, *grants: Grant) -> Caller:
    """A caller with a token of its own."""
    _, secret = await member.hub.tokens.create(name, grants, by="ann", ttl_s=None, may_name_others=False)
    return Caller(member.api.channel, (("authorization", f"Bearer {secret}"),))


@pytest.mark.parametrize("at", [0, 1], ids=["at the other", "at its own"])
async def test_a_call_waits_while_its_member_hands_the_server_on(
    two: Two, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    refused = told(monkeypatch, registry, "moved_error")
    with two[1].hub.calls.refuse_calls("one"):
        calling = asyncio.create_task(two[at].api(CALL, call()))
        await until(lambda: bool(refused))
    assert (await calling).call.result == b'{"echo":{"name":"echo"}}'
    assert [sent.method for sent in two[1].peer.sent] == ["tools/call"]


@pytest.mark.parametrize("at", [0, 1], ids=["at the other", "at its own"])
async def test_a_call_waits_while_its_member_takes_the_server(
    two: Two, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    owner = two[1].hub
    await owner.hand_over("one", 0)
    refused = told(monkeypatch, wiring, "owner_changing_error")
    starting = asyncio.create_task(two[at].api(RPCS["StartCall"], call_pb2.StartCallRequest(spec=spec())))
    await until(lambda: bool(refused))
    await owner.take_over(Takeover(lambda server: server == "one"))
    started = await starting
    await until(lambda: owner.calls.get(started.call.id).state is CallState.COMPLETED)


@pytest.mark.parametrize(("at", "reason"), [(0, "OWNER_CHANGING"), (1, "MOVED")], ids=["at the other", "at its own"])
async def test_a_call_does_not_wait_for_ever(two: Two, monkeypatch: pytest.MonkeyPatch, at: int, reason: str) -> None:
    monkeypatch.setattr(registry, "OWNER_WAIT_S", 0.1)
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    with two[1].hub.calls.refuse_calls("one"):
        assert (await two[at].api.refused(CALL, call())).reason == reason
    assert not two[1].peer.sent


@pytest.mark.parametrize("carried", [False, True], ids=["as an RPC", "over a stream"])
async def test_whoever_made_a_call_is_told_what_the_owner_has_and_does_not_wait_for_it(
    two: Two, carried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision, "BEHIND_S", 2 * LIMIT_S)
    ingress, owner = two
    ingress.store.held = True
    asked = (*AUTHORIZED, (revision.METADATA_KEY, revision.NONE_SEEN))
    if carried:
        async with streamed(ingress.api.channel, asked) as calls:
            await calls.say(begin(1, spec(call_id="named")))
            response = await asyncio.wait_for(calls.rpc.read(), LIMIT_S)
            assert response.steps[0].HasField("completed")
            told = response.revision
    else:
        calling = ingress.api.channel.unary_unary("/hubbub.v1.CallService/CallMethod")
        rpc = calling(call(call_id="named").SerializeToString(), metadata=asked)
        await asyncio.wait_for(rpc, LIMIT_S)
        told = dict(await rpc.trailing_metadata())[revision.METADATA_KEY]
    assert ingress.store.revision < int(told.split()[1]) <= owner.store.revision
    ingress.store.release()


def test_of_each_forwarded_rpc_it_is_known_whose_server_it_is_about() -> None:
    assert {path for path, rule in RULES.items() if rule.executed_by is not ExecutingMember.RECEIVER} == set(
        subjects._FINDERS
    )


FIXED = server_pb2.Roots(fixed=server_pb2.Roots.Fixed())

CHANGING: dict[str, Message] = {
    "StartCall": call_pb2.StartCallRequest(spec=spec(call_id="started")),
    "GetQueue": call_pb2.GetQueueRequest(server="one"),
    "ClearQueue": call_pb2.ClearQueueRequest(server="one"),
    "RefreshCatalog": catalog_pb2.RefreshCatalogRequest(server="one"),
    "ConnectServer": server_pb2.ConnectServerRequest(name="one"),
    "DisconnectServer": server_pb2.DisconnectServerRequest(name="one"),
    "SetRoots": server_pb2.SetRootsRequest(name="one", roots=FIXED),
}


@pytest.mark.parametrize("name", CHANGING)
async def test_what_succeeds_says_the_same_as_at_the_owner(two: Two, name: str) -> None:
    ingress, owner = two
    await owner.api(RPCS[name], CHANGING[name])  # the first time changes something
    assert _bare(await ingress.api(RPCS[name], CHANGING[name])) == _bare(await owner.api(RPCS[name], CHANGING[name]))


def _bare(message: Any) -> Any:
    """A message without what differs from time to time."""
    for record in (*getattr(message, "lists", ()), getattr(message, "call", None), getattr(message, "server", None)):
        for field in ("fetched_at", "ended_at", "state", "result", "queue", "connected_at", "revision"):
            if record is not None and field in record.DESCRIPTOR.fields_by_name:
                record.ClearField(field)
    if hasattr(message, "roots"):
        message.ClearField("revision")
    return message


REFUSED: dict[str, tuple[str, Message]] = {
    "no method": ("CallMethod", call(method="")),
    "not JSON": ("CallMethod", call(params=b"{")),
    "a failing tool": ("CallMethod", call(params=b'{"name":"fails"}', call_id="failing")),
    "no such server": ("CallMethod", call(server="nowhere")),
    "a call that has ended": ("CancelCall", call_pb2.CancelCallRequest(id="ended")),
    "no such call": ("CancelCall", call_pb2.CancelCallRequest(id="no such call")),
    "no such task": ("CancelTask", task_pb2.CancelTaskRequest(id="no such task")),
    "no result": ("GetTaskResult", task_pb2.GetTaskResultRequest(id="no such task")),
    "a server of a file": ("RemoveServer", server_pb2.RemoveServerRequest(name="one")),
    "one that changes": ("UpdateServer", server_pb2.UpdateServerRequest(spec=server_pb2.ServerSpec(name="one"))),
    "stale roots": ("SetRoots", server_pb2.SetRootsRequest(name="one", roots=FIXED, expected_revision=10**9)),
    "no queue": ("GetQueue", call_pb2.GetQueueRequest(server="nowhere")),
}


@pytest.mark.parametrize("about", REFUSED)
async def test_what_is_refused_is_refused_with_the_same_status_and_details(two: Two, about: str) -> None:
    ingress, owner = two

    async def fails(sent: Sent) -> Outcome:
        if sent.params.get("name") == "fails":
            raise PeerError(-32000, "it failed", {"why": "because"})
        return await at_once(sent)

    owner.peer.behaviour = fails
    await owner.api(CALL, call(call_id="ended"))
    await known(ingress, "ended", CallState.COMPLETED)
    name, request = REFUSED[about]
    theirs, ours = await owner.api.refused(RPCS[name], request), await ingress.api.refused(RPCS[name], request)
    for refusal in (theirs, ours):
        refusal.metadata.pop("elapsed_s", None)
        for detail in refusal.details.values():
            getattr(detail, "metadata", {}).pop("elapsed_s", None)
    assert ours == theirs


async def test_tasks_and_calls_are_found_by_their_id(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    await ingress.api(RPCS["StartCall"], call_pb2.StartCallRequest(spec=spec(call_id="long")))
    await until(lambda: bool(owner.peer.sent))
    await known(ingress, "long", CallState.IN_PROGRESS)
    cancelled = await ingress.api(RPCS["CancelCall"], call_pb2.CancelCallRequest(id="long", abort=True))
    assert cancelled.call.state == call_pb2.CALL_STATE_CANCELLED
    assert owner.peer.sent[0].cancelled


async def test_a_forward_ends_just_before_its_caller_gives_up_and_says_why(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingress, owner = two
    await ingress.api(CALL, call())  # they are connected
    owner.peer.behaviour = never
    # The caller waits for longer than any machine needs; of that the forward has a second.
    monkeypatch.setattr(forwarding, "REPORT_MARGIN_S", 10 * LIMIT_S - 1)
    path = f"/{CALL.containing_service.full_name}/{CALL.name}"
    raw = call().SerializeToString()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ingress.api.channel.unary_unary(path)(raw, metadata=ingress.api.metadata, timeout=10 * LIMIT_S)
    assert (caught.value.code(), explain(caught.value).reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_OVER")
    await until(lambda: all(each.cancelled for each in owner.peer.sent[1:]))


async def test_a_call_of_a_stream_is_forwarded_by_itself(two: Two) -> None:
    ingress, owner = two
    async with streamed(ingress.api.channel, AUTHORIZED) as calls:
        await calls.say(begin(1, spec()), begin(2, spec(server="nowhere")))
        first, second = await calls.next(), await calls.next()
        ends = {step.id: step.WhichOneof("step") for step in (first, second)}
        assert ends == {1: "completed", 2: "failed"}
    assert len(owner.peer.sent) == 1


async def test_an_rpc_has_one_entry_in_the_audit_log_by_the_ingress(two: Two) -> None:
    ingress, owner = two
    await ingress.api(RPCS["DisconnectServer"], server_pb2.DisconnectServerRequest(name="one"))

    def entries() -> list[str]:
        return [entry.action for entry in owner.hub.audit.newest(AuditFilter())]

    await until(lambda: "DisconnectServer" in entries())
    await anyio.sleep(0.2)
    assert entries().count("DisconnectServer") == 1


async def test_the_span_of_the_call_is_below_that_of_the_forward_and_that_below_the_rpc_s(made: Fleet) -> None:
    ingress, owner = await made.start("a", traced=True), await made.start("b", one(), traced=True)
    await until(lambda: bool(owner.peer.links))
    await ingress.api(CALL, call())
    assert ingress.world.tracer is not None
    assert owner.world.tracer is not None
    (rpc,) = [told.span for told in ingress.world.tracer.told if told.span.kind is SpanKind.SERVER]
    (forward,) = [told.span for told in ingress.world.tracer.told if told.span.kind is SpanKind.CLIENT]
    assert forward.trace.parent_id == rpc.trace.span_id
    await until(lambda: any(told.span.trace.parent_id == forward.trace.span_id for told in owner.world.tracer.told))
    assert not [told for told in owner.world.tracer.told if told.span.kind is SpanKind.SERVER]


async def test_forwards_are_measured_with_why_they_failed(made: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    seen = Seen()
    ingress, owner = await made.start("a", meter=seen.meter), await made.start("b", one())
    await until(lambda: bool(owner.peer.links))
    await ingress.api(CALL, call())
    await ingress.api.refused(CALL, call(method=""))
    owner.believed.hear("one", ingress.owner)
    await ingress.api.refused(CALL, call())
    taken = [(point.attributes.get("error.type"), point.count) for point in seen.points(metrics.FORWARD)]
    assert sorted(taken, key=str) == [("NOT_OWNER", 2), (None, 2)]


async def test_who_may_not_is_refused_where_it_arrives(two: Two) -> None:
    ingress, owner = two
    viewer = await token(ingress, "viewer", Grant(Role.VIEWER))
    assert (await viewer.refused(CALL, call())).reason == "PERMISSION_DENIED"
    stranger = await token(ingress, "stranger", Grant(Role.CALLER, ("other",)))
    assert (await stranger.refused(CALL, call())).reason == "SERVER_NOT_FOUND"
    ingress.believed.hear("one", replace(owner.owner, forward="127.0.0.1:9"))  # not that it is changing, either
    assert (await stranger.refused(CALL, call())).reason == "SERVER_NOT_FOUND"
    assert not owner.peer.sent


async def test_the_owner_holds_a_caller_to_its_grants(two: Two) -> None:
    """Both may make calls: which methods, the owner's servicer decides by the grants that came along."""
    ingress, owner = two
    caller = await token(ingress, "caller", Grant(Role.CALLER, ("one",)))
    await caller(CALL, call())
    refused = await caller.refused(CALL, call(method="logging/setLevel"))
    assert (refused.reason, refused.metadata["permission"]) == ("PERMISSION_DENIED", "operate")
    assert len(owner.peer.sent) == 1


async def test_whoever_a_caller_calls_for_is_known_at_the_owner(two: Two) -> None:
    ingress, owner = two
    named = Caller(ingress.api.channel, (*ingress.api.metadata, ("hubbub-as", "ann")))
    await named(CALL, call())
    await until(lambda: bool(owner.hub.calls.select(CallFilter())))
    assert owner.hub.calls.select(CallFilter())[0].principal == "ann"


async def test_a_call_ends_with_the_credential_of_its_caller(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    caller = await token(ingress, "ann", Grant(Role.CALLER))
    refused = asyncio.create_task(caller.refused(CALL, call()))
    await until(lambda: bool(owner.peer.sent))
    await ingress.hub.tokens.revoke("ann")
    assert (await refused).reason == "CREDENTIAL_ENDED"
    await until(lambda: owner.peer.sent[0].cancelled)


async def test_the_owner_of_another_machine_is_not_the_owner_of_this_one(two: Two) -> None:
    """A person who reads the data directory there may start any program there, and not here."""
    ingress, owner = two
    for member in two:
        member.believed.hear("added", owner.owner)
    await owner.api(RPCS["AddServer"], server_pb2.AddServerRequest(spec=spec_of(name="added", command=PEER)))
    change = server_pb2.UpdateServerRequest(spec=spec_of(name="added", command="/bin/true"))
    assert (await ingress.api.refused(RPCS["UpdateServer"], change)).reason == "COMMAND_NOT_ALLOWED"
    await owner.api(RPCS["UpdateServer"], change)


async def test_over_connect_it_is_the_same(two: Two) -> None:
    ingress, owner = two
    serving = serve_connect(
        ingress.hub, listen="127.0.0.1:0", gate=gate(ingress.hub), middleware=(ingress.forwarding.wrap,)
    )
    async with serving as url, httpx2.AsyncClient(base_url=url, trust_env=False, timeout=LIMIT_S) as client:

        async def post(**given: Any) -> httpx2.Response:
            body = {"spec": {"server": "one", "method": "tools/call", "params": {"name": "echo"}, **given}}
            return await client.post("/hubbub.v1.CallService/CallMethod", json=body, headers=dict(AUTHORIZED))

        made, refused = await post(), await post(method="")
    assert made.json()["call"]["result"] == {"echo": {"name": "echo"}}
    assert refused.json()["code"] == "invalid_argument"
    assert len(owner.peer.sent) == 1


async def test_a_stream_is_refused_with_the_same_status_and_details_as_at_the_owner(two: Two) -> None:
    ingress, owner = two
    request = event_pb2.TailLogsRequest(server="one", lines=-1)
    theirs = await owner.api.refused(RPCS["TailLogs"], request)
    assert theirs.violations
    assert await ingress.api.refused(RPCS["TailLogs"], request) == theirs
