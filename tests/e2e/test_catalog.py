"""What servers offer, over all of them: kept whole and fresh, and honest about the rest."""

from typing import Any

import pytest

from .conftest import RunningHub


async def listed(hub: RunningHub, server: str, *freshness: str, kind: str = "tool", **wanted: Any) -> Any:
    """Waits until a list is as wanted, and returns it."""

    def matches(record: Any) -> bool:
        return record.freshness in freshness and all(getattr(record, name) == wanted[name] for name in wanted)

    return (await hub.watched(hub.client.catalog.watch(server=server, kinds=[kind]), matches))[0]


async def names(hub: RunningHub, server: str) -> list[str]:
    return [tool.name for tool in await hub.client.catalog.tools(server)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_all_that_the_reference_server_offers_is_listed(
    start_hub: Any, everything_command: list[str], http_peer: Any, transport: str
) -> None:
    if transport == "stdio":
        server: dict[str, Any] = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    else:
        server = {"url": f"{http_peer([*everything_command, 'streamableHttp']).url}/mcp"}
    hub = await start_hub({"everything": server})
    for kind in ("tool", "resource", "template", "prompt"):
        await listed(hub, "everything", "fresh", kind=kind)
    # It adds tools once the hub has said what it can do, and tells of that.
    asked = await hub.client.call("everything", "tools/list")
    await listed(hub, "everything", "fresh", count=len(asked["tools"]))
    ran = await hub.hubbub("catalog", "tools", "--server", "everything")
    assert (ran.status, ran.err) == (0, "")
    assert {row["server"] for row in ran.lines} == {"everything"}
    tools = {row["tool"]["name"]: row["tool"] for row in ran.lines}
    assert tools["get-sum"]["inputSchema"]["required"] == ["a", "b"]
    assert "trigger-elicitation-request" in tools  # added only once the hub had said what it can do
    assert set(tools) == {tool["name"] for tool in asked["tools"]}
    templates = (await hub.hubbub("catalog", "templates")).lines
    assert [row["template"]["uriTemplate"].split("{")[0] for row in templates] == [
        "demo://resource/dynamic/text/",
        "demo://resource/dynamic/blob/",
    ]
    resources = (await hub.hubbub("catalog", "resources")).lines
    assert all(row["resource"]["uri"].startswith("demo://") for row in resources)
    prompts = (await hub.hubbub("catalog", "prompts")).lines
    assert "simple-prompt" in [row["prompt"]["name"] for row in prompts]
