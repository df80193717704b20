"""What many servers cost: memory, the time until all are connected, their return after an outage, and rest.

`servers/many_http.py` plays all servers in one process, so its end cuts all connections at once.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import anyio
from anyio import to_thread
from measure import Figure, percentile
from processes import HERE, HubProcess, find_free_port, start_hub

import hubbub_client

FEW, MANY, MOST = 50, 500, 1000
SETTLE_S = 2.0
"""Seconds for what follows a connection: lists are fetched, records written."""
LIMIT_S = 120.0
IDLE_S = 20.0
COMMAND = [sys.executable, "-c", "from hubbub_cli import main; main()"]


class ServerProcess:
    """The servers, in a process that can be killed and started again at the same port."""

    def __init__(self, count: int) -> None:
        self._port = find_free_port()
        self.urls = [f"http://127.0.0.1:{self._port}/{number}" for number in range(count)]
        self.servers = {f"s{number}": {"url": url} for number, url in enumerate(self.urls)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, str(HERE / "servers" / "many_http.py")]
        self._process = subprocess.Popen(
            command, env=os.environ | {"PORT": str(self._port)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    async def wait_open(self) -> None:
        """Wait until a hub has the own stream of each server open."""
        with anyio.fail_after(LIMIT_S):
            while await self._count_open_streams() < len(self.urls):
                await anyio.sleep(0.1)

    async def _count_open_streams(self) -> int:
        """How many servers say that a hub has their own stream open."""
        async with await anyio.connect_tcp("127.0.0.1", self._port) as stream:
            await stream.send(b"GET /open HTTP/1.1\r\n\r\n")
            return int((await stream.receive()).rpartition(b"\n")[2])

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


async def measure_many(directory: Path, *, rounds: int, less: int) -> list[Figure]:
    """A row for each figure. `less` divides servers and seconds; then there are no goals."""
    few, many, most = (max(count // less, 1) for count in (FEW, MANY, MOST))
    parts = [
        _measure_memory(directory / "memory", few, many),
        _measure_recovery(directory / "back", few),
        _measure_start(directory / "start", few, many, rounds),
        _measure_reconnects(directory / "storm", most, IDLE_S / less),
    ]
    figures = [figure for part in parts async for figure in part]
    return figures if less == 1 else [replace(figure, goal=None) for figure in figures]


async def _measure_memory(directory: Path, few: int, many: int) -> AsyncGenerator[Figure]:
    """The memory of an empty hub, and how much more a few and many servers take."""
    empty = 0.0
    for count, goal in ((0, 70.0), (few, 20.0), (many, 75.0)):
        async with _start_servers(count) as played, _start_hub(played, directory / str(count)) as running:
            await played.wait_open()
            await anyio.sleep(SETTLE_S)
            size = running.rss_mib()
        name = f"memory for {count} servers" if count else "memory of an empty hub"
        yield Figure(name, size - empty, "MiB", goal)
        empty = empty or size


async def _measure_start(directory: Path, few: int, many: int, rounds: int) -> AsyncGenerator[Figure]:
    """The time from the start of a hub until each server has been called, against a client of the SDK."""
    for count, goal in ((few, 1.2), (many, 0.5)):
        ratio = await _start_ratio(directory / str(count), count, rounds)
        yield Figure(f"start until {count} servers were called, to the SDK's client", ratio, "x", goal)


async def _start_ratio(directory: Path, count: int, rounds: int) -> float:
    """How long the hub takes until each server was called, to the SDK's client: the median of the rounds."""
    async with _start_servers(count) as played:
        ratios: list[float] = []
        for number in range(rounds):
            ours = perf_counter()
            async with _start_hub(played, directory / str(number)) as running:
                await _call_each(running.client, played.servers)
                ours = perf_counter() - ours
            theirs = perf_counter()
            await anyio.run_process([sys.executable, str(HERE / "direct.py")], input="\n".join(played.urls).encode())
            ratios.append(ours / (perf_counter() - theirs))
    return statistics.median(ratios)


async def _measure_recovery(directory: Path, few: int) -> AsyncGenerator[Figure]:
    """Servers are killed and started again: when has each answered, and what became of calls meanwhile."""
    failed: list[hubbub_client.HubbubError] = []
    took_s = 0.0
    async with _start_servers(few) as played, _start_hub(played, directory) as running:
        await played.wait_open()
        async with anyio.create_task_group() as calling:
            for name in played.servers:
                calling.start_soon(_call_until_cancelled, running.client, name, failed)
            await anyio.sleep(1)
            await to_thread.run_sync(played.kill)
            await to_thread.run_sync(played.start)
            began = perf_counter()
            await _call_each(running.client, played.servers)
            took_s = perf_counter() - began
            calling.cancel_scope.cancel()
        yield Figure(f"until {few} servers that were started again have answered", took_s, "s", 1.5)
        yield Figure("calls that had not been sent and failed", sum(not _was_sent(each) for each in failed), "", 0)


