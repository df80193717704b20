"""How long a call takes from its server's question to its end, when the question is answered at once."""

import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import mcp
import mcp_types
from mcp.client.stdio import StdioServerParameters
from measure import percentile
from processes import HERE, HubProcess, start_http_server, start_hub, stdio_server

import hubbub_client

ANSWER = {"name": "Ada"}
REVISION = "2025-11-25"
"""The newest revision in which servers ask by requests of their own."""
WATCHERS = 99
"""The watchers beside the one who answers."""

Call = Callable[[], Awaitable[float]]
"""Makes a call that asks, and returns when its server asked, by the machine's monotonic clock."""


@dataclass(frozen=True, slots=True)
class QuestionTime:
    """One row: from the server's question to the end of its call, as the caller sees it.

    `ratio` to the direct client is the middle one of the rounds' own, which compare their medians.
    """

    server: str
    way: str
    median_ms: float
    p95_ms: float
    ratio: float
    hub_cpu_ms: float


@dataclass(slots=True)
class _Way:
    """One way to have a question answered, and what was measured. `around` is open during each round: who answers."""

    name: str
    call: Call
    around: Callable[[], AbstractAsyncContextManager[object]]
    rounds: list[list[float]] = field(default_factory=list[list[float]])
    cpu_s: float = 0.0

    async def measure(self, running: HubProcess, questions: int) -> None:
        """Adds a round."""
        async with self.around():
            await self.call()
            before_s, waits = running.cpu_s(), list[float]()
            for _ in range(questions):
                asked_at = await self.call()
                waits.append(perf_counter() - asked_at)
            self.cpu_s += running.cpu_s() - before_s
        self.rounds.append(waits)

    def row(self, server: str, direct: "_Way") -> QuestionTime:
        """The row of this way, compared with the direct one."""
        waits = [wait for found in self.rounds for wait in found]
        pairs = zip(self.rounds, direct.rounds, strict=True)
        return QuestionTime(
            server=server,
            way=self.name,
            median_ms=statistics.median(waits) * 1000,
            p95_ms=percentile(waits, 0.95) * 1000,
            ratio=statistics.median(statistics.median(ours) / statistics.median(theirs) for ours, theirs in pairs),
            hub_cpu_ms=self.cpu_s / len(waits) * 1000,
        )


async def measure_questions(directory: Path, *, rounds: int, questions: int) -> list[QuestionTime]:
    """Rows for each server: a direct client, and the ways through the hub, in turns."""
    rows: list[QuestionTime] = []
    async with start_http_server("sdk.py", "http") as url:
        servers: dict[str, dict[str, Any]] = {
            "stdio-light": stdio_server("light_stdio.py"),
            "stdio-sdk": stdio_server("sdk.py", "stdio"),
            "http-sdk": {"url": url},
        }
        chosen = {name: {**options, "protocol": REVISION} for name, options in servers.items()}
        async with start_hub(chosen, directory) as running:
            for name, options in chosen.items():
                rows += await _compare_server(running, name, options, rounds, questions)
    return rows


async def _compare_server(
    running: HubProcess, name: str, options: dict[str, Any], rounds: int, questions: int
) -> list[QuestionTime]:
    """The rows of one server: each way to have its question answered, in turns."""
    hub_ = running.client

    async def straight() -> float:
        result = await direct.call_tool("ask", {})
        (content,) = result.content
        assert isinstance(content, mcp_types.TextContent)
        return float(content.text)

    async def watched() -> float:
        return float((await hub_.call_tool(name, "ask")).text)

    async def called_back() -> float:
        return float((await hub_.call_tool(name, "ask", on_form=lambda _: ANSWER)).text)

    @asynccontextmanager
    async def crowded() -> AsyncGenerator[None]:
        async with _add_watchers(running, WATCHERS), _answer_watched(hub_):
            yield

    async with AsyncExitStack() as stack:
        target = (
            options["url"]
            if "url" in options
            else StdioServerParameters(command=options["command"], args=options["args"])
        )
        direct = await stack.enter_async_context(mcp.Client(target, mode="legacy", elicitation_callback=_answer_form))
        ways = [
            _Way("direct", straight, nullcontext),
            _Way("watch", watched, lambda: _answer_watched(hub_)),
            _Way("callback", called_back, nullcontext),
            _Way(f"watch, {WATCHERS} more", watched, crowded),
        ]
        for _ in range(rounds):
            for way in ways:
                await way.measure(running, questions)
    return [way.row(name, ways[0]) for way in ways]


async def _answer_form(context: object, params: object) -> mcp_types.ElicitResult:
    del context, params
    return mcp_types.ElicitResult(action="accept", content={**ANSWER})


@asynccontextmanager
async def _answer_watched(client: hubbub_client.Hub) -> AsyncGenerator[None]:
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
async def _add_watchers(running: HubProcess, count: int) -> AsyncGenerator[None]:
    """So many watchers of the inbox in another process, during the block."""
    command = [sys.executable, str(HERE / "crowd.py"), str(running.data_dir), str(count)]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with anyio.fail_after(30):
            await process.stdout.receive()
        yield
        await process.stdin.aclose()
