"""A hub that starts again over the same store."""

import asyncio
from functools import partial

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter, TaskFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import AlreadyExists, FailedPrecondition, NotFound, PermissionDenied, Unavailable, UpstreamError

from ..raising import raising
from .conftest import FORM, World, open_requests, question, server, settle, spec, until, update
from .peer import REFUSED, Outcome, Sent, at_once, never

YES = Accept({"name": "x"})


async def test_an_answer_that_was_acknowledged_is_still_there(world: World) -> None:
    async with world.linked() as hub:
        world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        answered = await hub.inbox.answer(request.id, YES, "me", answer_id="a", claim_id=None)
    async with world.hub(server()) as hub:
        after = hub.inbox.get(request.id)
        assert (after.state, after.answer, after.answered_by) == (RequestState.ANSWERED, answered.answer, "me")
        assert after.delivery in (Delivery.DELIVERED, Delivery.FAILED)
        await hub.inbox.answer(request.id, YES, "me", answer_id="a", claim_id=None)


async def test_receiver_tasks_and_their_questions_go_on(world: World) -> None:
    async with world.linked() as hub:
        created = await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 600_000}})
        request = await question(hub)
    task_id = created["task"]["taskId"]
    async with world.hub(server()) as hub:
        assert (await question(hub)).id == request.id
        await until(lambda: len(world.peer.links) == 2)
        waiting = world.peer.link.ask("tasks/result", {"taskId": task_id})
        await settle()
        await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        assert (await waiting.answered())["action"] == "accept"
        await anyio.sleep(601)
        assert not hub.tasks.select(TaskFilter())


async def test_tasks_of_a_server_that_became_another_one_are_gone(world: World) -> None:
    async with world.linked() as hub:
        await world.peer.link.asked("elicitation/create", {**FORM, "task": {}})
        request = await question(hub)
    async with world.hub(server(args=("--other",))) as hub:
        assert not hub.tasks.select(TaskFilter())
        assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN


async def test_a_wish_survives_a_kill_right_after_it_was_acknowledged(world: World) -> None:
    async with world.linked() as hub:
        await hub.servers.disconnect("one")
        await hub.servers.connect("one")
        await hub.servers.disconnect("one")
        world.store.failures = 10**9
    world.store.failures = 0
    async with world.hub(server()) as hub:
        assert not hub.servers.get("one").wanted


async def test_servers_of_the_api_come_back_and_those_of_files_win(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server("mine", call_timeout_s=7))
        await hub.servers.add(server("both", call_timeout_s=7))
        await until(lambda: world.peers["mine"].links)
    async with world.hub(server("both", call_timeout_s=9), server("file")) as hub:
        assert [record.name for record in hub.servers.all()] == ["both", "file", "mine"]
        mine, both = hub.servers.get("mine"), hub.servers.get("both")
        assert (mine.source, mine.config.call_timeout_s) == ("api", 7)
        assert (both.source, both.config.call_timeout_s) == ("file", 9)
        await until(lambda: hub.servers.get("mine").connection.state is ConnectionState.CONNECTED)
        for change in (hub.servers.remove("both"), update(hub, server("both"))):
            with raising(FailedPrecondition, "SERVER_READ_ONLY"):
                await change
        await hub.servers.remove("mine")
    async with world.hub(server("file")) as hub:
        assert [record.name for record in hub.servers.all()] == ["file"]


async def test_servers_change_one_at_a_time_and_to_the_end(world: World) -> None:
    async with world.hub() as hub:
        world.store.delay_s = 0.5
        outcomes: list[str] = []

        async def add(timeout_s: float) -> None:
            try:
                await hub.servers.add(server(call_timeout_s=timeout_s))
                outcomes.append("added")
            except AlreadyExists:
                outcomes.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add, 7)
            tasks.start_soon(add, 8)
        assert sorted(outcomes) == ["added", "refused"]
        await until(lambda: world.peer.links)
        world.peer.closing_s = 3
        with anyio.move_on_after(1):  # hangs up in the middle
            await update(hub, server(call_timeout_s=9))
        await settle(10)
        assert hub.servers.get("one").config.call_timeout_s == 9
        assert hub.servers.get("one").connection.state is ConnectionState.CONNECTED


