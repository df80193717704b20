"""The audit log and the limits of principals, over the API."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from hubbub.v1 import admin_pb2, call_pb2, event_pb2, inbox_pb2, server_pb2
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.policy.commands import REST_PATTERN, AllowedCommand
from hubbubd.core.access import Grant, Role
from hubbubd.core.audit import AuditEntry, AuditFilter, AuditKind
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind
from hubbubd.rpc.auth.permissions import RULES
from hubbubd.rpc.interceptors import MAX_TARGET
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import LIMIT_S, TOKEN, Caller, gate, refusing, settled, spec_of, until
from .test_bad_input import METHODS

SECRET = "a-secret-that-nobody-should-see"
FORM = b'{"message":"?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}'
PYTHON_WITH_A_KEY = AllowedCommand(command=sys.executable, args=(REST_PATTERN,), env=("KEY",))
NOT_AUDITED = {"CallMethod", "StreamCalls", "StartCall", "Serve", "Check", "ServerReflectionInfo"}


@dataclass
class World:
    """A hub that is served, and its store."""

    hub: Hub
    channel: grpc.aio.Channel
    store: SqliteStore

    @property
    def local(self) -> Caller:
        return Caller(self.channel)

    async def caller(self, name: str, role: Role) -> Caller:
        """Somebody with a token."""
        _, secret = await self.hub.tokens.create(name, [Grant(role)], by="test", ttl_s=None, may_name_others=False)
        return Caller(self.channel, (("authorization", f"Bearer {secret}"),))

    async def ask(self, request_id: str) -> None:
        """A question that nobody asked."""
        request = PendingRequest(
            id=request_id,
            server="away",
            kind=RequestKind.ELICITATION_FORM,
            origin=Origin.PLAIN,
            request=FORM,
            created_at=self.hub.clock.now(),
            deadline=None,
        )
        await self.hub.inbox.open([request])

    def entries(self, **chosen: Any) -> list[AuditEntry]:
        return sorted(self.hub.audit.select(AuditFilter(**chosen)), key=lambda entry: entry.created_at)


Make = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Serves hubs with the settings given."""

    @asynccontextmanager
    async def made(**settings: Any) -> AsyncIterator[World]:
        store = await SqliteStore.open(":memory:")
        away = ServerConfig(name="away", transport="http", url="http://127.0.0.1:9/mcp", max_queued=100)
        chosen = HubSettings(data_dir=tmp_path, allow_commands=(PYTHON_WITH_A_KEY,), **settings)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(settled())
            connector = McpConnector(TokenFile.open(tmp_path))
            hub = await stack.enter_async_context(Hub.open(store, connector, {"away": away}, chosen))
            address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0.1))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            yield World(hub, channel, store)
        await store.close()

    return made


def test_every_rpc_that_is_not_reading_is_audited_but_calls() -> None:
    reading = {path for path, rule in RULES.items() if rule.audit is None}
    names = {path.rpartition("/")[2] for path in reading} - NOT_AUDITED
    assert all(name.startswith(("Get", "List", "Watch", "Tail", "Check", "Replay")) for name in names)
    assert {path.rpartition("/")[2] for path, rule in RULES.items() if rule.audit is AuditKind.ANSWER} == {
        "ClaimPendingRequest",
        "RenewClaim",
        "ReleasePendingRequest",
        "AnswerPendingRequest",
        "Work",
    }
    assert {path.rpartition("/")[2] for path, rule in RULES.items() if rule.audit is AuditKind.CHANGE} >= {
        "AddServer",
        "UpdateServer",
        "RemoveServer",
        "RevokeRememberedApproval",
        "ConnectServer",
        "DisconnectServer",
        "SetRoots",
        "CreateToken",
        "RevokeToken",
        "CompactStore",
        "BackupStore",
        "ClearQueue",
        "CancelCall",
        "CancelTask",
    }


@pytest.mark.usefixtures("processes")
async def test_a_change_is_in_the_log_when_its_rpc_returns_with_who_and_what_and_never_its_contents(make: Make) -> None:
    async with make() as world:
        admin = await world.caller("ada", Role.ADMIN)
        spec = spec_of(name="new", command=sys.executable, args=[SECRET], env={"KEY": SECRET})
        await admin(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))
        (entry,) = world.entries(action="AddServer")
        assert (entry.principal, entry.peer, entry.target, entry.outcome) == ("ada", "loopback", "new", "OK")
        assert entry.credential.startswith("token:")

        grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)]
        made = await admin(METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name="eve", grants=grants))
        await world.ask("req_1")
        answer = inbox_pb2.AnswerPendingRequestRequest(
            id="req_1", accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":"%s"}' % SECRET.encode())
        )
        await admin(METHODS["AnswerPendingRequest"], answer)
        assert [(e.action, e.target) for e in world.entries(principal="ada")] == [
            ("AddServer", "new"),
            ("CreateToken", "eve"),
            ("AnswerPendingRequest", "req_1"),
        ]
        kept = (await world.store.snapshot("audit/")).entries
        assert len(kept) == 3, "durable when the RPC returned"
        assert not any(secret.encode() in entry.value for entry in kept for secret in (SECRET, made.secret, TOKEN))


