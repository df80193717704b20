"""What a store in PostgreSQL costs beside one in a file, and how soon a member hears of what another one commits."""

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from time import perf_counter

from measure import Figure, in_turns, percentile

from hubbubd.store import Commit, Store, Write
from hubbubd.store.postgres import PostgresStore
from hubbubd.store.postgres_place import Entrant
from hubbubd.store.sqlite import SqliteStore

VALUE = b"x" * 600
"""As much as the record of a call takes."""

KEYS = 1000
"""Records that commits change in turn."""

CALLERS = (1, 64)

HEARD_MS = 5.0
"""The most that half of all commits may take from the call at one member to the listener at another one."""


async def stores(directory: Path, *, rounds: int, commits: int) -> list[Figure]:
    """Commits per second of a file, of a database alone, and of a member while another one hears of them."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.postgres import running

    with running() as server:
        async with AsyncExitStack() as held:

            async def postgres(schema: str, name: str | None = None) -> PostgresStore:
                (place := directory / f"{schema}-{name}").mkdir()
                member = None if name is None else Entrant(name, 300.0)
                store = await PostgresStore.open(
                    server.url, schema=schema, directory=place, patience_s=60, member=member
                )
                held.push_async_callback(store.close)
                return store

            file = await SqliteStore.open(directory / "store.db")
            held.push_async_callback(file.close)
            one, other = await postgres("fleet", "a"), await postgres("fleet", "b")
            other.listen(lambda _: None)
            ways: dict[str, Store] = {"a file": file, "PostgreSQL": await postgres("alone"), "a member of two": one}
            return [*await _rates(ways, rounds, commits), *await _heard(one, other, commits)]


async def _rates(ways: dict[str, Store], rounds: int, commits: int) -> list[Figure]:
    found: list[Figure] = []
    for callers in CALLERS:
        works = [_commits(store) for store in ways.values()]
        series = await in_turns(works, rounds=rounds, calls=commits * min(callers, 8), in_flight=callers)
        for way, one in zip(ways, series, strict=True):
            ratio = statistics.median(rate / base for rate, base in zip(one.rates, series[0].rates, strict=True))
            found += [
                Figure(f"commits to {way}, {callers} at once", one.rate, "/s"),
                Figure(f"commits to {way}, {callers} at once, beside a file", ratio, "x"),
            ]
    return found


def _commits(store: Store) -> Callable[[], Awaitable[object]]:
    numbers = count()
    return lambda: store.commit([Write(f"call/{next(numbers) % KEYS}", VALUE)])


async def _heard(one: PostgresStore, other: PostgresStore, commits: int) -> list[Figure]:
    """From the call of a commit at one member until it returns, and until the other's listener has it."""
    arrived = asyncio.Event()
    revision = 0

    def listen(commit: Commit) -> None:
        if commit.revision == revision:
            arrived.set()

    other.listen(listen)
    made_s: list[float] = []
    heard_s: list[float] = []
    while len(heard_s) < commits:
        arrived.clear()
        revision = one.revision + 1
        began = perf_counter()
        await one.commit([Write("heard", VALUE)])
        made_s.append(perf_counter() - began)
        await arrived.wait()
        heard_s.append(perf_counter() - began)
    return [
        Figure("a commit at one member, median", statistics.median(made_s) * 1000, "ms"),
        Figure("until the other has heard of it, median", statistics.median(heard_s) * 1000, "ms", HEARD_MS),
        Figure("until the other has heard of it, p99", percentile(heard_s, 0.99) * 1000, "ms"),
    ]
