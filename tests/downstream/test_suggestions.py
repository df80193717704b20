"""What a host suggests to allow beside one use of its own tool, and what it sees of that."""

import asyncio
import json
from typing import Any

import pytest

from hubbubd.core.filters import RequestFilter
from hubbubd.errors import InvalidArgument
from hubbubd.upstream.ports import Era

from ..runtime.approving import approve, rules
from ..runtime.conftest import World, open_requests, question, server
from .test_people import era as era
from .test_people import host_of, permit
from .test_people import peopled as peopled

PUSH: dict[str, Any] = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "git push:*"}],
    "behavior": "allow",
    "destination": "session",
}
EDITS = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
FOR_GOOD = {**PUSH, "rules": [{"toolName": "Bash"}], "destination": "userSettings"}
FOLDERS = {"type": "addDirectories", "directories": ["/src/a", "/src/b"], "destination": "localSettings"}
ALL = [PUSH, EDITS, FOR_GOOD, FOLDERS]


@pytest.mark.parametrize("form", ["tool", "hook"])
@pytest.mark.parametrize("as_text", [False, True])
async def test_the_suggestions_that_a_person_takes_go_to_the_host_as_it_gave_them(
    peopled: World, era: Era, form: str, as_text: bool
) -> None:
    async with peopled.hub(server()) as hub:
        given = json.dumps(ALL) if as_text else ALL
        call = asyncio.create_task(permit(host_of(hub, era), suggestions=given, form=form))
        request = await question(hub)
        shown = json.loads(request.request)["suggestions"]
        assert [(each["words"], each["lasting"]) for each in shown] == [
            ("allow Bash(git push:*) for this session", False),
            ("change files without asking (mode acceptEdits) for this session", False),
            ("allow every use of Bash for good, in all projects of this person", True),
            ("work in /src/a, /src/b for good, in this project, for this person", True),
        ]
        assert [each["permission"] for each in shown] == ALL
        settled = await approve(hub, request, suggestions=(3, 0, 0))
        assert json.loads(settled.answer.payload)["suggestions"] == [0, 3]
        told = await call
        decision = told["hookSpecificOutput"]["decision"] if form == "hook" else told
        assert (decision["behavior"], decision["updatedPermissions"]) == ("allow", [PUSH, FOLDERS])


async def test_what_nobody_takes_the_host_does_not_get(peopled: World, era: Era) -> None:
    peopled.settings |= rules({"servers": ["host"], "tools": ["Read"], "action": "allow"})
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        call = asyncio.create_task(permit(host, suggestions=ALL))
        await approve(hub, await question(hub))
        assert "updatedPermissions" not in await call
        assert (await permit(host, tool_name="Read", suggestions=ALL)).keys() == {"behavior", "updatedInput"}


async def test_of_two_people_both_have_to_take_a_suggestion(peopled: World, era: Era) -> None:
    peopled.settings |= rules({"name": "two", "servers": ["host"], "action": "ask", "needed": 2})
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), suggestions=ALL))
        request = await approve(hub, await question(hub), "ada", suggestions=(0, 1, 2))
        await approve(hub, request, "ben", suggestions=(1,))
        assert (await call)["updatedPermissions"] == [EDITS]


@pytest.mark.parametrize("indices", [(4,), (-1,), (0, 99)])
async def test_a_suggestion_that_is_not_there_cannot_be_taken(
    peopled: World, era: Era, indices: tuple[int, ...]
) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), suggestions=ALL))
        request = await question(hub)
        with pytest.raises(InvalidArgument) as refused:
            await approve(hub, request, suggestions=indices)
        ((field, _),) = refused.value.violations
        assert field == "approve.suggestions"
        await approve(hub, request)
        await call


async def test_suggestions_that_a_person_could_not_read_whole_are_not_offered(peopled: World, era: Era) -> None:
    strange: list[Any] = [
        {**PUSH, "destination": "elsewhere"},
        {**PUSH, "behavior": "sometimes"},
        {**PUSH, "more": True},
        {**PUSH, "rules": []},
        {**PUSH, "rules": [{"toolName": "Bash", "ruleContent": "x" * 600}]},
        {**PUSH, "rules": [{"toolName": "Bash", "other": 1}]},
        {**EDITS, "mode": "root"},
        {**FOLDERS, "directories": [1]},
        {**FOLDERS, "directories": ["/a"] * 21},
        {**PUSH, "type": ["addRules"]},
        "text",
        PUSH,
    ]
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), suggestions=strange))
        request = await question(hub)
        assert [each["permission"] for each in json.loads(request.request)["suggestions"]] == [PUSH]
        await approve(hub, request, suggestions=(0,))
        assert (await call)["updatedPermissions"] == [PUSH]


@pytest.mark.parametrize("given", ["${permission_suggestions}", "", None, {}, 1, "[" * 2000])
async def test_a_host_without_readable_suggestions_is_asked_about_all_the_same(
    peopled: World, era: Era, given: object
) -> None:
    async with peopled.hub(server()) as hub:
        call = asyncio.create_task(permit(host_of(hub, era), suggestions=given))
        request = await question(hub)
        assert "suggestions" not in json.loads(request.request)
        await approve(hub, request)
        assert (await call)["behavior"] == "allow"


async def test_a_repeat_with_other_suggestions_takes_the_question_over(peopled: World, era: Era) -> None:
    async with peopled.hub(server()) as hub:
        await permit(host_of(hub, era, hold_s=5), suggestions=ALL)
        (first,) = open_requests(hub)
    async with peopled.hub(server()) as hub:
        again = asyncio.create_task(permit(host_of(hub, era)))
        await approve(hub, await question(hub), suggestions=(1,))
        assert [request.id for request in hub.inbox.select(RequestFilter())] == [first.id]
        assert (await again)["updatedPermissions"] == [EDITS]


async def test_a_remembered_permission_holds_in_its_folder_only(peopled: World, era: Era) -> None:
    peopled.settings |= rules({"name": "r", "servers": ["host"], "action": "ask", "remember": ["1h"]})
    async with peopled.hub(server()) as hub:
        host = host_of(hub, era)
        call = asyncio.create_task(permit(host, cwd="/src/shop"))
        await approve(hub, await question(hub), remember_s=3600.0)
        await call
        assert (await permit(host, cwd="/src/shop", input={"command": "ls"}))["behavior"] == "allow"
        for elsewhere in ({"cwd": "/src"}, {}):
            call = asyncio.create_task(permit(host, **elsewhere))
            await approve(hub, await question(hub))
            assert (await call)["behavior"] == "allow"
