"""Watches over a table and its store: nothing missed, nothing shown before it is durable, nobody slowed down."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest

from hubbubd.core.access import Scope
from hubbubd.errors import ResourceExhausted, Unavailable
from hubbubd.runtime.records import EventKind, VersionedCondition, broadcast, table

from ..raising import raising
from .conftest import World, settle
from .notes import Colour, Note, Notes, R, Start, U, after, opened, seen

S, X = EventKind.SYNCED, EventKind.RESET


@pytest.fixture
async def notes(world: World) -> AsyncGenerator[Notes]:
    async with opened(world.store) as notes:
        yield notes


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


async def test_a_change_that_changes_nothing_is_told_to_nobody_now_or_later(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"))
    await notes.put(Note("b"))
    watch = watching(notes.watch())
    await settle()
    before = watch.token
    await notes.put(Note("a"))
    await settle()
    assert watch.kinds() == [U, U, S]
    assert (await after(notes, watching, before)).kinds() == []
    await notes.put(Note("a", text="new"), Note("b"))
    await settle()
    assert (watch.kinds()[3:], seen(watch)[2:]) == ([U], ["a"])
    again = await after(notes, watching, before)
    assert (again.kinds(), seen(again)) == ([U], ["a"])


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
        await settle(broadcast.AHEAD_S)
        assert watch.kinds() == [X, U, S], bad
        assert watch.events[0].reason == reason
        resumed = await after(notes, watching, watch.events[0].token, "red")
        assert resumed.kinds() == [U, S]


async def test_after_more_deletions_than_are_remembered_old_tokens_bring_a_reset(
    notes: Notes, watching: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "DELETIONS", 3)
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
    monkeypatch.setattr(table, "DELETIONS", 0)
    await notes.delete("a")
    assert (await after(notes, watching, first.events[0].token)).kinds() == [X, U, S]


async def test_a_quiet_watch_says_that_the_hub_is_alive_and_its_token_is_of_now(notes: Notes, watching: Start) -> None:
    watch = await after(notes, watching, "", "blue")
    await notes.put(Note("a", "red"))
    await anyio.sleep(11)
    assert [event.kind for event in watch.events] == [S, EventKind.BOOKMARK, EventKind.BOOKMARK]
    position = broadcast._Position.decode(watch.token)
    assert position.revision == notes.ledger.store.revision


async def test_live_events_and_changes_come_in_the_order_in_which_they_happened(notes: Notes) -> None:
    await notes.put(Note("a"))
    async with aclosing(notes.watch()) as events:
        while (await anext(events)).kind is not S:
            pass
        notes.table.feed.publish_live("a", Note("a"), "half", "half done")
        await notes.put(Note("a", text="done"))
        assert (await anext(events)).live == "half done"
        assert (await anext(events)).record == Note("a", text="done")


async def test_what_is_there_already_can_be_taken_without_waiting_in_the_order_in_which_it_happened(
    notes: Notes,
) -> None:
    await notes.put(Note("a"))
    async with aclosing(notes.watch()) as watch:
        assert [(await anext(watch)).id, watch.pop().kind] == ["a", S]
        assert watch.pop() is None
        await notes.put(Note("b"))
        notes.table.feed.publish_live("a", Note("a"), "half", "half done")
        await notes.put(Note("a", text="done"))
        taken = [await anext(watch), watch.pop(), watch.pop()]
        assert [event.record or event.live for event in taken] == [Note("b"), "half done", Note("a", text="done")]
        assert watch.pop() is None


async def test_nothing_newer_can_be_taken_before_the_snapshot_is_whole(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "SLICE", 2)
    for name in "abc":
        await notes.put(Note(name))
    async with aclosing(notes.watch()) as watch:
        assert (await anext(watch)).id == "a"
        await notes.put(Note("a", text="new"))
        assert watch.pop().id == "b"
        assert watch.pop() is None
        assert [(await anext(watch)).id, watch.pop().kind] == ["c", S]
        assert (await anext(watch)).record == Note("a", text="new")


async def test_others_have_their_turns_during_a_snapshot_of_which_nothing_matches(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "SLICE", 2)
    await notes.put(*(Note(f"n{n}") for n in range(20)))
    async with aclosing(notes.watch("blue")) as watch:
        first, turns = asyncio.ensure_future(anext(watch)), 0
        while not first.done():
            await asyncio.sleep(0)
            turns += 1
        assert first.result().kind is S
    assert turns >= 10


async def test_the_end_of_the_hub_brings_the_token_of_a_bookmark_before_it(notes: Notes) -> None:
    async with aclosing(notes.watch("red")) as watch:
        assert (await anext(watch)).kind is S
        await notes.put(Note("a", "blue"))
        bookmark = await anext(watch)
        assert bookmark.kind is EventKind.BOOKMARK
        notes.ledger.close_feeds()
        with pytest.raises(Unavailable) as ended:
            await anext(watch)
        assert ended.value.metadata["resume_token"] == bookmark.token


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
    with raising(ResourceExhausted, "WATCHER_TOO_SLOW") as closed:
        await anext(slow)
    await settle()
    assert {len(seen(watch)) for watch in fast} == {60}
    resumed = await after(notes, watching, closed.value.metadata["resume_token"])
    assert len(seen(resumed)) == 60


async def test_the_work_of_a_change_does_not_grow_with_the_watchers_of_a_filter(notes: Notes, watching: Start) -> None:
    async def work_of_one_change(watchers: int) -> tuple[int, int]:
        watches = [watching(notes.watch("red")) for _ in range(watchers)]
        await settle()
        Colour.asked = 0
        await notes.put(Note("a", text=str(watchers)))
        await settle()
        distinct = {id(watch.events[-1]) for watch in watches}
        for watch in watches:
            await watch.stop()
        return Colour.asked, len(distinct)

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
        assert notes.ledger.watcher_limit.count == 2


RED_ONLY = Colour(scope=Scope(frozenset({"red"})))


async def test_who_resumes_hears_nothing_of_what_is_out_of_its_scope(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"), Note("b", "blue"))
    watch = watching(notes.table.feed.watch(RED_ONLY))
    await settle()
    await watch.stop()
    await notes.put(Note("b", "blue", "new"), Note("c", "blue"), Note("d"))
    again = watching(notes.table.feed.watch(RED_ONLY, watch.token))
    await settle()
    assert [(event.kind, event.id) for event in again.events] == [(U, "d")]


async def test_what_was_deleted_meanwhile_is_not_told_to_a_watcher_with_a_scope(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"), Note("secret", "blue"))
    watch = watching(notes.table.feed.watch(RED_ONLY))
    await settle()
    await watch.stop()
    await notes.delete("secret")
    again = watching(notes.table.feed.watch(RED_ONLY, watch.token))
    await settle()
    assert [(event.kind, event.reason or event.id) for event in again.events] == [(X, "COMPACTED"), (U, "a"), (S, "")]


async def test_the_token_of_another_scope_brings_a_reset_and_ones_own_scope(notes: Notes, watching: Start) -> None:
    await notes.put(Note("a"), Note("b", "blue"))
    stolen = (await after(notes, watching, "")).token
    watch = watching(notes.table.feed.watch(RED_ONLY, stolen))
    await settle()
    assert [(event.kind, event.reason or event.id) for event in watch.events] == [
        (X, "OTHER_FILTER"),
        (U, "a"),
        (S, ""),
    ]


async def test_one_who_stops_to_wait_for_news_neither_wakes_nor_ends_the_others() -> None:
    pulse, woken = VersionedCondition(), list[bool]()

    async def wait(limit_s: float) -> None:
        woken.append(await pulse.wait(pulse.version, limit_s))

    async with anyio.create_task_group() as tasks:
        gone = asyncio.create_task(wait(60))
        tasks.start_soon(wait, math.inf)
        tasks.start_soon(wait, 1)
        await settle()
        gone.cancel()
        await anyio.sleep(2)
        assert woken == [False]
        pulse.notify_all()
    assert woken == [False, True]
