"""How large a store becomes while records come and go for ever."""

import asyncio
from pathlib import Path

from hubbubd.config import HubSettings
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.runtime.oversight import Ages, Audit, Retention
from hubbubd.runtime.ownership import SoleOwnership
from hubbubd.runtime.records import Ledger, StoreContent, WatcherLimit
from hubbubd.runtime.records.table import DELETIONS
from hubbubd.runtime.tables import Tables
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.timing.clock import Clock

KEPT = 500
BATCHES, BATCH = 100, 200
PAYLOAD = b'"%s"' % (b"x" * 1000)


def ended(call_id: str, at: float) -> Call:
    return Call(
        id=call_id,
        server="busy",
        method="tools/call",
        params=PAYLOAD,
        result=PAYLOAD,
        principal="me",
        detached=True,
        timeout_s=60,
        max_s=300,
        created_at=at,
        completed_at=at,
        state=CallState.COMPLETED,
    )


async def test_a_store_through_which_much_passes_stays_as_small_as_what_is_kept(tmp_path: Path) -> None:
    store, clock = await SqliteStore.open(tmp_path / "hub" / "store.db"), Clock(asyncio.get_running_loop().time)
    stored = await StoreContent.read(store, WatcherLimit(1))
    tables = Tables(stored)
    ledger = Ledger(store, tables.all(), stored, now=lambda: 0.0)
    settings = HubSettings(data_dir=tmp_path, call_history_count=KEPT)
    retention = Retention(
        ledger,
        clock,
        settings,
        servers=tables.servers,
        calls=tables.calls,
        requests=tables.requests,
        tasks=tables.tasks,
        ages=Ages(ledger, tables.upkeep, clock, SoleOwnership()),
        audit=Audit(ledger, tables.audit, clock, settings),
        ownership=SoleOwnership(),
    )
    retention.recover()
    largest = 0
    for batch in range(BATCHES):
        records = [ended(f"call-{batch}-{number}", clock.now() - 5) for number in range(BATCH)]
        await ledger.commit([tables.calls.new(record.id, record) for record in records])
        retention.prune()
        await ledger.flush()
        if batch % 10 == 9:
            await retention.run_round()
        largest = max(largest, sum(file.stat().st_size for file in (tmp_path / "hub").iterdir()))
    assert len(list(tables.calls)) == KEPT
    assert (await store.stats()).deletions == DELETIONS
    # 20,000 records are 45 MB; what is kept is 1.2 MB, the deletions 1 MB, and the journal grows to 4 MB by itself.
    assert largest < 12_000_000
    assert (tmp_path / "hub" / "store.db").stat().st_size < 4_000_000
    await store.close()
