"""The daemon whose store fails: it goes on reading, says so, gets well by itself; or does not start, and says why."""

import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hubbub_client import ServerSpec, Unavailable

from .conftest import LIMIT_S, RunningHub, environment, running

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LAUNCHER = str(Path(__file__).with_name("faulty_hub.py"))
FULL = {"operation": "write", "code": sqlite3.SQLITE_FULL}
SLOW_SYNC = {"operation": "sync", "delay_s": 0.5}


class FaultyDisk:
    """A data directory whose disk has the faults that are put there."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self.store = self.data_dir / "hubbub.db"
        self.log = directory / "hub.log"
        self._faults = directory / "faults.json"
        self._config = directory / "hub.toml"
        self._config.write_text('[hub]\nallow_hosts = ["127.0.0.1"]\n')
        self.put()

    def put(self, *faults: dict[str, Any]) -> None:
        draft = self._faults.with_suffix(".new")
        draft.write_text(json.dumps(faults))
        draft.replace(self._faults)

    @property
    def arguments(self) -> list[str]:
        return ["--config", str(self._config), "--listen", "127.0.0.1:0", "--data-dir", str(self.data_dir)]

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[RunningHub]:
        with self.log.open("ab") as log:
            async with running(self.arguments, [LAUNCHER, str(self._faults)], stderr=log) as hub:
                yield hub

    async def refused(self) -> str:
        """The one line of a hub that does not start."""
        command = [sys.executable, LAUNCHER, str(self._faults), *self.arguments]
        with anyio.fail_after(LIMIT_S):
            ran = await anyio.run_process(command, check=False, env=environment())
        (line,) = ran.stderr.decode().splitlines()
        assert (ran.returncode, ran.stdout) == (1, b"")
        return line

    def said(self, event: str) -> int:
        """How many lines of the log say so."""
        return sum(event in line for line in self.log.read_text().splitlines())


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    return FaultyDisk(tmp_path)


def spec(name: str) -> ServerSpec:
    return ServerSpec(name=name, url="http://127.0.0.1:9/mcp")


async def names(hub: RunningHub) -> set[str]:
    return {server.name for server in await hub.client.servers.list()}


async def test_while_the_disk_is_full_the_hub_reads_and_says_so_and_writes_again_by_itself(disk: FaultyDisk) -> None:
    async with disk.hub() as hub, grpc.aio.insecure_channel(hub.ready["grpc"]) as channel:
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        watch = hub.client.servers.watch()
        with anyio.fail_after(LIMIT_S):
            assert (await health.read()).status == SERVING
            await hub.client.servers.add(spec("before"))
            disk.put(FULL)
            for _ in range(3):
                with pytest.raises(Unavailable, match=r"the disk is full; make room") as refused:
                    await hub.client.servers.add(spec("refused"))
                assert refused.value.reason == "STORE_UNAVAILABLE"
            assert (await health.read()).status == NOT_SERVING
            assert not await hub.client.admin.well()
            assert (await hub.hubbub("health")).status == 1
            assert await names(hub) == {"before"}
            assert (await hub.client.admin.status()).pid == hub.process.pid
            disk.put()
            assert (await health.read()).status == SERVING
            assert (await hub.hubbub("health")).record == {"serving": True}
            await hub.client.servers.add(spec("refused"))
            seen: set[str] = set()
            async for event in watch:
                if (record := getattr(event, "record", None)) is not None:
                    seen.add(record.name)
                if seen == {"before", "refused"}:
                    break
        await watch.aclose()
        health.cancel()
    assert disk.said("store write failed") == 1
    assert disk.said("store recovered") == 1


async def test_a_disk_that_syncs_slowly_holds_up_writers_alone_and_a_stop_waits_for_them(disk: FaultyDisk) -> None:
    added: list[str] = []
    async with disk.hub() as hub:
        disk.put(SLOW_SYNC)

        async def add(name: str) -> None:
            await hub.client.servers.add(spec(name))
            added.append(name)

        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as writers:
                for number in range(5):
                    writers.start_soon(add, f"server-{number}")
                while not added:
                    await hub.client.servers.list()
                hub.process.send_signal(signal.SIGTERM)
            assert await hub.process.wait() == 0
    disk.put()
    async with disk.hub() as hub:
        assert await names(hub) == set(added)
    assert len(added) == 5
