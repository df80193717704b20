"""Credentials that end, names that are not one's own, and what others might steal."""

import asyncio

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hubbub.v1 import admin_pb2, call_pb2, common_pb2, inbox_pb2
from hubbubd.core.access import Grant, Role
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter

from .conftest import LIMIT_S, TOKEN, Caller, begin_work, explain, refusing, until
from .test_access import World, world
from .test_bad_input import METHODS

__all__ = ["world"]  # the fixture

LOCAL = ("authorization", f"Bearer {TOKEN}")
SELF = admin_pb2.GetSelfRequest()
ACCEPT = inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":"x"}')


def watch_inbox(
    caller: Caller, token: str = ""
) -> grpc.aio.UnaryStreamCall[bytes, inbox_pb2.WatchPendingRequestsResponse]:
    method = caller.channel.unary_stream(
        "/hubbub.v1.InboxService/WatchPendingRequests",
        response_deserializer=inbox_pb2.WatchPendingRequestsResponse.FromString,
    )
    return method(
        inbox_pb2.WatchPendingRequestsRequest(resume_token=token).SerializeToString(), metadata=caller.metadata
    )


@pytest.mark.parametrize("path", ["/hubbub.v1.AdminService/GetSelf", "/hubbub.v1.InboxService/WatchPendingRequests"])
async def test_an_rpc_of_a_token_that_ends_without_a_request_is_refused(world: World, path: str) -> None:
    caller = await world.caller(Role.ADMIN)
    call = caller.channel.stream_stream(path)(metadata=caller.metadata)
    await call.done_writing()
    with anyio.fail_after(LIMIT_S), refusing("MALFORMED_REQUEST"):
        await call.read()


# Names


async def test_who_may_not_name_others_may_name_itself_only(world: World) -> None:
    caller = await world.caller(Role.CALLER, name="ada")
    bare = caller.metadata
    caller.metadata = (*bare, ("hubbub-as", "ada"))
    assert (await caller(METHODS["GetSelf"], SELF)).caller.name == "ada"
    for name in ("bob", "local", "hub", "ADA"):
        caller.metadata = (*bare, ("hubbub-as", name))
        refusal = await caller.refused(METHODS["GetSelf"], SELF)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "NAMING_NOT_ALLOWED")


async def test_a_token_that_may_name_others_speaks_for_them_with_its_own_grants(world: World) -> None:
    _, secret = await world.hub.tokens.create(
        "desk", [Grant(Role.RESPONDER)], by="test", ttl_s=None, may_name_others=True
    )
    caller = Caller(world.channel, (("authorization", f"Bearer {secret}"), ("hubbub-as", "ada")))
    me = (await caller(METHODS["GetSelf"], SELF)).caller
    assert (me.name, [grant.role for grant in me.grants]) == ("ada", [admin_pb2.ACCESS_ROLE_RESPONDER])


@pytest.mark.parametrize(
    "name",
    [
        "hub",
        "Hub",
        "hub:file",
        "*",
        "cert:ada",
        "oidc:ada",
        "oidc-role:ops",
        "OIDC:ada",
        "\uff48\uff55\uff42",
        "cert\uff1aada",
    ],
)
async def test_nobody_may_take_the_name_of_the_hub_or_of_another_authority(world: World, name: str) -> None:
    caller = Caller(world.channel, (LOCAL, ("hubbub-as-bin", name.encode())))
    assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "NAMING_NOT_ALLOWED"
    if name.isascii():
        caller.metadata = (LOCAL, ("hubbub-as", name))
        assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "NAMING_NOT_ALLOWED"


@pytest.mark.parametrize("name", ["Jörg Übelhör", "山田太郎", "Ада 🌷", "x" * 63 + "é", "ada"])
async def test_a_name_in_any_script_is_the_callers(world: World, name: str) -> None:
    caller = Caller(world.channel, (LOCAL, ("hubbub-as-bin", name.encode())))
    assert (await caller(METHODS["GetSelf"], SELF)).caller.name == name