def _was_sent(error: hubbub_client.HubbubError) -> bool:
    """Whether the server may have carried out the call: its connection broke after it had been sent."""
    return error.reason == "CONNECTION_LOST"


async def _call_until_cancelled(client: hubbub_client.Hub, name: str, failed: list[hubbub_client.HubbubError]) -> None:
    """Calls a server again and again, and adds the errors to `failed`."""
    while True:
        try:
            await client.call_tool(name, "echo", {"text": "x"})
        except hubbub_client.HubbubError as exc:
            failed.append(exc)
        await anyio.sleep(0.2)


async def _measure_reconnects(directory: Path, count: int, idle_s: float) -> AsyncGenerator[Figure]:
    """All connections are cut at once and all servers are back; then nobody does anything."""
    probe = directory / "probe.json"
    async with _start_servers(count) as played:
        async with _start_hub(played, directory, probe=probe) as running:
            await played.wait_open()
            os.kill(running.pid, signal.SIGUSR1)
            await to_thread.run_sync(played.kill)
            began = perf_counter()
            await to_thread.run_sync(played.start)
            await played.wait_open()
            yield Figure(f"storm of {count} servers", perf_counter() - began, "s", 30)
        late_s: list[float] = json.loads(probe.read_text())["late_s"]
        yield Figure("loop late meanwhile, p99", percentile(late_s, 0.99) * 1000, "ms", 100)
        yield Figure("loop late for a hundredth of that time", _worst_hundredth(late_s) * 1000, "ms", 100)
    # Other servers: these have had no stream of a hub, so that `wait_open` waits for those of this one.
    async with _start_servers(count) as played, _start_hub(played, directory / "idle") as running:
        await played.wait_open()
        await anyio.sleep(SETTLE_S)
        before_s = running.cpu_s()
        await anyio.sleep(idle_s)
        yield Figure(f"processor for {count} idle servers", (running.cpu_s() - before_s) / idle_s * 100, "%", 5)
        async for figure in _measure_lists(running, count):
            yield figure


async def _measure_lists(running: HubProcess, count: int) -> AsyncGenerator[Figure]:
    """The time of a list of all servers, by the library and by the command."""
    rpc_s: list[float] = []
    command_s: list[float] = []
    command = [*COMMAND, "--data-dir", str(running.data_dir), "servers", "list"]
    for _ in range(5):
        began = perf_counter()
        await running.client.servers.list()
        rpc_s.append(perf_counter() - began)
        began = perf_counter()
        await anyio.run_process(command)
        command_s.append(perf_counter() - began)
    yield Figure(f"list of {count} servers, by the library", statistics.median(rpc_s) * 1000, "ms", 150)
    yield Figure(f"list of {count} servers, by the command", statistics.median(command_s) * 1000, "ms", 150)


def _worst_hundredth(late_s: Sequence[float]) -> float:
    """The least that the loop was late in the worst hundredth of the time; being late for long counts for long."""
    left_s = sum(late_s) / 100
    for each in sorted(late_s, reverse=True):
        left_s -= each
        if left_s <= 0:
            return each
    return 0.0


async def _call_each(client: hubbub_client.Hub, names: Iterable[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(client.call_tool, name, "echo", {"text": "x"})


@asynccontextmanager
async def _start_servers(count: int) -> AsyncGenerator[ServerProcess]:
    """So many servers in one process, which ends with the block."""
    played = ServerProcess(count)
    played.start()
    try:
        yield played
    finally:
        played.kill()


@asynccontextmanager
async def _start_hub(
    played: ServerProcess, directory: Path, *, probe: Path | None = None
) -> AsyncGenerator[HubProcess]:
    """A hub with these servers, which need not be connected yet; with `probe`, one whose loop is watched."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, HERE / "probed_hub.py"] if probe is not None else None
    environ = {"HUBBUBD_LOG_LEVEL": "error"} | ({"HUBBUB_PROBE": str(probe)} if probe is not None else {})
    async with start_hub(played.servers, directory, command, environ=environ, connected=False) as running:
        yield running
