"""Calls that a rule wants approved: held before they are sent, and sent once as they were approved."""

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.config.sections.approvals import ApprovalSettings
from hubbubd.core.calls.call_states import CallOrigin, CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, Result
from hubbubd.core.inbox.request_states import Delivery, RequestKind, RequestState
from hubbubd.core.servers.catalog import CatalogKind, list_id
from hubbubd.errors import FailedPrecondition, InvalidArgument, PermissionDenied, ResourceExhausted
from hubbubd.runtime.diagnostics.findings import Severity
from hubbubd.runtime.diagnostics.rule_checks import check_rules
from hubbubd.upstream.ports import Era

from ..raising import raising
from .approving import ARGUMENTS, approve, asks, connected, deletion, deny, offer, rules, start, tool
from .conftest import World, open_requests, question, server, settle, spec, until
from .mortal import DONE, ELICIT, answer, ended, killed, needs, script
from .noted import Noted
from .peer import gives


@pytest.fixture
def asking(world: World) -> World:
    """A hub that asks about the tool `t` of the server `one`."""
    world.settings |= asks(remember=["1h", "1d"])
    offer(world, tool(), tool("u"))
    return world


async def test_a_call_waits_without_a_slot_until_it_is_approved_and_is_sent_once_as_it_was_shown(asking: World) -> None:
    async with asking.hub(server(max_in_flight=1, call_timeout_s=5.0, call_max_s=10.0)) as hub:
        await start(hub, origin=CallOrigin(host="claude-code 2.1", profile="default", roles=("caller",)))
        request = await question(hub)
        document = payload.loads(request.request)
        assert (request.kind, request.call_id, request.principal) == (RequestKind.APPROVAL, "c", "bot")
        assert document["arguments"] == ARGUMENTS
        assert document["tool"] == tool()
        assert document["caller"] == {
            "name": "bot",
            "host": "claude-code 2.1",
            "profile": "default",
            "roles": ["caller"],
            "app": False,
        }
        assert (await hub.calls.call(spec("u"), "bot")).state is CallState.COMPLETED
        await anyio.sleep(3600)  # far beyond the times of the call
        call = hub.calls.get("c")
        assert (call.state, call.started_at, call.pending_ids) == (CallState.WAITING_INPUT, None, (request.id,))
        assert [sent.params["name"] for sent in asking.peer.sent] == ["u"]
        await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [sent.params for sent in asking.peer.sent[1:]] == [{"name": "t", "arguments": ARGUMENTS}]
        settled = hub.inbox.get(request.id)
        assert (settled.state, settled.delivery) == (RequestState.ANSWERED, Delivery.DELIVERED)
        assert [vote.by for vote in hub.calls.get("c").approval.votes] == ["ada"]


