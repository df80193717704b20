"""Sessions that outlive the process: found again, loaded where the agent can, and else a clear word."""

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.faults import AgentFault
from hubbub_acp.sessions import agent_sessions

from .conftest import STATELESS, Bridge, StartBridge
from .test_hostile_agents import error_of


async def test_a_session_goes_on_in_the_next_process(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    words = ("--store", str(tmp_path))
    first: Bridge = await start_bridge_within(*words)
    result = await first.host.call("start", prompt="say one\nquietly edit a.txt 1", cwd=str(work))
    session = result["structuredContent"]["session"]
    await first.end()
    host = (await start_bridge_within(*words)).host
    ((state,),) = [json.loads(await host.read_resource("acp://sessions"))]
    assert (state["id"], state["state"], state["turns"], state["cwd"]) == (session, "idle", 1, str(work))
    result = await host.call("continue", session=session, prompt="say two")
    assert (result["structuredContent"]["text"], result["structuredContent"]["changed"]) == ("two", [])
    transcript = await host.read_resource(f"acp://session/{session}")
    assert transcript.index("say one") < transcript.index("say two")


async def test_an_agent_that_cannot_load_has_lost_its_sessions(start_bridge_within: StartBridge, work: Path) -> None:
    first: Bridge = await start_bridge_within()
    session = (await first.host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    await first.end()
    host = (await start_bridge_within()).host
    code, message = error_of(await host.call("continue", session=session, prompt="say two"))
    assert code == "SESSION_LOST"
    assert "Scripted cannot load sessions: begin another one with `start`" in message
    assert json.loads(await host.read_resource(f"acp://session/{session}/state"))["state"] == "lost"


async def test_a_turn_that_was_cut_off_says_where_to_go_on(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    words = ("--store", str(tmp_path))
    first: Bridge = await start_bridge_within(*words, revision=STATELESS)
    arguments = {"prompt": "say one\nedit a.txt one", "cwd": str(work)}
    task = (await first.host.request("tools/call", name="start", arguments=arguments))["result"]
    while task["status"] != "input_required":
        task = (await first.host.request("tasks/get", taskId=task["taskId"]))["result"]
    await first.end()
    host = (await start_bridge_within(*words, revision=STATELESS)).host
    ended = (await host.request("tasks/get", taskId=task["taskId"]))["result"]
    assert ended["status"] == "completed"
    code, message = error_of(ended["result"])
    session = ended["result"]["_meta"]["acp/error"]["session"]
    assert code == "TURN_INTERRUPTED"
    assert f"go on with `continue` in session {session}" in message


async def test_a_file_of_sessions_that_is_broken_costs_nothing(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    first: Bridge = await start_bridge_within()
    await first.host.call("start", prompt="say one", cwd=str(work))
    await first.end()
    (file,) = (tmp_path / "records").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    for content in ('{"no": "list"}', '[1, {}, {"id": 7}]', "no JSON"):
        file.write_text(content)
        host = (await start_bridge_within()).host
        assert json.loads(await host.read_resource("acp://sessions")) == []
    assert (await host.call("start", prompt="say two", cwd=str(work)))["structuredContent"]["text"] == "two"


async def test_a_session_that_the_agent_refuses_to_load_keeps_its_transcript(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    bridge: Bridge = await start_bridge_within("--store", str(tmp_path))
    session = (await bridge.host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    (tmp_path / f"{session}.json").unlink()
    bridge.agents[0].hang_up()
    code, _ = error_of(await bridge.host.call("continue", session=session, prompt="say two"))
    assert code == "SESSION_LOST"
    assert "## Prompt\n\nsay one" in await bridge.host.read_resource(f"acp://session/{session}")


async def test_what_an_agent_says_again_as_it_loads_a_session_is_no_progress(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    words = ("--store", str(tmp_path))
    first: Bridge = await start_bridge_within(*words)
    result = await first.host.call("start", prompt="quietly edit a.txt 1", cwd=str(work))
    await first.end()
    host = (await start_bridge_within(*words)).host
    await host.begin_call("continue", session=result["structuredContent"]["session"], prompt="say two")
    assert [note for note in host.notes if note["method"] == "notifications/progress"] == []


async def test_a_loaded_session_whose_mode_cannot_be_set_is_not_gone_on_with(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--modes", "--store", str(tmp_path))
    first: Bridge = await start_bridge_within(*words)
    session = (await first.host.call("start", prompt="say one", cwd=str(work)))["structuredContent"]["session"]
    await first.end()
    select, refusals = agent_sessions.select_choices, [AgentFault("AGENT_SILENT", "no answer")] * 2

    async def select_later(*given: Any) -> None:
        if refusals:
            raise refusals.pop()
        await select(*given)

    monkeypatch.setattr(agent_sessions, "select_choices", select_later)
    host = (await start_bridge_within(*words, mode="code")).host
    for _ in range(2):
        assert error_of(await host.call("continue", session=session, prompt="show"))[0] == "AGENT_SILENT"
    shown = json.loads((await host.call("continue", session=session, prompt="show"))["content"][0]["text"])
    assert shown["mode"] == "code"