async def test_a_name_is_the_same_one_however_its_accents_are_written(world: World) -> None:
    caller = Caller(world.channel, (LOCAL, ("hubbub-as-bin", "Jo\u0308rg".encode())))
    assert (await caller(METHODS["GetSelf"], SELF)).caller.name == "J\u00f6rg"


@pytest.mark.parametrize(
    "name",
    [b"", b" ", b"ada ", b"\xff", b"x\ny", "ada\u202e".encode(), "a\u200bda".encode(), ("ö" * 65).encode()],
    ids=["empty", "blank", "spaced", "no text", "two lines", "turned", "unseen", "long"],
)
async def test_what_is_no_name_to_be_read_is_refused(world: World, name: bytes) -> None:
    caller = Caller(world.channel, (LOCAL, ("hubbub-as-bin", name)))
    refusal = await caller.refused(METHODS["GetSelf"], SELF)
    assert (refusal.code, list(refusal.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, ["metadata.hubbub-as"])


async def test_who_may_not_name_others_may_not_in_another_script_either(world: World) -> None:
    caller = await world.caller(Role.CALLER, name="ada")
    caller.metadata = (*caller.metadata, ("hubbub-as-bin", "Åda".encode()))
    assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "NAMING_NOT_ALLOWED"


async def test_an_admin_who_may_not_name_others_makes_no_token_that_may(world: World) -> None:
    caller = await world.caller(Role.ADMIN)
    grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)]
    request = admin_pb2.CreateTokenRequest(name="new", grants=grants, may_name_others=True)
    refusal = await caller.refused(METHODS["CreateToken"], request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "NAMING_NOT_ALLOWED")
    assert "new" not in [token.name for token in world.hub.tokens.all()]


async def test_who_has_a_permission_for_some_servers_is_told_where_it_is_needed_for_all(world: World) -> None:
    caller = await world.caller(Role.VIEWER, "a*")
    refusal = await caller.refused(METHODS["GetStatus"], admin_pb2.GetStatusRequest())
    assert "needs the permission `see` for all servers" in refusal.message


# Tokens


async def test_a_token_is_shown_once_and_its_store_has_a_digest_only(world: World) -> None:
    local = Caller(world.channel, (LOCAL,))
    grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER, servers=["a*"])]
    made = await local(
        METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name="new", grants=grants, ttl=Duration(seconds=60))
    )
    assert made.secret.startswith(f"hbt_{made.token.id}_")
    assert made.token.expires_at.seconds - made.token.created_at.seconds in (59, 60)
    listed = await local(METHODS["ListTokens"], admin_pb2.ListTokensRequest())
    assert [token.name for token in listed.tokens] == ["new"]
    secret = made.secret.rpartition("_")[2]
    stored = await world.hub.store.snapshot("")
    assert not [entry.key for entry in stored.entries if secret.encode() in entry.value]
    assert secret not in str(listed)
    again = await local.refused(METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name="new", grants=grants))
    assert (again.code, again.reason) == (grpc.StatusCode.ALREADY_EXISTS, "TOKEN_EXISTS")


async def test_the_use_of_a_token_is_noted(world: World) -> None:
    caller = await world.caller(Role.VIEWER, name="me")
    assert [token.last_used_at for token in world.hub.tokens.all()] == [None]
    await caller(METHODS["GetSelf"], SELF)
    (token,) = world.hub.tokens.all()
    assert token.last_used_at is not None


