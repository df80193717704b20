"""Two who share a store: both know the same, from either writer, in any order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import HubError, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import SoleOwnership
from hubbubd.runtime.records import EventKind, Ledger, StoreContent, Table, WatcherLimit, delete
from hubbubd.runtime.records.broadcast import AHEAD_S
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.telemetry import metrics

from .agents import Agent
from .conftest import FORM, World, question, server, settle, spec, until
from .foreign import Member
from .model import View, bounded
from .notes import Colour, Note, Notes, Start, after, opened, seen
from .test_measures import Seen
from .virtual_time import VirtualTimeLoop

Two = tuple[Notes, Notes]


@pytest.fixture
async def store() -> AsyncGenerator[SqliteStore]:
    store = await SqliteStore.open(":memory:")
    yield store
    await store.close()


@pytest.fixture
async def members(store: SqliteStore) -> tuple[Member, Member]:
    return Member(store, "a"), Member(store, "b")


@pytest.fixture
async def two(members: tuple[Member, Member]) -> AsyncGenerator[Two]:
    async with opened(members[0]) as mine, opened(members[1]) as theirs:
        yield mine, theirs


def more(note_id: str, text: str) -> Callable[[Note | None], Note]:
    """A step that adds to a note's text."""

    def step(there: Note | None) -> Note:
        return Note(note_id, text=(there.text if there is not None else "") + text)

    return step


OPS = st.lists(
    st.tuples(
        st.sampled_from((0, 1)),
        st.sampled_from(
            ("change", "change", "later", "later", "delete", "later delete", "hold", "release", "flush", "pause")
        ),
        st.sampled_from(("x", "y", "z")),
    ),
    max_size=25,
)


class Pair:
    """Two ledgers over one store, each with a watcher."""

    def __init__(self, stores: tuple[Member, Member], notes: Two) -> None:
        self.stores = stores
        self.notes = notes
        self.views = (View[Note](), View[Note]())

    async def watch(self, which: int) -> None:
        async for event in self.notes[which].watch():
            self.views[which].see(event)

    async def do(self, which: int, what: str, note_id: str, text: str) -> None:
        notes, store = self.notes[which], self.stores[which]
        match what:
            case "change":
                await notes.ledger.change(notes.table, note_id, more(note_id, text))
            case "later":
                notes.ledger.change_later(notes.table, note_id, more(note_id, text))
            case "delete":
                await notes.delete(note_id)
            case "later delete":
                notes.ledger.change_later(notes.table, note_id, delete)
            case "hold":
                store.held = True
            case "release":
                store.held = False
                store.release()
            case "flush":
                await notes.ledger.flush()
            case _:
                await anyio.sleep(0.02)

    async def settle(self) -> None:
        for which in (0, 1):
            await self.do(which, "release", "", "")
        await settle()


async def played(ops: list[tuple[int, str, str]], check: Callable[[Pair], None]) -> None:
    inner = await SqliteStore.open(":memory:")
    stores = Member(inner, "a"), Member(inner, "b")
    async with opened(stores[0]) as first, opened(stores[1]) as second, anyio.create_task_group() as tasks:
        pair = Pair(stores, (first, second))
        for which in (0, 1):
            tasks.start_soon(pair.watch, which)
        await settle()
        async with anyio.create_task_group() as doing:
            for number, (which, what, note_id) in enumerate(ops):
                doing.start_soon(pair.do, which, what, note_id, f"{number},")
                if what == "pause":
                    await anyio.sleep(0.03)
        await pair.settle()
        check(pair)
        tasks.cancel_scope.cancel()
    await inner.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)


@given(OPS)
@bounded(1, 1)
def test_two_know_the_same_after_any_changes_of_both_and_so_do_their_watchers(ops: list[tuple[int, str, str]]) -> None:
    def agree(pair: Pair) -> None:
        mine, theirs = ({note.id: note for note in notes.table} for notes in pair.notes)
        assert mine == theirs
        assert list(pair.notes[0].table.changed_since(0)) == list(pair.notes[1].table.changed_since(0))
        assert [view.records for view in pair.views] == [mine, theirs]
        assert not any(notes.table.has_waiting_steps for notes in pair.notes)

    run(played(ops, agree))


@given(OPS)
@bounded(0.5, 1)
def test_no_addition_of_either_is_lost_or_made_twice(ops: list[tuple[int, str, str]]) -> None:
    kept = [op for op in ops if "delete" not in op[1]]

    def complete(pair: Pair) -> None:
        for note_id in ("x", "y", "z"):
            note = pair.notes[0].table.record(note_id)
            told = sorted(part for part in (note.text if note is not None else "").split(",") if part)
            assert told == sorted(
                str(n) for n, (_, what, about) in enumerate(kept) if about == note_id and what in ("change", "later")
            )

    run(played(kept, complete))


