"""FastMCP's client, which has no model: a loop asks one and calls what it says; see `way.py`."""

import asyncio
import json
import os
from contextlib import suppress
from typing import Any

import httpx2
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp.shared.exceptions import MCPError
from way import ARGUMENTS, COMMAND, ENVIRONMENT, MODEL, PROMPT, TURNS, URL, WAIT_S


async def ask(model: httpx2.AsyncClient, tools: list[Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    functions = [{"type": "function", "function": {"name": tool.name, "parameters": {}}} for tool in tools]
    body = {"model": MODEL, "messages": messages, "tools": functions, "stream": True}
    text = (await model.post("chat/completions", json=body)).text
    return json.loads(text.partition("data: ")[2].partition("\n")[0])["choices"][0]["delta"]


async def call(client: Client[Any], wanted: dict[str, Any]) -> str:
    function = wanted["function"]
    try:
        result = await client.call_tool_mcp(function["name"], json.loads(function["arguments"]))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return result.model_dump_json(by_alias=True)


async def main() -> None:
    transport: Any = URL or StdioTransport(COMMAND, ARGUMENTS, env=ENVIRONMENT)
    auth = {"auth": os.environ["TOKEN"]} if URL else {}
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    base = os.environ["OPENAI_BASE_URL"]
    async with (
        Client(transport, timeout=WAIT_S, **auth) as client,
        httpx2.AsyncClient(base_url=base, timeout=None) as model,
    ):
        tools = await client.list_tools()
        for _ in range(TURNS):
            with suppress(MCPError):  # while the hub is away, those of before
                tools = await client.list_tools()
            said = await ask(model, tools, messages)
            if "tool_calls" not in said:
                break
            (wanted,) = said["tool_calls"]
            messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": await call(client, wanted)})


asyncio.run(main())
