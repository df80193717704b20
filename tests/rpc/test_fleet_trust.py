"""Whom members take for members: certificates of the fleet's authority, with the member's name."""

from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import grpc
import pytest
import structlog.testing
from cryptography import x509

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbub.fleet.v1 import fleet_pb2_grpc
from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.errors import ConfigError
from hubbubd.program.fleet_join import FleetTerm
from hubbubd.rpc.context import current
from hubbubd.rpc.fleet import FleetPort
from hubbubd.rpc.fleet.forwards import forwarding
from hubbubd.rpc.fleet.forwards.caller_context import adopt_caller, make_opening
from hubbubd.rpc.listeners.tls import channel_credentials
from hubbubd.runtime.ownership import Owner
from hubbubd.telemetry.trace import CURRENT_TRACE, Trace

from .conftest import explain
from .fleet import LARGE, Fleet, Member, Wire, made, owner
from .test_fleet import CALL, call
from .test_fleet_faults import is_changing

__all__ = ["made", "owner"]  # the fixtures


async def hello(
    authority: Authority, pair: CertificateFiles | None, owner: Member, *, named: str = "b"
) -> pb.HelloResponse:
    """What a member says to a client that shows this."""
    shown = (pair.key.read_bytes(), pair.cert.read_bytes()) if pair else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *shown)
    options = [("grpc.ssl_target_name_override", named), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(owner.port.address, credentials, options=options) as channel:
        return await fleet_pb2_grpc.FleetServiceStub(channel).Hello(pb.HelloRequest(), timeout=20)


async def test_changed_authorities_count_for_new_connections_and_open_ones_go_on(
    made: Fleet, owner: Member, tmp_path: Path
) -> None:
    other = Authority.open(tmp_path / "new")
    before, pair = made.authority.file.read_bytes(), other.issue_member("a")
    made.authority.file.write_bytes(before + other.file.read_bytes())
    shown = pair.key.read_bytes(), pair.cert.read_bytes()
    credentials = grpc.ssl_channel_credentials(before, *shown)
    options = [("grpc.ssl_target_name_override", "b"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(owner.port.address, credentials, options=options) as channel:
        stub = fleet_pb2_grpc.FleetServiceStub(channel)
        assert (await stub.Hello(pb.HelloRequest(), timeout=20)).member == "b"
        made.authority.file.write_bytes(before)
        with pytest.raises(grpc.aio.AioRpcError):
            await hello(made.authority, pair, owner)
        assert (await stub.Hello(pb.HelloRequest(), timeout=20)).member == "b"


async def test_an_authority_is_replaced_without_a_restart(made: Fleet, owner: Member, tmp_path: Path) -> None:
    ingress = await made.start("a")
    other, ca = Authority.open(tmp_path / "new"), made.authority.file

    async def called() -> None:
        """Over a new connection."""
        async with Wire(owner.port.address).laid() as address:
            ingress.believed.hear("one", Owner("b", 1, address))
            await ingress.api(CALL, call())

    stolen = made.authority.issue_member("c")
    await called()
    ca.write_bytes(ca.read_bytes() + other.file.read_bytes())
    await called()
    for name in ("a", "b"):
        renewed, shown = other.issue_member(name), made.settings_of(name, made.authority)
        shown.key.write_bytes(renewed.key.read_bytes())
        shown.cert.write_bytes(renewed.cert.read_bytes())
        await called()
    assert (await hello(other, stolen, owner)).member == "b"
    ca.write_bytes(other.file.read_bytes())
    await called()
    with pytest.raises(grpc.aio.AioRpcError):
        await hello(other, stolen, owner)


async def test_members_say_who_they_are(made: Fleet, owner: Member) -> None:
    said = await hello(made.authority, made.authority.issue_member("a"), owner)
    assert (said.member, said.life, bool(said.version)) == ("b", 1, True)


async def test_a_client_s_certificate_of_the_same_authority_is_no_member_s(made: Fleet, owner: Member) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await hello(made.authority, made.authority.issue_client("a"), owner)
    assert (caught.value.code(), explain(caught.value).reason) == (grpc.StatusCode.UNAUTHENTICATED, "NAME_INVALID")


@pytest.mark.parametrize("stranger", [True, False], ids=["of another authority", "none"])
async def test_a_certificate_that_is(made: Fleet, owner: Member, stranger: bool, tmp_path: Path) -> None:
    pair = Authority.open(tmp_path / "other").issue_member("a") if stranger else None
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await hello(made.authority, pair, owner)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("rpc", ["Forward", "ForwardStream", "Live"])
async def test_no_rpc_is_for_whoever_is_no_member(made: Fleet, owner: Member, rpc: str) -> None:
    pair = made.authority.issue_client("a")
    credentials = grpc.ssl_channel_credentials(
        made.authority.file.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "b")]
    async with grpc.aio.secure_channel(owner.port.address, credentials, options=options) as channel:
        stub = fleet_pb2_grpc.FleetServiceStub(channel)
        about = pb.Opening(method="/hubbub.v1.CallService/CallMethod", server="one")
        asked = {
            "Forward": lambda: stub.Forward(pb.ForwardRequest(opening=about)),
            "ForwardStream": lambda: stub.ForwardStream(pb.ForwardStreamRequest(opening=about)).read(),
            "Live": lambda: stub.Live(pb.LiveRequest()).read(),
        }
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked[rpc]()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_nothing_is_sent_to_a_member_of_another_name(
    made: Fleet, owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    ingress = await made.start("a")
    ingress.believed.hear("one", Owner("c", 1, owner.port.address))
    assert is_changing(await ingress.api.refused(CALL, call()))
    assert not owner.peer.sent


async def test_only_rpcs_that_are_for_owners_are_forwarded(made: Fleet, owner: Member) -> None:
    pair = made.authority.issue_member("a")
    credentials = grpc.ssl_channel_credentials(
        made.authority.file.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "b")]
    async with grpc.aio.secure_channel(owner.port.address, credentials, options=options) as channel:
        stub = fleet_pb2_grpc.FleetServiceStub(channel)
        for method, principal in (("/hubbub.v1.AdminService/CreateToken", b""), ("", b""), (_path(), b"\xff")):
            about = pb.Opening(method=method, server="one", principal=principal)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Forward(pb.ForwardRequest(opening=about))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def _path() -> str:
    return f"/{CALL.containing_service.full_name}/{CALL.name}"


@pytest.mark.parametrize("kind", ["another member's", "a server's"])
async def test_a_certificate_of_one_s_own_that_is(tmp_path: Path, kind: str) -> None:
    authority = Authority.open(tmp_path)
    pair = authority.issue_member("b") if kind == "another member's" else authority.issue_server(["a"])
    settings = Fleet.settings_of("a", authority, pair)
    with pytest.raises(ConfigError, match="hubbub:member:a") as caught:
        FleetPort(settings, LARGE)
    assert caught.value.key == "fleet.cert"


def test_a_principal_travels_as_it_is() -> None:
    caller = Principal(
        name="oidc:ann",
        grants=(Grant(Role.CALLER, ("a*", "b")), Grant(Role.VIEWER)),
        credential="jwt",
        expires_at=1.5,
        may_name_others=True,
        groups=frozenset({"g", "h"}),
    )
    adopt_caller(make_opening("m", "one", caller, None))
    there = current()
    assert there.principal == Principal(
        name=caller.name,
        grants=caller.grants,
        credential="jwt",
        expires_at=1.5,
        groups=caller.groups,
    )
    assert (there.names_caller, there.is_forwarded) == (True, True)


def test_the_place_in_a_trace_travels_whole() -> None:
    place = Trace(trace_id="1" * 32, span_id="2" * 16, state="vendor=1")
    caller = Principal(name="ann", grants=(), credential="")

    def there() -> Trace | None:
        adopt_caller(make_opening("m", "one", caller, place))
        return CURRENT_TRACE.get()

    found = copy_context().run(there)
    assert (found.trace_id, found.span_id, found.state) == (place.trace_id, place.span_id, place.state)


def test_the_names_of_a_member_s_certificate(tmp_path: Path) -> None:
    pair = Authority.open(tmp_path).issue_member("a.example")
    found = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["hubbub:member:a.example"]
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]
    for wrong in ("", "A", "-a", "a b", "a" * 64):
        with pytest.raises(ValueError, match="no name for a member"):
            Authority.open(tmp_path).issue_member(wrong)


async def test_an_address_that_was_never_served_is_given_up(tmp_path: Path) -> None:
    settings = Fleet.settings_of("a", Authority.open(tmp_path))
    port = FleetPort(settings, LARGE)
    await port.close()
    again = FleetPort(settings.model_copy(update={"listen": port.address}), LARGE)
    assert again.address == port.address
    await again.close()


async def test_so_is_that_of_a_life_that_ends_before_it_is_served(tmp_path: Path) -> None:
    settings = Fleet.settings_of("a", Authority.open(tmp_path))
    port = FleetPort(settings, LARGE)
    life: Any = SimpleNamespace(send_beats=anyio.sleep_forever, wait_for_time=anyio.lowlevel.checkpoint)
    with anyio.CancelScope() as scope:
        async with FleetTerm(settings, life, life, port).send_heartbeats():
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    await FleetPort(settings.model_copy(update={"listen": port.address}), LARGE).close()


async def test_so_is_one_whose_start_is_cut_short(made: Fleet) -> None:
    member = await made.start("a")
    settings = Fleet.settings_of("a", made.authority)
    port = FleetPort(settings, LARGE)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with port.serve(member.hub, term=2):
            await anyio.lowlevel.checkpoint()
    await port.close()  # as the end of a life does
    await FleetPort(settings.model_copy(update={"listen": port.address}), LARGE).close()


async def test_others_are_told_of_the_address_at_which_they_reach_it(tmp_path: Path) -> None:
    settings = Fleet.settings_of("a", Authority.open(tmp_path)).model_copy(update={"reached_at": "a.example:7879"})
    port = FleetPort(settings, LARGE)
    assert port.address == "a.example:7879"
    await port.close()


async def test_a_member_that_another_does_not_take_for_one_says_so_and_is_not_heard(
    made: Fleet, owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    ingress = await made.start("a")
    client = made.authority.issue_client("a")
    monkeypatch.setattr(
        ingress.port._peers, "_credentials", channel_credentials(TlsFiles(client.cert, client.key, made.authority.file))
    )
    with structlog.testing.capture_logs() as logs:
        assert is_changing(await ingress.api.refused(CALL, call()))
    assert {entry["member"] for entry in logs if entry["event"] == "forward refused"} == {"b"}
    assert not owner.peer.sent


async def test_a_certificate_that_was_replaced_is_shown_once_the_connection_is_made_again(
    made: Fleet, owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    ingress = await made.start("a")
    wire = Wire(owner.port.address)
    async with wire.laid() as address:
        ingress.believed.hear("one", Owner("b", 1, address))
        await ingress.api(CALL, call())
        before = ingress.port._peers._peers["b"]
        await ingress.api(CALL, call())
        assert ingress.port._peers._peers["b"] is before  # one connection
        made.authority.issue_member("a")
        await wire.cut()
        assert (await ingress.api.refused(CALL, call())).code is grpc.StatusCode.UNAVAILABLE
    ingress.believed.hear("one", Owner("b", 1, address))
    assert is_changing(await ingress.api.refused(CALL, call()))
    after = ingress.port._peers._peers["b"]
    assert after.credentials is not before.credentials
