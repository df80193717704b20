"""One question, and any two things that may happen to it, at every distance from each other: exactly one outcome.

Every pair of events is tried in both orders. The second begins so many turns of the loop after the first, while
commits take no time, or so many seconds after it, while each commit takes one: so it meets the first one before its
plan, between plan and commit, and after.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.core.tasks import GRACE_S
from hubbubd.errors import FailedPrecondition, NotFound, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .conftest import FORM, FailingStore, World, question, server, settle, until
from .noted import Noted
from .peer import Question

TIMEOUT_S, TTL_S = 20.0, 300.0
"""How long a plain question waits, and one that was asked as a task."""

TURNS = (0, 1, 2, 4)
SECONDS = (0.5, 1.5)
REFUSALS = {"ALREADY_ANSWERED", "ALREADY_CLAIMED", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED", "CLAIM_LOST"}


@dataclass
class Scene:
    """A question and what became known of it."""

    world: World
    hub: Hub
    request: PendingRequest
    asked: Question
    stop: anyio.Event
    accepted: dict[str, PendingRequest] = field(default_factory=dict[str, PendingRequest])
    refused: list[FailedPrecondition] = field(default_factory=list[FailedPrecondition])
    unavailable: list[str] = field(default_factory=list[str])
    shown: list[PendingRequest] = field(default_factory=list[PendingRequest])

    @property
    def task(self) -> dict[str, Any]:
        """Params that name the question's task."""
        return {"taskId": self.request.task_id}

    async def answer(self, by: str, claim_id: str | None = None) -> None:
        try:
            self.accepted[by] = await self.hub.inbox.answer(
                self.request.id, Accept({"name": by}), by, answer_id=None, claim_id=claim_id
            )
        except FailedPrecondition as exc:
            self.refused.append(exc)
        except Unavailable as exc:
            self.unavailable.append(exc.reason)

    async def claimed(self) -> str | None:
        try:
            claim = (await self.hub.inbox.claim(self.request.id, "cyd", 100)).claim
        except FailedPrecondition as exc:
            self.refused.append(exc)
        except Unavailable as exc:
            self.unavailable.append(exc.reason)
        else:
            return claim.id
        return None


async def ann_answers(scene: Scene) -> None:
    await scene.answer("ann")


async def bob_answers(scene: Scene) -> None:
    await scene.answer("bob")


async def cyd_claims(scene: Scene) -> None:
    await scene.claimed()


async def cyd_claims_and_releases(scene: Scene) -> None:
    if claim_id := await scene.claimed():
        with suppress(FailedPrecondition, Unavailable):
            await scene.hub.inbox.release(scene.request.id, claim_id)


async def cyd_claims_and_answers(scene: Scene) -> None:
    if claim_id := await scene.claimed():
        await scene.answer("cyd", claim_id)


async def time_is_up(scene: Scene) -> None:
    """Happens by itself: the clock stands at the deadline."""


async def the_server_takes_it_back(scene: Scene) -> None:
    if scene.request.task_id is None:
        scene.asked.withdraw()
    elif scene.world.peer.link.lost is None:
        scene.world.peer.link.ask("tasks/cancel", scene.task)


async def the_connection_goes(scene: Scene) -> None:
    scene.world.peer.link.lose()


async def somebody_disconnects_the_server(scene: Scene) -> None:
    with suppress(NotFound, Unavailable):
        await scene.hub.servers.disconnect("one")


async def somebody_removes_the_server(scene: Scene) -> None:
    with suppress(NotFound, Unavailable):
        await scene.hub.servers.remove("one")


async def the_hub_stops(scene: Scene) -> None:
    scene.stop.set()


async def the_disk_is_full_for_a_moment(scene: Scene) -> None:
    scene.world.store.failures = 1


Event = Callable[[Scene], Awaitable[None]]
PEOPLE: tuple[Event, ...] = (
    ann_answers,
    cyd_claims,
    cyd_claims_and_releases,
    cyd_claims_and_answers,
)
EVENTS: tuple[Event, ...] = (
    *PEOPLE,
    bob_answers,
    time_is_up,
    the_server_takes_it_back,
    the_connection_goes,
    somebody_disconnects_the_server,
    somebody_removes_the_server,
    the_hub_stops,
    the_disk_is_full_for_a_moment,
)


