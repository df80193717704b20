"""Messages that cannot be read, or are too many: what they cost, and whom they are answered to."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hubbub_acp import program
from hubbub_acp.agent import agent_stream

from .conftest import LIMIT_S, StartBridge
from .test_hostile_agents import error_of, session_of


async def test_what_is_no_message_is_passed_over(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within()).host
    prompt = "\n".join(
        [
            "line no JSON",
            "line [1, 2]",
            'line {"id": [1], "result": {}}',
            'line {"id": 99, "result": {}}',
            'line {"id": 0, "error": 7}',
            'line {"method": 5}',
            'line {"method": "session/update"}',
            'line {"method": "session/update", "params": {"sessionId": "x", "update": 7}}',
            'raw {"method": "session/update", "params": {"sessionId": "SESSION", "update": {"sessionUpdate": "new"}}}',
            'raw {"method": "session/update", "params": {"sessionId": "SESSION", "update": {"sessionUpdate": "plan"}}}',
            'raw {"method": "auth/status_update", "params": {}}',
            'raw {"id": "own", "method": "their/own", "params": {}}',
            "say hello",
        ]
    )
    assert (await host.call("start", prompt=prompt, cwd=str(work)))["content"][0]["text"] == "hello"


async def test_so_many_requests_of_an_agent_are_read_until_one_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_stream, "MAX_REQUESTS", 2)
    (stdout, output), (source, stdin) = os.pipe(), os.pipe()
    agent = SimpleNamespace(stdin=stdin, stdout=stdout)
    stream = agent_stream.AgentStream(cast("Any", agent), lambda *_: None, lambda _: None)
    for number in range(3):
        os.write(output, b'{"jsonrpc": "2.0", "id": %d, "method": "their/own"}\n' % number)
    async with asyncio.timeout(LIMIT_S):
        first, second = await stream.receive(), await stream.receive()
        third = asyncio.ensure_future(stream.receive())
        assert await asyncio.wait({third}, timeout=0.1) == (set(), {third})
        for answered in (first, second):
            await stream.send({"id": (answered or {})["id"], "result": {}})
        assert ((await third) or {})["id"] == 2
    await stream.close()
    for end in (stdout, output, source, stdin):
        os.close(end)


async def test_a_request_that_cannot_be_read_is_refused_and_said(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_stream, "LINE_BYTES", 100_000)
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    broken = '{"jsonrpc": "2.0", "method": "session/request_permission", "id": 1, "params": {'
    for step, why in (("huge 200000", "it has more than 100000 bytes"), (f"broken {broken}", "it cannot be read")):
        result = await host.call("continue", session=session, prompt=step)
        assert why in result["content"][0]["text"]
        warned = result["structuredContent"]["warnings"]
        assert warned == ["A request of the agent was too long, or no JSON, so it was refused"]


async def test_a_response_that_cannot_be_read_fails_its_request(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_stream, "LINE_BYTES", 100_000)
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    code, message = error_of(await host.call("continue", session=session, prompt=f"fail {'x' * 200_000}"))
    assert code == "AGENT_REFUSED"
    assert "refused session/prompt: its response was passed over: it has more than 100000 bytes" in message


async def test_a_request_of_the_host_that_is_too_long_is_refused(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LINE_BYTES", 100_000)
    host = (await start_bridge_within()).host
    error = await host.call("start", prompt="x" * 200_000, cwd=str(work))
    assert error["message"] == "a message of more than 100000 bytes was passed over: shorten the prompt"
    assert await session_of(host, work)


async def test_half_a_character_in_a_question_is_shown_as_one_that_is_not_known(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    params = (
        f'{{"sessionId": "{session}", "toolCall": {{"toolCallId": "half", "title": "cut \\ud83d"}}, "options": []}}'
    )
    asks = f'broken {{"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": {params}}}'
    result = await host.call("continue", session=session, prompt=asks)
    assert json.loads(result["content"][0]["text"]) == {"outcome": {"outcome": "cancelled"}}
    assert "asked about cut \ufffd and offered" in result["structuredContent"]["warnings"][0]


async def test_a_message_that_is_too_long_is_passed_over_and_said(
    start_bridge_within: StartBridge, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_stream, "LINE_BYTES", 100_000)
    host = (await start_bridge_within()).host
    session = await session_of(host, work)
    call = host.begin_call("continue", session=session, prompt=f"say begun\nsay {'x' * 200_000}\nhang")
    async with asyncio.timeout(LIMIT_S):
        while not any("cancel the turn" in json.dumps(note) for note in host.notes):
            host.noted.clear()
            await host.noted.wait()
    await host.call("cancel", session=session)
    result = (await call)["result"]["structuredContent"]
    assert (result["stopReason"], len(result["warnings"])) == ("cancelled", 1)
