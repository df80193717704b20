"""Hosts over HTTP, by hand: one of 2026-07-28, each request alone; and one of 2025-11-25 that waits for a call."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from .conftest import LIMIT_S, RunningHub

REVISION = "2026-07-28"
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


BEFORE = "2025-11-25"


async def request(hub: RunningHub, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The response to one request at a server's own endpoint."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": ABLE,
    }
    headers = {
        "authorization": f"Bearer {hub.token}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION,
        "mcp-method": method,
        "mcp-name": params["name"],
    }
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with httpx2.AsyncClient(timeout=LIMIT_S) as client:
        response = await client.post(f"{hub.ready['mcp']}/s/{server}", json=message, headers=headers)
    if response.headers["content-type"].startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
        return json.loads(events[-1])
    return response.json()


async def asked(hub: RunningHub, server: str, tool: str) -> tuple[dict[str, Any], list[str]]:
    """Calls a tool that asks; returns the request to come back with, without answers, and the keys to answer."""
    params: dict[str, Any] = {"name": tool, "arguments": {}}
    result = (await request(hub, server, "tools/call", params))["result"]
    assert result["resultType"] == "input_required"
    return {**params, "requestState": result["requestState"]}, list(result["inputRequests"])


@asynccontextmanager
async def waiting(hub: RunningHub, path: str, name: str, tool: str, **arguments: Any) -> AsyncGenerator[None]:
    """A host of this name with a session at an endpoint; it waits for a tool, and asks nobody itself."""
    hello = {"protocolVersion": BEFORE, "capabilities": {}, "clientInfo": {"name": name, "version": "1.2"}}
    headers = {"authorization": f"Bearer {hub.token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers, timeout=None) as client:
        url = f"{hub.ready['mcp']}{path}"

        async def post(**message: Any) -> httpx2.Response:
            response = await client.post(url, json={"jsonrpc": "2.0", **message})
            return response.raise_for_status()

        begun = await post(id=0, method="initialize", params=hello)
        client.headers |= {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": BEFORE}
        await post(method="notifications/initialized")

        async def call() -> None:
            await post(id=1, method="tools/call", params={"name": tool, "arguments": arguments})

        # No task group: a test that fails in here fails with its own words.
        calling = asyncio.create_task(call())
        try:
            yield
        finally:
            calling.cancel()
            await asyncio.wait([calling])
            await client.delete(url, timeout=LIMIT_S)
