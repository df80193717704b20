"""What the hub costs, measured here and now: tables on stdout, and every figure in a file with --json.

README.md beside this file says what each figure means.
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import access
import anyio
import calls
import goals
import history
import questions
import rivals
import stalled
import start
import stream
import telemetry
import upkeep
from measure import Figure
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

PARTS = (
    *("goals", "start", "calls", "stream", "access", "telemetry", "questions", "watchers", "loop", "store", "history"),
)
WHOLE, QUICK, LEAST = 1, 4, 100
"""What the number of calls is divided by."""

console = Console(width=160)


async def main(options: argparse.Namespace) -> None:
    """Measures the parts that were asked for, one after the other."""
    parts = options.parts or PARTS
    found: dict[str, list[dict[str, Any]]] = {}
    began = monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-bench-") as folder,
        Console(stderr=True).status("") as status,
    ):
        for number, part in enumerate(parts):
            status.update(f"{part}, {number + 1} of {len(parts)}")
            directory = Path(folder) / part
            directory.mkdir()
            rows = await measured(part, directory, options, status)
            found[part] = [row.to_json() for row in rows]
            console.print(f"{part}: {monotonic() - began:.0f} s so far\n", style="dim")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")


def machine() -> dict[str, Any]:
    """Where the figures are from."""
    return {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load": os.getloadavg()[0],
    }


async def measured(part: str, directory: Path, options: argparse.Namespace, status: Status) -> Sequence[Any]:
    """Measures one part and shows its table; the rows."""

    def some(whole: int) -> int:
        return max(whole // options.less, 1)

    rows: Sequence[Any]
    match part:
        case "goals":
            against = [*rivals.RIVALS] if options.rivals else []
            rows = await goals.compare(
                directory, rounds=4, calls=some(400), most_s=4 / options.less, against=against, base=options.base
            )
            _show_goals(rows)
        case "start":
            rows = await start.start(directory, rounds=some(12))
            _show_starts(rows)
        case "calls":
            rows = await calls.compare(directory, only=options.servers, rounds=8, calls=some(400))
            _show_calls(rows)
        case "stream":
            rows = await stream.ways(directory, rounds=4, calls=some(1000))
            _show_made(rows)
        case "access":
            rows = await access.ways(directory, rounds=8, calls=some(400))
            _show_ways(rows)
        case "telemetry":
            rows = await telemetry.compare(directory, rounds=6, calls=some(200), base=options.base)
            _show_observed(rows)
        case "questions":
            rows = await questions.ask(directory, rounds=3, questions=some(100))
            _show_questions(rows)
        case "watchers":
            rows = await stalled.late(directory, rounds=some(3), changes=some(40))
            _show_late(rows)
        case "loop":
            rows = await upkeep.loop(directory, calls=some(8000), idle_s=20 / options.less)
            _show_figures("The loop", rows)
        case "store":
            rows = await upkeep.store(directory, commits=some(200), calls=some(10_000))
            _show_figures("The store", rows)
        case _:
            count = some(80_000) if options.less > WHOLE else 1_000_000
            rows = await history.history(directory, calls=count, say=lambda far: status.update(f"{part}, {far}"))
            _show_figures("With the calls that there have been", rows)
    return rows


def _show_goals(rows: Sequence[goals.Compared]) -> None:
    ways = list(dict.fromkeys(row.way for row in sorted(rows, key=_place)))
    table = _table("Through the hub, and directly", "what", "goal", "", *ways)
    cells = {(row.transport, row.what, row.way): row for row in rows}
    for transport, what in dict.fromkeys((row.transport, row.what) for row in rows if row.way == goals.HUBBUB):
        found = [cells.get((transport, what, way)) for way in ways]
        goal = cells[transport, what, goals.HUBBUB].goal
        is_ratio = cells[transport, what, goals.HUBBUB].ratio is not None
        table.add_row(f"{transport}, {what}", *_goal(goal, "x" if is_ratio else "ms"), *map(_compared, found))
    console.print(table)


def _place(row: goals.Compared) -> int:
    """The hub and what it is compared with come before rivals."""
    known = (goals.DIRECT, goals.HUBBUB, goals.BASE)
    return known.index(row.way) if row.way in known else len(known)


def _compared(row: goals.Compared | None) -> str:
    if row is None or row.value is None:
        return "" if row is None else row.note
    value = f"{row.value:.0f} {row.unit}" if row.value >= 100 else f"{row.value:.2f} {row.unit}"
    return value if row.ratio is None or row.way == goals.DIRECT else f"{row.ratio:.2f} x, {value}"


def _goal(figure: Figure | None, unit: str) -> tuple[str, str]:
    if figure is None or figure.goal is None:
        return "", ""
    return f"{'≥' if figure.at_least else '≤'} {figure.goal:g} {unit}", "met" if figure.met else "NOT met"


def _show_calls(rows: Sequence[calls.Compared]) -> None:
    columns = ("throughput", "at best", "added", "empty RPC", "direct", "p95", "hub", "p95", "direct", "hub")
    table = _table("Calls", "server", "in flight", *columns, "hub's CPU")
    for row in rows:
        times = (row.empty_median_ms, row.direct_median_ms, row.direct_p95_ms, row.hub_median_ms, row.hub_p95_ms)
        table.add_row(
            row.server,
            str(row.in_flight),
            f"{row.rate_ratio:.2f} x",
            f"{row.best_ratio:.2f} x",
            f"{row.added_ms:+.2f} ms",
            *(f"{value:.2f} ms" for value in times),
            f"{row.direct_rate:.0f} /s",
            f"{row.hub_rate:.0f} /s",
            f"{row.hub_cpu_ms:.2f} ms",
        )
    console.print(table)


def _show_starts(rows: Sequence[start.Started]) -> None:
    table = _table("Processor time of a start", "what", "CPU", "beside", "its CPU", "ratio", "more")
    for row in rows:
        values = (f"{row.cpu_ms:.0f} ms", row.beside, f"{row.beside_ms:.0f} ms", f"{row.ratio:.2f} x")
        table.add_row(row.what, *values, f"{row.cpu_ms - row.beside_ms:+.0f} ms")
    console.print(table)


def _show_made(rows: Sequence[stream.Made]) -> None:
    table = _table("Calls by how they are made", "way", "calls", "in flight", "median", "rate", "hub's CPU", "own CPU")
    for row in rows:
        values = (f"{row.median_ms:.2f} ms", f"{row.rate:.0f} /s", f"{row.hub_cpu_ms:.2f} ms")
        kind = "repeated" if row.again else "new"
        table.add_row(row.way, kind, str(row.in_flight), *values, f"{row.client_cpu_ms:.2f} ms")
    console.print(table)


def _show_ways(rows: Sequence[access.Way]) -> None:
    table = _table("Calls by who makes them", "way", "in flight", "median", "rate", "share")
    for row in rows:
        values = (f"{row.median_ms:.2f} ms", f"{row.rate:.0f} /s", f"{row.ratio:.2f} x")
        table.add_row(row.way, str(row.in_flight), *values)
    console.print(table)


def _show_observed(rows: Sequence[telemetry.Observed]) -> None:
    table = _table("Calls through hubs with telemetry", "hub", "in flight", "median", "throughput", "hub's CPU")
    for row in rows:
        values = (f"{row.median_ms:.2f} ms", f"{row.ratio:.2f} x", f"{row.hub_cpu_ms:.2f} ms")
        table.add_row(row.hub, str(row.in_flight), *values)
    console.print(table)


def _show_questions(rows: Sequence[questions.Answered]) -> None:
    table = _table("From a server's question to its answer", "watchers", "median", "p95", "hub's CPU")
    for row in rows:
        values = (row.median_ms, row.p95_ms, row.hub_cpu_ms)
        table.add_row(str(row.watchers), *(f"{value:.2f} ms" for value in values))
    console.print(table)


def _show_late(rows: Sequence[stalled.Late]) -> None:
    title = f"From the end of a call to {stalled.READING} watchers who read"
    table = _table(title, "beside them, stalled", "median", "p99", "median, share", "p99, share")
    for row in rows:
        shares = (row.median_ms / rows[0].median_ms, row.p99_ms / rows[0].p99_ms)
        values = (f"{row.median_ms:.1f} ms", f"{row.p99_ms:.1f} ms", *(f"{share:.2f} x" for share in shares))
        table.add_row(str(row.stalled), *values)
    console.print(table)


def _show_figures(title: str, rows: Sequence[Figure]) -> None:
    table = _table(title, "what", "figure", "goal", "")
    for row in rows:
        table.add_row(row.name, f"{row.value:.2f} {row.unit}", *_goal(row, row.unit))
    console.print(table)


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what the hub costs.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure; everything if none is named")
    parser.add_argument("--servers", default="", metavar="PART", help="`calls`: only servers whose name contains this")
    parser.add_argument("--rivals", action="store_true", help="`goals`: beside what else stands before servers")
    parser.add_argument("--base", type=Path, metavar="DIR", help="`goals`, `telemetry`: beside the hub of a checkout")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", dest="less", action="store_const", const=QUICK, help="a quarter of the work, with figures to match"
    )
    effort.add_argument(
        "--least", dest="less", action="store_const", const=LEAST, help="next to no work: do all parts still run?"
    )
    parser.set_defaults(less=WHOLE)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, _options())
