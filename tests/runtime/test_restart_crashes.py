"""A hub that is killed at any of its commits while a call waits for answers: nothing is lost, nothing is made up."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.errors import Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from .conftest import PATIENCE_S, World, open_requests, settle, spec
from .mortal import ELICIT, MortalStore, needs
from .peer import Outcome, Sent

COMMITS = 13
"""As many as the story below takes at least, so that its end is among the moments, too."""


@dataclass
class Story:
    """A call of three rounds: two questions, a state alone, one question more. People answer each question at once."""

    world: World
    store: MortalStore
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    heard: dict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))
    started: bool = False

    async def serve(self, sent: Sent) -> Outcome:
        state = sent.params.get("requestState")
        for key, answer in sent.params.get("inputResponses", {}).items():
            self.heard[f"{state}/{key}"].add(answer["content"]["name"])
        if state is None:
            return needs("one", a=ELICIT, b=ELICIT)
        if state == "one":
            assert set(sent.params["inputResponses"]) == {"a", "b"}
            return needs("two")
        if state == "two":
            assert "inputResponses" not in sent.params
            return needs("three", c=ELICIT)
        assert (state, set(sent.params["inputResponses"])) == ("three", {"c"})
        return {"content": [], "heard": {key: sorted(names) for key, names in self.heard.items()}}

    async def live(self, hub: Hub) -> None:
        """Makes the call, unless it has been made, and answers until the call has ended or the hub has."""
        with anyio.fail_after(PATIENCE_S):
            while not self.store.dead:
                try:
                    if not self.started:
                        await hub.calls.start(spec(call_id="c"), "me")
                        self.started = True
                    for request in open_requests(hub):
                        name = f"{request.id} of {id(hub)}"
                        await hub.inbox.answer(request.id, Accept({"name": name}), "me", answer_id=None, claim_id=None)
                        self.acknowledged[request.id] = name
                except Unavailable:
                    continue
                if hub.calls.get("c").state.ended:
                    return
                await settle(0.01)


async def told(deaths: Sequence[int], *, last_words: bool) -> tuple[Story, Call, list[Any]]:
    """The story with a hub that dies after so many commits, another one that does, and one that lives."""
    inner = await SqliteStore.open(":memory:")
    store = MortalStore(inner, last_words=last_words)
    world = World(store)
    story = Story(world, store)
    world.peer.era = Era.STATELESS
    world.peer.behaviour = story.serve
    for left in [*deaths, None]:
        store.left = None
        async with world.linked() as hub:
            store.left = left
            await story.live(hub)
            if left is None:
                await settle()
                return story, hub.calls.get("c"), hub.inbox.select(RequestFilter())
    raise AssertionError


@pytest.mark.parametrize("first", range(COMMITS))
async def test_a_hub_that_dies_twice_delivers_what_was_answered_and_nothing_else(first: int) -> None:
    for second in range(0, COMMITS, 3):
        story, call, requests = await told([first, second], last_words=bool(second % 2))
        assert call.detached
        if call.state is CallState.COMPLETED:
            assert set(story.heard) == {"one/a", "one/b", "three/c"}
            heard = [name for names in story.heard.values() for name in names]
            stored = [payload.loads(request.answer.payload)["content"]["name"] for request in requests]
            assert sorted(heard) == sorted(stored)
            assert set(story.acknowledged.values()) <= set(stored)
            assert {(r.state, r.delivery) for r in requests} == {(RequestState.ANSWERED, Delivery.DELIVERED)}
        else:
            # Nobody knows whether the server had received it, and nobody had been asked.
            assert (call.state, call.fault.code) == (CallState.FAILED, "HUB_RESTARTED")
            assert not requests
            assert not story.acknowledged
