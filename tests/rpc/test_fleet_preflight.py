"""What `hubbubd --check-config` says of a member of a fleet before it starts."""

import base64
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub_frontend.certs import Authority
from hubbubd.config import HubSettings, LoadedSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.errors import ConfigError
from hubbubd.runtime.diagnostics import checks
from hubbubd.runtime.diagnostics.checks import Finding, Severity
from hubbubd.store.vault.keys import VARIABLE, VaultKeys

from .fleet import Fleet

KEY = base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def settings(tmp_path: Path) -> FleetSettings:
    """Those of the member `a`, whose key of the vault is in a file."""
    file = tmp_path / "vault.key"
    file.write_text(KEY)
    file.chmod(0o600)
    made = Fleet.settings_of("a", Authority.open(tmp_path))
    return made.model_copy(update={"vault_key_file": file})


async def checked(fleet: FleetSettings, environ: dict[str, str] | None = None) -> dict[str, Finding]:
    """The findings about a member, but for those about its database, which is not there."""
    store = {"url": "postgresql://hubbub@127.0.0.1:1/hubbub"}
    hub = HubSettings.model_validate({"data_dir": fleet.cert.parent, "store": store, "fleet": fleet.model_dump()})
    found = await checks.check_before_start(LoadedSettings(hub=hub), environ or {})
    return {each.about: each for each in found if each.about != "store"}


async def test_a_member_that_can_start_is_told_so(settings: FleetSettings) -> None:
    found = await checked(settings)
    assert {each.message for each in found.values() if each.severity is Severity.FAIL} <= {"Address already in use"}
    assert found["vault"].message == f"1 key in {settings.vault_key_file}"
    assert found["fleet.listen 127.0.0.1:0"].message == "it is free"
    assert KEY not in repr(found)


def removed(file: Path) -> None:
    file.unlink()


def open_to_others(file: Path) -> None:
    file.chmod(0o640)


def in_another_form(file: Path) -> None:
    file.write_text("no key\n")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("spoil", [removed, open_to_others, in_another_form, a_directory])
async def test_a_key_of_the_vault_that_cannot_be_used_is_a_failure_in_the_words_of_the_start(
    settings: FleetSettings, spoil: Callable[[Path], None]
) -> None:
    assert settings.vault_key_file is not None
    spoil(settings.vault_key_file)
    with pytest.raises(ConfigError) as said:
        VaultKeys.load(settings.vault_key_file, {})
    found = (await checked(settings))["fleet.vault_key_file"]
    assert (found.severity, f"{found.about}: {found.message}") == (Severity.FAIL, str(said.value))


async def test_a_key_that_is_nowhere_is_a_failure_and_one_in_the_environment_is_found(settings: FleetSettings) -> None:
    without = settings.model_copy(update={"vault_key_file": None})
    found = (await checked(without))["fleet.vault_key_file"]
    assert (found.severity, "there is none" in found.message) == (Severity.FAIL, True)
    assert (await checked(without, {VARIABLE: KEY}))["vault"].message == f"1 key in {VARIABLE}"


async def test_the_address_for_members_that_is_taken_is_a_failure(settings: FleetSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        found = (await checked(settings.model_copy(update={"listen": listen})))[f"fleet.listen {listen}"]
    assert (found.severity, found.message) == (Severity.FAIL, "Address already in use")
