"""The tools with which hosts ask people: a question, and whether the host may use a tool of its own."""

import asyncio
import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Role
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept, Decline
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.downstream import McpEndpoint, McpHost, ProfileView
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.approving import approve, deny, rules
from ..runtime.conftest import World, open_requests, question, server, settle, until
from .scripted import REVISIONS, ScriptedHost, handles, principal

WORDS = "Do not call it again unless the person asks for it."
BASH: dict[str, Any] = {"tool_name": "Bash", "input": {"command": "git push", "n": 1.0}, "tool_use_id": "u1"}


@pytest.fixture(params=Era)
def era(request: pytest.FixtureRequest) -> Era:
    """The kind of revision that the host has."""
    return request.param


@pytest.fixture
def peopled(world: World) -> World:
    """A hub whose default profile has the tools."""
    world.settings |= {"mcp_profiles": {"default": ProfileSettings(people=True)}}
    return world


def host_of(hub: Hub, era: Era, *, capabilities: dict[str, Any] | None = None, **settings: Any) -> ScriptedHost:
    """A host of a profile with the tools."""
    kept = ProfileSettings.model_validate({"people": True, **settings})
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: kept), handles(hub))
    host = McpHost(
        principal=principal(),
        revision=REVISIONS[era],
        info={"name": "claude-code", "version": "2.1"},
        capabilities=capabilities or {},
    )
    return ScriptedHost(endpoint, host, clock=hub.clock.steady)


async def ask(host: ScriptedHost, **arguments: Any) -> dict[str, Any]:
    """The response to a question."""
    return await host.call(name="hubbub_ask", arguments={"message": "Which one?", **arguments})


async def permit(host: ScriptedHost, **arguments: Any) -> dict[str, Any]:
    """What a host is asked to do; its result has one block of text."""
    response = await host.call(name="hubbub_permit", arguments={**BASH, **arguments})
    (block,) = response["result"]["content"]
    assert "isError" not in response["result"]
    return json.loads(block["text"])


async def test_the_tools_are_listed_where_the_profile_says_so(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        for people, names in ((True, ["hubbub_result", "hubbub_ask", "hubbub_permit"]), (False, ["hubbub_result"])):
            listed = (await host_of(hub, era, people=people).call("tools/list", cursor=None))["result"]["tools"]
            assert [tool["name"] for tool in listed] == names


async def test_a_person_answers_a_question_of_the_model_in_the_inbox(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(ask(host_of(hub, era), choices=["red", "blue"], to=["ada"], urgency="high"))
        request = await question(hub)
        asked = json.loads(request.request)
        assert (request.server, request.kind, request.principal) == ("host", RequestKind.ELICITATION_FORM, "me")
        assert asked["message"] == "Which one?\n\nFor: ada"
        assert asked["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
        assert asked["_meta"] == {"hubbub/to": ["ada"], "hubbub/urgency": "high"}
        await hub.inbox.answer(request.id, Accept({"answer": "red"}), "ada", answer_id=None, claim_id=None)
        result = (await call)["result"]
        assert json.loads(result["content"][0]["text"]) == {"answer": "red"}
        assert result["structuredContent"] == {"action": "accept", "content": {"answer": "red"}}
        assert result.get("resultType") == (None if era is Era.HANDSHAKE else "complete")


async def test_a_declined_question_is_an_error_in_words(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(ask(host_of(hub, era)))
        request = await question(hub)
        await hub.inbox.answer(request.id, Decline(), "ada", answer_id=None, claim_id=None)
        result = (await call)["result"]
        assert result["isError"]
        assert "declined to answer" in result["content"][0]["text"]


async def test_a_question_that_takes_long_is_a_ticket_and_outlives_the_hub(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        ticket = (await ask(host_of(hub, era, hold_s=5)))["result"]
        fetch: dict[str, Any] = {"name": "hubbub_result", "arguments": {"call_id": ticket["_meta"]["hubbub/callId"]}}
        (asked,) = open_requests(hub)
        assert f"hubbub inbox show {asked.id}" in ticket["content"][0]["text"]
    async with peopled.hub(server()) as hub:
        (request,) = open_requests(hub)
        assert request.id == asked.id
        await hub.inbox.answer(request.id, Accept({"answer": "x"}), "ada", answer_id=None, claim_id=None)
        result = (await host_of(hub, era).call(**fetch))["result"]
        assert result["structuredContent"]["content"] == {"answer": "x"}


async def test_a_question_can_be_a_task(peopled: World) -> None:
    async with peopled.hub(server()) as hub:
        tasks: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        host = host_of(hub, Era.STATELESS, capabilities=tasks)
        created = (await ask(host))["result"]
        assert (created["resultType"], created["status"]) == ("task", "working")
        request = await question(hub)
        await hub.inbox.answer(request.id, Accept({"answer": "x"}), "ada", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(created["taskId"]).state.ended)
        task = (await host.call("tasks/get", taskId=created["taskId"]))["result"]
        assert task["result"]["structuredContent"]["content"] == {"answer": "x"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"message": " "}, "message must be a text"),
        ({"message": "x" * 8001}, "at most 8000 characters"),
        ({"choices": []}, "choices must be a list"),
        ({"choices": ["a"] * 51}, "choices must be a list"),
        ({"choices": ["a"], "schema": {}}, "either choices or a schema"),
        ({"schema": {"type": "object", "properties": {"a": {"type": "object"}}}}, "schema.properties.a: type must be"),
        ({"schema": {"type": "array"}}, "an object with properties"),
        ({"schema": {"properties": {"a": {"type": "string", "enum": ["\ud800"]}}}}, "surrogate"),
        ({"to": [""]}, "to must be a list"),
        ({"urgency": "now"}, "urgency must be"),
    ],
)
async def test_a_question_that_nobody_could_answer_is_refused_with_what_is_wrong(
    peopled: World, era: Era, arguments: dict[str, Any], problem: str
) -> None:
    async with peopled.hub(server()) as hub:
        error = (await ask(host_of(hub, era), **arguments))["error"]
        assert error["code"] == -32602
        assert problem in error["message"]
        assert not open_requests(hub)


# Permissions


async def test_a_permission_is_an_approval_and_its_answer_the_json_that_the_host_takes(
    peopled: World, era: Era
) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), cwd="/src/shop"))
        request = await question(hub)
        document = json.loads(request.request)
        assert (request.server, request.kind) == ("host", RequestKind.APPROVAL)
        assert (document["tool"]["name"], document["arguments"]) == ("Bash", BASH["input"])
        assert (document["cwd"], document["caller"]["host"]) == ("/src/shop", "claude-code 2.1")
        await approve(hub, request)
        assert await call == {"behavior": "allow", "updatedInput": BASH["input"]}


