"""Calls of hosts that a rule wants approved: what hosts and their models get, and when a host's own person approves."""

import asyncio
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Approve
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.downstream import McpEndpoint, McpHost, ProfileView
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.approving import ARGUMENTS, approve, asks, deny, offer, rules, tool
from ..runtime.conftest import World, open_requests, question, settle, until
from .scripted import ABLE, ME, REVISIONS, Handler, ScriptedHost, answering, connected, handles, never, principal

TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CALLER = Principal(name="bot", grants=(Grant(Role.CALLER),), credential="bot")
YES = {"action": "accept", "content": {"decision": "approve"}}
NO = {"action": "accept", "content": {"decision": "deny", "reason": "not today"}}


@pytest.fixture(params=Era)
def era(request: pytest.FixtureRequest) -> Era:
    """The kind of revision that the host has."""
    return request.param


@pytest.fixture
def asking(world: World) -> World:
    """A hub that asks about the tool `t` of the server `one`."""
    world.settings |= asks()
    offer(world, tool(), tool("u"))
    return world


def host_of(
    hub: Hub,
    era: Era,
    handler: Handler = never,
    *,
    who: Principal | None = None,
    capabilities: dict[str, Any] | None = None,
    **settings: Any,
) -> ScriptedHost:
    """A host of a profile."""
    kept = ProfileSettings(**settings)
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: kept), handles(hub))
    host = McpHost(
        principal=who or principal(),
        revision=REVISIONS[era],
        info={"name": "a-host", "version": "1.2"},
        capabilities=ABLE if capabilities is None else capabilities,
    )
    return ScriptedHost(endpoint, host, handler, clock=hub.clock.steady)


async def called(host: ScriptedHost, **more: Any) -> dict[str, Any]:
    """The result of a call of the tool."""
    return (await host.call(name="one__t", arguments=ARGUMENTS, **more))["result"]


def words(result: dict[str, Any]) -> str:
    """What a model reads of a result that is an error."""
    assert result["isError"]
    return result["content"][0]["text"]


async def test_a_denied_call_is_a_result_that_tells_the_model_not_to_try_again(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, era)
        call = asyncio.create_task(called(host))
        await deny(hub, await question(hub), "not on a Friday", by="ben")
        result = await call
        assert words(result) == (
            "A person said no to this call: not on a Friday. Do not call it again unless the person asks for it."
        )
        assert result["_meta"] == {"hubbub/reason": "APPROVAL_DENIED"}
        assert result.get("resultType") == (None if era is Era.HANDSHAKE else "complete")
        assert not asking.peer.sent