async def test_what_another_member_writes_is_seen_and_watched_like_one_s_own(two: Two, watching: Start) -> None:
    mine, theirs = two
    watch = await after(mine, watching, "")
    followed: list[tuple[Note | None, Note | None]] = []
    mine.table.follow(lambda before, now: followed.append((before, now)))
    await theirs.put(Note("a"))
    await theirs.put(Note("a", text="newer"))
    await theirs.delete("a")
    await settle()
    assert watch.kinds()[-3:] == [EventKind.UPSERT, EventKind.UPSERT, EventKind.REMOVED]
    assert followed == [(None, Note("a")), (Note("a"), Note("a", text="newer")), (Note("a", text="newer"), None)]


async def test_a_cut_is_told_with_the_newest_state_of_each_record(
    members: tuple[Member, Member], two: Two, watching: Start
) -> None:
    mine, theirs = two
    watch = await after(mine, watching, "")
    followed: list[Note | None] = []
    mine.table.follow(lambda _, now: followed.append(now))
    members[0].held = True
    await theirs.put(Note("a", text="older"), Note("b"))
    await theirs.put(Note("made and deleted"))
    await theirs.put(Note("a", text="newest"))
    await theirs.delete("made and deleted")
    assert not list(mine.table)
    members[0].release()
    await settle()
    assert seen(watch) == ["b", "a"]
    assert mine.table.get("a").text == "newest"
    assert followed == [Note("b"), Note("a", text="newest")]


async def test_a_token_from_a_member_that_is_ahead_waits_until_this_one_has_caught_up(
    members: tuple[Member, Member], two: Two, watching: Start
) -> None:
    mine, theirs = two
    members[0].held = True
    await theirs.put(Note("a"))
    token = (await after(theirs, watching, "")).token
    await theirs.put(Note("b"))
    watch = await after(mine, watching, token)
    assert watch.kinds() == []
    members[0].release()
    await settle()
    assert watch.kinds() == [EventKind.UPSERT]
    assert seen(watch) == ["b"]


async def test_a_token_that_stays_ahead_is_answered_with_a_reset(
    members: tuple[Member, Member], two: Two, watching: Start
) -> None:
    mine, theirs = two
    members[0].held = True
    await theirs.put(Note("a"))
    watch = await after(mine, watching, (await after(theirs, watching, "")).token)
    await settle(AHEAD_S)
    assert watch.events[0].kind is EventKind.RESET
    assert watch.events[0].reason == "FUTURE"


async def test_a_record_that_cannot_be_read_is_as_good_as_deleted_until_it_is_written_again(
    store: SqliteStore, two: Two, watching: Start
) -> None:
    mine, _ = two
    await mine.put(Note("a"))
    watch = await after(mine, watching, "")
    await store.commit([Write("note/a", b"{}"), Write("another noun/a", b"{}")])
    await settle()
    assert mine.table.record("a") is None
    assert watch.kinds()[-1] is EventKind.REMOVED
    assert list(mine.ledger.defects()) == ["note/a"]
    await store.commit([Write("note/a", b'{"id":"a","text":"again"}')])
    assert mine.table.get("a").text == "again"
    assert not mine.ledger.defects()


async def test_what_returned_to_what_it_was_while_one_looked_away_is_told_to_whoever_saw_it_change(
    members: tuple[Member, Member], two: Two, watching: Start
) -> None:
    mine, theirs = two
    await theirs.put(Note("a", text="as it was"))
    members[0].held = True
    await theirs.put(Note("a", text="changed"))
    token = (await after(theirs, watching, "")).token
    await theirs.put(Note("a", text="as it was"))
    members[0].release()
    watch = await after(mine, watching, token)
    assert [event.record for event in watch.events] == [Note("a", text="as it was")]


async def test_what_watchers_do_not_see_of_a_record_is_told_to_nobody_whoever_changes_it(
    members: tuple[Member, Member], watching: Start
) -> None:
    ledgers = list[Ledger]()
    tables = list[Table[Note]]()
    for member in members:
        stored = await StoreContent.read(member, WatcherLimit(1))
        tables.append(Table(stored, "note", Note, visible_parts={"text": len}))
        ledgers.append(Ledger(member, [tables[-1]], stored, now=lambda: 0.0))
    watches = [watching(table.feed.watch(Colour())) for table in tables]
    for text in ("abc", "abd", "ab"):
        await ledgers[0].change(tables[0], "a", lambda _, text=text: Note("a", text=text))
        await settle()
    for watch in watches:
        assert [event.record.text for event in watch.events if event.record is not None] == ["abc", "ab"]
    for ledger in ledgers:
        await ledger.aclose()


async def test_what_others_commit_between_reading_the_store_and_following_it_is_known(
    members: tuple[Member, Member],
) -> None:
    mine, theirs = members
    read = await StoreContent.read(mine, WatcherLimit(1))
    async with opened(theirs) as other:
        await other.put(Note("a"))
        notes = Notes(mine, read)
        assert notes.table.get("a") == Note("a")
        await other.put(Note("a", text="newer"))
        assert notes.table.get("a").text == "newer"
    await notes.ledger.aclose()


