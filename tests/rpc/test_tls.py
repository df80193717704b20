"""Handshakes with a hub that speaks TLS: over gRPC, and over Connect."""

import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import grpc
import httpx2
import pytest
from anyio import to_thread
from anyio.streams.tls import TLSAttribute, TLSStream
from cryptography import x509

from hubbub.v1 import server_pb2
from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config.sections.network import GrantSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.errors import ConfigError, Unauthenticated
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.context import Peer
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.grpc_server import SERVICES, serve
from hubbubd.runtime.hub import Hub

from ..raising import raising
from .conftest import LIMIT_S, TOKEN, Caller, Refusal, spec_of

GET_SERVER = SERVICES["ServerService"].methods_by_name["GetServer"]
REMOVE_SERVER = SERVICES["ServerService"].methods_by_name["RemoveServer"]
WATCH_SERVERS = SERVICES["ServerService"].methods_by_name["WatchServers"]
AWAY = server_pb2.GetServerRequest(name="away")
BEARER = (("authorization", f"Bearer {TOKEN}"),)
GRANTS = (GrantSettings(who="cert:a*", roles=("viewer",)), GrantSettings(who="cert:root", roles=("admin",)))


@dataclass
class Secured:
    """A hub that is served with certificates, and its addresses."""

    authority: Authority
    pair: CertificateFiles
    grpc: str = ""
    connect: str = ""

    @asynccontextmanager
    async def caller(
        self,
        client: CertificateFiles | None = None,
        authority: Authority | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> AsyncIterator[Caller]:
        """Over gRPC, believing the `authority`, by default the right one."""
        shown = (client.key.read_bytes(), client.cert.read_bytes()) if client else (None, None)
        credentials = grpc.ssl_channel_credentials((authority or self.authority).file.read_bytes(), *shown)
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(self.grpc, credentials, options=options) as channel:
            yield Caller(channel, metadata)

    def context(self, client: CertificateFiles | None = None) -> ssl.SSLContext:
        """For handshakes by hand."""
        context = ssl.create_default_context(cafile=self.authority.file)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if client:
            context.load_cert_chain(client.cert, client.key)
        return context

    async def handshake(self, address: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
        """The serial number of the certificate that the hub shows, and the version of TLS."""
        host, _, port = address.removeprefix("https://").rpartition(":")
        with anyio.fail_after(LIMIT_S):
            tcp = await anyio.connect_tcp(host, int(port))
            async with await TLSStream.wrap(
                tcp, hostname=host, ssl_context=context or self.context(), standard_compatible=False
            ) as tls:
                shown = x509.load_der_x509_certificate(tls.extra(TLSAttribute.peer_certificate_binary))
                return shown.serial_number, tls.extra(TLSAttribute.tls_version)

    @property
    def both(self) -> tuple[str, str]:
        """Where gRPC and Connect are."""
        return self.grpc, self.connect


@asynccontextmanager
async def secured(
    hub: Hub, directory: Path, *, mutual: bool = False, networked: bool = False, days: int = 365
) -> AsyncIterator[Secured]:
    authority = Authority.open(directory)
    pair = authority.issue_server(days=days)
    found = Secured(authority, pair)
    files = TlsFiles(pair.cert, pair.key, authority.file if mutual else None)
    certificates = Grants(GRANTS).principal_of_certificate if mutual else None
    gate = Gate(TOKEN, hub.clock, certificate_principal=certificates, networked=networked)
    async with (
        serve_connect(hub, listen="127.0.0.1:0", gate=gate, tls=files) as found.connect,
        serve(hub, listen="127.0.0.1:0", gate=gate, tls=files, grace_s=2) as found.grpc,
    ):
        yield found


@pytest.fixture
async def tls(hub: Hub, tmp_path: Path) -> AsyncIterator[Secured]:
    """That hub with a certificate."""
    async with secured(hub, tmp_path / "certs") as found:
        yield found


@pytest.fixture
async def mutual(hub: Hub, tmp_path: Path) -> AsyncIterator[Secured]:
    """That hub, for callers with certificates."""
    async with secured(hub, tmp_path / "certs", mutual=True) as found:
        yield found


async def unreachable(caller: Caller) -> str:
    """What gRPC says of a connection that does not come about."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller(GET_SERVER, AWAY)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return caught.value.details() or ""


async def refused(caller: Caller) -> Refusal:
    return await caller.refused(GET_SERVER, AWAY)


def web(context: ssl.SSLContext) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=context, trust_env=False, timeout=LIMIT_S)


async def get_server(http: httpx2.AsyncClient, base: str, **headers: str) -> httpx2.Response:
    headers = {"content-type": "application/json", **headers}
    return await http.post(f"{base}/hubbub.v1.ServerService/GetServer", content=b'{"name": "away"}', headers=headers)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_two_versions_of_tls_that_are_safe_are_spoken(tls: Secured, version: ssl.TLSVersion) -> None:
    for address in tls.both:
        context = tls.context()
        context.minimum_version = context.maximum_version = version
        assert (await tls.handshake(address, context))[1] == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_older_versions_are_not(tls: Secured) -> None:
    for address in tls.both:
        context = tls.context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream)):
            await tls.handshake(address, context)


async def test_a_caller_that_believes_the_authority_is_served(tls: Secured) -> None:
    async with tls.caller(metadata=BEARER) as caller:
        assert (await caller(GET_SERVER, AWAY)).server.name == "away"
    async with web(tls.context()) as http:
        assert (await get_server(http, tls.connect, authorization=f"Bearer {TOKEN}")).status_code == 200


async def test_a_caller_that_believes_another_one_is_not(tls: Secured, tmp_path: Path) -> None:
    async with tls.caller(authority=Authority.open(tmp_path / "others"), metadata=BEARER) as caller:
        assert "CERTIFICATE_VERIFY_FAILED" in await unreachable(caller)


async def test_tls_alone_opens_nothing(tls: Secured) -> None:
    async with tls.caller() as caller:
        assert (await refused(caller)).reason == "TOKEN_MISSING"
    async with web(tls.context()) as http:
        assert (await get_server(http, tls.connect)).status_code == 401


async def test_a_caller_that_speaks_no_tls_is_not_understood(tls: Secured) -> None:
    async with grpc.aio.insecure_channel(tls.grpc) as channel:
        await unreachable(Caller(channel))
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        with pytest.raises(httpx2.TransportError):
            await get_server(http, tls.connect.replace("https", "http"), authorization=f"Bearer {TOKEN}")


async def test_an_expired_certificate_is_shown_with_a_warning_and_believed_by_nobody(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with secured(hub, tmp_path, days=-1) as tls, tls.caller(metadata=BEARER) as caller:
        assert "certificate not valid" in capsys.readouterr().out
        assert "CERTIFICATE_VERIFY_FAILED" in await unreachable(caller)


async def test_a_changed_certificate_is_shown_to_new_connections_and_old_ones_go_on(tls: Secured) -> None:
    before = [await tls.handshake(address) for address in tls.both]
    async with tls.caller(metadata=BEARER) as early:
        watch = early.channel.unary_stream(
            "/hubbub.v1.ServerService/WatchServers",
            response_deserializer=server_pb2.WatchServersResponse.FromString,
        )(b"", metadata=BEARER)
        with anyio.fail_after(LIMIT_S):
            while not (await watch.read()).HasField("synced"):
                pass
        renewed = x509.load_pem_x509_certificate(tls.authority.issue_server().cert.read_bytes()).serial_number
        after = [await tls.handshake(address) for address in tls.both]
        assert [serial for serial, _ in after] == [renewed] * 2
        assert renewed not in [serial for serial, _ in before]
        add = SERVICES["ServerService"].methods_by_name["AddServer"]
        spec = spec_of(name="later", url="http://127.0.0.1:9/mcp")
        await early(add, server_pb2.AddServerRequest(spec=spec))
        with anyio.fail_after(LIMIT_S):
            while (await watch.read()).upsert.name != "later":
                pass
        watch.cancel()


def _half(tls: Secured, other: CertificateFiles) -> None:
    shutil.copy(other.cert, tls.pair.cert)


def _garbage(tls: Secured, _other: CertificateFiles) -> None:
    tls.pair.cert.write_text("no certificate")


def _nothing(tls: Secured, _other: CertificateFiles) -> None:
    tls.pair.key.unlink()


@pytest.mark.parametrize("spoil", [_half, _garbage, _nothing])
async def test_files_that_cannot_be_used_change_nothing_until_they_can(
    tls: Secured, tmp_path: Path, spoil: Callable[[Secured, CertificateFiles], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = [await tls.handshake(address) for address in tls.both]
    spoil(tls, Authority.open(tmp_path / "others").issue_server())
    assert [await tls.handshake(address) for address in tls.both] == before
    told = capsys.readouterr().out
    assert "certificate not changed" in told
    assert "tls_" in told
    tls.authority.issue_server()
    after = [await tls.handshake(address) for address in tls.both]
    assert not set(after) & set(before)


async def test_a_caller_without_a_certificate_is_turned_away_where_one_is_asked_for(mutual: Secured) -> None:
    async with mutual.caller(metadata=BEARER) as caller:
        await unreachable(caller)
    async with web(mutual.context()) as http:
        with pytest.raises(httpx2.TransportError):
            await get_server(http, mutual.connect, authorization=f"Bearer {TOKEN}")


async def test_a_certificate_of_another_authority_is_turned_away(mutual: Secured, tmp_path: Path) -> None:
    stranger = Authority.open(tmp_path / "others").issue_client("ada")
    async with mutual.caller(stranger) as caller:
        await unreachable(caller)
    async with web(mutual.context(stranger)) as http:
        with pytest.raises(httpx2.TransportError):
            await get_server(http, mutual.connect)


async def test_a_certificate_that_has_expired_is_turned_away(mutual: Secured) -> None:
    late = mutual.authority.issue_client("ada", days=-1)
    async with mutual.caller(late) as caller:
        await unreachable(caller)
    async with web(mutual.context(late)) as http:
        with pytest.raises(httpx2.TransportError):
            await get_server(http, mutual.connect)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("protocol", ["grpc", "connect"])
async def test_a_session_that_is_taken_up_again_believes_nobody_who_is_not_believed_any_more(
    mutual: Secured, tmp_path: Path, version: ssl.TLSVersion, protocol: str
) -> None:
    context = mutual.context(mutual.authority.issue_client("ada"))
    context.minimum_version = context.maximum_version = version
    host, _, port = getattr(mutual, protocol).removeprefix("https://").rpartition(":")

    def connection(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection((host, int(port)), LIMIT_S) as tcp,
            context.wrap_socket(tcp, server_hostname=host, session=session) as tls,
        ):
            # What begins HTTP/2, and is no good request of HTTP/1.1: either way there is an answer.
            tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            if not tls.recv(4096):
                raise ConnectionError
            return tls.session

    if (protocol, version) == ("connect", ssl.TLSVersion.TLSv1_2):
        with pytest.raises(ssl.SSLError):
            await to_thread.run_sync(connection, None)
        return
    session = await to_thread.run_sync(connection, None)
    shutil.copy(Authority.open(tmp_path / "others").file, mutual.authority.file)
    with pytest.raises(OSError):
        await to_thread.run_sync(connection, session)


async def test_a_certificate_gives_what_is_granted_to_its_name(mutual: Secured) -> None:
    ada = mutual.authority.issue_client("ada")
    async with mutual.caller(ada) as caller:
        assert (await caller(GET_SERVER, AWAY)).server.name == "away"
        denied = await caller.refused(REMOVE_SERVER, server_pb2.RemoveServerRequest(name="away"))
        assert denied.code is grpc.StatusCode.PERMISSION_DENIED
    async with web(mutual.context(ada)) as http:
        assert (await get_server(http, mutual.connect)).status_code == 200
    async with mutual.caller(mutual.authority.issue_client("root")) as caller:
        refused = await caller.refused(REMOVE_SERVER, server_pb2.RemoveServerRequest(name="nobody"))
        assert refused.code is grpc.StatusCode.NOT_FOUND


async def test_a_name_to_which_nothing_is_granted_is_told_so(mutual: Secured) -> None:
    bob = mutual.authority.issue_client("bob")
    async with mutual.caller(bob) as caller:
        told = await refused(caller)
        assert (told.code, told.reason) == (grpc.StatusCode.PERMISSION_DENIED, "NOTHING_GRANTED")
        assert told.metadata == {"principal": "cert:bob"}
    async with web(mutual.context(bob)) as http:
        assert (await get_server(http, mutual.connect)).status_code == 403


async def test_a_token_counts_more_than_the_certificate_beside_it(mutual: Secured) -> None:
    bob = mutual.authority.issue_client("bob")
    async with mutual.caller(bob, metadata=BEARER) as caller:
        assert (await caller(GET_SERVER, AWAY)).server.name == "away"
    async with mutual.caller(
        mutual.authority.issue_client("ada"), metadata=(("authorization", "Bearer wrong"),)
    ) as caller:
        assert (await refused(caller)).reason == "TOKEN_INVALID"


async def test_the_token_of_the_machine_is_taken_from_the_machine_only(hub: Hub, tmp_path: Path) -> None:
    async with secured(hub, tmp_path, networked=True) as tls:
        async with tls.caller(metadata=BEARER) as caller:
            assert (await caller(GET_SERVER, AWAY)).server.name == "away"
        async with web(tls.context()) as http:
            known = {"authorization": f"Bearer {TOKEN}"}
            assert (await get_server(http, tls.connect, **known)).status_code == 200
            # Nobody says itself where it calls from.
            told = await get_server(http, tls.connect, **known, **{"x-forwarded-for": "203.0.113.7"})
            assert told.status_code == 200
    gate = Gate(TOKEN, hub.clock, networked=True)
    with raising(Unauthenticated, "TOKEN_LOCAL_ONLY"):
        await gate.admit(
            "/hubbub.v1.ServerService/GetServer", BEARER, Oversight(hub.audit, hub.quotas), Peer(local=False)
        )


async def test_a_socket_for_the_machine_needs_no_tls_and_is_for_its_owner_alone(hub: Hub, tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "certs")
    pair = authority.issue_server()
    files = TlsFiles(pair.cert, pair.key, authority.file)
    modes: set[int] = set()
    gate = Gate(TOKEN, hub.clock, networked=True)
    before = os.umask(0)
    try:
        async with serve(
            hub, listen="127.0.0.1:0", gate=gate, tls=files, local_socket=tmp_path / "hub.sock", grace_s=2
        ):
            modes.add((tmp_path / "hub.sock").stat().st_mode & 0o777)
            async with grpc.aio.insecure_channel(f"unix:{tmp_path / 'hub.sock'}") as channel:
                assert (await Caller(channel)(GET_SERVER, AWAY)).server.name == "away"
    finally:
        os.umask(before)
    assert modes == {0o600}


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
async def test_no_address_of_the_network_is_served_without_tls(hub: Hub, listen: str) -> None:
    gate = Gate(TOKEN, hub.clock)
    for served in (serve(hub, listen=listen, gate=gate), serve_connect(hub, listen=listen, gate=gate)):
        with pytest.raises(ConfigError, match="tls_cert and tls_key"):
            async with served:
                pass
