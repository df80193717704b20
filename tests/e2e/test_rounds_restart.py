"""A hub that is killed while a call waits for an answer: the call goes on with the next one."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def mrtr(http_peer: Any, peer_scripts: Path, free_port: int) -> Any:
    """Starts the asking server over HTTP with these flags, always at the same port.

    A test names it before its hub, so that the hub goes first: the server waits for those who are connected.
    """

    def start(*flags: str) -> Any:
        return http_peer([sys.executable, str(peer_scripts / "mrtr_server.py"), "http", *flags], port=free_port)

    return start


async def test_a_call_is_found_by_its_id_and_has_its_result_though_the_hub_was_killed(
    mrtr: Any, start_hub: Any
) -> None:
    server = {"mrtr": {"url": f"{mrtr().url}/mcp"}}
    first = await start_hub(server)
    params = {"name": "two_rounds", "arguments": {}}
    await first.client.start("mrtr", "tools/call", params, call_id="mine")
    (name,) = await first.asked(call_id="mine")
    await first.kill()

    second = await start_hub(server)
    (kept,) = await second.asked(call_id="mine")
    assert (kept.id, kept.deadline, kept.state) == (name.id, name.deadline, "open")
    assert (await second.client.calls.get("mine")).state == "waiting_input"
    await second.client.inbox.answer(kept.id, accept={"name": "Ada"})
    (age,) = await second.asked(call_id="mine")
    await second.kill()

    third = await start_hub(server)
    await third.client.inbox.answer(age.id, accept={"age": 36})
    done = await third.call("mine")
    heard = json.loads(done.result["content"][0]["text"])
    assert {key: answer["content"] for key, answer in heard.items()} == {"name": {"name": "Ada"}, "age": {"age": 36}}
    shown = (await third.hubbub("calls", "get", "mine")).record
    assert (shown["state"], shown["result"]) == ("completed", done.result)
    for request in (name, age):
        assert (await third.request(request.id, delivery="delivered")).state == "answered"
    assert (await third.client.calls.call("mrtr", "tools/call", params, call_id="mine")).result == done.result
