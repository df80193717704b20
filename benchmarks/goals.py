"""Calls through the hub beside the same by a client of the SDK that is connected to the server itself, and by rivals.

All ways lead to servers as people write them (`servers/sdk.py`) and take turns, round by round.
"""

import statistics
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp
import mcp_types
import rivals
from forwarded import FORWARDED, open_forwarder
from mcp.client.stdio import StdioServerParameters
from measure import TEXT, Clocks, Figure, Round, Series, Work, run_in_turns
from processes import Process, start_http_server, start_hub, stdio_server

DIRECT, HUBBUB, BASE = "direct", "Hubbub", "base"
ASKING = "2025-11-25"
"""The newest revision whose servers ask by requests of their own."""
ANSWER = {"name": "Ada"}
MAX_IN_FLIGHT = 64
ASKS, ASK_LIMIT_S = 3, 10.0
"""Who has not relayed so many questions by then, in seconds, does not relay them."""

MEDIAN, P99, RATE = "median", "99th percentile", "calls per second, 32 in flight"
ASK = "question to end of call, median"
CPU, CPU_32, MEMORY = "processor per call", "processor per call, 32 in flight", "memory"
FIGURES = (MEDIAN, P99, RATE, ASK, CPU, CPU_32, MEMORY)
ENDPOINT, BRIDGE = "Hubbub's endpoint", "hubbub mcp"
GOALS: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("stdio", HUBBUB): {MEDIAN: 1.0, P99: 1.2, RATE: 1.0, ASK: 1.4, CPU: 0.6, CPU_32: 0.6},
    ("HTTP", HUBBUB): {MEDIAN: 0.8, P99: 1.2, RATE: 1.2, ASK: 1.4, CPU: 1.0, CPU_32: 1.0},
    ("HTTP", ENDPOINT): {MEDIAN: 1.2, RATE: 0.9},
    ("stdio", BRIDGE): {MEDIAN: 1.3},
}
"""By transport and way: of the first four, the ratio to the direct way."""


