"""An agent that is a server, as codex is: its questions, its decisions, and its work between them."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from .conftest import RunningHub
from .told import Told


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with the agent."""
    script = Path(__file__).parents[1] / "peers" / "agent_server.py"
    return await start_shared_hub(
        {"codex": {"command": sys.executable, "args": ["-I", "-S", str(script)], "max_in_flight": 4}}, connected=True
    )


async def asked(hub: RunningHub, prompt: str) -> tuple[str, Any]:
    call = await hub.client.start_tool("codex", "codex", {"prompt": prompt})
    (request,) = await hub.asked(call_id=call.id)
    return call.id, request


async def heard(hub: RunningHub, call_id: str) -> str:
    return (await hub.call(call_id)).result["content"][0]["text"]


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (["--accept"], "approved"),
        (["decision=approved_for_session"], "approved_for_session"),
        (["--decline"], "denied"),
        (["--cancel"], "abort"),
        (["--result", '{"action": "accept", "decision": "approved"}'], "approved"),
    ],
)
async def test_an_agent_reads_the_decision_in_any_answer(hub: RunningHub, answer: list[str], decision: str) -> None:
    call_id, request = await asked(hub, "command")
    await hub.answer(request, *answer)
    assert await heard(hub, call_id) == decision


async def test_what_it_would_do_is_read_by_the_library(hub: RunningHub) -> None:
    call_id, request = await asked(hub, "patch")
    paths = [change.path.removeprefix("/srv/shop/") for change in request.agent.changes]
    assert paths == ["prices.py", "old_prices.py", "test_prices.py"]
    await request.decline()
    assert await heard(hub, call_id) == "denied"


async def test_all_that_an_agent_reports_is_of_its_call(hub: RunningHub) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, server="codex")
        await told.listening.wait()
        one, other = [await hub.client.start_tool("codex", "codex", {"prompt": "work"}) for _ in range(2)]
        await told.until(lambda event: event.call_id == other.id)
        go = await hub.client.start_tool("codex", "go", {})
        await told.until(lambda event: event.params["msg"]["type"] == "task_complete" and event.call_id == go.id)
        tasks.cancel_scope.cancel()
    kinds = [(event.call_id, event.params["msg"]["type"]) for event in told.events]
    calls = (one.id, other.id, go.id)
    assert kinds == [(id_, kind) for kind in ("task_started", "task_complete") for id_ in calls]
    assert [await heard(hub, id_) for id_ in calls] == ["done"] * 3
    assert (await hub.client.servers.get("codex")).notes == ()
