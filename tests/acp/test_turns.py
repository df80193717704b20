"""Turns of a coding agent as calls of tools: what it says, does and asks, in both families of revisions."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.sessions import agent_sessions
from hubbub_acp.sessions.permissions import make_form, read_options
from hubbub_acp.sessions.turn import Turn, TurnQuestion

from .conftest import HANDSHAKE, LIMIT_S, STATELESS, TASKS, Bridge, StartBridge, ThreadedAgent


async def test_a_turn_returns_what_the_agent_said_did_and_planned(start_bridge_within: StartBridge, work: Path) -> None:
    bridge: Bridge = await start_bridge_within()
    prompt = "say hello\nplan read; write; test\nquietly edit a.txt one\nsay done"
    result = await bridge.host.call("start", prompt=prompt, cwd=str(work))
    assert result["content"] == [{"type": "text", "text": "hello\n\ndone"}]
    structured = result["structuredContent"]
    assert structured["stopReason"] == "end_turn"
    assert structured["changed"] == [str(work / "a.txt")]
    assert [entry["status"] for entry in structured["plan"]] == ["completed", "in_progress", "pending"]
    assert (work / "a.txt").read_text() == "one"


async def test_a_command_is_run_once_a_person_allows_it(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    call = host.begin_call("start", prompt="edit a.txt one", cwd=str(work))
    question = await host.next_question()
    params = question["params"]
    assert params["message"] == f"Scripted wants to change a file in {work}: Edit a.txt"
    choices = params["requestedSchema"]["properties"]["decision"]["oneOf"]
    assert [choice["const"] for choice in choices] == ["once", "always", "no"]
    asked = params["_meta"]["acp/toolCall"]
    assert asked["toolCall"]["content"][0] == {
        "type": "diff",
        "path": str(work / "a.txt"),
        "oldText": None,
        "newText": "one",
    }
    assert json.loads(await host.read_resource("acp://sessions"))[0]["state"] == "waiting"
    host.answer(question, "once")
    assert (await call)["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]


@pytest.mark.parametrize(("action", "decision"), [("decline", None), ("cancel", None), ("accept", "no such option")])
async def test_what_nobody_allows_is_rejected_by_the_agents_own_option(
    start_bridge_within: StartBridge, work: Path, action: str, decision: str | None
) -> None:
    host = (await start_bridge_within()).host
    call = host.begin_call("start", prompt="edit a.txt one\nsay done", cwd=str(work))
    host.answer(await host.next_question(), decision, action)
    assert (await call)["result"]["structuredContent"]["changed"] == []
    assert not (work / "a.txt").exists()


async def test_what_nobody_could_be_asked_is_declined_and_said(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    call = host.begin_call("start", prompt="edit a.txt one\nsay done", cwd=str(work))
    question = await host.next_question()
    host.send({"id": question["id"], "error": {"code": -32601, "message": "no forms here"}})
    result = (await call)["result"]
    said = "Nobody could be asked about Edit a.txt: no forms here"
    assert (result["structuredContent"]["changed"], result["structuredContent"]["warnings"]) == ([], [said])
    assert [each["text"] for each in result["content"]] == ["done", said]
    assert f"*{said}*" in await host.read_resource(f"acp://session/{result['structuredContent']['session']}")


async def test_two_questions_at_once_are_answered_in_any_order(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    call = host.begin_call("start", prompt="twice", cwd=str(work))
    questions = [await host.next_question(), await host.next_question()]
    for question in reversed(questions):
        host.answer(question, "once" if question["params"]["message"].endswith("one") else "no")
    outcomes = json.loads((await call)["result"]["content"][0]["text"])
    assert [outcome["optionId"] for outcome in outcomes] == ["once", "no"]


async def test_without_tasks_a_call_is_made_again_with_the_answers(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within(revision=STATELESS)).host
    host.extensions = {}
    arguments = {"prompt": "edit a.txt one\nedit b.txt two", "cwd": str(work)}
    result = (await host.request("tools/call", name="start", arguments=arguments))["result"]
    for _ in range(2):
        assert result["resultType"] == "input_required"
        (key, request), *_ = result["inputRequests"].items()
        assert request["params"]["_meta"]["acp/toolCall"]["cwd"] == str(work)
        answers = {key: {"action": "accept", "content": {"decision": "once"}}}
        again = {"inputResponses": answers, "requestState": result["requestState"]}
        result = (await host.request("tools/call", name="start", arguments=arguments, **again))["result"]
    assert result["structuredContent"]["changed"] == [str(work / "a.txt"), str(work / "b.txt")]


async def test_with_the_tasks_extension_a_turn_is_a_task(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within(revision=STATELESS)).host
    arguments = {"prompt": "edit a.txt one", "cwd": str(work)}
    task = (await host.request("tools/call", name="start", arguments=arguments))["result"]
    assert task["resultType"] == "task"
    while task["status"] == "working":
        task = (await host.request("tasks/get", taskId=task["taskId"]))["result"]
    assert task["status"] == "input_required"
    ((key, request),) = task["inputRequests"].items()
    assert request["params"]["_meta"]["acp/toolCall"]["options"][0]["kind"] == "allow_once"
    answers = {key: {"action": "accept", "content": {"decision": "once"}}}
    await host.request("tasks/update", taskId=task["taskId"], inputResponses=answers)
    while task["status"] != "completed":
        task = (await host.request("tasks/get", taskId=task["taskId"]))["result"]
    assert task["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]


async def test_a_caller_of_2025_gets_a_task_where_it_wants_one(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    arguments = {"prompt": "edit a.txt one", "cwd": str(work)}
    response = await host.request("tools/call", name="start", arguments=arguments, task={"ttl": 60_000})
    task_id = response["result"]["task"]["taskId"]
    result = host.begin("tasks/result", taskId=task_id)[1]
    question = await host.next_question()
    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
    assert (await host.request("tasks/get", taskId=task_id))["result"]["status"] == "input_required"
    host.answer(question, "once")
    assert (await result)["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]
    assert (await host.request("tasks/get", taskId=task_id))["result"]["status"] == "completed"
    assert await host.until_noted("notifications/tasks/status")


async def test_of_tasks_that_fail_at_once_the_last_are_kept(
    start_bridge_within: StartBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sessions, "MAX_ENDED_TURNS", 2)
    host = (await start_bridge_within()).host
    arguments = {"prompt": "", "cwd": "/"}
    begun = [await host.request("tools/call", name="start", arguments=arguments, task={}) for _ in range(4)]
    listed = (await host.request("tasks/list"))["result"]["tasks"]
    assert [each["taskId"] for each in listed] == [each["result"]["task"]["taskId"] for each in begun[2:]]


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_what_the_server_offers_is_listed(start_bridge_within: StartBridge, revision: str) -> None:
    host = (await start_bridge_within(revision=revision)).host
    tools = (await host.request("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["start", "continue", "sessions", "cancel"]
    resources = (await host.request("resources/list"))["result"]["resources"]
    assert [resource["uri"] for resource in resources] == ["acp://sessions"]


async def test_progress_says_what_the_agent_does(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    call = host.begin_call("start", prompt="quietly edit a.txt one\nwait go", cwd=str(work))
    progress = await host.until_noted("notifications/progress")
    assert progress["params"]["message"].startswith("Edit a.txt: ")
    (work / "go").touch()
    await call


async def test_who_subscribes_to_a_session_is_told_of_its_changes(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    await host.request("resources/subscribe", uri="acp://sessions")
    session = (await host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    updated = await host.until_noted("notifications/resources/updated")
    assert updated["params"]["uri"] == "acp://sessions"
    await host.until_noted("notifications/resources/list_changed")
    uri = f"acp://session/{session}"
    await host.request("resources/subscribe", uri=f"{uri}/state")
    host.notes.clear()
    await host.call("continue", session=session, prompt="say two")
    assert (await host.until_noted("notifications/resources/updated"))["params"]["uri"] == f"{uri}/state"
    state = json.loads(await host.read_resource(f"{uri}/state"))
    assert (state["turns"], state["state"], state["text"]) == (2, "idle", "two")
    assert "say one" in await host.read_resource(uri)


async def test_a_call_that_is_cancelled_cancels_the_turn(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = (await host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    request_id, _ = host.begin("tools/call", name="continue", arguments={"session": session, "prompt": "hang"})
    while json.loads(await host.read_resource("acp://sessions"))[0]["state"] != "working":
        await asyncio.sleep(0)
    host.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    while (state := json.loads(await host.read_resource("acp://sessions"))[0])["state"] != "idle":
        await asyncio.sleep(0)
    assert state["stopReason"] == "cancelled"


@pytest.mark.parametrize("step", ["hang", "edit a.txt one"])
async def test_the_tool_cancel_ends_a_turn_and_its_questions(
    start_bridge_within: StartBridge, work: Path, step: str
) -> None:
    host = (await start_bridge_within()).host
    session = (await host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    call = host.begin_call("continue", session=session, prompt=step)
    if step != "hang":
        await host.next_question()
    while json.loads(await host.read_resource(f"acp://session/{session}/state"))["turns"] != 2:
        await asyncio.sleep(0)
    assert (await host.call("cancel", session=session))["structuredContent"] == {"session": session, "cancelled": True}
    assert (await call)["result"]["structuredContent"]["stopReason"] == "cancelled"
    assert (await host.call("cancel", session=session))["structuredContent"]["cancelled"] is False


async def test_the_extension_is_declared_where_it_exists(start_bridge_within: StartBridge) -> None:
    host = (await start_bridge_within(revision=STATELESS)).host
    found = (await host.request("server/discover"))["result"]
    assert TASKS in found["capabilities"]["extensions"]


async def test_a_call_that_is_cancelled_while_the_agent_starts_ends_the_agent(
    start_bridge_within: StartBridge, work: Path
) -> None:
    bridge: Bridge = await start_bridge_within("--silent")
    request_id, _ = bridge.host.begin("tools/call", name="start", arguments={"prompt": "say one", "cwd": str(work)})
    while not bridge.agents:
        await bridge.host.request("ping")
    bridge.host.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    while not bridge.agents[0].stops:
        await bridge.host.request("ping")
    assert json.loads(await bridge.host.read_resource("acp://sessions")) == []


@pytest.mark.parametrize("by", ["tool", "task"])
async def test_only_a_task_that_is_cancelled_has_no_result(
    start_bridge_within: StartBridge, work: Path, by: str
) -> None:
    host = (await start_bridge_within(revision=STATELESS)).host
    arguments = {"prompt": "say one\nhang", "cwd": str(work)}
    task = (await host.request("tools/call", name="start", arguments=arguments))["result"]
    while not (states := json.loads(await host.read_resource("acp://sessions"))) or states[0]["text"] != "one":
        await asyncio.sleep(0)
    if by == "tool":
        await host.call("cancel", session=states[0]["id"])
    else:
        await host.request("tasks/cancel", taskId=task["taskId"])
    while (task := (await host.request("tasks/get", taskId=task["taskId"]))["result"])["status"] == "working":
        await asyncio.sleep(0)
    if by == "tool":
        assert task["status"] == "completed"
        assert task["result"]["structuredContent"]["stopReason"] == "cancelled"
        assert task["result"]["structuredContent"]["text"] == "one"
    else:
        assert (task["status"], task["statusMessage"]) == ("cancelled", "the turn was cancelled")


async def test_a_start_after_a_cancelled_one_does_not_wait_for_its_agent_to_end(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge: Bridge = await start_bridge_within("--silent")
    host, ending, stop = bridge.host, asyncio.Event(), ThreadedAgent.stop

    async def stop_later(agent: ThreadedAgent) -> None:
        await ending.wait()
        await stop(agent)

    monkeypatch.setattr(ThreadedAgent, "stop", stop_later)
    arguments = {"prompt": "say one", "cwd": str(work)}
    request_id, _ = host.begin("tools/call", name="start", arguments=arguments)
    while not bridge.agents:
        await host.request("ping")
    host.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    await host.request("ping")
    second = host.begin_call("start", **arguments)
    async with asyncio.timeout(LIMIT_S):
        while len(bridge.agents) < 2:
            await host.request("ping")
    assert not second.done()
    ending.set()


async def test_a_start_that_is_cancelled_before_its_mode_is_set_leaves_no_session(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selecting = asyncio.Event()

    async def select(*_: object) -> None:
        selecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(agent_sessions, "select_choices", select)
    host = (await start_bridge_within("--modes", mode="ask")).host
    request_id, _ = host.begin("tools/call", name="start", arguments={"prompt": "say one", "cwd": str(work)})
    async with asyncio.timeout(LIMIT_S):
        await selecting.wait()
        assert json.loads(await host.read_resource("acp://sessions")) != []
        host.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        while json.loads(await host.read_resource("acp://sessions")):
            await asyncio.sleep(0)


async def test_what_is_said_of_a_session_before_its_id_is_known_is_not_lost(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge: Bridge = await start_bridge_within()
    open_session = agent_sessions.open_session

    async def open_late(*given: Any) -> Any:
        for session in (f"s-{os.getpid()}-1", "another"):
            update = {"sessionUpdate": "session_info_update", "title": f"Early {session}"}
            params = {"sessionId": session, "update": update}
            bridge.agents[0].say({"jsonrpc": "2.0", "method": "session/update", "params": params})
        return await open_session(*given)

    monkeypatch.setattr(agent_sessions, "open_session", open_late)
    await bridge.host.call("start", prompt="say one", cwd=str(work))
    (state,) = json.loads(await bridge.host.read_resource("acp://sessions"))
    assert state["title"] == f"Early {state['id']}"


async def test_a_task_that_has_ended_is_not_cancelled(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    arguments = {"prompt": "say one", "cwd": str(work)}
    task = (await host.request("tools/call", name="start", arguments=arguments, task={}))["result"]["task"]["taskId"]
    await host.request("tasks/result", taskId=task)
    assert (await host.request("tasks/cancel", taskId=task))["error"]["message"] == "the task has ended already"
    assert (await host.request("tasks/get", taskId=task))["result"]["status"] == "completed"


async def test_a_question_is_answered_once() -> None:
    options = read_options([{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}])
    turn = Turn()
    asking = asyncio.ensure_future(turn.ask(TurnQuestion(make_form("s", "/work", "Scripted", {}, options), "now")))
    await asyncio.sleep(0)
    (key,) = turn.questions
    given = [turn.answer(key, {"action": "accept", "content": {"decision": each}}) for each in ("no", "yes")]
    assert given == [True, False]
    assert (await asking)["outcome"]["optionId"] == "no"
    assert not turn.answer(key, {"action": "accept", "content": {"decision": "yes"}})
