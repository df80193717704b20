"""How long a server waits for an answer that is given as soon as its question is seen in the inbox."""

import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from measure import percentile
from processes import HERE, HubProcess, hub, stdio_server

import hubbub_client

ANSWER = {"name": "Ada"}


@dataclass(frozen=True, slots=True)
class Answered:
    """One row. The times are the server's own: from writing its question to reading the answer."""

    watchers: int
    median_ms: float
    p95_ms: float
    hub_cpu_ms: float

    def to_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self)


async def ask(directory: Path, *, rounds: int, questions: int) -> list[Answered]:
    """A row for 1 watcher, who answers, and one for 99 more. They take turns."""
    waits: dict[int, list[float]] = {1: [], 100: []}
    cpu_s = dict.fromkeys(waits, 0.0)
    async with hub({"light": stdio_server("light_stdio.py")}, directory) as running, _answering(running.client):
        await _round(running, 10)
        for _ in range(rounds):
            for watchers, found in waits.items():
                async with _watching(running, watchers - 1) if watchers > 1 else nullcontext():
                    before_s = running.cpu_s()
                    found += await _round(running, questions)
                    cpu_s[watchers] += running.cpu_s() - before_s
    return [
        Answered(
            watchers=watchers,
            median_ms=statistics.median(found) * 1000,
            p95_ms=percentile(found, 0.95) * 1000,
            hub_cpu_ms=cpu_s[watchers] / len(found) * 1000,
        )
        for watchers, found in waits.items()
    ]


async def _round(running: HubProcess, questions: int) -> list[float]:
    found: list[float] = []
    for _ in range(questions):
        result = await running.client.call_tool("light", "ask")
        found.append(float(result.text))
    return found


@asynccontextmanager
async def _answering(client: hubbub_client.Hub) -> AsyncGenerator[None]:
    """Answers every question as soon as the watch shows it."""

    async def answer(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with aclosing(client.inbox.watch(states=["open"])) as news:
            async for event in news:
                match event:
                    case hubbub_client.Synced():
                        task_status.started()
                    case hubbub_client.Upsert(record=request):
                        await client.inbox.answer(request.id, accept=ANSWER)
                    case _:
                        pass

    async with anyio.create_task_group() as tasks:
        await tasks.start(answer)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _watching(running: HubProcess, count: int) -> AsyncGenerator[None]:
    command = [sys.executable, str(HERE / "watchers.py"), str(running.data_dir), str(count)]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with anyio.fail_after(30):
            await process.stdout.receive()
        yield
        await process.stdin.aclose()
