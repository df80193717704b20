"""Coding agents behind a real hub: what a killed hub leaves, many at once, and a hostile one beside a good one."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from hubbub_client import ServerSpec

from .conftest import BIN, POLL_S, RunningHub, alive, descendants
from .crowd import rss_kb

AGENT = Path(__file__).parents[1] / "peers" / "acp_agent.py"
GROWN_KIB = 8 * 1024
"""What a hub may keep of ten agents: tables of modules, records of their calls."""


def agent(tmp_path: Path, *words: str, **options: Any) -> dict[str, Any]:
    """The configuration of a coding agent: the bridge, and the tests' agent behind it."""
    store = tmp_path / "agent-store"
    store.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-S", str(AGENT), "--store", str(store), *words]
    args = ["--data-dir", str(tmp_path / "bridge"), "acp", "--", *command]
    return {"command": str(BIN / "hubbub"), "args": args, "max_in_flight": 16, **options}


async def start(hub: RunningHub, prompt: str, cwd: Path, server: str = "coder") -> Any:
    return await hub.client.start_tool(server, "start", {"prompt": prompt, "cwd": str(cwd)})


async def sessions(hub: RunningHub, server: str = "coder") -> list[dict[str, Any]]:
    read = await hub.client.read_resource(server, "acp://sessions")
    return json.loads(read["contents"][0]["text"])


async def test_a_session_goes_on_after_its_hub_was_killed_in_a_turn(start_hub: Any, tmp_path: Path) -> None:
    servers = {"coder": agent(tmp_path)}
    hub: RunningHub = await start_hub(servers, connected=True)
    first = await (await start(hub, "say one", tmp_path)).wait()
    session = first.result["structuredContent"]["session"]
    given = {"session": session, "prompt": "edit a.txt two"}
    call = await hub.client.start_tool("coder", "continue", given)
    (asked,) = await hub.asked(call_id=call.id)
    await hub.kill()

    hub = await start_hub(servers, connected=True)
    cut_off = await hub.call(call.id)
    assert cut_off.result["isError"]
    assert cut_off.result["_meta"]["acp/error"]["code"] == "TURN_INTERRUPTED"
    assert (await hub.request(asked.id)).state != "open"
    (found,) = await sessions(hub)
    assert (found["id"], found["state"]) == (session, "idle")
    again = await hub.client.start_tool("coder", "continue", given)
    (asked,) = await hub.asked(call_id=again.id)
    await asked.accept({"decision": "once"})
    assert (await hub.call(again.id)).result["structuredContent"]["changed"] == [str(tmp_path / "a.txt")]
    assert (tmp_path / "a.txt").read_text() == "two"


async def test_a_hostile_agent_does_not_disturb_the_turn_of_another(start_hub: Any, tmp_path: Path) -> None:
    servers = {"coder": agent(tmp_path), "bad": agent(tmp_path, "--name", "bad")}
    hub: RunningHub = await start_hub(servers, connected=True)
    good = await start(hub, "edit a.txt one\nwait go\nrun cat a.txt\nsay done", tmp_path)
    (asked,) = await hub.asked(call_id=good.id)
    await asked.accept({"decision": "once"})
    hostile = "escapes\nflood 200000\nbabble 20000\nline {\nline [1, 2]\nhuge 20000000"
    bad = await start(hub, hostile, tmp_path, "bad")
    (asked,) = await hub.asked(call_id=bad.id)
    shown = asked.request["_meta"]["acp/toolCall"]
    assert shown["truncated"]
    assert shown["omittedBytes"] > 19_000_000
    (tmp_path / "go").touch()
    (wanted,) = await hub.asked(call_id=good.id)
    await wanted.accept({"decision": "once"})
    assert (await hub.call(good.id)).result["structuredContent"]["text"].endswith("done")
    await asked.accept({"decision": "no"})
    text = (await hub.call(bad.id)).result["structuredContent"]["text"]
    assert "\x1b" not in text
    dying = await start(hub, "foreign\ndie 3", tmp_path, "bad")
    ended = await hub.call(dying.id)
    assert "the last word" in json.dumps(ended.to_json())
    again = await (await start(hub, "say still here", tmp_path)).wait()
    assert again.result["structuredContent"]["text"] == "still here"


async def test_of_ten_agents_at_once_nothing_is_left(start_hub: Any, tmp_path: Path) -> None:
    hub: RunningHub = await start_hub()
    before = descendants(hub.process.pid)
    kib: list[int] = []
    for names in (["first"], [f"coder-{number}" for number in range(10)]):
        for name in names:
            await hub.client.servers.add(ServerSpec(name=name, **agent(tmp_path, "--name", name)))
        await hub.connected(*names)
        calls = [await start(hub, "edit a.txt one\nsay done", tmp_path, name) for name in names]
        for asked in await hub.asked(len(names)):
            await asked.accept({"decision": "once"})
        for call in calls:
            assert (await hub.call(call.id)).state == "completed"
        family = [pid for pid in descendants(hub.process.pid) if pid not in before]
        assert len(family) >= 2 * len(names)
        for name in names:
            await hub.client.servers.remove(name)
        while any(alive(pid) for pid in family):
            await anyio.sleep(POLL_S)
        kib.append(rss_kb(hub.process.pid))
    assert kib[1] - kib[0] < GROWN_KIB