async def test_a_change_that_the_store_does_not_take_changes_nothing(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server(call_timeout_s=7))
        await until(lambda: world.peer.links)
        await settle()
        for change in (
            lambda: update(hub, server(call_timeout_s=8)),
            lambda: hub.servers.disconnect("one"),
            lambda: hub.servers.add(server("two")),
        ):
            world.store.failures = 1
            with pytest.raises(Unavailable):
                await change()
        record = hub.servers.get("one")
        assert (record.config.call_timeout_s, record.wanted) == (7, True)
        assert record.connection.state is ConnectionState.CONNECTED
        with pytest.raises(NotFound):
            hub.servers.get("two")


async def test_only_commands_that_the_operator_allowed_are_started_over_the_api(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        for change, name in ((hub.servers.add, "two"), (partial(update, hub), "one")):
            with raising(PermissionDenied, "COMMAND_NOT_ALLOWED"):
                await change(server(name, command="rm"))


async def test_nothing_piles_up_of_questions_calls_and_tasks_that_have_ended(world: World) -> None:
    async with world.linked() as hub:
        await settle()
        alarms = hub.inbox._alarms._timers
        before = set(alarms)
        for _ in range(5):
            asked = world.peer.link.ask("elicitation/create", FORM)
            await hub.inbox.answer((await question(hub)).id, YES, "me", answer_id=None, claim_id=None)
            await asked.answered()
            asked = world.peer.link.ask("elicitation/create", FORM)
            await question(hub)
            asked.withdraw()
            await until(lambda: not open_requests(hub))
            created = await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 300_000}})
            waiting = world.peer.link.ask("tasks/result", created["task"])
            await settle()
            waiting.withdraw()
            await until(lambda: not open_requests(hub))
            await hub.calls.call(spec(), "me")
        await anyio.sleep(120)
        assert not hub.tasks.select(TaskFilter())
        assert set(alarms) <= before
        inbox, queue = hub.inbox, hub.calls._queues["one"]
        for leftover in (inbox._open_ids, inbox._waits, inbox._opening_counts, hub.tasks._end_events, queue.calls):
            assert not leftover


async def test_secrets_of_an_added_server_stay_out_of_the_store_and_of_a_refused_one_nowhere(world: World) -> None:
    config = ServerConfig.model_validate({"name": "new", "url": "https://mcp.example.com/?key=canary"})
    async with world.hub() as hub:
        await settle()  # it has nothing else to write by then
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await hub.servers.add(config)
        assert world.peers.secrets["new"] is None
        await hub.servers.add(config)
    async with world.hub() as hub:
        assert hub.servers.get("new").config == config
        changed = config.model_copy(update={"url": "https://mcp.example.com/?key=other"})
        await settle()
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await update(hub, changed)
        assert hub.servers.get("new").config == config
    async with world.hub() as hub:
        assert hub.servers.get("new").config == config
        await hub.servers.remove("new")
        assert world.peers.secrets["new"] is None
    assert all(b"canary" not in (write.value or b"") for commit in world.store.commits for write in commit)


async def test_secrets_that_belong_to_another_url_are_never_used(world: World) -> None:
    config = ServerConfig.model_validate({"name": "new", "url": "https://a.example/", "headers": {"A": "canary"}})
    async with world.hub() as hub:
        await hub.servers.add(config)
    kept = world.peers.secrets["new"]
    assert kept is not None
    world.peers.secrets["new"] = {**kept, "fingerprint": "another"}
    async with world.hub() as hub:
        assert hub.servers.get("new").config.lacks_secrets


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
async def test_detached_calls_that_were_never_sent_go_on_in_their_order(world: World, killed: bool) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        for name in ("a", "b", "c", "d"):
            await hub.calls.start(spec(name, call_id=name), "me")
        await settle()
        if not killed:
            with anyio.move_on_after(5):  # the grace, in which `a` does not end
                await hub.calls.drain()
        else:  # what is written now is what a hub that is killed leaves behind
            world.store.failures = 10**9
    world.store.failures = 0
    world.peer.behaviour = at_once
    async with world.hub(server()) as hub:
        await until(lambda: hub.calls.get("d").state.ended)
        states = [hub.calls.get(name).state for name in ("a", "b", "c", "d")]
        assert states[1:] == [CallState.COMPLETED] * 3
        assert states[0] in (CallState.FAILED, CallState.CANCELLED)
        assert [sent.params["name"] for sent in world.peer.sent] == ["a", "b", "c", "d"], "each once, in their order"