async def test_a_denied_call_ends_with_the_reason_and_is_never_sent(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        await deny(hub, await question(hub), "not on a Friday")
        call = await ended(hub)
        assert (call.state, call.fault.code) == (CallState.FAILED, "APPROVAL_DENIED")
        assert call.fault.message == "ada said no to this call: not on a Friday"
        assert not asking.peer.sent
        (request,) = hub.inbox.select(RequestFilter())
        assert request.delivery is Delivery.DELIVERED


async def test_silence_is_no(world: World) -> None:
    world.settings |= rules({"action": "ask"}, expires_after_s=600)
    async with world.hub(server()) as hub:
        await start(hub)
        await question(hub)
        await anyio.sleep(601)
        call = await ended(hub)
        assert call.fault.code == "APPROVAL_EXPIRED"
        assert "nobody approved it within 600 s" in call.fault.message
        assert not world.peer.sent


async def test_changed_arguments_are_checked_shown_and_sent_in_place_of_the_others(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        with pytest.raises(InvalidArgument) as refused:
            await approve(hub, request, arguments={"repo": 1})
        assert refused.value.violations[0][0] == "approve.arguments.repo"
        assert hub.inbox.get(request.id).state is RequestState.OPEN
        changed = {"repo": "shop", "branch": "old", "ü": [1.0, 2**60]}
        await approve(hub, request, arguments=changed)
        call = await ended(hub)
        assert asking.peer.sent[0].params == {"name": "t", "arguments": changed}
        assert payload.loads(call.params)["arguments"] == ARGUMENTS
        assert payload.loads(call.approval.arguments) == changed


async def test_a_rule_can_forbid_to_change_arguments(world: World) -> None:
    world.settings |= asks(edit=False)
    async with world.hub(server()) as hub:
        await start(hub)
        with pytest.raises(InvalidArgument):
            await approve(hub, await question(hub), arguments={"repo": "other"})


async def test_an_approval_of_arguments_that_the_call_never_had_is_refused(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        with pytest.raises(InvalidArgument) as refused:
            await approve(hub, await question(hub), digest="sha256:0")
        assert refused.value.violations[0][0] == "approve.digest"


async def test_two_different_people_have_to_approve_the_same_arguments(world: World) -> None:
    world.settings |= asks(needed=2, not_by_caller=True)
    async with world.hub(server()) as hub:
        await start(hub)
        first = await question(hub)
        with pytest.raises(PermissionDenied):
            await approve(hub, first, "bot")
        await approve(hub, first, "ada")
        with raising(FailedPrecondition, "ALREADY_APPROVED"):
            await approve(hub, first, "ada")
        await approve(hub, first, "ben", arguments={"repo": "other"})
        assert [vote.by for vote in hub.inbox.get(first.id).votes] == ["ben"]
        with raising(FailedPrecondition, "ARGUMENTS_CHANGED"):
            await approve(hub, first, "cy")
        assert not world.peer.sent
        await approve(hub, hub.inbox.get(first.id), "ada")
        await ended(hub)
        assert world.peer.sent[0].params["arguments"] == {"repo": "other"}


async def test_only_those_whom_the_rule_names_may_approve_or_deny(world: World) -> None:
    world.settings |= asks(approvers=["ada", "oidc-role:release", "cert:*.ops"])
    async with world.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        for answered in (approve(hub, request, "ben"), deny(hub, request, by="ben")):
            with raising(PermissionDenied, "NOT_AN_APPROVER"):
                await answered
        await approve(hub, request, "oidc:ben", groups=frozenset({"release"}))
        assert (await ended(hub)).state is CallState.COMPLETED


@pytest.mark.parametrize("given", [Accept({}), Result({"action": "accept"})])
async def test_no_other_answer_approves_a_call(asking: World, given: Any) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        with pytest.raises(InvalidArgument):
            await answer(hub, await question(hub), given)
        assert not asking.peer.sent


async def test_a_remembered_approval_lets_the_same_caller_call_again_until_it_ends_or_is_revoked(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        with pytest.raises(InvalidArgument):
            await approve(hub, await question(hub), remember_s=7.0)
        await approve(hub, await question(hub), remember_s=3600.0)
        await ended(hub)
        await start(hub, "again", arguments={"repo": "other"})
        assert (await ended(hub, "again")).state is CallState.COMPLETED
        await start(hub, "of another", "other-bot")
        await deny(hub, await question(hub))
        (remembered,) = hub.approvals.remembered.list_valid()
        assert (remembered.caller, remembered.tool, remembered.approved_by) == ("bot", "t", ("ada",))
        await hub.approvals.remembered.revoke(remembered.id)
        await start(hub, "revoked")
        await approve(hub, await question(hub), remember_s=3600.0)
        await ended(hub, "revoked")
        await anyio.sleep(3601)
        assert not hub.approvals.remembered.list_valid()
        await start(hub, "later")
        await question(hub)


async def test_an_approval_for_the_same_arguments_holds_for_no_others(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        await approve(hub, await question(hub), remember_s=3600.0, same_arguments=True)
        await ended(hub)
        await start(hub, "same", arguments=dict(reversed(ARGUMENTS.items())))
        assert (await ended(hub, "same")).state is CallState.COMPLETED
        await start(hub, "other", arguments={"repo": "other"})
        await question(hub)


async def test_a_remembered_approval_does_not_hold_for_a_changed_tool(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        await approve(hub, await question(hub), remember_s=3600.0)
        await ended(hub)
        offer(asking, tool(description="Deletes the repository"))
        asking.peer.link.tell("notifications/tools/list_changed")
        await settle(60)
        await start(hub, "again")
        assert "repository" in payload.loads((await question(hub)).request)["tool"]["description"]


async def test_people_are_asked_again_if_the_tool_changes_while_they_look(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        first = await question(hub)
        offer(asking, tool(annotations={"readOnlyHint": True}))
        asking.peer.link.tell("notifications/tools/list_changed")
        await approve(hub, first)
        await until(lambda: open_requests(hub) and open_requests(hub)[0].id != first.id)
        second = await question(hub)
        assert payload.loads(second.request)["reason"].startswith("the server has changed the definition")
        assert hub.calls.get("c").started_at is None
        assert not asking.peer.sent
        await approve(hub, second)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert len(asking.peer.sent) == 1


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"name": "deletes", "action": "deny"}, "APPROVAL_RULE_DENIED"),
        ({"name": "deletes", "action": "ask", "needed": 2}, None),
        ({"name": "deletes", "action": "ask", "approvers": ["cy"]}, None),
    ],
)
async def test_the_stricter_rule_counts_at_sending(asking: World, changed: dict[str, Any], code: str | None) -> None:
    async with asking.hub(server(max_in_flight=1)) as hub:
        await start(hub)
        request = await question(hub)
        hub.approvals.adopt(ApprovalSettings.model_validate({"rules": [changed]}))
        await approve(hub, request)
        if code is not None:
            assert (await ended(hub)).fault.code == code
        else:
            await until(lambda: [r.id for r in open_requests(hub)] not in ([], [request.id]))
        assert not asking.peer.sent


async def test_a_rule_that_comes_while_a_call_is_queued_asks_before_it_is_sent(world: World) -> None:
    async with world.hub(server()) as hub:
        world.peer.plan.append(5.0)
        await hub.calls.start(deletion(), "bot")
        hub.approvals.adopt(ApprovalSettings.model_validate({"default": "ask"}))
        request = await question(hub)
        assert not world.peer.sent
        await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED


async def test_a_call_that_waited_for_its_turn_is_judged_by_the_time_at_which_it_is_sent(world: World) -> None:
    world.peer.plan.append(5.0)
    async with world.hub(server()) as hub:
        soon = datetime.fromtimestamp(hub.clock.now() + 3, UTC).isoformat()
        later = {"tools": ["t"], "when": f"now > timestamp('{soon}')"}
        hub.approvals.adopt(ApprovalSettings.model_validate({"rules": [later]}))
        await hub.calls.start(deletion(), "bot")
        assert hub.calls.get("c").state is CallState.QUEUED
        await question(hub)
        assert not world.peer.sent


async def test_a_rule_that_denies_refuses_the_call_at_once(world: World) -> None:
    world.settings |= rules({"name": "never", "action": "deny", "message": "Ask ops."})
    async with world.hub(server()) as hub:
        with raising(PermissionDenied, "APPROVAL_RULE_DENIED") as refused:
            await start(hub)
        assert "Ask ops." in refused.value.message


async def test_a_cancelled_call_takes_its_question_along(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        await hub.calls.cancel("c", abort=False)
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)
        with pytest.raises(FailedPrecondition):
            await approve(hub, request)
        assert not asking.peer.sent


async def test_a_call_whose_caller_hangs_up_ends_with_its_question(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await connected(hub)
        async with anyio.create_task_group() as callers:
            callers.start_soon(hub.calls.call, deletion(), "bot")
            request = await question(hub)
            callers.cancel_scope.cancel()
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)
        assert (await ended(hub)).state is CallState.CANCELLED


async def test_a_repeat_under_the_same_id_joins_the_call_and_its_question(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        await start(hub)
        await approve(hub, await question(hub))
        await ended(hub)
        await start(hub)
        assert len(asking.peer.sent) == 1


async def test_the_further_rounds_of_an_approved_call_need_no_other_approval(asking: World) -> None:
    script(asking, needs(a=ELICIT), DONE, era=Era.STATELESS)
    asking.peer.listing = gives({"tools": [tool()]})
    async with asking.hub(server()) as hub:
        await start(hub)
        await approve(hub, await question(hub), arguments={"repo": "other"})
        await until(lambda: len(asking.peer.sent) == 1)
        await answer(hub, await question(hub))
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [sent.params["arguments"] for sent in asking.peer.sent] == [{"repo": "other"}] * 2


async def test_a_held_call_waits_on_after_a_restart(asking: World) -> None:
    async with killed(asking, server()) as hub:
        await start(hub)
        request = await question(hub)
    async with asking.hub(server()) as hub:
        await settle(30)
        assert hub.calls.get("c").state is CallState.WAITING_INPUT
        assert not asking.peer.sent
        await approve(hub, request, arguments={"repo": "other"})
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [sent.params["arguments"] for sent in asking.peer.sent] == [{"repo": "other"}]


async def test_an_approval_counts_after_a_restart_before_the_call_was_sent(asking: World) -> None:
    async with killed(asking, server()) as hub:
        await start(hub)
        request = await question(hub)
        asking.peer.link.lose()
        asking.peer.always = 10**6
        await settle()
        await approve(hub, request, arguments={"repo": "other"})
        await until(lambda: hub.calls.get("c").state is CallState.QUEUED)
        await settle()
    asking.peer.always = None
    async with asking.hub(server()) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [sent.params["arguments"] for sent in asking.peer.sent] == [{"repo": "other"}]


async def test_arguments_that_nobody_could_read_are_refused(asking: World) -> None:
    async with asking.hub(server()) as hub:
        with raising(FailedPrecondition, "APPROVAL_TOO_LARGE"):
            await start(hub, arguments={"repo": "x" * 2**20})


async def test_arguments_that_are_no_object_are_refused(asking: World) -> None:
    async with asking.hub(server()) as hub:
        with pytest.raises(InvalidArgument):
            await start(hub, arguments=["release/1.4"])


async def test_the_number_of_held_calls_is_bounded_as_that_of_open_questions(asking: World) -> None:
    asking.settings |= {"open_requests_per_server": 2}
    async with asking.hub(server()) as hub:
        await start(hub, "a")
        await start(hub, "b")
        with pytest.raises(ResourceExhausted):
            await start(hub, "c")
        assert hub.calls.find("c") is None or hub.calls.get("c").state.ended


async def test_confirm_writes_asks_about_all_tools_that_do_not_only_read(world: World) -> None:
    offer(world, tool("t"), tool("u", annotations={"readOnlyHint": True}))
    async with world.hub(server(confirm="writes")) as hub:
        await connected(hub)
        assert (await hub.calls.call(spec("u"), "bot")).state is CallState.COMPLETED
        await start(hub)
        assert payload.loads((await question(hub)).request)["rule"]["name"] == "confirm of one"


async def test_a_call_is_not_asked_about_before_its_server_has_said_that_the_tool_only_reads(world: World) -> None:
    offer(world, tool("t"), tool("u", annotations={"readOnlyHint": True}))
    world.peer.plan.append(5.0)
    async with world.hub(server(confirm="writes")) as hub:
        await hub.calls.start(deletion(), "bot")
        assert not open_requests(hub)
        assert (await hub.calls.call(spec("u"), "bot")).state is CallState.COMPLETED
        request = await question(hub)
        assert payload.loads(request.request)["tool"]["inputSchema"] == tool()["inputSchema"]
        assert [sent.params["name"] for sent in world.peer.sent] == ["u"]
        await approve(hub, request)
        assert (await ended(hub)).state is CallState.COMPLETED


async def test_a_call_that_was_approved_before_its_server_was_there_is_asked_about_again(asking: World) -> None:
    asking.peer.plan.append(5.0)
    async with asking.hub(server()) as hub:
        await hub.calls.start(deletion(), "bot")
        unseen = await question(hub)
        await approve(hub, unseen)
        await until(lambda: open_requests(hub) and open_requests(hub)[0].id != unseen.id)
        assert "not known when" in payload.loads((await question(hub)).request)["reason"]


async def test_the_owner_removes_a_server_with_held_calls(asking: World) -> None:
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        await hub.servers.disconnect("one")
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)
        assert (await ended(hub)).fault.code == "SERVER_DISCONNECTED"


async def test_the_trace_has_the_rule_the_wait_and_the_outcome_of_an_approval(asking: World) -> None:
    asking.tracer = Noted()
    async with asking.hub(server()) as hub:
        await start(hub)
        request = await question(hub)
        await anyio.sleep(30)
        await approve(hub, request)
        await ended(hub)
        await settle()
    (approval,) = [told for told in asking.tracer.told if told.span.name == "approval"]
    (call,) = [told for told in asking.tracer.told if told.span.name.startswith("call ")]
    assert approval.span.trace.parent_id == call.span.trace.span_id
    assert approval.attributes["hubbub.approval.rule"] == "deletes"
    assert approval.attributes["hubbub.approval.outcome"] == "approved"
    assert approval.attributes["hubbub.approval.wait_s"] == pytest.approx(30, abs=1)
    asking.tracer.check()


async def test_the_doctor_names_rules_whose_patterns_match_nothing(world: World) -> None:
    world.settings |= rules(
        {"name": "there", "servers": ["one"], "tools": ["t*"]},
        {"name": "away", "servers": ["one", "tow"]},
        {"name": "gone", "servers": ["one"], "tools": ["t", "delete_*"]},
    )
    offer(world, tool())
    async with world.hub(server()) as hub:
        await until(lambda: list(hub.catalog.entries(list_id("one", CatalogKind.TOOL))))
        assert [(each.severity, each.message) for each in check_rules(hub)] == [
            (Severity.WARN, "rule 'away': no server matches 'tow'"),
            (Severity.WARN, "rule 'gone': no tool of 'one' matches 'delete_*'"),
        ]
