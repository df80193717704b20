"""A hub that is killed while a host asks its person: the host comes back to the call, or hears that it is gone.

`test_hosts_kills.py` kills at any moment.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import hosts


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers keep the answers that they got."""
    path = tmp_path / "journal"
    monkeypatch.setenv("JOURNAL", str(path))
    return path


@pytest.fixture
def asking(journal: Path, http_peer: Any, peer_scripts: Path, free_port: int) -> dict[str, Any]:
    """Servers that ask: one of each family."""
    mrtr = http_peer([sys.executable, str(peer_scripts / "mrtr_server.py"), "http"], port=free_port)
    asks = {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}
    return {"mrtr": {"url": f"{mrtr.url}/mcp"}, "asking": {**asks, "protocol": "2025-11-25"}}


LISTENS = {"mcp_listen": "127.0.0.1:0"}


async def kills(start_hub: Any, servers: dict[str, Any], journal: Path, count: int) -> None:
    """Kills the hub so many times between a question and its answer."""
    hub = await start_hub(servers, hub=LISTENS)
    await hub.connected("mrtr")
    for number in range(count):
        again, keys = await hosts.asked(hub, "mrtr", "three_forms")
        await hub.kill()
        hub = await start_hub(servers, hub=LISTENS)
        said = {key: {"action": "accept", "content": {"value": f"{number} {key}"}} for key in keys}
        response = await hosts.request(hub, "mrtr", "tools/call", {**again, "inputResponses": said})
        assert json.loads(response["result"]["content"][0]["text"]) == said
    got = Counter(json.loads(line)["answer"]["content"]["value"] for line in journal.read_text().splitlines())
    assert got == {f"{number} {key}": 1 for number in range(count) for key in ("a", "b", "c")}


async def losses(start_hub: Any, servers: dict[str, Any], count: int) -> None:
    """Kills the hub so many times while a server of 2025-11-25 waits for an answer."""
    hub = await start_hub(servers, hub=LISTENS)
    await hub.connected("asking")
    for _ in range(count):
        again, (key,) = await hosts.asked(hub, "asking", "ask")
        await hub.kill()
        hub = await start_hub(servers, hub=LISTENS)
        said = {key: {"action": "accept", "content": {"name": "Ada"}}}
        result = (await hosts.request(hub, "asking", "tools/call", {**again, "inputResponses": said}))["result"]
        assert result["isError"]
        assert "restarted" in result["content"][0]["text"]
        await hub.connected("asking")


async def test_a_host_finds_its_call_after_kills_and_each_tool_ran_once(
    start_hub: Any, asking: dict[str, Any], journal: Path
) -> None:
    await kills(start_hub, asking, journal, 3)


async def test_a_host_hears_that_a_call_which_needed_its_connection_is_gone(
    start_hub: Any, asking: dict[str, Any]
) -> None:
    await losses(start_hub, asking, 1)