async def test_a_drain_leaves_a_detached_call_that_was_being_written_when_it_began(world: World) -> None:
    world.peer.plan.extend([UpstreamError(REFUSED)] * 3)
    async with world.hub(server(retries=-1)) as hub, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(Unavailable, match="the call goes on with the next one"):
                await hub.calls.call(spec(call_id="a"), "me", detached=True)

        world.store.delay_s = 1
        tasks.start_soon(call)
        await settle()
        with anyio.fail_after(5):
            await hub.calls.drain()
    async with world.hub(server()) as hub:
        await until(lambda: hub.calls.get("a").state is CallState.COMPLETED)


async def test_no_detached_call_is_sent_that_the_next_hub_would_take_for_one_that_was_not(world: World) -> None:
    async with world.hub(server()) as hub:
        await hub.calls.start(spec("first", call_id="first"), "me")
        await settle()
        world.peer.behaviour = never
        await hub.calls.start(spec("a", call_id="a"), "me")
        await hub.calls.start(spec("b", call_id="b"), "me")
        await settle()
        world.store.failures = 10**9
        world.peer.link.lose()  # it is b's turn next, but nobody could know that it was sent
        await settle(20)
        assert [sent.params["name"] for sent in world.peer.sent] == ["first", "a"]
        assert hub.calls.get("b").fault.code == "STORE_UNAVAILABLE"


async def test_a_call_that_was_never_sent_says_so_when_its_server_is_another_one(world: World) -> None:
    world.peer.plan.extend([UpstreamError(REFUSED)] * 3)
    async with world.hub(server(retries=-1)) as hub:
        await hub.calls.start(spec(call_id="a"), "me")
        await settle()
    async with world.hub(server(args=("--other",))) as hub:
        await settle()
        assert "never sent" in hub.calls.get("a").fault.message
        assert not world.peer.sent


async def test_a_stopping_hub_sends_nothing_more_that_the_next_one_can_send(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        for name in ("a", "b"):
            await hub.calls.start(spec(name, call_id=name), "me")
        await settle()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.calls.drain)
            await settle()
            await hub.calls.cancel("a", abort=True)  # its slot is free
            await settle()
        assert [sent.params["name"] for sent in world.peer.sent] == ["a"]
    world.peer.behaviour = at_once
    async with world.hub(server()) as hub:
        await until(lambda: hub.calls.get("b").state.ended)
        assert hub.calls.get("b").state is CallState.COMPLETED


async def test_a_call_whose_connection_goes_before_it_is_sent_goes_out_once_over_the_next(world: World) -> None:
    async with world.linked(server(retries=-1)) as hub:
        await settle()
        world.store.delay_s = 0.5
        starting = asyncio.create_task(hub.calls.start(spec(call_id="a"), "me"))
        await until(lambda: "a" in {call.id for call in hub.calls.select(CallFilter()) if call.started_at is not None})
        before = world.peer.link
        before.lose()  # the hub is writing that it sends the call
        await starting
        await until(lambda: hub.calls.get("a").state.ended)
        assert hub.calls.get("a").state is CallState.COMPLETED
        (sent,) = world.peer.sent
        assert sent.link is not before


async def test_a_call_that_somebody_waited_for_is_never_sent_twice_however_early_the_hub_was_killed(
    world: World,
) -> None:
    """That such a call was sent is written a moment later, so its record may say that it still waits for its turn."""

    async def killed_when_sent(sent: Sent) -> Outcome:
        if sent.params["name"] == "a":
            world.store.failures = 10**9  # what is written now is what a hub that is killed leaves behind
        return await never(sent)

    world.peer.behaviour = killed_when_sent
    async with anyio.create_task_group() as tasks, world.hub(server()) as hub:
        await hub.calls.start(spec("first", call_id="first"), "me")
        tasks.start_soon(hub.calls.call, spec("a", call_id="a"), "me")
        await settle()
        await hub.calls.cancel("first", abort=True)  # its slot is free
        await until(lambda: world.store.failures)
        tasks.cancel_scope.cancel()
    world.store.failures = 0
    world.peer.behaviour = at_once
    async with world.hub(server()) as hub:
        await settle(5)
        assert hub.calls.get("a").fault.code == "HUB_RESTARTED"
    assert [sent.params["name"] for sent in world.peer.sent] == ["first", "a"]