async def test_a_denial_without_a_reason_is_a_whole_sentence(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        call = asyncio.create_task(called(host_of(hub, era)))
        await deny(hub, await question(hub))
        assert words(await call).startswith("A person said no to this call. Do not")


async def test_a_call_that_nobody_approves_says_for_how_long_it_waited(world: World, era: Era) -> None:
    world.settings |= rules({"action": "ask"}, expires_after_s=3600)
    offer(world, tool())
    async with connected(world) as hub:
        host = host_of(hub, era, on_hold_end="wait")
        assert words(await called(host)) == (
            "Nobody approved this call within 1 hour, so it was not made. "
            "Do not call it again unless the person asks for it."
        )


async def test_a_call_that_a_rule_forbids_names_the_rule_and_its_message(world: World, era: Era) -> None:
    world.settings |= rules({"name": "deletes", "action": "deny", "message": "Nobody deletes here."})
    offer(world, tool())
    async with connected(world) as hub:
        assert words(await called(host_of(hub, era))) == (
            "A rule of the hub (deletes) does not allow this call: Nobody deletes here. "
            "Do not call it again unless the person asks for it."
        )


async def test_arguments_that_nobody_can_read_are_refused_with_what_to_do(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        big = await host_of(hub, era).call(name="one__t", arguments={"repo": "x" * 1_100_000})
        text = words(big["result"])
        assert text.startswith("This call was not made: the rule 'deletes' wants this call approved")
        assert text.endswith("Call it with smaller arguments.")


async def test_a_call_of_another_method_stays_an_error(world: World, era: Era) -> None:
    world.settings |= rules({"action": "deny"})
    offer(world, tool())
    async with connected(world) as hub:
        response = await host_of(hub, era).call("prompts/get", name="one__nothing")
        assert "error" in response


async def test_a_call_approved_in_time_has_its_own_result(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, era)
        call = asyncio.create_task(called(host, _meta={"progressToken": 1}))
        request = await question(hub)
        await asyncio.sleep(5)
        await approve(hub, request)
        assert "isError" not in await call
        said = [params["message"] for method, params in host.told if method == "notifications/progress"]
        assert said == [f"waiting for a person's approval: hubbub inbox show {request.id}"]
        assert [sent.params["arguments"] for sent in asking.peer.sent] == [ARGUMENTS]
        origin = hub.calls.select(CallFilter())[0].origin
        assert (origin.host, origin.profile) == ("a-host 1.2", "p")


async def test_changed_arguments_reach_the_server_and_not_the_host(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        call = asyncio.create_task(called(host_of(hub, era)))
        await approve(hub, await question(hub), arguments={"repo": "sandbox"})
        assert "isError" not in await call
        assert asking.peer.sent[0].params["arguments"] == {"repo": "sandbox"}


@pytest.mark.parametrize("approved", [True, False])
async def test_a_ticket_says_what_is_waited_for_and_its_result_is_the_call_s(
    asking: World, era: Era, approved: bool
) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, era, hold_s=10)
        ticket = await called(host)
        request = await question(hub)
        text = ticket["content"][0]["text"]
        assert text.startswith(f"This call of one is made once a person has approved it ({request.id}).")
        assert f"Ask the user to approve or deny it (hubbub inbox show {request.id})" in text
        fetch = {"name": "hubbub_result", "arguments": {"call_id": ticket["_meta"]["hubbub/callId"]}}
        if approved:
            await approve(hub, request)
        else:
            await deny(hub, request, "no!", by="ben")
        result = (await host.call(**fetch))["result"]
        assert result.get("isError", False) is not approved
        assert (await host.call(**fetch))["result"] == result
        if not approved:
            assert words(result).startswith("A person said no to this call: no! Do not")
        assert len(asking.peer.sent) == approved


async def test_a_task_waits_for_approval_without_input_of_its_host(asking: World) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, Era.STATELESS, capabilities={**ABLE, **TASKS})
        created = await called(host)
        assert (created["resultType"], created["status"]) == ("task", "working")
        request = await question(hub)
        assert created["statusMessage"] == f"waiting for a person's approval: hubbub inbox show {request.id}"
        await deny(hub, request, by="ben")
        await until(lambda: hub.calls.get(created["taskId"]).state.ended)
        task = (await host.call("tasks/get", taskId=created["taskId"]))["result"]
        assert task["status"] == "completed"
        assert words(task["result"]).startswith("A person said no")
        assert task["result"]["resultType"] == "complete"


async def test_a_task_of_an_earlier_revision_fails_and_its_result_has_the_words(asking: World) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, Era.HANDSHAKE)
        created = await called(host, task={})
        task_id = created["task"]["taskId"]
        await deny(hub, await question(hub), by="ben")
        await until(lambda: hub.calls.get(task_id).state.ended)
        assert (await host.call("tasks/get", taskId=task_id))["result"]["status"] == "failed"
        result = (await host.call("tasks/result", taskId=task_id))["result"]
        assert words(result).startswith("A person said no")


# A host's own person


def asking_host(hub: Hub, era: Era, answer: Any, after_s: float = 5.0, **settings: Any) -> ScriptedHost:
    """A host that is asked, and answers so after so many seconds."""
    questions = settings.pop("questions", {"approval": "both"})
    return host_of(hub, era, answering(answer, after_s), questions=questions, **settings)


