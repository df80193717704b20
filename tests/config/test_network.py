"""Settings of TLS, grants and identity providers: what must agree, and what their files must hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config import HubSettings, load_settings
from hubbubd.config.sections.network import GrantSettings, is_loopback
from hubbubd.core.access import Role
from hubbubd.errors import ConfigError


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.open(tmp_path / "certs")


@pytest.fixture
def pair(authority: Authority) -> CertificateFiles:
    return authority.issue_server()


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., HubSettings]:
    """The settings of a file with these lines."""

    def load(*lines: str, environ: dict[str, str] | None = None, options: tuple[str, ...] = ()) -> HubSettings:
        file = tmp_path / "hub.toml"
        file.write_text("[hub]\n" + "\n".join(lines))
        return load_settings(["--config", str(file), *options], environ or {}).hub

    return load


Load = Callable[..., HubSettings]


def tls(pair: CertificateFiles) -> tuple[str, str]:
    return f'tls_cert = "{pair.cert}"', f'tls_key = "{pair.key}"'


@pytest.mark.parametrize("listen", ["0.0.0.0:7878", "[::]:0", "192.0.2.1:1"])
def test_the_network_is_served_with_tls_only(load: Load, pair: CertificateFiles, listen: str) -> None:
    assert load(*tls(pair), f'listen = "{listen}"').is_networked
    assert load(*tls(pair), f'connect_listen = "{listen}"').is_networked
    assert not load(*tls(pair)).is_networked
    for key in ("listen", "connect_listen"):
        with pytest.raises(ConfigError, match="set tls_cert and tls_key") as refused:
            load(f'{key} = "{listen}"')
        assert refused.value.key.endswith(f"hub.toml: hub.{key}")
    with pytest.raises(ConfigError) as refused:
        load(options=("--listen", listen))
    assert refused.value.key == "--listen"
    with pytest.raises(ConfigError) as refused:
        load(environ={"HUBBUBD_LISTEN": listen})
    assert refused.value.key == "HUBBUBD_LISTEN"


@pytest.mark.parametrize(
    ("lines", "key", "problem"),
    [
        (["tls_cert = 'a'"], "tls_cert", "needs tls_key"),
        (["tls_key = 'a'"], "tls_key", "needs tls_cert"),
        (["tls_client_ca = 'a'"], "tls_client_ca", "needs tls_cert and tls_key"),
        (["oidc_issuer = 'https://i.example'"], "oidc_issuer", "needs oidc_audience"),
        (["oidc_audience = 'a'"], "oidc_audience", "needs oidc_issuer"),
        (["oidc_roles_claim = 'a'"], "oidc_roles_claim", "needs oidc_issuer"),
        (["oidc_jwks_url = 'https://i.example'"], "oidc_jwks_url", "needs oidc_issuer"),
        (["oidc_audience = ''"], "oidc_audience", "at least 1"),
        (["oidc_issuer = 'http://i.example'"], "oidc_issuer", "must be an https address"),
        (["oidc_issuer = 'i.example'"], "oidc_issuer", "must be an https address"),
        (["oidc_issuer = 'http://127.0.0.1.example'"], "oidc_issuer", "must be an https address"),
        (["grants = [{who = 'cert:a', roles = ['admin']}]"], "grants", "without tls_client_ca"),
        (["grants = [{who = 'oidc:a', roles = ['admin']}]"], "grants", "without oidc_issuer"),
        (["grants = [{who = 'oidc-role:a', roles = ['admin']}]"], "grants", "without oidc_roles_claim"),
        (["grants = [{who = 'ada', roles = ['admin']}]"], "grants", "must be cert:NAME, oidc:NAME or oidc-role:VALUE"),
        (
            ["grants = [{who = 'cert:', roles = ['admin']}]"],
            "grants",
            "must be cert:NAME, oidc:NAME or oidc-role:VALUE",
        ),
        (["grants = [{who = 'cert:a', roles = []}]"], "grants", "at least 1"),
        (["grants = [{who = 'cert:a', roles = ['root']}]"], "grants", "'viewer', 'responder'"),
        (["grants = [{who = 'cert:a', roles = ['admin'], servers = []}]"], "grants", "at least 1"),
        (["grants = [{who = 'cert:a', roles = ['admin'], server = '*'}]"], "grants", r"0\.server: unknown key"),
    ],
)
def test_what_does_not_go_together_is_named(load: Load, lines: list[str], key: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        load(*lines)
    assert f"hub.{key}" in refused.value.key


def _encrypted(pair: CertificateFiles) -> None:
    key: Any = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def _of_another(pair: CertificateFiles) -> None:
    Authority.open(pair.key.parent).issue_client("x").key.replace(pair.key)


@pytest.mark.parametrize(
    ("spoil", "key", "problem"),
    [
        (lambda pair: pair.cert.unlink(), "tls_cert", r"server\.pem cannot be read"),
        (lambda pair: pair.key.unlink(), "tls_key", r"server-key\.pem cannot be read"),
        (lambda pair: pair.cert.write_text("x"), "tls_cert", r"server\.pem is not a PEM certificate"),
        (lambda pair: pair.key.write_text("x"), "tls_key", r"server-key\.pem is not a PEM private key"),
        (_encrypted, "tls_key", "is encrypted"),
        (
            lambda pair: Authority.open(pair.key.parent).issue_client("x").key.replace(pair.key),
            "tls_key",
            "is not the key of",
        ),
        (lambda pair: (pair.cert.parent / "ca.pem").write_text("x"), "tls_client_ca", r"ca\.pem has no PEM cert"),
        (lambda pair: (pair.cert.parent / "ca.pem").unlink(), "tls_client_ca", r"ca\.pem cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    load: Load,
    pair: CertificateFiles,
    authority: Authority,
    spoil: Callable[[CertificateFiles], None],
    key: str,
    problem: str,
) -> None:
    lines = *tls(pair), f'tls_client_ca = "{authority.file}"'
    assert load(*lines).tls is not None
    spoil(pair)
    with pytest.raises(ConfigError, match=problem) as refused:
        load(*lines)
    assert refused.value.key.endswith(f"hub.{key}")
    assert "BEGIN" not in str(refused.value)


def test_a_key_is_in_no_representation(load: Load, pair: CertificateFiles) -> None:
    files = load(*tls(pair)).tls
    assert "PRIVATE" not in repr(files.read())


def test_the_roles_of_settings_are_those_of_access() -> None:
    [literal, *_] = get_args(GrantSettings.model_fields["roles"].annotation)
    assert set(get_args(literal)) == set(Role)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback_is_known_in_all_its_forms(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "localhost.example", "127.0.0.1.example", "::ffff:192.0.2.1"])
def test_what_only_looks_like_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)
