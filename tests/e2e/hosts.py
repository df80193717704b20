"""A host of 2026-07-28 over HTTP, by hand: each request alone."""

import json
from typing import Any

import httpx2

from .conftest import LIMIT_S, RunningHub

REVISION = "2026-07-28"
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


async def request(hub: RunningHub, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The response to one request at a server's own endpoint."""
    token = json.loads((hub.data_dir / "client.json").read_text())["token"]
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": ABLE,
    }
    headers = {
        "authorization": f"Bearer {token}",
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
