"""Copies of stores with the secrets of servers: from files into a database, where they are sealed, and back."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from hubbubd.config import HubSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.config.store_addresses import DatabaseAddress, StoreAddress, StoreCopy
from hubbubd.errors import ConfigError
from hubbubd.program.store_copy import copy_or_compare
from hubbubd.store.postgres.vault import PostgresVault
from hubbubd.store.transfer.store_transfer import SecretsNotCopied, TargetNotEmpty
from hubbubd.store.vault.keys import VaultKeys

from ..postgres import Postgres
from .test_transfer import FEW, Places, told, whole
from .test_transfer_files import TOKENS, path_of, with_secrets
from .test_transfer_postgres import Schemas
from .vaults import NEW, OLD, keys

KEPT: dict[str, Any] = {**TOKENS, "github/spec": {"env": {"KEY": "frotz"}}}
"""With more than one kind for a server."""


@pytest.fixture
def files(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def schemas(postgres: Postgres, tmp_path: Path) -> Schemas:
    return Schemas(postgres, tmp_path)


def settings(directory: Path, *secrets: bytes) -> HubSettings:
    """Those of a hub whose vault has these keys."""
    key_file = directory / f"{secrets[0][:1].decode()}.key"
    key_file.write_bytes(b"\n".join(base64.b64encode(each) for each in secrets))
    key_file.chmod(0o600)
    nothing = directory / "none.pem"
    fleet = FleetSettings(name="a", ca=nothing, cert=nothing, key=nothing, vault_key_file=key_file)
    return HubSettings(data_dir=Path("nowhere"), store=StoreSettings(), fleet=fleet)


def carried(source: StoreAddress, target: StoreAddress, by: HubSettings, *, verify: bool = False) -> Any:
    return copy_or_compare(StoreCopy(source=source, target=target, secrets=True, verify=verify), by, told)


async def sealed(place: StoreAddress, of: VaultKeys) -> dict[str, Any]:
    """What a hub with these keys finds in a vault."""
    assert isinstance(place, DatabaseAddress)
    vault = await PostgresVault.open(StoreSettings(url=SecretStr(place.url), schema_name=place.schema), of)
    try:
        return vault.all()
    finally:
        await vault.close()


def beside(place: StoreAddress) -> Any:
    return json.loads(path_of(place).with_name("tokens.json").read_bytes())


async def test_secrets_go_from_a_file_into_a_database_sealed_and_back(
    files: Places, schemas: Schemas, tmp_path: Path
) -> None:
    source, there, moved, back = await files.kept(FEW), schemas.new(), schemas.new(), files.new()
    with_secrets(source, KEPT)
    hub = settings(tmp_path, NEW, OLD)
    for one, other in ((source, there), (there, moved), (moved, back)):
        done = await carried(one, other, hub, verify=True)
        assert (done.copied, done.secrets, done.comparison.differing) == (True, 3, 0)
        assert "xyzzy" not in json.dumps(done.to_json())
    assert await sealed(moved, keys(NEW)) == beside(back) == KEPT
    assert path_of(back).with_name("tokens.json").stat().st_mode & 0o777 == 0o600
    assert isinstance(there, DatabaseAddress)
    rows = await schemas.asked(f"SELECT string_agg(v::text, ' ') FROM {there.schema}.vault v")
    for secret in (b"xyzzy", b"plugh", b"frotz"):
        assert secret.hex() not in rows
        assert secret.decode() not in rows


async def test_a_store_without_secrets_is_copied_to_and_from_a_database(
    files: Places, schemas: Schemas, tmp_path: Path
) -> None:
    there, back = schemas.new(), files.new()
    hub = settings(tmp_path, OLD)
    assert (await carried(await files.kept(FEW), there, hub)).secrets == 0
    assert (await carried(there, back, hub, verify=True)).comparison.differing == 0
    assert not path_of(back).with_name("tokens.json").exists()


async def test_secrets_of_a_database_are_not_overwritten(files: Places, schemas: Schemas, tmp_path: Path) -> None:
    source, target = await files.kept(FEW), await schemas.kept([])
    with_secrets(source, TOKENS)
    assert isinstance(target, DatabaseAddress)
    there = StoreSettings(url=SecretStr(target.url), schema_name=target.schema)
    vault = await PostgresVault.open(there, keys(OLD))
    await vault.put("other", {"token": "theirs"})
    await vault.close()
    with pytest.raises(TargetNotEmpty, match="the target has secrets already; nothing was copied"):
        await carried(source, target, settings(tmp_path, OLD))
    assert await sealed(target, keys(OLD)) == {"other": {"token": "theirs"}}
    assert (await whole(schemas, target))[0].entries == ()


async def test_secrets_of_a_database_that_differ_are_found_and_not_shown(
    files: Places, schemas: Schemas, tmp_path: Path
) -> None:
    source, target = await files.kept(FEW), schemas.new()
    with_secrets(source, TOKENS)
    hub = settings(tmp_path, OLD)
    await carried(source, target, hub)
    with_secrets(source, {**TOKENS, "github": {"token": "newer"}})
    done = await carried(source, target, hub, verify=True)
    assert [(each.key, each.description) for each in done.comparison.first_differences] == [("github", "its secrets")]
    assert "newer" not in json.dumps(done.to_json())


async def test_secrets_that_another_key_has_sealed_are_not_left_behind_in_silence(
    files: Places, schemas: Schemas, tmp_path: Path
) -> None:
    source, there, back = await files.kept(FEW), schemas.new(), files.new()
    with_secrets(source, TOKENS)
    await carried(source, there, settings(tmp_path, OLD))
    with pytest.raises(ConfigError, match=f"sealed with the key {keys(OLD).first.id}, which is not in"):
        await carried(there, back, settings(tmp_path, NEW))
    assert not path_of(back).exists()


async def test_secrets_that_a_database_does_not_take_are_said_to_be_missing(
    files: Places, schemas: Schemas, tmp_path: Path
) -> None:
    source, target = await files.kept(FEW), schemas.new()
    with_secrets(source, {"github": {"token": "x" * 1024 * 1024}})
    with pytest.raises(
        SecretsNotCopied, match=r"but the secrets of servers are not: the secrets of github have \d+ bytes"
    ):
        await carried(source, target, settings(tmp_path, OLD))
    assert len((await whole(schemas, target))[0].entries) == 3
