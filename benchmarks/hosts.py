"""What hosts get: a client of the SDK at the hub's endpoint beside one that is connected to the server itself."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import goals
import httpx2
import mcp
import rivals
from goals import ASKING, ENDPOINT, MAX_IN_FLIGHT, Compared, Way
from mcp.client.streamable_http import streamable_http_client
from measure import TEXT, Figure, percentile
from processes import HubProcess, http_server, hub, stdio_server

LISTED = 1000
"""Tools of the longest list."""
REVISION, PREFIX = "2026-07-28", "io.modelcontextprotocol/"
LIST_MS = 50.0
"""Milliseconds in which 95 of 100 hosts should have it."""


async def compare(
    directory: Path, *, rounds: int, calls: int, most_s: float, against: Sequence[str] = ()
) -> list[Compared]:
    """The figures of each way over HTTP. A round takes about `most_s` seconds at most; `against` are rivals."""
    rows: list[Compared] = []
    async with http_server("sdk.py", "http") as url, AsyncExitStack() as open_:
        options = {"url": url}
        ways = [
            await open_.enter_async_context(goals.direct(options)),
            await open_.enter_async_context(_endpoint(options, directory)),
        ]
        for name in against:
            try:
                ways.append(await open_.enter_async_context(goals.rival(name, options, directory / name)))
            except rivals.MissingError as exc:
                rows += [Compared("HTTP", what, name, note=str(exc)) for what in goals.FIGURES]
        rows += await goals.measured_ways("HTTP", ways, rounds, calls, most_s)
    return rows


@asynccontextmanager
async def _endpoint(options: dict[str, Any], directory: Path) -> AsyncGenerator[Way]:
    servers = {"echo": {**options, "max_in_flight": MAX_IN_FLIGHT}, "ask": {**options, "protocol": ASKING}}
    async with hub(servers, directory, settings={"mcp_listen": "127.0.0.1:0"}) as running, _http(running) as http:

        def at(server: str) -> goals.Target:
            return lambda: streamable_http_client(f"{running.endpoint}/s/{server}", http_client=http)

        async with goals.through_client(ENDPOINT, at("echo"), running, at("ask")) as way:
            yield way


@asynccontextmanager
async def _http(running: HubProcess) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client that shows the hub's token; it has no pool of its own kind, so that it is the SDK's but for that."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {running.token}"}, limits=limits) as client:
        yield client


async def crowds(directory: Path, *, sessions: int, lists: int) -> list[Figure]:
    """Many sessions at once, each with a call; and how long a host waits for a long list."""
    servers = {"echo": stdio_server("light_stdio.py"), "long": stdio_server("light_stdio.py", str(LISTED))}
    async with hub(servers, directory, settings={"mcp_listen": "127.0.0.1:0"}) as running, _http(running) as http:
        failed = 0
        async with AsyncExitStack() as open_:
            for _ in range(sessions):
                at = streamable_http_client(f"{running.endpoint}/s/echo", http_client=http)
                client = await open_.enter_async_context(mcp.Client(at, mode="legacy"))
                failed += (await client.call_tool("echo", {"text": TEXT})).is_error
        took_ms = await _lists(running, lists)
    return [
        Figure(f"calls that failed, of {sessions} hosts with a session each", failed, "", 0),
        Figure(f"a list of {LISTED} tools, 95th percentile", percentile(took_ms, 0.95), "ms", LIST_MS),
    ]


async def _lists(running: HubProcess, count: int) -> list[float]:
    """How long each of so many requests for the long list took, in milliseconds."""
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/list"}
    meta = {f"{PREFIX}protocolVersion": REVISION, f"{PREFIX}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    took_ms: list[float] = []
    async with _http(running) as http:
        for _ in range(count):
            began = perf_counter()
            response = await http.post(f"{running.endpoint}/s/long", json=message, headers=headers)
            took_ms.append((perf_counter() - began) * 1000)
            assert response.content.count(b'"tool_') == LISTED
    return took_ms
