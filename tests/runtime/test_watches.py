"""Watches over a table and its store: nothing missed, nothing shown before it is durable, nobody slowed down."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from hubbubd.errors import Aborted, ResourceExhausted, Unavailable
from hubbubd.runtime import broadcast, ledger
from hubbubd.runtime.broadcast import EventKind
from hubbubd.runtime.ledger import Change, Ledger, Table
from hubbubd.store import Conflict

from .conftest import FailingStore, Watching, World, settle, until

U, R, S, X = EventKind.UPSERT, EventKind.REMOVED, EventKind.SYNCED, EventKind.RESET


@dataclass(frozen=True)
class Note:
    """A record."""

    id: str
    colour: str = "red"
    text: str = ""


matched = 0


@dataclass(frozen=True)
class Colour:
    """Records of a colour, or all; counts how often it is asked."""

    colour: str = ""

    def matches(self, record: Note, /) -> bool:
        global matched
        matched += 1
        return not self.colour or record.colour == self.colour


class Notes:
    """A ledger with one table."""

    def __init__(self, store: FailingStore, *, max_watchers: int = 2000) -> None:
        self.ledger = Ledger(store, max_watchers=max_watchers)
        self.table = Table("note", Note)

    async def put(self, *notes: Note) -> None:
        await self.ledger.commit([Change(self.table, note.id, note) for note in notes])

    async def delete(self, note_id: str) -> None:
        await self.ledger.commit([Change(self.table, note_id, None)])

    def later(self, note: Note) -> None:
        self.ledger.later(Change(self.table, note.id, note))

    def watch(self, colour: str = "", token: str = "") -> Any:
        return self.table.feed.watch(Colour(colour), token)


@asynccontextmanager
async def opened(store: FailingStore, **options: Any) -> AsyncGenerator[Notes]:
    notes = Notes(store, **options)
    await notes.ledger.load(notes.table)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notes.ledger.run)
        yield notes
        await notes.ledger.close()
        tasks.cancel_scope.cancel()


@pytest.fixture
async def notes(world: World) -> AsyncGenerator[Notes]:
    async with opened(world.store) as notes:
        yield notes


Start = Callable[..., Watching]


def seen(watch: Watching) -> list[str]:
    """The records shown or removed, in order."""
    return [event.id for event in watch.events if event.kind in (U, R)]


async def after(notes: Notes, watching: Start, token: str, colour: str = "") -> Watching:
    """A watch that resumes, once it has caught up."""
    watch = watching(notes.watch(colour, token))
    await settle()
    return watch


async def test_a_watch_is_the_snapshot_then_synced_then_changes(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"))
    await notes.put(Note("b"))
    watch = watching(notes.watch())
    await settle()
    assert watch.kinds() == [U, U, S]
    await notes.put(Note("c"))
    await notes.delete("a")
    await settle()
    assert watch.kinds()[3:] == [U, R]
    assert seen(watch) == ["a", "b", "c", "a"]


async def test_a_token_brings_only_what_has_changed_since(notes: Notes, watching: Start) -> None:
    watch = watching(notes.watch())
    for name in "abc":
        await notes.put(Note(name))
    await settle()
    await watch.stop()
    await notes.put(Note("b", text="new"))
    await notes.delete("c")
    await notes.put(Note("d"))
    again = await after(notes, watching, watch.token)
    assert list(zip(again.kinds(), seen(again), strict=True)) == [(U, "b"), (R, "c"), (U, "d")]


async def test_whoever_stops_at_any_event_and_resumes_misses_nothing(notes: Notes, watching: Start) -> None:
    watch = watching(notes.watch())
    await settle()
    await notes.put(Note("a"), Note("b"), Note("c"))  # one commit, one revision
    await notes.put(Note("d"), Note("e"))
    await notes.delete("b")
    await notes.put(Note("a", text="again"), Note("f"))
    await settle()
    known: dict[str, Note] = {}
    for event in [*watch.events]:
        if event.kind is U:
            known[event.id] = event.record
        elif event.kind is R:
            known.pop(event.id, None)
        mine = dict(known)
        again = await after(notes, watching, event.token)
        assert X not in again.kinds()
        for later in again.events:
            if later.kind is U:
                mine[later.id] = later.record
            elif later.kind is R:
                mine.pop(later.id, None)
        assert mine == {note.id: note for note in notes.table}
        await again.stop()


async def test_a_snapshot_that_was_interrupted_at_any_event_goes_on(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"), Note("b"), Note("c"))
    await notes.put(Note("d"))
    first = await after(notes, watching, "")
    for position, event in enumerate(first.events):
        shown = {earlier.id for earlier in first.events[: position + 1] if earlier.kind is U}
        again = await after(notes, watching, event.token)
        assert shown | set(seen(again)) == {"a", "b", "c", "d"}
        assert (S in again.kinds()) is (event.kind is U)
        await again.stop()


async def test_a_record_that_leaves_the_filter_is_removed_and_one_that_enters_is_shown(
    notes: Notes, watching: Start
) -> None:
    await notes.put(Note("a"), Note("b", "blue"))
    watch = await after(notes, watching, "", "red")
    assert seen(watch) == ["a"]
    await notes.put(Note("a", "blue"))
    await notes.put(Note("b", "red"))
    await notes.put(Note("c", "green"))
    await settle()
    assert watch.kinds()[2:] == [R, U]


async def test_a_token_that_cannot_be_honoured_brings_a_reset_and_a_fresh_snapshot(
    world: World, notes: Notes, watching: Start
) -> None:
    await notes.put(Note("a"))
    token = (await after(notes, watching, "", "red")).token
    others = (await after(notes, watching, "")).token
    position = broadcast._Position.decode(token)
    fields = (position.store, position.filter_digest, position.revision, position.syncing)
    future = broadcast._Position(*fields[:2], position.revision + 5, False).encode()
    foreign = broadcast._Position("elsewhere", *fields[1:]).encode()
    for bad, reason in [
        (others, "OTHER_FILTER"),
        (future, "FUTURE"),
        (foreign, "OTHER_STORE"),
        ("nonsense", "MALFORMED"),
        ("é", "MALFORMED"),
        (token[:-4], "MALFORMED"),
    ]:
        watch = await after(notes, watching, bad, "red")
        assert watch.kinds() == [X, U, S], bad
        assert watch.events[0].reason == reason
        resumed = await after(notes, watching, watch.events[0].token, "red")
        assert resumed.kinds() == [U, S]


async def test_after_more_deletions_than_are_remembered_old_tokens_bring_a_reset(
    notes: Notes, watching: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "DELETIONS", 3)
    await notes.put(*(Note(f"n{n}") for n in range(10)))
    old = await after(notes, watching, "")
    await old.stop()
    for n in range(4):
        await notes.delete(f"n{n}")
    recent = await after(notes, watching, "")
    await recent.stop()
    await notes.delete("n4")
    assert (await after(notes, watching, old.token)).events[0].reason == "COMPACTED"
    assert seen(await after(notes, watching, recent.token)) == ["n4"]
    await notes.ledger.compact()
    assert (await notes.ledger.store.stats()).compacted_revision > 0
    assert seen(await after(notes, watching, recent.token)) == ["n4"]


async def test_an_interrupted_snapshot_does_not_resume_over_forgotten_deletions(
    notes: Notes, watching: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    await notes.put(Note("a"))
    await notes.put(Note("b"))
    first = await after(notes, watching, "")
    monkeypatch.setattr(ledger, "DELETIONS", 0)
    await notes.delete("a")
    assert (await after(notes, watching, first.events[0].token)).kinds() == [X, U, S]


async def test_tokens_hold_over_a_restart(world: World, watching: Start) -> None:
    async with opened(world.store) as notes:
        await notes.put(Note("a"), Note("b"))
        token = (await after(notes, watching, "")).token
        await notes.delete("a")
    async with opened(world.store) as notes:
        await notes.put(Note("c"))
        assert seen(await after(notes, watching, token)) == ["a", "c"]


async def test_a_quiet_watch_says_that_the_hub_is_alive_and_its_token_is_of_now(notes: Notes, watching: Start) -> None:
    watch = await after(notes, watching, "", "blue")
    await notes.put(Note("a", "red"))
    await anyio.sleep(11)
    assert [event.kind for event in watch.events] == [S, EventKind.BOOKMARK, EventKind.BOOKMARK]
    position = broadcast._Position.decode(watch.token)
    assert position.revision == notes.ledger.store.revision


async def test_a_slow_watcher_is_closed_with_a_token_it_can_resume_from_and_slows_nobody(
    notes: Notes, watching: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "BUFFER_EVENTS", 50)
    slow = notes.watch()
    assert (await anext(slow)).kind is S
    fast = [watching(notes.watch()) for _ in range(1000)]
    await settle()
    for n in range(60):
        await notes.put(Note(f"n{n}"))
        await settle(0.001)
    with pytest.raises(ResourceExhausted) as closed:
        await anext(slow)
    assert closed.value.reason == "WATCHER_TOO_SLOW"
    await settle()
    assert {len(seen(watch)) for watch in fast} == {60}
    resumed = await after(notes, watching, closed.value.metadata["resume_token"])
    assert len(seen(resumed)) == 60


async def test_a_watcher_that_is_away_for_a_moment_sees_the_newest_state_once(notes: Notes) -> None:
    watch = notes.watch()
    assert (await anext(watch)).kind is S
    for n in range(500):
        await notes.put(Note("a", text=str(n)))
    await notes.put(Note("b"))
    events = [await anext(watch), await anext(watch)]
    assert [event.record for event in events] == [Note("a", text="499"), Note("b")]
    await watch.aclose()


async def test_the_work_of_a_change_does_not_grow_with_the_watchers_of_a_filter(notes: Notes, watching: Start) -> None:
    async def work_of_one_change(watchers: int) -> tuple[int, int]:
        global matched
        watches = [watching(notes.watch("red")) for _ in range(watchers)]
        await settle()
        matched = 0
        await notes.put(Note("a", text=str(watchers)))
        await settle()
        distinct = {id(watch.events[-1]) for watch in watches}
        for watch in watches:
            await watch.stop()
        return matched, len(distinct)

    one, thousand = await work_of_one_change(1), await work_of_one_change(1000)
    assert one == thousand
    assert thousand[1] == 1


async def test_the_end_of_the_hub_ends_watches_with_a_token_after_all_that_was_to_be_said(
    notes: Notes, watching: Start
) -> None:
    watch = await after(notes, watching, "")
    await notes.put(Note("a"))
    notes.ledger.close_feeds()
    await watch.ended.wait()
    assert isinstance(watch.error, Unavailable)
    assert watch.error.reason == "SHUTTING_DOWN"
    assert seen(watch) == ["a"]
    assert watch.error.metadata["resume_token"] == watch.token


async def test_too_many_watchers_are_refused_and_places_come_back(world: World, watching: Start) -> None:
    async with opened(world.store, max_watchers=2) as notes:
        watches = [await after(notes, watching, "") for _ in range(2)]
        refused = await after(notes, watching, "")
        assert isinstance(refused.error, ResourceExhausted)
        assert refused.error.reason == "TOO_MANY_WATCHERS"
        await watches[0].stop()
        assert (await after(notes, watching, "")).kinds() == [S]
        assert notes.ledger.door.count == 2


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
    assert not notes.ledger.healthy
    assert notes.table.get("a") == Note("a")
    await settle(5)
    assert notes.ledger.healthy
    assert (await world.store.snapshot("note/a")).entries


async def test_a_commit_overtakes_what_waits_for_the_same_record(world: World, notes: Notes) -> None:
    notes.later(Note("a", text="old"))
    await notes.put(Note("a", text="new"))
    await settle()
    assert notes.table.get("a").text == "new"
    notes.later(Note("a", text="newest"))
    await settle()
    assert notes.table.get("a").text == "newest"


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
    with pytest.raises(Conflict):
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
        return None, [Change(notes.table, "a", Note("a"), 0)]

    with pytest.raises(Aborted):
        await notes.ledger.transact(stale)


async def test_text_that_utf8_cannot_hold_does_not_stop_the_ledger(world: World, watching: Start) -> None:
    async with opened(world.store) as notes:
        notes.later(Note("a", text="half \ud83d of a pair"))
        await settle()
        assert notes.ledger.healthy
        assert seen(await after(notes, watching, "")) == ["a"]
    async with opened(world.store) as notes:
        assert notes.table.get("a").text.startswith("half ")


async def test_deleting_what_was_never_written_leaves_nothing_waiting(world: World, notes: Notes) -> None:
    notes.ledger.later(Change(notes.table, "ghost", None))
    await settle()
    assert not notes.table.behind
    assert len(notes.table) == 0


async def test_a_follower_that_fails_keeps_nothing_from_the_others(notes: Notes) -> None:
    followed: list[str] = []

    def broken(before: Note | None, after: Note | None) -> None:
        raise RuntimeError("a bug")

    notes.table.follow(broken)
    notes.table.follow(lambda before, after: followed.append(after.id if after else ""))
    await notes.put(Note("a"), Note("b"))
    assert followed == ["a", "b"]
    await until(lambda: notes.table.get("b"))
