"""What the hub needs of every store; the same tests over a file and over memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hubbubd.store import Commit, Compacted, KeyValue, Precondition, Store, StoreUnavailable, Write, WriteConflict
from hubbubd.store.feeds import UNREAD_COMMITS
from hubbubd.store.sqlite.sqlite_store import SqliteStore

DOING: ContextVar[str] = ContextVar("doing", default="nothing")


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "hub" / "store.db" if request.param == "file" else ":memory:")
    yield store
    await store.close()


def heard(store: Store) -> list[Commit]:
    commits: list[Commit] = []
    store.listen(commits.append)
    return commits


async def take(watch: AsyncIterator[Commit], until: int) -> list[Commit]:
    """What a watch yields up to and with one revision."""
    taken: list[Commit] = []
    with anyio.fail_after(60):
        while not taken or taken[-1].revision < until:
            taken.append(await anext(watch))
    return taken


def seen(commits: Sequence[Commit]) -> dict[str, bytes]:
    """What someone who followed these commits from the start believes."""
    state: dict[str, bytes] = {}
    for commit in commits:
        for write in commit.writes:
            if write.value is None:
                state.pop(write.key, None)
            else:
                state[write.key] = write.value
    return state


async def contents(store: Store, prefix: str = "") -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await store.snapshot(prefix)).entries}


async def test_what_listeners_begin_is_no_part_of_what_whoever_commits_is_doing(store: Store):
    told: list[str] = []
    store.listen(lambda _: told.append(DOING.get()))
    DOING.set("an RPC")
    await asyncio.gather(*(store.commit([Write(f"{number}", b"")]) for number in range(9)))
    await store.commit([Write("alone", b"")])
    assert told == ["nothing"] * 10


async def test_a_new_store_is_empty_at_revision_zero(store: Store):
    snapshot = await store.snapshot()
    assert (store.revision, snapshot.revision, snapshot.entries, snapshot.deleted) == (0, 0, (), ())
    assert store.id


async def test_the_writes_of_one_commit_share_the_next_revision(store: Store):
    assert await store.commit([Write("a", b"1"), Write("b", b"2")]) == 1
    assert await store.commit([Write("a", b"3")]) == 2
    snapshot = await store.snapshot()
    assert store.revision == snapshot.revision == 2
    assert snapshot.entries == (KeyValue("a", b"3", 2), KeyValue("b", b"2", 1))


async def test_the_same_bytes_again_are_a_change(store: Store):
    await store.commit([Write("a", b"1")])
    assert await store.commit([Write("a", b"1")]) == 2


async def test_an_empty_value_is_not_a_deletion(store: Store):
    await store.commit([Write("a", b"")])
    assert await contents(store) == {"a": b""}
    assert await store.commit([Write("a", b"1")], [Precondition("a", 1)]) == 2


async def test_a_commit_without_an_effective_change_keeps_the_revision_and_tells_nobody(store: Store):
    await store.commit([Write("a", b"1")])
    commits = heard(store)
    assert await store.commit([]) == 1
    assert await store.commit([Write("missing", None)]) == 1
    assert await store.commit([], [Precondition("a", 1)]) == 1
    assert commits == []


async def test_a_deletion_of_a_missing_key_is_left_out_of_what_listeners_hear(store: Store):
    commits = heard(store)
    await store.commit([Write("missing", None), Write("a", b"1")])
    assert commits == [Commit(1, (Write("a", b"1"),))]


async def test_the_last_of_several_writes_to_one_key_counts(store: Store):
    commits = heard(store)
    await store.commit([Write("a", b"1"), Write("a", b"2"), Write("b", b"3"), Write("b", None)])
    assert commits == [Commit(1, (Write("a", b"2"),))]
    assert await contents(store) == {"a": b"2"}


async def test_a_failed_guard_writes_nothing_and_names_the_first_key_that_failed(store: Store):
    await store.commit([Write("a", b"1"), Write("b", b"1")])
    commits = heard(store)
    with pytest.raises(WriteConflict) as conflict:
        await store.commit(
            [Write("a", b"2"), Write("c", b"2")], [Precondition("a", 1), Precondition("b", 7), Precondition("c", 9)]
        )
    assert conflict.value.key == "b"
    assert (await store.snapshot()).revision == 1
    assert await contents(store) == {"a": b"1", "b": b"1"}
    assert commits == []


async def test_guard_zero_holds_only_for_a_key_that_does_not_exist(store: Store):
    assert await store.commit([Write("a", b"1")], [Precondition("a", 0)]) == 1
    with pytest.raises(WriteConflict):
        await store.commit([Write("a", b"2")], [Precondition("a", 0)])
    await store.commit([Write("a", None)])
    with pytest.raises(WriteConflict):
        await store.commit([Write("a", b"2")], [Precondition("a", 2)])
    assert await store.commit([Write("a", b"2")], [Precondition("a", 0)]) == 3


async def test_a_guard_without_a_change_to_its_key_still_protects(store: Store):
    await store.commit([Write("server", b"1")])
    await store.commit([Write("server", b"2")])
    with pytest.raises(WriteConflict):
        await store.commit([Write("call", b"1")], [Precondition("server", 1)])


async def test_of_fifty_writers_that_race_exactly_one_wins_every_round(store: Store):
    async def race(writer: bytes, revision: int, won: dict[bytes, int], lost: list[bytes]) -> None:
        try:
            won[writer] = await store.commit([Write("key", writer)], [Precondition("key", revision)])
        except WriteConflict:
            lost.append(writer)

    revision = 0
    for _ in range(10):
        won: dict[bytes, int] = {}
        lost: list[bytes] = []
        async with anyio.create_task_group() as writers:
            for writer in range(50):
                writers.start_soon(race, b"%d" % writer, revision, won, lost)
        [(winner, revision)] = won.items()
        assert len(lost) == 49
        assert await contents(store) == {"key": winner}


async def test_commits_that_run_together_fail_alone(store: Store):
    outcomes: dict[int, int | str] = {}

    async def write(number: int) -> None:
        try:
            # Every odd one expects a key that is not there.
            guards = [Precondition("missing", 1)] if number % 2 else []
            outcomes[number] = await store.commit([Write(f"key/{number}", b"")], guards)
        except WriteConflict as conflict:
            outcomes[number] = conflict.key

    async with anyio.create_task_group() as writers:
        for number in range(40):
            writers.start_soon(write, number)
    assert {outcomes[number] for number in range(1, 40, 2)} == {"missing"}
    assert sorted(outcomes[number] for number in range(0, 40, 2)) == list(range(1, 21))
    assert set(await contents(store)) == {f"key/{number}" for number in range(0, 40, 2)}


async def test_a_snapshot_never_shows_half_a_commit(store: Store):
    async def write() -> None:
        for number in range(100):
            await store.commit([Write("left", b"%d" % number), Write("right", b"%d" % number)])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(100):
            found = await contents(store)
            assert found.get("left") == found.get("right")


async def test_a_prefix_is_taken_literally(store: Store):
    keys = ["inbox/é", "inbox/\U0010ffff", "inbox/_", "inbox/%", "inbox/", "inbox", "inbox0", "Inbox/a", "inboy/a"]
    await store.commit([Write(key, b"") for key in keys])
    assert sorted(await contents(store, "inbox/")) == sorted(keys[:5])
    assert set(await contents(store, "inbox/%")) == {"inbox/%"}
    assert set(await contents(store, "")) == set(keys)


@pytest.mark.parametrize(
    ("writes", "guards"),
    [([Write("a", b""), Write("\ud800", b"")], []), ([Write("a", b"")], [Precondition("\ud800", 0)])],
    ids=["a write", "a guard"],
)
async def test_a_key_that_is_not_text_is_refused_and_nobody_else_suffers(
    store: Store, writes: list[Write], guards: list[Precondition]
):
    refused, kept = await asyncio.gather(
        store.commit(writes, guards), store.commit([Write("b", b"")]), return_exceptions=True
    )
    assert isinstance(refused, ValueError)
    assert kept == 1
    assert list(await contents(store, "")) == ["b"]


async def test_listeners_hear_every_commit_in_order_before_its_writer_goes_on(store: Store):
    first, second = heard(store), heard(store)

    async def write(number: int) -> None:
        for step in range(5):
            revision = await store.commit([Write(f"key/{number}", b"%d" % step)])
            assert first[-1].revision >= revision

    async with anyio.create_task_group() as writers:
        for number in range(20):
            writers.start_soon(write, number)
    assert [commit.revision for commit in first] == list(range(1, 101))
    assert second == first
    assert seen(first) == await contents(store)


async def test_listeners_get_the_writer_s_own_object(store: Store):
    record = object()
    commits = heard(store)
    await store.commit([Write("a", b"1", record)])
    assert commits[0].writes[0].ref is record


async def test_a_listener_that_ended_hears_no_more(store: Store):
    commits: list[Commit] = []
    stop = store.listen(commits.append)
    await store.commit([Write("a", b"1")])
    stop()
    stop()
    await store.commit([Write("a", b"2")])
    assert [commit.revision for commit in commits] == [1]


async def test_a_snapshot_is_never_ahead_of_what_listeners_heard(store: Store):
    commits = heard(store)

    async def write() -> None:
        for number in range(100):
            await store.commit([Write("a", b"%d" % number)])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(write)
        for _ in range(100):
            revision = (await store.snapshot()).revision
            assert revision <= (commits[-1].revision if commits else 0)


async def test_a_cancelled_writer_s_commit_still_happens_and_is_told(store: Store):
    commits = heard(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.commit, [Write("a", b"1")])
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert await store.commit([Write("b", b"2")]) == 2
    assert await contents(store) == {"a": b"1", "b": b"2"}
    assert [commit.revision for commit in commits] == [1, 2]


async def test_more_writers_than_the_queue_holds_all_get_through(store: Store):
    with anyio.fail_after(60):
        async with anyio.create_task_group() as writers:
            for number in range(3000):
                writers.start_soon(store.commit, [Write(f"key/{number}", b"")])
    assert (await store.snapshot()).revision == 3000


async def test_a_watch_catches_up_then_follows(store: Store):
    for number in range(5):
        await store.commit([Write(f"key/{number}", b"old")])
    await store.commit([Write("key/1", b"new"), Write("key/2", None), Write("other/1", b"")])
    async with aclosing(store.watch("key/", 1)) as watch:
        caught_up = await take(watch, 6)
        assert caught_up == [
            Commit(4, (Write("key/3", b"old"),)),
            Commit(5, (Write("key/4", b"old"),)),
            Commit(6, (Write("key/1", b"new"), Write("key/2", None))),
        ]
        record = object()
        await store.commit([Write("other/1", b"x")])
        await store.commit([Write("key/5", b"", record), Write("other/1", b"y"), Write("key/0", None)])
        await store.commit([Write("other/1", b"z")])
        [live] = await take(watch, 8)
        assert live == Commit(8, (Write("key/5", b"", record), Write("key/0", None)))


async def test_a_watch_that_starts_amid_writes_misses_nothing_and_splits_no_commit(store: Store):
    async def write(writer: int) -> None:
        for step in range(50):
            pair = [Write(f"key/{writer}/left", b"%d" % step), Write(f"key/{writer}/right", b"%d" % step)]
            await store.commit(pair)

    async def follow(start: int) -> None:
        async with aclosing(store.watch("key/", start)) as watch:
            commits = await take(watch, 200)
        assert all(before.revision < after.revision for before, after in pairwise(commits))
        assert all(len(commit.writes) == 2 for commit in commits)
        assert seen(commits) == await contents(store)

    async with anyio.create_task_group() as tasks:
        for writer in range(4):
            tasks.start_soon(write, writer)
        for _ in range(10):
            tasks.start_soon(follow, 0)
            await anyio.lowlevel.checkpoint()


async def test_a_slow_watcher_catches_up_from_the_entries_and_ends_with_the_same_state(store: Store):
    await store.commit([Write("key/kept", b"")])
    async with aclosing(store.watch("key/", 0)) as watch:
        commits = await take(watch, 1)
        await store.commit([Write("key/live", b"")])
        commits += await take(watch, 2)
        for number in range(UNREAD_COMMITS + 1):
            await store.commit([Write(f"key/{number % 7}", b"%d" % number)])
        await store.commit([Write("other/1", b"")])
        await store.commit([Write("key/0", None)])
        last = (await store.snapshot()).revision
        commits += await take(watch, last)
        assert len(commits) == 2 + 7
        assert all(before.revision < after.revision for before, after in pairwise(commits))
        assert seen(commits) == await contents(store, "key/")
        # From here on it is live again: only a live write has its writer's object.
        live = Write("key/0", b"live", object())
        await store.commit([live])
        assert await take(watch, last + 1) == [Commit(last + 1, (live,))]


async def test_a_waiting_watcher_is_not_outrun_by_compaction(store: Store):
    async with aclosing(store.watch("key/", 0)) as watch, anyio.create_task_group() as tasks:
        taken: list[Commit] = []

        async def read() -> None:
            taken.extend(await take(watch, 20 + UNREAD_COMMITS + 1))

        tasks.start_soon(read)
        for number in range(20):
            await store.commit([Write("other/1", b"%d" % number)])
        await store.compact(20)
        # All of these come before the watcher's turn, so it has to catch up from where it stood.
        for number in range(UNREAD_COMMITS + 1):
            tasks.start_soon(store.commit, [Write(f"key/{number}", b"")])
    assert seen(taken) == await contents(store, "key/")


async def test_a_watch_from_before_the_compaction_is_refused_with_the_oldest_that_works(store: Store):
    for number in range(5):
        await store.commit([Write("key/1", b"%d" % number)])
    await store.compact(3)
    async with aclosing(store.watch("key/", 2)) as watch:
        with pytest.raises(Compacted) as refused:
            await anext(watch)
    assert refused.value.revision == 3
    async with aclosing(store.watch("key/", refused.value.revision)) as watch:
        assert [commit.revision for commit in await take(watch, 5)] == [5]


async def test_a_watch_from_a_revision_never_reached_is_refused(store: Store):
    await store.commit([Write("key/1", b"")])
    async with aclosing(store.watch("key/", 2)) as watch:
        with anyio.fail_after(60), pytest.raises(Compacted):
            await anext(watch)


async def test_deletions_are_known_until_they_are_compacted(store: Store):
    await store.commit([Write("key/z", b""), Write("key/a", b""), Write("key/back", b""), Write("other", b"")])
    await store.commit([Write("key/z", None)])
    await store.commit([Write("key/a", None), Write("key/back", None), Write("other", None)])
    await store.commit([Write("key/back", b"")])
    snapshot = await store.snapshot("key/")
    assert snapshot.deleted == (("key/z", 2), ("key/a", 3))
    assert [entry.key for entry in snapshot.entries] == ["key/back"]
    await store.compact(2)
    assert (await store.snapshot("key/")).deleted == (("key/a", 3),)
    assert await contents(store) == {"key/back": b""}


async def test_compaction_never_goes_back_nor_past_the_newest_revision(store: Store):
    await store.commit([Write("a", b"")])
    await store.compact(9)
    assert (await store.stats()).compacted_revision == 1
    await store.compact(0)
    assert (await store.stats()).compacted_revision == 1


async def test_the_stats_count_keys_that_exist(store: Store):
    await store.commit([Write("a", b""), Write("b", b""), Write("c", b"")])
    await store.commit([Write("b", None)])
    stats = await store.stats()
    assert (stats.id, stats.revision, stats.compacted_revision, stats.keys) == (store.id, 2, 0, 2)
    assert stats.size_bytes > 0


async def test_a_trial_of_a_store_that_is_well_changes_nothing_and_tells_nobody(store: Store):
    await store.commit([Write("a", b"1")])
    commits = heard(store)
    before = await store.snapshot(), await store.stats()
    await store.probe()
    await store.probe()
    assert (await store.snapshot(), await store.stats()) == before
    assert commits == []
    assert await store.commit([Write("a", b"2")], [Precondition("a", 1)]) == 2


async def test_closing_finishes_what_was_begun_and_refuses_what_comes_later(store: Store):
    commits = heard(store)
    async with anyio.create_task_group() as writers:
        for number in range(20):
            writers.start_soon(store.commit, [Write(f"key/{number}", b"")])
            # Some are with the disk and others still queue when the store closes.
            await anyio.lowlevel.checkpoint()
        await store.close()
    assert len(commits) == 20
    with pytest.raises(StoreUnavailable):
        await store.commit([Write("late", b"")])
    with pytest.raises(StoreUnavailable):
        await store.snapshot()
    await store.close()


async def test_closing_ends_the_watches(store: Store):
    await store.commit([Write("key/1", b"")])
    async with aclosing(store.watch("key/", 0)) as watch:
        await take(watch, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.close)
            with anyio.fail_after(60), pytest.raises(StoreUnavailable):
                await anext(watch)