async def test_an_entry_names_the_trace_of_its_rpc(make: Make) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with make() as world:
        traced = Caller(world.channel, (*world.local.metadata, ("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01")))
        grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)]
        await traced(METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name="eve", grants=grants))
        await traced.refused(METHODS["RemoveServer"], server_pb2.RemoveServerRequest(name="away"))
        await world.local(METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name="tim", grants=grants))
        listed = await world.local(METHODS["ListAuditEntries"], admin_pb2.ListAuditEntriesRequest())
        assert {(entry.target, entry.trace_id) for entry in listed.entries} == {
            ("eve", trace_id),
            ("away", trace_id),
            ("tim", ""),
        }


async def test_a_stream_that_its_servicer_refuses_is_counted_too(make: Make) -> None:
    async with make() as world:
        grants = [Grant(Role.CALLER, ("away",)), Grant(Role.VIEWER, ("other",))]
        _, secret = await world.hub.tokens.create("cal", grants, by="test", ttl_s=None, may_name_others=False)
        caller = Caller(world.channel, (("authorization", f"Bearer {secret}"),))
        await caller.refused(METHODS["TailLogs"], event_pb2.TailLogsRequest(server="away"))
        (entry,) = world.entries(principal="cal")
        assert (entry.action, entry.outcome, entry.target) == ("TailLogs", "PERMISSION_DENIED", "away")


async def test_what_an_entry_names_is_one_short_line_whatever_was_asked_for(make: Make) -> None:
    async with make() as world:
        asked = "ada\n\x1b[2J\u202e" + "x" * 1000
        await world.local.refused(METHODS["DisconnectServer"], server_pb2.DisconnectServerRequest(name=asked))
        (entry,) = world.entries(action="DisconnectServer")
        assert entry.outcome == "INVALID_ARGUMENT"
        assert entry.target.startswith("ada[2Jx")
        assert len(entry.target) <= MAX_TARGET


async def test_the_log_is_paged_filtered_and_newest_first(make: Make) -> None:
    async with make() as world:
        for number in range(5):
            await world.local(METHODS["DisconnectServer"], server_pb2.DisconnectServerRequest(name="away"))
            world.hub.audit.note("TakeOverServer", f"s{number}")
        seen: list[admin_pb2.AuditEntry] = []
        token = ""
        while True:
            answer = await world.local(
                METHODS["ListAuditEntries"], admin_pb2.ListAuditEntriesRequest(page_size=3, page_token=token)
            )
            seen += answer.entries
            token = answer.next_page_token
            if not token:
                break
        assert len(seen) == 10
        times = [entry.created_at.ToNanoseconds() for entry in seen]
        assert times == sorted(times, reverse=True)

        async def listed(**chosen: Any) -> int:
            return len(
                (
                    await world.local(
                        METHODS["ListAuditEntries"],
                        admin_pb2.ListAuditEntriesRequest(filter=admin_pb2.AuditFilter(**chosen)),
                    )
                ).entries
            )

        assert await listed(principal="hub") == 5
        assert await listed(action="DisconnectServer", target="away") == 5
        assert await listed(target="s3") == 1
        assert await listed(earliest_created_at=Timestamp(seconds=round(world.hub.clock.now()) + 3600)) == 0


async def test_too_many_bad_credentials_of_an_address_are_told_to_wait_and_good_ones_are_let_in(make: Make) -> None:
    async with make(refused_credentials_per_s=0.2) as world:  # two at once
        stranger = Caller(world.channel, (("authorization", "Bearer wrong"),))
        reasons: list[str] = []
        with anyio.fail_after(LIMIT_S):
            while "TOO_MANY_ATTEMPTS" not in reasons:  # now and then it may try once more
                reasons.append((await stranger.refused(METHODS["GetStatus"], admin_pb2.GetStatusRequest())).reason)
        assert reasons[:2] == ["TOKEN_INVALID", "TOKEN_INVALID"]
        assert set(reasons[:-1]) == {"TOKEN_INVALID"}
        await world.local(METHODS["GetSelf"], admin_pb2.GetSelfRequest())


