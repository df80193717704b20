"""Agents that misbehave: a clear error for the one who called, and nothing for anybody else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.agent import agent_client
from hubbub_acp.sessions import agent_sessions
from hubbub_acp.sessions.permissions import CANCELLED, make_form, read_options
from hubbub_acp.sessions.turn import MAX_QUESTIONS, Turn, TurnQuestion

from .conftest import LIMIT_S, Bridge, Host, StartBridge


def error_of(result: dict[str, Any]) -> tuple[str, str]:
    assert result["isError"] is True
    error = result["_meta"]["acp/error"]
    assert result["content"][0]["text"] == f"{error['code']}: {error['message']}"
    return error["code"], error["message"]


async def session_of(host: Host, work: Path) -> str:
    return (await host.call("start", prompt="say hello", cwd=str(work)))["structuredContent"]["session"]


async def outcome_of(host: Host, session: str, prompt: str) -> Any:
    return json.loads((await host.call("continue", session=session, prompt=prompt))["content"][0]["text"])


async def test_an_agent_that_ends_at_once_says_how_and_why(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within("--ends", "no licence")).host
    code, message = error_of(await host.call("start", prompt="say hello", cwd=str(work)))
    assert code == "AGENT_ENDED"
    assert "ended with exit code 3; it wrote: the last word" in message


@pytest.mark.parametrize("words", [("--silent",), ("--babbles",)])
async def test_an_agent_that_does_not_answer_is_given_up(
    start_bridge_within: StartBridge, work: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "INITIALIZE_LIMIT_S", 0.1)
    bridge: Bridge = await start_bridge_within(*words)
    code, message = error_of(await bridge.host.call("start", prompt="say hello", cwd=str(work)))
    assert code == "AGENT_SILENT"
    assert "did not answer initialize in 0.1 s" in message
    assert ("it wrote 3 lines that are no messages of ACP, the first one: this is no JSON" in message) == (
        words == ("--babbles",)
    )
    assert [agent.stops for agent in bridge.agents] == [1]


async def test_calls_that_wait_for_the_same_start_fail_with_it_and_a_cancelled_one_does_not_end_it(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "INITIALIZE_LIMIT_S", 0.3)
    bridge: Bridge = await start_bridge_within("--silent")
    arguments = {"prompt": "say hello", "cwd": str(work)}
    begun = [bridge.host.begin("tools/call", name="start", arguments=arguments) for _ in range(3)]
    bridge.host.send({"method": "notifications/cancelled", "params": {"requestId": begun[0][0]}})
    codes = [error_of((await response)["result"])[0] for _, response in begun[1:]]
    assert codes == ["AGENT_SILENT"] * 2
    assert [agent.stops for agent in bridge.agents] == [1]


async def test_an_agent_of_another_version_is_refused_and_ended(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "PROTOCOL", 2)
    bridge: Bridge = await start_bridge_within()
    code, message = error_of(await bridge.host.call("start", prompt="say hello", cwd=str(work)))
    assert (code, "speaks version 1 of ACP, and this program version 2" in message) == ("AGENT_VERSION", True)
    assert [agent.stops for agent in bridge.agents] == [1]


async def test_a_log_in_that_is_missing_is_an_error_with_its_methods(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within("--login")).host
    result = await host.call("start", prompt="say hello", cwd=str(work))
    code, message = error_of(result)
    assert code == "AGENT_LOGIN_REQUIRED"
    assert "key (Set TEST_AGENT_KEY); browser (Browser)" in message
    assert [each["id"] for each in result["_meta"]["acp/error"]["methods"]] == ["key", "browser"]
    chosen = (await start_bridge_within("--login", login="key")).host
    assert (await chosen.call("start", prompt="say hello", cwd=str(work)))["content"][0]["text"] == "hello"
    wrong = (await start_bridge_within("--login", login="none")).host
    assert error_of(await wrong.call("start", prompt="say hello", cwd=str(work)))[0] == "LOGIN_UNKNOWN"


async def test_an_agent_that_dies_fails_its_turns_and_the_next_one_starts_it_again(
    start_bridge_within: StartBridge, work: Path
) -> None:
    bridge: Bridge = await start_bridge_within()
    host = bridge.host
    session = await session_of(host, work)
    call = host.begin_call("continue", session=session, prompt="edit a.txt one")
    await host.next_question()
    bridge.agents[0].hang_up()
    code, message = error_of((await call)["result"])
    assert code == "AGENT_ENDED"
    assert "the last word" in message
    assert error_of(await host.call("continue", session=session, prompt="say two"))[0] == "SESSION_LOST"
    states = {state["id"]: state["state"] for state in json.loads(await host.read_resource("acp://sessions"))}
    assert states[session] == "lost"
    assert await session_of(host, work)
    assert len(bridge.agents) == 2


async def test_a_turn_that_fails_leaves_its_session(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    code, message = error_of(await host.call("continue", session=session, prompt="fail quota used up"))
    assert (code, message) == ("AGENT_REFUSED", "Scripted refused session/prompt: quota used up")
    assert json.loads(await host.read_resource(f"acp://session/{session}/state"))["error"] == message
    result = await host.call("continue", session=session, prompt="say on")
    assert result["structuredContent"]["text"] == "on"


async def test_a_flood_of_updates_is_one_text_of_which_the_end_is_kept(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within()).host
    result = await host.call("start", prompt="flood 20000\nbabble 300\nsay end", cwd=str(work))
    text = result["structuredContent"]["text"]
    assert len(text.encode()) <= 64 * 1024
    assert text.endswith("\n\nend")
    state = json.loads(await host.read_resource("acp://sessions"))[0]
    assert len(state["tools"]) == 50
    assert state["text"] == text[-500:]
    assert len(host.notes) < 100
    assert len(await host.read_resource(f"acp://session/{state['id']}")) < 600 * 1024


async def test_a_question_without_options_is_cancelled_and_said(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    for options in ("[]", '[7, {"name": "no id"}, {"optionId": ""}]'):
        result = await host.call("continue", session=session, prompt=f"ask {options}")
        assert json.loads(result["content"][0]["text"]) == {"outcome": "cancelled"}
        assert result["structuredContent"]["warnings"] == [
            "Scripted asked about Something and offered no choice, so it was cancelled"
        ]


async def test_options_of_unknown_kinds_are_shown_and_never_chosen_by_themselves(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    options = '[{"optionId": "x", "name": "Perhaps", "kind": "maybe"}, {"optionId": "y", "name": "Z"}]'
    for decision, action, outcome in (
        ("x", "accept", {"outcome": "selected", "optionId": "x"}),
        (None, "decline", {"outcome": "cancelled"}),
    ):
        call = host.begin_call("continue", session=session, prompt=f"ask {options}")
        question = await host.next_question()
        choices = question["params"]["requestedSchema"]["properties"]["decision"]["oneOf"]
        assert choices == [{"const": "x", "title": "Perhaps"}, {"const": "y", "title": "Z"}]
        host.answer(question, decision, action)
        assert json.loads((await call)["result"]["content"][0]["text"]) == outcome


async def test_sessions_that_do_not_exist_get_nothing(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    assert await outcome_of(host, session, "foreign") == {"outcome": {"outcome": "cancelled"}}
    assert host.asked.empty()
    assert "foreign" not in await host.read_resource("acp://sessions")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/request_permission", {"toolCall": {"toolCallId": "l"}, "options": [{"optionId": "x"}]}),
        ("fs/read_text_file", {"path": "WORK/go"}),
        ("fs/write_text_file", {"path": "WORK/made", "content": "late"}),
        ("terminal/create", {"command": "touch", "args": ["WORK/made"]}),
    ],
)
async def test_outside_of_a_turn_an_agent_gets_nothing(
    start_bridge_within: StartBridge, work: Path, method: str, params: dict[str, Any]
) -> None:
    host = (await start_bridge_within(root=work)).host
    asked = json.dumps(params).replace("WORK", str(work))
    await host.call("start", prompt=f"after go {method} {asked}\nsay on", cwd=str(work))
    (work / "go").touch()
    async with asyncio.timeout(LIMIT_S):
        while not (came := work / "go.reply").exists() or not came.read_text():
            await host.request("ping")
    reply = json.loads(came.read_text())
    cancelled = {"outcome": {"outcome": "cancelled"}}
    assert reply == cancelled or reply["message"] == "the session has no turn under way"
    assert (reply == cancelled) == (method == "session/request_permission")
    assert host.asked.empty()
    assert not (work / "made").exists()


async def test_a_huge_diff_is_asked_cut_with_what_was_left_out(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    call = host.begin_call("continue", session=session, prompt="huge 5000000")
    question = await host.next_question()
    asked = question["params"]["_meta"]["acp/toolCall"]
    kept = len(asked["toolCall"]["content"][0]["newText"])
    assert (asked["truncated"], asked["omittedBytes"]) == (True, 5_000_000 - kept)
    assert kept == 128 * 1024
    host.answer(question, "no")
    assert json.loads((await call)["result"]["content"][0]["text"])["optionId"] == "no"


async def test_escape_sequences_of_terminals_reach_nobody(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    result = await host.call("start", prompt="escapes", cwd=str(work))
    assert result["structuredContent"]["text"] == "red link end"
    listed = await host.read_resource("acp://sessions")
    transcript = await host.read_resource(f"acp://session/{result['structuredContent']['session']}")
    assert json.loads(listed)[0]["tools"][0]["title"] == "title"
    assert not any(
        character in text for text in (json.loads(listed)[0]["text"], transcript) for character in "\x1b\x9b\x07"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"prompt": "", "cwd": "/"}, "PROMPT_INVALID", "empty"),
        ({"prompt": " \n", "cwd": "/"}, "PROMPT_INVALID", "empty"),
        ({"prompt": "x" * 10_000_000, "cwd": "/"}, "PROMPT_INVALID", "has 10000000 bytes"),
        ({"cwd": "/"}, "ARGUMENT_INVALID", "'prompt' is missing"),
        ({"prompt": 7, "cwd": "/"}, "ARGUMENT_INVALID", "'prompt' is no text"),
        ({"prompt": "x"}, "ARGUMENT_INVALID", "'cwd' is missing"),
        ({"prompt": "x", "cwd": "src"}, "FOLDER_INVALID", "no absolute path"),
        ({"prompt": "x", "cwd": "~"}, "FOLDER_INVALID", "no absolute path"),
        ({"prompt": "x", "cwd": "/no/such/folder"}, "FOLDER_INVALID", "No such file"),
        ({"prompt": "x", "cwd": "/etc/passwd"}, "FOLDER_INVALID", "no folder"),
        ({"prompt": "x", "cwd": "/a\0b"}, "FOLDER_INVALID", "null"),
    ],
)
async def test_a_call_that_cannot_be_is_refused_before_an_agent_is_started(
    start_bridge_within: StartBridge, arguments: dict[str, Any], code: str, words: str
) -> None:
    bridge: Bridge = await start_bridge_within()
    found, message = error_of(await bridge.host.call("start", **arguments))
    assert found == code
    assert words in message
    assert bridge.agents == []


async def test_two_turns_in_one_session_are_refused_and_other_sessions_go_on(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    call = host.begin_call("continue", session=session, prompt="edit a.txt one")
    question = await host.next_question()
    code, message = error_of(await host.call("continue", session=session, prompt="say two"))
    assert (code, "waits for an answer" in message) == ("SESSION_BUSY", True)
    assert await session_of(host, work) != session
    host.answer(question, "once")
    assert (await call)["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]
    assert error_of(await host.call("continue", session="nobody", prompt="x"))[0] == "SESSION_UNKNOWN"
    assert error_of(await host.call("cancel", session="nobody"))[0] == "SESSION_UNKNOWN"


async def test_an_agent_that_does_not_heed_being_cancelled_ends_once_its_other_turns_have(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sessions, "CANCEL_LIMIT_S", 0.05)
    bridge: Bridge = await start_bridge_within()
    host = bridge.host
    deaf, other = await session_of(host, work), await session_of(host, work)
    call = host.begin_call("continue", session=deaf, prompt="say begun\ndeaf")
    going_on = host.begin_call("continue", session=other, prompt="edit a.txt one")
    question = await host.next_question()
    await host.call("cancel", session=deaf)
    result = (await call)["result"]["structuredContent"]
    assert result["stopReason"] == "cancelled"
    assert "did not end the turn within 0.05 s" in result["warnings"][0]
    assert bridge.agents[0].stops == 0
    host.answer(question, "once")
    assert (await going_on)["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]
    while not bridge.agents[0].stops:
        await asyncio.sleep(0)
    assert await session_of(host, work)
    assert len(bridge.agents) == 2


async def test_modes_and_models_are_chosen_by_id_or_name_and_unknown_ones_list_those_there_are(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within("--modes", "--models", mode="Code")).host
    shown = json.loads((await host.call("start", prompt="show", cwd=str(work), model="large"))["content"][0]["text"])
    assert (shown["mode"], shown["model"]) == ("code", "large")
    code, message = error_of(await host.call("start", prompt="show", cwd=str(work), mode="fly"))
    assert (code, message) == ("MODE_UNKNOWN", "Scripted has no mode 'fly': it has ask, code")


async def test_the_agent_gets_the_hub_as_its_own_server(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within(tools_command=("hubbub", "mcp", "--profile", "coding"))).host
    shown = json.loads((await host.call("start", prompt="show", cwd=str(work)))["content"][0]["text"])
    assert shown["servers"] == [
        {"name": "hubbub", "command": "hubbub", "args": ["mcp", "--profile", "coding"], "env": []}
    ]


async def test_a_question_that_its_agent_takes_back_is_withdrawn(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    options = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]
    params = {"sessionId": "SESSION", "toolCall": {"toolCallId": "own", "title": "Own"}, "options": options}
    asks = json.dumps({"id": "own", "method": "session/request_permission", "params": params})
    takes_back = json.dumps({"method": "$/cancel_request", "params": {"requestId": "own"}})
    prompt = f"raw {asks}\nwait go\nraw {takes_back}\nwait on\nsay end"
    call = host.begin_call("continue", session=session, prompt=prompt)
    question = await host.next_question()
    (work / "go").touch()
    note = await host.until_noted("notifications/cancelled")
    assert note["params"]["requestId"] == question["id"]
    state = json.loads(await host.read_resource(f"acp://session/{session}/state"))
    assert (state["state"], state["waiting"]) == ("working", None)
    (work / "on").touch()
    assert (await call)["result"]["content"][0]["text"] == "end"
    assert "no longer asked by the agent" in await host.read_resource(f"acp://session/{session}")


async def test_turns_that_are_begun_at_once_are_counted(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sessions, "MAX_TURNS", 2)
    host = (await start_bridge_within()).host
    calls = [host.begin_call("start", prompt="hang", cwd=str(work)) for _ in range(4)]
    ended: set[asyncio.Future[dict[str, Any]]] = set()
    async with asyncio.timeout(LIMIT_S):
        while len(ended) < 2:
            await asyncio.wait(set(calls) - ended, return_when=asyncio.FIRST_COMPLETED)
            ended = {each for each in calls if each.done()}
    assert [error_of((await each)["result"])[0] for each in ended] == ["TOO_MANY_TURNS"] * 2


async def test_a_turn_asks_so_many_questions_at_one_time_and_none_once_it_is_cancelled() -> None:
    form = make_form(
        "s", "/work", "Scripted", {"title": "Run"}, read_options([{"optionId": "x", "kind": "allow_once"}])
    )
    turn = Turn()
    asking = [asyncio.ensure_future(turn.ask(TurnQuestion(form, "now"))) for _ in range(MAX_QUESTIONS)]
    await asyncio.sleep(0)
    too_much = TurnQuestion(form, "now")
    async with asyncio.timeout(LIMIT_S):
        assert await turn.ask(too_much) == CANCELLED
    assert too_much.problem == "50 questions are open"
    assert len(turn.questions) == MAX_QUESTIONS
    turn.drop_questions()
    assert await asyncio.gather(*asking) == [CANCELLED] * MAX_QUESTIONS
    turn.is_cancelled = True
    async with asyncio.timeout(LIMIT_S):
        assert await turn.ask(TurnQuestion(form, "now")) == CANCELLED


async def test_an_agent_that_gives_out_the_id_of_a_session_under_way_does_not_disturb_it(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    call = host.begin_call("continue", session=session, prompt="edit a.txt one")
    question = await host.next_question()

    async def open_again(*_: object) -> tuple[str, dict[str, Any]]:
        return session, {}

    monkeypatch.setattr(agent_sessions, "open_session", open_again)
    code, message = error_of(await host.call("start", prompt="say two", cwd=str(work)))
    assert (code, message) == ("AGENT_REFUSED", "Scripted gave out the id of a session under way")
    host.answer(question, "once")
    assert (await call)["result"]["structuredContent"]["changed"] == [str(work / "a.txt")]
