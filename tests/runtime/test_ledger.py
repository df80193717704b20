"""The ledger: what is durable, what may follow, and who sees it when."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from hubbubd.errors import Aborted, Unavailable
from hubbubd.runtime.records import Change, Ledger, StoreContent, Table, WatcherLimit
from hubbubd.runtime.records.health import Health
from hubbubd.runtime.records.ledger import COMMIT_HOOK
from hubbubd.store import WriteConflict

from .conftest import World, settle, until
from .notes import Note, Notes, Start, after, opened, seen


@pytest.fixture
async def notes(world: World) -> AsyncGenerator[Notes]:
    async with opened(world.store) as notes:
        yield notes


async def test_nothing_is_visible_before_it_is_durable(world: World, notes: Notes, watching: Start) -> None:
    watch = await after(notes, watching, "")
    world.store.delay_s = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notes.put, Note("a"))
        await settle(0.5)
        assert notes.table.record("a") is None
        assert seen(watch) == []
        await settle(1)
        assert notes.table.get("a") == Note("a")
        assert seen(watch) == ["a"]


async def test_what_may_follow_is_read_at_once_and_written_once_with_its_newest_state(
    world: World, notes: Notes, watching: Start
) -> None:
    watch = await after(notes, watching, "")
    before = len(world.store.commits)
    for n in range(100):
        notes.later(Note("a", text=str(n)))
        notes.later(Note("b", text=str(n)))
    assert notes.table.get("a").text == "99"
    assert seen(watch) == []
    await settle()
    assert len(world.store.commits) == before + 1
    assert seen(watch) == ["a", "b"]


async def test_what_may_follow_is_written_when_the_store_has_recovered(world: World, notes: Notes) -> None:
    world.store.failures = 3
    notes.later(Note("a"))
    await settle(0.5)
    assert not notes.ledger.health.is_serving
    assert notes.table.get("a") == Note("a")
    await settle(5)
    assert notes.ledger.health.is_serving
    assert (await world.store.snapshot("note/a")).entries


async def test_a_commit_overtakes_what_waits_for_the_same_record(world: World, notes: Notes) -> None:
    notes.later(Note("a", text="old"))
    await notes.put(Note("a", text="new"))
    await settle()
    assert notes.table.get("a").text == "new"
    notes.later(Note("a", text="newest"))
    await settle()
    assert notes.table.get("a").text == "newest"


class Hook:
    """Goes along with every commit until one of them is durable."""

    def __init__(self, change: Change[Note]) -> None:
        self._change = change
        self.durable = False

    def change(self) -> Change[Note] | None:
        return None if self.durable else self._change

    def mark_committed(self) -> None:
        self.durable = True


async def test_commits_of_one_context_that_are_made_at_once_all_carry_its_hook(world: World, notes: Notes) -> None:
    hook = Hook(notes.table.new("r", Note("r")))
    world.store.delay_s = 1
    token = COMMIT_HOOK.set(hook)
    try:
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(notes.put, Note(name))
    finally:
        COMMIT_HOOK.reset(token)
    assert hook.durable
    assert [notes.table.get(name).id for name in ("a", "b", "c", "r")] == ["a", "b", "c", "r"]


async def test_while_a_commit_is_under_way_what_waits_is_still_read_and_never_written_after_it(
    world: World, notes: Notes
) -> None:
    notes.later(Note("a", text="waiting"))
    world.store.delay_s = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notes.put, Note("a", text="committed"))
        await settle(0.5)
        assert notes.table.get("a").text == "waiting"
        await settle(5)
    assert notes.table.get("a").text == "committed"
    (entry,) = (await world.store.snapshot("note/a")).entries
    assert b"committed" in entry.value


async def test_what_waits_is_written_after_a_commit_that_failed(world: World, notes: Notes) -> None:
    notes.later(Note("a", text="waiting"))
    world.store.failures = 1
    with pytest.raises(Unavailable):
        await notes.put(Note("a", text="refused"))
    await settle(5)
    assert notes.table.get("a").text == "waiting"
    (entry,) = (await world.store.snapshot("note/a")).entries
    assert b"waiting" in entry.value


async def test_a_guarded_change_planned_from_an_old_state_is_refused(notes: Notes) -> None:
    await notes.put(Note("a"))
    stale = notes.table.change("a", Note("a", text="stale"))
    await notes.put(Note("a", text="newer"))
    with pytest.raises(WriteConflict):
        await notes.ledger.commit([stale])
    assert notes.table.get("a").text == "newer"


async def test_of_many_who_change_a_record_at_once_each_change_counts(notes: Notes) -> None:
    await notes.put(Note("a"))

    async def add() -> None:
        def plan() -> tuple[None, list[Change[Note]]]:
            return None, [notes.table.change("a", Note("a", text=notes.table.get("a").text + "x"))]

        await notes.ledger.transact(plan)

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(add)
    assert len(notes.table.get("a").text) == 50


async def test_a_record_that_never_stands_still_is_given_up(world: World, notes: Notes) -> None:
    await notes.put(Note("a"))

    def stale() -> tuple[None, list[Change[Note]]]:
        return None, [notes.table.new("a", Note("a"))]

    with pytest.raises(Aborted):
        await notes.ledger.transact(stale)


async def test_text_that_utf8_cannot_hold_does_not_stop_the_ledger(world: World, watching: Start) -> None:
    async with opened(world.store) as notes:
        notes.later(Note("a", text="half \ud83d of a pair"))
        await settle()
        assert notes.ledger.health.is_serving
        assert seen(await after(notes, watching, "")) == ["a"]
    async with opened(world.store) as notes:
        assert notes.table.get("a").text.startswith("half ")


async def test_what_follows_from_a_commit_finds_all_of_it_in_every_table(world: World) -> None:
    stored = await StoreContent.read(world.store, WatcherLimit(1))
    tables = [Table(stored, "note", Note), Table(stored, "copy", Note)]
    ledger, found = Ledger(world.store, tables, stored, now=lambda: 0.0), list[Note | None]()
    for table, other in (tables, reversed(tables)):
        table.follow(lambda _before, _now, other=other: found.append(other.record("a")))
    await ledger.commit([table.new("a", Note("a")) for table in tables])
    assert found == [Note("a"), Note("a")]
    await ledger.aclose()


async def test_a_follower_that_fails_keeps_nothing_from_the_others(notes: Notes) -> None:
    followed: list[str] = []

    def broken(before: Note | None, after: Note | None) -> None:
        raise RuntimeError("a bug")

    notes.table.follow(broken)
    notes.table.follow(lambda before, after: followed.append(after.id if after else ""))
    await notes.put(Note("a"), Note("b"))
    assert followed == ["a", "b"]
    await until(lambda: notes.table.get("b"))


async def test_whoever_watches_the_health_is_told_of_its_end_whatever_they_were_at(world: World) -> None:
    health = Health(world.store)
    watching = health.watch()
    assert await anext(watching)
    health.close()
    assert [well async for well in watching] == [False]
