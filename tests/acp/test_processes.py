"""The bridge as a program: the agent is a process of its own, and ends with all that it started."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.agent.agent_process import AgentProcess
from hubbub_acp.faults import AgentFault
from hubbub_shared.platform import processes

from .conftest import HANDSHAKE, LIMIT_S, Host

pytestmark = pytest.mark.usefixtures("processes")


class Program:
    """`hubbub acp` as a process, with its host."""

    def __init__(self, process: asyncio.subprocess.Process, host: Host) -> None:
        self.process = process
        self.host = host


@pytest.fixture
async def start_program(tmp_path: Path, peer_scripts: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts it with an agent's arguments; `within_hub`: it has the mark of a hub's server."""
    programs: list[Program] = []

    async def start(*words: str) -> Program:
        stdin, to_bridge = os.pipe()
        from_bridge, stdout = os.pipe()
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        agent = [sys.executable, str(peer_scripts / "acp_agent.py"), *words]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hubbub_cli", "acp", "--"), *agent, stdin=stdin, stdout=stdout, env=environment
        )
        os.close(stdin)
        os.close(stdout)
        host = Host(HANDSHAKE, from_bridge, to_bridge)
        reading = asyncio.create_task(host.read())
        programs.append(Program(process, host))
        reading.add_done_callback(lambda _: None)
        await host.introduce()
        return programs[-1]

    yield start
    for program in programs:
        if program.process.returncode is None:
            program.process.kill()
            await program.process.wait()


async def gone(*pids: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while any(map(processes.is_running, pids)):
            await asyncio.sleep(0.01)


async def test_a_turn_of_a_real_agent_and_the_end_of_all_its_processes(
    start_program: Callable[..., Any], tmp_path: Path
) -> None:
    program: Program = await start_program()
    call = program.host.begin_call("start", prompt="spawn pid\nrun echo allowed", cwd=str(tmp_path))
    program.host.answer(await program.host.next_question(), "once")
    result = (await call)["result"]
    assert result["content"][0]["text"] == "allowed\n"
    agent = int(result["structuredContent"]["session"].split("-")[1])
    child = int((tmp_path / "pid").read_text())
    assert processes.is_running(agent)
    assert processes.is_running(child)
    program.host.leave()
    assert await asyncio.wait_for(program.process.wait(), LIMIT_S) == 0
    await gone(agent, child)


async def test_sigterm_ends_the_agent_in_the_middle_of_a_turn(
    start_program: Callable[..., Any], tmp_path: Path
) -> None:
    program: Program = await start_program()
    call = program.host.begin_call("start", prompt="say begun\nhang", cwd=str(tmp_path))
    while not (states := json.loads(await program.host.read_resource("acp://sessions"))):
        await asyncio.sleep(0.01)
    program.process.terminate()
    assert await asyncio.wait_for(program.process.wait(), LIMIT_S) == 0
    call.cancel()
    await gone(int(states[0]["id"].split("-")[1]))


async def test_an_agent_that_dies_is_named_with_its_last_words(
    start_program: Callable[..., Any], tmp_path: Path
) -> None:
    program: Program = await start_program()
    result = await program.host.call("start", prompt="die 7", cwd=str(tmp_path))
    message = result["_meta"]["acp/error"]["message"]
    assert message.endswith("acp_agent.py ended with exit code 7; it wrote: the last word")
    program.host.leave()
    assert await asyncio.wait_for(program.process.wait(), LIMIT_S) == 0


async def test_a_command_that_is_not_there_says_so() -> None:
    with pytest.raises(AgentFault) as fault:
        await AgentProcess.start(["no-such-agent"])
    assert fault.value.code == "AGENT_NOT_FOUND"
    with pytest.raises(AgentFault) as fault:
        await AgentProcess.start(["/"])
    assert fault.value.code == "AGENT_NOT_STARTED"
