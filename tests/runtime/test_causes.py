"""The end of a call and what its server has asked in its course: all ends by all ways to ask."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, Origin, PendingRequest, RequestState
from hubbubd.errors import HubError, PeerError, UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era, ReplyError

from .conftest import FORM, SAMPLING, World, open_requests, question, server, settle, spec, until, update
from .peer import LOST, REFUSED, Outcome, Question, Sent, never
from .task_server import TaskServer
from .true_states import check_causes

YES = Accept({"name": "x"})
ELICIT = {"method": "elicitation/create", "params": FORM}
PAGE = {"mode": "url", "elicitationId": "e1", "message": "Go there", "url": "https://example.com/"}
OPTIONS: dict[str, Any] = {"max_in_flight": 3, "ping_interval_s": 0}


class Asking:
    """A server whose tool asks something in one of the ways, and then does what it is asked to."""

    def __init__(self, world: World, way: str) -> None:
        self.world = world
        self.way = way
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.asked: Question | None = None
        self.caller: asyncio.Task[object] | None = None
        self.tasks = TaskServer(world, Era.STATELESS) if way == "task input" else None
        if self.tasks is not None:
            self.tasks.status, self.tasks.more = "input_required", {"inputRequests": {"a": ELICIT}}
        else:
            world.peer.era = Era.STATELESS if way == "rounds" else Era.HANDSHAKE
            world.peer.behaviour = self.serve

    async def serve(self, sent: Sent) -> Outcome:
        if sent.params["name"] == "other":
            return await never(sent)
        match self.way:
            case "rounds":
                return {"resultType": "input_required", "inputRequests": {"a": ELICIT}, "requestState": "s"}
            case "consent":
                raise PeerError(-32042, "go there first", {"elicitations": [PAGE]})
            case "task by wire" | "task inferred":
                params = {**FORM, "task": {"ttl": 600_000}}
                self.asked = sent.ask("elicitation/create", params, on_wire=self.way == "task by wire")
            case _:
                self.asked = sent.ask("elicitation/create", FORM, on_wire=self.way == "by wire")
        return await self.outcome

    async def begin(self, hub: Hub) -> PendingRequest:
        if self.way == "one of two":
            await hub.calls.start(spec("other", call_id="other"), "me")
            await settle()

        async def call() -> None:
            with suppress(HubError):
                await hub.calls.call(spec(call_id="asks"), "me")

        self.caller = asyncio.create_task(call())
        return await question(hub)


async def cancel(world: World, hub: Hub, asking: Asking) -> None:
    await hub.calls.cancel("asks", abort=True)


async def hang_up(world: World, hub: Hub, asking: Asking) -> None:
    asking.caller.cancel()


async def complete(world: World, hub: Hub, asking: Asking) -> None:
    asking.outcome.set_result({"content": []})
    if asking.tasks is not None:
        asking.tasks.end(result={"content": []})


async def fail(world: World, hub: Hub, asking: Asking) -> None:
    if asking.tasks is None:
        asking.outcome.set_exception(PeerError(-32000, "no"))
    else:
        asking.tasks.end("failed", error={"code": -32000, "message": "no"})


async def lose(world: World, hub: Hub, asking: Asking) -> None:
    world.peer.link.lose(LOST)


async def give_up(world: World, hub: Hub, asking: Asking) -> None:
    world.peer.always = UpstreamError(REFUSED)
    world.peer.link.lose(LOST)


async def disconnect(world: World, hub: Hub, asking: Asking) -> None:
    await hub.servers.disconnect("one")


async def remove(world: World, hub: Hub, asking: Asking) -> None:
    await hub.servers.remove("one")


async def become_another(world: World, hub: Hub, asking: Asking) -> None:
    await update(hub, server(args=("another",), **OPTIONS))


End = Callable[[World, Hub, Asking], Awaitable[None]]
ENDS: list[End] = [cancel, hang_up, complete, fail, lose, give_up, disconnect, remove, become_another]
WAYS = ["by wire", "inferred", "one of two", "task by wire", "task inferred", "rounds", "consent", "task input"]
MARKED = {"inferred", "task by wire", "task inferred"}
"""Ways to ask whose question outlives the call: nobody knows that it was this one, or a task keeps it."""

WORDS: dict[End, str] = {
    cancel: "its call was cancelled",
    hang_up: "its call was cancelled",
    complete: "its call has its result already",
    fail: "its call failed",
}


async def test_a_call_whose_answer_was_delivered_ends_without_waiting_for_the_disk(world: World) -> None:
    asking = Asking(world, "inferred")
    async with world.linked(server(**OPTIONS)) as hub:
        request = await asking.begin(hub)
        await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        await asking.asked.answered()
        assert hub.inbox.get(request.id).delivery is Delivery.DELIVERED
        before = len(world.store.commits)
        await complete(world, hub, asking)
        assert asking.caller is not None
        await asking.caller
        assert len(world.store.commits) == before
        await settle(1)
        check_causes(hub)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("way", WAYS)
async def test_no_question_stands_as_if_its_call_still_waited_for_it(world: World, way: str, end: End) -> None:
    if way in ("rounds", "consent") and end in (complete, fail):
        return  # the server has replied: only the hub can end such a call
    asking = Asking(world, way)
    async with world.hub() as hub:
        await hub.servers.add(server(**OPTIONS, retries=0 if end is give_up else -1))
        request = await asking.begin(hub)
        check_causes(hub)
        await end(world, hub, asking)
        await settle(15)
        check_causes(hub)
        after = hub.inbox.get(request.id)
        if end in WORDS and way in MARKED:
            assert (after.state, after.cause_ended) == (RequestState.OPEN, WORDS[end])
            await answer_late(hub, after, asking)
        elif end in WORDS and way == "one of two":
            assert (after.state, after.candidate_call_ids, after.cause_ended) == (RequestState.OPEN, ("other",), None)
            assert after.call_id is None
            assert hub.calls.get("other").perhaps_pending_ids == (request.id,)
            await hub.calls.cancel("other", abort=True)
            after = hub.inbox.get(request.id)
            assert (after.candidate_call_ids, after.cause_ended) == ((), "each call that may have asked is over")
            await answer_late(hub, after, asking)
        elif end in WORDS:
            assert (after.state, after.reason) in (
                (RequestState.WITHDRAWN, WORDS[end]),
                (RequestState.WITHDRAWN, "its task has ended"),
            )
            if asking.asked is not None:
                assert isinstance(asking.asked.error, ReplyError), "the server gets an error"
        elif after.state is RequestState.OPEN:
            assert way.startswith("task") or way in ("rounds", "consent")
        asking.caller.cancel()


async def answer_late(hub: Hub, request: PendingRequest, asking: Asking) -> None:
    """An answer is heard; that it came after the end of the call is not hidden, nor called delivered."""
    await hub.inbox.answer(request.id, YES, "ann", answer_id=None, claim_id=None)
    await settle()
    record = hub.inbox.get(request.id)
    if request.task_id is None:
        assert asking.asked.reply is not None
        assert record.delivery is Delivery.LATE
    else:  # the task's result waits for the server to fetch it
        assert record.delivery is Delivery.PENDING


async def test_a_call_goes_on_once_all_that_it_waits_for_is_answered(world: World) -> None:
    async def behave(sent: Sent) -> Outcome:
        for asked in [sent.ask("elicitation/create", FORM, on_wire=True) for _ in range(2)]:
            await asked.answered()
        return await never(sent)

    world.peer.behaviour = behave
    async with world.hub(server(**OPTIONS)) as hub:
        call = await hub.calls.start(spec(), "alice")
        await until(lambda: len(open_requests(hub)) == 2)
        for parked in (1, 0):
            await hub.inbox.answer(open_requests(hub)[0].id, YES, "alice", answer_id=None, claim_id=None)
            await settle()
            counts = hub.calls.counts("one")
            assert (counts.waiting_input, counts.in_progress) == (parked, 1 - parked)
            state = CallState.WAITING_INPUT if parked else CallState.IN_PROGRESS
            assert hub.calls.get(call.id).state is state


async def test_an_answer_that_the_call_did_not_wait_for_is_late(world: World) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, "inferred")
        request = await asking.begin(hub)
        world.store.delay_s = 1
        answering = asyncio.create_task(hub.inbox.answer(request.id, YES, "ann", answer_id=None, claim_id=None))
        await anyio.sleep(0.5)
        asking.outcome.set_result({"content": []})
        await answering
        await settle(5)
        check_causes(hub)
        assert hub.inbox.get(request.id).delivery in (Delivery.LATE, Delivery.DELIVERED)


async def test_a_call_is_no_longer_perhaps_waiting_when_the_question_is_answered(world: World) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, "one of two")
        request = await asking.begin(hub)
        assert hub.calls.get("other").perhaps_pending_ids == (request.id,)
        await hub.inbox.answer(request.id, YES, "ann", answer_id=None, claim_id=None)
        await settle()
        assert [hub.calls.get(name).perhaps_pending_ids for name in ("asks", "other")] == [(), ()]
        asking.outcome.set_result({"content": []})


@pytest.mark.parametrize("way", ["by wire", "inferred"])
async def test_an_answer_that_the_call_went_on_with_is_not_late_when_its_receipt_is(world: World, way: str) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, way)
        request = await asking.begin(hub)
        world.peer.link.receipts = anyio.Event()  # as over HTTP: the result overtakes the 202 to the answer
        await hub.inbox.answer(request.id, YES, "ann", answer_id=None, claim_id=None)
        await until(lambda: asking.asked and asking.asked.reply)
        asking.outcome.set_result({"content": []})
        assert asking.caller is not None
        await asking.caller
        world.peer.link.receipts.set()
        await settle()
        assert hub.inbox.get(request.id).delivery is Delivery.DELIVERED


async def test_the_end_of_a_call_and_of_its_question_are_one_commit(world: World) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, "by wire")
        request = await asking.begin(hub)
        await settle()
        world.store.commits.clear()
        await hub.calls.cancel("asks", abort=True)
        together = [{write.key for write in commit} for commit in world.store.commits]
        assert {"call/asks", f"request/{request.id}"} in together


async def test_a_question_that_comes_on_the_stream_of_an_ended_call_is_refused(world: World) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        await hub.calls.call(spec(call_id="asks"), "me")
        asked = world.peer.link.ask("elicitation/create", FORM, call_id="asks")
        await asked.done.wait()
        assert isinstance(asked.error, ReplyError)
        assert not open_requests(hub)


@pytest.mark.parametrize("end_delay_s", [1, 0], ids=["end written later", "end written first"])
async def test_a_question_whose_call_ends_while_it_is_being_written_is_not_left_open(
    world: World, end_delay_s: int
) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, "by wire")
        world.store.delay_s = 1
        calling = asyncio.create_task(hub.calls.call(spec(call_id="asks"), "me"))
        await until(lambda: asking.asked)
        world.store.delay_s = end_delay_s
        asking.outcome.set_result({"content": []})
        await calling
        await settle(10)
        check_causes(hub)
        assert not open_requests(hub)


async def test_a_request_of_a_task_that_outlives_its_call_says_so_after_a_restart(world: World) -> None:
    async with world.hub(server(**OPTIONS)) as hub:
        asking = Asking(world, "task inferred")
        request = await asking.begin(hub)
        assert request.call_id == "asks"
        await settle()
    async with world.hub(server(**OPTIONS)) as hub:
        await settle()
        check_causes(hub)
        assert hub.inbox.get(request.id).cause_ended
        asking.caller.cancel()


@pytest.mark.parametrize(
    ("away_s", "delivery"), [(200.3, Delivery.DELIVERED), (200.8, Delivery.LATE)], ids=["question first", "call first"]
)
async def test_what_expired_while_the_store_was_away_is_late_if_its_call_ended_before_it_was_sent(
    world: World, away_s: float, delivery: Delivery
) -> None:
    async def asks(_: Sent) -> Outcome:
        sampling = {"method": "sampling/createMessage", "params": SAMPLING}
        return {"resultType": "input_required", "inputRequests": {"a": sampling}, "requestState": "s"}

    world.peer.era, world.peer.behaviour = Era.STATELESS, asks
    async with world.linked(server(answer_timeout_s=100, ping_interval_s=0)) as hub:
        call = await hub.calls.start(spec(), "me")
        begun = asyncio.get_running_loop().time()
        await settle(0.5)
        asked = world.peer.link.ask("elicitation/create", FORM)
        await settle()
        world.store.failures = 10**9
        await settle(begun + away_s - asyncio.get_running_loop().time())
        world.store.failures = 0
        assert (await asked.answered())["action"] == "cancel"
        await settle(2)
        (plain,) = [each for each in hub.inbox.select(RequestFilter()) if each.origin is Origin.PLAIN]
        assert (hub.calls.get(call.id).state.ended, plain.state) == (True, RequestState.EXPIRED)
        assert plain.delivery is delivery