@pytest.mark.parametrize("change", ["longer", "shorter", "other id", "other secret", "upper", "no secret"])
async def test_a_token_that_is_nearly_right_is_refused(world: World, change: str) -> None:
    _, secret = await world.hub.tokens.create("me", [Grant(Role.ADMIN)], by="test", ttl_s=None, may_name_others=False)
    _, other = await world.hub.tokens.create("her", [Grant(Role.ADMIN)], by="test", ttl_s=None, may_name_others=False)
    wrong = {
        "longer": secret + "x",
        "shorter": secret[:-1],
        "other id": other[:16] + secret[16:],
        "other secret": secret[:17] + other[17:],
        "upper": secret.upper(),
        "no secret": secret[:17],
    }[change]
    caller = Caller(world.channel, (("authorization", f"Bearer {wrong}"),))
    refusal = await caller.refused(METHODS["GetSelf"], SELF)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")


async def test_a_revoked_token_is_refused_and_its_name_is_free(world: World) -> None:
    caller = await world.caller(Role.VIEWER, name="me")
    await caller(METHODS["GetSelf"], SELF)
    await world.hub.tokens.revoke("me")
    assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "TOKEN_INVALID"
    assert world.hub.tokens.all() == []
    again = await world.caller(Role.VIEWER, name="me")
    assert (await again(METHODS["GetSelf"], SELF)).caller.name == "me"
    assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "TOKEN_INVALID"


async def test_a_token_that_is_revoked_while_it_is_used_stays_revoked(world: World) -> None:
    caller = await world.caller(Role.VIEWER, name="me")
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(_use, caller)
        tasks.start_soon(world.hub.tokens.revoke, "me")
    await world.hub.tokens.create("another", [Grant(Role.VIEWER)], by="test", ttl_s=None, may_name_others=False)
    assert [token.name for token in world.hub.tokens.all()] == ["another"]


async def _use(caller: Caller) -> None:
    try:
        await caller(METHODS["GetSelf"], SELF)
    except grpc.aio.AioRpcError as error:
        assert explain(error).reason in ("TOKEN_INVALID", "CREDENTIAL_ENDED")  # noqa: PT017 - either may come


# The end of a credential


async def ended(stream: grpc.aio.UnaryStreamCall[bytes, inbox_pb2.WatchPendingRequestsResponse]) -> str:
    with anyio.fail_after(LIMIT_S), pytest.raises(grpc.aio.AioRpcError) as caught:
        await _to_the_end(stream)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return explain(caught.value).reason


async def _to_the_end(stream: grpc.aio.UnaryStreamCall[bytes, inbox_pb2.WatchPendingRequestsResponse]) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def test_a_watch_ends_when_its_token_is_revoked_and_others_go_on(world: World) -> None:
    mine, hers = await world.caller(Role.VIEWER, name="me"), await world.caller(Role.VIEWER, name="her")
    streams = watch_inbox(mine), watch_inbox(hers)
    for stream in streams:
        assert (await stream.read()).HasField("synced")
    await world.hub.tokens.revoke("me")
    assert await ended(streams[0]) == "CREDENTIAL_ENDED"
    request_id = await world.request("anybody")
    with anyio.fail_after(LIMIT_S):
        while (step := await streams[1].read()).upsert.id != request_id:
            assert step.HasField("bookmark")
    streams[1].cancel()


async def test_watches_that_have_just_begun_end_with_their_token_too(world: World) -> None:
    for number in range(40):
        caller = await world.caller(Role.VIEWER, name=f"me{number}")
        streams = [watch_inbox(caller) for _ in range(5)]
        await streams[0].read()
        await world.hub.tokens.revoke(f"me{number}")
        reasons = await asyncio.gather(*map(_reason, streams))
        assert reasons[0] == "CREDENTIAL_ENDED"
        # Those that came after it are refused; so many of them may reach the limit of refused credentials.
        assert set(reasons) <= {"CREDENTIAL_ENDED", "TOKEN_INVALID", "TOO_MANY_ATTEMPTS"}


async def _reason(stream: grpc.aio.UnaryStreamCall[bytes, inbox_pb2.WatchPendingRequestsResponse]) -> str:
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _to_the_end(stream)
    return explain(caught.value).reason