async def test_changed_arguments_are_those_that_the_host_uses(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), input=json.dumps(BASH["input"])))
        await approve(hub, await question(hub), arguments={"command": "git status"})
        assert await call == {"behavior": "allow", "updatedInput": {"command": "git status"}}


@pytest.mark.parametrize("form", ["tool", "hook"])
async def test_a_denial_has_the_shape_and_the_words(peopled: World, era: Era, form: str) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), form=form))
        await deny(hub, await question(hub), "not on main")
        decision = {"behavior": "deny", "message": f"A person said no to this call: not on main. {WORDS}"}
        hook = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        assert await call == (hook if form == "hook" else decision)


async def test_rules_decide_before_people_are_asked(peopled: World, era: Era) -> None:
    peopled.settings |= rules(
        {"servers": ["host"], "tools": ["Bash"], "when": "args.command.startsWith('git ')", "action": "allow"},
        {"name": "shell", "servers": ["host"], "tools": ["Bash"], "action": "deny", "message": "Only git."},
    )
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        assert (await permit(host))["behavior"] == "allow"
        denied = await permit(host, input={"command": "rm -rf /"})
        assert denied["message"] == f"A rule of the hub (shell) does not allow this call: Only git. {WORDS}"
        asked = asyncio.create_task(permit(host, tool_name="Edit"))
        await approve(hub, await question(hub))
        assert (await asked)["behavior"] == "allow"


async def test_without_an_answer_in_time_it_is_denied_and_the_repeat_takes_the_question_over(
    peopled: World, era: Era
) -> None:
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era, hold_s=30)
        assert await permit(host) == {
            "behavior": "deny",
            "message": "Nobody answered in 30 s. The question is still open: ask again, and wait for it.",
        }
        first = await question(hub)
        again = asyncio.create_task(permit(host, tool_use_id="u2"))
        await asyncio.sleep(5)
        assert open_requests(hub) == [hub.inbox.get(first.id)]
        await approve(hub, first)
        assert (await again)["behavior"] == "allow"


async def test_an_answer_that_nobody_has_heard_is_used_once(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era, hold_s=30)
        await permit(host)
        await approve(hub, await question(hub))
        await until(lambda: all(call.state.ended for call in hub.calls.select(CallFilter())))
        assert (await permit(host, input={"command": "git push -f"}))["behavior"] == "deny"
        assert (await permit(host))["behavior"] == "allow"
        assert (await permit(host))["behavior"] == "deny"
        assert len(hub.calls.select(CallFilter())) == 3


async def test_two_requests_at_once_do_not_share_an_answer(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        both = [asyncio.create_task(permit(host)) for _ in range(2)]
        await until(lambda: len(open_requests(hub)) == 2)
        for request in open_requests(hub):
            await approve(hub, request)
        assert [each["behavior"] for each in await asyncio.gather(*both)] == ["allow", "allow"]


async def test_an_open_permission_is_taken_over_after_a_restart(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        await permit(host_of(hub, era, hold_s=5))
        (first,) = open_requests(hub)
    async with peopled.hub(server()) as hub:
        again = asyncio.create_task(permit(host_of(hub, era)))
        await settle()
        (request,) = open_requests(hub)
        assert request.id == first.id
        await approve(hub, request)
        assert (await again)["behavior"] == "allow"


async def test_a_host_that_hangs_up_takes_its_question_back(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era)))
        await question(hub)
        call.cancel()
        await until(lambda: not open_requests(hub))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"tool_name": ""}, "tool_name must be"),
        ({"input": "{"}, "input is a text that is not JSON"),
        ({"input": []}, "input must be an object"),
        ({"cwd": 1}, "cwd must be"),
        ({"form": "other"}, "form must be"),
    ],
)
async def test_a_permission_that_cannot_be_asked_for_is_refused(
    peopled: World, era: Era, arguments: dict[str, Any], problem: str
) -> None:
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        error = (await host.call(name="hubbub_permit", arguments={**BASH, **arguments}))["error"]
        assert (error["code"], problem in error["message"]) == (-32602, True)


async def test_a_host_without_the_permission_to_call_is_told_so(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        host.host.principal = principal("bot").__class__(
            name="bot", grants=(Grant(Role.CALLER, ("one",)),), credential="b"
        )
        assert "has no permission to call 'host'" in (await ask(host))["error"]["message"]