@asynccontextmanager
async def scene(world: World, as_task: bool, stop: anyio.Event) -> AsyncGenerator[Scene]:
    """An open question of a server, and somebody who watches it."""
    async with world.hub() as hub:
        await hub.servers.add(server(answer_timeout_s=TIMEOUT_S, ping_interval_s=0))
        await until(lambda: world.peer.links)
        params = {**FORM, "task": {"ttl": int(TTL_S * 1000)}} if as_task else FORM
        asked = world.peer.link.ask("elicitation/create", params)
        made = Scene(world, hub, await question(hub), asked, stop)
        await settle()

        async def watch() -> None:
            with suppress(Unavailable):
                async for event in hub.inbox.watch(RequestFilter()):
                    if event.record is not None:
                        made.shown.append(event.record)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await settle()
            yield made
            tasks.cancel_scope.cancel()


async def play(first: Event, second: Event, *, as_task: bool, turns: int = 0, seconds: float = 0.0) -> None:
    """Lets both happen, lets time settle what is left, and checks the outcome, also with the next hub."""
    left_s = TTL_S + GRACE_S + 10 if as_task else TIMEOUT_S + 10
    opened = await SqliteStore.open(":memory:")
    tracer = Noted()
    world, stop = World(FailingStore(opened), tracer=tracer), anyio.Event()
    async with scene(world, as_task, stop) as stage:
        if time_is_up in (first, second):
            assert stage.request.deadline is not None
            begin_at = stage.request.deadline - (seconds if second is time_is_up else 0.0)
            await anyio.sleep(begin_at - stage.hub.clock.now())
        world.store.delay_s = 1.0 if seconds else 0.0
        begun = [asyncio.create_task(first(stage))]
        for _ in range(turns):
            await asyncio.sleep(0)
        await anyio.sleep(seconds)
        begun.append(asyncio.create_task(second(stage)))
        if the_hub_stops in (first, second):
            await stop.wait()
        else:
            await settle(left_s)
            check(stage, stage.hub.inbox.get(stage.request.id))
    # Only a test goes on with a hub that has ended; nobody is left to tell of that.
    late = not all(task.done() for task in begun)
    await asyncio.gather(*begun)
    world.store.delay_s = 0.0
    if the_hub_stops in (first, second):
        async with world.hub() as hub:
            await settle(left_s)
            check(stage, hub.inbox.get(stage.request.id))
    await opened.close()
    if not late:
        tracer.check()
        assert [told.span.name for told in tracer.told].count("ask elicitation_form") == 1


def check(stage: Scene, found: PendingRequest) -> None:
    """Exactly one outcome, and all received that one."""
    assert found.state is not RequestState.OPEN
    assert found.delivery is not Delivery.PENDING
    assert len(stage.accepted) == (found.state is RequestState.ANSWERED)
    for by, record in stage.accepted.items():
        assert (found.answered_by, found.answer) == (by, record.answer)
        assert payload.loads(record.answer.payload)["content"] == {"name": by}
    assert set(stage.unavailable) <= {"STORE_UNAVAILABLE"}
    for refusal in stage.refused:
        assert refusal.reason in REFUSALS
        if refusal.reason == "ALREADY_ANSWERED":
            assert refusal.metadata["answered_by"] == found.answered_by
    if stage.request.task_id is None and stage.asked.reply is not None:
        # The server has the one answer, or the refusal on the behalf of those who gave none.
        assert stage.asked.reply == payload.loads(found.answer.payload)
    if stage.request.task_id is None and found.delivery is Delivery.DELIVERED:
        assert stage.asked.reply is not None
    ends = {(r.state, r.answered_by) for r in stage.shown if r.state is not RequestState.OPEN}
    assert ends <= {(found.state, found.answered_by)}
    if stage.shown[-1].state is RequestState.OPEN:
        assert stage.stop.is_set()


@pytest.mark.parametrize("as_task", [False, True], ids=["plain", "task"])
@pytest.mark.parametrize("other", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("person", PEOPLE, ids=lambda event: event.__name__)
async def test_whatever_else_happens_to_a_question_it_has_one_outcome(
    person: Event, other: Event, as_task: bool
) -> None:
    for first, second in ((person, other), (other, person)):
        for turns in TURNS:
            await play(first, second, as_task=as_task, turns=turns)
        for seconds in SECONDS:
            await play(first, second, as_task=as_task, seconds=seconds)