async def test_a_watch_ends_when_its_token_expires(world: World) -> None:
    _, secret = await world.hub.tokens.create("me", [Grant(Role.VIEWER)], by="test", ttl_s=0.5, may_name_others=False)
    caller = Caller(world.channel, (("authorization", f"Bearer {secret}"),))
    assert await ended(watch_inbox(caller)) == "CREDENTIAL_ENDED"
    assert (await caller.refused(METHODS["GetSelf"], SELF)).reason == "CREDENTIAL_ENDED"
    renewed = await world.caller(Role.VIEWER, name="me")  # an expired token does not keep its name
    assert (await renewed(METHODS["GetSelf"], SELF)).caller.name == "me"


async def test_work_and_reflection_end_with_the_token_too(world: World) -> None:
    caller = await world.caller(Role.ADMIN, name="me")
    work = begin_work(caller.channel, caller.metadata)
    await work.write(inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready()))
    assert (await work.read()).HasField("bookmark")
    reflection = reflection_pb2_grpc.ServerReflectionStub(caller.channel)
    asked = reflection.ServerReflectionInfo(metadata=caller.metadata)
    await asked.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    assert (await asked.read()).list_services_response.service
    await world.hub.tokens.revoke("me")
    for stream in (work, asked):
        assert await ended(stream) == "CREDENTIAL_ENDED"
    assert world.hub.watcher_count() == 0


async def test_a_call_ends_with_its_token_and_a_detached_one_goes_on(world: World) -> None:
    caller = await world.caller(Role.CALLER, name="me")
    spec = call_pb2.CallSpec(server="away", method="tools/list", call_id="waits")
    method = caller.channel.unary_unary("/hubbub.v1.CallService/CallMethod")
    running = method(call_pb2.CallMethodRequest(spec=spec).SerializeToString(), metadata=caller.metadata)
    spec.call_id = "lasts"
    await caller(METHODS["StartCall"], call_pb2.StartCallRequest(spec=spec))
    await until(lambda: bool(world.hub.calls.select(CallFilter(ids=frozenset({"waits"})))))
    await world.hub.tokens.revoke("me")
    with anyio.fail_after(LIMIT_S), refusing("CREDENTIAL_ENDED"):
        await running
    await until(lambda: world.hub.calls.get("waits").state is CallState.CANCELLED)
    assert world.hub.calls.get("lasts").state is CallState.QUEUED


async def test_a_request_that_has_not_come_when_its_token_is_revoked_is_not_waited_for(world: World) -> None:
    caller = await world.caller(Role.VIEWER, name="me")
    late = caller.channel.stream_unary(
        "/hubbub.v1.AdminService/GetSelf", response_deserializer=admin_pb2.GetSelfResponse.FromString
    )(metadata=caller.metadata)
    await late.wait_for_connection()
    await until(lambda: world.hub.tokens.all()[0].last_used_at is not None)  # it was let in
    await world.hub.tokens.revoke("me")
    with anyio.fail_after(LIMIT_S), refusing("CREDENTIAL_ENDED"):
        await late


# What might be stolen


async def test_the_resume_token_of_another_brings_a_reset_and_what_is_ones_own(world: World) -> None:
    seer, caller = await world.caller(Role.VIEWER), await world.caller(Role.CALLER, name="me")
    await world.request("somebody")
    own = await world.request("me")
    theirs = watch_inbox(seer)
    while not (step := await theirs.read()).HasField("synced"):
        pass
    theirs.cancel()
    mine = watch_inbox(caller, step.resume_token)
    steps = [await mine.read() for _ in range(3)]
    mine.cancel()
    assert [step.WhichOneof("event") for step in steps] == ["reset", "upsert", "synced"]
    assert (steps[0].reset.reason, steps[1].upsert.id) == (common_pb2.RESET_REASON_OTHER_FILTER, own)


