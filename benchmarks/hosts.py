"""What hosts get: a client of the SDK at the hub beside one that is connected to the server itself."""

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import goals
import httpx2
import mcp
import rivals
from forwarded import FORWARDED
from goals import ASKING, BRIDGE, ENDPOINT, MAX_IN_FLIGHT, Compared, Way
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from measure import TEXT, Figure, percentile
from processes import HERE, HubProcess, find_free_port, start_http_server, start_hub, start_listening, stdio_server

LISTED = 1000
"""Tools of the longest list."""
REVISION, PREFIX = "2026-07-28", "io.modelcontextprotocol/"
LIST_MS = 50.0
"""Milliseconds in which 95 of 100 requests for the longest list should be answered."""


async def compare_hosts(
    directory: Path, *, rounds: int, calls: int, most_s: float, against: Sequence[str] = ()
) -> list[Compared]:
    """The figures of each way, by transport. A round takes about `most_s` seconds at most; `against` are rivals."""
    rows: list[Compared] = []
    async with start_http_server("sdk.py", "http") as url:
        ways = {
            "HTTP": ({"url": url}, ENDPOINT, connect_to_endpoint),
            "stdio": (stdio_server("sdk.py", "stdio"), BRIDGE, _connect_to_bridge),
        }
        for transport, (options, name, at) in ways.items():
            async with AsyncExitStack() as open_:
                folder = directory / transport
                compared = [
                    await open_.enter_async_context(goals.open_direct(options)),
                    await open_.enter_async_context(_open_hub_way(name, at, options, folder)),
                ]
                if transport == "HTTP":
                    compared.append(await open_.enter_async_context(_open_forwarder(url)))
                for rival in against:
                    try:
                        compared.append(
                            await open_.enter_async_context(goals.open_rival(rival, options, folder / rival))
                        )
                    except rivals.MissingError as exc:
                        rows += [Compared(transport, what, rival, note=str(exc)) for what in goals.FIGURES]
                rows += await goals.measure_ways(transport, compared, rounds, calls, most_s)
    return rows


@asynccontextmanager
async def _open_forwarder(url: str) -> AsyncGenerator[Way]:
    """Calls of a client of the SDK through a process that only forwards."""
    port = find_free_port()
    async with (
        start_listening([sys.executable, HERE / "servers" / "forward.py", url], port) as process,
        goals.open_client_way(FORWARDED, lambda: f"http://127.0.0.1:{port}/mcp", process) as way,
    ):
        yield way


At = Callable[[HubProcess, httpx2.AsyncClient, str], Any]
"""Returns what a client of the SDK connects to, to reach one server of a hub."""


def connect_to_endpoint(running: HubProcess, http: httpx2.AsyncClient, server: str) -> Any:
    return streamable_http_client(f"{running.endpoint}/s/{server}", http_client=http)


def _connect_to_bridge(running: HubProcess, _http: httpx2.AsyncClient, server: str) -> Any:
    args = ["--data-dir", str(running.data_dir), "mcp", "--server", server]
    return StdioServerParameters(command=str(Path(sys.executable).with_name("hubbub")), args=args)


@asynccontextmanager
async def _open_hub_way(name: str, at: At, options: dict[str, Any], directory: Path) -> AsyncGenerator[Way]:
    """Calls of a client of the SDK through a hub of its own; `at` says what the client connects to."""
    directory.mkdir(parents=True)
    servers = {"echo": {**options, "max_in_flight": MAX_IN_FLIGHT}, "ask": {**options, "protocol": ASKING}}
    async with (
        start_hub(servers, directory, settings={"mcp_listen": "127.0.0.1:0"}) as running,
        open_authorized_client(running) as http,
    ):

        def target(server: str) -> goals.Target:
            return lambda: at(running, http, server)

        async with goals.open_client_way(name, target("echo"), running, target("ask")) as way:
            yield way


@asynccontextmanager
async def open_authorized_client(running: HubProcess) -> AsyncGenerator[httpx2.AsyncClient]:
    """An HTTP client that shows the hub's token, with as many connections as it wants."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {running.token}"}, limits=limits) as client:
        yield client


async def measure_crowds(directory: Path, *, sessions: int, lists: int) -> list[Figure]:
    """Many sessions at once, each with a call; and how long a host waits for a long list."""
    servers = {"echo": stdio_server("light_stdio.py"), "long": stdio_server("light_stdio.py", str(LISTED))}
    async with (
        start_hub(servers, directory, settings={"mcp_listen": "127.0.0.1:0"}) as running,
        open_authorized_client(running) as http,
    ):
        failed = 0
        async with AsyncExitStack() as open_:
            for _ in range(sessions):
                client = await open_.enter_async_context(
                    mcp.Client(connect_to_endpoint(running, http, "echo"), mode="legacy")
                )
                failed += (await client.call_tool("echo", {"text": TEXT})).is_error
        took_ms = await _time_lists(running, lists)
    return [
        Figure(f"calls that failed, of {sessions} hosts with a session each", failed, "", 0),
        Figure(f"a list of {LISTED} tools, 95th percentile", percentile(took_ms, 0.95), "ms", LIST_MS),
    ]


async def _time_lists(running: HubProcess, count: int) -> list[float]:
    """How long each of so many requests for the long list took, in milliseconds."""
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/list"}
    meta = {f"{PREFIX}protocolVersion": REVISION, f"{PREFIX}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    took_ms: list[float] = []
    async with open_authorized_client(running) as http:
        for _ in range(count):
            began = perf_counter()
            response = await http.post(f"{running.endpoint}/s/long", json=message, headers=headers)
            took_ms.append((perf_counter() - began) * 1000)
            assert response.content.count(b'"tool_') == LISTED
    return took_ms
