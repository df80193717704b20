"""Write-behind: of what waits nothing is lost, however much it is, and nothing keeps the rest waiting."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import Unavailable
from hubbubd.frozen import carry_over_changes
from hubbubd.runtime.records import Ledger, StoreContent, Table, WatcherLimit
from hubbubd.runtime.records.ledger import BATCH
from hubbubd.runtime.records.write_behind import MAX_STEPS, MAX_UNMERGED_STEPS
from hubbubd.store import Precondition, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from ..raising import raising
from .agents import YES
from .conftest import FORM, FailingStore, World, server, settle, spec
from .foreign import Late
from .notes import Note, Notes, opened

MANY = MAX_STEPS + 50


@pytest.fixture
async def notes(world: World) -> AsyncGenerator[Notes]:
    async with opened(world.store) as notes:
        yield notes


def add(notes: Notes, text: str) -> None:
    """Adds to the text of a note, made if need be, as write-behind."""

    def step(there: Note | None) -> Note:
        note = there or Note("a")
        return replace(note, text=note.text + text)

    notes.ledger.change_later(notes.table, "a", step)


class Painter:
    """Keeps a copy of a note, as rooms do, and has its changes carried over to what is there."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.note = notes.table.get("a")

    def paint_blue(self) -> None:
        """Paints it often; the last changes, which are joined, begin with red and end with blue."""
        for colour in (*map(str, range(MAX_UNMERGED_STEPS - 2)), "red", "green", "blue"):
            self.paint(colour)

    def paint(self, colour: str) -> None:
        before, self.note = self.note, replace(self.note, colour=colour)
        self._notes.ledger.change_later(self._notes.table, "a", partial(carry_over_changes, before, self.note))


async def stored(notes: Notes) -> str:
    (entry,) = (await notes.ledger.store.snapshot("note/a")).entries
    return entry.value.decode()


async def test_of_many_additions_during_the_commit_that_makes_the_record_none_is_lost(
    world: World, notes: Notes
) -> None:
    for _ in range(MAX_STEPS - 1):
        add(notes, "x")
    world.store.delay_s = 1
    await settle(0.5)
    for _ in range(MANY):
        add(notes, "x")
    await settle(5)
    assert notes.table.get("a").text == "x" * (MAX_STEPS - 1 + MANY)
    assert "x" * (MAX_STEPS - 1 + MANY) in await stored(notes)


@pytest.mark.parametrize("times", [0, 1, MANY])
async def test_a_value_that_returns_to_what_it_was_during_a_commit_is_what_it_was(
    world: World, notes: Notes, times: int
) -> None:
    await notes.put(Note("a"))
    painter = Painter(notes)
    painter.paint_blue()
    world.store.delay_s = 1
    await settle(0.5)
    for _ in range(times):
        painter.paint("green")
    painter.paint("red")
    await settle(5)
    assert notes.table.get("a").colour == "red"
    assert "red" in await stored(notes)


async def test_a_value_that_returns_to_what_it_was_while_a_commit_sets_out_is_what_it_was(notes: Notes) -> None:
    await notes.put(Note("a"))
    painter = Painter(notes)
    painter.paint_blue()
    asyncio.get_running_loop().call_soon(painter.paint, "red")
    await notes.ledger.transact(lambda: (None, notes.table.waiting_changes("a")))
    assert notes.table.get("a").colour == "red"
    await settle()
    assert "red" in await stored(notes)


class Stubborn(FailingStore):
    """Finishes a commit although its caller is cancelled, as a store does once it has begun."""

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        return await asyncio.shield(asyncio.ensure_future(super().commit(writes, guards)))


async def test_a_flush_that_is_broken_off_loses_nothing_either() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Stubborn(inner)
    async with opened(store) as notes:
        await notes.put(Note("a"))
        painter = Painter(notes)
        painter.paint_blue()
        store.delay_s = 1
        flushing = asyncio.create_task(notes.ledger.flush())
        await settle(0.03)
        flushing.cancel()
        await settle(0.01)
        painter.paint("red")
        await settle(5)
        assert "red" in await stored(notes)
    await inner.close()


async def test_a_commit_whose_caller_is_cancelled_ends_before_that_is_raised() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Stubborn(inner)
    async with opened(store) as notes:
        store.delay_s = 1
        putting = asyncio.create_task(notes.put(Note("a")))
        await settle(0.03)
        putting.cancel("no longer wanted")
        await settle(0.01)
        assert not putting.done()
        with pytest.raises(asyncio.CancelledError, match="no longer wanted"):
            await putting
        assert notes.table.get("a") == Note("a")
    await inner.close()


