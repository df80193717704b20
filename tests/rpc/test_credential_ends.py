"""A credential that has ended does nothing any more: every RPC, on connections that were opened before."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import grpc
import httpx2
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from hubbub.v1 import inbox_pb2, server_pb2
from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.sections.network import GrantSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.audit import AuditFilter, AuditKind
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.auth.permissions import RULES, RpcReach
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.timing.clock import Clock
from hubbubd.upstream.connector import McpConnector

from .access_world import ELSEWHERE, SERVER, World
from .conftest import LIMIT_S, TOKEN, begin_work, explain, refusing, settled, spec_of, until
from .test_access import OF_A_RECORD, OF_A_SERVER, OF_THE_HUB
from .test_bad_input import METHODS

GET_SELF = "/hubbub.v1.AdminService/GetSelf"
LATER_S = 20 * 366 * 86_400.0
NOT_BY_RPC = ("audit/", "milestones", "server/")
PATHS = sorted(path for path, rule in RULES.items() if rule.reach is not RpcReach.OPEN)
ENDS = ("certificate over", "jwt over", "token over", "token revoked", "grant taken")
CODES = {
    "CREDENTIAL_ENDED": grpc.StatusCode.UNAUTHENTICATED,
    "TOKEN_INVALID": grpc.StatusCode.UNAUTHENTICATED,
    "NOTHING_GRANTED": grpc.StatusCode.PERMISSION_DENIED,
}
"""With what it may be refused, and how."""

GRANTED = tuple(GrantSettings(who=who, roles=("admin",)) for who in ("cert:ada", "oidc:ada"))


class Shifted(Clock):
    """The gate's clock, `ahead` seconds of the real one."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Issuer:
    """Stands for an identity provider whose tokens have been verified: all of them are Ada's, for ten minutes."""

    def __init__(self, grants: Grants, until: float) -> None:
        self._grants = grants
        self._until = until

    async def principal(self, token: str) -> Principal | None:
        return self._grants.principal_of_claims("ada", (), self._until) if token == "jwt" else None


@dataclass
class Caller:
    """Who is let in now, over gRPC and over Connect, and how that ends."""

    world: World
    http: httpx2.AsyncClient
    end: Callable[[], Any]
    metadata: tuple[tuple[str, str], ...] = ()
    asked: list[str] = field(default_factory=list)

    async def ask(self, path: str, request: bytes) -> str:
        """The reason why an RPC is refused, over gRPC; empty when there is a first response."""
        self.asked.append(path)
        call = self.world.channel.stream_stream(path)(metadata=self.metadata)
        try:
            with anyio.fail_after(LIMIT_S):
                await call.write(request)
                await call.done_writing()
                await call.read()
                await call.read()
        except grpc.aio.AioRpcError as error:
            if error.details() == "Internal error from Core":
                # The refusal came before the request was written, and gRPC's client forgets it for that.
                return await self.ask(path, request)
            refusal = explain(error)
            return refusal.reason if refusal.code is CODES.get(refusal.reason) else f"{refusal}"
        finally:
            call.cancel()
        return ""

    async def post(self, path: str, request: bytes) -> str:
        """The same over Connect."""
        self.asked.append(path)
        method = METHODS[path.rpartition("/")[2]]
        if method.server_streaming:
            body, kind = b"\0" + len(request).to_bytes(4, "big") + request, "application/connect+proto"
        else:
            body, kind = request, "application/proto"
        response = await self.http.post(path, content=body, headers=dict(self.metadata) | {"content-type": kind})
        text = response.text
        return next((reason for reason in CODES if reason in text), "")


@pytest.fixture(params=ENDS)
async def caller(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Caller]:
    how: str = request.param
    store = await SqliteStore.open(":memory:")
    seldom = {"url": "http://127.0.0.1:9/mcp", "backoff_s": (1000,), "backoff_max_s": 1000}
    servers = {name: ServerConfig.model_validate({"name": name, **seldom}) for name in (SERVER, ELSEWHERE)}
    clock = Shifted(anyio.current_time)
    authority = Authority.open(tmp_path / "certs")
    pair, client = authority.issue_server(), authority.issue_client("ada")
    files = TlsFiles(pair.cert, pair.key, authority.file if how.startswith("cert") else None)
    grants = Grants(GRANTED)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await stack.enter_async_context(settled())
        connector = McpConnector(TokenFile.open(tmp_path))
        # Each RPC is refused twice here, in less than a second.
        settings = HubSettings(data_dir=tmp_path, allow_hosts=("127.0.0.1",), refused_credentials_per_s=1000)
        hub = await stack.enter_async_context(Hub.open(store, connector, servers, settings))
        gate = Gate(
            TOKEN,
            clock,
            [hub.tokens, Issuer(grants, clock.now() + 600)],
            certificate_principal=grants.principal_of_certificate if how.startswith("cert") else None,
            has_grants=grants.still_has,
        )
        hub.tokens.on_revoked(gate.end_credential)
        address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate, tls=files, grace_s=0))
        base = await stack.enter_async_context(serve_connect(hub, listen="127.0.0.1:0", gate=gate, tls=files))
        shown = grpc.ssl_channel_credentials(
            authority.file.read_bytes(), client.key.read_bytes(), client.cert.read_bytes()
        )
        channel = await stack.enter_async_context(grpc.aio.secure_channel(address, shown))
        http = await stack.enter_async_context(_https(base, _context(authority, client)))

        async def end() -> None:
            match how:
                case "token revoked":
                    await hub.tokens.revoke("ada")
                case "grant taken":
                    grants.set([GrantSettings(who="oidc:eve", roles=("admin",))])
                case _:
                    clock.ahead = LATER_S

        token = "jwt"
        if how.startswith("token"):
            _, token = await hub.tokens.create("ada", [Grant(Role.ADMIN)], by="test", ttl_s=600, may_name_others=False)
        metadata = () if how.startswith("cert") else (("authorization", f"Bearer {token}"),)
        yield Caller(World(hub, address, channel, count(1)), http, end, metadata)


