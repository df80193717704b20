"""Settings of a member of a fleet."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hubbubd.config import HubSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.errors import ConfigError

Load = Callable[..., HubSettings]
URL = "postgresql://hubbub@127.0.0.1/hubbub"


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(*uris: str, hosts: tuple[str, ...] = ("a",)) -> bytes:
    """One that its own key has signed, for these URIs and hosts."""
    subject = x509.Name([])
    names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, hosts)]
    made = (
        x509.CertificateBuilder(subject, subject, key().public_key())
        .serial_number(1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2046, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if uris != ("",):
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(key(), hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with what the member `a` needs."""
    (tmp_path / "a.pem").write_bytes(certificate("spiffe://example.org/x", "hubbub:member:a"))
    (tmp_path / "ca.pem").write_bytes(certificate())
    pem = key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "a.key").write_bytes(pem)
    return tmp_path


def written(files: Path, more: str = "", **changed: str) -> str:
    """A file of the member `a`; a setting that is changed to nothing is left out."""
    settings = {"name": "a", "ca": f"{files}/ca.pem", "cert": f"{files}/a.pem", "key": f"{files}/a.key"} | changed
    lines = [f'{name} = "{value}"' for name, value in settings.items() if value]
    return "\n".join([f'[store]\nurl = "{URL}"\n[fleet]', *lines, more])


def test_without_settings_a_hub_is_no_member(load: Load) -> None:
    assert load().fleet is None


def test_a_file_has_a_table_of_its_own(load: Load, files: Path) -> None:
    text = written(files, "lease_ttl_s = 2\nrebalance = false", reached_at="a.example:7879", address="[::1]:1")
    settings = load(text).fleet
    assert (settings.name, settings.listen, settings.lease_ttl_s, settings.rebalance) == (
        "a",
        "127.0.0.1:7879",
        2,
        False,
    )
    assert (settings.reached_at, settings.address) == ("a.example:7879", "[::1]:1")
    assert [*settings.tls] == [files / "a.pem", files / "a.key", files / "ca.pem"]


def test_the_environment_has_each_setting_and_leaves_the_others_to_the_file(load: Load, files: Path) -> None:
    (files / "b.pem").write_bytes(certificate("hubbub:member:b", hosts=("b",)))
    environ = {"HUBBUBD_FLEET__NAME": "b", "HUBBUBD_FLEET__CERT": f"{files}/b.pem", "HUBBUBD_STORE__URL": URL}
    assert load(written(files, "lease_ttl_s = 2"), **environ).fleet == FleetSettings(
        name="b", ca=files / "ca.pem", cert=files / "b.pem", key=files / "a.key", lease_ttl_s=2
    )
    environ |= {"HUBBUBD_FLEET__CA": f"{files}/ca.pem", "HUBBUBD_FLEET__KEY": f"{files}/a.key"}
    alone = load(**environ).fleet
    assert alone.name == "b"


def test_a_member_has_the_host_s_name_by_default(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Node-1.Example")
    settings = FleetSettings(ca=files / "ca.pem", cert=files / "a.pem", key=files / "a.key")
    assert settings.name == "node-1.example"


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"name": "A b"}, r"hub\.toml: fleet: name: "),
        ({"nam": "a"}, r"hub\.toml: fleet\.nam: unknown key; did you mean 'name'"),
        ({"ca": ""}, r"hub\.toml: fleet: ca: field required"),
        ({"ca": "/none/ca.pem"}, r"hub\.toml: fleet: ca: /none/ca\.pem cannot be read: No such file"),
        ({"cert": "/none/a.pem"}, r"hub\.toml: fleet: cert: /none/a\.pem cannot be read: No such file"),
        ({"key": "/none/a.key"}, r"hub\.toml: fleet: key: /none/a\.key cannot be read: No such file"),
        (
            {"name": "c"},
            r"cert: .*a\.pem is not for the member 'c': of URI hubbub:member:c; it has spiffe://.*/x, hubbub:member:a$",
        ),
        ({"listen": "0.0.0.0:7879"}, r"listen: 0\.0\.0\.0:7879 is all addresses, so reached_at must say which"),
        ({"listen": "[::]:7879"}, r"listen: \[::\]:7879 is all addresses"),
        ({"listen": "unix:/run/x"}, r"listen: must be HOST:PORT or \[IPV6\]:PORT; other members come over the network"),
        *(
            ({setting: wrong}, rf"fleet: {setting}: '.*' is not (HOST:PORT|a host)")
            for setting in ("reached_at", "address")
            for wrong in ("a.example", "a.example:0", "a.example:65536", "a.example:x", ":1", "https://a:1", "a b:1")
        ),
    ],
)
def test_what_is_wrong_is_named(load: Load, files: Path, changed: dict[str, str], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        load(written(files, **changed))


@pytest.mark.parametrize(
    ("uris", "has"), [((), "it has none"), (("",), "it has none"), (("hubbub:member:ab",), "it has hubbub:member:ab")]
)
def test_a_certificate_of_another_member_is_refused(load: Load, files: Path, uris: tuple[str, ...], has: str) -> None:
    (files / "a.pem").write_bytes(certificate(*uris))
    with pytest.raises(ConfigError, match=f"is not for the member 'a': of URI hubbub:member:a; {has}$"):
        load(written(files))


@pytest.mark.parametrize(("hosts", "has"), [((), "it has none"), (("host.example", "*"), r"it has host\.example, \*")])
def test_a_certificate_without_the_member_s_host_name_is_refused(
    load: Load, files: Path, hosts: tuple[str, ...], has: str
) -> None:
    (files / "a.pem").write_bytes(certificate("hubbub:member:a", hosts=hosts))
    with pytest.raises(ConfigError, match=f"cert: .* is not for the member 'a': of DNS name a; {has}$"):
        load(written(files))


def test_members_at_all_addresses_say_how_they_are_reached(load: Load, files: Path) -> None:
    settings = load(written(files, listen="0.0.0.0:7879", reached_at="10.0.0.5:7879")).fleet
    assert settings.reached_at == "10.0.0.5:7879"


def test_a_fleet_without_a_database_is_refused(load: Load, files: Path) -> None:
    without = written(files).partition("[fleet]")[2]
    with pytest.raises(ConfigError, match=r"hub\.toml: fleet: needs \[store\] url, too"):
        load(f"[fleet]{without}")


@pytest.mark.parametrize(
    ("text", "environ", "where"),
    [
        ("[hub]\nfleet = 1", {}, r"hub\.toml: hub\.fleet: in a file, this is the table \[fleet\]"),
        ("fleet = 1", {}, r"hub\.toml: fleet: must be a table"),
        ("", {"HUBBUBD_FLEET": '"x"'}, r"^HUBBUBD_FLEET: must be a table.*: \[fleet\] in a file, HUBBUBD_FLEET__NAME"),
        ("", {"HUBBUBD_FLEET__NAME": "a"}, r"^HUBBUBD_FLEET__\*: ca: field required"),
    ],
)
def test_what_is_no_table_is_named(load: Load, text: str, environ: dict[str, str], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        load(text, **environ)