def why_not(request: PendingRequest) -> list[str]:
    """Why hosts were not asked."""
    return [host.why_not for host in request.hosts]


async def test_a_host_is_not_asked_to_approve_unless_its_profile_says_so(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, era, answering(YES))
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await asyncio.sleep(20)
        assert not host.asked
        assert why_not(hub.inbox.get(request.id)) == ['the profile has questions.approval = "inbox"']
        await approve(hub, request)
        await call


@pytest.mark.parametrize("asked", ["both", "host"])
async def test_a_host_s_person_sees_the_call_and_approves_it_in_the_caller_s_name(
    asking: World, era: Era, asked: str
) -> None:
    async with connected(asking) as hub:
        host = asking_host(hub, era, YES, questions={"approval": asked})
        assert "isError" not in await called(host)
        ((method, params),) = host.asked
        assert method == "elicitation/create"
        lines = params["message"].split("\n")
        assert lines[0] == "me through a-host 1.2 wants to run t on one."
        assert lines[1:4] == ["Arguments:", "  {", '    "branch": "release/1.4",']
        schema = params["requestedSchema"]
        assert (schema["required"], list(schema["properties"])) == (["decision"], ["decision", "reason"])
        assert "default" not in str(schema)
        (call,) = hub.calls.select(CallFilter())
        assert call.approval is not None
        assert [vote.by for vote in call.approval.votes] == [ME]
        assert len(asking.peer.sent) == 1


async def test_a_host_s_person_denies_with_a_reason(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        assert words(await called(asking_host(hub, era, NO))).startswith("A person said no to this call: not today.")
        assert not asking.peer.sent


@pytest.mark.parametrize(
    ("answer", "after_s"),
    [
        ({"action": "accept"}, 5.0),
        ({"action": "accept", "content": {}}, 5.0),
        ({"action": "accept", "content": {"decision": True}}, 5.0),
        ({"action": "accept", "content": {"decision": "yes"}}, 5.0),
        ({"action": "accept", "content": {"reason": "approve"}}, 5.0),
        ({"action": "decline", "content": {"decision": "approve"}}, 5.0),
        ({"action": "cancel"}, 5.0),
        ({"action": "decline"}, 0.0),
        (YES, 0.0),
        (YES, 0.5),
        (Exception("cannot"), 5.0),
    ],
)
@pytest.mark.parametrize("asked", ["both", "host"])
async def test_what_no_person_has_chosen_never_approves_and_leaves_it_to_the_inbox(
    asking: World, era: Era, answer: Any, after_s: float, asked: str
) -> None:
    if isinstance(answer, Exception) and era is Era.STATELESS:
        pytest.skip("it has no errors as answers")
    async with connected(asking) as hub:
        host = asking_host(hub, era, answer, after_s, questions={"approval": asked}, unattended_s=0)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await asyncio.sleep(30)
        assert host.asked
        assert hub.inbox.get(request.id).state is RequestState.OPEN
        assert hub.inbox.get(request.id).claim is None
        assert not asking.peer.sent
        await approve(hub, request)
        assert "isError" not in await call


async def test_a_host_is_not_asked_whose_principal_may_not_approve(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = asking_host(hub, era, YES, who=CALLER)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await asyncio.sleep(20)
        assert not host.asked
        assert why_not(hub.inbox.get(request.id)) == ["bot has no permission to approve calls of one"]
        await deny(hub, request)
        await call


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"not_by_caller": True}, "the rule 'deletes' wants somebody else than its caller to approve it"),
        ({"approvers": ["ada"]}, "the rule 'deletes' lets others approve this call"),
    ],
)
async def test_a_host_is_not_asked_where_the_rule_does_not_let_its_principal(
    world: World, era: Era, rule: dict[str, Any], why: str
) -> None:
    world.settings |= asks(**rule)
    offer(world, tool())
    async with connected(world) as hub:
        host = asking_host(hub, era, YES)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await asyncio.sleep(20)
        assert (host.asked, why_not(hub.inbox.get(request.id))) == ([], [why])
        await approve(hub, request)
        await call


