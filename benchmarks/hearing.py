"""A member of a fleet that only hears, as its own process: it watches the records of one noun, and says how late.

    python hearing.py URL SCHEMA DIRECTORY COUNT

It says when it is ready. Each record has the time when its commit was called, by the machine's monotonic clock. After
COUNT records it says how many seconds each took until its watcher had it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time

import anyio

from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.program import console
from hubbubd.runtime.records import Ledger, StoreContent, Table, WatcherLimit
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.postgres_store import PostgresStore

NOUN = "said"
NAME = "hearing"
LEASE_S = 300.0


@dataclass(frozen=True)
class StoredRecord:
    """A record, and when its commit was called."""

    id: str
    at: float
    text: str = ""


@dataclass(frozen=True)
class EveryRecord:
    """Lets every record through."""

    scope: Scope = EVERYTHING

    def is_in_scope(self, record: StoredRecord, /) -> bool:
        return True

    def matches(self, record: StoredRecord, /) -> bool:
        return True


async def main(url: str, schema: str, directory: Path, count: int) -> None:
    """Watches until it has heard of so many records."""
    member = Entrant(NAME, LEASE_S)
    store = await PostgresStore.open(url, schema=schema, directory=directory, timeout_s=60, member=member)
    stored = await StoreContent.read(store, WatcherLimit(1))
    table = Table(stored, NOUN, StoredRecord)
    ledger = Ledger(store, [table], stored, now=time)
    late_s: list[float] = []
    console.print_json_line({"revision": store.revision})
    async for event in table.feed.watch(EveryRecord()):
        if event.record is not None:
            late_s.append(perf_counter() - event.record.at)
        if len(late_s) == count:
            break
    console.print_json_line({"late_s": late_s})
    await ledger.aclose()
    await store.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), backend_options={"use_uvloop": True})
