"""What a store in PostgreSQL costs beside one in a file, and how soon a member hears of what another one commits."""

import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from time import perf_counter

import anyio
import orjson
from anyio.streams.buffered import BufferedByteReceiveStream
from hearing import NOUN
from measure import Figure, percentile, run_in_turns, run_paced
from processes import HERE, START_LIMIT_S, end_after

from hubbubd.store import Store, Write
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.postgres_store import PostgresStore
from hubbubd.store.sqlite.sqlite_store import SqliteStore

VALUE = b"x" * 600
"""As much as the record of a call takes."""

KEYS = 1000
"""Records that commits change in turn."""

CALLERS = (1, 64)

HEARD = 10
"""For each commit that is made one after the other, so many are heard of."""

RATE = 500
"""Commits a second of which another member hears."""

HALF_MS, P99_MS = 5.0, 50.0
"""The most that half of them, and 99 of 100, may take from the call at one member to a watcher at another one."""

SCHEMA = "fleet"
TEXT = "x" * (len(VALUE) - 60)
"""With its id and its time, such a record is as large as the others."""

LINE_BYTES = 1 << 20


async def compare_stores(directory: Path, *, rounds: int, commits: int) -> list[Figure]:
    """Commits per second of a file, of a database alone, and of a member while another one hears of them."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.postgres import running

    with running() as server:
        async with AsyncExitStack() as held:

            async def postgres(schema: str, name: str | None = None) -> PostgresStore:
                (place := directory / f"{schema}-{name}").mkdir()
                member = None if name is None else Entrant(name, 300.0)
                store = await PostgresStore.open(
                    server.url, schema=schema, directory=place, timeout_s=60, member=member
                )
                held.push_async_callback(store.close)
                return store

            file = await SqliteStore.open(directory / "store.db")
            held.push_async_callback(file.close)
            one, other = await postgres(SCHEMA, "a"), await postgres(SCHEMA, "b")
            other.listen(lambda _: None)
            ways: dict[str, Store] = {"a file": file, "PostgreSQL": await postgres("alone"), "a member of two": one}
            rates = await _measure_rates(ways, rounds, commits)
            await other.close()
            return [*rates, *await _measure_listening(one, server.url, directory / "hearing", commits * HEARD)]


async def _measure_rates(ways: dict[str, Store], rounds: int, commits: int) -> list[Figure]:
    """Commits per second of each store, and to those of a file, by one caller and by many."""
    figures: list[Figure] = []
    for callers in CALLERS:
        works = [_make_commit(store) for store in ways.values()]
        series = await run_in_turns(works, rounds=rounds, calls=commits * min(callers, 8), in_flight=callers)
        for way, one in zip(ways, series, strict=True):
            ratio = one.rate_ratio(series[0])
            figures += [
                Figure(f"commits to {way}, {callers} at once", one.rate, "/s"),
                Figure(f"commits to {way}, {callers} at once, beside a file", ratio, "x"),
            ]
    return figures


def _make_commit(store: Store) -> Callable[[], Awaitable[object]]:
    numbers = count()
    return lambda: store.commit([Write(f"call/{next(numbers) % KEYS}", VALUE)])


async def _measure_listening(store: PostgresStore, url: str, directory: Path, commits: int) -> list[Figure]:
    """From the call of a commit at one member until it returns, and until a watcher in the process of another has it.

    Commits are called at a steady rate, whether or not those before have ended.
    """
    numbers = count()

    async def commit() -> None:
        id_ = str(next(numbers))
        record = {"id": id_, "at": perf_counter(), "text": TEXT}
        await store.commit([Write(f"{NOUN}/{id_}", orjson.dumps(record))])

    directory.mkdir()
    command = [sys.executable, HERE / "hearing.py", url, SCHEMA, directory, str(commits)]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
    async with end_after(process):
        assert process.stdout is not None
        output = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(START_LIMIT_S):
            await output.receive_until(b"\n", LINE_BYTES)
        made_s = await run_paced(commit, rate=RATE, calls=commits)
        with anyio.fail_after(START_LIMIT_S):
            late_s = orjson.loads(await output.receive_until(b"\n", LINE_BYTES))["late_s"]
    about = f"{RATE} commits/s"
    return [
        Figure(f"a commit at one member, {about}, median", statistics.median(made_s) * 1000, "ms"),
        Figure(f"until a watcher at another has it, {about}, median", statistics.median(late_s) * 1000, "ms", HALF_MS),
        Figure(f"until a watcher at another has it, {about}, p99", percentile(late_s, 0.99) * 1000, "ms", P99_MS),
    ]
