"""Settings that change while the hub serves: limits hold at once, and a caller that lost a right is out."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import grpc
import httpx2
import pytest

from hubbub.v1 import admin_pb2, call_pb2, event_pb2, inbox_pb2, server_pb2
from hubbubd import payload
from hubbubd.conditions import CallFacts
from hubbubd.config import HubSettings, LoadedSettings, ServerConfig, load_settings
from hubbubd.config.sections.approvals import Action
from hubbubd.config.sections.network import GrantSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.audit import AuditFilter, AuditKind
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind
from hubbubd.errors import ConfigError, FailedPrecondition, Unauthenticated
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers import EventFilter
from hubbubd.runtime.servers.config import configuration
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import LIMIT_S, TOKEN, Caller, gate, settled, until
from .test_bad_input import METHODS

GRANTS = (
    GrantSettings(who="cert:ada", roles=("viewer", "caller")),
    GrantSettings(who="oidc-role:ops", roles=("operator",)),
)
WATCH = inbox_pb2.WatchPendingRequestsRequest()


@dataclass
class World:
    """A hub that is served, and what its files say."""

    hub: Hub
    channel: grpc.aio.Channel
    base: str
    files: LoadedSettings
    wrong: ConfigError | None = None

    def load(self) -> LoadedSettings:
        if self.wrong is not None:
            raise self.wrong
        return self.files

    async def change(self, **settings: Any) -> tuple[str, ...]:
        """Says something else in the files and reloads; what changed at once."""
        self.files = replace(self.files, hub=self.files.hub.model_copy(update=settings))
        done = await self.hub.configuration.reload()
        assert done.needs_restart == ()
        return done.settings

    @property
    def local(self) -> Caller:
        return Caller(self.channel)

    async def caller(self, name: str) -> Caller:
        """Somebody with a token."""
        grants = [Grant(Role.ADMIN)]
        _, secret = await self.hub.tokens.create(name, grants, by="test", ttl_s=None, may_name_others=False)
        return Caller(self.channel, (("authorization", f"Bearer {secret}"),))

    async def ask(self, *ids: str) -> None:
        """Questions that nobody asked."""
        request = PendingRequest(
            id="",
            server="away",
            kind=RequestKind.ELICITATION_FORM,
            origin=Origin.PLAIN,
            request=b'{"message":"?","requestedSchema":{"type":"object","properties":{}}}',
            created_at=self.hub.clock.now(),
            deadline=None,
        )
        await self.hub.inbox.open([replace(request, id=each) for each in ids])


Make = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Serves hubs with the settings given."""

    @asynccontextmanager
    async def made(watched: Path | None = None, **settings: Any) -> AsyncIterator[World]:
        store = await SqliteStore.open(":memory:")
        away = ServerConfig(name="away", transport="http", url="http://127.0.0.1:9/mcp", max_queued=100)
        files = LoadedSettings(
            hub=HubSettings(data_dir=tmp_path, **settings), servers=(away,), files=(watched,) if watched else ()
        )
        connector = McpConnector(TokenFile.open(tmp_path))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(settled())
            opening = Hub.open(
                store, connector, {"away": away}, files.hub, files=files.files, load=lambda: world.load()
            )
            hub = await stack.enter_async_context(opening)
            origins = lambda: hub.configuration.settings.connect_origins  # noqa: E731
            connect = serve_connect(hub, listen="127.0.0.1:0", gate=gate(hub), origins=origins)
            base = await stack.enter_async_context(connect)
            address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0.1))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            world = World(hub, channel, base, files)
            yield world
        await store.close()

    return made


async def let_in(caller: Caller) -> bool:
    """Whether the caller's RPC was not one too many."""
    try:
        await caller(METHODS["GetSelf"], admin_pb2.GetSelfRequest())
    except grpc.aio.AioRpcError as refused:
        if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False
    return True


