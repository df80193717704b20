"""What else stands between clients and servers: each is installed in an environment of its own by `make rivals`.

`fastmcp` is FastMCP's proxy, `mcp-proxy` the command of that name, and `envoy` is Envoy with its MCP router. No package
of PyPI has the Envoy AI gateway.
"""

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from processes import HERE, Process, find_free_port, start_listening

PEERS = Path(os.environ.get("HUBBUB_PEERS") or HERE.parent / ".peers")
EXTENSION = "type.googleapis.com/envoy.extensions.filters"

Options = Mapping[str, Any]
"""A server as the hub has it: `command` and `args`, or `url`."""


class MissingError(Exception):
    """A rival is not installed, or serves no such server; its text stands in the table in place of a figure."""


@asynccontextmanager
async def start_rival(name: str, options: Options, directory: Path) -> AsyncGenerator[tuple[str, Process]]:
    """A rival in front of this server: the URL for clients, and its process.

    Raises MissingError, which says why: it does not serve this transport, or is not installed.
    """
    port, place = find_free_port(), PEERS / name
    command = RIVALS[name](place / "bin", options, port, directory)
    if command is None:
        raise MissingError("none")
    if not (place / "stamp").exists():
        raise MissingError("not installed")
    with (directory / f"{name}.log").open("wb") as log:
        async with start_listening(command, port, log) as process:
            yield f"http://127.0.0.1:{port}/mcp", process


def _fastmcp_command(programs: Path, options: Options, _port: int, _directory: Path) -> list[str]:
    target = {key: options[key] for key in ("command", "args", "url") if key in options}
    return [str(programs / "python"), str(HERE / "rivals" / "fastmcp_proxy.py"), json.dumps(target)]


def _mcp_proxy_command(programs: Path, options: Options, port: int, _directory: Path) -> list[str] | None:
    if "url" in options:  # it serves these over stdio alone, to one client
        return None
    own = ["--port", str(port), "--pass-environment", "--log-level", "ERROR"]
    return [str(programs / "mcp-proxy"), *own, "--", options["command"], *options["args"]]


def _envoy_command(programs: Path, options: Options, port: int, directory: Path) -> list[str] | None:
    if "url" not in options:
        return None
    config = directory / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, urlsplit(options["url"]))))
    return [str(programs / "envoy"), "--config-path", str(config), "--use-dynamic-base-id", "--log-level", "error"]


def _envoy_config(port: int, upstream: Any) -> dict[str, Any]:
    """The configuration of Envoy with its MCP router, from this port to a server over HTTP."""

    def listens(at: int) -> dict[str, Any]:
        return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": at}}}

    def extension(name: str, kind: str, **fields: Any) -> dict[str, Any]:
        return {"name": f"envoy.filters.{name}", "typed_config": {"@type": f"{EXTENSION}.{name}.v3.{kind}", **fields}}

    server = {"name": "echo", "mcp_cluster": {"cluster": "echo", "path": upstream.path, "timeout": "60s"}}
    manager = extension(
        "network.http_connection_manager",
        "HttpConnectionManager",
        stat_prefix="bench",
        http_filters=[extension("http.mcp", "Mcp"), extension("http.mcp_router", "McpRouter", servers=[server])],
        route_config={
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "echo"}}]}
            ]
        },
    )
    endpoints = [{"lb_endpoints": [{"endpoint": listens(upstream.port)}]}]
    cluster = {"name": "echo", "type": "STATIC", "load_assignment": {"cluster_name": "echo", "endpoints": endpoints}}
    listener = {**listens(port), "filter_chains": [{"filters": [manager]}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


RIVALS: Mapping[str, Callable[[Path, Options, int, Path], list[str] | None]] = {
    "fastmcp": _fastmcp_command,
    "mcp-proxy": _mcp_proxy_command,
    "envoy": _envoy_command,
}
"""The command of each, from its folder of programs, the server, the port and a folder; None if it has no such way."""
