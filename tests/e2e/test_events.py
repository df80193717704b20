"""What servers tell, and what they offer besides tools: the reference server over both transports."""

import base64
from typing import Any

import anyio
import pytest

from .told import Told

LIMIT_S = 60
RESOURCE = "demo://resource/dynamic/text/1"


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, everything_command: list[str], shared_http_peer: Any
) -> Any:
    """A hub with the reference server."""
    if request.param == "stdio":
        server: dict[str, Any] = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    else:
        server = {"url": f"{shared_http_peer([*everything_command, 'streamableHttp']).url}/mcp"}
    hub = await start_shared_hub({"everything": server})
    await hub.connected("everything")
    return hub


async def call(hub: Any, tool: str, **arguments: Any) -> str:
    result = await hub.client.call_tool("everything", tool, arguments)
    assert not result.is_error, result
    return result.text


async def test_progress_of_a_call_is_an_event_that_names_the_call(hub: Any) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, kinds=["progress"])
        await told.listening.wait()
        arguments = {"name": "trigger-long-running-operation", "arguments": {"duration": 1, "steps": 3}}
        started = await hub.client.start("everything", "tools/call", arguments)
        await told.until(lambda event: event.params["progress"] == 3)
        tasks.cancel_scope.cancel()
    assert [event.params["progress"] for event in told.events] == [1, 2, 3]
    assert {event.call_id for event in told.events} == {started.id}
    assert {event.method for event in told.events} == {"notifications/progress"}


async def test_a_resource_that_is_watched_twice_is_subscribed_once_and_again_after_a_reconnect(hub: Any) -> None:
    async def subscriptions() -> int:
        calls = await hub.client.calls.list(server="everything")
        return sum(c.method == "resources/subscribe" and c.params == {"uri": f"{RESOURCE}0"} for c in calls)

    one, other = hub.client.subscribe("everything", f"{RESOURCE}0"), hub.client.subscribe("everything", f"{RESOURCE}0")
    with anyio.fail_after(LIMIT_S):
        before, _ = await anext(one), await anext(other)
        assert await subscriptions() == 1
        await hub.client.servers.disconnect("everything")
        await hub.client.servers.connect("everything")
        await hub.connected("everything")
        after = await anext(one)
    assert after.at > before.at
    assert await subscriptions() == 2
    await one.aclose()
    await other.aclose()


async def test_binary_and_embedded_content_passes_through_unharmed(hub: Any) -> None:
    blob = await hub.client.read_resource("everything", "demo://resource/dynamic/blob/1")
    assert base64.b64decode(blob["contents"][0]["blob"], validate=True)
    image = await hub.client.call_tool("everything", "get-tiny-image")
    (picture,) = [part for part in image.content if part["type"] == "image"]
    assert base64.b64decode(picture["data"], validate=True).startswith(b"\x89PNG")
    arguments = {"resourceType": "Text", "resourceId": "1"}
    embedded = await hub.client.get_prompt("everything", "resource-prompt", arguments)
    assert [m["content"]["resource"]["uri"] for m in embedded["messages"] if m["content"]["type"] == "resource"]
