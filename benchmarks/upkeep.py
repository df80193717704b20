"""What the hub costs beside calls: its loop under load, an idle minute, memory, and the store."""

import json
import os
import signal
import statistics
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any
from unittest import mock

import anyio
from measure import TEXT, Figure, Series, percentile
from processes import HERE, start_hub, stdio_server

from hubbubd.core.calls.call_states import Call, complete, merge_change, move
from hubbubd.runtime.records import Ledger, StoreContent, Table, WatcherLimit
from hubbubd.store.sqlite.sqlite_store import SqliteStore

BATCH = 50
"""Calls that end while a write-behind waits for company, at a thousand a second."""


async def loop(directory: Path, *, calls: int, idle_s: float) -> list[Figure]:
    """How long the hub's loop was kept from its work with 32 calls in flight, and what it takes when idle."""
    probe = directory / "probe.json"
    servers: Mapping[str, Any] = {f"light-{n}": stdio_server("light_stdio.py") | {"max_in_flight": 8} for n in range(4)}
    with mock.patch.dict(os.environ, {"HUBBUB_PROBE": str(probe)}):
        async with start_hub(servers, directory, [sys.executable, HERE / "probed_hub.py"]) as running:
            turns = 0

            async def work() -> None:
                nonlocal turns
                turns += 1
                await running.client.call_tool(f"light-{turns % 4}", "echo", {"text": TEXT})

            await Series().round(work, calls // 4, 32)
            os.kill(running.pid, signal.SIGUSR1)
            await Series().round(work, calls, 32)
    measured = json.loads(probe.read_text())
    (directory / "idle").mkdir()
    async with start_hub(servers, directory / "idle") as running:
        await anyio.sleep(1)
        before_s = running.cpu_s()
        await anyio.sleep(idle_s)
        idle = (running.cpu_s() - before_s) / idle_s * 100
        rss_mib = running.rss_mib()
    return [
        Figure("loop kept busy by one turn, longest", max(measured["busy_s"]) * 1000, "ms"),
        Figure("loop kept busy by one turn, p99", percentile(measured["busy_s"], 0.99) * 1000, "ms"),
        Figure("loop late, p99", percentile(measured["late_s"], 0.99) * 1000, "ms"),
        Figure("processor of an idle hub with 4 servers", idle, "%"),
        Figure("memory of an idle hub with 4 servers", rss_mib, "MiB"),
    ]


async def store(directory: Path, *, commits: int, calls: int) -> list[Figure]:
    """What it takes to write a record at once, and the records of calls a moment later."""
    path = directory / "store.db"
    store = await SqliteStore.open(path)
    stored = await StoreContent.read(store, WatcherLimit(1))
    table = Table(stored, "call", Call)
    ledger = Ledger(store, [table], stored, now=time)
    durable_s: list[float] = []
    for number in range(commits):
        began = perf_counter()
        await ledger.commit([table.change(f"durable-{number}", _call(f"durable-{number}"))])
        durable_s.append(perf_counter() - began)
    before_bytes, before_s = (await store.stats()).size_bytes, process_time()
    for number in range(calls):
        call = _call(f"call-{number}")
        sent = move(call, call.state.IN_PROGRESS, 1.0)
        states = (call, sent, complete(sent, call.params, 2.0))
        for before, after in zip((None, *states), states, strict=False):
            ledger.change_later(table, call.id, partial(merge_change, before, after))
        if number % BATCH == 0:
            await ledger.flush()
    await ledger.flush()
    spent_s, written = process_time() - before_s, (await store.stats()).size_bytes - before_bytes
    await store.close()
    return [
        Figure("commit of one record, median", statistics.median(durable_s) * 1000, "ms"),
        Figure("processor for the record of a call, written behind", spent_s / calls * 1000, "ms"),
        Figure("disk for the record of a call", written / calls, "bytes"),
    ]


def _call(call_id: str) -> Call:
    """A new call, as a record."""
    return Call(
        id=call_id,
        server="light",
        method="tools/call",
        params=b'{"name":"echo","arguments":{"text":"' + TEXT.encode() + b'"}}',
        principal="local",
        detached=False,
        timeout_s=60,
        max_s=300,
        created_at=0.0,
    )
