"""What crosses on its way: answers and withdrawals, results and time limits, the end of a connection and all of them.
Each pair is tried at the same moment and a little to either side of it."""

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox import forms
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import InboundReply, ReplyError

from .conftest import FORM, World, open_requests, question, server, settle, spec
from .peer import Outcome, Question, Sent, gives

OFFSETS = [-0.01, 0.0, 0.01]
"""Virtual seconds by which the other thing comes first, or later."""

ADA = forms.Accept({"name": "Ada"})


async def at(seconds: float) -> None:
    await anyio.sleep(max(seconds, 0.0))


async def answer(hub: Hub, request_id: str, refusals: list[str]) -> None:
    """Answers, or notes why not."""
    try:
        await hub.inbox.answer(request_id, ADA, "ada", answer_id=None, claim_id=None)
    except FailedPrecondition as exc:
        refusals.append(exc.reason)


@pytest.mark.parametrize("how", ["withdraw", "lose"])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("commit_s", [0.0, 0.005])
async def test_an_answer_that_crosses_the_end_of_its_question_has_one_outcome(
    world: World, offset: float, commit_s: float, how: str
) -> None:
    refusals: list[str] = []
    async with world.linked() as hub:
        await settle()
        link = world.peer.link
        asked = link.ask("elicitation/create", FORM)
        request = await question(hub)
        world.store.delay_s = commit_s

        async def end() -> None:
            await at(offset)
            asked.withdraw() if how == "withdraw" else link.lose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await at(-offset)
            tasks.start_soon(answer, hub, request.id, refusals)
        await asked.done.wait()
        await settle()
        after = hub.inbox.get(request.id)
        accepted = after.state is RequestState.ANSWERED
        assert refusals == ([] if accepted else ["REQUEST_WITHDRAWN"])
        assert after.delivery is (
            Delivery.NONE if not accepted else Delivery.DELIVERED if asked.reply is not None else Delivery.FAILED
        )
        assert accepted or asked.reply is None


@pytest.mark.parametrize("offset", OFFSETS)
async def test_a_result_that_crosses_its_time_limit_ends_the_call_once(world: World, offset: float) -> None:
    world.peer.behaviour = gives({"in": "time"}, after_s=5 + offset)
    async with world.hub(server(call_timeout_s=5)) as hub:
        call = await hub.calls.call(spec(), "ada")
        assert (call.result is None) is (call.fault is not None)
        assert call.fault is None or call.fault.code == "CALL_TIMEOUT"
        if offset:
            assert (call.state is CallState.COMPLETED) is (offset < 0)
        await settle(10)
        assert hub.calls.get(call.id) == call
        assert hub.calls.counts("one").in_progress == 0


@pytest.mark.parametrize("offset", OFFSETS)
async def test_a_result_that_crosses_the_end_of_its_connection_ends_the_call_once(world: World, offset: float) -> None:
    world.peer.behaviour = gives({"it": "worked"}, after_s=1 + offset)
    async with world.linked() as hub:
        await settle()

        async def lose() -> None:
            await anyio.sleep(1)
            world.peer.link.lose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose)
            call = await hub.calls.call(spec(), "ada")
        assert call.fault is None or call.fault.code == "CONNECTION_LOST"
        assert (call.result is None) is (call.fault is not None)
        fresh = await hub.calls.call(spec(), "ada")
        assert fresh.state is CallState.COMPLETED
        assert len(world.peer.sent) == 2


async def test_what_a_server_makes_of_a_call_after_its_end_changes_nothing(world: World) -> None:
    late: list[Question] = []

    async def stubborn(sent: Sent) -> Outcome:
        try:
            await anyio.sleep_forever()
        finally:
            late.append(sent.ask("elicitation/create", FORM, on_wire=True))
            sent.progress(1)
        raise AssertionError

    world.peer.behaviour = stubborn
    async with world.hub(server(call_timeout_s=1)) as hub:
        call = await hub.calls.call(spec(), "ada")
        await late[0].done.wait()
        assert isinstance(late[0].error, ReplyError), "nobody is asked for a call that has ended"
        assert not open_requests(hub)
        assert hub.calls.get(call.id) == call


async def test_an_answer_told_of_twice_keeps_its_first_fate(world: World) -> None:
    async with world.linked() as hub:
        await settle()
        told: list[InboundReply] = []
        serve = world.peer.link.inbound.on_request

        async def keep(asked: object) -> InboundReply:
            told.append(await serve(asked))  # as it came
            return told[-1]

        world.peer.link.inbound.on_request = keep  # sees the reply, changes nothing
        asked = world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        await answer(hub, request.id, [])
        await asked.answered()
        assert told[0].on_sent is not None
        told[0].on_sent("and yet it was lost")
        told[0].on_sent(None)
        await settle()
        assert hub.inbox.get(request.id).delivery is Delivery.DELIVERED