async def test_a_rate_that_is_lowered_or_raised_holds_for_those_who_are_there(make: Make) -> None:
    async with make() as world:
        ada = await world.caller("ada")
        await ada(METHODS["GetSelf"], admin_pb2.GetSelfRequest())
        assert await world.change(rpcs_per_s_per_principal=0.2) == ("rpcs_per_s_per_principal",)  # two at once
        for _ in range(2):
            await ada(METHODS["GetSelf"], admin_pb2.GetSelfRequest())
        refusal = await ada.until_refused(METHODS["GetSelf"], admin_pb2.GetSelfRequest())
        assert (refusal.reason, refusal.metadata["limit"]) == ("RPC_RATE_EXCEEDED", "0.2")
        await world.change(rpcs_per_s_per_principal=1000)
        with anyio.fail_after(LIMIT_S):
            while not await let_in(ada):
                await anyio.sleep(0.001)

        await world.change(refused_credentials_per_s=0.1)  # one at once
        stranger = Caller(world.channel, (("authorization", "Bearer wrong"),))
        reasons = [(await stranger.refused(METHODS["GetSelf"], b"")).reason]
        with anyio.fail_after(LIMIT_S):
            while reasons[-1] == "TOKEN_INVALID":  # now and then it may try once more
                reasons.append((await stranger.refused(METHODS["GetSelf"], b"")).reason)
        assert set(reasons) == {"TOKEN_INVALID", "TOO_MANY_ATTEMPTS"}


async def test_what_is_there_stays_when_a_limit_is_lowered_and_no_more_is_let_in(make: Make) -> None:
    async with make() as world:
        await world.ask("r0", "r1", "r2")
        for number in range(2):
            await world.local(METHODS["ClaimPendingRequest"], inbox_pb2.ClaimPendingRequestRequest(id=f"r{number}"))
        await world.local(METHODS["ConnectServer"], server_pb2.ConnectServerRequest(name="away"))

        def start(number: int) -> call_pb2.StartCallRequest:
            return call_pb2.StartCallRequest(spec=call_pb2.CallSpec(server="away", method="ping", call_id=f"c{number}"))

        for number in range(2):
            await world.local(METHODS["StartCall"], start(number))
        path = "/hubbub.v1.InboxService/WatchPendingRequests"
        watches = [world.channel.unary_stream(path)(b"", metadata=world.local.metadata) for _ in range(2)]
        with anyio.fail_after(LIMIT_S):
            for watch in watches:
                await watch.read()
        await world.caller("ada")

        lowered = {f"{things}_per_principal": 1 for things in ("calls", "claims", "streams")} | {"max_tokens": 1}
        assert await world.change(**lowered) == tuple(sorted(lowered))
        claim = inbox_pb2.ClaimPendingRequestRequest(id="r2")
        token = admin_pb2.CreateTokenRequest(
            name="two", grants=[admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)]
        )
        for method, request, reason in (
            ("ClaimPendingRequest", claim, "TOO_MANY_CLAIMS"),
            ("StartCall", start(2), "TOO_MANY_CALLS"),
            ("WatchPendingRequests", WATCH, "TOO_MANY_STREAMS"),
            ("CreateToken", token, "TOO_MANY_TOKENS"),
        ):
            refusal = await world.local.refused(METHODS[method], request)
            assert (refusal.reason, refusal.metadata["limit"]) == (reason, "1")
        assert all(not watch.done() for watch in watches)
        assert world.hub.quotas.calls.count("local") == world.hub.quotas.claims.count("local") == 2

        await world.change(calls_per_principal=3, claims_per_principal=3, max_tokens=2, streams_per_principal=None)
        await world.local(METHODS["ClaimPendingRequest"], claim)
        await world.local(METHODS["StartCall"], start(2))
        await world.local(METHODS["WatchPendingRequests"], WATCH)
        await world.local(METHODS["CreateToken"], token)

        for watch in watches:
            watch.cancel()
        await until(lambda: not world.hub.quotas.streams.count("local"))


async def test_pages_of_an_origin_are_let_in_from_when_it_is_listed_until_it_is_not(make: Make) -> None:
    origin = "http://localhost:5173"
    asks = {"origin": origin, "access-control-request-method": "POST"}
    async with (
        make() as world,
        httpx2.AsyncClient(base_url=world.base, verify=False, trust_env=False, timeout=LIMIT_S) as http,
    ):

        async def allowed() -> str | None:
            answered = await http.options("/hubbub.v1.AdminService/GetSelf", headers=asks)
            return answered.headers.get("access-control-allow-origin")

        assert await allowed() is None
        assert await world.change(connect_origins=(origin,)) == ("connect_origins",)
        assert await allowed() == origin
        await world.change(connect_origins=())
        assert await allowed() is None


GET_SELF = "/hubbub.v1.AdminService/GetSelf"


class Door:
    """A gate for those whom grants let in, and who is inside."""

    def __init__(self, hub: Hub) -> None:
        self.grants = Grants(GRANTS)
        self.gate = Gate(TOKEN, hub.clock, has_grants=self.grants.still_has)
        self.oversight = Oversight(hub.audit, hub.quotas)
        self.ended: list[str] = []
        self.inside = 0

    async def stay(self, caller: Principal) -> None:
        try:
            with self.gate.while_valid(caller, GET_SELF, self.oversight):
                self.inside += 1
                await anyio.sleep(LIMIT_S)
        except Unauthenticated as exc:
            self.ended.append(f"{caller.name} {exc.reason}")


