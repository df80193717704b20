"""`${VAR}` in a server's configuration."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked
from pydantic import SecretStr, ValidationError

from hubbubd.config import ServerConfig, VariableNotSet, expand, resolve
from hubbubd.config.servers.references import SECRET_BYTES, list_references
from hubbubd.errors import ConfigError

ENVIRON = {"A": "1", "EMPTY": "", "REF": "${A}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $A $ {A}", "plain $A $ {A}"),
        ("${A}", "1"),
        ("<${A}${env:A}>", "<11>"),
        ("${EMPTY}", ""),
        ("${NONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${A:-default}", "1"),
        ("${NONE:-}", ""),
        ("${env:NONE:-a b:-c}", "a b:-c"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("${REF}", "${A}"),
    ],
)
def test_references_are_replaced_once(text: str, expected: str) -> None:
    assert expand(text, ENVIRON) == expected


@pytest.mark.parametrize("text", ["${NONE}", "${env:NONE}", "a${A}b${NONE}"])
def test_an_unset_variable_is_named(text: str) -> None:
    with pytest.raises(VariableNotSet) as caught:
        expand(text, ENVIRON, "servers.x.url")
    assert caught.value.variable == "NONE"
    assert (
        str(caught.value)
        == "servers.x.url: the environment variable NONE is not set; set it, or give a default: ${NONE:-...}"
    )


@pytest.mark.parametrize("text", ["${}", "${A", "${input:token}", "${A-b}", "${1}", "${ A }", "${A:b}"])
def test_anything_else_between_braces_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="is none of"):
        expand(text, ENVIRON)


def test_every_field_that_reaches_the_server_is_resolved() -> None:
    local = ServerConfig(name="x", command="${A}", args=("-${A}",), env={"K": "${A}"}, cwd="/${A}")
    done = resolve(local, ENVIRON)
    assert (done.command, done.args, done.env, done.cwd) == ("1", ("-1",), {"K": SecretStr("1")}, "/1")
    remote = ServerConfig(name="x", url="${URL}", headers={"Authorization": "Bearer ${A}"})
    done = resolve(remote, ENVIRON | {"URL": "https://x/mcp"})
    assert (done.url, done.headers) == ("https://x/mcp", {"Authorization": SecretStr("Bearer 1")})


def test_options_are_left_as_they_are() -> None:
    config = ServerConfig(name="x", command="x", timeout_message="${NONE}", roots="ask", retries=7)
    assert resolve(config, {}) == config


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (ServerConfig(name="x", command="${NONE}"), "servers.x.command"),
        (ServerConfig(name="x", command="x", args=("a", "${NONE}")), "servers.x.args.1"),
        (ServerConfig(name="x", command="x", env={"K": "${NONE}"}), "servers.x.env.K"),
        (ServerConfig(name="x", url="http://${NONE}"), "servers.x.url"),
    ],
)
def test_an_unset_variable_is_named_with_its_place(config: ServerConfig, key: str) -> None:
    with pytest.raises(VariableNotSet) as caught:
        resolve(config, {})
    assert caught.value.key == key


def test_a_resolved_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="a url starts with http"):
        resolve(ServerConfig(name="x", url="${URL}"), {"URL": "file:///etc/passwd"})
    with pytest.raises(ConfigError, match="needs a command"):
        resolve(ServerConfig(name="x", command="${EMPTY}"), ENVIRON)


def test_a_reference_in_the_url_does_not_change_the_identity_of_a_server() -> None:
    config = ServerConfig(name="x", url="https://x/${A}")
    assert config.fingerprint == ServerConfig(name="y", url="https://x/${A}", retries=9).fingerprint
    assert config.fingerprint != ServerConfig(name="x", url="https://y/${A}").fingerprint


def test_references_in_oauth_are_replaced_and_its_secrets_are_never_shown() -> None:
    oauth = {"client_id": "${A}", "client_secret": "<${A}>"}
    config = ServerConfig.model_validate({"name": "s", "url": "https://example.com", "oauth": oauth})
    resolved = resolve(config, ENVIRON).oauth
    assert resolved.client_id == "1"
    assert resolved.client_secret.get_secret_value() == "<1>"
    assert "<1>" not in repr(resolved)
    assert "<1>" not in resolved.model_dump_json()


@pytest.mark.parametrize(
    "oauth",
    [
        {"client_secret": "s"},
        {"grant": "client_credentials", "client_id": "c"},
        {"grant": "client_credentials", "client_id": "c", "client_secret": "s", "private_key": "k"},
        {"client_id": "c", "private_key": "k"},
        {"client_id": "c", "client_metadata_url": "https://example.com/c.json"},
        {"redirect_port": 70000},
        {"secret": "s"},
    ],
)
def test_an_oauth_table_that_names_no_one_kind_of_client_is_refused(oauth: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ServerConfig.model_validate({"name": "s", "url": "https://example.com", "oauth": oauth})


def with_header(text: str) -> ServerConfig:
    return ServerConfig.model_validate({"name": "x", "url": "https://x/", "headers": {"A": text}})


def header(text: str, warnings: list[str] | None = None) -> str:
    said = warnings if warnings is not None else []
    return resolve(with_header(text), {}, warn=said.append).headers["A"].get_secret_value()


def test_a_file_gives_its_text_without_the_newline_at_its_end(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    for content, expected in (
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b"", ""),
        (b"${A}", "${A}"),
    ):
        secret.write_bytes(content)
        secret.chmod(0o600)
        warnings: list[str] = []
        assert header(f"<${{file:{secret}}}>", warnings) == f"<{expected}>"
        assert warnings == []


def test_a_file_that_others_can_read_is_used_with_a_warning_that_has_nothing_of_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    secret.chmod(0o644)
    warnings: list[str] = []
    assert header(f"${{file:{secret}}}", warnings) == "canary"
    assert str(secret) in warnings[0]
    assert "canary" not in warnings[0]


def test_a_file_may_have_as_many_bytes_as_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * SECRET_BYTES)
    assert header(f"${{file:{secret}}}") == "x" * SECRET_BYTES


def test_a_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * (SECRET_BYTES + 1))
    for name, problem in (("none", "No such file"), ("", "not a file|a directory"), ("pipe", "not a file"),
                          ("binary", "not text"), ("large", "more than")):  # fmt: skip
        with pytest.raises(ConfigError, match=problem) as caught:
            header(f"${{file:{tmp_path}/{name}}}")
        assert caught.value.key == "servers.x.headers.A"
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


class Keys(KeyringBackend):
    """A keyring with one password."""

    priority = 1  # a class property there

    def get_password(self, service: str, username: str) -> str | None:
        if service == "locked":
            raise KeyringLocked("it says canary")
        return "from the keyring" if (service, username) == ("tickets", "hub/a") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


@pytest.fixture
def keys() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(Keys())
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("processes")
@pytest.mark.usefixtures("keys")
def test_the_keyring_gives_the_password_of_a_service_and_a_name() -> None:
    assert header("${keyring:tickets/hub/a}") == "from the keyring"
    with pytest.raises(ConfigError, match="the keyring has no tickets/b"):
        header("${keyring:tickets/b}")
    with pytest.raises(ConfigError, match="cannot be asked: KeyringLocked") as caught:
        header("${keyring:locked/b}")
    assert "canary" not in str(caught.value)


def test_without_the_keyring_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match="install Hubbub again"):
        header("${keyring:a/b}")


@pytest.mark.parametrize(
    "text", ["${file:}", "${file:relative}", "${keyring:}", "${keyring:service}", "${keyring:/name}"]
)
def test_a_file_is_absolute_and_a_keyring_has_two_parts(text: str) -> None:
    with pytest.raises(ConfigError, match="is none of"):
        header(text)


def test_what_the_references_name_is_known_without_resolving_them() -> None:
    config = with_header("${A} ${env:B:-x} $${C} ${file:/d} ${keyring:e/f} ${")
    assert [reference for _, reference in list_references(config)] == ["A", "B", "${file:/d}", "${keyring:e/f}"]