Target = Callable[[], Any]
"""Returns what a client of the SDK connects to."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of one way. `ratio` is to the direct way: the middle one of the rounds' own.

    Without a value, `note` says why there is none.
    """

    transport: str
    what: str
    way: str
    value: float | None = None
    unit: str = ""
    ratio: float | None = None
    note: str = ""

    @property
    def goal(self) -> Figure | None:
        """The figure with the hub's goal for it: the ratio, or the value without one. None if there is no goal."""
        goal = GOALS.get((self.transport, self.way), {}).get(self.what)
        measured = self.value if self.ratio is None else self.ratio
        return None if goal is None or measured is None else Figure(self.what, measured, "", goal, self.what == RATE)

    def to_json(self) -> dict[str, Any]:
        goal = self.goal
        return {**asdict(self), "goal": goal and goal.goal, "met": goal and goal.met}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the server's tools. `ask` returns when the server asked; `process` is what stands in the way.

    What does not relay questions has no `ask`.
    """

    name: str
    echo: Callable[[], Awaitable[None]]
    ask: Callable[[], Awaitable[float]] | None
    process: Process | None

    def clock(self) -> float:
        return self.process.cpu_s() if self.process else 0.0


async def compare(
    directory: Path, *, rounds: int, calls: int, most_s: float, against: Sequence[str] = (), base: Path | None = None
) -> list[Compared]:
    """The figures of each way over stdio and HTTP. A round takes about `most_s` seconds at most.

    `against` are rivals, and `base` is another checkout of the hub.
    """
    rows: list[Compared] = []
    async with start_http_server("sdk.py", "http") as url:
        servers = {"stdio": stdio_server("sdk.py", "stdio"), "HTTP": {"url": url}}
        for transport, options in servers.items():
            folder = directory / transport
            async with AsyncExitStack() as open_:
                ways = [
                    await open_.enter_async_context(open_direct(options)),
                    await open_.enter_async_context(_open_hub_way(HUBBUB, options, folder / HUBBUB, {})),
                ]
                shortest = await open_.enter_async_context(open_forwarder(options))
                ways.append(Way(FORWARDED, shortest.echo, None, shortest.process))
                if base:
                    ways.append(
                        await open_.enter_async_context(
                            _open_hub_way(BASE, options, folder / BASE, base_environment(base))
                        )
                    )
                for name in against:
                    try:
                        ways.append(await open_.enter_async_context(open_rival(name, options, folder / name)))
                    except rivals.MissingError as exc:
                        rows += [Compared(transport, what, name, note=str(exc)) for what in FIGURES]
                    except Exception:
                        rows += [Compared(transport, what, name, note="does not start") for what in FIGURES]
                rows += await measure_ways(transport, ways, rounds, calls, most_s)
    return rows


def base_environment(checkout: Path) -> dict[str, str]:
    """The environment in which Python imports the hub of another checkout."""
    return {"PYTHONPATH": ":".join(str(checkout / root) for root in ("hub", "clients", "protos"))}


async def measure_ways(transport: str, ways: Sequence[Way], rounds: int, calls: int, most_s: float) -> list[Compared]:
    """The figures of each way; the first is what the others are compared with."""

    async def measured(works: Sequence[Work], calls: int, in_flight: int, clocks: Clocks | None = None) -> list[Series]:
        return await run_in_turns(works, rounds=rounds, calls=calls, in_flight=in_flight, clocks=clocks, most_s=most_s)

    clocks, echoes = [way.clock for way in ways], [way.echo for way in ways]
    one = await measured(echoes, calls, 1, clocks)
    many = await measured(echoes, calls * 2, 32, clocks)
    asking = {
        way.name: way.ask
        for way in ways
        if way.ask and (way.name not in rivals.RIVALS or await _relays_questions(way.ask))
    }
    answers = await measured([*asking.values()], calls // 2, 1)
    answered = dict(zip(asking, answers, strict=True))
    rows: list[Compared] = []
    for way, single, crowd in zip(ways, one, many, strict=True):
        rows += [
            _ratio_to_direct(transport, MEDIAN, way, single, one[0], lambda each: each.median_ms),
            _ratio_to_direct(transport, P99, way, single, one[0], lambda each: each.p99_ms),
            _ratio_to_direct(transport, RATE, way, crowd, many[0], lambda each: each.rate),
            Compared(transport, ASK, way.name, note="not relayed")
            if way.name not in answered
            else _ratio_to_direct(
                transport, ASK, way, answered[way.name], answered[DIRECT], lambda each: each.median_ms
            ),
        ]
        if way.process:
            rows += [
                Compared(transport, CPU, way.name, single.cpu_ms, "ms"),
                Compared(transport, CPU_32, way.name, crowd.cpu_ms, "ms"),
                Compared(transport, MEMORY, way.name, way.process.rss_mib(), "MiB"),
            ]
    return rows


def _ratio_to_direct(
    transport: str, what: str, way: Way, ours: Series, direct: Series, of: Callable[[Round], float]
) -> Compared:
    """The figure that `of` takes of each round: the middle one, and the middle ratio to the direct way."""
    value = statistics.median(of(each) for each in ours.rounds)
    ratio = statistics.median(of(a) / of(b) for a, b in zip(ours.rounds, direct.rounds, strict=True))
    return Compared(transport, what, way.name, value, "/s" if what == RATE else "ms", ratio)


async def _relays_questions(ask: Callable[[], Awaitable[float]]) -> bool:
    """Whether a rival relays questions of servers; what is raised when not is different for each."""
    try:
        with anyio.fail_after(ASK_LIMIT_S):
            for _ in range(ASKS):
                await ask()
    except Exception:
        return False
    return True


@asynccontextmanager
async def open_direct(options: Mapping[str, Any]) -> AsyncGenerator[Way]:
    """Calls of a client of the SDK that is connected to the server itself."""
    url = options.get("url")
    command = {"command": options["command"], "args": options["args"]} if url is None else {}
    async with open_client_way(DIRECT, lambda: url or StdioServerParameters(**command), None) as way:
        yield way


@asynccontextmanager
async def open_rival(name: str, options: Mapping[str, Any], directory: Path) -> AsyncGenerator[Way]:
    """Calls of a client of the SDK through a rival. Raises rivals.MissingError."""
    directory.mkdir(parents=True)
    async with (
        rivals.start_rival(name, options, directory) as (url, process),
        open_client_way(name, lambda: url, process) as way,
    ):
        yield way


@asynccontextmanager
async def open_client_way(
    name: str, target: Target, process: Process | None, asking: Target | None = None
) -> AsyncGenerator[Way]:
    """Calls of a client of the SDK. `asking` leads to the server of `ask` if that is another one than that of `echo`.

    Its revision has a handshake: only such servers ask by requests of their own.
    """

    async def answer(context: object, params: object) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={**ANSWER})

    async with (
        mcp.Client(target()) as client,
        mcp.Client((asking or target)(), mode="legacy", elicitation_callback=answer) as answers,
    ):

        async def echo() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert _result_text(result) == TEXT

        async def ask() -> float:
            return float(_result_text(await answers.call_tool("ask", {})))

        yield Way(name, echo, ask, process)


def _result_text(result: mcp_types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


@asynccontextmanager
async def _open_hub_way(
    name: str, options: Mapping[str, Any], directory: Path, environ: Mapping[str, str]
) -> AsyncGenerator[Way]:
    """Calls through a hub of its own, by the library of the hub."""
    directory.mkdir(parents=True)
    servers = {"echo": {**options, "max_in_flight": MAX_IN_FLIGHT}, "ask": {**options, "protocol": ASKING}}
    async with start_hub(servers, directory, environ=environ) as running:

        async def echo() -> None:
            result = await running.client.call_tool("echo", "echo", {"text": TEXT})
            assert result.text == TEXT

        async def ask() -> float:
            return float((await running.client.call_tool("ask", "ask", on_form=lambda _: ANSWER)).text)

        yield Way(name, echo, ask, running)