async def test_whoever_is_granted_less_is_out_and_others_stay(hub: Hub) -> None:
    door = Door(hub)
    ada = Principal(name="cert:ada", grants=(Grant(Role.VIEWER), Grant(Role.CALLER)), credential="certificate 1")
    bob, eve = (door.grants.principal_of_claims(name, ["ops"], time.time() + 600) for name in ("bob", "eve"))
    robot = Principal(name="robot", grants=(Grant(Role.ADMIN),), credential="token:1")
    everybody = (ada, bob, eve, robot)
    async with anyio.create_task_group() as staying:
        for each in everybody:
            staying.start_soon(door.stay, each)
        await until(lambda: door.inside == len(everybody))

        door.grants.set((*GRANTS, GrantSettings(who="oidc:bob", roles=("viewer",))))
        door.gate.review_grants()
        await anyio.sleep(0)
        assert door.ended == []

        door.grants.set((GRANTS[1], GrantSettings(who="cert:ada", roles=("viewer",))))
        door.gate.review_grants()
        await until(lambda: door.ended == ["cert:ada CREDENTIAL_ENDED"])
        with pytest.raises(Unauthenticated), door.gate.while_valid(ada, GET_SELF, door.oversight):  # let in before
            pass

        door.grants.set(())
        door.gate.review_grants()
        await until(lambda: {each.split()[0] for each in door.ended} == {"cert:ada", "oidc:bob", "oidc:eve"})
        staying.cancel_scope.cancel()


async def test_rules_of_approvals_hold_at_once_and_a_wrong_one_leaves_those_before(make: Make, tmp_path: Path) -> None:
    facts = CallFacts(
        server="away",
        tool="t",
        args={},
        argument_bytes=2,
        hints={},
        caller="local",
        roles=(),
        host="",
        profile="",
        now=datetime.now(UTC),
    )
    path = tmp_path / "hub.toml"
    file = ["--config", str(path), "--data-dir", str(tmp_path)]

    async with make() as world:

        async def say(rules: str) -> tuple[str, ...]:
            path.write_text(f"[servers.away]\nurl = 'http://127.0.0.1:9/mcp'\n{rules}")
            try:
                world.files = load_settings(file, {})
            except ConfigError as wrong:
                world.wrong = wrong
            return (await world.hub.configuration.reload()).settings

        def verdict() -> Action:
            rules = world.hub.approvals.rules_for(world.files.servers[0])
            return rules.decide(facts).action

        assert "approvals" in await say("[[approvals.rules]]\nname = 'never'\naction = 'deny'")
        assert verdict() is Action.DENY
        assert await say("[[approvals.rules]]\nname = 'never'\naction = 'deny' # the same") == ()
        with pytest.raises(
            FailedPrecondition, match=r"hub\.toml: approvals\.rules: rule 1, 'never', line 5: when: "
        ) as caught:
            await say("[[approvals.rules]]\nname = 'never'\nwhen = 'args.'")
        assert caught.value.reason == "CONFIG_REJECTED"
        assert verdict() is Action.DENY
        world.wrong = None
        assert await say("confirm = 'writes'") == ("approvals",)
        assert verdict() is Action.ASK
        assert await say("") == ()
        assert not world.hub.approvals.rules_for(world.files.servers[0]).active


async def test_a_reload_is_carried_through_when_whoever_asked_for_it_is_gone(make: Make) -> None:
    async with make() as world:
        turned = anyio.Event()
        adopt = world.hub.servers.adopt

        async def slowly(*about: Any) -> Any:
            turned.set()
            await anyio.sleep(0.05)
            return await adopt(*about)

        world.hub.servers.adopt = slowly  # type: ignore[method-assign]
        world.files = replace(world.files, servers=())
        async with anyio.create_task_group() as asking:
            asking.start_soon(world.hub.configuration.reload)
            await turned.wait()
            asking.cancel_scope.cancel()
        await until(lambda: not world.hub.servers.all())