async def test_the_page_token_of_another_is_refused(world: World) -> None:
    seer, caller = await world.caller(Role.VIEWER), await world.caller(Role.CALLER, name="me")
    for owner in ("somebody", "me"):
        await world.request(owner)
    listed = await seer(METHODS["ListPendingRequests"], inbox_pb2.ListPendingRequestsRequest(page_size=1))
    request = inbox_pb2.ListPendingRequestsRequest(page_size=1, page_token=listed.next_page_token)
    assert (await caller.refused(METHODS["ListPendingRequests"], request)).reason == "PAGE_TOKEN_INVALID"


async def test_the_answer_id_of_another_is_no_answer_of_ones_own(world: World) -> None:
    ada, bob = await world.caller(Role.RESPONDER, name="ada"), await world.caller(Role.RESPONDER, name="bob")
    request_id = await world.request("somebody")
    answer = inbox_pb2.AnswerPendingRequestRequest(id=request_id, accept=ACCEPT, answer_id="once")
    await ada(METHODS["AnswerPendingRequest"], answer)
    await ada(METHODS["AnswerPendingRequest"], answer)
    refusal = await bob.refused(METHODS["AnswerPendingRequest"], answer)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_ANSWERED")


async def test_the_claim_of_another_is_good_for_nothing(world: World) -> None:
    bob = await world.caller(Role.ADMIN, name="bob")
    request_id, claim_id = await world.claimed("somebody", "ada")
    for rpc, request in (
        (
            "AnswerPendingRequest",
            inbox_pb2.AnswerPendingRequestRequest(id=request_id, claim_id=claim_id, accept=ACCEPT),
        ),
        ("RenewClaim", inbox_pb2.RenewClaimRequest(id=request_id, claim_id=claim_id)),
        ("ReleasePendingRequest", inbox_pb2.ReleasePendingRequestRequest(id=request_id, claim_id=claim_id)),
    ):
        refusal = await bob.refused(METHODS[rpc], request)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "CLAIM_NOT_YOURS"), rpc
    claim = world.hub.inbox.get(request_id).claim
    assert (claim.id, claim.by) == (claim_id, "ada")


async def test_the_call_id_of_another_tells_nothing_of_the_call(world: World) -> None:
    ada, bob = await world.caller(Role.CALLER, name="ada"), await world.caller(Role.CALLER, name="bob")
    spec = call_pb2.CallSpec(server="away", method="tools/list", call_id="mine")
    await ada(METHODS["StartCall"], call_pb2.StartCallRequest(spec=spec))
    await ada(METHODS["StartCall"], call_pb2.StartCallRequest(spec=spec))
    spec.server = "elsewhere"
    others = [await bob.refused(METHODS["StartCall"], call_pb2.StartCallRequest(spec=spec))]
    spec.server = "away"
    others.append(await bob.refused(METHODS["StartCall"], call_pb2.StartCallRequest(spec=spec)))
    others.append(await bob.refused(METHODS["CallMethod"], call_pb2.CallMethodRequest(spec=spec)))
    for refusal in others:
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_REUSED")
        assert (refusal.message, refusal.metadata) == (others[0].message, {})


@pytest.mark.parametrize("role", [Role.RESPONDER, Role.CALLER, Role.ADMIN])
async def test_a_worker_is_given_what_it_may_answer_only(world: World, role: Role) -> None:
    caller = await world.caller(role, "away", name="me")
    far = await world.request("me", server="elsewhere")
    others, own = await world.request("somebody"), await world.request("me")
    work = begin_work(caller.channel, caller.metadata)
    await work.write(inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(capacity=5)))
    expected = {own} if role is Role.CALLER else {own, others}
    given: set[str] = set()
    with anyio.fail_after(LIMIT_S):
        while len(given) < len(expected):
            step = await work.read()
            given |= {step.assigned.id} if step.HasField("assigned") else set()
    assert given == expected
    assert all(world.hub.inbox.get(each).claim is None for each in {far, others} - expected)
    work.cancel()
