"""A server that floods is slowed down and reported once, for the person who has to act on it; others do not notice."""

from collections.abc import Callable
from typing import Any

import anyio

from .conftest import LIMIT_S, POLL_S
from .crowd import bad, rss_kb

HEAVY_KB = 400 * 1024
"""More than a hub may have in memory that was asked heavy questions."""

FLOOD_KB = 48 * 1024
"""More than a flood may add to the hub's memory."""


async def test_a_flood_is_slowed_down_and_reported_once_while_others_go_on(start_hub: Callable[..., Any]) -> None:
    servers = {"good": bad("good"), "bad": bad("log_flood", max_messages_per_s=100)}
    hub = await start_hub(servers, connected=True)
    before = rss_kb(hub.process.pid)

    async def throttled() -> list[Any]:
        return [line for line in await hub.client.events.logs("bad", lines=500) if line.kind == "throttled"]

    async def reported() -> list[Any]:
        return list(await hub.client.audit.list(action="ThrottleServer"))

    with anyio.fail_after(LIMIT_S):
        while not await reported():
            await anyio.sleep(POLL_S)
        (line,) = await throttled()
        assert "100 messages a second" in line.params["line"]
        for number in range(100):
            result = await hub.client.call_tool("good", "echo", {"text": str(number)})
            assert result.text == str(number)
        assert await hub.client.call_tool("bad", "echo")
    (entry,) = await reported()
    assert (entry.principal, entry.target, entry.outcome) == ("hub", "bad", "OK")
    assert rss_kb(hub.process.pid) - before < FLOOD_KB


async def test_heavy_questions_are_refused_while_others_go_on(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({"good": bad("good"), "bad": bad("heavy", max_open_request_bytes=8_000_000)}, connected=True)
    refused = 0
    with anyio.fail_after(LIMIT_S):
        while refused < 5:  # the wrong one, and four of those that are too much
            assert await hub.client.admin.whoami()
            assert (await hub.client.call_tool("good", "echo", {"text": "x"})).text == "x"
            refused = int((await hub.client.call_tool("bad", "echo")).text)
    assert len(await hub.asked(3, server="bad")) == 3
    assert rss_kb(hub.process.pid) < HEAVY_KB


async def test_the_audit_log_is_listed_and_exported_on_the_command_line(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({"good": bad("good")}, connected=True)
    await hub.hubbub("servers", "disconnect", "good")
    await hub.hubbub("servers", "remove", "good")  # it is a file's: refused
    listed = await hub.hubbub("audit", "list", "--target", "good")
    exported = await hub.hubbub("audit", "export", "--since", "2020-01-01T00:00:00")
    entries = exported.lines
    assert listed.lines == entries
    assert [(entry["action"], entry["outcome"], entry["principal"]) for entry in entries] == [
        ("RemoveServer", "SERVER_READ_ONLY", "local"),
        ("DisconnectServer", "OK", "local"),
    ]
    later = await hub.hubbub("audit", "export", "--since", "2100-01-01T00:00:00")
    assert later.out == ""