async def test_what_comes_of_a_reload_is_told_to_those_who_watch_and_noted_for_those_who_did_not_ask_the_api(
    make: Make,
) -> None:
    async with make() as world:
        watch = world.channel.unary_stream(
            "/hubbub.v1.EventService/WatchEvents",
            request_serializer=event_pb2.WatchEventsRequest.SerializeToString,
            response_deserializer=event_pb2.WatchEventsResponse.FromString,
        )(event_pb2.WatchEventsRequest(), metadata=world.local.metadata)

        async def told() -> tuple[str, Any]:
            with anyio.fail_after(LIMIT_S):
                while not (heard := await watch.read()).HasField("event"):
                    pass
            assert heard.event.server == ""
            return event_pb2.EventKind.Name(heard.event.kind), payload.loads(heard.event.params)

        with anyio.fail_after(LIMIT_S):
            await watch.read()  # it has begun to listen
        configuration = world.hub.configuration
        world.wrong = ConfigError("servers.one.url", f"is wrong, and has Bearer {TOKEN}")
        for _ in range(2):  # told once: it is the same problem
            with pytest.raises(FailedPrecondition):
                await configuration.reload_by("hub:file", "/etc/hub.toml")
        assert (await told())[0] == "EVENT_KIND_CONFIG_PROBLEM"
        world.wrong = None
        world.files = replace(world.files, servers=(), hub=world.files.hub.model_copy(update={"max_servers": 5}))
        await configuration.reload_by("hub:signal", "SIGHUP")
        kind, about = await told()
        assert (kind, about["removed"], about["settings"]) == ("EVENT_KIND_CONFIG_RELOADED", ["away"], ["max_servers"])
        watch.cancel()

        entries = world.hub.audit.select(AuditFilter(action="ReloadConfig"))
        found = {(each.principal, each.target, each.kind, each.outcome, each.count) for each in entries}
        assert found == {
            ("hub:file", "/etc/hub.toml", AuditKind.REFUSAL, "CONFIG_REJECTED", 2),
            ("hub:signal", "SIGHUP", AuditKind.CHANGE, "OK", 1),
        }


async def test_a_file_that_is_empty_is_taken_for_one_that_is_being_written(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "POLL_S", 0.01)
    path = tmp_path / "hub.toml"
    path.write_text("[servers.away]\n")
    async with make(watched=path) as world:
        known, whole = world.hub.configuration, world.files
        monkeypatch.setattr(world, "load", lambda: whole if "away" in path.read_text() else replace(whole, servers=()))
        path.write_text("")
        await until(lambda: bool(known.state.problem) or not world.hub.servers.all())
        assert [each.config.name for each in world.hub.servers.all()] == ["away"]
        assert "is empty" in known.state.problem
        path.write_text("[hub]\n")
        await until(lambda: not world.hub.servers.all())
        await until(lambda: not known.state.problem)


async def test_a_file_that_is_being_written_is_not_read(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut off after a whole table is right TOML: nothing but the next look tells that more was to come."""
    path = tmp_path / "hub.toml"
    path.write_text("")
    pieces = iter(("[hub]\n", "[servers.away]\n", "[servers.here]\n", "[servers.there]\n"))
    read: list[str] = []
    stamps_of = configuration._read_stamps

    def look(files: tuple[Path, ...]) -> Any:
        """As always, while the file gets a piece more before each look."""
        with path.open("a") as file:
            file.write(next(pieces, ""))
        return stamps_of(files)

    monkeypatch.setattr(configuration, "POLL_S", 0.01)
    async with make(watched=path) as world:
        files = world.files
        monkeypatch.setattr(world, "load", lambda: (read.append(path.read_text()), files)[1])
        monkeypatch.setattr(configuration, "_read_stamps", look)
        await until(lambda: read)
    assert read == ["[hub]\n[servers.away]\n[servers.here]\n[servers.there]\n"]


async def test_only_those_who_may_see_all_servers_hear_of_the_configuration(hub: Hub) -> None:
    from hubbubd.core.access import Permission, servers_scope

    some = Principal(name="a", grants=(Grant(Role.VIEWER, ("aw*", "?*")),), credential="token:1")
    every = Principal(name="b", grants=(Grant(Role.VIEWER),), credential="token:2")
    heard: list[str] = []
    async with anyio.create_task_group() as watching:

        async def listen(who: Principal, ready: anyio.Event) -> None:
            async for step in hub.events.watch(EventFilter(scope=servers_scope(who, Permission.SEE))):
                ready.set()
                if step.event is not None:
                    heard.append(f"{who.name} {step.event.kind}")

        for who in (some, every):
            ready = anyio.Event()
            watching.start_soon(listen, who, ready)
            await ready.wait()
        hub.events.publish_config_problem("wrong")
        hub.events.publish_stderr("away", "a line")
        await until(lambda: len(heard) >= 3)
        watching.cancel_scope.cancel()
    assert sorted(heard) == ["a stderr", "b config_problem", "b stderr"]
