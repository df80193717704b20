"""The processes of a measurement: a real hub, HTTP servers, and what the system says of them."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import anyio

import hubbub_client

HERE = Path(__file__).resolve().parent
START_LIMIT_S = 30
STOP_LIMIT_S = 10
MIB = 1024 * 1024
UNPACED = {"rpcs_per_s_per_principal": 1_000_000}
"""Settings of hubs that are to do as much as they can: one caller makes more calls than the default lets it."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running process that stands between clients and servers."""

    pid: int

    def cpu_s(self) -> float:
        """Processor time that it has taken; its servers are other processes."""
        return cpu_s(self.pid)

    def rss_mib(self) -> float:
        """Resident memory."""
        return rss_mib(self.pid)


@dataclass(frozen=True, slots=True)
class HubProcess(Process):
    """A running hub, all of whose servers are connected."""

    address: str
    data_dir: Path
    client: hubbub_client.Hub
    endpoint: str = ""
    """The URL for hosts, where there is one."""

    @property
    def token(self) -> str:
        """The hub's own token."""
        return json.loads((self.data_dir / "client.json").read_text())["token"]


def cpu_s(pid: int) -> float:
    """Processor time that a process has taken with all its threads."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) has it


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def find_descendants(pid: int) -> list[int]:
    """The processes below a process, at any depth."""
    pids: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for each in children.read_text().split():
            pids += [int(each), *find_descendants(int(each))]
    return pids


def stdio_server(name: str, *args: str) -> dict[str, Any]:
    """The configuration of one of our servers over stdio."""
    return {"command": sys.executable, "args": [str(HERE / "servers" / name), *args]}


@asynccontextmanager
async def start_http_server(name: str, *args: str, python: str = sys.executable) -> AsyncGenerator[str]:
    """One of our servers over HTTP, or the script at a path of its own, running; its URL."""
    port = find_free_port()
    async with start_listening([python, HERE / "servers" / name, *args], port):
        yield f"http://127.0.0.1:{port}/mcp"


def find_free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def start_listening(
    command: Sequence[str | Path], port: int, log: IO[bytes] | None = None
) -> AsyncGenerator[Process]:
    """A process that gets PORT and listens there. What it says goes to the log, or to our own output."""
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"PORT": str(port)}
    )
    async with end_after(process):
        with anyio.fail_after(START_LIMIT_S):
            while not await _is_listening(port):
                if process.returncode is not None:
                    raise ChildProcessError(f"{command[0]} ended with {process.returncode} instead of listening")
                await anyio.sleep(0.05)
        yield Process(process.pid)


@asynccontextmanager
async def start_hub(
    servers: Mapping[str, Mapping[str, Any]],
    directory: Path,
    command: Sequence[str | Path] | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    profiles: Mapping[str, Any] | None = None,
    connected: bool = True,
) -> AsyncGenerator[HubProcess]:
    """A hub with these servers, as its own process, through the client library. `command` stands in for hubbubd.

    Unless `connected` is unset, all servers are connected then. `profiles` are what hosts see.
    """
    config, data_dir = directory / "hubbub.json", directory / "hub"
    mcp = {"mcp": {"profiles": profiles}} if profiles else {}
    config.write_text(json.dumps({"hub": {**UNPACED, **(settings or {})}, "servers": servers, **mcp}))
    options = ["--config", config, "--data-dir", data_dir, "--listen", "127.0.0.1:0"]
    process = await anyio.open_process(
        [*(command or [sys.executable, "-m", "hubbubd"]), *options],
        stdin=subprocess.DEVNULL,
        stderr=None,
        env=os.environ | {"HUBBUBD_LOG_LEVEL": "warning"} | dict(environ or {}),
    )
    async with end_after(process):
        assert process.stdout is not None
        with anyio.fail_after(START_LIMIT_S):
            ready = json.loads(await process.stdout.receive())
        async with hubbub_client.connect(data_dir=data_dir) as client:
            with anyio.fail_after(START_LIMIT_S):
                while connected and any(server.state != "connected" for server in await client.servers.list()):
                    await anyio.sleep(0.05)
            yield HubProcess(ready["pid"], ready["grpc"], data_dir, client, ready.get("mcp", ""))


@asynccontextmanager
async def end_after(process: anyio.abc.Process) -> AsyncGenerator[None]:
    """Ends the process on every way out."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            with anyio.move_on_after(STOP_LIMIT_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _is_listening(port: int) -> bool:
    """Whether something takes connections at this port."""
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False
