"""Copies of stores in files, and of the secrets beside them."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hubbubd.config.store_addresses import FileAddress, StoreAddress
from hubbubd.errors import ConfigError
from hubbubd.program.store_copy import lock_store
from hubbubd.store import NoRoom, StoreError, StoreUnavailable, Write
from hubbubd.store.sqlite import backup
from hubbubd.store.sqlite.schema import APPLICATION_ID
from hubbubd.store.transfer.store_transfer import SecretsNotCopied, TargetNotEmpty, transfer

from .faulty import BROKEN_WRITE, FULL, Disk, Fault
from .test_transfer import FEW, HUB, MANY, Places, copied, told, whole


@pytest.fixture
def files(tmp_path: Path) -> Places:
    return Places(tmp_path)


def in_directory(place: StoreAddress) -> set[str]:
    assert isinstance(place, FileAddress)
    return {each.name for each in place.path.parent.iterdir()}


def path_of(place: StoreAddress) -> Path:
    assert isinstance(place, FileAddress)
    return place.path


async def test_the_file_of_a_copy_is_its_owner_s_and_nothing_is_left_beside_it(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    before = path_of(source).read_bytes()
    await copied(source, target)
    assert in_directory(target) == {"hubbub.db", "hubbub.db.lock"}
    assert path_of(target).stat().st_mode & 0o777 == 0o600
    assert path_of(target).parent.stat().st_mode & 0o777 == 0o700
    assert path_of(source).read_bytes() == before


async def test_what_a_killed_hub_left_in_its_journal_is_copied_and_stays_as_it_was(files: Places) -> None:
    place = await files.kept(FEW)
    killed, target = files.new(), files.new()
    async with files.opened(place) as store:
        await store.commit([Write("newest", b"1")])
        shutil.copytree(path_of(place).parent, path_of(killed).parent)
    before = {each: each.read_bytes() for each in path_of(killed).parent.iterdir() if each.suffix != ".lock"}
    assert any(each.name.endswith("-wal") for each in before)
    await copied(killed, target)
    assert {each: each.read_bytes() for each in before} == before
    assert {entry.key for entry in (await whole(files, target))[0].entries} == {"a", "c", "d", "newest"}


async def test_an_empty_target_whose_hub_was_killed_is_replaced_with_its_journal(files: Places) -> None:
    place, killed = files.new(), files.new()
    async with files.opened(place) as store:
        await store.commit([Write("a", b"1")])
        await store.commit([Write("a", None)])
        await store.compact(2)
        shutil.copytree(path_of(place).parent, path_of(killed).parent)
    assert "hubbub.db-wal" in in_directory(killed)
    await copied(await files.kept(FEW), killed)
    assert {entry.key for entry in (await whole(files, killed))[0].entries} == {"a", "c", "d"}


async def test_what_is_no_store_is_named_with_what_to_do(files: Places, tmp_path: Path) -> None:
    target, source = files.new(), await files.kept(FEW)
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    (tmp_path / "torn.db").write_bytes(path_of(source).read_bytes())
    (tmp_path / "torn.db-journal").write_bytes(b"something")
    (tmp_path / "lost.db-wal").write_bytes(b"something")
    with closing(sqlite3.connect(tmp_path / "older.db")) as db:
        db.execute("PRAGMA user_version = 0")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    wrong = {
        "": r"is a directory; name the file in it, .*hubbub\.db",
        "empty.db": "it is empty",
        "text.db": "damaged",
        "torn.db": "left in the middle of a change; let a hub open it once",
        "older.db": "written by an older hub; let this one open it once",
    }
    for name, says in wrong.items():
        with pytest.raises(StoreError, match=says):
            await copied(FileAddress(tmp_path / name), target)
        with pytest.raises(StoreError, match=says):
            await copied(source, FileAddress(tmp_path / name))
    for name, says in {"link.db": "is a link; name the file itself", "lost.db": "its journal is there"}.items():
        with pytest.raises(StoreError, match=says):
            await copied(source, FileAddress(tmp_path / name))


async def test_a_copy_that_would_fill_the_disk_is_not_begun(files: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await files.kept(FEW), files.new()
    monkeypatch.setattr(backup, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(NoRoom, match=r"a copy takes \d+ bytes of .* for a while, and \d+ are free"):
        await copied(source, target)
    assert in_directory(target) == {"hubbub.db.lock"}


@pytest.fixture(scope="module")
def disk() -> Any:
    disk = Disk()
    disk.install()
    yield disk
    disk.uninstall()


@pytest.mark.parametrize("after", [0, 3, 40])
@pytest.mark.parametrize(("fault", "says"), [(FULL, "the disk is full; make room"), (BROKEN_WRITE, "the disk failed")])
async def test_a_disk_that_fails_on_the_way_leaves_no_copy(
    files: Places, disk: Disk, fault: Fault, says: str, after: int
) -> None:
    source, target = await files.kept(MANY), files.new()
    with disk.failing(Fault(fault.operation, fault.code, after=after)), pytest.raises(StoreUnavailable, match=says):
        await copied(source, target)
    assert in_directory(target) == {"hubbub.db.lock"}
    assert (await copied(source, target, verify=True)).comparison.differing == 0


# Secrets.

TOKENS = {"github": {"token": "xyzzy"}, "mail": {"env": {"PASSWORD": "plugh"}}}


def with_secrets(place: StoreAddress, secrets: dict[str, Any]) -> Path:
    file = path_of(place).with_name("tokens.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(secrets))
    return file


async def test_secrets_go_along_when_that_is_wanted(files: Places) -> None:
    source, without, target = await files.kept(FEW), files.new(), files.new()
    with_secrets(source, TOKENS)
    await copied(source, without)
    assert "tokens.json" not in in_directory(without)
    done = await copied(source, target, secrets=True, verify=True)
    assert (done.secrets, done.comparison.differing) == (2, 0)
    file = path_of(target).with_name("tokens.json")
    assert json.loads(file.read_bytes()) == TOKENS
    assert file.stat().st_mode & 0o777 == 0o600


async def test_secrets_of_the_target_are_not_overwritten(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    with_secrets(source, TOKENS)
    file = with_secrets(target, {"other": {}})
    with pytest.raises(TargetNotEmpty, match="the target has secrets already; nothing was copied"):
        await copied(source, target, secrets=True)
    assert json.loads(file.read_bytes()) == {"other": {}}
    assert "hubbub.db" not in in_directory(target)


async def test_secrets_that_differ_are_found_and_not_shown(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    with_secrets(source, TOKENS)
    await copied(source, target)
    done = await copied(source, target, secrets=True, verify=True)
    assert [(each.key, each.description) for each in done.comparison.first_differences] == [
        ("github", "its secrets"),
        ("mail", "its secrets"),
    ]
    assert "xyzzy" not in json.dumps(done.to_json())


async def test_secrets_need_a_data_directory(files: Places, tmp_path: Path) -> None:
    source = await files.kept(FEW)
    with pytest.raises(ConfigError, match=r"--secrets needs the hubbub\.db of a data directory"):
        await copied(source, FileAddress(tmp_path / "copy.db"), secrets=True)


class Vault:
    """A vault that a test makes up."""

    def __init__(self, kept: dict[str, dict[str, Any]], error: Exception | None = None) -> None:
        self.kept = kept
        self.error = error

    async def all(self) -> dict[str, dict[str, Any]]:
        return dict(self.kept)

    async def put_all(self, secrets: dict[str, dict[str, Any]]) -> None:
        if self.error:
            raise self.error
        self.kept = secrets


async def test_secrets_that_cannot_be_written_are_said_to_be_missing(files: Places) -> None:
    source, target = await files.kept(FEW), files.new()
    vaults = Vault(TOKENS), Vault({}, OSError("the disk is full"))
    async with lock_store(source, HUB, create=False) as one, lock_store(target, HUB, create=True) as other:
        with pytest.raises(
            SecretsNotCopied, match=r"the records are in .*, but the secrets of servers are not: the disk"
        ):
            await transfer(one, other, verify=False, vaults=vaults, on_copied=told)
    assert len((await whole(files, target))[0].entries) == 3
