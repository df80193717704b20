"""Calls that wait for answers when the hub ends, and go on with the next one."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, Text
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.errors import ResourceExhausted, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.store import Precondition, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import PATIENCE_S, FailingStore, World, open_requests, question, server, settle, spec, until
from .mortal import (
    ACCEPTED,
    DONE,
    ELICIT,
    REQUIRED,
    ROOTS,
    SAMPLE,
    STATE,
    MortalStore,
    answer,
    asked,
    ended,
    killed,
    needs,
    script,
)
from .peer import REFUSED, Outcome, Sent, UpstreamError, never


async def test_the_questions_stay_open_and_the_call_goes_on_with_the_exact_state(world: World) -> None:
    script(world, needs(a=ELICIT, b=SAMPLE), needs("second", a=ELICIT), DONE)
    before = await asked(world, count=2)
    await anyio.sleep(100)
    async with world.hub(server()) as hub:
        assert sorted(open_requests(hub), key=lambda r: r.id) == sorted(before, key=lambda r: r.id)
        call = hub.calls.get("c")
        assert (call.state, call.detached, call.principal) == (CallState.WAITING_INPUT, True, "alice")
        assert set(call.pending_ids) == {request.id for request in before}
        assert hub.calls.counts("one").waiting_input == 1
        form, sampling = sorted(before, key=lambda r: r.kind)
        await answer(hub, form)
        await settle(10)
        assert len(world.peer.sent) == 1
        await answer(hub, sampling, Text("hi"))
        third = await question(hub)
        assert world.peer.sent[1].params["requestState"] == STATE
        assert world.peer.sent[1].params["inputResponses"]["a"] == ACCEPTED
        assert world.peer.sent[1].params["inputResponses"]["b"]["content"]["text"] == "hi"
        await answer(hub, third)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert world.peer.sent[2].params == {"name": "t", "inputResponses": {"a": ACCEPTED}, "requestState": "second"}
        await settle()
        assert {hub.inbox.get(each.id).delivery for each in (*before, third)} == {Delivery.DELIVERED}
        assert (hub.calls.counts("one").completed, hub.calls.counts("one").waiting_input) == (1, 0)


async def test_a_call_that_goes_on_counts_for_whoever_made_it_until_it_ends(world: World) -> None:
    world.settings = {"calls_per_principal": 1}
    script(world, needs(a=ELICIT), DONE, DONE)
    await asked(world)
    async with world.hub(server()) as hub:
        request = await question(hub)
        with raising(ResourceExhausted, "TOO_MANY_CALLS"):
            await hub.calls.start(spec(call_id="d"), "alice")
        await answer(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED
        await until(lambda: hub.quotas.calls.count("alice") == 0)
        await hub.calls.start(spec(call_id="d"), "alice")


@pytest.mark.parametrize("detached", [True, False])
async def test_a_hub_that_stops_tells_the_caller_and_leaves_the_call_to_the_next_one(
    world: World, detached: bool
) -> None:
    script(world, needs(a=ELICIT), DONE)
    told: list[Unavailable] = []

    async def call(hub: Hub) -> None:
        with pytest.raises(Unavailable) as stopped:
            await hub.calls.call(spec(call_id="c"), "me", detached=detached)
        told.append(stopped.value)

    async with anyio.create_task_group() as callers, world.hub(server()) as hub:
        callers.start_soon(call, hub)
        request = await question(hub)
        hub.calls.shut_down()
    assert [error.reason for error in told] == ["SHUTTING_DOWN"]
    async with world.hub(server()) as hub:
        assert (await question(hub)).id == request.id
        assert hub.calls.get("c").detached
        await answer(hub, request)
        assert (await hub.calls.call(spec(call_id="c"), "me")).state is CallState.COMPLETED


async def test_answers_that_were_given_before_the_kill_are_used_after_it(world: World) -> None:
    script(world, needs(a=ELICIT, b=ELICIT), DONE)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        first, second = open_requests(hub)
        await answer(hub, first, Accept({"name": "first"}))
    async with killed(world, server()) as hub:
        assert (await question(hub)).id == second.id
        assert hub.inbox.get(first.id).delivery is Delivery.PENDING
        await until(lambda: len(world.peer.links) == 2)
        world.peer.always = UpstreamError(REFUSED)
        world.peer.link.lose()
        await answer(hub, second, Accept({"name": "second"}))
        await settle()
    assert len(world.peer.sent) == 1
    world.peer.always = None
    async with world.hub(server()) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        given = world.peer.sent[1].params["inputResponses"].values()
        assert sorted(each["content"]["name"] for each in given) == ["first", "second"]


async def test_a_question_that_expired_while_there_was_no_hub_goes_back_as_cancelled(world: World) -> None:
    script(world, needs(a=ELICIT), DONE)
    limited = server(answer_timeout_s=300)
    (request,) = await asked(world, limited)
    await anyio.sleep(400)
    async with world.hub(limited) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED
        assert world.peer.sent[1].params["inputResponses"]["a"]["action"] == "cancel"


async def test_roots_that_were_configured_when_they_were_asked_for_are_the_ones_that_are_sent(world: World) -> None:
    script(world, needs(a=ELICIT, r=ROOTS), DONE)
    await asked(world, server(roots=({"uri": "file:///then"},)))
    async with world.hub(server(roots=({"uri": "file:///now"},))) as hub:
        await answer(hub, await question(hub))
        await ended(hub)
        responses = world.peer.sent[1].params["inputResponses"]
        assert responses == {"a": ACCEPTED, "r": {"roots": [{"uri": "file:///then"}]}}


async def test_a_state_alone_is_sent_again_by_the_next_hub(world: World) -> None:
    kept: list[Any] = []

    async def look(sent: Sent) -> Outcome:
        kept.extend((await world.store.snapshot("call/c")).entries)
        return await never(sent)

    script(world, needs(), look, needs(None, a=ELICIT), DONE)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: kept)
    assert payload.loads(kept[0].value)["rounds"]["state"] == STATE
    async with world.hub(server()) as hub:
        await answer(hub, await question(hub))
        assert (await ended(hub)).state is CallState.COMPLETED
        again = {"name": "t", "requestState": STATE}
        assert [each.params for each in world.peer.sent[1:3]] == [again, again]
        assert world.peer.sent[3].params == {"name": "t", "inputResponses": {"a": ACCEPTED}}


async def test_a_page_that_is_agreed_to_after_the_restart_lets_the_call_go_on(world: World) -> None:
    script(world, REQUIRED, REQUIRED, DONE, era=Era.HANDSHAKE)
    await asked(world)
    async with world.hub(server()) as hub:
        first = await question(hub)
        await answer(hub, first, Accept())
        agreed = anyio.current_time()
        again = await question(hub)  # the server is not done with it, and that it had been asked for is forgotten
        assert world.peer.sent[1].at - agreed == pytest.approx(2, abs=0.1)
        await answer(hub, again, Accept())
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [each.params for each in world.peer.sent] == [{"name": "t"}] * 3
        await until(lambda: {hub.inbox.get(r.id).delivery for r in (first, again)} == {Delivery.DELIVERED})


async def test_a_resumed_call_has_no_clock_until_it_is_answered_and_then_its_whole_time(world: World) -> None:
    script(world, needs(a=ELICIT), never)
    config = server(answer_timeout_s=9e6, call_timeout_s=60)
    await asked(world, config)
    async with world.hub(config) as hub:
        await anyio.sleep(86400)
        await answer(hub, await question(hub))
        answered = anyio.current_time()
        assert (await ended(hub)).fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() - answered == pytest.approx(60, abs=1)


async def test_resumed_calls_are_not_dropped_by_a_full_queue_and_go_out_oldest_first(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        return DONE if "inputResponses" in sent.params else needs(a=ELICIT)

    world.peer.behaviour, world.peer.era = behaviour, Era.STATELESS
    names = ["first", "second", "third"]
    async with killed(world, server()) as hub:
        for count, name in enumerate(names, 1):
            await hub.calls.start(spec(name, call_id=name), "me")
            await until(lambda count=count: len(open_requests(hub)) == count)
        world.peer.always = UpstreamError(REFUSED)
        world.peer.link.lose()
        for request in open_requests(hub):
            await answer(hub, request)
        await settle()
    async with world.hub(server(max_queued=1, retries=-1)) as hub:
        await settle()
        assert hub.calls.counts("one").queued == 3
        world.peer.always = None
        for name in names:
            assert (await ended(hub, name)).state is CallState.COMPLETED
        assert [each.params["name"] for each in world.peer.sent[3:]] == names


async def test_answers_that_are_old_enough_to_be_deleted_go_out_once_more_before_they_are(world: World) -> None:
    async def reply(sent: Sent) -> Outcome:
        store.left = 1  # that the answer was delivered is kept, the end of the call is not
        return DONE

    script(world, needs(a=ELICIT), reply, DONE)
    world.store = store = MortalStore(world.store.inner, last_words=False)
    world.settings = {"request_history_age_s": 1}
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        request = await question(hub)
        await answer(hub, request)
        await until(lambda: store.dead)
    store.left = None
    await anyio.sleep(1000)
    async with world.hub(server()) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        assert world.peer.sent[1].params == world.peer.sent[2].params
        await until(lambda: not hub.inbox.select(RequestFilter()))


class StoreBetweenCommits(FailingStore):
    """A store that does not come to commits of a call with its questions."""

    def __init__(self, inner: SqliteStore) -> None:
        super().__init__(inner)
        self.busy = False

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        if self.busy and {write.key.partition("/")[0] for write in writes} == {"call", "request"}:
            await anyio.sleep(PATIENCE_S)
        return await super().commit(writes, guards)


async def test_a_round_whose_questions_were_not_kept_has_not_begun(world: World) -> None:
    script(world, needs(a=ELICIT), needs("lost", b=ELICIT), needs("second", b=ELICIT))
    world.store = store = StoreBetweenCommits(world.store.inner)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        request = await question(hub)
        store.busy = True
        await answer(hub, request)
        await until(lambda: hub.calls.get("c").state is CallState.WAITING_INPUT and len(world.peer.sent) == 2)
        await settle(10)
        assert not open_requests(hub)
    store.busy = False
    async with world.hub(server()) as hub:
        await question(hub)
        assert world.peer.sent[1].params == world.peer.sent[2].params
