"""Calls that try to pass rules of approvals unseen, and what happens at bad moments: none is sent without its yes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.config.sections.approvals import ApprovalSettings
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.request_states import Delivery, RequestKind, RequestState
from hubbubd.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unavailable
from hubbubd.redaction import REDACTION
from hubbubd.runtime.calls import CallSpec
from hubbubd.store import Precondition, StoreUnavailable, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from .approving import ARGUMENTS, approve, asks, connected, deletion, deny, offer, start, tool
from .conftest import FORM, FailingStore, World, open_requests, question, server, settle, spec, until
from .mortal import DONE, ELICIT, answer, ended, killed, needs, script
from .peer import Outcome, Sent, gives

LATER = ApprovalSettings.model_validate({"rules": [{"name": "deletes", "tools": ["t"], "action": "ask"}]})
"""The rule of `asks`, which comes while a call is under way."""


@pytest.fixture
def asking(world: World) -> World:
    """A hub that asks about the tool `t` of the server `one`."""
    world.settings |= asks(remember=["1h"])
    offer(world, tool(), tool("u"))
    return world


def raw(params: dict[str, Any], call_id: str = "c") -> CallSpec:
    return spec(params=payload.dumps(params), call_id=call_id)


@pytest.mark.parametrize(
    "params",
    [
        {"name": "u", "Name": "t"},
        {"Name": "t"},
        {"name": ["t"]},
        {"name": "t\0u"},
        {"name": "t\ud800"},
        {"name": "u", "arguments": {}, "ARGUMENTS": {"repo": "shop"}},
        {"name": "u", "argument\u017f": {"repo": "shop"}},
        {"name": "u", "na\u200bme": "t"},
    ],
    ids=ascii,
)
async def test_a_call_that_a_careless_server_could_read_as_another_one_is_refused(
    asking: World, params: dict[str, Any]
) -> None:
    async with asking.hub(server()) as hub:
        await connected(hub)
        with pytest.raises(InvalidArgument):
            await hub.calls.start(raw(params), "bot")
        assert not asking.peer.sent


@pytest.mark.parametrize("name", [" T ", "\uff34", "t\u200b", "t\x01", "\x7ft"], ids=ascii)
async def test_a_name_that_a_careless_server_could_read_as_that_of_the_tool_is_asked_about(
    asking: World, name: str
) -> None:
    async with asking.hub(server()) as hub:
        await connected(hub)
        await hub.calls.start(raw({"name": name, "arguments": ARGUMENTS}), "bot")
        assert payload.loads((await question(hub)).request)["tool"]["name"] == name
        assert not asking.peer.sent


async def test_of_a_member_that_is_there_twice_what_is_shown_is_sent(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await connected(hub)
        params = b'{"name":"u","arguments":{"repo":"a"},"name":"t","arguments":{"repo":"b","repo":"c"}}'
        await hub.calls.start(spec(params=params, call_id="c"), "bot")
        request = await question(hub)
        assert payload.loads(request.request)["arguments"] == {"repo": "c"}
        await approve(hub, request)
        await ended(hub)
        assert asking.peer.sent[0].params == {"name": "t", "arguments": {"repo": "c"}}


async def test_a_call_that_is_asked_about_at_sending_is_in_the_way_of_no_other(world: World) -> None:
    offer(world, tool(), tool("u"))
    world.peer.plan.append(5.0)
    async with world.hub(server(max_in_flight=1, one_question_at_a_time=True)) as hub:
        await hub.calls.start(deletion(), "bot")
        hub.approvals.adopt(LATER)
        request = await question(hub)
        assert (await hub.calls.call(spec("u"), "bot")).state is CallState.COMPLETED
        assert [sent.params["name"] for sent in world.peer.sent] == ["u"]
        await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert len(world.peer.sent) == 2


async def test_what_a_server_asks_is_not_put_down_to_a_call_that_it_has_not_got(world: World) -> None:
    offer(world, tool(), tool("u"))
    world.peer.plan.append(5.0)
    async with world.hub(server()) as hub:
        await hub.calls.start(deletion(), "bot")
        hub.approvals.adopt(LATER)
        request = await question(hub)
        world.peer.link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == 2)
        (asked,) = (each for each in open_requests(hub) if each.id != request.id)
        assert (asked.kind, asked.call_id, asked.principal) == (RequestKind.ELICITATION_FORM, None, None)


async def test_a_server_that_is_removed_while_its_tools_are_read_gets_no_call(asking: World) -> None:
    async with asking.hub() as hub:
        await hub.servers.add(server())
        await connected(hub)
        await settle(60)
        slow = anyio.Event()

        async def listing(_: Sent) -> Outcome:
            slow.set()
            await anyio.sleep(5)
            return {"tools": [tool()]}

        asking.peer.listing = listing
        asking.peer.link.tell("notifications/tools/list_changed")
        async with anyio.create_task_group() as callers:

            async def call() -> None:
                with pytest.raises(NotFound):
                    await hub.calls.start(raw({"name": "t2", "arguments": {}}), "bot")

            callers.start_soon(call)
            await slow.wait()
            await hub.servers.remove("one")
        assert not open_requests(hub)
        assert hub.calls.find("c") is None


@pytest.mark.parametrize("already", [False, True])
async def test_a_question_about_a_further_round_is_taken_up_again_after_a_restart(world: World, already: bool) -> None:
    script(world, needs(a=ELICIT), DONE, era=Era.STATELESS)
    world.peer.listing = gives({"tools": [tool()]})
    async with killed(world, server(resume=True)) as hub:
        await start(hub)
        form = await question(hub)
        hub.approvals.adopt(LATER)
        await answer(hub, form)
        await until(lambda: open_requests(hub) and open_requests(hub)[0].kind is RequestKind.APPROVAL)
        request = await question(hub)
        if already:
            world.peer.link.lose()
            world.peer.always = 10**6
            await settle()
            await approve(hub, request)
            await settle()
    world.peer.always = None
    world.settings |= asks()
    async with world.hub(server(resume=True)) as hub:
        await connected(hub)
        await settle(5)
        if not already:
            assert [each.id for each in open_requests(hub)] == [request.id]
            assert len(world.peer.sent) == 1
            await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert len(world.peer.sent) == 2
        assert hub.inbox.get(request.id).state is RequestState.ANSWERED
        assert not open_requests(hub)


async def test_nobody_approves_by_a_name_that_looks_like_a_role(world: World) -> None:
    world.settings |= asks(approvers=["oidc-role:release", "cert:*.ops"])
    async with world.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        with pytest.raises(PermissionDenied):
            await approve(hub, request, "oidc-role:release")
        with pytest.raises(PermissionDenied):
            await deny(hub, request, by="oidc-role:release")
        assert not world.peer.sent


async def test_arguments_cannot_be_changed_to_more_than_anybody_can_read(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        with pytest.raises(InvalidArgument) as refused:
            await approve(hub, request, arguments={"repo": "x" * 2**20})
        assert refused.value.violations[0][0] == "approve.arguments"
        assert hub.inbox.get(request.id).state is RequestState.OPEN


async def test_arguments_cannot_be_changed_to_some_that_nest_too_deeply_to_be_read_again(asking: World) -> None:
    offer(asking, {"name": "t"})
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        with pytest.raises(InvalidArgument):
            await approve(hub, request, arguments=payload.loads('{"a":' * 200 + "1" + "}" * 200))
        await approve(hub, request, arguments=payload.loads('{"a":' * 199 + "1" + "}" * 199))
        assert (await ended(hub)).state is CallState.COMPLETED


class Flaky(FailingStore):
    """A store that refuses some commits after a while, and takes all others."""

    def __init__(self, inner: SqliteStore, after: int, count: int) -> None:
        super().__init__(inner)
        self._refused = range(after, after + count)
        self.asked: int | None = None

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        if self.asked is not None:
            self.asked += 1
            if self.asked in self._refused:
                raise StoreUnavailable("disk full")
        return await super().commit(writes, guards)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("after", range(1, 9))
async def test_a_call_ends_whichever_of_its_commits_the_store_refuses(after: int, count: int) -> None:
    store = Flaky(await SqliteStore.open(":memory:"), after, count)
    world = World(store, settings=asks(needed=2))
    offer(world, tool())
    async with world.hub(server()) as hub:
        await connected(hub)
        await settle(60)
        store.asked = 0
        with anyio.fail_after(600):
            while hub.calls.find("c") is None:
                with suppress(Unavailable):
                    await hub.calls.start(deletion(), "bot")
                await settle(1)
            while not hub.calls.get("c").state.ended:
                for request in open_requests(hub):
                    for by in ("ada", "ben"):
                        with suppress(Unavailable, FailedPrecondition):
                            await approve(hub, request, by)
                await settle(1)
        await settle(60)
        call = hub.calls.get("c")
        assert len(world.peer.sent) == (1 if call.state is CallState.COMPLETED else 0)
        assert not open_requests(hub)
        if call.state is CallState.COMPLETED:
            (request,) = hub.inbox.select(RequestFilter())
            assert (request.state, request.delivery) == (RequestState.ANSWERED, Delivery.DELIVERED)


@pytest.fixture
def hidden() -> Iterator[None]:
    """A secret of a server, which no document may show."""
    REDACTION.set_secrets("test", ["hunter2-hunter2"])
    yield
    REDACTION.set_secrets("test", [])


@pytest.mark.usefixtures("hidden")
async def test_no_argument_hides_behind_another_one_whose_name_is_withheld(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await connected(hub)
        arguments = {"hunter2-hunter2": "worse", "[redacted]": "fine"}
        await hub.calls.start(deletion(arguments=arguments), "bot")
        shown = payload.loads((await question(hub)).request)["arguments"]
        assert sorted(shown.values()) == ["fine", "worse"]


@pytest.mark.usefixtures("hidden")
async def test_an_approval_of_hidden_arguments_holds_for_these_and_not_for_what_was_shown(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub, arguments={"repo": "hunter2-hunter2"})
        request = await question(hub)
        assert b"hunter2" not in request.request
        await approve(hub, request, remember_s=3600.0, same_arguments=True)
        await ended(hub)
        assert asking.peer.sent[0].params["arguments"] == {"repo": "hunter2-hunter2"}
        await hub.calls.start(deletion("same", arguments={"repo": "hunter2-hunter2"}), "bot")
        assert (await ended(hub, "same")).state is CallState.COMPLETED
        shown = payload.loads(request.request)["arguments"]
        await hub.calls.start(deletion("as shown", arguments=shown), "bot")
        assert (await question(hub)).call_id == "as shown"


async def test_a_call_with_a_caller_that_waits_is_not_sent_again_after_a_hub_is_killed(asking: World) -> None:
    got = anyio.Event()

    async def serve(_: Sent) -> Outcome:
        got.set()
        await anyio.sleep(10**6)
        return {"content": []}

    asking.peer.behaviour = serve
    async with killed(asking, server()) as hub:
        await connected(hub)
        async with anyio.create_task_group() as callers:
            callers.start_soon(hub.calls.call, deletion(), "bot")
            await approve(hub, await question(hub))
            await got.wait()
            asking.store.failures = 10**9
            callers.cancel_scope.cancel()
    async with asking.hub(server()) as hub:
        await connected(hub)
        await settle(60)
        fault = hub.calls.get("c").fault
        assert fault.code == "HUB_RESTARTED"
        assert len(asking.peer.sent) == 1


async def test_a_call_that_was_let_pass_is_asked_about_if_its_tool_changes_before_its_turn(world: World) -> None:
    offer(world, tool(annotations={"readOnlyHint": True}), tool("u", annotations={"readOnlyHint": True}))
    world.peer.behaviour = gives({"content": []}, after_s=0.5)
    async with world.hub(server(confirm="writes", max_in_flight=1)) as hub:
        await connected(hub)
        await settle(60)
        await hub.calls.start(raw({"name": "u"}, "first"), "bot")
        await until(lambda: world.peer.sent)
        await hub.calls.start(deletion(), "bot")
        assert hub.calls.get("c").state is CallState.QUEUED
        offer(world, tool())
        world.peer.link.tell("notifications/tools/list_changed")
        await question(hub)
        assert [sent.params["name"] for sent in world.peer.sent] == ["u"]


async def test_a_call_that_was_queued_before_a_restart_is_asked_about_by_the_rules_after_it(world: World) -> None:
    offer(world, tool())
    world.peer.always = 10**6
    async with killed(world, server()) as hub:
        await hub.calls.start(deletion(), "bot")
        await settle()
    world.peer.always = None
    world.settings |= asks()
    async with world.hub(server()) as hub:
        request = await question(hub)
        assert not world.peer.sent
        await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED


@pytest.mark.parametrize("demand", [{"needed": 2}, {"approvers": ["cy"]}, {"not_by_caller": True}])
async def test_a_remembered_approval_ends_once_its_rule_asks_for_more(asking: World, demand: dict[str, Any]) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        await approve(hub, await question(hub), remember_s=3600.0)
        await ended(hub)
        hub.approvals.adopt(asks(remember=["1h"], **demand)["approvals"])
        await hub.calls.start(deletion("again"), "bot")
        assert (await question(hub)).call_id == "again"


@pytest.mark.usefixtures("hidden")
async def test_arguments_that_are_withheld_cannot_be_changed(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub, arguments={"repo": "hunter2-hunter2"})
        request = await question(hub)
        with pytest.raises(InvalidArgument):
            await approve(hub, request, arguments=payload.loads(request.request)["arguments"])
        assert not asking.peer.sent


async def test_an_approval_that_is_revoked_while_a_call_is_queued_lets_it_pass_no_more(asking: World) -> None:
    async def serve(sent: Sent) -> Outcome:
        await anyio.sleep(30 if sent.params["name"] == "u" else 0)
        return {"content": []}

    asking.peer.behaviour = serve
    async with asking.hub(server(max_in_flight=1)) as hub:
        await start(hub)
        await approve(hub, await question(hub), remember_s=3600.0)
        await ended(hub)
        await hub.calls.start(raw({"name": "u"}, "first"), "bot")
        await hub.calls.start(deletion("again"), "bot")
        assert hub.calls.get("again").state is CallState.QUEUED
        (remembered,) = hub.approvals.remembered.list_valid()
        await hub.approvals.remembered.revoke(remembered.id)
        assert (await question(hub)).call_id == "again"
        assert [sent.params["name"] for sent in asking.peer.sent] == ["t", "u"]