def _context(authority: Authority, client: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(client.cert, client.key)
    return context


def _https(base: str, context: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=base, verify=context, trust_env=False, timeout=LIMIT_S)


async def requests(world: World) -> dict[str, bytes]:
    """One request for each RPC, that would change something where the RPC does."""
    known = {rpc: message for rpc, message, _ in [*OF_THE_HUB, *OF_A_SERVER]}
    known |= {rpc: await make(world, "ada", "ada") for rpc, make, _ in OF_A_RECORD}
    spec = spec_of(name="new", transport="http", url="http://127.0.0.1:9/mcp")
    known["AddServer"] = server_pb2.AddServerRequest(spec=spec)
    known["Work"] = inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready())
    known["ServerReflectionInfo"] = reflection_pb2.ServerReflectionRequest(list_services="")
    return {name: message.SerializeToString() for name, message in known.items()}


async def kept(hub: Hub) -> dict[str, bytes]:
    """All that the hub remembers, but for who was refused and how servers fare."""
    await anyio.wait_all_tasks_blocked()
    assert await hub._ledger.flush()  # what is written behind
    found = (await hub.store.snapshot("")).entries
    entries = {entry.key: entry.value for entry in found if not entry.key.startswith(NOT_BY_RPC)}
    return entries | {each.name: f"{each.config} {each.wanted} {each.roots}".encode() for each in hub.servers.all()}


async def test_every_rpc_is_refused_once_the_credential_has_ended_and_nothing_has_changed(caller: Caller) -> None:
    hub = caller.world.hub
    made = await requests(caller.world)
    assert await caller.ask(GET_SELF, b"") == ""
    assert await caller.post(GET_SELF, b"") == ""
    await until(lambda: all(each.connection.state is ConnectionState.ERROR for each in hub.servers.all()))
    await caller.end()
    before = await kept(hub)
    caller.asked.clear()
    for path in PATHS:
        request = made.get(path.rpartition("/")[2], b"")
        reasons = {await caller.ask(path, request)}
        if path.rpartition("/")[2] in METHODS and not METHODS[path.rpartition("/")[2]].client_streaming:
            reasons.add(await caller.post(path, request))
        assert reasons <= set(CODES), (path, reasons)
    assert await kept(hub) == before
    entries = hub.audit.select(AuditFilter())
    assert {entry.kind for entry in entries} <= {AuditKind.REFUSAL}
    assert sum(entry.count for entry in entries) == len(caller.asked)


@pytest.mark.usefixtures("lively")
async def test_a_stream_takes_and_sends_nothing_once_the_clock_is_past_the_end(caller: Caller) -> None:
    """Also where no timer has gone off yet: the loop was busy, or the machine slept."""
    hub = caller.world.hub
    given = await caller.world.request("anybody")
    watch = caller.world.channel.unary_stream("/hubbub.v1.InboxService/WatchPendingRequests")(
        b"", metadata=caller.metadata
    )
    work = begin_work(caller.world.channel, caller.metadata)
    with anyio.fail_after(LIMIT_S):
        await work.write(inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(capacity=5)))
        while not (step := await work.read()).HasField("assigned"):
            pass
        assert step.assigned.id == given
        await watch.read()
        await caller.end()
        fresh = await caller.world.request("anybody")
        for stream in (watch, work):
            with refusing("CREDENTIAL_ENDED"):
                await _to_the_end(stream)
        await until(lambda: hub.inbox.get(given).claim is None)
    assert hub.inbox.get(fresh).claim is None
    assert not [moment for moment in hub.inbox.get(fresh).moments if moment.by]


@pytest.mark.parametrize("caller", [end for end in ENDS if end.endswith(" over")], indirect=True)
async def test_a_step_of_a_stream_is_not_looked_at_once_the_clock_is_past_the_end(caller: Caller) -> None:
    """A worker's stream, on which the hub has nothing to say: only what the worker writes can meet the end."""
    hub = caller.world.hub
    given = await caller.world.request("anybody")
    work = begin_work(caller.world.channel, caller.metadata)
    ready = inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(capacity=1))
    with anyio.fail_after(LIMIT_S):
        await work.write(ready)
        while not (await work.read()).HasField("assigned"):
            pass
        assert hub.inbox.get(given).claim is not None
        await caller.end()
        await work.write(ready)  # wrong at this place: a check of it would fail
        with refusing("CREDENTIAL_ENDED"):
            await _to_the_end(work)
        await until(lambda: hub.inbox.get(given).claim is None)


async def _to_the_end(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass
