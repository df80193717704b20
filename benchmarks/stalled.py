"""How much later a change reaches those who read a watch when others have stopped to read it."""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from measure import percentile
from processes import HERE, HubProcess, start_hub, stdio_server

READING, STALLED = 180, 20
FLOOD = 100
"""Calls of 2 kB that fill the way to those who stall before anything is measured."""


@dataclass(frozen=True, slots=True)
class Late:
    """One row: from the end of a call to hearing of it, over all who read. The hub waits 50 ms for company first.

    The ratios are to the row in which nobody stalls.
    """

    stalled: int
    median_ms: float
    p99_ms: float
    median_ratio: float
    p99_ratio: float


async def late(directory: Path, *, rounds: int, changes: int) -> list[Late]:
    """A row without and one with watchers that stall; they take turns."""
    waits: dict[int, list[float]] = {0: [], STALLED: []}
    async with start_hub({"light": stdio_server("light_stdio.py")}, directory) as running:
        for _ in range(rounds):
            for stalled, waits_s in waits.items():
                waits_s += await _round(running, stalled, changes)
    medians = {stalled: statistics.median(waits_s) * 1000 for stalled, waits_s in waits.items()}
    p99s = {stalled: percentile(waits_s, 0.99) * 1000 for stalled, waits_s in waits.items()}
    return [
        Late(stalled, medians[stalled], p99s[stalled], medians[stalled] / medians[0], p99s[stalled] / p99s[0])
        for stalled in waits
    ]


async def _round(running: HubProcess, stalled: int, changes: int) -> list[float]:
    """How many seconds those who read waited for each change, while so many others stall."""
    command = [sys.executable, str(HERE / "late.py"), str(running.data_dir), str(READING), str(stalled)]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        response = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(120):
            await response.receive_until(b"\n", 100)
            for _ in range(FLOOD):
                await running.client.call_tool("light", "echo", {"text": "x" * 2000})
            await anyio.sleep(3)
            await process.stdin.send(b"now\n")
            for _ in range(changes):
                await running.client.call_tool("light", "echo", {"text": "x"})
                await anyio.sleep(0.2)
            await anyio.sleep(1)
            await process.stdin.aclose()
            return json.loads(await response.receive_until(b"\n", 1 << 24))