async def test_while_the_store_is_away_few_states_of_a_record_are_kept(world: World, notes: Notes) -> None:
    await notes.put(Note("a"))
    world.store.failures = 10**6
    painter, states = Painter(notes), list[weakref.ref[Note]]()
    for number in range(MANY):
        painter.paint(f"{number}")
        states.append(weakref.ref(painter.note))
    assert sum(state() is not None for state in states) < 2 * MAX_UNMERGED_STEPS
    await settle(5)
    world.store.failures = 0
    await settle(5)
    assert f'"{MANY - 1}"' in await stored(notes)


async def test_more_additions_than_wait_one_by_one_change_the_same_fields_of_what_another_wrote(
    world: World, notes: Notes
) -> None:
    await notes.put(Note("a"))
    for _ in range(MANY):
        add(notes, "x")
    await world.store.inner.commit([Write("note/a", b'{"id":"a","colour":"blue","text":"theirs"}')])
    assert notes.table.get("a") == Note("a", "blue", "x" * MANY)
    await settle()
    assert "blue" in await stored(notes)


async def test_however_much_waits_no_commit_takes_the_loop_for_long(world: World, notes: Notes) -> None:
    for number in range(2 * BATCH + 1):
        notes.later(Note(f"{number:04}"))
    await settle(0.2)
    written = [[write.key for write in commit] for commit in world.store.commits]
    assert [len(keys) for keys in written] == [BATCH, BATCH, 1]
    assert [key for keys in written for key in keys] == [f"note/{number:04}" for number in range(2 * BATCH + 1)]
    assert not notes.table.has_waiting_steps


async def test_what_was_not_written_of_much_is_written_when_the_store_has_recovered(world: World, notes: Notes) -> None:
    world.store.failures = 2
    for number in range(2 * BATCH + 1):
        notes.later(Note(f"{number}"))
    await settle(5)
    assert len((await world.store.snapshot("note/")).entries) == 2 * BATCH + 1
    assert notes.ledger.health.is_serving
    assert not notes.table.has_waiting_steps


async def test_records_of_one_id_in_two_tables_are_in_one_commit(world: World) -> None:
    stored = await StoreContent.read(world.store, WatcherLimit(1))
    tables = [Table(stored, noun, Note) for noun in ("list", "entries")]
    ledger = Ledger(world.store, tables, stored, now=lambda: 0.0)
    for number in range(BATCH):
        for table in tables:
            ledger.change_later(table, f"{number}", lambda _, number=number: Note(f"{number}"))
    assert await ledger.flush()
    for commit in world.store.commits:
        ids = [{write.key.partition("/")[2] for write in commit if write.key.startswith(noun)} for noun in ("l", "e")]
        assert ids[0] == ids[1]
    assert len(world.store.commits) == 2
    await ledger.aclose()


class Busy(FailingStore):
    """Somebody else changes the note `hot` before each commit about it, while `busy`."""

    busy = True

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        self.commits.append(writes)
        if self.busy and any(write.key == "note/hot" for write in writes):
            await self.inner.commit([Write("note/hot", b'{"id":"hot","text":"%d"}' % len(self.commits))])
        return await self.inner.commit(writes, guards)


async def test_a_record_that_others_never_let_stand_still_keeps_no_other_waiting() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Busy(inner)
    async with opened(store) as notes:
        for number in range(100):
            notes.later(Note(f"{number}"))
        notes.ledger.change_later(notes.table, "hot", lambda _: Note("hot", "green"))
        await settle(0.1)
        assert len((await inner.snapshot("note/")).entries) == 101
        assert len(store.commits) < 200
        assert notes.ledger.health.is_serving
        store.busy = False
        await settle(5)
        assert not notes.table.has_waiting_steps
        (hot,) = (await inner.snapshot("note/hot")).entries
        assert b"green" in hot.value
    await inner.close()


async def test_all_but_what_others_never_let_stand_still_is_written_at_once_and_that_is_told() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Busy(inner)
    stored = await StoreContent.read(store, WatcherLimit(1))
    table = Table(stored, "note", Note)
    ledger = Ledger(store, [table], stored, now=lambda: 0.0)
    for note_id in ("hot", *map(str, range(2 * BATCH))):
        ledger.change_later(table, note_id, lambda _, note_id=note_id: Note(note_id))
    assert not await ledger.flush()
    assert table.waiting_ids() == ["hot"]
    store.busy = False
    assert await ledger.flush()
    await ledger.aclose()
    await inner.close()


async def test_what_somebody_commits_while_a_batch_waits_for_its_turn_fails_nothing(world: World, notes: Notes) -> None:
    world.store.delay_s = 1
    for number in range(2 * BATCH):
        notes.later(Note(f"{number:04}"))
    await settle(0.5)  # the first half is on its way
    overtaking = asyncio.create_task(notes.put(Note(f"{2 * BATCH - 1:04}", "blue")))
    await settle(0.8)  # the second half sets out beside it
    await overtaking
    await settle(5)
    assert [len(commit) for commit in world.store.commits] == [BATCH, 1, BATCH - 1]
    assert notes.table.get(f"{2 * BATCH - 1:04}").colour == "blue"


