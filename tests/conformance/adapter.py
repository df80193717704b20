"""The client under test of the conformance suite: a real hub that runs, and a frontend that uses all a server offers.

The suite starts the frontend with the URL of a scenario's server as the last argument, and says more in the
environment: MCP_CONFORMANCE_SCENARIO, and in MCP_CONFORMANCE_CONTEXT what the scenario gives a client to use. All that
the server sees comes from the hub; the frontend only knows the client library. It calls all tools at once, so that what
one call is asked is there to be mixed up with the others. The hub is that of HUBBUB_DATA_DIR, HUB_CONFIG its file: a
scenario has its server there for as long as it lasts. Exits 1 when the hub does not reach the server or a call fails.
"""

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

import hubbub_client

LIMIT_S = 60
"""Longest run, which is less than the suite waits: so that the hub always loses the server, and says why in its log."""

STOP_LIMIT_S = 15

LISTING_ONLY = frozenset({"json-schema-ref-no-deref"})
"""Scenarios whose server has tools to list and none to call."""

CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""What the suite takes for the address of a client's metadata."""

EXAMPLES = {"string": "text", "number": 2, "integer": 2, "boolean": True, "array": [], "null": None}


async def main(url: str, scenario: str, context: Mapping[str, Any]) -> int:
    """Plays a scenario; the exit status."""
    server = {"url": url, "retries": 0, **authorization(scenario, context)}
    with anyio.fail_after(LIMIT_S):
        async with (
            hubbub_client.connect() as hub,
            configured(hub, server) as name,
            anyio.create_task_group() as answering,
        ):
            answering.start_soon(answer_everything, hub, name)
            reached = await settled(hub, name)
            if reached.state == "connected":
                await use(hub, name, scenario, context)
            answering.cancel_scope.cancel()
    if reached.error is not None:
        print(f"{reached.state}: {reached.error}", file=sys.stderr)
    return 0 if reached.state == "connected" else 1


def authorization(scenario: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration of a server says of its authorization, as an operator would write it."""
    named = {"client_id": "client_id", "client_secret": "client_secret", "private_key": "private_key_pem"}
    named["signing_algorithm"] = "signing_algorithm"
    known = {ours: context[theirs] for ours, theirs in named.items() if theirs in context}
    if scenario == "auth/basic-cimd":
        known = {"client_metadata_url": CLIENT_METADATA_URL}
    if scenario.startswith("auth/client-credentials"):
        known["grant"] = "client_credentials"
    return {"oauth": known} if known else {}


@asynccontextmanager
async def configured(hub: hubbub_client.Hub, server: Mapping[str, Any]) -> AsyncIterator[str]:
    """The name of this server, which the hub has until the end of the block, as its operator would have written it."""
    config = Path(os.environ["HUB_CONFIG"])
    name = f"under-test-{uuid.uuid4().hex}"

    async def adopt(servers: Mapping[str, Any]) -> None:
        config.write_text(json.dumps({"servers": servers}))
        await hub.admin.reload()

    await adopt({name: server})
    try:
        yield name
    finally:
        with anyio.move_on_after(STOP_LIMIT_S, shield=True):
            await adopt({})


async def settled(hub: hubbub_client.Hub, name: str) -> hubbub_client.Server:
    """The server, once the hub has reached it or given it up."""
    async with aclosing(hub.servers.watch([name])) as changes:
        async for change in changes:
            if isinstance(change, hubbub_client.Upsert) and (
                change.record.state == "connected" or (change.record.error and change.record.state == "disconnected")
            ):
                return change.record
    raise AssertionError("a watch does not end")


async def answer_everything(hub: hubbub_client.Hub, name: str) -> None:
    """Agrees to whatever the server asks, as a person would who fills in nothing and opens every link."""
    asked = hub.inbox.watch(states=["open"], server=name)
    async with aclosing(asked) as questions, httpx2.AsyncClient(trust_env=False) as browser:
        async for question in questions:
            match question:
                case hubbub_client.Upsert(record=asked) if asked.kind == "elicitation_url":
                    await open_link(asked, browser)
                case hubbub_client.Upsert(record=asked) if asked.kind == "sampling":
                    await asked.reply_text("text")
                case hubbub_client.Upsert(record=asked):
                    await asked.accept()
                case _:
                    pass


async def open_link(asked: hubbub_client.PendingRequest, browser: httpx2.AsyncClient) -> None:
    """Visits the page; where it leads back to is pasted when another program has the port that the hub hoped for."""
    page = await browser.get(asked.request["url"])
    while page.next_request is not None:
        target = str(page.next_request.url)
        try:
            page = await browser.send(page.next_request)
        except httpx2.TransportError:
            page = httpx2.Response(502)
        if not page.is_success and "state=" in target:
            await asked.accept({"redirect_url": target})
            return


async def use(hub: hubbub_client.Hub, name: str, scenario: str, context: Mapping[str, Any]) -> None:
    """Lists all there is, and calls, reads and gets it."""

    async def call(method: str, params: Mapping[str, Any] | None = None) -> Any:
        return await hub.call(name, method, params)

    for each in await hub.catalog.refresh(name):
        assert each.error is None, each
    tools = [entry.object for entry in await hub.catalog.tools(name)]
    if scenario in LISTING_ONLY:
        return
    async with anyio.create_task_group() as calls:
        for chosen in context.get("toolCalls") or [example_call(tool, tools) for tool in tools]:
            calls.start_soon(call, "tools/call", chosen)
        for resource in await hub.catalog.resources(name):
            calls.start_soon(call, "resources/read", {"uri": resource.object["uri"]})
        for prompt in await hub.catalog.prompts(name):
            calls.start_soon(call, "prompts/get", {"name": prompt.name})


def example_call(tool: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A call of a tool with an example of each argument that it requires.

    An object is the first tool's schema: from that a server sees whether its listing came through unharmed.
    """
    examples = {**EXAMPLES, "object": tools[0]["inputSchema"]}
    schema = tool["inputSchema"]
    required = schema.get("required", ())
    return {
        "name": tool["name"],
        "arguments": {name: examples[schema["properties"][name]["type"]] for name in required},
    }


if __name__ == "__main__":
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    sys.exit(anyio.run(main, sys.argv[-1], scenario, context))
