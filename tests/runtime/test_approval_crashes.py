"""A hub that is killed at any of its commits while a call waits for approval, and people who race to approve it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, HubError, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .approving import approve, asks, deletion, offer, tool
from .conftest import PATIENCE_S, World, open_requests, question, settle, until
from .mortal import MortalStore
from .peer import Outcome, Sent

COMMITS = 12
"""As many as the story takes at least, so that its end is among the moments, too."""


@dataclass
class Story:
    """A call that two people have to approve, and do at once."""

    world: World
    store: MortalStore
    hub: Hub | None = None
    sent: list[bool] = field(default_factory=list[bool])
    """For each time that the server gets the call, whether the inbox has its approvals then."""
    acknowledged: set[str] = field(default_factory=set[str])
    started: bool = False

    async def serve(self, _: Sent) -> Outcome:
        (request,) = self.hub.inbox.select(RequestFilter())
        self.sent.append(request.state is RequestState.ANSWERED and len(request.votes) == 2)
        return {"content": []}

    async def live(self, hub: Hub) -> None:
        """Makes the call, unless it has been made, and approves until the call has ended or the hub has."""
        self.hub = hub
        with anyio.fail_after(PATIENCE_S):
            while not self.store.dead:
                try:
                    if not self.started:
                        await hub.calls.start(deletion(), "bot")
                        self.started = True
                    for request in open_requests(hub):
                        for by in ("ada", "ben"):
                            try:
                                await approve(hub, request, by)
                                self.acknowledged.add(by)
                            except FailedPrecondition:
                                continue
                except Unavailable:
                    continue
                if hub.calls.get("c").state.ended:
                    return
                await settle(0.01)


async def tell(deaths: Sequence[int], *, last_words: bool) -> tuple[Story, Call]:
    """The story with a hub that dies after so many commits, another one that does, and one that lives."""
    store = MortalStore(await SqliteStore.open(":memory:"), last_words=last_words)
    world = World(store, settings=asks(needed=2))
    offer(world, tool())
    story = Story(world, store)
    world.peer.behaviour = story.serve
    for left in [*deaths, None]:
        store.left = None
        async with world.linked() as hub:
            await settle(1)
            store.left = left
            await story.live(hub)
            if left is None:
                await settle()
                return story, hub.calls.get("c")
    raise AssertionError


@pytest.mark.parametrize("first", range(COMMITS))
async def test_a_hub_that_dies_twice_sends_no_call_without_its_approvals_and_none_twice(first: int) -> None:
    for second in range(0, COMMITS, 2):
        for last_words in (False, True):
            story, call = await tell([first, second], last_words=last_words)
            assert all(story.sent)
            assert len(story.sent) <= 1
            if call.state is CallState.COMPLETED:
                assert story.sent == [True]
                assert story.acknowledged <= {"ada", "ben"}
            else:
                # It may have been carried out when the hub died, or died before it was made.
                assert call.fault.code == "HUB_RESTARTED"


async def vote(hub: Hub, request: PendingRequest, by: str, counted: list[str], refusals: set[str]) -> None:
    """Approves, and notes whether that counted."""
    try:
        await approve(hub, request, by)
    except HubError as exc:
        refusals.add(exc.reason)
    else:
        counted.append(by)


@pytest.mark.parametrize("needed", [1, 2, 3])
async def test_of_fifty_approvers_exactly_so_many_count_as_are_needed(world: World, needed: int) -> None:
    world.settings |= asks(needed=needed)
    offer(world, tool())
    async with world.linked() as hub:
        for number in range(10):
            await hub.calls.start(deletion(f"c{number}"), "bot")
            request = await question(hub)
            counted, refusals = list[str](), set[str]()
            async with anyio.create_task_group() as people:
                for person in range(50):
                    people.start_soon(vote, hub, request, f"person {person}", counted, refusals)
            assert refusals == {"ALREADY_ANSWERED"}
            settled = hub.inbox.get(request.id)
            assert len(counted) == needed
            assert {vote.by for vote in settled.votes} == set(counted)
            await until(lambda number=number: hub.calls.get(f"c{number}").state.ended)
            assert len(world.peer.sent) == number + 1
