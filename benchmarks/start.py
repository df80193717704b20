"""What a start costs: the processor time of new processes, each beside one that only runs Python or one import.

All take turns, so that a busy machine hits all. No wall-clock time: a start waits for nothing but the processor.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from processes import start_hub, stdio_server

PYTHON, MCP, GRPC = "python", "import mcp", "import grpc"
BESIDE = {PYTHON: "pass", MCP: MCP, GRPC: GRPC}
HUBBUB = [sys.executable, "-c", "from hubbub_cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Started:
    """One row: the medians of all rounds, user and system time together, in milliseconds."""

    what: str
    cpu_ms: float
    beside: str
    beside_cpu_ms: float

    @property
    def ratio(self) -> float:
        """The share that the table shows."""
        return self.cpu_ms / self.beside_cpu_ms

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


async def start(directory: Path, *, rounds: int, warm: bool = True) -> list[Started]:
    """A row for the daemon, and for each command. The inbox has one pending request.

    With `warm`, a round before them fills the caches.
    """
    async with start_hub({"light": stdio_server("light_stdio.py")}, directory) as running:
        await running.client.start_tool("light", "ask")
        with anyio.fail_after(10):
            while not await running.client.inbox.list(states=["open"]):
                await anyio.sleep(0.05)
        daemon = [sys.executable, "-m", "hubbubd", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "empty")]
        inbox = [*HUBBUB, "--data-dir", str(running.data_dir)]
        rows = [
            ("hubbubd, until it is ready", daemon, MCP),
            ("hubbub --version", [*HUBBUB, "--version"], PYTHON),
            ("hubbub --help", [*HUBBUB, "--help"], PYTHON),
            ("hubbub inbox list", [*inbox, "inbox", "list"], GRPC),
            ("hubbub --json inbox list", [*inbox, "--json", "inbox", "list"], GRPC),
        ]
        commands = {what: command for what, command, _ in rows}
        commands |= {name: [sys.executable, "-c", code] for name, code in BESIDE.items()}
        found: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + warm):
            for name, command in commands.items():
                cpu_ms = await to_thread.run_sync(_cpu_ms, command)
                if number >= warm:
                    found[name].append(cpu_ms)
    medians = {name: statistics.median(each) for name, each in found.items()}
    return [Started(what, medians[what], beside, medians[beside]) for what, _, beside in rows]


def _cpu_ms(command: Sequence[str]) -> float:
    """The processor time of a process to its end; of a daemon, until its first line, and then it is killed."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        ready = first.startswith(b"{") and json.loads(first).get("event") == "ready"
        if ready:
            process.kill()
        else:
            process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not ready:
        raise subprocess.CalledProcessError(process.returncode, command)
    return (used.ru_utime + used.ru_stime) * 1000