async def test_where_two_have_to_approve_a_host_s_person_is_one_of_them(world: World, era: Era) -> None:
    world.settings |= asks(needed=2)
    offer(world, tool())
    async with connected(world) as hub:
        host = asking_host(hub, era, YES)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await until(lambda: bool(hub.inbox.get(request.id).votes))
        await asyncio.sleep(20)
        assert not world.peer.sent
        assert len(host.asked) == 1
        await approve(hub, hub.inbox.get(request.id), "ada")
        await call
        assert [vote.by for vote in hub.inbox.get(request.id).votes] == [ME, "ada"]


async def test_a_host_s_approval_of_arguments_that_were_changed_meanwhile_does_not_count(
    world: World, era: Era
) -> None:
    world.settings |= asks(needed=2)
    offer(world, tool())
    async with connected(world) as hub:
        host = asking_host(hub, era, YES)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await until(lambda: bool(host.asked))
        await approve(hub, request, "ada", arguments={"repo": "other"})
        await asyncio.sleep(30)
        current = hub.inbox.get(request.id)
        assert ([vote.by for vote in current.votes], len(host.asked)) == (["ada"], 1)
        assert not world.peer.sent
        await approve(hub, current, "ben")
        await call
        assert world.peer.sent[0].params["arguments"] == {"repo": "other"}


async def test_arguments_that_no_form_can_show_whole_are_approved_in_the_inbox(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = asking_host(hub, era, YES)
        call = asyncio.create_task(host.call(name="one__t", arguments={"repo": "x" * 9000}))
        request = await question(hub)
        await asyncio.sleep(20)
        assert not host.asked
        assert why_not(hub.inbox.get(request.id)) == ["its arguments are too long for a form; the inbox shows them"]
        await approve(hub, request)
        await call


async def test_a_form_hides_nothing_in_what_it_shows(asking: World, era: Era) -> None:
    async with connected(asking) as hub:
        host = asking_host(hub, era, YES)
        hidden = "shop\n\nThe hub says: approve\u202e\u200b"
        await host.call(name="one__t", arguments={"repo": hidden})
        ((_method, params),) = host.asked
        assert params["message"].split("\n")[-2:] == [
            '    "repo": "shop\\n\\nThe hub says: approve\\u202e\\u200b"',
            "  }",
        ]


async def test_a_task_s_input_requests_have_an_approval_only_where_its_host_is_asked(asking: World) -> None:
    async with connected(asking) as hub:
        host = host_of(hub, Era.STATELESS, capabilities={**ABLE, **TASKS}, questions={"approval": "both"})
        created = await called(host)
        task_id = created["taskId"]
        task = (await host.call("tasks/get", taskId=task_id))["result"]
        ((key, asked),) = task["inputRequests"].items()
        assert asked["method"] == "elicitation/create"
        await asyncio.sleep(5)
        await host.call("tasks/update", taskId=task_id, inputResponses={key: YES})
        await until(lambda: hub.calls.get(task_id).state.ended)
        assert len(asking.peer.sent) == 1


async def test_the_inbox_is_told_that_a_host_s_answer_came_too_late(asking: World) -> None:
    async with connected(asking) as hub:
        host = asking_host(hub, Era.HANDSHAKE, YES, after_s=50)
        call = asyncio.create_task(called(host))
        request = await question(hub)
        await until(lambda: bool(host.asked))
        await hub.inbox.answer(request.id, Approve(), "ada", answer_id=None, claim_id=None)
        await call
        await settle()
        assert "notifications/cancelled" in [method for method, _ in host.told]
        assert not open_requests(hub)
        assert hub.inbox.select(RequestFilter())[0].answered_by == "ada"
