"""The inbox: one answer each, never lost, and every other end that a question may have."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, Reject, Text
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, HubError, InvalidArgument, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import ReplyError

from ..raising import raising
from .conftest import FORM, SAMPLING, Watching, World, open_requests, question, server, settle, until
from .peer import Question


async def ask(
    world: World, hub: Hub, method: str = "elicitation/create", params: dict[str, Any] = FORM
) -> tuple[Question, PendingRequest]:
    """Has the server ask; both ends of the question."""
    await until(lambda: world.peer.links)
    asked = world.peer.link.ask(method, params)
    return asked, await question(hub)


async def answer(hub: Hub, request_id: str, name: str = "x", by: str = "me", **options: Any) -> PendingRequest:
    """Answers a form."""
    return await hub.inbox.answer(
        request_id, Accept({"name": name}), by, **{"answer_id": None, "claim_id": None} | options
    )


async def test_of_fifty_answers_at_once_one_holds_and_the_server_gets_that_one(world: World) -> None:
    world.store.delay_s = 0.1
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        outcomes = await asyncio.gather(
            *(answer(hub, request.id, f"n{n}", f"p{n}") for n in range(50)), return_exceptions=True
        )
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, PendingRequest)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, FailedPrecondition)]
        assert len(losers) == 49
        assert {loser.reason for loser in losers} == {"ALREADY_ANSWERED"}
        assert {loser.metadata["answered_by"] for loser in losers} == {winner.answered_by}
        reply = await asked.answered()
        assert reply["content"]["name"] == f"n{winner.answered_by[1:]}"
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.DELIVERED)


async def test_an_answer_that_does_not_fit_leaves_the_request_open(world: World) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        with pytest.raises(InvalidArgument) as refused:
            await hub.inbox.answer(request.id, Accept({"name": 5}), "me", answer_id=None, claim_id=None)
        assert refused.value.violations
        assert hub.inbox.get(request.id) == request
        await answer(hub, request.id)
        assert (await asked.answered())["action"] == "accept"


async def test_an_elicitation_that_nobody_answers_is_cancelled_on_their_behalf(world: World) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        asked_at = anyio.current_time()
        assert (await asked.answered())["action"] == "cancel"
        assert anyio.current_time() - asked_at == pytest.approx(3600, abs=0.1)
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED
        with raising(FailedPrecondition, "REQUEST_EXPIRED"):
            await answer(hub, request.id)


async def test_a_sampling_that_nobody_answers_is_an_error_with_the_configured_words(world: World) -> None:
    async with world.hub(server(answer_timeout_s=10, timeout_message="Out for lunch")) as hub:
        asked, _ = await ask(world, hub, "sampling/createMessage", SAMPLING)
        with pytest.raises(ReplyError, match="Out for lunch") as error:
            await asked.answered()
        assert error.value.code == -1


async def test_without_automatic_rejection_a_question_waits_on(world: World) -> None:
    async with world.hub(server(auto_reject_on_timeout=False)) as hub:
        asked, request = await ask(world, hub)
        await anyio.sleep(5 * 86400)
        assert hub.inbox.get(request.id).state is RequestState.OPEN
        await answer(hub, request.id)
        await asked.answered()


async def test_a_refused_sampling_is_error_minus_one_and_a_text_is_a_result(world: World) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub, "sampling/createMessage", SAMPLING)
        await hub.inbox.answer(request.id, Reject("no"), "me", answer_id=None, claim_id=None)
        with pytest.raises(ReplyError) as error:
            await asked.answered()
        assert error.value.code == -1
        asked, request = await ask(world, hub, "sampling/createMessage", SAMPLING)
        await hub.inbox.answer(request.id, Text("hello"), "me", answer_id=None, claim_id=None)
        assert (await asked.answered())["content"] == {"type": "text", "text": "hello"}


async def test_a_claim_keeps_others_out_until_it_lapses_and_watchers_see_it(
    world: World, watching: Callable[..., Watching]
) -> None:
    async with world.hub(server()) as hub:
        _, request = await ask(world, hub)
        watch = watching(hub.inbox.watch(RequestFilter()))
        claimed = await hub.inbox.claim(request.id, "alice", 30)
        assert claimed.claim is not None
        for attempt in (answer(hub, request.id, by="bob"), hub.inbox.claim(request.id, "bob", 30)):
            with raising(FailedPrecondition, "ALREADY_CLAIMED") as refused:
                await attempt
            assert refused.value.metadata["claimed_by"] == "alice"
        await hub.inbox.renew(request.id, claimed.claim.id, 60)
        await anyio.sleep(45)
        assert hub.inbox.get(request.id).claim is not None
        await anyio.sleep(16)
        claims = [event.record.claim for event in watch.events if event.record is not None]
        assert claims[-1] is None
        with raising(FailedPrecondition, "CLAIM_LOST"):
            await answer(hub, request.id, by="alice", claim_id=claimed.claim.id)
        await answer(hub, request.id, by="bob")


async def test_a_claim_counts_once_while_it_is_being_made(world: World) -> None:
    world.settings = {"claims_per_principal": 2}
    async with world.linked() as hub:
        for _ in range(2):
            world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 2)
        first, second = open_requests(hub)
        being_made = asyncio.create_task(hub.inbox.claim(first.id, "ann", 30))
        while not hub.quotas.claims.count("ann"):
            await asyncio.sleep(0)
        assert not being_made.done(), "it stands in the record, and its maker has no response yet"
        await hub.inbox.claim(second.id, "ann", 30)
        await being_made
        assert hub.quotas.claims.count("ann") == 2


async def test_a_request_taken_back_before_it_was_stored_does_not_stay_open(world: World) -> None:
    async with world.linked() as hub:
        await settle()
        world.store.delay_s = 1
        asked = world.peer.link.ask("elicitation/create", FORM)
        await settle(0.1)
        asked.withdraw()
        await settle(10)
        assert not open_requests(hub)
        assert [r.state for r in hub.inbox.select(RequestFilter())] == [RequestState.WITHDRAWN]


async def test_an_answer_for_a_connection_that_has_just_gone_is_not_delivered(world: World) -> None:
    async with world.hub(server()) as hub:
        _, request = await ask(world, hub)
        world.store.delay_s = 1
        answering = asyncio.create_task(answer(hub, request.id))
        await settle(0.1)
        world.peer.link.lose()
        assert (await answering).state is RequestState.ANSWERED
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.FAILED)


async def test_an_answer_to_a_question_that_is_just_being_taken_back_is_not_delivered(world: World) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        world.store.delay_s = 1
        answering = asyncio.create_task(answer(hub, request.id))
        await settle(0.1)
        asked.withdraw()
        assert (await answering).state is RequestState.ANSWERED
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.FAILED)
        assert hub.inbox.get(request.id).reason == "the server withdrew it"
        assert asked.reply is None


@pytest.mark.parametrize("after_s", [0.0, 0.5])
async def test_an_answer_whose_caller_is_cancelled_in_the_middle_still_holds_and_reaches_the_server(
    world: World, after_s: float
) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        await settle()
        world.store.delay_s = 1
        task = asyncio.create_task(answer(hub, request.id))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await asked.answered())["content"] == {"name": "x"}
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.DELIVERED)


async def test_when_the_store_fails_the_request_stays_open_and_can_be_answered_again(
    world: World, watching: Callable[..., Watching]
) -> None:
    async with world.hub(server()) as hub:
        asked, request = await ask(world, hub)
        await settle()
        watch = watching(hub.inbox.watch(RequestFilter()))
        await settle()
        watch.clear()
        world.store.failures = 1
        with raising(Unavailable, "STORE_UNAVAILABLE"):
            await answer(hub, request.id)
        assert not hub.health.is_serving
        assert hub.inbox.get(request.id) == request
        assert watch.kinds() == []
        await answer(hub, request.id)
        await until(lambda: hub.health.is_serving)
        await asked.answered()


async def test_who_may_be_repeating_an_answer_is_told_that_the_store_is_away_and_no_more(world: World) -> None:
    """Only the store knows whether an earlier attempt under the same id has held."""
    async with world.hub(server()) as hub:
        _, request = await ask(world, hub)
        await hub.inbox.claim(request.id, "alice", 30)
        for answer_id, reason in (("again", "STORE_UNAVAILABLE"), (None, "ALREADY_CLAIMED")):
            world.store.failures = 1
            with raising(HubError, reason):
                await answer(hub, request.id, by="bob", answer_id=answer_id)
        world.store.failures = 0


async def test_an_expiry_that_the_store_does_not_take_is_tried_again(world: World) -> None:
    async with world.hub(server(answer_timeout_s=10)) as hub:
        asked, request = await ask(world, hub)
        await settle()
        world.store.failures = 3
        assert (await asked.answered())["action"] == "cancel"
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED


async def test_a_withdrawal_that_the_store_does_not_take_is_tried_again(world: World) -> None:
    async with world.hub(server(auto_reject_on_timeout=False)) as hub:
        asked, request = await ask(world, hub)
        await settle()
        world.store.failures = 3
        asked.withdraw()
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)


async def test_a_question_that_the_store_does_not_take_is_an_error_for_the_server(world: World) -> None:
    async with world.linked() as hub:
        await settle()
        world.store.failures = 1
        with pytest.raises(ReplyError) as error:
            await world.peer.link.asked("elicitation/create", FORM)
        assert error.value.code == -32603
        assert not open_requests(hub)


async def test_a_server_with_too_many_open_questions_gets_an_error_for_one_more(world: World) -> None:
    world.settings = {"open_requests_per_server": 3}
    async with world.linked() as hub:
        asked = [world.peer.link.ask("elicitation/create", FORM) for _ in range(5)]
        await settle()
        errors = [each.error for each in asked if each.error is not None]
        assert len(errors) == 2
        assert "open requests" in str(errors[0])
        await answer(hub, open_requests(hub)[0].id)
        world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 3)


async def test_a_server_may_have_as_many_open_questions_as_the_limit_says_however_fast_it_asks(world: World) -> None:
    world.settings = {"open_requests_per_server": 10}
    async with world.linked() as hub:
        asked: list[Question] = []
        for _ in range(10):  # one in each turn, so that some are being opened while others have just been
            asked.append(world.peer.link.ask("elicitation/create", FORM))
            await anyio.lowlevel.checkpoint()
        await settle()
        assert [each.error for each in asked] == [None] * 10
        assert len(open_requests(hub)) == 10


async def test_a_server_whose_open_questions_take_too_many_bytes_gets_an_error_for_one_more(world: World) -> None:
    heavy = {**FORM, "message": "x" * 3000}
    async with world.linked(server(max_open_request_bytes=10_000)) as hub:
        asked = [world.peer.link.ask("elicitation/create", heavy) for _ in range(5)]
        await settle()
        errors = [each.error for each in asked if each.error is not None]
        assert len(errors) == 2
        assert "of 10000 bytes" in str(errors[0])
        task = world.peer.link.ask("elicitation/create", {**heavy, "task": {}})
        await until(lambda: task.error is not None)
        world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 4)
        for request in open_requests(hub)[:3]:
            await answer(hub, request.id)
        for _ in range(2):
            world.peer.link.ask("elicitation/create", heavy)
        await until(lambda: len(open_requests(hub)) == 3)


async def test_what_a_server_may_not_ask_is_an_unknown_method(world: World) -> None:
    async with world.linked() as hub:
        with pytest.raises(ReplyError) as error:
            await world.peer.link.asked("tools/list", {})
        assert error.value.code == -32601
        assert await world.peer.link.asked("roots/list", {}) == {"roots": []}
        assert not open_requests(hub)


async def test_roots_are_asked_of_a_person_where_the_operator_says_so(world: World) -> None:
    async with world.hub(server(roots="ask")) as hub:
        asked, request = await ask(world, hub, "roots/list", {})
        assert request.kind == "roots"
        await hub.inbox.answer(request.id, Reject("none of yours"), "me", answer_id=None, claim_id=None)
        with pytest.raises(ReplyError, match="none of yours"):
            await asked.answered()
