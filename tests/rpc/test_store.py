"""The store over the API."""

import hashlib
from pathlib import Path

import anyio
import grpc
import pytest

from hubbub.v1 import admin_pb2
from hubbubd.store.sqlite import backup
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .conftest import LIMIT_S, TOKEN, Caller
from .test_bad_input import METHODS


async def test_a_backup_comes_in_chunks_with_its_size_and_digest_at_the_end(address: str, tmp_path: Path) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stream = channel.unary_stream(
            "/hubbub.v1.AdminService/BackupStore", response_deserializer=admin_pb2.BackupStoreResponse.FromString
        )(b"", metadata=[("authorization", f"Bearer {TOKEN}")])
        steps = [step async for step in stream]
    content = b"".join(step.chunk for step in steps)
    assert {step.size_bytes for step in steps if step.HasField("chunk")} == {len(content)}
    assert [step.WhichOneof("step") for step in steps][-1] == "end"
    assert (steps[-1].size_bytes, steps[-1].end.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    (tmp_path / "copy.db").write_bytes(content)
    await (await SqliteStore.open(tmp_path / "copy.db")).close()


async def test_a_backup_for_which_there_is_no_room_is_refused(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "MIN_FREE_BYTES", 1 << 60)
    refusal = await api.refused(METHODS["BackupStore"], admin_pb2.BackupStoreRequest())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "NO_ROOM_FOR_BACKUP")


async def numbers(api: Caller) -> admin_pb2.StoreStatus:
    return (await api(METHODS["GetStoreStats"], admin_pb2.GetStoreStatsRequest())).store


async def test_the_numbers_of_the_store_are_those_of_the_status(api: Caller) -> None:
    compaction = (await api(METHODS["CompactStore"], admin_pb2.CompactStoreRequest())).compaction
    assert (compaction.deleted, compaction.before.id) == (0, compaction.after.id)
    with anyio.fail_after(LIMIT_S):
        while True:  # that a server is not there may be stored between two of these
            stats = await numbers(api)
            status = await api(METHODS["GetStatus"], admin_pb2.GetStatusRequest())
            if await numbers(api) == stats:
                break
    assert status.store == stats
    assert stats.keys > 0
    assert status.loop_tasks > 0