async def test_what_can_never_be_written_is_dropped_and_keeps_nothing_else_waiting(world: World, notes: Notes) -> None:
    for number in range(10):
        notes.later(Note(f"{number}"))
    notes.later(Note("half \ud83d of a pair"))
    await settle()
    assert len((await world.store.snapshot("note/")).entries) == 10
    assert notes.ledger.health.is_serving
    assert not notes.table.has_waiting_steps
    assert notes.table.record("half \ud83d of a pair") is None


async def test_a_commit_that_was_given_up_and_happens_is_gone_on_from() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Late(inner)
    async with opened(store) as notes:
        await notes.put(Note("a"))
        painter = Painter(notes)
        painter.paint_blue()
        store.unsure = True
        await settle(0.1)
        painter.paint("red")
        await store.soon()
        await settle(5)
        assert "red" in await stored(notes)
        assert notes.table.get("a").colour == "red"
    await inner.close()


async def test_whoever_waits_for_a_commit_that_was_given_up_hears_that_nobody_knows() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Late(inner)
    async with opened(store) as notes:
        store.unsure = True
        with raising(Unavailable, "OUTCOME_UNKNOWN"):
            await notes.put(Note("a"))
        assert not notes.ledger.health.is_serving
        await store.soon()
        assert notes.table.get("a") == Note("a")
    await inner.close()


async def test_what_a_commit_is_carrying_is_not_tried_a_second_time_meanwhile(world: World, notes: Notes) -> None:
    world.store.delay_s = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notes.put, Note("a", text="committed"))
        await settle(0.1)
        add(notes, ", and more")
    await settle(5)
    assert [len(writes) for writes in world.store.commits] == [1, 1]
    assert "committed, and more" in await stored(notes)


async def test_a_step_that_does_not_fit_what_another_wrote_is_dropped_alone(world: World, notes: Notes) -> None:
    def picky(there: Note | None) -> Note:
        if there is not None:
            raise ValueError("there must be none")
        return Note("a", text="mine")

    notes.ledger.change_later(notes.table, "a", picky)
    add(notes, ", and more")
    await world.store.inner.commit([Write("note/a", b'{"id":"a","text":"theirs"}')])
    assert notes.table.get("a").text == "theirs, and more"
    await settle()
    assert "theirs, and more" in await stored(notes)


@pytest.mark.parametrize("happens", [True, False])
async def test_a_call_that_nobody_knows_whether_it_was_kept_is_not_sent_and_ends(happens: bool) -> None:
    inner = await SqliteStore.open(":memory:")
    store = Late(inner)
    world = World(store)
    async with world.hub(server()) as hub:
        await settle()
        store.unsure = True
        with raising(Unavailable, "OUTCOME_UNKNOWN"):
            await hub.calls.start(spec(call_id="c"), "ann")
        if happens:
            await store.soon()
        await settle(5)
        call = hub.calls.get("c")
        assert (call.state, call.fault and call.fault.code) == (CallState.FAILED, "OUTCOME_UNKNOWN")
        await store.soon()  # too late
        assert (await hub.calls.start(spec(call_id="c"), "ann")).state is CallState.FAILED
        assert [sent.method for sent in world.peer.sent if sent.method == "tools/call"] == []
    await inner.close()


@pytest.mark.parametrize("happens", [True, False])
async def test_a_question_that_nobody_knows_whether_it_was_kept_is_asked_once(happens: bool) -> None:
    inner = await SqliteStore.open(":memory:")
    store = Late(inner)
    world = World(store)
    async with world.linked() as hub:
        await settle()
        store.unsure, store.happens = True, happens
        asked = world.peer.link.ask("elicitation/create", FORM)
        await settle(5)
        await store.soon()  # too late
        (request,) = hub.inbox.select(RequestFilter())
        await hub.inbox.answer(request.id, YES, "ann", answer_id=None, claim_id=None)
        await asked.answered()
    await inner.close()


async def test_a_question_that_is_taken_back_before_it_is_known_to_be_kept_is_asked_nobody() -> None:
    inner = await SqliteStore.open(":memory:")
    store = Late(inner)
    world = World(store)
    async with world.linked() as hub:
        await settle()
        store.unsure, store.delay_s = True, 1
        asked = world.peer.link.ask("elicitation/create", FORM)
        await settle(0.5)
        asked.withdraw()
        await settle(5)
        (request,) = hub.inbox.select(RequestFilter())
        assert request.state is RequestState.WITHDRAWN
    await inner.close()