@pytest.mark.parametrize("new", [True, False], ids=["as a new one", "whatever it was"])
async def test_a_record_may_be_made_where_one_is_that_nobody_can_read(store: SqliteStore, two: Two, new: bool) -> None:
    mine, theirs = two
    await store.commit([Write("note/a", b"{}")])
    make = mine.table.new if new else mine.table.change
    await mine.ledger.commit([make("a", Note("a"))])
    assert theirs.table.get("a") == Note("a")
    await mine.delete("a")
    await theirs.put(Note("a", text="made again"))
    assert mine.table.get("a").text == "made again"


async def test_a_hub_that_ends_gives_a_token_from_ahead_back(
    members: tuple[Member, Member], two: Two, watching: Start
) -> None:
    mine, theirs = two
    members[0].held = True
    await theirs.put(Note("a"))
    token = (await after(theirs, watching, "")).token
    watch = watching(mine.watch(token=token))
    await settle(AHEAD_S / 2)
    mine.table.feed.close()
    await watch.ended.wait()
    assert watch.events == []
    assert isinstance(watch.error, Unavailable)
    assert watch.error.metadata["resume_token"] == token


class Nobody(SoleOwnership):
    """The ownership of a hub without servers."""

    owns_all = False

    def owns(self, server: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("names", "reason"), [(("t", "t"), "TOKEN_EXISTS"), (("t", "u"), "TOO_MANY_TOKENS")], ids=["name", "limit"]
)
async def test_of_two_tokens_that_members_make_at_once_the_second_meets_the_first(
    members: tuple[Member, Member], names: tuple[str, str], reason: str
) -> None:
    worlds = [World(member, ownership=Nobody(), settings={"max_tokens": 1}) for member in members]
    made, refused = list[str](), list[str]()

    async def create(hub: Hub, name: str) -> None:
        try:
            token, _ = await hub.tokens.create(name, [], by="me", ttl_s=None, may_name_others=False)
            made.append(token.id)
        except HubError as exc:
            refused.append(exc.reason)

    async with worlds[0].hub() as here, worlds[1].hub() as there:
        async with anyio.create_task_group() as tasks:
            for hub, name in zip((here, there), names, strict=True):
                tasks.start_soon(create, hub, name)
        assert refused == [reason]
        assert [token.id for token in here.tokens.all()] == [token.id for token in there.tokens.all()] == made


async def test_what_is_counted_is_counted_by_the_member_whose_server_it_is(members: tuple[Member, Member]) -> None:
    seen = Seen(), Seen()
    owner = World(members[0], meter=seen[0].meter)
    other = World(members[1], meter=seen[1].meter, ownership=Nobody())
    async with other.hub() as there, owner.hub(server()) as here:
        await until(lambda: owner.peer.links)
        await here.calls.call(spec(), "ann")
        asked = owner.peer.link.ask("elicitation/create", FORM)
        request = await question(there)
        assert [each.value(metrics.PENDING, kind="elicitation_form") for each in seen] == [1, 1]
        await there.inbox.answer(request.id, Accept({"name": "x"}), "ann", answer_id="a", claim_id=None)
        await asked.answered()
        await settle()
    assert [each.summed(metrics.QUEUE_WAIT)[0] for each in seen] == [1, 0]
    assert [each.summed(metrics.TIME_TO_ANSWER)[0] for each in seen] == [1, 0]


async def test_a_question_goes_to_a_worker_of_one_member_alone(members: tuple[Member, Member]) -> None:
    owner, other = World(members[0]), World(members[1], ownership=Nobody())
    async with other.hub() as there, owner.hub(server()) as here, anyio.create_task_group() as tasks:
        await until(lambda: owner.peer.links)
        asked = owner.peer.link.ask("elicitation/create", FORM)
        request = await question(there)
        agents = [(Agent("anna"), here), (Agent("bert"), there)]
        for agent, hub in agents:
            tasks.start_soon(agent.run, hub, RequestFilter(), 1)
        await until(lambda: any(agent.given for agent, _ in agents))
        await settle(5)
        ((agent, hub),) = [each for each in agents if each[0].given]
        claim = here.inbox.get(request.id).claim
        assert claim.by == agent.name
        await agent.answer(hub, request.id)
        assert (await asked.answered())["content"] == {"name": "x"}
        tasks.cancel_scope.cancel()


async def test_a_hub_lets_time_pass_for_the_requests_of_its_own_servers_alone(members: tuple[Member, Member]) -> None:
    owner, other = World(members[0]), World(members[1], ownership=Nobody())
    async with other.hub() as there:
        async with owner.hub(server(auto_reject_on_timeout=True, answer_timeout_s=10)):
            await until(lambda: owner.peer.links)
            owner.peer.link.ask("elicitation/create", FORM)
            request = await question(there)
            (entry,) = (await members[0].snapshot(f"request/{request.id}")).entries
        await members[0].inner.commit([Write(entry.key, entry.value)])  # open again, and its owner is gone
        await settle(60)
        assert there.inbox.get(request.id).state is RequestState.OPEN