async def test_claims_of_one_principal_are_bounded_until_one_is_given_back(make: Make) -> None:
    async with make(claims_per_principal=2) as world:
        for number in range(3):
            await world.ask(f"req_{number}")
        claimed = [
            await world.local(METHODS["ClaimPendingRequest"], inbox_pb2.ClaimPendingRequestRequest(id=f"req_{number}"))
            for number in range(2)
        ]
        third = inbox_pb2.ClaimPendingRequestRequest(id="req_2")
        refusal = await world.local.refused(METHODS["ClaimPendingRequest"], third)
        assert (refusal.reason, refusal.metadata["limit"]) == ("TOO_MANY_CLAIMS", "2")
        release = inbox_pb2.ReleasePendingRequestRequest(id="req_0", claim_id=claimed[0].pending_request.claim.id)
        await world.local(METHODS["ReleasePendingRequest"], release)
        await world.local(METHODS["ClaimPendingRequest"], third)


async def test_one_s_own_claim_counts_once_however_often_it_is_made(make: Make) -> None:
    async with make(claims_per_principal=3) as world:
        held = world.hub.quotas.claims.count
        for number in range(3):
            await world.ask(f"req_{number}")
        mine = inbox_pb2.ClaimPendingRequestRequest(id="req_0", claim_id="my-window_0123456", ttl=Duration(seconds=30))
        for _ in range(3):
            await world.local(METHODS["ClaimPendingRequest"], mine)
            renewal = inbox_pb2.RenewClaimRequest(id="req_0", claim_id=mine.claim_id, ttl=Duration(seconds=60))
            await world.local(METHODS["RenewClaim"], renewal)
            assert held("local") == 1
        other = inbox_pb2.ClaimPendingRequestRequest(id="req_0", claim_id="my-phone_01234567", take_over=True)
        await world.local(METHODS["ClaimPendingRequest"], other)
        assert held("local") == 1
        async with anyio.create_task_group() as at_once:
            for number in (1, 2):
                claim = inbox_pb2.ClaimPendingRequestRequest(id=f"req_{number}")
                at_once.start_soon(world.local, METHODS["ClaimPendingRequest"], claim)
        assert held("local") == 3
        await world.local(METHODS["ClaimPendingRequest"], other)
        await world.local(
            METHODS["AnswerPendingRequest"],
            inbox_pb2.AnswerPendingRequestRequest(
                id="req_0", claim_id=other.claim_id, decline=inbox_pb2.AnswerPendingRequestRequest.Decline()
            ),
        )
        assert held("local") == 2


async def test_calls_of_one_principal_are_bounded_until_one_has_ended(make: Make) -> None:
    async with make(calls_per_principal=2) as world:
        await world.local(METHODS["ConnectServer"], server_pb2.ConnectServerRequest(name="away"))

        def start(number: int) -> call_pb2.StartCallRequest:
            return call_pb2.StartCallRequest(spec=call_pb2.CallSpec(server="away", method="ping", call_id=f"c{number}"))

        for number in range(2):
            await world.local(METHODS["StartCall"], start(number))
        refusal = await world.local.refused(METHODS["StartCall"], start(2))
        assert (refusal.reason, refusal.metadata["limit"]) == ("TOO_MANY_CALLS", "2")
        await world.local(METHODS["CancelCall"], call_pb2.CancelCallRequest(id="c0"))
        await until(lambda: world.hub.quotas.calls.count("local") == 1)
        await world.local(METHODS["StartCall"], start(3))
        await world.local(METHODS["ClearQueue"], call_pb2.ClearQueueRequest(server="away"))
        await until(lambda: world.hub.quotas.calls.count("local") == 0)
        assert len(world.hub.calls.select(CallFilter())) == 3


async def test_streams_of_one_principal_are_bounded_until_one_has_ended(make: Make) -> None:
    async with make(streams_per_principal=2) as world:
        path = f"/{METHODS['WatchPendingRequests'].containing_service.full_name}/WatchPendingRequests"
        open_stream = world.channel.unary_stream(path)
        watches = [open_stream(b"", metadata=world.local.metadata) for _ in range(2)]
        with anyio.fail_after(LIMIT_S):
            for watch in watches:
                await watch.read()
        refusal = await world.local.refused(METHODS["WatchCalls"], call_pb2.WatchCallsRequest())
        assert (refusal.reason, refusal.metadata["limit"]) == ("TOO_MANY_STREAMS", "2")
        work = world.channel.stream_stream("/hubbub.v1.InboxService/Work")(metadata=world.local.metadata)
        with anyio.fail_after(LIMIT_S), refusing("TOO_MANY_STREAMS"):
            await work.read()
        ada = await world.caller("ada", Role.ADMIN)
        await ada(METHODS["WatchCalls"], call_pb2.WatchCallsRequest())
        for watch in watches:
            watch.cancel()
        await until(lambda: not world.hub.quotas.streams.count("local"))
        await world.local(METHODS["WatchCalls"], call_pb2.WatchCallsRequest())
