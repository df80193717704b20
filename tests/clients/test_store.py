"""Backups that end in a file here, or leave none."""

import hashlib
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub.v1 import admin_pb2, common_pb2, server_pb2
from hubbub_client import AlreadyExists, Unavailable

CHUNKS = (b"one", b"two", b"three")
WHOLE = b"".join(CHUNKS)
DIGEST = hashlib.sha256(WHOLE).hexdigest()


def serve(hub: Any, chunks: Sequence[bytes] = CHUNKS, digest: str | None = DIGEST) -> None:
    """The hub hands out a backup; without a digest it breaks off."""

    async def steps(_: Any) -> AsyncIterator[admin_pb2.BackupStoreResponse]:
        yield admin_pb2.BackupStoreResponse(bookmark=common_pb2.WatchBookmark())
        for chunk in chunks:
            yield admin_pb2.BackupStoreResponse(size_bytes=len(WHOLE), chunk=chunk)
        if digest:
            yield admin_pb2.BackupStoreResponse(size_bytes=len(WHOLE), end=admin_pb2.BackupEnd(sha256=digest))

    hub.streams["BackupStore"] = steps


@pytest.fixture
async def client(hub: Any) -> AsyncIterator[Any]:
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "hub.db"


async def test_a_backup_is_a_file_for_its_owner_only_with_all_bytes(hub: Any, client: Any, file: Path) -> None:
    serve(hub)
    seen: list[tuple[int, int]] = []

    async def copied(here: int, whole: int) -> None:
        seen.append((here, whole))

    backup = await client.store.backup(file, on_copied=copied)
    assert backup.to_json() == {"path": str(file), "size_bytes": len(WHOLE), "sha256": DIGEST}
    assert file.read_bytes() == WHOLE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert seen == [(0, 0), (3, 11), (6, 11), (11, 11)]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("chunks", "digest"), [(CHUNKS[:2], DIGEST), (CHUNKS, None), (CHUNKS, "0" * 64), ((*CHUNKS, b"!"), DIGEST)]
)
async def test_a_backup_that_is_not_whole_leaves_no_file(
    hub: Any, client: Any, file: Path, chunks: Sequence[bytes], digest: str | None
) -> None:
    serve(hub, chunks, digest)
    with pytest.raises(Unavailable) as refused:
        await client.store.backup(file)
    assert refused.value.reason == "BACKUP_INCOMPLETE"
    assert not list(file.parent.iterdir())


async def test_a_backup_that_is_broken_off_keeps_the_one_before(hub: Any, client: Any, file: Path) -> None:
    file.write_bytes(b"before")
    waiting = anyio.Event()

    async def steps(_: Any) -> AsyncIterator[admin_pb2.BackupStoreResponse]:
        yield admin_pb2.BackupStoreResponse(size_bytes=len(WHOLE), chunk=CHUNKS[0])
        waiting.set()
        await anyio.sleep_forever()

    hub.streams["BackupStore"] = steps
    async with anyio.create_task_group() as tasks:

        async def make() -> None:
            await client.store.backup(file, replace=True)

        tasks.start_soon(make)
        await waiting.wait()
        tasks.cancel_scope.cancel()
    assert [(each, each.read_bytes()) for each in file.parent.iterdir()] == [(file, b"before")]


async def test_a_file_that_exists_is_replaced_only_on_demand(hub: Any, client: Any, hubbub: Any, file: Path) -> None:
    serve(hub)
    file.write_bytes(b"before")
    with pytest.raises(AlreadyExists):
        await client.store.backup(file)
    refused = await hubbub("store", "backup", str(file))
    assert (refused.status, refused.error["reason"], file.read_bytes()) == (1, "FILE_EXISTS", b"before")
    replaced = await hubbub("store", "backup", str(file), "--force")
    assert (replaced.status, replaced.lines[0]["sha256"], file.read_bytes()) == (0, DIGEST, WHOLE)
    assert "11 bytes of 11 bytes, 100 %" in replaced.err


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", ["hub.db", "hub.db.partial"])
async def test_a_backup_is_never_written_through_a_link(
    hub: Any, client: Any, file: Path, name: str, there: bool, replace: bool
) -> None:
    """A writer to the directory must not choose what of its owner's is overwritten, or who reads the copy."""
    serve(hub)
    other = file.parent.parent / "other"
    if there:
        other.write_bytes(b"other")
        other.chmod(0o644)
    (file.parent / name).symlink_to(other)
    if name == "hub.db" and not replace:
        with pytest.raises(AlreadyExists):
            await client.store.backup(file)
        assert file.is_symlink()
    else:
        await client.store.backup(file, replace=replace)
        assert (file.is_symlink(), file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (False, WHOLE, 0o600)
        assert list(file.parent.iterdir()) == [file]
    assert (other.read_bytes() if other.exists() else None) == (b"other" if there else None)


async def test_a_directory_in_the_place_of_a_backup_stays(hub: Any, hubbub: Any, file: Path) -> None:
    serve(hub)
    (file / "inside").mkdir(parents=True)
    for words, reason in (((), "FILE_EXISTS"), (("--force",), "FILE_NOT_WRITTEN")):
        refused = await hubbub("store", "backup", str(file), *words)
        assert (refused.status, refused.error["reason"]) == (1, reason)
    assert [each.name for each in file.parent.rglob("*")] == ["hub.db", "inside"]


async def test_a_backup_into_a_directory_that_is_not_there_says_so(hub: Any, hubbub: Any, file: Path) -> None:
    serve(hub)
    refused = await hubbub("store", "backup", str(file.parent / "none" / "hub.db"))
    assert (refused.status, refused.error["reason"]) == (1, "FILE_NOT_WRITTEN")


async def test_the_numbers_of_a_store_are_shown_to_people_with_units(hub: Any, hubbub: Any) -> None:
    before = admin_pb2.StoreStatus(id="s", revision=9, size_bytes=3 << 20, keys=5, free_bytes=1 << 20)
    after = admin_pb2.StoreStatus(id="s", revision=9, size_bytes=2 << 20, keys=4)
    compaction = admin_pb2.Compaction(deleted=1, before=before, after=after)
    hub.replies["CompactStore"] = lambda _: admin_pb2.CompactStoreResponse(compaction=compaction)
    hub.replies["GetStoreStats"] = lambda _: admin_pb2.GetStoreStatsResponse(store=after)
    shown = (await hubbub("store", "compact", json=False)).out
    assert "1 records deleted" in shown
    assert "size           3.0 MiB -> 2.0 MiB" in shown
    assert "size           2.0 MiB\n" in (await hubbub("store", "stats", json=False)).out
    assert (await hubbub("store", "stats")).lines[0]["size_bytes"] == 2 << 20


async def test_a_person_who_confirms_the_clock_hears_what_counts_now(hub: Any, hubbub: Any) -> None:
    doubted = 3 * 86_400
    hub.replies["GetStatus"] = lambda _: admin_pb2.GetStatusResponse(doubted_time={"seconds": doubted})
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    assert "store trust-clock" in " ".join((await hubbub("status", json=False)).out.split())
    hub.replies["TrustClock"] = lambda _: admin_pb2.TrustClockResponse(trusted_time={"seconds": doubted})
    assert (await hubbub("store", "trust-clock")).lines == [{"trusted_ms": doubted * 1000}]
    hub.replies["TrustClock"] = lambda _: admin_pb2.TrustClockResponse()
    assert "did not doubt its clock" in (await hubbub("store", "trust-clock", json=False)).out
