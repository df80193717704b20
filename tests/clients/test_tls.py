"""How clients reach a hub by TLS, and the errors when they do not."""

import json
import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from typer.testing import CliRunner

import hubbub_client
from hubbub_cli.app import app
from hubbub_client.errors import HubbubError, InvalidArgument, Unavailable
from hubbub_client.transport import handshake
from hubbub_client.transport.discovery import ClientTls, HubLocation, discover
from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config import HubSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.network import GrantSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

LIMIT_S = 60
TOKEN = "right-token"
GRANTS = (GrantSettings(who="cert:ada", roles=("admin",)),)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HUBBUB_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _time_to_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hub says to a handshake is waited for, however soon the connection is given up."""
    problem = handshake.find_tls_problem
    monkeypatch.setattr(handshake, "find_tls_problem", lambda endpoint, _: problem(endpoint, LIMIT_S))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.open(tmp_path / "certs")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    store = await SqliteStore.open(":memory:")
    async with Hub.open(store, McpConnector(TokenFile.open(tmp_path)), {}, HubSettings(data_dir=tmp_path)) as hub:
        yield hub
    await store.close()


@asynccontextmanager
async def served(hub: Hub, pair: CertificateFiles | None, client_ca: Path | None = None) -> AsyncIterator[str]:
    gate = Gate(TOKEN, hub.clock, certificate_principal=Grants(GRANTS).principal_of_certificate if client_ca else None)
    files = TlsFiles(pair.cert, pair.key, client_ca) if pair else None
    async with serve(hub, listen="127.0.0.1:0", gate=gate, tls=files, grace_s=2) as address:
        yield address


async def failure(address: str, **options: Any) -> HubbubError:
    with pytest.raises(HubbubError) as caught:
        async with hubbub_client.connect(address, TOKEN, connect_timeout_s=0.5, **options):
            pass
    return caught.value


async def test_a_hub_is_reached_by_an_https_address_and_its_authority(
    hub: Hub, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(hub, authority.issue_server()) as address:
        async with hubbub_client.connect(f"https://{address}", TOKEN, ca=authority.file) as found:
            assert await found.servers.list() == []
        monkeypatch.setenv("HUBBUB_CA", str(authority.file))
        async with hubbub_client.connect(f"https://{address}", TOKEN) as found:
            assert await found.servers.list() == []


async def test_a_certificate_stands_for_a_token(hub: Hub, authority: Authority) -> None:
    ada = authority.issue_client("ada")
    async with (
        served(hub, authority.issue_server(), authority.file) as address,
        hubbub_client.connect(f"https://{address}", ca=authority.file, cert=ada.cert, key=ada.key) as found,
    ):
        assert await found.servers.list() == []


async def test_each_way_to_miss_each_other_has_its_own_words(hub: Hub, authority: Authority, tmp_path: Path) -> None:
    others = Authority.open(tmp_path / "others")
    ada, stranger = authority.issue_client("ada"), others.issue_client("ada")
    async with served(hub, authority.issue_server()) as address:
        told = await failure(f"https://{address}", ca=others.file)
        assert told.reason == "HANDSHAKE_FAILED"
        assert "authority that is not known here" in told.message
        assert "speaks TLS: use https://" in (await failure(address)).message
    async with served(hub, None) as address:
        assert "speaks no TLS" in (await failure(f"https://{address}", ca=authority.file)).message
    async with served(hub, authority.issue_server(days=-1)) as address:
        assert "has expired" in (await failure(f"https://{address}", ca=authority.file)).message
    async with served(hub, authority.issue_server(), authority.file) as address:
        assert "wants a client certificate" in (await failure(f"https://{address}", ca=authority.file)).message
        shown = {"ca": authority.file, "cert": stranger.cert, "key": stranger.key}
        assert "does not take the client certificate" in (await failure(f"https://{address}", **shown)).message
        assert "does not take" in (await failure(f"https://{address}", **(shown | {"cert": ada.cert}))).message


async def test_a_certificate_for_another_name_is_told_apart(hub: Hub, authority: Authority) -> None:
    client = authority.issue_client("ada")  # for no host at all
    async with served(hub, client) as address:
        told = await failure(f"https://{address}", ca=authority.file)
    assert told.reason == "HANDSHAKE_FAILED"
    assert "certificate" in told.message


def test_only_loopback_is_spoken_to_without_tls() -> None:
    def secured(address: str) -> tuple[str, bool]:
        endpoint = discover(HubLocation(address, "token"))
        return endpoint.target, endpoint.tls is not None

    assert secured("127.0.0.1:7878") == ("127.0.0.1:7878", False)
    assert secured("http://localhost:7878") == ("localhost:7878", False)
    assert secured("[::1]:7878") == ("[::1]:7878", False)
    assert secured("unix:hub.sock") == ("unix:hub.sock", False)
    assert secured("https://127.0.0.1:7878/") == ("127.0.0.1:7878", True)
    assert secured("hub.example.com:7878") == ("hub.example.com:7878", True)
    assert secured("localhost.example.com:7878") == ("localhost.example.com:7878", True)
    for address in ("http://hub.example.com:7878", "http://192.0.2.1:7878", "http://127.0.0.1.example.com:1"):
        with pytest.raises(InvalidArgument, match="use https://") as refused:
            discover(HubLocation(address, "token"))
        assert refused.value.reason == "PLAINTEXT_REFUSED"
    for address in ("https://hub.example.com", "nonsense", ":1", "https://h:1/path", "dns:///h:x"):
        with pytest.raises(InvalidArgument, match="HOST:PORT"):
            discover(HubLocation(address, "token"))


def test_one_file_may_hold_certificate_and_key_and_a_missing_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text("both")
    where = HubLocation("https://h:1", "token", cert=tmp_path / "both.pem")
    assert discover(where).tls == ClientTls(None, b"both", b"both")
    with pytest.raises(InvalidArgument, match=r"ca: .*gone\.pem cannot be read"):
        discover(where._replace(ca=tmp_path / "gone.pem"))
    assert "both" not in repr(ClientTls(None, None, b"both"))


async def test_a_client_takes_up_renewed_files(hub: Hub, authority: Authority) -> None:
    async with served(hub, authority.issue_server(), authority.file) as address:
        ada = authority.issue_client("ada", days=-1)
        assert (
            "does not take"
            in (await failure(f"https://{address}", ca=authority.file, cert=ada.cert, key=ada.key)).message
        )
        authority.issue_client("ada")
        async with hubbub_client.connect(f"https://{address}", ca=authority.file, cert=ada.cert, key=ada.key) as found:
            assert await found.servers.list() == []


def certs_dev(*words: str, as_json: bool = True) -> Any:
    ran = CliRunner().invoke(app, [*(["--json"] if as_json else []), "certs", "dev", *words], standalone_mode=False)
    if ran.exception:
        raise ran.exception
    return json.loads(ran.stdout) if as_json else ran.stdout


def test_certs_dev_keeps_the_authority_and_renews_the_rest(tmp_path: Path) -> None:
    first = certs_dev(str(tmp_path / "made"), "--host", "hub.example.com", "--client", "ada")
    before = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    assert certs_dev(str(tmp_path / "made"), "--host", "hub.example.com", "--client", "ada") == first
    after = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca-key.pem"}
    assert set(after) == {f"{name}{key}.pem" for name in ("ca", "server", "client-ada") for key in ("", "-key")}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "made").glob("*-key.pem")} == {0o600}
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    server = x509.load_pem_x509_certificate(Path(first["cert"]).read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "hub.example.com" in names.get_values_for_type(x509.DNSName)


def test_certs_dev_says_what_to_configure(tmp_path: Path) -> None:
    told = certs_dev(str(tmp_path), "--client", "ada", as_json=False)
    hub = HubSettings(data_dir=tmp_path, **tomllib.loads(told)["hub"])
    assert hub.tls is not None
    hub.tls.read()
    assert hub.grants[0].who == "cert:ada"


def test_certs_member_says_what_to_configure_and_renews_all_but_the_authority(tmp_path: Path) -> None:
    words = ["certs", "member", str(tmp_path), "a", "b.example"]
    first = CliRunner().invoke(app, words, standalone_mode=False).stdout
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    told = json.loads(CliRunner().invoke(app, ["--json", *words], standalone_mode=False).stdout)
    assert {path.name for path in tmp_path.iterdir() if path.read_bytes() == before[path.name]} == {
        "ca.pem",
        "ca-key.pem",
    }
    for name, text in zip(("a", "b.example"), first.split("\n\n"), strict=False):
        fleet = FleetSettings(**tomllib.loads(text)["fleet"])
        assert fleet.name == name
        fleet.tls.read()
        assert told["members"][name] == {"cert": str(fleet.cert), "key": str(fleet.key)}
        assert told["ca"] == str(fleet.ca)
        names = x509.load_pem_x509_certificate(fleet.cert.read_bytes()).extensions
        uris = names.get_extension_for_class(x509.SubjectAlternativeName).value
        assert uris.get_values_for_type(x509.UniformResourceIdentifier) == [f"hubbub:member:{name}"]


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "Upper", "x" * 64])
def test_certs_member_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    ran = CliRunner().invoke(app, ["certs", "member", str(tmp_path / "made"), name], standalone_mode=False)
    assert "no name for a member" in str(ran.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a\nb", "x" * 65])
def test_certs_dev_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(Exception, match="no name for a client"):
        certs_dev(str(tmp_path / "made"), "--client", name)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_half_an_authority_is_left_alone(tmp_path: Path) -> None:
    certs_dev(str(tmp_path))
    (tmp_path / "ca-key.pem").unlink()
    before = (tmp_path / "ca.pem").read_bytes()
    with pytest.raises(Exception, match=r"ca-key\.pem"):
        certs_dev(str(tmp_path))
    assert (tmp_path / "ca.pem").read_bytes() == before


async def test_no_hub_at_all_is_told_as_before() -> None:
    told = await failure("https://127.0.0.1:9")
    assert isinstance(told, Unavailable)
    assert told.reason == "HUB_UNREACHABLE"
